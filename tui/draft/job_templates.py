"""Job templates, packaged and the user's own: YAML with the field names of `JobSpec`.

A file may also have `kind`, `description`, and `arguments` of a packaged `trainer`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from k8s.kinds import KINDS
from k8s.kinds.job_spec import JOB_FIELDS
from k8s.kinds.job_spec.field_types import Pairs, Switch
from k8s.text.home import read_named_file
from trainer.catalogue import TRAINERS, find
from tui.draft.fields import REPLACED
from tui.draft.job_draft import texts_of
from tui.draft.manifest_yaml import Loader

LARGEST_BYTES = 200_000
_PACKAGED = Path(__file__).with_name("templates")
_OF_TRAINER = "trainer-"


class TemplateError(Exception):
    """A template cannot be read; the message says which and why."""


@dataclass(frozen=True, slots=True)
class JobTemplate:
    """Some fields of a job, as a starting point."""

    name: str
    description: str = ""
    is_own: bool = False
    kind: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Values by field of `JobSpec`; missing fields are not changed. A trainer comes with its command."""

    @property
    def title(self) -> str:
        """The name, and the description if there is one."""
        return f"{self.name}: {self.description}" if self.description else self.name

    def form_values(self) -> dict[str, str]:
        """Return the form values that it sets, by key."""
        return texts_of(self.fields) | ({"kind": self.kind} if self.kind else {})


def packaged_templates() -> list[JobTemplate]:
    """Return the templates of the package, sorted by name."""
    trainers = {f"{_OF_TRAINER}{trainer.name}" for trainer in TRAINERS}
    return [
        _read(path, is_own=False)
        for path in sorted(_PACKAGED.glob("*.yaml"))
        if not path.stem.startswith(_OF_TRAINER) or path.stem in trainers
    ]


def every_template(folder: Path) -> tuple[list[JobTemplate], list[str]]:
    """Return the user's and the packaged templates, and an error for each invalid file.

    Args:
        folder: Folder of the user's templates, which come first and hide others of their name; it may not
            exist.
    """
    found, problems = [], []
    try:
        paths = sorted(folder.glob("*.yaml"))
    except OSError as error:
        paths, problems = [], [f"Could not read {folder}: {error.strerror}."]
    for path in paths:
        try:
            found.append(_read(path, is_own=True))
        except TemplateError as error:
            problems.append(str(error))
    names = {template.name for template in found}
    return [*found, *(each for each in packaged_templates() if each.name not in names)], problems


def template_named(name: str, folder: Path) -> JobTemplate:
    """Return a template by name.

    Raises:
        TemplateError: It is invalid or does not exist; the message names those that do.
    """
    found, problems = every_template(folder)
    template = next((each for each in found if each.name == name), None)
    if template is None:
        known = ", ".join(each.name for each in found)
        start = f"There is no template {name!r}" if name else "Name a template"
        own = (problem for problem in problems if name and str(folder / f"{name}.yaml") in problem)
        raise TemplateError(next(own, f"{start}: {known}."))
    return template


def _read(path: Path, *, is_own: bool) -> JobTemplate:
    try:
        found = yaml.load(read_named_file(path, LARGEST_BYTES).decode(), Loader)
        if not isinstance(found, dict):
            raise ValueError("must be a mapping of fields, e.g. workers: 2")
        return _template(path.stem, found, is_own=is_own)
    except OSError as error:
        raise TemplateError(f"Could not read template {path}: {error.strerror}.") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f" line {mark.line + 1}:" if mark else ""
        raise TemplateError(f"Template {path}:{line} {error.problem or 'not valid YAML'}.") from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, LookupError, ValueError) as error:
        raise TemplateError(f"Template {path}: {str(error).rstrip('.')}.") from error


def _template(name: str, found: Mapping[Any, Any], *, is_own: bool) -> JobTemplate:
    trainer, given = found.get("trainer", ""), found.get("arguments") or {}
    known = {*JOB_FIELDS, "kind", "description", "arguments"} - {"user"}
    if unknown := [str(key) for key in found if key not in known]:
        instead = ", ".join(dict.fromkeys(REPLACED[key] for key in unknown if key in REPLACED))
        raise ValueError(f"there is no field {', '.join(unknown)}" + (f"; use {instead}" if instead else ""))
    kind = str(found.get("kind", ""))
    if kind and kind not in (each.title for each in KINDS):
        raise ValueError(f"there is no kind {kind}")
    fields = {key: _value(key, value) for key, value in found.items() if key in JOB_FIELDS}
    if "command" in found and not found.get("torchrun") and isinstance(found["command"], str):
        fields["command"] = ("sh", "-c", found["command"].strip())
    if not isinstance(given, dict) or (given and not trainer):
        raise ValueError("arguments must be those of a trainer, by name")
    if trainer:
        arguments = {str(key): _text(value) for key, value in given.items()}
        fields["command"] = tuple(find(trainer).command(arguments, launcher="torchrun"))
    return JobTemplate(name, str(found.get("description", "")), is_own, kind, fields)


def _value(key: str, value: Any) -> Any:
    """Parse the value of a field: text as in the form, a list of its lines, or a mapping.

    Raises:
        ValueError: The field does not accept the value.
    """
    of_type = JOB_FIELDS[key].type
    if isinstance(value, dict) and isinstance(of_type, Pairs):
        parsed: Any = {str(name): _text(each) for name, each in value.items()}
    elif isinstance(value, list) and key == "command":
        parsed = tuple(_text(each) for each in value)
    elif isinstance(value, list) and of_type.is_repeated:
        parsed = of_type.parse("\n".join(map(_text, value)))
    elif isinstance(value, dict | list) or isinstance(value, bool) != isinstance(of_type, Switch):
        raise ValueError(f"{key} cannot be {value!r}")
    else:
        try:
            parsed = of_type.parse(_text(value))
        except ValueError as error:
            raise ValueError(f"{key}: {error}") from None
    if sentence := of_type.problem(parsed):
        raise ValueError(f"{key}: {sentence}")
    return parsed


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)
