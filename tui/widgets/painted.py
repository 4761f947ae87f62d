"""Widgets that draw text in the looks of the stylesheet: its rules for a single class, `.table--quiet`.

They take the place of Textual's component classes, each of which is matched with all rules again for every
widget whenever its styles are updated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

from rich.style import Style
from textual.app import App
from textual.color import Color
from textual.css.model import RuleSet, SelectorType
from textual.css.styles import Styles
from textual.widget import Widget


class StylePalette:
    """Looks by class, read once per theme and shared by all widgets of an app."""

    def __init__(self, rules: Sequence[RuleSet]) -> None:
        """Collect the rules of single classes; a later one takes precedence."""
        found: dict[str, Styles] = {}
        for rule in rules:
            for each in () if rule.is_default_rules else rule.selector_set:
                selector = each.selectors[0]
                is_class = selector.type is SelectorType.CLASS and not selector.pseudo_classes
                if is_class and len(each.selectors) == 1:
                    styles = found.setdefault(selector.name, Styles())
                    for name, value in rule.styles.get_rules().items():
                        setattr(styles, name, value)  # parses `text-style: none`, which `merge` does not
        self.rules = rules
        self.looks = {name: (styles.partial_rich_style, styles.color) for name, styles in found.items()}

    def look(self, name: str) -> tuple[Style, Color]:
        """Return the style of a class on any background, and its colour with its transparency."""
        return self.looks.get(name, _NO_LOOK)


_NO_LOOK = Style.null(), Color(255, 255, 255)
_PALETTES: WeakKeyDictionary[App[Any], StylePalette] = WeakKeyDictionary()


def palette_of(app: App[Any]) -> StylePalette:
    """Return the looks of the app's current theme."""
    palette, rules = _PALETTES.get(app), app.stylesheet.rules
    if palette is None or palette.rules is not rules:
        read = StylePalette(rules)
        # Mostly a new widget brought its own rules.
        if palette is not None and palette.looks == read.looks:
            palette.rules = rules
        else:
            palette = _PALETTES[app] = read
    return palette


class PaintedWidget(Widget):
    """Base of widgets that draw with the palette; a change of it redraws them."""

    _palette: StylePalette | None = None

    def look(self, name: str) -> Style:
        """Return the style of a class, to be laid on the widget's own."""
        return palette_of(self.app).look(name)[0]

    def notify_style_update(self) -> None:
        """Redraw in a new theme."""
        super().notify_style_update()
        if (palette := palette_of(self.app)) is not self._palette:
            self._palette = palette
            self.refresh()
