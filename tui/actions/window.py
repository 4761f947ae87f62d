"""What concerns the console alone: its looks, the way back, the way out."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from textual.widget import Widget

import themes
from tui.screens.base.view import View
from tui.screens.dialogs.confirm import ConfirmScreen
from tui.screens.lists.jobs import JobsView

if TYPE_CHECKING:
    from tui.app import Console


def theme(console: Console, wish: View.Go) -> None:
    """Take another palette for now; without a name, choose one to keep."""
    if not wish.argument:
        from tui.files.theme_file import keep_theme
        from tui.screens.dialogs.themes import ThemesScreen

        options = console.options
        keep = partial(keep_theme, options.state_folder, config_theme=options.config_theme)
        console.push_screen(ThemesScreen(console.palettes, keep))
    elif name := themes.find(wish.argument, console.palettes):
        console.theme = name
    else:
        names = ", ".join(map(themes.short, console.palettes))
        console.notify(f"There are: {names}.", title=f"No theme {wish.argument!r}.", markup=False)


def back(console: Console, wish: View.Go) -> None:
    """Go to the view below, and from another list home."""
    if console.is_deep:
        console.go_back()
    elif not isinstance(console.screen, JobsView):
        console.post_message(View.Go("jobs"))


def last(console: Console, wish: View.Go) -> None:
    """Go to the view that was shown before this one."""
    console.go_to_last()


def quit_or_back(console: Console, wish: View.Go) -> None:
    """Go back; at home ask whether to leave."""
    if console.is_deep or not isinstance(console.screen, JobsView):
        back(console, wish)
        return

    def answered(answer: str | None) -> None:
        if answer == "do":
            console.leave(0)

    console.push_screen(ConfirmScreen("Leave gpuconsole?", "Jobs run on without it.", "Leave"), answered)


def quit(console: Console, wish: View.Go) -> None:
    """Leave."""
    console.leave(0)


def help(console: Console, wish: View.Go) -> None:
    """Show the keys of the view that has the focus."""
    from tui.screens.dialogs.help import HelpScreen

    screen = console.screen
    keys, refused = (screen.KEYS, screen.refused) if isinstance(screen, View) else ((), {})
    console.push_screen(HelpScreen("Here", keys, console.context, refused))


def palette(console: Console, wish: View.Go) -> None:
    """Search all that can be done."""
    from textual.command import CommandPalette

    from tui.screens.dialogs.palette import ActionProvider

    console.push_screen(CommandPalette([ActionProvider], placeholder="What do you want to do?"))


def jump(console: Console, wish: View.Go) -> None:
    """Give the focus to one of the places on the screen, chosen by a letter."""
    from tui.screens.dialogs.jump import JumpScreen, jump_targets

    screen = console.screen

    def chosen(place: Widget | None) -> None:
        if place is not None:
            screen.set_focus(place)

    console.push_screen(JumpScreen(jump_targets(screen)), chosen)
