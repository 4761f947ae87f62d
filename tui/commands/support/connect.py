"""Connect to the requested cluster: one from a kubeconfig, or the sandbox."""

from __future__ import annotations

import re
import shlex
import sys
import termios
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace

from k8s.client.auth.exec_plugin import LoginDialog
from k8s.client.client import Client, fetch_version
from k8s.models.resources import NAMESPACES
from k8s.snapshot import ClusterSnapshot
from k8s.text.errors import FORBIDDEN_HINT, SANDBOX_CONTEXT, Forbidden, KubeError, NotFound, NotKubernetes
from k8s.text.sanitize import sanitize
from tui import program
from tui.commands.support.output import is_interactive, write_stderr
from tui.settings.options import ConsoleOptions, command_line
from tui.settings.served_kinds import open_mirror
from tui.text.format import Clock, in_namespace, names_there_are

if TYPE_CHECKING:
    from k8s.cluster.cluster_mirror import ClusterMirror
    from k8s.reasons.failures import FailureCause
    from k8s.reasons.job_reasons import JobReasons

_COMMAND = re.compile(
    r"\bgpuconsole (?=(?:curves|data|diagnose|get|list|logs|record|resume|submit|timeline|top|why)\b)"
)


@asynccontextmanager
async def cluster(options: ConsoleOptions, *, is_brief: bool = False) -> AsyncIterator[Client]:
    """Open the requested cluster; with `--sandbox`, join the sandbox or start it.

    Set `is_brief` for a handful of requests: see `Client`.

    Raises:
        NoCluster: There is no kubeconfig, or it is unusable.
        NotKubernetes: The address belongs to another kind of server.
    """
    options = await with_sandbox(options)
    where = options.kubeconfig, options.context, options.namespace, options.overrides
    async with await Client.connect(*where, is_brief=is_brief, dialog=login_dialog()) as client:
        client.on_warning(lambda words: write_stderr(f"Warning: {words}"))
        try:
            yield client
        except KubeError as error:
            if _is_foreign(error):
                await _check_is_kubernetes(client)
            raise


def login_dialog() -> LoginDialog:
    """Return the means by which exec plugins reach the user of a command: its terminal, if there is one."""
    return LoginDialog(
        show=_show_at_once if sys.stderr.isatty() else None,
        lend_terminal=_restored_terminal if is_interactive() else None,
        is_lent_if_available=True,
        hint=f"Run it on a terminal: {_own_line()}",
    )


def _own_line() -> str:
    return sanitize(shlex.join([*program().split(), *sys.argv[1:]]))


def _show_at_once(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


@contextmanager
def _restored_terminal() -> Iterator[None]:
    # A plugin that is killed at its prompt for a password leaves the terminal without echo.
    before = termios.tcgetattr(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _is_foreign(error: BaseException | None) -> bool:
    """Return True if the error, or one of its causes, may come from a server that is not an API server."""
    while error is not None:
        if isinstance(error, KubeError) and error.is_foreign:
            return True
        error = error.__cause__
    return False


async def _check_is_kubernetes(client: Client) -> None:
    """Explain an address whose answers cannot be parsed.

    Raises:
        NotKubernetes: The server is not an API server.
    """
    try:
        await fetch_version(client)
    except NotKubernetes:
        raise
    except KubeError:
        return


def _silent(_words: str) -> None:
    """Ignore progress."""


async def with_sandbox(options: ConsoleOptions, progress: Callable[[str], None] = _silent) -> ConsoleOptions:
    """Return options that name the sandbox's kubeconfig if it was requested; start it if necessary.

    Where there is no kubeconfig, a sandbox that runs is joined too.
    """
    if not options.is_sandbox:
        # A context was found in a kubeconfig: do not import more.
        if options.context:
            return options
        if not options.joins_sandbox:
            return options
        write_stderr("There is no kubeconfig: this is the sandbox that runs on this machine.")
    from k8s import sandbox

    address = await sandbox.start(progress=progress)
    if not address.was_running and progress is _silent:
        write_stderr("Started the sandbox; it runs in the background. To stop it: gpuconsole sandbox stop")
        if address.notice:
            write_stderr(address.notice)
    return replace(options, kubeconfig=str(address.kubeconfig), context="", notice=address.notice)


def in_chosen_context(options: ConsoleOptions) -> ConsoleOptions:
    """Return options that name the context, with its settings of config.yaml."""
    from k8s.client.auth.kubeconfig import read_kubeconfig

    if options.is_sandbox:
        return options.in_context(SANDBOX_CONTEXT)
    name = options.context
    if not name:
        # Named, so that a change of the file does not lead to a context without these settings. Problems
        # of the file are reported by whoever connects.
        with suppress(KubeError):
            known = read_kubeconfig(options.kubeconfig)
            name = "" if known.problems else known.current
    return replace(options, context=name).in_context(name)


def recorded_place(options: ConsoleOptions) -> tuple[str, str]:
    """Return the context and namespace of a command that does not connect; empty for all namespaces.

    Raises:
        NoCluster: There is no kubeconfig, or it is unusable.
    """
    from k8s.client.auth.cluster_config import find_context
    from k8s.client.auth.kubeconfig import Context

    is_sandbox = options.is_sandbox or options.joins_sandbox
    named = options.kubeconfig, options.context, options.overrides
    found = Context(SANDBOX_CONTEXT) if is_sandbox else find_context(*named)
    return found.name, "" if options.is_all_namespaces else options.namespace or found.namespace


async def read_jobs(
    options: ConsoleOptions, client: Client, *, is_narrow: bool = False, has_nodes: bool = True
) -> ClusterSnapshot:
    """Read the requested jobs once; `missing_jobs` names those that may not be read.

    `is_narrow` and `has_nodes` are those of `ClusterMirror`.

    Raises:
        Forbidden: Neither pods nor jobs of any kind may be read.
        NotFound: The server serves none of them, or the namespace does not exist.
        KubeError: The cluster cannot be read.
    """
    return (await read_cluster(options, client, is_narrow=is_narrow, has_nodes=has_nodes))[0]


async def read_cluster(
    options: ConsoleOptions, client: Client, job: str = "", *, is_narrow: bool = False, has_nodes: bool = True
) -> tuple[ClusterSnapshot, JobReasons]:
    """Read as `read_jobs` does; return also the reasons of jobs, of none if a named `job` is not pending."""
    from k8s.reasons.job_reasons import JobReasons  # with what it imports, slow
    from tui.tables.filters import own_names

    mirror = open_mirror(options, client, is_narrow=is_narrow, has_nodes=has_nodes)
    reasons = JobReasons(mirror, own_names)
    reasons.name = job
    if options.causes_file.exists():
        from tui.settings.causes_file import read_causes  # slow to import, and needed only for failures

        reasons.causes = read_causes(options.causes_file).causes
    return await read_mirror(mirror), reasons


async def read_mirror(mirror: ClusterMirror) -> ClusterSnapshot:
    """Read a mirror once, with the errors of `read_jobs`."""
    snapshot = await mirror.read_once()
    if mirror.reads_nothing:
        where = in_namespace(snapshot.namespace)
        if refused := snapshot.missing_jobs:
            raise Forbidden(f"Could not list jobs{where}.", refused[0].why, FORBIDDEN_HINT)
        raise NotFound(f"Could not list jobs{where}.", "The server serves neither pods nor jobs there.")
    if not snapshot.jobs:
        await check_namespace(mirror.client, mirror.namespace)
    return snapshot


async def check_namespace(client: Client, namespace: str) -> None:
    """Reject a namespace that does not exist; for commands that find nothing in it.

    Raises:
        NotFound: The cluster reports that there is none of this name.
    """
    from k8s.reasons.cluster_checks import namespace_is_missing  # slow to import, and rarely needed

    if not namespace or not await namespace_is_missing(client, namespace):
        return
    names: list[str] = []
    with suppress(KubeError):  # many users may not list them
        names = [each["metadata"]["name"] for each in await client.list(NAMESPACES)]
    raise NotFound(f"There is no namespace {namespace}.", names_there_are(namespace, names) if names else "")


def known_causes(options: ConsoleOptions) -> Sequence[FailureCause]:
    """Return the causes of failures to look for; invalid ones of the user are reported on stderr."""
    from tui.settings.causes_file import read_causes

    found = read_causes(options.causes_file)
    for problem in found.problems:
        write_stderr(problem)
    return found.causes


def check_may_change(options: ConsoleOptions, doing: str) -> None:
    """Reject changes with `--readonly`.

    Raises:
        KubeError: The flag was given.
    """
    if options.is_read_only:
        raise KubeError(
            f"Could not {doing}.",
            f"Changes are disabled by {options.read_only_reason}.",
            "" if options.is_read_only_here else "Run it again without --readonly.",
        )


def with_cluster_flags(options: ConsoleOptions, text: str) -> str:
    """Return text whose commands name this run's cluster, so that they can be pasted as they are."""
    if _own_line() in text:
        return text
    return _COMMAND.sub(lambda _: f"{command_line(options)} ", text)


def server_clock(client: Client) -> Clock:
    """Return a clock set to the cluster's time, as far as it is known."""
    return Clock.ahead(client.server_clock_offset_s)
