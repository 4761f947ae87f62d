"""From what the user asked for to a cluster: a kubeconfig's, or the sandbox."""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

from k8s.client.client import Client
from k8s.client.server_version import fetch_version
from k8s.errors import FORBIDDEN_HINT, Forbidden, KubeError, NotKubernetes
from k8s.snapshot import ClusterSnapshot
from tui.commands.support.output import write_stderr
from tui.feeds.cluster_feed import ClusterFeed
from tui.options import ConsoleOptions
from tui.text.format import Clock


@asynccontextmanager
async def cluster(options: ConsoleOptions) -> AsyncIterator[Client]:
    """Open the cluster that is meant; with `--sandbox`, join the sandbox or start it.

    Raises:
        NoCluster: There is no kubeconfig, or it cannot be used.
        NotKubernetes: It names an address where something else answers.
    """
    options = await with_sandbox(options)
    async with await Client.connect(options.kubeconfig, options.context, options.namespace) as client:
        client.on_warning(lambda words: write_stderr(f"Warning: {words}"))
        try:
            yield client
        except KubeError as error:
            if _is_foreign(error):
                await _check_is_kubernetes(client)
            raise


def _is_foreign(error: BaseException | None) -> bool:
    """Tell whether an error, or one that it explains, may come from something else than an API server."""
    while error is not None:
        if isinstance(error, KubeError) and error.is_foreign:
            return True
        error = error.__cause__
    return False


async def _check_is_kubernetes(client: Client) -> None:
    """Say of an address that understands nothing what is wrong with it.

    Raises:
        NotKubernetes: It is no API server's.
    """
    try:
        await fetch_version(client)
    except NotKubernetes:
        raise
    except KubeError:
        return


def _silent(_words: str) -> None:
    """Take progress that nobody waits for."""


async def with_sandbox(options: ConsoleOptions, progress: Callable[[str], None] = _silent) -> ConsoleOptions:
    """Return options that name the sandbox's kubeconfig if it is meant; start it if need be."""
    if not options.is_sandbox:
        return options
    from k8s import sandbox

    address = await sandbox.start(progress=progress)
    if not address.was_running and progress is _silent:
        write_stderr("Started the sandbox; it runs in the background. To stop it: gpuconsole sandbox stop")
    return replace(options, kubeconfig=str(address.kubeconfig), context="")


def namespace_in_use(options: ConsoleOptions, client: Client) -> str:
    """Return the namespace that is meant; empty for all of them."""
    return "" if options.is_all_namespaces else client.config.namespace


async def read_jobs(options: ConsoleOptions, client: Client) -> ClusterSnapshot:
    """Read once the cluster with the jobs that are meant; `missing_jobs` says what of them may not be read.

    Raises:
        Forbidden: Neither pods nor jobs of any kind may be read.
        KubeError: The cluster cannot be read at all.
    """
    return (await read_feed(options, client))[0]


async def read_feed(options: ConsoleOptions, client: Client) -> tuple[ClusterSnapshot, ClusterFeed]:
    """Read what `read_jobs` reads, and return also the feed, which can go on from there."""
    feed = ClusterFeed(client, namespace_in_use(options, client))
    snapshot = await feed.read_once()
    if feed.reads_nothing:
        where = f" in namespace {snapshot.namespace}" if snapshot.namespace else ""
        why = next((missing.why for missing in snapshot.missing_jobs), "")
        raise Forbidden(f"Could not list jobs{where}.", why, FORBIDDEN_HINT)
    return snapshot, feed


def check_may_change(options: ConsoleOptions, doing: str) -> None:
    """Refuse to change anything with `--readonly`.

    Raises:
        KubeError: It was asked for.
    """
    if options.is_read_only:
        raise KubeError(
            f"Could not {doing}.", "Nothing is changed with --readonly.", "Run it again without --readonly."
        )


def command_line(options: ConsoleOptions, *words: str) -> str:
    """Return a command as somebody types it who means the same cluster and namespace."""
    where = ["--sandbox"] if options.is_sandbox else []
    for flag, value in (
        ("--kubeconfig", options.kubeconfig),
        ("--context", options.context),
        ("-n", options.namespace),
    ):
        where += [flag, value] if value else []
    return shlex.join(["gpuconsole", *where, *words])


def server_clock(client: Client) -> Clock:
    """Return the time by the cluster's clock, as far as it is known."""
    return Clock.ahead(client.server_clock_offset_s)
