"""Actions on one node: show its GPU links and set its GPU scheduling mode."""

from __future__ import annotations

from typing import TYPE_CHECKING

from k8s.snapshot import NodeRow
from k8s.text.errors import KubeError
from k8s.text.sanitize import sanitize
from tui.screens.base.console import BaseConsole, Functions
from tui.screens.base.request import ActionRequest, Route
from tui.screens.dialogs.confirm import ConfirmScreen

if TYPE_CHECKING:
    from k8s.client.client import Client


def gpu_links(console: BaseConsole, request: ActionRequest) -> None:
    """Show the links between the GPUs of a node."""
    from k8s.gpus.gpu_links import fetch_links
    from tui.screens.documents.text import TextView
    from tui.text.gpu_links import link_lines, place_line, schedule_line, version_fields

    name = _node_name(console, request)
    if not name or (session := console.require_session()) is None:
        return

    async def fetch() -> str:
        node = _node(console, name)
        if node is None:
            return f"There is no node {name} any more."
        matrix = await fetch_links(session.client, node, session.namespace)
        session.links[name] = matrix
        known = filter(None, (place_line(node), schedule_line(node)))
        versions = (f"{title} {version}" for title, version in version_fields(node) if version)
        return "\n".join((*link_lines(node, matrix), "", *known, *versions)).rstrip()

    view = TextView(f"Nodes › {name} › topology", fetch, wraps=False)
    console.views.show(Route("gpu_links", name), view)


def gpu_schedule(console: BaseConsole, request: ActionRequest) -> None:
    """Toggle topology-aware GPU scheduling on a node after confirmation."""
    from k8s.gpus.ack import describe_schedule, other_schedule
    from k8s.models.gpu_sharing import TOPOLOGY

    name = _node_name(console, request)
    if (session := console.require_session()) is None or (node := _node(console, name)) is None:
        return
    value = other_schedule(node)

    def answered(answer: str | None) -> None:
        if answer == "do":
            console.begin(_gpu_schedule, session.client, name, value, group="gpu_schedule")

    how = "by the links between them" if value == TOPOLOGY else "as usual again"
    question = f"Give the GPUs of {sanitize(name)} {how}?"
    console.push_screen(ConfirmScreen(question, "\n".join(describe_schedule(node, value)), "Label"), answered)


async def _gpu_schedule(console: BaseConsole, client: Client, node: str, value: str) -> None:
    from k8s.gpus.ack import set_schedule
    from k8s.models.gpu_sharing import SCHEDULE_LABEL

    try:
        await set_schedule(client, node, value)
    except KubeError as error:
        console.record_refusal(error)
        console.notify(error.details, title=error.what, severity="error")
    else:
        console.notify(f"Node {node} is labelled {SCHEDULE_LABEL}={value}.")


def _node_name(console: BaseConsole, request: ActionRequest) -> str:
    from tui.screens.lists.gpus import GpusView

    view = console.views.current
    shown = view.node_name if isinstance(view, GpusView) else ""
    return request.argument or request.selected or shown


def _node(console: BaseConsole, name: str) -> NodeRow | None:
    return next((node for node in console.snapshot.nodes if node.name == name), None)


FUNCTIONS: Functions = {"gpu_links": gpu_links, "gpu_schedule": gpu_schedule}
