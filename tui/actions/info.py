"""Show facts about the console, the cluster and the user's permissions."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import themes
from k8s.errors import NoCluster
from k8s.kinds import KINDS
from k8s.snapshot import ClusterSnapshot
from tui.actions import Functions
from tui.feeds.info import (
    AllowedVerbs,
    address,
    as_text,
    fetch_allowed_verbs,
    files,
    runs_text,
    verbs_text,
    versions,
)
from tui.screens.base.request import ActionRequest, Route
from tui.terminal import clipboard, tty_state
from tui.text.format import SKEW_S, duration

if TYPE_CHECKING:
    from tui.app import Console

# Names and values; empty values are left out.
Fields = Iterator[tuple[str, str]]


def info(console: Console, request: ActionRequest) -> None:
    """Show facts about this console, its cluster and its user."""
    from tui.screens.documents.info import InfoView

    async def learn() -> AllowedVerbs:
        client, permissions = console.client, console.permissions
        if client is None or permissions is None:
            raise NoCluster("There is no cluster yet.")
        namespace = _namespace(console)
        return await fetch_allowed_verbs(client, lambda need: permissions.ask(need, namespace))

    installed = [(name, found or "not installed") for name, found in versions().items()]
    paths = list(_files(console))

    def describe(snapshot: ClusterSnapshot, permissions: AllowedVerbs | None, why_not: str) -> str:
        sections = (
            ("Cluster", _cluster(console, snapshot)),
            (f"What you may do in namespace {_namespace(console)}", _rights(permissions, why_not)),
            ("Terminal", _terminal(console)),
            ("Files", [*paths, *_problems(console)]),
            ("Versions", installed),
        )
        return as_text(sections)

    def badge_of(snapshot: ClusterSnapshot) -> str:
        return badge(snapshot, is_sandbox=_is_sandbox(console, snapshot))

    console.views.show(Route("info"), InfoView(describe, badge_of, learn))


def _namespace(console: Console) -> str:
    own = console.client.config.namespace if console.client is not None else ""
    return console.snapshot.namespace or own or "default"


def _is_sandbox(console: Console, snapshot: ClusterSnapshot) -> bool:
    return console.options.is_sandbox or snapshot.is_sandbox


def badge(snapshot: ClusterSnapshot, *, is_sandbox: bool) -> str:
    """Return a short label for the cluster, such as `sandbox`; empty without one."""
    gpus = "SIMULATED GPUS" * snapshot.is_simulated
    if is_sandbox:
        return " · ".join(filter(None, ("SANDBOX", gpus)))
    return gpus or "REAL" * (snapshot.is_synced and bool(snapshot.kinds) and "nodes" not in snapshot.problems)


def _cluster(console: Console, snapshot: ClusterSnapshot) -> Fields:
    client = console.client
    config = client.config if client is not None else None
    if _is_sandbox(console, snapshot):
        yield "this is", "a sandbox: processes on this machine, whatever image a job names"
    if snapshot.is_simulated:
        yield "its GPUs", "are simulated, as its nodes say themselves"
    elif "nodes" in snapshot.problems:
        yield "its GPUs", "nobody knows whether they are real: its nodes may not be listed"
    yield "link", _link(snapshot)
    yield "context", snapshot.context or "none"
    yield "server", address(config.host) if config else ""
    yield "version", snapshot.server_version
    yield "user", config.user if config else snapshot.user
    yield "acts as", config.acts_as if config else ""
    yield "namespace", (snapshot.namespace or "all namespaces") if config else ""
    if client is None:
        return
    none = "none that may be listed" if snapshot.is_synced else "not known yet"
    yield "job kinds", ", ".join(dict.fromkeys(snapshot.kinds)) or none
    if snapshot.kinds:
        resources = [kind.resource for kind in KINDS]
        there = {*snapshot.kinds, *(each.kind for each in resources if each.full_name in snapshot.problems)}
        yield (
            "not served",
            ", ".join(dict.fromkeys(each.kind for each in resources if each.kind not in there)),
        )
    unreadable: dict[str, list[str]] = {}
    for name, missing in snapshot.problems.items():
        unreadable.setdefault(missing.shown, []).append(name)
    for shown, names in unreadable.items():
        yield f"only in {shown}" if shown else "not readable", ", ".join(names)
    for missing in snapshot.unreadable:
        yield "not understood", missing.words
    busy_s = client.throttled_until_s - asyncio.get_running_loop().time()
    yield "requests", f"throttled: silence for {duration(busy_s)}" if busy_s > 0 else "not throttled"
    yield "its clock", _clock(client.server_clock_offset_s)


def _link(snapshot: ClusterSnapshot) -> str:
    if snapshot.stale:
        return " ".join(snapshot.stale.split())
    return "live" if snapshot.is_synced else " ".join(snapshot.progress.split()) or "reading"


def _clock(ahead_s: float) -> str:
    if not ahead_s:
        return "as ours"
    way = "ahead of" if ahead_s > 0 else "behind"
    note = "; ages are marked ~" if abs(ahead_s) > SKEW_S else ""
    return f"{duration(abs(ahead_s))} {way} ours{note}"


def _rights(permissions: AllowedVerbs | None, why_not: str) -> Fields:
    for name, verbs in (permissions or {}).items():
        yield name, verbs_text(verbs)
    if permissions is None:
        yield "", why_not or "being asked…"
    elif why_not:
        yield "", f"as it was before: {why_not}"


def _terminal(console: Console) -> Fields:
    size = console.size
    yield "size", f"{size.width} x {size.height}"
    yield "name", os.environ.get("TERM", "")
    yield "colours", tty_state.colours()
    yield "theme", themes.short(console.theme) + (", ASCII only" if console.options.is_ascii else "")
    if console.driver is not None:
        period_s = console.driver.frame_rate.period_s(asyncio.get_running_loop().time())
        yield "pace", f"{1 / period_s:.0f} frames a second at most, and at once after a key"
    yield "over SSH", "yes" if tty_state.is_remote() else "no"
    yield "copies go to", clipboard.way()


def _files(console: Console) -> Fields:
    for name, path in files(console.options).items():
        yield name, path if Path(path).exists() else f"{path}  (not there)"
    yield "past runs", runs_text(console.options)
    yield "kubeconfig", console.options.kubeconfig or os.environ.get("KUBECONFIG", "~/.kube/config")


def _problems(console: Console) -> Fields:
    for _, problems in console.file_problems():
        yield from (("problem", problem) for problem in problems)
    yield "not used", ", ".join(console.plugins.unused) if console.plugins is not None else ""


FUNCTIONS: Functions = {
    "info": info,
}
