"""Show facts about the console, the cluster and the user's permissions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from k8s.snapshot import ClusterSnapshot
from tui.actions import Functions
from tui.feeds.info import info_text, read_info, runs_text
from tui.screens.base.request import ActionRequest, Route

if TYPE_CHECKING:
    from tui.app import Console


def info(console: Console, request: ActionRequest) -> None:
    """Show what `gpuconsole info` prints."""
    from tui.screens.documents.text import TextView

    async def read() -> str:
        snapshot, client, permissions = console.snapshot, console.client, console.permissions
        own = client.config.namespace if client is not None else ""
        namespace = snapshot.namespace or own or "default"
        found = await read_info(
            console.options,
            client if permissions is not None else None,
            "" if client is not None else snapshot.stale or "There is no cluster yet.",
            namespace=namespace,
            review=None if permissions is None else lambda need: permissions.ask(need, namespace),
        )
        if console.plugins is not None:
            found["files"]["plugins not used"] = ", ".join(console.plugins.unused)
        return info_text(found, runs_text(console.options), _about(snapshot))

    console.views.show(Route("info"), TextView("Info", read))


def _about(snapshot: ClusterSnapshot) -> Iterator[tuple[str, str]]:
    yield "job kinds", ", ".join(dict.fromkeys(snapshot.kinds))
    unreadable: dict[str, list[str]] = {}
    for name, missing in snapshot.problems.items():
        unreadable.setdefault(missing.shown, []).append(name)
    for shown, names in unreadable.items():
        yield f"only in {shown}" if shown else "not readable", ", ".join(names)
    for missing in snapshot.unreadable:
        yield "not understood", missing.words


FUNCTIONS: Functions = {
    "info": info,
}
