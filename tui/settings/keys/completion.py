"""Completion of `:` commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tui.settings.keys.action import ActionTable, Argument


def complete(
    typed: str,
    names: Mapping[Argument, Sequence[str]],
    actions: ActionTable,
    history: Sequence[str] = (),
    *,
    is_read_only: bool = False,
) -> str:
    """Return the most likely command that starts with `typed`; empty if there is none.

    History comes first, newest first; then commands by name, then their arguments. Case is ignored.

    Args:
        typed: Text after `:`.
        names: Possible arguments by type, and the job kinds, which are commands too.
        actions: The commands.
        history: Earlier commands, oldest first.
        is_read_only: Leave out commands that change the cluster.
    """
    start = typed.lstrip().lower()
    if not start:
        return ""
    word, space, argument = start.partition(" ")
    if not space:
        offered = [action.commands for action in actions.commands(is_read_only=is_read_only)]
        aliases = [alias for words in offered for alias in words[1:]]
        kinds = names.get("kind", ())
        likely = [*reversed(history), *(words[0] for words in offered), *aliases, *kinds]
        return _first(likely, start)
    action = actions.find_command(word)
    if action is None or not action.argument:
        return _first(list(reversed(history)), start)
    whole = [f"{word} {name}" for name in names.get(action.argument, ())]
    return _first([*reversed(history), *whole] if argument else whole, start)


def nearest_command(word: str, kinds: Sequence[str], actions: ActionTable, *, is_read_only: bool) -> str:
    """Return the command that is nearest to an unknown word; empty if no command is near."""
    from difflib import get_close_matches  # slow to import, and rarely needed

    offered = actions.commands(is_read_only=is_read_only)
    words = [*(each for action in offered for each in action.commands if len(each) > 1), *kinds]
    return next(iter(get_close_matches(word, words, 1)), "")


def _first(likely: Sequence[str], start: str) -> str:
    return next((each for each in likely if each.lower().startswith(start) and len(each) > len(start)), "")
