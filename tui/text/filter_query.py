"""Parser of filters typed after `/`: the grammar of k9s, and `column:regex` terms in any order.

An invalid regular expression is searched for literally. A filter that cannot be parsed matches nothing,
because people mark and delete what a filter shows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import msgspec

FILTERS = (
    ("bert.*a100", "a regular expression, ignoring case"),
    ("!bert", "what does not match"),
    ("-f brtlrg", "names with these letters in this order"),
    ("-l team=nlp,tier!=dev", "labels, as kubectl -l; also: tier in (a, b)"),
    ("status:run gpus:^8", "columns: others are and, the same again is or"),
    ("!status:succ", "a column that does not match"),
    ("bert -l team !gpus:^8", "all of these, in any order"),
)

_SELECTORS = "key=value, key!=value, key in (a, b), key or !key"

# Limits the time of a regular expression.
LONGEST_TEXT = 4096

TextTest = Callable[[str], bool]
LabelTest = Callable[[Mapping[str, str]], bool]

_WORD = re.compile(r"(!?)(?:([A-Za-z#×][\w./-]*?):(?=.))?(.*)$", re.DOTALL)
_PIECE = re.compile(r"\s*(?:(?P<labels>-l(?=\s|$|\w\S*=))|-f(?:$|\s+(?P<letters>\S*))|(?P<word>\S+))")
# A comma, the end, or a space and another term follow a requirement. An operator or a bracket there is a
# slip, and so is `in` without a list.
_REQUIREMENT = re.compile(
    r"\s*(?:!\s*(?P<absent>\w[\w./-]*)"
    r"|(?P<key>\w[\w./-]*)(?:\s*(?P<equals>==?|!=)\s*(?P<value>[\w.-]*)"
    r"|\s+(?P<among>in|notin)\s*\((?P<values>[\w.,\s-]*)\)|(?!\s+(?:in|notin)(?:[\s(]|$))))"
    r"(?:\s*(?P<comma>,)|\s*$|(?=\s+(?!!\s*=)[^\s,=<>()]))"
)


class Filter(msgspec.Struct, frozen=True):
    """A parsed filter."""

    required: tuple[tuple[str, TextTest], ...] = ()
    """Column titles in lower case with their tests; an empty title tests the whole row."""
    labels: tuple[LabelTest, ...] = ()
    problem: str = ""
    """Parse error in one sentence; such a filter accepts nothing."""
    hint: str = ""
    """Possible reason for no matches, in one sentence."""

    def accepts(self, cells: Sequence[str], places: Mapping[str, int], labels: Mapping[str, str]) -> bool:
        """Return True if a row passes.

        Args:
            cells: Texts of the row.
            places: Cell indices by column title in lower case.
            labels: Labels of the row's object.
        """
        if self.problem or not all(test(labels) for test in self.labels):
            return False
        whole = "\n".join((" ".join(cells), *cells))  # ^ and $ match at each cell too
        return all(test(cells[places[name]] if name else whole) for name, test in self.required)


def parse_filter(typed: str, columns: Iterable[str] = ()) -> Filter | None:
    """Parse a filter; return None if it is empty.

    Consecutive plain words form one expression; `!` negates the single word after it.

    Args:
        typed: Text after `/`.
        columns: Titles of columns that terms may name; `-f` searches the first one.
    """
    names = [title.lower() for title in columns]
    required: list[tuple[str, TextTest]] = []
    by_column: dict[str, list[TextTest]] = {}
    labels: list[LabelTest] = []
    problems: list[str] = []
    hints: list[str] = []
    phrases = [""]
    at = 0
    while found := _PIECE.match(typed, at):
        at = found.end()
        if found["word"] is None:
            phrases.append("")
            if letters := found["letters"]:
                required.append((next(iter(names), ""), _test(".*?".join(map(re.escape, letters)))))
            elif found["labels"]:
                tests, at, problem = _label_tests(typed, at)
                labels += tests
                problems.append(problem)
            continue
        negates, column, words = _WORD.match(found["word"]).groups()  # type: ignore[union-attr]
        name = (column or "").lower()
        if column and name not in names:
            unknown = f"There is no column {column}: {', '.join(names)}."
            (problems if negates else hints).append(unknown if names else "")
            name, words = "", f"{column}:{words}"
        if negates and words:
            required.append((name, _test(words, negates=True)))
            problems.append(_problem(words))
        elif name:
            by_column.setdefault(name, []).append(_test(words))
            hints.append(_hint_of_column(name, words))
        elif words:
            phrases[-1] = f"{phrases[-1]} {words}".strip()
            continue
        phrases.append("")
    required += [("", _test(phrase)) for phrase in phrases if phrase]
    required += [(name, partial(_any, tests)) for name, tests in by_column.items()]
    hints += map(hint_of, phrases)
    problem, hint = (next(filter(None, found), "") for found in (problems, hints))
    return Filter(tuple(required), tuple(labels), problem, hint) if required or labels or problem else None


def matcher(typed: str) -> TextTest | None:
    """Return the test for plain text: a regular expression, negated by `!`; None for an empty filter."""
    words = typed.strip()
    pattern = words.removeprefix("!")
    return _test(pattern, negates=words.startswith("!")) if pattern else None


def _any(tests: Sequence[TextTest], text: str) -> bool:
    return any(test(text) for test in tests)


def _test(words: str, *, negates: bool = False) -> TextTest:
    flags = re.IGNORECASE | re.MULTILINE
    pattern = re.compile(re.escape(words) if _problem(words) else words, flags)
    return lambda text: (pattern.search(text[:LONGEST_TEXT]) is None) is negates


def _problem(words: str) -> str:
    try:
        re.compile(words, re.IGNORECASE)
    except (re.error, OverflowError, RecursionError) as error:
        return f"{words!r} is not a valid regular expression ({error})."
    return ""


def hint_of(words: str) -> str:
    """Return a hint if a text is not a valid regular expression and was searched for literally."""
    problem = _problem(words)
    return f"{problem.removesuffix('.')}, so it was searched as plain text." if problem else ""


def _hint_of_column(name: str, wanted: str) -> str:
    if wanted.startswith(("<", ">")):
        return f"{wanted[0]} compares nothing: {name}: takes a regular expression, such as {name}:^2."
    return hint_of(wanted)


def _label_tests(typed: str, at: int) -> tuple[list[LabelTest], int, str]:
    tests: list[LabelTest] = []
    start, goes_on = at, True
    while goes_on and typed[at:].strip():
        if (found := _REQUIREMENT.match(typed, at)) is None:
            selector = typed[start:].strip()
            return [], len(typed), f"{selector!r} is not a label selector; write {_SELECTORS}."
        tests.append(_label_test(found))
        at, goes_on = found.end(), bool(found["comma"])
    return tests, at, ""


def _label_test(found: re.Match[str]) -> LabelTest:
    key: str = found["absent"] or found["key"]
    if not found["equals"] and not found["among"]:
        return lambda labels: (key in labels) is not bool(found["absent"])
    wanted = {value.strip() for value in (found["values"] or found["value"] or "").split(",")}
    negates = found["equals"] == "!=" or found["among"] == "notin"
    return lambda labels: (labels.get(key) in wanted) is not negates
