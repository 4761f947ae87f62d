"""Declarations of job fields and their types: conversion between text and values, and validation."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

from k8s.models.quantity import parse, request_and_limit

LONGEST_TEXT = 20_000
LINE_END = re.compile(r"\r\n|\r|\n")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_ANY_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_DURATION = re.compile(r"(?:(\d{1,6})d)?(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,9})s?)?")
_SECONDS = (86_400, 3600, 60, 1)
# Name of most Kubernetes objects.
DNS_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
DNS_SENTENCE = "Use lowercase letters, digits, '-' and '.' only; start and end with a letter or digit."


class Part(Protocol):
    """Value written as one line of a form, or one repeated flag."""

    def to_text(self) -> str:
        """Return the line."""


class FieldType(Protocol):
    """Type of a field: parses, formats and validates its values."""

    @property
    def metavar(self) -> str:
        """Placeholder in usage messages, e.g. `N`; empty for a switch."""

    @property
    def is_repeated(self) -> bool:
        """True if the flag can be repeated; in the form each value is a line."""

    def parse(self, text: str) -> Any:
        """Parse a value.

        Raises:
            ValueError: The text is not a value; the message says what is expected.
        """

    def to_text(self, value: Any) -> str:
        """Return the text that `parse` reads."""

    def problem(self, value: Any) -> str:
        """Return the error message for a value; empty if it is valid."""


class _OneLine:
    __slots__ = ()

    def parse(self, text: str) -> str:
        return text.strip()

    def to_text(self, value: str) -> str:
        return value


@dataclass(frozen=True, slots=True)
class Text(_OneLine):
    """One line of text, optionally matching a pattern."""

    metavar: str = "TEXT"
    pattern: re.Pattern[str] | None = None
    sentence: str = ""
    is_repeated: bool = False

    def problem(self, value: str) -> str:
        """Check for control characters and the pattern."""
        if found := _control_problem(value):
            return found
        is_wrong = value and self.pattern is not None and not self.pattern.fullmatch(value)
        return self.sentence if is_wrong else ""


@dataclass(frozen=True, slots=True)
class Number:
    """Integer within bounds."""

    least: int
    most: int
    metavar: str = "N"
    is_repeated: bool = False

    def parse(self, text: str) -> int:
        """Return the number."""
        text = text.strip()
        if not (text.isascii() and text.removeprefix("-").isdecimal()):
            raise ValueError("Must be a whole number, e.g. 2.")
        if text.startswith("-") and text.strip("-0"):
            raise ValueError(f"At least {max(self.least, 0):,}.")
        text = text.removeprefix("-")
        number = int(text) if len(text.lstrip("0")) < 10 else 10**9
        if number > self.most:
            raise ValueError(f"At most {self.most:,}.")
        return number

    def to_text(self, value: int) -> str:
        """Return the number in digits."""
        return str(value)

    def problem(self, value: int) -> str:
        """Check the bounds."""
        if value < self.least:
            return f"Must be at least {self.least}."
        return f"At most {self.most:,}." if value > self.most else ""


@dataclass(frozen=True, slots=True)
class OptionalNumber:
    """Integer within bounds, or None."""

    number: Number
    metavar: str = "N"
    is_repeated: bool = False

    def parse(self, text: str) -> int | None:
        """Return the number; None for an empty text."""
        return self.number.parse(text) if text.strip() else None

    def to_text(self, value: int | None) -> str:
        """Return the number in digits; empty for None."""
        return "" if value is None else str(value)

    def problem(self, value: int | None) -> str:
        """Check the bounds."""
        return "" if value is None else self.number.problem(value)


@dataclass(frozen=True, slots=True)
class NumberRange:
    """Smallest and largest integer, or None."""

    number: Number
    metavar: str = "MIN-MAX"
    is_repeated: bool = False

    def parse(self, text: str) -> tuple[int, int] | None:
        """Return the bounds; None for an empty text."""
        least, dash, most = text.strip().partition("-")
        if text.strip() and not dash:
            raise ValueError("Must be a minimum and a maximum, e.g. 2-8.")
        return (self.number.parse(least), self.number.parse(most)) if dash else None

    def to_text(self, value: tuple[int, int] | None) -> str:
        """Return both; empty for None."""
        return "" if value is None else f"{value[0]}-{value[1]}"

    def problem(self, value: tuple[int, int] | None) -> str:
        """Check the bounds and their order."""
        if value is None:
            return ""
        if found := next(filter(None, map(self.number.problem, value)), ""):
            return found
        return f"The minimum must be at most {value[1]}, the maximum." if value[0] > value[1] else ""


@dataclass(frozen=True, slots=True)
class Quantity(_OneLine):
    """Kubernetes quantity, or empty."""

    most: str
    example: str
    least: str = ""
    """Smallest amount; empty for anything above 0."""
    takes_request: bool = False
    """True for `REQUEST-LIMIT` too: see `request_and_limit`."""
    metavar: str = "QUANTITY"
    is_repeated: bool = False

    def problem(self, value: str) -> str:
        """Check the syntax and the bounds."""
        if not value:
            return ""
        if self.takes_request and "-" in value[1:]:
            of_each = dataclasses.replace(self, takes_request=False)
            return next(filter(None, map(of_each.problem, request_and_limit(value))), "")
        try:
            amount = parse(value)
        except ValueError as error:
            return f"{error}."
        if amount <= 0:
            return "Must be greater than 0, or empty."
        if self.least and amount < parse(self.least):
            if value.isdecimal():
                return f"{value} without a unit is {value} bytes: write e.g. {value}Gi."
            return f"Must be at least {self.least}, e.g. {self.example}."
        return f"Must be at most {self.most}, e.g. {self.example}." if amount > parse(self.most) else ""


CORES = Quantity("100k", "4 or 500m")
BYTES = Quantity("1Ei", "32Gi", least="1Mi")
POD_CORES = dataclasses.replace(CORES, takes_request=True)
POD_BYTES = dataclasses.replace(BYTES, takes_request=True)


@dataclass(frozen=True, slots=True)
class Duration:
    """Duration in seconds, 0 for none; written as `90s`, `30m`, `1h30m`, `2d`."""

    metavar: str = "DURATION"
    is_repeated: bool = False

    def parse(self, text: str) -> int:
        """Return the seconds; a bare number is seconds."""
        text = text.strip()
        found = _DURATION.fullmatch(text)
        if found is None:
            raise ValueError("Must be a duration, e.g. 90s, 30m, 1h30m or 2d.")
        return sum(int(part or 0) * unit_s for part, unit_s in zip(found.groups(), _SECONDS, strict=True))

    def to_text(self, value: int) -> str:
        """Return the shortest text; empty for 0."""
        parts = []
        for unit_s, letter in zip(_SECONDS, "dhms", strict=True):
            amount, value = divmod(value, unit_s)
            parts += [f"{amount}{letter}"] if amount else []
        return "".join(parts)

    def problem(self, value: int) -> str:
        """Check for negative values and those too long for Kubernetes."""
        return "" if 0 <= value < 2**31 else "Must be between 0 and 24855 days."


@dataclass(frozen=True, slots=True)
class Switch:
    """True or false."""

    metavar: str = ""
    is_repeated: bool = False

    def parse(self, text: str) -> bool:
        """Return True for `true`."""
        text = text.strip().lower()
        if text not in ("true", "false", ""):
            raise ValueError("Must be true or false.")
        return text == "true"

    def to_text(self, value: bool) -> str:
        """Return `true` or `false`."""
        return "true" if value else "false"

    def problem(self, value: bool) -> str:
        """Return an empty text: both values are valid."""
        return ""


@dataclass(frozen=True, slots=True)
class Choice(_OneLine):
    """One of several words."""

    choices: tuple[tuple[str, str], ...]
    """Each word with its label; the empty word leaves the choice to the cluster."""
    metavar: str = "WORD"
    is_repeated: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        """The words that can be typed."""
        return tuple(word for word, _ in self.choices if word)

    def problem(self, value: str) -> str:
        """Check that the value is one of the words."""
        is_one = value in (word for word, _ in self.choices)
        return "" if is_one else f"Must be one of {', '.join(self.words)}."


@dataclass(frozen=True, slots=True)
class Argv:
    """Words of a command line, split as by a shell."""

    metavar: str = "WORDS"
    is_repeated: bool = False

    def parse(self, text: str) -> tuple[str, ...]:
        """Return the words."""
        try:
            return tuple(shlex.split(text))
        except ValueError as error:
            raise ValueError(f"{str(error).capitalize()}.") from None

    def to_text(self, value: tuple[str, ...]) -> str:
        """Return a line that a shell splits into the words."""
        return shlex.join(value)

    def problem(self, value: tuple[str, ...]) -> str:
        """Check for control characters."""
        return _control_problem("".join(value))


@dataclass(frozen=True, slots=True)
class Parts:
    """Several values, one per line."""

    metavar: str
    from_text: Callable[[str], Any]
    check: Callable[[Any], str] = lambda _: ""
    is_repeated: bool = True

    def parse(self, text: str) -> tuple[Any, ...]:
        """Return the values of all non-empty lines."""
        found = []
        for number, line in lines(text):
            try:
                found.append(self.from_text(line))
            except ValueError as error:
                raise ValueError(f"Line {number}: {error}.") from None
        return tuple(found)

    def to_text(self, value: tuple[Any, ...]) -> str:
        """Return one line per value."""
        return "\n".join(map(_part_text, value))

    def problem(self, value: tuple[Any, ...]) -> str:
        """Check for control characters, then each value."""
        found = _control_problem("".join(map(_part_text, value)))
        return found or next(filter(None, map(self.check, value)), "")


@dataclass(frozen=True, slots=True)
class Pairs:
    """Names with values, one `NAME=value` per line; a value in double quotes is a JSON string."""

    metavar: str = "NAME=VALUE"
    name_pattern: re.Pattern[str] | None = None
    name_sentence: str = ""
    value_pattern: re.Pattern[str] | None = None
    value_sentence: str = ""
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
        """Return one line per name."""
        return "\n".join(f"{name}={_quoted(text)}" for name, text in value.items())

    def problem(self, value: Mapping[str, str]) -> str:
        """Check for control characters, then names and values."""
        if found := _control_problem("".join((*value, *value.values()))):
            return found
        for name, text in value.items():
            if self.name_pattern is not None and not self.name_pattern.fullmatch(name):
                return f"{name!r} is not a valid {self.name_sentence}."
            if self.value_pattern is not None and not self.value_pattern.fullmatch(text):
                return f"{text!r} is not a valid {self.value_sentence}."
        return ""


def lines(text: str) -> list[tuple[int, str]]:
    """Return the non-empty lines with their numbers, from 1."""
    found = enumerate(LINE_END.split(text), 1)
    return [(number, line.strip()) for number, line in found if line.strip()]


def name_from_text(text: str) -> str:
    """Return the stripped text."""
    return text.strip()


def dns_problem(value: str) -> str:
    """Return the error message for an object name; empty if it is valid."""
    return "" if DNS_NAME.fullmatch(value) else f"{value!r}: {DNS_SENTENCE}"


def _part_text(value: str | Part) -> str:
    return value if isinstance(value, str) else value.to_text()


def _control_problem(text: str) -> str:
    found = _CONTROL.search(text)
    return f"Must not contain control characters; found {found[0]!r}." if found else ""


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


_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESOURCE_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/[A-Za-z0-9][-A-Za-z0-9._]{0,62}")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_LABEL_NAME = re.compile(rf"({DNS_NAME.pattern}/)?(?!$){_LABEL_VALUE.pattern}")
_WORD = "use at most 63 letters, digits, '-', '_' and '.', e.g. team=vision"

OBJECT_NAME = Text("NAME", DNS_NAME, DNS_SENTENCE)
RUNTIME = Text("RUNTIME", re.compile(f"(trainingruntime/)?(?:{DNS_NAME.pattern})"), DNS_SENTENCE)
IMAGE = Text("IMAGE", re.compile(r"\S*"), "Must not contain spaces.")
FOLDER = Text("FOLDER")
RESOURCE = Text("RESOURCE", _RESOURCE_NAME, "Must be a resource name, e.g. nvidia.com/gpu.")
DEVICES = Pairs("RESOURCE=N", _RESOURCE_NAME, "resource name")
LABELS = Pairs("NAME=VALUE", _LABEL_NAME, f"label name: {_WORD}", _LABEL_VALUE, f"label value: {_WORD}")
ANNOTATIONS = Pairs("NAME=VALUE", _LABEL_NAME, f"annotation name: {_WORD}")
VARIABLES = Pairs("NAME=VALUE", _ENV_NAME, "variable name: use letters, digits and '_'")
SECRETS = Parts("SECRET", name_from_text, dns_problem)
NODES = Parts("NODE", name_from_text, dns_problem)
NAMESPACES = ("network", "ipc", "pid")
HOST_NAMESPACES = Parts(
    "|".join(NAMESPACES),
    name_from_text,
    lambda value: "" if value in NAMESPACES else f"{value!r} is not one of {', '.join(NAMESPACES)}.",
)

PULL_POLICIES = Choice(
    (("", "cluster default"), ("Always", "Always"), ("IfNotPresent", "IfNotPresent"), ("Never", "Never"))
)
SYNC_MODES = Choice((("", "the image"), ("git", "git"), ("rsync", "rsync"), ("folder", "a local folder")))
RDZV_BACKENDS = Choice((("", "the default"), ("c10d", "c10d"), ("etcd", "etcd"), ("etcd-v2", "etcd-v2")))
LAUNCHER_POLICIES = Choice(
    (
        ("", "the default"),
        ("AtStartup", "with the workers"),
        ("WaitForWorkersReady", "when workers are ready"),
    )
)
RESTART_POLICIES = Choice(
    (
        ("", "OnFailure with retries, else Never"),
        ("Always", "Always"),
        ("OnFailure", "OnFailure"),
        ("Never", "Never"),
        ("ExitCode", "ExitCode: on 128 and above"),
    )
)
CLEAN_PODS = Choice((("None", "None: keep all pods"), ("Running", "Running pods"), ("All", "All pods")))

Section = Literal["job", "code", "resources", "launch", "storage", "environment", "scheduling", "lifecycle"]
_SECTIONS: Mapping[str, Section] = {
    "name": "job",
    "sync_mode": "code",
    "workers": "resources",
    "command": "launch",
    "mounts": "storage",
    "env": "environment",
    "priority_class": "scheduling",
    "retries": "lifecycle",
}
_Value = TypeVar("_Value")
_KEY = "declaration"


@dataclass(frozen=True, slots=True)
class JobField:
    """Field of `JobSpec`."""

    name: str
    title: str
    help: str
    """One sentence without a full stop."""
    section: Section
    type: FieldType
    default: Any
    flags: tuple[str, ...] = ()
    """Flags of `submit`, the one that Arena uses first."""
    unit: str = ""
    placeholder: str = ""
    """Text shown while the field is empty: an example, or the meaning of empty."""
    is_basic: bool = False
    """True if the form shows it without "more fields"."""

    @property
    def default_text(self) -> str:
        """Default as text in a form."""
        return self.type.to_text(self.default)


def declare(default: _Value, help: str, type: FieldType, *, flags: str = "", **more: Any) -> _Value:
    """Return a dataclass field with its declaration.

    `title` and `flags` (separated by spaces) default to what follows from the field's name.
    """
    metadata = {_KEY: {"help": help, "type": type, "flags": tuple(flags.split()), **more}}
    made: Any = (
        dataclasses.field(default_factory=dict, metadata=metadata)
        if isinstance(default, dict)
        else dataclasses.field(default=default, metadata=metadata)
    )
    return made  # type: ignore[no-any-return]


def fields_of(spec: type) -> dict[str, JobField]:
    """Return the declarations of a dataclass's fields by name, in order."""
    found = {}
    section: Section = "job"
    for each in dataclasses.fields(spec):
        section = _SECTIONS.get(each.name, section)
        declared = {"title": each.name.replace("_", " ").capitalize(), **each.metadata[_KEY]}
        declared["flags"] = declared["flags"] or (f"--{each.name.replace('_', '-')}",)
        default = {} if each.default is dataclasses.MISSING else each.default
        found[each.name] = JobField(name=each.name, section=section, default=default, **declared)
    return found
