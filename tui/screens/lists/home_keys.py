"""The keys of home, by the pane that has the focus: what they act on is there. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tui.keys import EVERYWHERE, JOB_PANE, LOG, STRIP, ActionTable, Key, remapped
from tui.screens.lists.home_layout import PaneName

_KEYS: Mapping[PaneName, tuple[Key, ...]] = {"nodes": STRIP, "list": (), "job": (*JOB_PANE, *LOG)}
_BACK, _LAYOUT = f"{EVERYWHERE}.back", f"{EVERYWHERE}.preview"
_LAYOUT_BEFORE = ("jobs.clone", "jobs.next_view")
"""Before the first of these stands the key of the layouts, so that it is seen where there is no pane 3."""
_OF_THE_LIST = ("log.next", "log.previous")
"""Keys of the log that have nothing to do on home: what is searched is the list."""


def pane_keys(
    pane: PaneName, keys: Sequence[Key], of_nodes: Sequence[Key], actions: ActionTable
) -> tuple[Key, ...]:
    """Return the keys of the view that do something while a pane has the focus.

    Args:
        pane: What has the focus.
        keys: Those of the view.
        of_nodes: Those that act on the node under the cursor.
        actions: The table that tells what acts on a job.
    """
    if pane != "nodes":
        return tuple(keys)
    of_jobs = {f"jobs.{action.name}" for action in actions if action.acts_on_job}
    return (*of_nodes, *(key for key in keys if key.id not in of_jobs))


def bar_keys(
    pane: PaneName, keys: Iterable[Key], keymap: Mapping[str, str], *, has_room: bool
) -> tuple[Key, ...]:
    """Return the keys of the line below, as far as they reach the view.

    Args:
        pane: What has the focus; its keys take those of the view away.
        keys: Those of the view and of every view, in their order.
        keymap: The user's own keys, by their ids.
        has_room: Whether there are layouts to go through.
    """
    own = remapped(_KEYS[pane], keymap)
    taken = {each for key in own for each in key.keys.split(",")}
    others = [key for key in keys if taken.isdisjoint(key.keys.split(","))]
    shown = [key for key in own if key.id not in _OF_THE_LIST]
    if pane != "list":
        at = next((place for place, key in enumerate(shown) if key in LOG), len(shown))
        shown[at:at] = [replace(key, footer="list") for key in others if key.id == _BACK]
        others = [key for key in others if key.id != _BACK]
    if has_room:
        at = next((place for place, key in enumerate(others) if key.id in _LAYOUT_BEFORE), 0)
        others[at:at] = [replace(key, footer="layout") for key in others if key.id == _LAYOUT]
    return (*shown, *others)
