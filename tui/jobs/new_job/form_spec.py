"""Parses the new-job form's values to a `JobSpec`, and makes the values of a `JobSpec`.

Values are plain texts, by the key of their field. Whatever they hold becomes a
spec, and a sentence for each field that is wrong.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from k8s.job_spec import JOB_FIELDS, JobSpec, Mount
from k8s.job_spec.field_types import LONGEST_TEXT
from k8s.jobs.run_folders import LOGS, run_name
from k8s.kinds import CREATABLE, CreatableKind
from trainer.catalogue import TRAINERS, Trainer
from tui.jobs.new_job.earlier_runs import EarlierRun, EarlierRuns
from tui.jobs.new_job.fields import (
    COMMAND,
    CONTINUE,
    DIRECTORIES,
    EDITED_YAML,
    IMAGES_FOLDER,
    MADE_OTHERWISE,
    default_text,
    default_values,
)
from tui.jobs.new_job.hidden_fields import hidden_fields, unused_values
from tui.jobs.trainer_command import trainer_command

Values = Mapping[str, str]
"""The text in each field, by key; a missing key is at its default."""

_NONE_KNOWN = EarlierRuns()
_TRAINER_NAMES = {trainer.name for trainer in TRAINERS}
_PICTURE = re.compile(r"[\u2400-\u241f\u2421]")
"""What a field shows in place of a control character."""
_PARSED = tuple(name for name in JOB_FIELDS if name not in MADE_OTHERWISE)
"""The fields of `JobSpec` that have a field in the form, as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormResult:
    """The job that the form's values make."""

    kind: CreatableKind
    spec: JobSpec
    """With the default where a value is invalid."""
    problems: Mapping[str, str] = field(default_factory=dict)
    """What is wrong with a field's value, by key."""
    continues: EarlierRun | None = None
    """The run whose checkpoint it goes on from."""
    mnist: str = ""
    """Folder in the pods that it reads MNIST from; empty where it reads or downloads none."""
    unused: tuple[str, ...] = ()
    """Sentences about values that are kept, and not used as the kind has no such thing."""


def base_name(values: Values) -> str:
    """Return a job's name without its number: `ddp-digits`."""
    run = values.get("run", "")
    if run not in _TRAINER_NAMES:
        return "train"
    dataset = values.get(f"{run}.dataset", "")
    return f"{run}-{dataset}" if dataset else run


def parse_values(
    texts: Values, user: str = "", *, stamp: str = "", earlier: EarlierRuns = _NONE_KNOWN
) -> FormResult:
    """Make a spec of the form's values, and a sentence for each that is invalid. Never raises.

    Args:
        texts: The values as typed.
        user: Who submits.
        stamp: What tells the job's folder from those of earlier jobs of its name.
        earlier: The runs that it can go on from.
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
            problems[key] = f"Must not hold control characters; there is {picture[0]}."
    parsed = {key: _parsed(key, values, problems) for key in _PARSED}
    processes = _parsed("processes", values, problems) if values["processes"] else max(1, parsed["gpus"])
    kind = next((each for each in CREATABLE if each.title == values["kind"]), None)
    if kind is None:
        problems["kind"] = f"Must be one of {', '.join(each.title for each in CREATABLE)}."
    mounts = _mounts(values, problems)
    continued = _continued(values, earlier, problems)
    command, log_dir = _command(values, problems, stamp, continued, kind or CREATABLE[0], parsed)
    spec = JobSpec(
        **parsed,
        processes=processes,
        command=command,
        working_dir=_working_dir(values),
        mounts=mounts,
        trainer=values["run"] if values["run"] in _TRAINER_NAMES else "",
        log_dir=log_dir,
        user=user,
    )
    if not values["namespace"]:
        problems["namespace"] = "Required."
    for key, sentence in spec.problems().items():
        key = _key_of_problem(key, values, spec)
        if key == COMMAND and spec.trainer:
            continue
        problems.setdefault(key, sentence)
    chosen = kind or CREATABLE[0]
    for key, sentence in chosen.unsupported(spec).items():
        if key not in chosen.lacks:  # those that it lacks are hidden, and told of
            problems.setdefault(key, sentence)
    return FormResult(
        kind=kind or CREATABLE[0],
        spec=spec,
        problems=problems,
        continues=continued,
        mnist=_mnist(values, spec),
        unused=unused_values({**values, **texts}),
    )


def field_key(name: str, values: Values) -> str:
    """Return the key of the form field that makes a field of `JobSpec`, as the server's errors name it."""
    if name == COMMAND and values.get("run", "") != COMMAND:
        return "run"
    return "claim" if name == "mounts" else name


def _key_of_problem(name: str, values: Values, spec: JobSpec) -> str:
    if name == "working_dir":
        return "working_dir" if values["working_dir"] else "mount_path"
    if name == "mounts":
        first = JobSpec(mounts=spec.mounts[:1]).problems() if values["claim"] else {}
        return "mount_path" if "mounts" in first else "more_volumes"
    return name


def _parsed(key: str, values: Values, problems: dict[str, str]) -> Any:
    """Return the value of a field as its type reads it; its default where it cannot."""
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


def _continued(values: Values, earlier: EarlierRuns, problems: dict[str, str]) -> EarlierRun | None:
    if not values[CONTINUE]:
        return None
    try:
        found = earlier.find(values[CONTINUE])
    except LookupError as error:
        problems[CONTINUE] = str(error.args[0])
        return None
    root = _root(values)
    if not PurePosixPath(found.folder).is_relative_to(root):
        problems[CONTINUE] = f"{found.folder} is not below {root}, where the volume is mounted."
    return found


def _mnist(values: Values, spec: JobSpec) -> str:
    run = spec.trainer
    if values.get(f"{run}.dataset") != "mnist" or values.get(f"{run}.download") == "true":
        return ""
    folder = posixpath.join(spec.working_dir, values.get(f"{run}.data", ""))
    return folder if folder.startswith("/") else ""  # where the image's own folder is, is not known


def _command(
    values: Values,
    problems: dict[str, str],
    stamp: str,
    continued: EarlierRun | None,
    kind: CreatableKind,
    fields: Mapping[str, Any],
) -> tuple[tuple[str, ...], str]:
    """Return the argv, and the folder of the event files."""
    if values["run"] == COMMAND:
        return _own_command(values, problems), values["log_dir"]
    trainer = next((each for each in TRAINERS if each.name == values["run"]), None)
    if trainer is None:
        problems["run"] = f"Must be one of {', '.join(each.name for each in TRAINERS)}, {COMMAND}."
        return (), ""
    folders = _folders(values, stamp, continued)
    arguments = {}
    for argument in trainer.arguments:
        key = f"{trainer.name}.{argument.name}"
        text = (
            folders.get(argument.name, str(argument.default)) if argument.name in DIRECTORIES else values[key]
        )
        if argument.name == "resume" and continued is not None:
            text = "must"
        try:
            trainer.command({argument.name: text})
        except ValueError as error:
            problems[key] = f"{str(error).removeprefix(f'{argument.flag}: ')}."
            continue
        if text != default_text(argument):
            arguments[argument.name] = text
    if arguments.get("resume") == "must" and continued is None:
        problems[f"{trainer.name}.resume"] = "A new job has no checkpoint: name an earlier one in Continue."
    dataset, folder = f"{trainer.name}.dataset", f"{trainer.name}.data"
    if values.get(dataset) == "mnist" and values.get(folder) == "":
        problems[folder] = "Required for mnist: the directory of its files, e.g. /workspace/mnist."
    log_dir = folders.get("log-dir", str(trainer.argument("log-dir").default))
    return trainer_command(trainer, arguments, kind, fields), log_dir


def _own_command(values: Values, problems: dict[str, str]) -> tuple[str, ...]:
    """Return a script and its arguments for torchrun, or what a shell runs."""
    line = values[COMMAND].strip()
    if values["torchrun"] != "true":
        return ("sh", "-c", line) if line else ()
    try:
        words: tuple[str, ...] = JOB_FIELDS[COMMAND].type.parse(line)
    except ValueError as error:
        problems[COMMAND] = str(error)
        return ()
    return words


def _working_dir(values: Values) -> str:
    if values["working_dir"] == IMAGES_FOLDER:
        return ""
    return values["working_dir"] or (values["mount_path"] if values["claim"] else "")


def _root(values: Values) -> str:
    return values["mount_path"] if values["claim"] else _working_dir(values)


def _folders(values: Values, stamp: str, continued: EarlierRun | None) -> dict[str, str]:
    """Return where a trainer writes, by argument; nothing where that is lost with the pod anyhow.

    A folder of the job's own, or the one that it goes on from with event files of its own there.
    """
    root = _root(values)
    if not root:
        return {}
    run = run_name(values["name"], stamp)
    own = posixpath.join(root, run)
    if continued is not None:
        return {name: f"{continued.folder}/{leaf}" for name, leaf in DIRECTORIES.items()} | {
            "log-dir": f"{continued.folder}/{LOGS}-{run}"
        }
    return {name: f"{own}/{leaf}" for name, leaf in DIRECTORIES.items()}


def values_from_spec(spec: JobSpec, kind: CreatableKind) -> dict[str, str]:
    """Return the values that make `spec`; a trainer's folders follow from the job's name.

    Args:
        spec: Of a job that exists, or existed.
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
    is_shell_line = len(spec.command) == 3 and spec.command[:2] == ("sh", "-c") and not spec.torchrun
    values["run"] = COMMAND
    values[COMMAND] = spec.command[2] if is_shell_line else shlex.join(spec.command)
    values["log_dir"] = spec.log_dir
    return values


def _working_dir_value(spec: JobSpec, first: Mount) -> str:
    """Return the text of the field: empty where the folder follows from the claim, or from its absence."""
    if not first.claim:
        return spec.working_dir
    return "" if spec.working_dir == first.path else spec.working_dir or IMAGES_FOLDER


def _trainer_arguments(trainer: Trainer, command: Sequence[str]) -> dict[str, str] | None:
    """Parse a trainer's arguments from a command; None when it has others."""
    words = trainer.words_of(command)
    if words is None:
        return None
    words = trainer.own_words(words)
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
