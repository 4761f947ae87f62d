"""Regular expressions that are compiled at their first use."""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast


def lazy_pattern(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return a regular expression that costs nothing until one of its methods is used.

    For tables of which a command needs few: compiling a long one takes up to a millisecond.
    """
    return cast("re.Pattern[AnyStr]", _LazyPattern(pattern, flags))


class _LazyPattern:
    def __init__(self, *form: Any) -> None:
        self._form = form

    def __getattr__(self, name: str) -> object:
        # Stored, so that the next use of the same method finds it directly.
        found = getattr(re.compile(*self._form), name)
        setattr(self, name, found)
        return found
