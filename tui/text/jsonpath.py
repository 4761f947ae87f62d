"""JSONPath templates as kubectl's `-o jsonpath` and `custom-columns` read them.

Text, `{.path}`, `{"text"}`, `{range .path}…{end}`. A path has names, `['name']`, indexes and slices from
either end, `*`, `..name`, unions `[0,2]` and filters `[?(@.status=="Running")]`. Missing keys give nothing.

Source: https://kubernetes.io/docs/reference/kubectl/jsonpath/
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

_NAME = re.compile(r"(?:\\.|[^.\[\]\\\s'\"])+")
_STEP = re.compile(r"\.\.|\.|\[")
_FILTER = re.compile(r"\?\(\s*@(?P<path>[^=!<>]*?)\s*(?:(?P<op>==|!=|<=|>=|<|>)\s*(?P<value>.+?))?\s*\)")
_SLICE = re.compile(r"(-?\d*):(-?\d*)(?::(-?\d+))?")
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}

Step = Callable[[Any], Iterable[Any]]
Part = str | list[Step] | tuple[list[Step], list[Any]]


def parse_path(text: str) -> list[Step]:
    """Parse a path such as `.items[*].name`; the leading dot, `$` or `@` may be left out.

    Raises:
        ValueError: The text is not a path.
    """
    text = text.strip().lstrip("$@") if text.strip()[:1] in ("$", "@") else text.strip()
    text = text if text[:1] in (".", "[", "") else f".{text}"
    steps: list[Step] = []
    at = 0
    while at < len(text):
        found = _STEP.match(text, at)
        if found is None:
            raise ValueError(f"unexpected {text[at]!r} in {text!r}")
        at = found.end()
        if found[0] == "[":
            end = _closing(text, at)
            steps.append(_bracket(text[at:end].strip()))
            at = end + 1
            continue
        if found[0] == ".." and text[at : at + 1] != "[":
            steps.append(_descend)
        if text[at : at + 1] in ("", "["):  # `{.}`, `.[0]`
            continue
        name = _NAME.match(text, at)
        if name is None:
            raise ValueError(f"a name is missing in {text!r}")
        at = name.end()
        steps.append(_every if name[0] == "*" else _key(re.sub(r"\\(.)", r"\1", name[0])))
    return steps


def _closing(text: str, at: int) -> int:
    depth, quote = 1, ""
    for index in range(at, len(text)):
        char = text[index]
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        else:
            depth += (char == "[") - (char == "]")
            if not depth:
                return index
    raise ValueError(f"a ] is missing in {text!r}")


def _bracket(inside: str) -> Step:
    if found := _FILTER.fullmatch(inside):
        return _filter(parse_path(found["path"]), found["op"], found["value"])
    choices = [_choice(each.strip()) for each in re.split(r",(?=(?:[^'\"]|'[^']*'|\"[^\"]*\")*$)", inside)]
    return lambda value: (each for choice in choices for each in choice(value))


def _choice(text: str) -> Step:
    if text == "*":
        return _every
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return _key(text[1:-1])
    if found := _SLICE.fullmatch(text):
        start, stop, step = (int(each) if each else None for each in found.groups())
        return lambda value: value[start:stop:step] if isinstance(value, list) else ()
    try:
        index = int(text)
    except ValueError:
        raise ValueError(f"[{text}] is no index, name, slice or filter") from None
    return lambda value: value[index:][:1] if isinstance(value, list) and -len(value) <= index else ()


def _key(name: str) -> Step:
    return lambda value: (value[name],) if isinstance(value, dict) and name in value else ()


def _every(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _descend(value: Any) -> Iterator[Any]:
    yield value
    for each in _every(value):
        yield from _descend(each)


def _filter(path: list[Step], op: str | None, text: str | None) -> Step:
    if op is None or text is None:
        return lambda value: [each for each in _every(value) if any(True for _ in find(path, each))]
    compare, wanted = _OPERATORS[op], _literal(text)

    def is_wanted(item: Any) -> bool:
        return any(
            type(each) is type(wanted) and compare(each, wanted) for each in map(_number, find(path, item))
        )

    return lambda value: [each for each in _every(value) if is_wanted(each)]


def _literal(text: str) -> Any:
    if text[0] in "'\"" and text[-1] == text[0] and len(text) > 1:
        return text[1:-1]
    try:
        return _number(json.loads(text))
    except ValueError:
        raise ValueError(f"{text} is neither a number nor quoted") from None


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def find(path: Iterable[Step], value: Any) -> list[Any]:
    """Return all values that a path finds."""
    found = [value]
    for step in path:
        found = [each for one in found for each in step(one)]
    return found


def text_of(value: Any) -> str:
    """Return a value as kubectl prints it: strings bare, objects and lists as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)


class Template:
    """A parsed `-o jsonpath` template."""

    def __init__(self, text: str) -> None:
        """Parse; raises `ValueError` for an invalid template."""
        # As kubectl, take a bare path for a template.
        self._parts, rest = _parse(_tokens(text if "{" in text else f"{{{text}}}"))
        if rest is not None:
            raise ValueError("{end} without {range}")

    def render(self, value: Any) -> str:
        """Return the text for a value."""
        return "".join(_render(self._parts, value))


def _tokens(text: str) -> Iterator[tuple[bool, str]]:
    """Yield the text between braces with True, and the rest with False."""
    at = 0
    for found in re.finditer(r"\{((?:[^{}'\"]|'[^']*'|\"(?:\\.|[^\"])*\")*)\}", text):
        yield False, text[at : found.start()]
        yield True, found[1].strip()
        at = found.end()
    if "{" in text[at:] or "}" in text[at:]:
        raise ValueError("a brace is not closed")
    yield False, text[at:]


def _parse(tokens: Iterator[tuple[bool, str]]) -> tuple[list[Part], str | None]:
    """Parse up to `{end}`, which is returned, or up to the end."""
    parts: list[Part] = []
    for is_code, text in tokens:
        if not is_code:
            parts.append(text)
        elif text == "end":
            return parts, text
        elif text[:6] in ("range ", "range\t"):
            inner, end = _parse(tokens)
            if end is None:
                raise ValueError("{range} without {end}")
            parts.append((parse_path(text[6:]), inner))
        elif text[:1] in ("'", '"'):
            parts.append(re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), text[1:-1]))
        else:
            parts.append(parse_path(text))
    return parts, None


def _render(parts: Sequence[Part], value: Any) -> Iterator[str]:
    for part in parts:
        if isinstance(part, str):
            yield part
        elif isinstance(part, tuple):
            for each in find(part[0], value):
                yield from _render(part[1], each)
        else:
            yield " ".join(map(text_of, find(part, value)))
