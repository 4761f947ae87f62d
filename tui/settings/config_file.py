"""Reading of config.yaml; invalid entries are reported with their line."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast, get_args

import msgspec
import yaml

from k8s.text.home import file_problem, read_named_file
from tui.settings.options import (
    DEFAULT_ALERTS,
    FINISHED_DAYS,
    AlertRule,
    Alias,
    ContextSettings,
    HistoryOptions,
    NoticeEvent,
    NoticeScope,
    NotifyOptions,
    OwnColumn,
    SignalScope,
)
from tui.text.jsonpath import parse_path

# A hundred years: finished jobs never expire. And a tebibyte.
MAX_DAYS, MAX_MIB = 36500, 1 << 20
MAX_TITLE = 30
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_TEXT = "tag:yaml.org,2002:str"
_SWITCH = "tag:yaml.org,2002:bool"
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
# A mistake must not make a context writable.
_LOCKED = (ContextSettings(pattern="*", read_only=True),)
_NOTHING_IS_CHANGED = "Until it is corrected, changes are disabled, for it may name read-only contexts."
_NO_ACCELERATORS = ("cpu", "memory", "pods", "ephemeral-storage")

Word = TypeVar("Word", bound=StrEnum)
Options = TypeVar("Options", NotifyOptions, HistoryOptions)
ColumnsOf = Callable[[], Mapping[str, Collection[str]]]


class Config(msgspec.Struct, frozen=True):
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
    log_store: str = ""
    """Loki or VictoriaLogs, as `monitoring/loki-gateway:http` or a URL; empty to find one automatically."""
    strip_by: str = ""
    """Node label that groups nodes in the node bar; empty for the GPU model."""
    loss: bool = True
    alerts: tuple[AlertRule, ...] = DEFAULT_ALERTS
    notify: NotifyOptions = msgspec.field(default_factory=NotifyOptions)
    history: HistoryOptions = msgspec.field(default_factory=HistoryOptions)
    aliases: Mapping[str, Alias] = msgspec.field(default_factory=dict)
    columns: Mapping[str, tuple[str | OwnColumn, ...]] = msgspec.field(default_factory=dict)
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
        with suppress(OSError):
            if b"readonly" in read_named_file(path):
                return Config(contexts=_LOCKED, problems=(f"{error} {_NOTHING_IS_CHANGED}",))
        return Config(problems=(str(error),))
    for key, value in root.value if root else ():
        if read := _READERS.get(key.value) if isinstance(key, yaml.ScalarNode) else None:
            found = _Problems()
            if key.value in values:
                found.add("it is given twice; the first is used", key)
            else:
                each = found.read(partial(read, known=columns_of()) if read is _columns else read, value)
                values |= {key.value: each} if each is not None else {}
            problems += [f"{path}, line {line}, {key.value}: {words}." for words, line in found.found]
        else:
            name = key.value if isinstance(key, yaml.ScalarNode) else "a key of several parts"
            unknown.append(f"{name} (line {line_of(key)})")
    return Config(**values, unknown=tuple(unknown), problems=tuple(problems))


class BadValue(Exception):
    """A value cannot be used; the message says why."""

    def __init__(
        self, words: str, line: int = 0, *, valid: Any = None, others: Sequence[tuple[str, int]] = ()
    ) -> None:
        super().__init__(words)
        self.line = line
        """0 for the line of the value."""
        self.valid = valid
        """The other parts of the value; None to use the default."""
        self.others = others
        """More problems of the value, with their lines."""


class _Problems:
    """Problems of a value whose other parts are used."""

    def __init__(self) -> None:
        self.found: list[tuple[str, int]] = []

    def add(self, words: str, node: yaml.Node) -> None:
        self.found.append((words, line_of(node)))

    def read(self, read: Callable[[yaml.Node], Any], node: yaml.Node, place: str = "") -> Any:
        """Return the value of a node, or its valid parts if some are not; None for nothing."""
        try:
            return read(node)
        except BadValue as error:
            for words, line in ((str(error), error.line), *error.others):
                self.found.append((place + words, line or line_of(node)))
            return error.valid

    def rest(self, valid: Any) -> Any:
        """Return the valid parts, or raise `BadValue` with them."""
        if not self.found:
            return valid
        raise BadValue(*self.found[0], valid=valid or None, others=self.found[1:])


def _each(read: Callable[[yaml.Node], Any], nodes: Sequence[yaml.Node]) -> tuple[Any, ...]:
    problems = _Problems()
    found = [problems.read(read, node) for node in nodes]
    return tuple(problems.rest(tuple(each for each in found if each is not None)))


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
    words: dict[str, bool] = yaml.SafeLoader.bool_values
    if value.tag != _SWITCH or not isinstance(value, yaml.ScalarNode) or value.value.lower() not in words:
        raise BadValue("true or false is expected")
    return words[value.value.lower()]


def read_text(value: yaml.Node, why: str) -> str:
    """Return a text that is not empty, or raise `BadValue` with the reason."""
    if not isinstance(value, yaml.ScalarNode) or value.tag != _TEXT or not value.value:
        raise BadValue(why)
    text: str = value.value
    return text


def _service(value: yaml.Node, example: str, *, is_store: bool = False) -> str:
    # Slow to import, and rarely configured.
    from k8s.client.proxied import parse_address, split_place

    try:
        if is_store:
            return "@".join(filter(None, split_place(str(value.value))))
        return parse_address(str(value.value)).name
    except ValueError as error:
        url = "or a URL without user, password and query " * is_store
        raise BadValue(f"a service {url}is expected, as {example}") from error


def _days(value: yaml.Node) -> float:
    if not 0 < (days := _number(value)) <= MAX_DAYS:
        raise BadValue(f"a number of days is expected, more than 0 and at most {MAX_DAYS}")
    return days


def _history_days(value: yaml.Node) -> float:
    if not 0 <= (days := _number(value)) <= MAX_DAYS:
        raise BadValue(f"a number of days is expected, at most {MAX_DAYS}, or 0 to keep nothing")
    return days


def _history_size(value: yaml.Node) -> float:
    size_mib = _number(value)
    if size_mib != 0 and not 1 <= size_mib <= MAX_MIB:
        raise BadValue(f"a number of MiB is expected, from 1 to {MAX_MIB}, or 0 to keep nothing")
    return size_mib


def _number(value: yaml.Node) -> float:
    """Return a number; -1 for anything else."""
    with suppress(LookupError, ValueError, OverflowError, yaml.YAMLError):
        return float(yaml.SafeLoader("").construct_object(value)) if value.tag in _NUMBERS else -1.0
    return -1.0


def _patterns(value: yaml.Node) -> tuple[str, ...]:
    if not isinstance(value, yaml.SequenceNode):
        raise BadValue("a list of resource names is expected")
    return _each(_pattern, value.value)


def _pattern(value: yaml.Node) -> str:
    pattern = read_text(value, "a resource name is expected, as example.com/npu")
    if any(fnmatchcase(name, pattern) for name in _NO_ACCELERATORS):
        raise BadValue(f"{pattern} matches resources that are not GPUs")
    return pattern


def _options(
    value: yaml.Node, off: Options, readers: Mapping[str, Callable[[yaml.Node], Any]], example: str
) -> Options:
    """Return the options in a mapping, or `off` for `off`."""
    if value.tag == _SWITCH and not read_switch(value):
        return off
    if not isinstance(value, yaml.MappingNode):
        raise BadValue(f"settings are expected, as `{example}`, or off")
    found: dict[str, Any] = {}
    problems = _Problems()
    for key, each in value.value:
        if read := readers.get(key.value) if isinstance(key, yaml.ScalarNode) else None:
            found[key.value] = problems.read(read, each, f"{key.value}: ")
        else:
            problems.add(f"the settings are {', '.join(readers)}", key)
    options = type(off)(**{key: each for key, each in found.items() if each is not None})
    return cast(Options, problems.rest(options))


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
    return _each(lambda each: of(_choice(each, choices)), value.value)


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


def _entries(value: yaml.Node, why: str, problems: _Problems) -> Iterator[tuple[str, yaml.Node, yaml.Node]]:
    """Yield the keys of a mapping as texts, their values, and the keys; add the others to `problems`."""
    seen = set[str]()
    for key, each in value.value if isinstance(value, yaml.MappingNode) else [(value, value)]:
        if key is value or not isinstance(key, yaml.ScalarNode) or not key.value:
            problems.add(why, key)
        elif key.value in seen:
            problems.add(f"{key.value} is given twice", key)
        else:
            seen.add(key.value)
            yield key.value, each, key


def _aliases(value: yaml.Node) -> Mapping[str, Alias]:
    why = "commands are expected, as `failed: jobs /status:failed`"
    found: dict[str, Alias] = {}
    problems = _Problems()
    for name, each, key in _entries(value, why, problems):
        text = problems.read(partial(read_text, why=why), each)
        command = text.strip().removeprefix(":").strip() if text and name.split() == [name] else ""
        if command and command.isprintable():
            found[name.lower()] = Alias(command, line_of(key))
        elif text is not None:
            problems.add(why, key)
    return cast("Mapping[str, Alias]", problems.rest(found))


def _columns(
    value: yaml.Node, known: Mapping[str, Collection[str]]
) -> Mapping[str, tuple[str | OwnColumn, ...]]:
    why = "lists and their columns are expected, as `jobs: [name, status]`"
    found: dict[str, tuple[str | OwnColumn, ...]] = {}
    problems = _Problems()
    for name, each, key in _entries(value, why, problems):
        if known and name not in known:
            problems.add(f"there is no list {name}; there are {', '.join(known)}", key)
        elif not isinstance(each, yaml.SequenceNode) or not each.value:
            problems.add(why, key)
        elif columns := problems.read(partial(_column_list, known=known.get(name, ())), each):
            titles = [column if isinstance(column, str) else column.title for column in columns]
            if twice := next((title for title in titles if titles.count(title) > 1), ""):
                problems.add(f"{name}: {twice} is given twice", key)
            found[name] = tuple(dict(zip(reversed(titles), reversed(columns), strict=True)).values())[::-1]
    return cast("Mapping[str, tuple[str | OwnColumn, ...]]", problems.rest(found))


def _column_list(nodes: yaml.Node, known: Collection[str]) -> tuple[str | OwnColumn, ...]:
    return _each(partial(_column, known=known), nodes.value)


def _column(node: yaml.Node, known: Collection[str]) -> str | OwnColumn:
    if isinstance(node, yaml.MappingNode):
        why = "a title and a path are expected, as {title: TEAM, path: .metadata.labels.team}"
        problems = _Problems()
        fields = {key: read_text(each, why) for key, each, _ in _entries(node, why, problems)}
        problems.rest(None)
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
    if not isinstance(value, yaml.MappingNode):
        raise BadValue(f"{why}. {_NOTHING_IS_CHANGED.removesuffix('.')}", valid=_LOCKED)
    problems = _Problems()
    found = []
    for pattern, each, _ in _entries(value, why, problems):
        fields: dict[str, Any] = {}
        known, place = len(problems.found), f"{pattern}: "
        for key, node, at in _entries(each, f"{place}settings are expected, as `readonly: true`", problems):
            if key in _CONTEXT_READERS:
                given = problems.read(_CONTEXT_READERS[key], node, f"{place}{key}: ")
                fields |= {"read_only" if key == "readonly" else key: given} if given is not None else {}
            else:
                problems.add(f"{place}{key}: the settings are {', '.join(_CONTEXT_READERS)}", at)
        if len(problems.found) > known and "read_only" not in fields:
            fields["read_only"] = True
        found.append(ContextSettings(pattern=pattern, **fields))
    return tuple(problems.rest(tuple(found)))


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
    "prometheus": partial(_service, example="monitoring/prometheus-k8s:web"),
    "log_store": partial(_service, example="TENANT@monitoring/loki-gateway:http", is_store=True),
    "strip_by": partial(read_text, why="a label of nodes is expected, as topology.kubernetes.io/zone"),
    "loss": read_switch,
    "alerts": _alerts,
    "notify": partial(_options, off=NotifyOptions(events=()), readers=_NOTIFY_READERS, example="bell: off"),
    "history": partial(
        _options,
        off=HistoryOptions(days=0),
        readers={"size_mib": _history_size, "days": _history_days},
        example="days: 90",
    ),
    "aliases": _aliases,
    "columns": _columns,
    "contexts": _contexts,
}


def line_of(node: yaml.Node) -> int:
    """Return the line of a node, from 1."""
    line: int = node.start_mark.line
    return line + 1
