r"""Reading of causes.yaml, the user's own causes of failures.

- name: lease lost
  pattern: 'lease (?P<number>\d+) lost'
  sentence: Another job took lease {number}.
  remedy: Wait until it has ended.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from k8s.reasons.failures import CAUSES, FailureCause
from k8s.text.home import file_problem, read_named_file
from tui.text.format import listed

if TYPE_CHECKING:
    import yaml

_REQUIRED = ("name", "pattern", "sentence")
_OPTIONAL = ("remedy", "retry")
_MOST_CAUSES = 200
_MOST_CHARS = 500
# A repeated group that repeats something itself may take a time exponential in the length of a line.
_NESTED_REPEAT = re.compile(r"[*+}]\)[*+{]|[*+}][^()]*\)[*+{]")
_REPEAT = re.compile(r"(?<!\\)[*+](?!\+)|\{\d*,\}")
_MOST_REPEATS = 4


class UserCauses(msgspec.Struct, frozen=True):
    """Causes of failures to look for."""

    causes: Sequence[FailureCause] = CAUSES
    """The user's, then the packaged ones."""
    problems: tuple[str, ...] = ()
    """Rejected entries with file and line."""


def read_causes(path: Path) -> UserCauses:
    """Read causes.yaml; a missing file adds none, and invalid entries are reported."""
    try:
        text = read_named_file(path).decode()
    except FileNotFoundError:
        return UserCauses()
    except (OSError, UnicodeDecodeError) as error:
        return UserCauses(problems=(f"{path} cannot be read: {file_problem(error)}.",))
    import yaml  # slow, and most people have no such file

    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        return UserCauses(problems=(f"{path}, line {line}: {error.problem or 'not valid YAML'}.",))
    except RecursionError:
        return UserCauses(problems=(f"{path} cannot be read: it is nested too deeply.",))
    except yaml.YAMLError as error:
        return UserCauses(problems=(f"{path} cannot be read: {file_problem(error)}.",))
    if root is None:
        return UserCauses()
    if not isinstance(root, yaml.SequenceNode):
        return UserCauses(problems=(f"{path}: a list of causes is expected, each with {listed(_REQUIRED)}.",))
    causes: list[FailureCause] = []
    problems: list[str] = []
    for node in root.value[:_MOST_CAUSES]:
        try:
            causes.append(_cause(node))
        except ValueError as error:
            problems.append(f"{path}, line {node.start_mark.line + 1}: {error}.")
    if len(root.value) > _MOST_CAUSES:
        problems.append(f"{path}: only the first {_MOST_CAUSES} causes are used.")
    return UserCauses((*causes, *CAUSES), tuple(problems))


def _cause(node: yaml.Node) -> FailureCause:
    import yaml

    if not isinstance(node, yaml.MappingNode):
        raise ValueError(f"a cause is expected, with {listed(_REQUIRED)}")
    values = dict(_texts(node))
    if missing := [name for name in _REQUIRED if not values.get(name)]:
        raise ValueError(f"{listed(missing)} is missing")
    if values.get("retry", "false") not in ("true", "false"):
        raise ValueError("retry is true or false")
    return FailureCause(
        values["name"],
        _checked(values["pattern"]),
        values["sentence"],
        values.get("remedy", ""),
        can_retry_help=values.get("retry") == "true",
    )


def _texts(node: yaml.MappingNode) -> Iterator[tuple[str, str]]:
    import yaml

    for key, value in node.value:
        name = key.value if isinstance(key, yaml.ScalarNode) else "a key of several parts"
        if name not in (*_REQUIRED, *_OPTIONAL):
            raise ValueError(f"unknown key {name}; there are {listed((*_REQUIRED, *_OPTIONAL))}")
        if not isinstance(value, yaml.ScalarNode) or len(value.value) > _MOST_CHARS:
            raise ValueError(f"{name} is a text of at most {_MOST_CHARS} characters")
        yield name, value.value


def _checked(pattern: str) -> str:
    try:
        compiled = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"the pattern is not a regular expression: {error}") from error
    if compiled.search(""):
        raise ValueError("the pattern matches an empty line, so it would match any")
    if _NESTED_REPEAT.search(pattern) or len(_REPEAT.findall(pattern)) > _MOST_REPEATS:
        raise ValueError(
            f"the pattern may take too long: no repeated groups, and * or + at most {_MOST_REPEATS} times"
        )
    return pattern
