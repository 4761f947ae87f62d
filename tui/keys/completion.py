"""What a half-typed command is likely to become."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tui.keys import COMMANDS, find_command
from tui.keys.commands import Argument


def complete(
    typed: str,
    names: Mapping[Argument, Sequence[str]],
    history: Sequence[str] = (),
    *,
    is_read_only: bool = False,
) -> str:
    """Return the whole command that `typed` is probably the start of; empty when there is none.

    What was typed before comes first, the newest of it; then commands by their names, then
    what they take. Letters count as alike whatever their case.

    Args:
        typed: What stands after `:`.
        names: What a command may take, by what it says it takes.
        history: Commands that were typed before, the oldest first.
        is_read_only: Leave out what changes the cluster.
    """
    start = typed.lstrip().lower()
    if not start:
        return ""
    word, space, argument = start.partition(" ")
    if not space:
        there = [command for command in COMMANDS if not (command.changes and is_read_only)]
        aliases = [alias for command in there for alias in command.aliases]
        likely = [*reversed(history), *(command.name for command in there), *aliases]
        return _first(likely, start)
    command = find_command(word)
    if command is None or not command.takes:
        return _first(list(reversed(history)), start)
    whole = [f"{word} {name}" for name in names.get(command.takes, ())]
    return _first([*reversed(history), *whole] if argument else whole, start)


def _first(likely: Sequence[str], start: str) -> str:
    return next((each for each in likely if each.lower().startswith(start) and len(each) > len(start)), "")
