"""Actions on the console itself: theme, help, navigation back, exit."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import themes
from tui.actions import Functions
from tui.screens.base.request import ActionRequest, Route
from tui.screens.dialogs.confirm import ConfirmScreen
from tui.screens.lists.jobs import JobsView

if TYPE_CHECKING:
    from tui.app import Console


def theme(console: Console, request: ActionRequest) -> None:
    """Apply the named theme for this session; without a name, open the theme picker."""
    if not request.argument:
        from tui.files.stored_choices import store_theme
        from tui.screens.dialogs.themes import ThemesScreen

        options = console.options
        keep = partial(store_theme, options.state_folder, config_theme=options.config_theme)
        console.push_screen(ThemesScreen(console.palettes, keep))
    elif name := themes.find(request.argument, console.palettes):
        console.theme = name
    else:
        names = ", ".join(map(themes.short, console.palettes))
        console.notify(f"Available: {names}.", title=f"No theme {request.argument!r}.", markup=False)


def back(console: Console, request: ActionRequest) -> None:
    """Undo a step inside the view, or return to the previous view."""
    view = console.views.current
    if view is None or view.step_back():
        return
    if console.views.is_deep:
        console.views.go_back()
    elif not isinstance(view, JobsView):
        console.post_message(ActionRequest("jobs"))


def last_view(console: Console, request: ActionRequest) -> None:
    """Toggle between the two most recent views."""
    if console.views.previous is None:
        console.notify("No previous view yet.", markup=False)
    else:
        console.post_message(console.views.previous.request())


def history_back(console: Console, request: ActionRequest) -> None:
    """Show the view before this one in the history."""
    _step(console, -1, "No earlier view.")


def history_forward(console: Console, request: ActionRequest) -> None:
    """Show the view after this one in the history."""
    _step(console, 1, "No later view.")


def _step(console: Console, by: int, none_there: str) -> None:
    if (route := console.views.step_history(by)) is None:
        console.notify(none_there)
    else:
        console.post_message(route.request())


def quit_or_back(console: Console, request: ActionRequest) -> None:
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


def leave(console: Console, request: ActionRequest) -> None:
    """Quit the console."""
    console.leave(0)


def show_help(console: Console, request: ActionRequest) -> None:
    """Show the keys of the focused view, or the named chapter of the manual."""
    from tui.screens.dialogs.help import HelpScreen

    if request.argument:
        _show_chapter(console, request.argument)
        return

    if (view := console.views.current) is not None:
        console.push_screen(HelpScreen("This view", view.keys, console.context, view.refused))


def _show_chapter(console: Console, word: str) -> None:
    from tui.manual import TOPICS, chapter_text, find_topic
    from tui.screens.documents.text import TextView

    topic = find_topic(word)
    if not topic:
        console.notify(f"Topics: {', '.join(TOPICS)}.", title=f"No topic {word!r}.", markup=False)
        return

    async def read() -> str:
        return chapter_text(topic)

    console.views.show(Route("help", topic), TextView(f"Manual: {topic}", read))


def palette(console: Console, request: ActionRequest) -> None:
    """Open the command palette."""
    from textual.command import CommandPalette

    from tui.screens.dialogs.palette import ActionProvider

    console.push_screen(CommandPalette([ActionProvider], placeholder="Search actions"))


def aliases(console: Console, request: ActionRequest) -> None:
    """List the `:` commands with their aliases, and the names of job kinds."""
    from tui.jobs.kind_words import words_by_kind
    from tui.screens.documents.text import TextView

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


FUNCTIONS: Functions = {
    "aliases": aliases,
    "back": back,
    "help": show_help,
    "history_back": history_back,
    "history_forward": history_forward,
    "last_view": last_view,
    "quit": leave,
    "palette": palette,
    "quit_or_back": quit_or_back,
    "theme": theme,
}
