"""What is typed after `/`, as k9s understands it, and `column:regex` beside it.

What is no regular expression is looked for as it stands.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

FILTERS = (
    ("bert.*a100", "a regular expression, ignoring case"),
    ("!bert", "what does not match"),
    ("-f brtlrg", "names with these letters in this order"),
    ("-l team=nlp,tier!=dev", "labels, as kubectl -l"),
    ("status:run gpus:^8", "columns: others are and, the same again is or"),
    ("!status:succ", "a column that does not match"),
)
"""What can be typed, and what it means."""

LONGEST_TEXT = 4096
"""Characters of a text that an expression is tried on."""

_LABEL = re.compile(r"\s*(!?)\s*([^\s=!,]+)\s*(?:(==|=|!=)\s*([^\s,]*))?\s*$")
_TERM = re.compile(r"(!?)([A-Za-z#×][\w ./-]*?):(\S+)$")


@dataclass(frozen=True, slots=True)
class Filter:
    """What was typed, understood."""

    text: Callable[[str], bool] | None = None
    """The test for a row as a whole; None where any will do."""
    columns: Mapping[str, tuple[Callable[[str], bool], ...]] = field(default_factory=dict)
    """Columns by their titles in lower case, and tests of which one must be passed."""
    labels: Callable[[Mapping[str, str]], bool] | None = None
    """The test for labels; None where any will do."""
    problem: str = ""
    """What could not be understood, in a sentence; such a filter lets all pass."""
    hint: str = ""
    """Why perhaps nothing matches, in a sentence."""

    def accepts(self, cells: Sequence[str], places: Mapping[str, int], labels: Mapping[str, str]) -> bool:
        """Tell whether a row passes.

        Args:
            cells: The row's texts.
            places: The columns' titles in lower case, and where their cells are.
            labels: The labels of what the row stands for.
        """
        if self.labels is not None and not self.labels(labels):
            return False
        if self.text is not None and not self.text(" ".join(cells)):
            return False
        return all(any(test(cells[places[name]]) for test in tests) for name, tests in self.columns.items())


def parse_filter(typed: str, columns: Iterable[str] = ()) -> Filter | None:
    """Understand a filter; None when nothing is typed.

    Args:
        typed: What stands after `/`.
        columns: The titles of the columns that terms may name; letters are looked for in the first.
    """
    words = typed.strip()
    if not words or words == "!":
        return None
    names = [title.lower() for title in columns]
    if words.startswith("-f"):
        return _letters_filter(words[2:].strip(), names)
    if words.startswith("-l"):
        return _label_filter(words[2:])
    by_column: dict[str, list[Callable[[str], bool]]] = {}
    plain, hints = [], []
    for word in words.split():
        found = _TERM.match(word)
        if found and (name := found[2].lower()) in names:
            by_column.setdefault(name, []).append(_test(found[3], leaves_out=bool(found[1])))
            hints.append(_hint_of_column(name, found[3]))
            continue
        plain.append(word)
        if found and names:
            hints.append(f"There is no column {found[2]}: {', '.join(names)}.")
    text = " ".join(plain)
    hints.append(_hint(text.removeprefix("!")))
    tests = {name: tuple(tests) for name, tests in by_column.items()}
    return Filter(matcher(text), tests, hint=next(filter(None, hints), ""))


def matcher(typed: str) -> Callable[[str], bool] | None:
    """Return the test for texts alone, a regular expression or with `!` its opposite; None for nothing."""
    words = typed.strip()
    pattern = words.removeprefix("!")
    return _test(pattern, leaves_out=words.startswith("!")) if pattern else None


def _test(words: str, *, leaves_out: bool = False) -> Callable[[str], bool]:
    try:
        pattern = re.compile(words, re.IGNORECASE)
    except (re.error, OverflowError, RecursionError):
        pattern = re.compile(re.escape(words), re.IGNORECASE)
    return lambda text: (pattern.search(text[:LONGEST_TEXT]) is None) is leaves_out


def _hint(words: str) -> str:
    """Say why a text is looked for as it stands, where it is no regular expression."""
    try:
        re.compile(words, re.IGNORECASE)
    except (re.error, OverflowError, RecursionError) as error:
        return f"{words!r} is no regular expression ({error}): it was looked for as it stands."
    return ""


def _hint_of_column(name: str, wanted: str) -> str:
    """Say why nothing may match in a column, where that is to be feared."""
    if wanted.startswith(("<", ">")):
        return f"{wanted[0]} compares nothing: {name}: takes a regular expression, such as {name}:^2."
    return _hint(wanted)


def _letters_filter(letters: str, columns: Sequence[str]) -> Filter | None:
    if not letters:
        return None
    test = _test(".*?".join(map(re.escape, letters)))
    return Filter(columns={columns[0]: (test,)}) if columns else Filter(test)


def _label_filter(words: str) -> Filter | None:
    parts = [part for part in words.split(",") if part.strip()]
    found = [_LABEL.match(part) for part in parts]
    if not parts:
        return None
    broken = [part.strip() for part, each in zip(parts, found, strict=True) if each is None]
    if broken:
        return Filter(problem=f"{broken[0]!r} is no label; write key=value, key!=value, key or !key.")
    terms = [each.groups() for each in found if each is not None]

    def accepts(labels: Mapping[str, str]) -> bool:
        return all(_has(labels, *term) for term in terms)

    return Filter(labels=accepts)


def _has(labels: Mapping[str, str], negation: str, key: str, operator: str | None, value: str | None) -> bool:
    if operator is None:
        return (key in labels) is not bool(negation)
    return (labels.get(key) == value) is (operator != "!=")
