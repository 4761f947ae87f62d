"""What a half-typed command is likely to become."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tui.keys.action import ActionTable, Argument
from tui.keys.actions import ACTIONS


def complete(
    typed: str,
    names: Mapping[Argument, Sequence[str]],
    history: Sequence[str] = (),
    *,
    is_read_only: bool = False,
    actions: ActionTable = ACTIONS,
) -> str:
    """Return the whole command that `typed` is probably the start of; empty when there is none.

    What was typed before comes first, the newest of it; then commands by their names, then
    what they take. Letters count as alike whatever their case.

    Args:
        typed: What stands after `:`.
        names: What a command may take, by what it says it takes.
        history: Commands that were typed before, the oldest first.
        is_read_only: Leave out what changes the cluster.
        actions: What can be typed.
    """
    start = typed.lstrip().lower()
    if not start:
        return ""
    word, space, argument = start.partition(" ")
    if not space:
        offered = [action.commands for action in actions.commands(is_read_only=is_read_only)]
        aliases = [alias for words in offered for alias in words[1:]]
        likely = [*reversed(history), *(words[0] for words in offered), *aliases]
        return _first(likely, start)
    action = actions.find_command(word)
    if action is None or not action.argument:
        return _first(list(reversed(history)), start)
    whole = [f"{word} {name}" for name in names.get(action.argument, ())]
    return _first([*reversed(history), *whole] if argument else whole, start)


def _first(likely: Sequence[str], start: str) -> str:
    return next((each for each in likely if each.lower().startswith(start) and len(each) > len(start)), "")
