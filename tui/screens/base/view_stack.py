"""Which views lie above each other, and which was shown before: one home, and what was opened from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tui.screens.base.view import View

if TYPE_CHECKING:
    from textual.app import App

    from tui.screens.base.request import Route


class ViewStack:
    """The views of an app, by the routes that they show."""

    def __init__(self, app: App[int], prepare: Callable[[View, Route], View]) -> None:
        """Manage the screens of `app`; `prepare` readies a view before it is shown."""
        self._app = app
        self._prepare = prepare
        self.previous: Route | None = None
        """The route that was shown before the one that is."""

    @property
    def current(self) -> View | None:
        """Return the view that is shown; None while a dialog lies over it."""
        screen = self._app.screen
        return screen if isinstance(screen, View) else None

    @property
    def is_deep(self) -> bool:
        """Tell whether there is a view below the one that is shown."""
        return len(self._app.screen_stack) > 2

    def show(self, route: Route, view: View) -> None:
        """Put a view above the others; where one of the same route is there, go back to that instead."""
        self._remember()
        for depth, below in enumerate(reversed(self._app.screen_stack)):
            if isinstance(below, View) and below.route == route:
                for _ in range(depth):
                    self._app.pop_screen()
                return
        self._app.push_screen(self._prepare(view, route))

    def switch(self, route: Route, view: View) -> None:
        """Make a view the home, with nothing below; one of the same route stays as it was left."""
        self._remember()
        while self.is_deep:
            self._app.pop_screen()
        home = self._app.screen
        if not (isinstance(home, View) and home.route == route):
            self._app.switch_screen(self._prepare(view, route))

    def restart(self, route: Route, view: View) -> None:
        """Make a view the home of another cluster, where no route that was shown before leads anywhere."""
        self.switch(route, view)
        self.previous = None

    def go_back(self) -> None:
        """Take away the view that is shown."""
        self._remember()
        self._app.pop_screen()

    def _remember(self) -> None:
        if (view := self.current) is not None and view.route is not None:
            self.previous = view.route
