"""Actions on the console itself: theme, help, facts, navigation back, exit."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import themes
from k8s.snapshot import ClusterSnapshot
from tui.screens.base.console import BaseConsole, Functions
from tui.screens.base.request import ActionRequest, Route
from tui.screens.dialogs.confirm import ConfirmScreen
from tui.screens.lists.jobs import JobsView


def theme(console: BaseConsole, request: ActionRequest) -> None:
    """Apply the named theme for this session; without a name, open the theme picker."""
    if not request.argument:
        from tui.runs.journal.choices import store_theme
        from tui.screens.dialogs.themes import ThemesScreen

        journal = console.context.runs.journal
        keep = partial(store_theme, journal, config_theme=console.options.config_theme)
        console.push_screen(ThemesScreen(console.palettes, keep))
    elif name := themes.find(request.argument, console.palettes):
        console.theme = name
    else:
        names = ", ".join(map(themes.short, console.palettes))
        console.notify(f"Available: {names}.", title=f"No theme {request.argument!r}.", markup=False)


def back(console: BaseConsole, request: ActionRequest) -> None:
    """Undo a step inside the view, or return to the previous view."""
    view = console.views.current
    if view is None or view.step_back():
        return
    if console.views.is_deep:
        console.views.go_back()
    elif not isinstance(view, JobsView):
        console.post_message(ActionRequest("jobs"))


def last_view(console: BaseConsole, request: ActionRequest) -> None:
    """Toggle between the two most recent views."""
    if console.views.previous is None:
        console.notify("No previous view yet.", markup=False)
    else:
        console.post_message(console.views.previous.request())


def history_back(console: BaseConsole, request: ActionRequest) -> None:
    """Show the view before this one in the history."""
    _step(console, -1, "No earlier view.")


def history_forward(console: BaseConsole, request: ActionRequest) -> None:
    """Show the view after this one in the history."""
    _step(console, 1, "No later view.")


def _step(console: BaseConsole, by: int, none_there: str) -> None:
    if (route := console.views.step_history(by)) is None:
        console.notify(none_there)
    else:
        console.post_message(route.request())


def quit_or_back(console: BaseConsole, request: ActionRequest) -> None:
    """Go back; at home ask whether to quit."""
    view = console.views.current
    if console.views.is_deep:
        console.views.go_back()
        return
    if not isinstance(view, JobsView):
        console.post_message(ActionRequest("jobs"))
        return

    def answered(answer: str | None) -> None:
        if answer == "do":
            console.leave(0)

    console.push_screen(ConfirmScreen("Quit gpuconsole?", "Jobs keep running.", "Quit"), answered)


def leave(console: BaseConsole, request: ActionRequest) -> None:
    """Quit the console."""
    console.leave(0)


def show_help(console: BaseConsole, request: ActionRequest) -> None:
    """Show the keys of the focused view, or the named chapter of the manual."""
    from tui.screens.dialogs.help import HelpScreen

    if request.argument:
        _show_chapter(console, request.argument)
        return

    if (view := console.views.current) is not None:
        console.push_screen(HelpScreen("This view", view.keys, console.context, view.refused))


def _show_chapter(console: BaseConsole, word: str) -> None:
    from tui.screens.documents.text import TextView
    from tui.settings.manual import TOPICS, chapter_text, find_topic

    topic = find_topic(word)
    if not topic:
        console.notify(f"Topics: {', '.join(TOPICS)}.", title=f"No topic {word!r}.", markup=False)
        return

    async def read() -> str:
        return chapter_text(topic)

    console.views.show(Route("help", topic), TextView(f"Manual: {topic}", read))


def palette(console: BaseConsole, request: ActionRequest) -> None:
    """Open the command palette."""
    from textual.command import CommandPalette

    from tui.screens.dialogs.help import ActionProvider

    console.push_screen(CommandPalette([ActionProvider], placeholder="Search actions"))


def aliases(console: BaseConsole, request: ActionRequest) -> None:
    """List the `:` commands with their aliases, and the names of job kinds."""
    from tui.screens.documents.text import TextView
    from tui.text.kind_words import words_by_kind

    async def read() -> str:
        offered = console.context.actions.commands(is_read_only=console.options.is_read_only)
        rows = [(", ".join(each.commands), each.argument.upper(), each.help) for each in offered]
        rows += [
            (", ".join(words), "FILTER", f"Jobs of kind {kind}") for kind, words in words_by_kind().items()
        ]
        rows += [(name, "", f"Your own: {each.command}") for name, each in console.options.aliases.items()]
        widths = [max(len(row[place]) for row in rows) for place in (0, 1)]
        return "\n".join(
            f":{names:{widths[0]}}  {argument:{widths[1]}}  {words}" for names, argument, words in rows
        )

    console.views.show(Route("aliases"), TextView("Commands", read))


def info(console: BaseConsole, request: ActionRequest) -> None:
    """Show what `gpuconsole info` prints."""
    from tui.screens.documents.text import TextView
    from tui.session.info import info_text, read_info, runs_text

    async def read() -> str:
        snapshot, session = console.snapshot, console.session
        own = session.client.config.namespace if session is not None else ""
        namespace = snapshot.namespace or own or "default"
        found = await read_info(
            console.options,
            session.client if session is not None else None,
            "" if session is not None else snapshot.stale or "There is no cluster yet.",
            namespace=namespace,
            review=None if session is None else lambda need: session.permissions.ask(need, namespace),
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
    "aliases": aliases,
    "back": back,
    "help": show_help,
    "history_back": history_back,
    "history_forward": history_forward,
    "info": info,
    "last_view": last_view,
    "quit": leave,
    "palette": palette,
    "quit_or_back": quit_or_back,
    "theme": theme,
}
