"""What concerns the console alone: its looks, the way back, the way out."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from textual.widget import Widget

import themes
from tui.screens.base.request import ActionRequest
from tui.screens.dialogs.confirm import ConfirmScreen
from tui.screens.lists.jobs import JobsView

if TYPE_CHECKING:
    from tui.app import Console


def theme(console: Console, request: ActionRequest) -> None:
    """Take another palette for now; without a name, choose one to keep."""
    if not request.argument:
        from tui.files.theme_file import keep_theme
        from tui.screens.dialogs.themes import ThemesScreen

        options = console.options
        keep = partial(keep_theme, options.state_folder, config_theme=options.config_theme)
        console.push_screen(ThemesScreen(console.palettes, keep))
    elif name := themes.find(request.argument, console.palettes):
        console.theme = name
    else:
        names = ", ".join(map(themes.short, console.palettes))
        console.notify(f"Available: {names}.", title=f"No theme {request.argument!r}.", markup=False)


def back(console: Console, request: ActionRequest) -> None:
    """Undo a step inside the view, or go to the view below, and from another list home."""
    view = console.views.current
    if view is None or view.step_back():
        return
    if console.views.is_deep:
        console.views.go_back()
    elif not isinstance(view, JobsView):
        console.post_message(ActionRequest("jobs"))


def last_view(console: Console, request: ActionRequest) -> None:
    """Go to the view that was shown before this one."""
    if console.views.previous is None:
        console.notify("No previous view yet.", markup=False)
    else:
        console.post_message(console.views.previous.request())


def quit_or_back(console: Console, request: ActionRequest) -> None:
    """Go back; at home ask whether to leave."""
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
    """End the console."""
    console.leave(0)


def show_help(console: Console, request: ActionRequest) -> None:
    """Show the keys of the view that has the focus."""
    from tui.screens.dialogs.help import HelpScreen

    if (view := console.views.current) is not None:
        console.push_screen(HelpScreen("This view", view.keys, console.context, view.refused))


def palette(console: Console, request: ActionRequest) -> None:
    """Search all that can be done."""
    from textual.command import CommandPalette

    from tui.screens.dialogs.palette import ActionProvider

    console.push_screen(CommandPalette([ActionProvider], placeholder="Search actions"))


def jump(console: Console, request: ActionRequest) -> None:
    """Give the focus to one of the places on the screen, chosen by a letter."""
    from tui.screens.dialogs.jump import JumpScreen, jump_targets

    screen = console.screen

    def chosen(place: Widget | None) -> None:
        if place is not None:
            screen.set_focus(place)

    console.push_screen(JumpScreen(jump_targets(screen)), chosen)
