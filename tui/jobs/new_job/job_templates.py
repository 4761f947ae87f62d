"""Templates of jobs: those of this package, and the user's own, as YAML with the names of `JobSpec`'s fields.

Beside those names a file may hold `kind`, `description`, and `arguments` of a packaged `trainer`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from k8s.job_spec import JOB_FIELDS, JobSpec
from k8s.job_spec.field_types import Pairs, Switch
from k8s.kinds import CREATABLE, KINDS
from k8s.kinds.pod_code import without_login
from k8s.text.yaml_writer import to_yaml
from trainer.catalogue import TRAINERS
from tui.files.private_file import write_private_file
from tui.jobs.new_job.fields import COMMAND, IMAGES_FOLDER, default_values
from tui.jobs.new_job.form_spec import FormResult, values_from_spec
from tui.jobs.new_job.manifest_yaml import Loader

LARGEST_BYTES = 200_000
"""Far more than any template; a larger file is none."""
_PACKAGED = Path(__file__).with_name("templates")
_OF_TRAINER = "trainer-"
"""How the templates of packaged trainers begin; the trainer's name follows."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_NOT_SAVED = ("name", "namespace", "user", "command", "trainer")
_FORM_KEYS = {
    "command": ("run", COMMAND),
    "trainer": ("run",),
    "mounts": ("claim", "mount_path", "more_volumes"),
}
"""Keys of the form for a field of `JobSpec`, where they are others."""


class TemplateError(Exception):
    """A template cannot be read or saved; the message says which and why."""


@dataclass(frozen=True, slots=True)
class JobTemplate:
    """Some fields of a job, to start from."""

    name: str
    description: str = ""
    is_own: bool = False
    """In the user's own folder."""
    kind: str = ""
    """Title of the kind; empty leaves it open."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Values by the field of `JobSpec`; those it does not name are left open."""
    arguments: Mapping[str, str] = field(default_factory=dict)
    """Of its packaged trainer, by name."""

    @property
    def title(self) -> str:
        """Return its name, and what it is."""
        return f"{self.name}: {self.description}" if self.description else self.name

    def form_values(self) -> dict[str, str]:
        """Return the form's values that it says something about, by their key."""
        spec = JobSpec(**{key: value for key, value in self.fields.items() if key != "trainer"})
        every = values_from_spec(spec, CREATABLE[0])
        keys = [key for name in self.fields for key in _FORM_KEYS.get(name, (name,))]
        found = {key: every[key] for key in keys if key in every}
        if self.kind:
            found["kind"] = self.kind
        if trainer := self.fields.get("trainer"):
            found["run"] = trainer
            found |= {f"{trainer}.{name}": text for name, text in self.arguments.items()}
        return found


def packaged_templates() -> list[JobTemplate]:
    """Return the templates that come with the console, by name."""
    trainers = {f"{_OF_TRAINER}{trainer.name}" for trainer in TRAINERS}
    return [
        _read(path, is_own=False)
        for path in sorted(_PACKAGED.glob("*.yaml"))
        if not path.stem.startswith(_OF_TRAINER) or path.stem in trainers
    ]


def own_templates(folder: Path) -> tuple[list[JobTemplate], list[str]]:
    """Return the user's templates by name, and a sentence for each file that is none.

    Args:
        folder: Where they lie; need not be there.
    """
    found, problems = [], []
    try:
        paths = sorted(folder.glob("*.yaml"))
    except OSError as error:
        return [], [f"Could not read {folder}: {error.strerror}."]
    for path in paths:
        try:
            found.append(_read(path, is_own=True))
        except TemplateError as error:
            problems.append(str(error))
    return found, problems


def save_template(folder: Path, name: str, result: FormResult, values: Mapping[str, str]) -> Path:
    """Save a form as a template, readable by its owner only, and return its file.

    The name and the namespace of the job are left out; so is what is at its default.

    Args:
        folder: Where to.
        name: Of the template, and of its file.
        result: The parsed form.
        values: What stands in the form.

    Raises:
        TemplateError: The name is none for a file, or the folder cannot be written to.
    """
    if not _NAME.fullmatch(name):
        raise TemplateError("Use letters, digits, '-', '_' and '.' only; start with a letter or digit.")
    path = folder / f"{name}.yaml"
    try:
        write_private_file(path, to_yaml(dict(_written(result, values))))
    except OSError as error:
        raise TemplateError(f"Could not save {path}: {error.strerror}.") from error
    return path


def _written(result: FormResult, values: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    spec = result.spec
    yield "kind", result.kind.title
    for name, declared in JOB_FIELDS.items():
        value = getattr(spec, name)
        follows = bool(spec.trainer) and name in ("log_dir", "working_dir")
        is_images = name == "working_dir" and values[name].strip() == IMAGES_FOLDER
        if name in _NOT_SAVED or ((value == declared.default or follows) and not is_images):
            continue
        yield name, _as_yaml(name, value)
    if spec.trainer:
        yield "trainer", spec.trainer
        prefix, defaults = f"{spec.trainer}.", default_values()
        changed = {
            key.removeprefix(prefix): text
            for key, text in values.items()
            if key.startswith(prefix) and text != defaults.get(key)
        }
        if changed:
            yield "arguments", changed
    elif values[COMMAND].strip():
        yield "command", values[COMMAND].strip()


def _as_yaml(name: str, value: Any) -> Any:
    declared = JOB_FIELDS[name]
    if isinstance(declared.type, Pairs):
        return {key: text for key, text in value.items() if key != "GIT_SYNC_PASSWORD"}
    if name == "sync_source":
        return without_login(value)
    if isinstance(value, bool | int):
        return declared.type.to_text(value) if name.endswith("_s") else value
    text = declared.type.to_text(value)
    return text.split("\n") if declared.type.is_repeated else text


def _read(path: Path, *, is_own: bool) -> JobTemplate:
    """Read one file.

    Raises:
        TemplateError: It is no template.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(LARGEST_BYTES + 1)
        if len(raw) > LARGEST_BYTES:
            raise ValueError("is too large")
        found = yaml.load(raw.decode(), Loader)
        if not isinstance(found, dict):
            raise ValueError("must be a mapping of fields, e.g. workers: 2")
        return _template(path.stem, found, is_own=is_own)
    except OSError as error:
        raise TemplateError(f"Could not read template {path}: {error.strerror}.") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f" line {mark.line + 1}:" if mark else ""
        raise TemplateError(f"Template {path}:{line} {error.problem or 'not valid YAML'}.") from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise TemplateError(f"Template {path}: {str(error).rstrip('.')}.") from error


def _template(name: str, found: Mapping[Any, Any], *, is_own: bool) -> JobTemplate:
    trainer = found.get("trainer", "")
    known = {*JOB_FIELDS, "kind", "description", "arguments"} - {"user"}
    if unknown := [str(key) for key in found if key not in known]:
        raise ValueError(f"there is no field {', '.join(unknown)}")
    kind = str(found.get("kind", ""))
    if kind and kind not in (each.title for each in KINDS):
        raise ValueError(f"there is no kind {kind}")
    fields = {key: _value(key, value) for key, value in found.items() if key in JOB_FIELDS}
    if trainer and trainer not in (each.name for each in TRAINERS):
        raise ValueError(f"there is no trainer {trainer}")
    if "command" in found and not found.get("torchrun") and isinstance(found["command"], str):
        fields["command"] = ("sh", "-c", found["command"].strip())
    given = found.get("arguments") or {}
    if not isinstance(given, dict) or (given and not trainer):
        raise ValueError("arguments must be those of a trainer, by name")
    return JobTemplate(
        name,
        str(found.get("description", "")),
        is_own,
        kind,
        fields,
        {str(key): _text(value) for key, value in given.items()},
    )


def _value(key: str, value: Any) -> Any:
    """Read the value of a field: a text as in the form, a list of its lines, or a mapping.

    Raises:
        ValueError: It is no value of that field.
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
