"""Reading of config.yaml; invalid entries are reported with their line."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml

from k8s.text.home import file_problem, read_named_file
from tui.options import (
    DEFAULT_ALERTS,
    FINISHED_DAYS,
    AlertRule,
    Alias,
    ContextSettings,
    NoticeEvent,
    NoticeScope,
    NotifyOptions,
    OwnColumn,
    SignalScope,
)
from tui.text.jsonpath import parse_path

# A hundred years: finished jobs never expire.
MAX_DAYS = 36500
MAX_TITLE = 30
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_TEXT = "tag:yaml.org,2002:str"
_SWITCH = "tag:yaml.org,2002:bool"
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_NO_ACCELERATORS = ("cpu", "memory", "pods", "ephemeral-storage")

Word = TypeVar("Word", bound=StrEnum)
ColumnsOf = Callable[[], Mapping[str, Collection[str]]]


@dataclass(frozen=True, slots=True)
class Config:
    """The user's configuration."""

    accelerators: tuple[str, ...] = ()
    """Patterns of further accelerator resources."""
    unknown: tuple[str, ...] = ()
    """Unknown keys, each with its line: `acelerators (line 3)`."""
    theme: str = ""
    """Palette to use until another one is chosen; empty if not set."""
    finished_days: float = FINISHED_DAYS
    prometheus: str = ""
    """Service of Prometheus, as `monitoring/prometheus-k8s:web`; empty to find it automatically."""
    strip_by: str = ""
    """Node label that groups nodes in the node bar; empty for the GPU model."""
    loss: bool = True
    alerts: tuple[AlertRule, ...] = DEFAULT_ALERTS
    notify: NotifyOptions = field(default_factory=NotifyOptions)
    aliases: Mapping[str, Alias] = field(default_factory=dict)
    columns: Mapping[str, tuple[str | OwnColumn, ...]] = field(default_factory=dict)
    contexts: tuple[ContextSettings, ...] = ()
    problems: tuple[str, ...] = ()
    """Invalid values with file, line and key; their defaults apply."""


def read_config(path: Path, columns_of: ColumnsOf = dict) -> Config:
    """Read config.yaml; a missing file means defaults, and invalid entries are reported.

    Args:
        path: The file.
        columns_of: Returns the keys of the columns of each list; called only if there is `columns`.
    """
    values: dict[str, Any] = {}
    unknown: list[str] = []
    problems: list[str] = []
    try:
        root = read_root(path, "accelerators: [example.com/npu]")
    except BadValue as error:
        return Config(problems=(str(error),))
    for key, value in root.value if root else ():
        if read := _READERS.get(key.value) if isinstance(key, yaml.ScalarNode) else None:
            try:
                if key.value in values:
                    raise BadValue("it is given twice; the first is used", line_of(key))
                values[key.value] = read(value, columns_of()) if read is _columns else read(value)
            except BadValue as error:
                line = error.line or line_of(value)
                problems.append(f"{path}, line {line}, {key.value}: {error}.")
                if error.valid is not None:
                    values[key.value] = error.valid
        else:
            name = key.value if isinstance(key, yaml.ScalarNode) else "a key of several parts"
            unknown.append(f"{name} (line {line_of(key)})")
    return Config(**values, unknown=tuple(unknown), problems=tuple(problems))


class BadValue(Exception):
    """A value cannot be used; the message says why."""

    def __init__(self, words: str, line: int = 0) -> None:
        super().__init__(words)
        self.line = line
        """0 for the line of the value."""
        self.valid: Any = None
        """The other parts of the value; None to use the default."""


def read_root(path: Path, example: str, *, must_be_own: bool = False) -> yaml.MappingNode | None:
    """Return the mapping in a YAML file; None for a missing or empty file.

    Raises:
        BadValue: The file cannot be read, or is not a mapping as in `example`.
    """
    try:
        text = read_named_file(path, must_be_own=must_be_own).decode()
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise BadValue(f"{path} cannot be read: {file_problem(error)}.") from error
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise BadValue(f"{path}, line {line}: {error.problem or 'not valid YAML'}.") from error
    except RecursionError as error:
        raise BadValue(f"{path} cannot be read: it is nested too deeply.") from error
    except yaml.YAMLError as error:
        raise BadValue(f"{path}, line 1: not valid YAML.") from error
    if root is None or isinstance(root, yaml.MappingNode):
        return root
    why = f"keys and values are expected, as `{example}`"
    raise BadValue(f"{path}, line {line_of(root)}: {why}.")


def read_switch(value: yaml.Node) -> bool:
    """Return a boolean, or raise `BadValue`."""
    found = yaml.safe_load(value.value) if isinstance(value, yaml.ScalarNode) else None
    if value.tag != _SWITCH or not isinstance(found, bool):
        raise BadValue("true or false is expected")
    return found


def read_text(value: yaml.Node, why: str) -> str:
    """Return a text that is not empty, or raise `BadValue` with the reason."""
    if not isinstance(value, yaml.ScalarNode) or value.tag != _TEXT or not value.value:
        raise BadValue(why)
    text: str = value.value
    return text


def _service(value: yaml.Node) -> str:
    # Slow to import, and rarely configured.
    from k8s.telemetry.prometheus import parse_address

    try:
        return parse_address(str(value.value)).name
    except ValueError as error:
        raise BadValue("a service is expected, as monitoring/prometheus-k8s:web") from error


def _days(value: yaml.Node) -> float:
    try:
        days = float(yaml.safe_load(value.value)) if value.tag in _NUMBERS else 0.0
    except (TypeError, ValueError, OverflowError):
        days = 0.0
    if not 0 < days <= MAX_DAYS:
        raise BadValue(f"a number of days is expected, more than 0 and at most {MAX_DAYS}")
    return days


def _patterns(value: yaml.Node) -> tuple[str, ...]:
    if not isinstance(value, yaml.SequenceNode):
        raise BadValue("a list of resource names is expected")
    for each in value.value:
        if not isinstance(each, yaml.ScalarNode) or each.tag != _TEXT or not each.value:
            raise BadValue("a resource name is expected, as example.com/npu", line_of(each))
        if any(fnmatchcase(name, each.value) for name in _NO_ACCELERATORS):
            raise BadValue(f"{each.value} matches resources that are not GPUs", line_of(each))
    return tuple(each.value for each in value.value)


def _notify(value: yaml.Node) -> NotifyOptions:
    if value.tag == _SWITCH and not read_switch(value):
        return NotifyOptions(events=())
    if not isinstance(value, yaml.MappingNode):
        raise BadValue("settings are expected, as `bell: off`, or off")
    found: dict[str, Any] = {}
    for key, each in value.value:
        read = _NOTIFY_READERS.get(key.value) if isinstance(key, yaml.ScalarNode) else None
        if read is None:
            raise BadValue(f"the settings are {', '.join(_NOTIFY_READERS)}", line_of(key))
        try:
            found[key.value] = read(each)
        except BadValue as error:
            raise BadValue(f"{key.value}: {error}", error.line or line_of(each)) from error
    return NotifyOptions(**found)


def _choice(value: yaml.Node, choices: tuple[str, ...]) -> str:
    # YAML 1.1 reads a bare `off` as false.
    chosen = "off" if value.tag == _SWITCH and not read_switch(value) else value.value
    if not isinstance(value, yaml.ScalarNode) or chosen not in choices:
        raise BadValue(f"{', '.join(choices[:-1])} or {choices[-1]} is expected", line_of(value))
    return str(chosen)


def _words(value: yaml.Node, of: type[Word]) -> tuple[Word, ...]:
    choices = tuple(map(str, of))
    if not isinstance(value, yaml.SequenceNode):
        raise BadValue(f"a list is expected, of {', '.join(choices)}")
    return tuple(of(_choice(each, choices)) for each in value.value)


def _alerts(value: yaml.Node) -> tuple[AlertRule, ...]:
    is_off = value.tag == _SWITCH and not read_switch(value)
    return () if is_off else _words(value, AlertRule)


def _command(value: yaml.Node) -> tuple[str, ...]:
    why = "a command is expected, as [notify-send, gpuconsole] or one quoted text"
    try:
        if isinstance(value, yaml.SequenceNode):
            words = [read_text(each, why) for each in value.value]
        else:
            words = shlex.split(read_text(value, why))
    except ValueError as error:  # an open quote
        raise BadValue(why) from error
    if not words or "\0" in "".join(words):
        raise BadValue(why)
    return tuple(words)


def _entries(
    value: yaml.Node, why: str, problems: list[BadValue] | None = None
) -> Iterator[tuple[str, yaml.Node, int]]:
    """Yield the keys, values and lines of a mapping; raise `BadValue`, or append it to `problems`."""
    seen = set[str]()
    for key, each in value.value if isinstance(value, yaml.MappingNode) else [(value, value)]:
        if key is value or not isinstance(key, yaml.ScalarNode) or not key.value:
            error = BadValue(why, line_of(key))
        elif key.value in seen:
            error = BadValue(f"{key.value} is given twice", line_of(key))
        else:
            seen.add(key.value)
            yield key.value, each, line_of(key)
            continue
        if problems is None:
            try:
                raise error
            finally:
                del error  # its traceback leads to this frame
        problems.append(error)


def _aliases(value: yaml.Node) -> Mapping[str, Alias]:
    why = "commands are expected, as `failed: jobs /status:failed`"
    found: dict[str, Alias] = {}
    for name, each, line in _entries(value, why):
        command = read_text(each, why).strip().removeprefix(":").strip() if name.split() == [name] else ""
        if not command or not command.isprintable():
            raise BadValue(why, line)
        found[name.lower()] = Alias(command, line)
    return found


def _columns(
    value: yaml.Node, known: Mapping[str, Collection[str]]
) -> Mapping[str, tuple[str | OwnColumn, ...]]:
    why = "lists and their columns are expected, as `jobs: [name, status]`"
    found: dict[str, tuple[str | OwnColumn, ...]] = {}
    for name, each, line in _entries(value, why):
        if known and name not in known:
            raise BadValue(f"there is no list {name}; there are {', '.join(known)}", line)
        if not isinstance(each, yaml.SequenceNode) or not each.value:
            raise BadValue(why, line)
        columns = [_column(node, known.get(name, ())) for node in each.value]
        titles = [column if isinstance(column, str) else column.title for column in columns]
        if twice := next((title for title in titles if titles.count(title) > 1), ""):
            raise BadValue(f"{name}: {twice} is given twice", line)
        found[name] = tuple(columns)
    return found


def _column(node: yaml.Node, known: Collection[str]) -> str | OwnColumn:
    if isinstance(node, yaml.MappingNode):
        why = "a title and a path are expected, as {title: TEAM, path: .metadata.labels.team}"
        fields = {key: read_text(each, why) for key, each, _ in _entries(node, why)}
        try:
            column = OwnColumn(**fields)
            parse_path(_bare(column.path))
        except (TypeError, ValueError) as error:
            raise BadValue(why if isinstance(error, TypeError) else str(error), line_of(node)) from error
        if not column.title.isprintable() or len(column.title) > MAX_TITLE:
            raise BadValue(f"a title of at most {MAX_TITLE} characters is expected", line_of(node))
        return column._replace(path=_bare(column.path))
    key = read_text(node, "the key of a column is expected, as status, or {title: TEAM, path: .user}")
    if known and key not in known:
        raise BadValue(f"there is no column {key}; there are {', '.join(known)}", line_of(node))
    return key


def _bare(path: str) -> str:
    return path.strip().removeprefix("{").removesuffix("}")


def _contexts(value: yaml.Node) -> tuple[ContextSettings, ...]:
    why = "names of contexts and settings are expected, as `prod-*: {readonly: true}`"
    # A mistake must not make another context writable.
    problems: list[BadValue] = []
    found = []
    for pattern, each, _ in _entries(value, why, problems):
        fields: dict[str, Any] = {}
        for key, node, at in _entries(
            each, f"{pattern}: settings are expected, as `readonly: true`", problems
        ):
            try:
                if key not in _CONTEXT_READERS:
                    raise BadValue(f"the settings are {', '.join(_CONTEXT_READERS)}")
                fields["read_only" if key == "readonly" else key] = _CONTEXT_READERS[key](node)
            except BadValue as error:
                problems.append(BadValue(f"{pattern}: {key}: {error}", error.line or at))
        found.append(ContextSettings(pattern=pattern, **fields))
    if problems:
        problems[0].valid = tuple(found)
        raise problems[0]
    return tuple(found)


def _namespace(value: yaml.Node) -> str:
    why = "the name of a namespace is expected, as vision"
    name = read_text(value, why)
    if not _LABEL.fullmatch(name):
        raise BadValue(why)
    return name


_theme = partial(read_text, why="the name of a theme is expected, as dark")
_CONTEXT_READERS: Mapping[str, Callable[[yaml.Node], Any]] = {
    "readonly": read_switch,
    "namespace": _namespace,
    "theme": _theme,
}
_NOTIFY_READERS: Mapping[str, Callable[[yaml.Node], Any]] = {
    "events": partial(_words, of=NoticeEvent),
    "toast": partial(_choice, choices=get_args(NoticeScope)),
    "counter": partial(_choice, choices=get_args(NoticeScope)),
    "terminal": partial(_choice, choices=get_args(SignalScope)),
    "bell": partial(_choice, choices=get_args(SignalScope)),
    "exec": _command,
}
_READERS: Mapping[str, Callable[..., Any]] = {
    "accelerators": _patterns,
    "theme": _theme,
    "finished_days": _days,
    "prometheus": _service,
    "strip_by": partial(read_text, why="a label of nodes is expected, as topology.kubernetes.io/zone"),
    "loss": read_switch,
    "alerts": _alerts,
    "notify": _notify,
    "aliases": _aliases,
    "columns": _columns,
    "contexts": _contexts,
}


def line_of(node: yaml.Node) -> int:
    """Return the line of a node, from 1."""
    line: int = node.start_mark.line
    return line + 1
