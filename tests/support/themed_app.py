"""Base of the apps that tests run in place of the console: its stylesheet and themes."""

from __future__ import annotations

from typing import ClassVar, TypeVar

from textual._path import CSSPathType
from textual.app import App
from textual.theme import Theme

import themes

Result = TypeVar("Result")


class ThemedApp(App[Result]):
    CSS_PATH: ClassVar[CSSPathType | None] = themes.STYLESHEET

    def __init__(self) -> None:
        super().__init__()
        for palette in themes.load().values():
            self.register_theme(Theme(**palette))
        self.theme = themes.DEFAULT

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return themes.variable_defaults(dark=self.current_theme.dark, ansi=self.current_theme.ansi)

    @property
    def lines(self) -> list[str]:
        return [strip.text.rstrip() for strip in self.screen._compositor.render_strips()]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)
