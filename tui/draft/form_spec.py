"""Conversion of the new-job form's values to a `JobSpec`, and back.

Values are plain texts, by the key of their field. Any values give a spec, and an error for each invalid
field.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from k8s.jobs.clone import Clone
from k8s.kinds import CREATABLE, CreatableKind
from k8s.kinds.job_spec import JOB_FIELDS, JobSpec, Mount, problems_of
from k8s.kinds.job_spec.field_types import LONGEST_TEXT
from k8s.kinds.pods.command import shell_argv
from trainer.catalogue import TRAINERS, Trainer
from tui.draft.fields import (
    COMMAND,
    EDITED_YAML,
    IMAGES_FOLDER,
    MADE_OTHERWISE,
    default_text,
    default_values,
)
from tui.draft.hidden_fields import hidden_fields, unused_values
from tui.draft.job_draft import DIRECTORIES, JobDraft

Values = Mapping[str, str]

_TRAINER_NAMES = {trainer.name for trainer in TRAINERS}
# Shown in place of control characters.
_PICTURE = re.compile(r"[\u2400-\u241f\u2421]")
_PARSED = tuple(name for name in JOB_FIELDS if name not in MADE_OTHERWISE)


@dataclass(frozen=True, slots=True, kw_only=True)
class FormResult:
    """Job of the form's values."""

    kind: CreatableKind
    spec: JobSpec
    """Has the default where a value is invalid."""
    problems: Mapping[str, str] = field(default_factory=dict)
    mnist: str = ""
    """Folder in the pods from which MNIST is read; empty if it is not read, or downloaded."""
    hidden: frozenset[str] = frozenset()
    """Keys of the fields without an effect."""
    unused: tuple[str, ...] = ()
    """Sentences about values that the kind does not support; they are kept."""


def base_name(values: Values) -> str:
    """Return the base of a job's name, without its number: `ddp-digits`."""
    run = values.get("run", "")
    if run not in _TRAINER_NAMES:
        return "train"
    dataset = values.get(f"{run}.dataset", "")
    return f"{run}-{dataset}" if dataset else run


def parse_values(
    texts: Values,
    user: str = "",
    *,
    stamp: str = "",
    like: Clone | None = None,
) -> FormResult:
    """Parse the form's values. Never raises.

    Args:
        texts: The values as typed.
        user: Who submits.
        stamp: Distinguishes the job's folder from those of earlier jobs of its name.
        like: The clone that the form started with; unchanged values keep its command and folders.
    """
    problems: dict[str, str] = {}
    values = default_values()
    hidden = hidden_fields({**values, **texts})
    for key, text in texts.items():
        if key in hidden or key == EDITED_YAML:
            continue
        if len(text) > LONGEST_TEXT and key not in ("name", "image"):
            problems[key] = f"At most {LONGEST_TEXT:,} characters; this has {len(text):,}."
        else:
            values[key] = text if key == COMMAND else text.strip()
        if picture := _PICTURE.search(text):
            problems[key] = f"Must not contain control characters; found {picture[0]}."
    parsed = {key: _parsed(key, values, problems) for key in _PARSED}
    if values["processes"]:
        parsed["processes"] = _parsed("processes", values, problems)
    kind = next((each for each in CREATABLE if each.title == values["kind"]), None)
    if kind is None:
        problems["kind"] = f"Must be one of {', '.join(each.title for each in CREATABLE)}."
    parsed |= {"mounts": _mounts(values, problems), "working_dir": _working_dir(values), "user": user}
    chosen = kind or CREATABLE[0]
    spec = _draft(values, parsed, problems).spec(chosen, stamp)
    if like is not None and like.spec is not None:
        unchanged = _cloned(like.spec, like.kind or CREATABLE[0], stamp)
        # Text cannot tell `python x.py` from `sh -c "python x.py"`, nor name a trainer's own folders.
        if spec.command == unchanged.command:
            log_dir = like.spec.log_dir if spec.log_dir == unchanged.log_dir else spec.log_dir
            spec = replace(spec, command=like.spec.command, trainer=like.spec.trainer, log_dir=log_dir)
    if not values["namespace"]:
        problems["namespace"] = "Required."
    for key, sentence in problems_of(spec).items():
        key = _key_of_problem(key, values, spec)
        if key == COMMAND and values["run"] in _TRAINER_NAMES:
            continue
        problems.setdefault(key, sentence)
    for key, sentence in chosen.unsupported(spec).items():
        if key not in chosen.lacks:  # those that it lacks are hidden, and told of
            problems.setdefault(key, sentence)
    return FormResult(
        kind=chosen,
        spec=spec,
        problems=problems,
        mnist=_mnist(values, spec),
        hidden=hidden,
        unused=unused_values({**values, **texts}),
    )


def field_key(name: str, values: Values) -> str:
    """Return the key of the form field for a field of `JobSpec`."""
    if name == COMMAND and values.get("run", "") != COMMAND:
        return "run"
    return "claim" if name == "mounts" else name


def _key_of_problem(name: str, values: Values, spec: JobSpec) -> str:
    if name == "working_dir":
        return "working_dir" if values["working_dir"] else "mount_path"
    if name == "mounts":
        first = problems_of(JobSpec(mounts=spec.mounts[:1])) if values["claim"] else {}
        return "mount_path" if "mounts" in first else "more_volumes"
    return name


def _parsed(key: str, values: Values, problems: dict[str, str]) -> Any:
    declared = JOB_FIELDS[key]
    try:
        return declared.type.parse(values[key])
    except ValueError as error:
        problems[key] = str(error)
        return declared.default


def _mounts(values: Values, problems: dict[str, str]) -> tuple[Mount, ...]:
    first = [Mount(values["claim"], values["mount_path"])] if values["claim"] else []
    if values["claim"] and (sentence := JOB_FIELDS["namespace"].type.problem(values["claim"])):
        problems["claim"] = sentence
    try:
        more = JOB_FIELDS["mounts"].type.parse(values["more_volumes"])
    except ValueError as error:
        problems["more_volumes"] = str(error)
        more = ()
    return (*first, *more)


def _mnist(values: Values, spec: JobSpec) -> str:
    run = spec.trainer
    if values.get(f"{run}.dataset") != "mnist" or values.get(f"{run}.download") == "true":
        return ""
    folder = posixpath.join(spec.working_dir, values.get(f"{run}.data", ""))
    return folder if folder.startswith("/") else ""  # where the image's own folder is, is not known


def _draft(values: Values, fields: Mapping[str, Any], problems: dict[str, str]) -> JobDraft:
    if values["run"] == COMMAND:
        command = _own_command(values, problems)
        return JobDraft({**fields, "command": command, "log_dir": values["log_dir"]})
    trainer = next((each for each in TRAINERS if each.name == values["run"]), None)
    if trainer is None:
        problems["run"] = f"Must be one of {', '.join(each.name for each in TRAINERS)}, {COMMAND}."
        return JobDraft(fields)
    arguments = {}
    for argument in trainer.arguments:
        key = f"{trainer.name}.{argument.name}"
        if argument.name in DIRECTORIES:
            continue
        try:
            trainer.words({argument.name: values[key]})
        except ValueError as error:
            problems[key] = f"{str(error).removeprefix(f'{argument.flag}: ')}."
            continue
        if values[key] not in (default_text(argument), str(argument.default)):
            arguments[argument.name] = values[key]
    if arguments.get("resume") == "must":
        why = "A new job has no checkpoint: gpuconsole submit --continue JOB goes on from an earlier one."
        problems[f"{trainer.name}.resume"] = why
    dataset, folder = f"{trainer.name}.dataset", f"{trainer.name}.data"
    if values.get(dataset) == "mnist" and values.get(folder) == "":
        problems[folder] = "Required for mnist: the directory of its files, e.g. /workspace/mnist."
    # Without a volume, the folders are lost with the pod anyway.
    root = values["mount_path"] if values["claim"] else _working_dir(values)
    return JobDraft(fields, trainer, trainer.words(arguments), root)


def _own_command(values: Values, problems: dict[str, str]) -> tuple[str, ...]:
    line = values[COMMAND].strip()
    if values["torchrun"] != "true":
        return shell_argv(line) if line else ()
    try:
        words: tuple[str, ...] = JOB_FIELDS[COMMAND].type.parse(line)
    except ValueError as error:
        problems[COMMAND] = str(error)
        return ()
    return words


def _cloned(spec: JobSpec, kind: CreatableKind, stamp: str) -> JobSpec:
    # Compared with the clone's: only if they are equal does its own command stay.
    values = values_from_spec(spec, kind)
    defaults = default_values()
    values |= {key: defaults[key] for key in hidden_fields(values) if key in defaults}
    return _draft(values, {name: getattr(spec, name) for name in _PARSED}, {}).spec(kind, stamp)


def _working_dir(values: Values) -> str:
    if values["working_dir"] == IMAGES_FOLDER:
        return ""
    return values["working_dir"] or (values["mount_path"] if values["claim"] else "")


def values_from_spec(spec: JobSpec, kind: CreatableKind) -> dict[str, str]:
    """Return the values that give `spec`; a trainer's folders follow from the job's name.

    Args:
        spec: An existing or deleted job.
        kind: Its kind.
    """
    values = default_values()
    first, rest = Mount("", "/workspace"), spec.mounts
    if rest and rest[0] == Mount(rest[0].claim, rest[0].path):  # a folder, or read-only, has no field
        first, rest = rest[0], rest[1:]
    values |= {
        **{key: JOB_FIELDS[key].type.to_text(getattr(spec, key)) for key in _PARSED},
        "kind": kind.title,
        "processes": "" if spec.processes == max(1, spec.gpus) else str(spec.processes),
        "claim": first.claim,
        "mount_path": first.path,
        "more_volumes": JOB_FIELDS["mounts"].type.to_text(rest),
        "working_dir": _working_dir_value(spec, first),
    }
    for trainer in TRAINERS:
        arguments = _trainer_arguments(trainer, spec.command) if trainer.name == spec.trainer else None
        if arguments is not None:
            values["run"] = trainer.name
            return values | {f"{trainer.name}.{name}": text for name, text in arguments.items()}
    line = spec.command[2] if len(spec.command) == 3 and not spec.torchrun else ""
    is_shell_line = shell_argv(line) == spec.command
    values["run"] = COMMAND
    values[COMMAND] = line if is_shell_line else shlex.join(spec.command)
    values["log_dir"] = spec.log_dir
    return values


def _working_dir_value(spec: JobSpec, first: Mount) -> str:
    if not first.claim:
        return spec.working_dir
    return "" if spec.working_dir == first.path else spec.working_dir or IMAGES_FOLDER


def _trainer_arguments(trainer: Trainer, command: Sequence[str]) -> dict[str, str] | None:
    words = trainer.words_of(command)
    if words is None:
        return None
    words = trainer.own_args(words)
    arguments = {}
    known = {argument.flag: argument for argument in trainer.arguments}
    while words:
        flag, equals, text = words.pop(0).partition("=")
        if flag not in known:
            return None
        argument = known[flag]
        if isinstance(argument.default, bool):
            text = "true"
        elif not equals:
            if not words:
                return None
            text = words.pop(0)
        arguments[argument.name] = text
    return arguments
