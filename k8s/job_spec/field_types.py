"""The types of a job's fields: from the text of a form, a flag or a template to a value, and back."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from k8s.models.quantity import parse

LONGEST_TEXT = 20_000
"""Characters that one field may hold."""
LINE_END = re.compile(r"\r\n|\r|\n")
"""A paste into a terminal brings a lone `\\r` for each."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""A control character; not tab and newline, which scripts and keys in variables hold."""
_ANY_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_DURATION = re.compile(r"(?:(\d{1,6})d)?(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,9})s?)?")
_SECONDS = (86_400, 3600, 60, 1)
DNS_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
"""A name as Kubernetes gives most of its objects."""
DNS_SENTENCE = "Use lowercase letters, digits, '-' and '.' only; start and end with a letter or digit."


class Part(Protocol):
    """A value that is one line of text in a form, or one flag of several."""

    def to_text(self) -> str:
        """Return the line."""


class FieldType(Protocol):
    """How the values of a field are written, and which are valid."""

    @property
    def metavar(self) -> str:
        """Return what stands for a value in usage: `N`; empty for a switch."""

    @property
    def is_repeated(self) -> bool:
        """Tell whether a flag may be given several times; in the form each value is a line."""

    def parse(self, text: str) -> Any:
        """Return the value of a text.

        Raises:
            ValueError: It has none; the message is a sentence about what would be right.
        """

    def to_text(self, value: Any) -> str:
        """Return the text that has this value."""

    def problem(self, value: Any) -> str:
        """Return what is wrong with a value, in a sentence; empty where nothing is."""


class _OneLine:
    """The text is the value."""

    __slots__ = ()

    def parse(self, text: str) -> str:
        """Return the text without the space around it."""
        return text.strip()

    def to_text(self, value: str) -> str:
        """Return the value."""
        return value


@dataclass(frozen=True, slots=True)
class Text(_OneLine):
    """One line; may have to match a pattern."""

    metavar: str = "TEXT"
    pattern: re.Pattern[str] | None = None
    """What the whole text must match, unless it is empty."""
    sentence: str = ""
    """What would be right, where the pattern does not match."""
    is_repeated: bool = False

    def problem(self, value: str) -> str:
        """Find control characters, and what does not match."""
        if found := _control_problem(value):
            return found
        is_wrong = value and self.pattern is not None and not self.pattern.fullmatch(value)
        return self.sentence if is_wrong else ""


@dataclass(frozen=True, slots=True)
class Number:
    """A whole number between two others."""

    least: int
    most: int
    metavar: str = "N"
    is_repeated: bool = False

    def parse(self, text: str) -> int:
        """Return the number."""
        text = text.strip()
        if not (text.isascii() and text.isdecimal()):
            raise ValueError("Must be a whole number, e.g. 2.")
        number = int(text) if len(text.lstrip("0")) < 10 else 10**9
        if number > self.most:
            raise ValueError(f"At most {self.most:,}.")
        return number

    def to_text(self, value: int) -> str:
        """Return the number in digits."""
        return str(value)

    def problem(self, value: int) -> str:
        """Find what is too small or too large."""
        if value < self.least:
            return f"Must be at least {self.least}."
        return f"At most {self.most:,}." if value > self.most else ""


@dataclass(frozen=True, slots=True)
class OptionalNumber:
    """A whole number, or nothing: None."""

    number: Number
    metavar: str = "N"
    is_repeated: bool = False

    def parse(self, text: str) -> int | None:
        """Return the number; None of an empty text."""
        return self.number.parse(text) if text.strip() else None

    def to_text(self, value: int | None) -> str:
        """Return the number in digits; nothing for None."""
        return "" if value is None else str(value)

    def problem(self, value: int | None) -> str:
        """Find what is too small or too large."""
        return "" if value is None else self.number.problem(value)


@dataclass(frozen=True, slots=True)
class Quantity(_OneLine):
    """An amount as Kubernetes writes it, or nothing."""

    metavar: str = "QUANTITY"
    is_repeated: bool = False

    def problem(self, value: str) -> str:
        """Find what is no amount, or not more than nothing."""
        if not value:
            return ""
        try:
            is_positive = parse(value) > 0
        except ValueError as error:
            return f"{error}."
        return "" if is_positive else "Must be greater than 0, or empty."


@dataclass(frozen=True, slots=True)
class Duration:
    """A length of time in seconds, 0 for none; written as `90s`, `30m`, `1h30m`, `2d`."""

    metavar: str = "DURATION"
    is_repeated: bool = False

    def parse(self, text: str) -> int:
        """Return the seconds; a bare number is seconds too."""
        text = text.strip()
        found = _DURATION.fullmatch(text)
        if found is None:
            raise ValueError("Must be a duration, e.g. 90s, 30m, 1h30m or 2d.")
        return sum(int(part or 0) * unit_s for part, unit_s in zip(found.groups(), _SECONDS, strict=True))

    def to_text(self, value: int) -> str:
        """Return the shortest text of that length; nothing for 0."""
        parts = []
        for unit_s, letter in zip(_SECONDS, "dhms", strict=True):
            amount, value = divmod(value, unit_s)
            parts += [f"{amount}{letter}"] if amount else []
        return "".join(parts)

    def problem(self, value: int) -> str:
        """Find what is too long for Kubernetes, or negative."""
        return "" if 0 <= value < 2**31 else "Must be between 0 and 24855 days."


@dataclass(frozen=True, slots=True)
class Switch:
    """Yes or no."""

    metavar: str = ""
    is_repeated: bool = False

    def parse(self, text: str) -> bool:
        """Return whether it is `true`."""
        text = text.strip().lower()
        if text not in ("true", "false", ""):
            raise ValueError("Must be true or false.")
        return text == "true"

    def to_text(self, value: bool) -> str:
        """Return `true` or `false`."""
        return "true" if value else "false"

    def problem(self, value: bool) -> str:
        """Find nothing: either is right."""
        return ""


@dataclass(frozen=True, slots=True)
class Choice(_OneLine):
    """One of a few words."""

    choices: tuple[tuple[str, str], ...]
    """Each with what it means; the empty one leaves it to the cluster."""
    metavar: str = "WORD"
    is_repeated: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        """Return those that can be typed."""
        return tuple(word for word, _ in self.choices if word)

    def problem(self, value: str) -> str:
        """Find what is none of the words."""
        is_one = value in (word for word, _ in self.choices)
        return "" if is_one else f"Must be one of {', '.join(self.words)}."


@dataclass(frozen=True, slots=True)
class Argv:
    """Words, as a shell splits them: argv, options."""

    metavar: str = "WORDS"
    is_repeated: bool = False

    def parse(self, text: str) -> tuple[str, ...]:
        """Return the words."""
        try:
            return tuple(shlex.split(text))
        except ValueError as error:
            raise ValueError(f"{str(error).capitalize()}.") from None

    def to_text(self, value: tuple[str, ...]) -> str:
        """Return a line that a shell splits into them."""
        return shlex.join(value)

    def problem(self, value: tuple[str, ...]) -> str:
        """Find control characters."""
        return _control_problem("".join(value))


@dataclass(frozen=True, slots=True)
class Parts:
    """Several values, each a line of text."""

    metavar: str
    from_text: Callable[[str], Any]
    """Reads one; raises ValueError, which says what is expected."""
    check: Callable[[Any], str] = lambda _: ""
    """Returns what is wrong with one value, in a sentence."""
    is_repeated: bool = True

    def parse(self, text: str) -> tuple[Any, ...]:
        """Return the values of the lines that are not empty."""
        found = []
        for number, line in lines(text):
            try:
                found.append(self.from_text(line))
            except ValueError as error:
                raise ValueError(f"Line {number}: {error}.") from None
        return tuple(found)

    def to_text(self, value: tuple[Any, ...]) -> str:
        """Return a line for each."""
        return "\n".join(map(_part_text, value))

    def problem(self, value: tuple[Any, ...]) -> str:
        """Find control characters, and the first value that is wrong."""
        found = _control_problem("".join(map(_part_text, value)))
        return found or next(filter(None, map(self.check, value)), "")


@dataclass(frozen=True, slots=True)
class Pairs:
    """Names, each with a value: `NAME=value` on a line; a value in double quotes is a JSON string."""

    metavar: str = "NAME=VALUE"
    name_pattern: re.Pattern[str] | None = None
    """What each name must match."""
    name_sentence: str = ""
    """What a valid name is made of."""
    is_repeated: bool = True

    def parse(self, text: str) -> dict[str, str]:
        """Return the values by name."""
        found: dict[str, str] = {}
        for number, line in lines(text):
            name, equals, value = line.partition("=")
            name = name.strip()
            if not equals or not name:
                raise ValueError(f"Line {number}: expected {self.metavar.replace('VALUE', 'value')}.")
            if name in found:
                raise ValueError(f"Line {number}: duplicate name {name}.")
            found[name] = _unquoted(value)
        return found

    def to_text(self, value: Mapping[str, str]) -> str:
        """Return a line for each."""
        return "\n".join(f"{name}={_quoted(text)}" for name, text in value.items())

    def problem(self, value: Mapping[str, str]) -> str:
        """Find control characters, and names that are not valid."""
        if found := _control_problem("".join((*value, *value.values()))):
            return found
        for name in value:
            if self.name_pattern is not None and not self.name_pattern.fullmatch(name):
                return f"{name!r} is not a valid {self.name_sentence}."
        return ""


def lines(text: str) -> list[tuple[int, str]]:
    """Return the lines that are not empty, each with its number from 1."""
    found = enumerate(LINE_END.split(text), 1)
    return [(number, line.strip()) for number, line in found if line.strip()]


def name_from_text(text: str) -> str:
    """Read a line that is a name alone."""
    return text.strip()


def dns_problem(value: str) -> str:
    """Return what is wrong with the name of an object; empty where nothing is."""
    return "" if DNS_NAME.fullmatch(value) else f"{value!r}: {DNS_SENTENCE}"


def _part_text(value: str | Part) -> str:
    return value if isinstance(value, str) else value.to_text()


def _control_problem(text: str) -> str:
    found = _CONTROL.search(text)
    return f"Must not hold control characters; there is {found[0]!r}." if found else ""


def _unquoted(value: str) -> str:
    if len(value) > 1 and value[0] == value[-1] == '"':
        try:
            return str(json.loads(value))
        except ValueError:
            return value
    return value


def _quoted(value: str) -> str:
    is_plain = value == value.strip() and not _ANY_CONTROL.search(value) and not value.startswith('"')
    return value if is_plain else json.dumps(value)
