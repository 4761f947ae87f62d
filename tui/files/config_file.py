"""Reading of config.yaml; invalid entries are reported with their line."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, get_args

import yaml

from k8s.text.home import file_problem, read_named_file
from tui.options import FINISHED_DAYS, NoticeEvent, NoticeScope, NotifyOptions, SignalScope

# A hundred years: finished jobs never expire.
MAX_DAYS = 36500
_TEXT = "tag:yaml.org,2002:str"
_SWITCH = "tag:yaml.org,2002:bool"
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_NO_ACCELERATORS = ("cpu", "memory", "pods", "ephemeral-storage")


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
    notify: NotifyOptions = field(default_factory=NotifyOptions)
    problems: tuple[str, ...] = ()
    """Invalid values with file, line and key; their defaults apply."""


def read_config(path: Path) -> Config:
    """Read config.yaml; a missing file means defaults, and invalid entries are reported."""
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
                values[key.value] = read(value)
            except BadValue as error:
                line = error.line or line_of(value)
                problems.append(f"{path}, line {line}, {key.value}: {error}.")
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


def _events(value: yaml.Node) -> tuple[NoticeEvent, ...]:
    choices = tuple(map(str, NoticeEvent))
    if not isinstance(value, yaml.SequenceNode):
        raise BadValue(f"a list is expected, of {', '.join(choices)}")
    return tuple(NoticeEvent(_choice(each, choices)) for each in value.value)


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


_NOTIFY_READERS: Mapping[str, Callable[[yaml.Node], Any]] = {
    "events": _events,
    "toast": partial(_choice, choices=get_args(NoticeScope)),
    "counter": partial(_choice, choices=get_args(NoticeScope)),
    "terminal": partial(_choice, choices=get_args(SignalScope)),
    "bell": partial(_choice, choices=get_args(SignalScope)),
    "exec": _command,
}
_READERS: Mapping[str, Callable[[yaml.Node], Any]] = {
    "accelerators": _patterns,
    "theme": partial(read_text, why="the name of a theme is expected, as dark"),
    "finished_days": _days,
    "prometheus": _service,
    "strip_by": partial(read_text, why="a label of nodes is expected, as topology.kubernetes.io/zone"),
    "loss": read_switch,
    "notify": _notify,
}


def line_of(node: yaml.Node) -> int:
    """Return the line of a node, from 1."""
    line: int = node.start_mark.line
    return line + 1
