"""What is done about one node: how its GPUs are linked, and how they are given to pods."""

from __future__ import annotations

from typing import TYPE_CHECKING

from k8s.errors import KubeError
from k8s.snapshot import NodeRow
from k8s.text.sanitize import sanitize
from tui.screens.base.request import ActionRequest, Route
from tui.screens.dialogs.confirm import ConfirmScreen

if TYPE_CHECKING:
    from k8s.client.client import Client
    from tui.app import Console


def gpu_links(console: Console, request: ActionRequest) -> None:
    """Show how the GPUs of a node are linked."""
    from k8s.nodes.gpu_links import fetch_links
    from tui.screens.documents.text import TextView
    from tui.text.gpu_links import link_lines, place_line, schedule_line

    name = _node_name(console, request)
    if not name or (client := console.require_client()) is None:
        return

    async def fetch() -> str:
        node = _node(console, name)
        if node is None:
            return f"There is no node {name} any more."
        matrix = await fetch_links(client, node, console.snapshot.namespace or client.config.namespace)
        console.gpu_links[name] = matrix
        known = filter(None, (place_line(node), schedule_line(node)))
        return "\n".join((*link_lines(node, matrix), "", *known)).rstrip()

    view = TextView(f"Nodes › {name} › topology", fetch, wraps=False)
    console.views.show(Route("gpu_links", name), view)


def gpu_schedule(console: Console, request: ActionRequest) -> None:
    """Ask whether a node shall give its GPUs by their links, or as usual again, and label it so."""
    from k8s.nodes.gpu_schedule import other_schedule, schedule_words
    from k8s.topology.ack import TOPOLOGY

    name = _node_name(console, request)
    if (client := console.require_client()) is None or (node := _node(console, name)) is None:
        return
    value = other_schedule(node)

    def answered(answer: str | None) -> None:
        if answer == "do":
            console.begin(_gpu_schedule, client, name, value, group="gpu_schedule")

    how = "by the links between them" if value == TOPOLOGY else "as usual again"
    question = f"Give the GPUs of {sanitize(name)} {how}?"
    console.push_screen(ConfirmScreen(question, "\n".join(schedule_words(node, value)), "Label"), answered)


async def _gpu_schedule(console: Console, client: Client, node: str, value: str) -> None:
    from k8s.nodes.gpu_schedule import set_schedule
    from k8s.topology.ack import SCHEDULE_LABEL

    try:
        await set_schedule(client, node, value)
    except KubeError as error:
        console.note_refusal(error)
        console.notify(error.details, title=error.what, severity="error")
    else:
        console.notify(f"Node {node} is labelled {SCHEDULE_LABEL}={value}.")


def _node_name(console: Console, request: ActionRequest) -> str:
    """Return the node that is meant: the one named, under the cursor, or else shown."""
    view = console.views.current
    shown = view.route.argument if view is not None and view.route and view.NAME == "node_gpus" else ""
    return request.argument or request.selected or shown


def _node(console: Console, name: str) -> NodeRow | None:
    return next((node for node in console.snapshot.nodes if node.name == name), None)
