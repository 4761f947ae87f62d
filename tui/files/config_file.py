"""The user's config.yaml: read whole at the start, and refused with its line where it makes no sense."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import yaml

from k8s.errors import KubeError
from k8s.telemetry.sources.prometheus_address import parse_address
from tui.options import FINISHED_DAYS

MOST_DAYS = 36500
"""A hundred years: finished jobs are shown for ever."""
_TEXT = "tag:yaml.org,2002:str"
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_NO_ACCELERATORS = ("cpu", "memory", "pods", "ephemeral-storage")


@dataclass(frozen=True, slots=True)
class Config:
    """What the user set for good."""

    accelerators: tuple[str, ...] = ()
    """Resources that are GPUs or their like beside those that are known, `*` for any characters."""
    unknown: tuple[str, ...] = ()
    """Keys that mean nothing here, each with its line: `acelerators (line 3)`."""
    theme: str = ""
    """The palette to use until another one is chosen; empty for none."""
    finished_days: float = FINISHED_DAYS
    """How long the list shows jobs that have finished."""
    prometheus: str = ""
    """The service of the cluster's Prometheus, as `monitoring/prometheus-k8s:web`; empty to look for it."""
    strip_by: str = ""
    """The label of nodes by which home sums up those that it has no room for; empty for the GPUs' model."""
    loss: bool = True
    """Whether home reads the loss of running jobs."""


def read_config(path: Path) -> Config:
    """Read config.yaml; where there is none, nothing is set.

    Raises:
        KubeError: It cannot be read, or a value makes no sense; file, line and key are named.
    """
    return _config(path, _root(path, _text(path)))


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise KubeError(f"{path} cannot be read.", str(error)) from error


def _root(path: Path, text: str) -> yaml.MappingNode | None:
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise _refusal(path, line, "", error.problem or "this is no YAML") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise _refusal(path, 1, "", "this is no YAML") from error
    if root is None or isinstance(root, yaml.MappingNode):
        return root
    raise _refusal(
        path, _line(root), "", "keys and values are expected, as `accelerators: [example.com/npu]`"
    )


def _config(path: Path, root: yaml.MappingNode | None) -> Config:
    accelerators: tuple[str, ...] = ()
    theme, finished_days, prometheus = "", FINISHED_DAYS, ""
    strip_by, loss = "", True
    unknown = []
    for key, value in root.value if root else ():
        if key.value == "accelerators":
            accelerators = tuple(_patterns(path, value))
        elif key.value == "theme":
            theme = _text_value(path, value, "theme", "the name of a theme is expected, as dark")
        elif key.value == "finished_days":
            finished_days = _days(path, value)
        elif key.value == "prometheus":
            prometheus = _service(path, value)
        elif key.value == "strip_by":
            why = "a label of nodes is expected, as topology.kubernetes.io/zone"
            strip_by = _text_value(path, value, "strip_by", why)
        elif key.value == "loss":
            loss = _switch(path, value, "loss")
        else:
            name = key.value if isinstance(key, yaml.ScalarNode) else "a key of several parts"
            unknown.append(f"{name} (line {_line(key)})")
    return Config(accelerators, tuple(unknown), theme, finished_days, prometheus, strip_by, loss)


def _switch(path: Path, value: yaml.Node, key: str) -> bool:
    found = yaml.safe_load(value.value) if isinstance(value, yaml.ScalarNode) else None
    if value.tag != "tag:yaml.org,2002:bool" or not isinstance(found, bool):
        raise _refusal(path, _line(value), key, "true or false is expected")
    return found


def _text_value(path: Path, value: yaml.Node, key: str, why: str) -> str:
    if not isinstance(value, yaml.ScalarNode) or value.tag != _TEXT or not value.value:
        raise _refusal(path, _line(value), key, why)
    text: str = value.value
    return text


def _service(path: Path, value: yaml.Node) -> str:
    try:
        return parse_address(str(value.value)).name
    except ValueError as error:
        why = "a service is expected, as monitoring/prometheus-k8s:web"
        raise _refusal(path, _line(value), "prometheus", why) from error


def _days(path: Path, value: yaml.Node) -> float:
    try:
        days = float(yaml.safe_load(value.value)) if value.tag in _NUMBERS else 0.0
    except (TypeError, ValueError, OverflowError):
        days = 0.0
    if not 0 < days <= MOST_DAYS:
        why = f"a number of days is expected, more than 0 and at most {MOST_DAYS}"
        raise _refusal(path, _line(value), "finished_days", why)
    return days


def _patterns(path: Path, value: yaml.Node) -> Iterator[str]:
    if not isinstance(value, yaml.SequenceNode):
        raise _refusal(path, _line(value), "accelerators", "a list of resource names is expected")
    for each in value.value:
        if not isinstance(each, yaml.ScalarNode) or each.tag != _TEXT or not each.value:
            raise _refusal(
                path, _line(each), "accelerators", "a resource name is expected, as example.com/npu"
            )
        if any(fnmatchcase(name, each.value) for name in _NO_ACCELERATORS):
            raise _refusal(
                path, _line(each), "accelerators", f"{each.value} matches resources that are no GPUs"
            )
        yield each.value


def _line(node: yaml.Node) -> int:
    line: int = node.start_mark.line
    return line + 1


def _refusal(path: Path, line: int, key: str, why: str) -> KubeError:
    where = f"{path}, line {line}{f', {key}' if key else ''}"
    return KubeError(f"{where}: {why}.", hint="Correct the file, or move it away.")
