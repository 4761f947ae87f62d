"""The way to a `JobSpec`: from the texts of a form, a template or a draft, and from the values of flags.

Texts are by the key of their field. Any texts give a spec, and an error for each invalid field.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass, field
from functools import cache
from io import StringIO
from typing import Any

from k8s.jobs.run_folders import LOGS, run_name
from k8s.kinds import CREATABLE, CreatableKind
from k8s.kinds.job_spec import JOB_FIELDS, JobSpec, Mount, problems_of
from k8s.kinds.job_spec.field_types import LONGEST_TEXT
from k8s.kinds.pod_template import shell_argv
from trainer.catalogue import TRAINERS, Trainer, find
from tui.draft.fields import (
    COMMAND,
    DIRECTORIES,
    EDITED_YAML,
    IMAGES_FOLDER,
    MADE_OTHERWISE,
    argument_text,
    default_text,
    default_values,
    hidden_fields,
    unused_values,
)

Values = Mapping[str, str]

_TRAINER_NAMES = {trainer.name for trainer in TRAINERS}
# Shown in place of control characters.
_PICTURE = re.compile(r"[\u2400-\u241f\u2421]")
_PARSED = tuple(name for name in JOB_FIELDS if name not in MADE_OTHERWISE)


@dataclass(frozen=True, slots=True)
class JobDraft:
    """Job before its namespace, the version of its kind, and the folders of its run are known."""

    fields: Mapping[str, Any]
    """Values by field of `JobSpec`; missing ones have their default."""
    trainer: Trainer | None = None
    arguments: Sequence[str] = ()
    """The trainer's arguments as words."""
    root: str = ""
    """Folder in the pods for the folder of the run; empty for the trainer's defaults."""

    @property
    def open_folders(self) -> tuple[str, ...]:
        """Names of the trainer's arguments for folders that `arguments` does not set."""
        known = {each.name for each in self.trainer.arguments} if self.trainer is not None else ()
        return tuple(name for name in DIRECTORIES if name in known and not argument_in(name, self.arguments))

    def spec(self, kind: CreatableKind, stamp: str = "", *, continued: str = "", **more: Any) -> JobSpec:
        """Return the job; it may be invalid, see `problems_of`.

        Args:
            kind: Its kind, which launches the ranks of a trainer.
            stamp: Distinguishes the folder of the run from those of earlier jobs of this name.
            continued: Folder of the run that the trainer continues.
            more: Fields that `fields` lacks.
        """
        fields = {**self.fields, **more}
        fields.setdefault("processes", max(1, fields.get("gpus", 0)))
        if self.trainer is not None:
            fields |= self._of_trainer(self.trainer, kind, fields, stamp, continued)
        return JobSpec(**fields)

    def _of_trainer(
        self, trainer: Trainer, kind: CreatableKind, fields: Mapping[str, Any], stamp: str, continued: str
    ) -> dict[str, Any]:
        run = run_name(fields.get("name", ""), stamp)
        folder = continued or (posixpath.join(self.root, run) if self.root else "")
        words = [*self.arguments]
        for name in self.open_folders if folder else ():
            leaf = f"{LOGS}-{run}" if continued and name == "log-dir" else DIRECTORIES[name]
            words += [f"--{name}", f"{folder}/{leaf}"]
        words += ["--resume", "must"] if continued else []
        workers, gpus, slots, env = (
            fields.get(name, JOB_FIELDS[name].default) for name in ("workers", "gpus", "slots", "env")
        )
        # mpirun starts one process per slot and exports the job's variables: over ssh a rank in another
        # pod would not have them.
        ranks = workers * (max(1, gpus) if slots is None else slots)
        command = trainer.command(words, launcher=kind.launcher, ranks=ranks, variables=sorted(env))
        log_dir = argument_in("log-dir", words) or str(trainer.argument("log-dir").default)
        return {
            "trainer": trainer.name,
            "command": tuple(command),
            "log_dir": posixpath.join(fields.get("working_dir", ""), log_dir),
        }


def argument_in(name: str, words: Sequence[str]) -> str:
    """Return the value of an argument among a trainer's; empty if it is not set."""
    value = ""
    for index, word in enumerate(words):
        flag, equals, text = word.partition("=")
        if flag == f"--{name}":
            value = text if equals else next(iter(words[index + 1 :]), "")
    return value


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
    adjust: Callable[[JobSpec], JobSpec] = lambda spec: spec,
) -> FormResult:
    """Parse the form's values. Never raises.

    Args:
        texts: The values as typed.
        user: Who submits.
        stamp: Distinguishes the job's folder from those of earlier jobs of its name.
        adjust: Changes the spec before it is validated.
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
    spec = adjust(_draft(values, parsed, problems).spec(chosen, stamp))
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


def _working_dir(values: Values) -> str:
    if values["working_dir"] == IMAGES_FOLDER:
        return ""
    return values["working_dir"] or (values["mount_path"] if values["claim"] else "")


def texts_of(fields: Mapping[str, Any]) -> dict[str, str]:
    """Return the form's texts, by key, of some fields of `JobSpec`; a trainer needs its command, too.

    A trainer's folders have no text: they follow from the job's name.
    """
    found = {name: JOB_FIELDS[name].type.to_text(fields[name]) for name in _PARSED if name in fields}
    first = Mount("", "/workspace")
    if "processes" in fields:
        is_default = fields["processes"] == max(1, fields.get("gpus", 0))
        found["processes"] = "" if is_default else str(fields["processes"])
    if "mounts" in fields:
        rest = fields["mounts"]
        if rest and rest[0] == Mount(rest[0].claim, rest[0].path):  # a folder, or read-only, has no field
            first, rest = rest[0], rest[1:]
        more = JOB_FIELDS["mounts"].type.to_text(rest)
        found |= {"claim": first.claim, "mount_path": first.path, "more_volumes": more}
    if "working_dir" in fields:
        folder = fields["working_dir"]
        if first.claim:
            folder = "" if folder == first.path else folder or IMAGES_FOLDER
        found["working_dir"] = folder
    trainer = next((each for each in TRAINERS if each.name == fields.get("trainer")), None)
    if trainer is not None and (given := arguments_of(trainer, fields["command"])) is not None:
        for each in trainer.arguments:
            value = getattr(given, each.name.replace("-", "_"))
            if value != each.default:
                found[f"{trainer.name}.{each.name}"] = argument_text(each, value)
        return found | {"run": trainer.name}
    if "log_dir" in fields:
        found["log_dir"] = fields["log_dir"]
    if "command" in fields:
        command = fields["command"]
        line = command[2] if len(command) == 3 and not fields.get("torchrun") else ""
        found |= {"run": COMMAND, COMMAND: line if shell_argv(line) == command else shlex.join(command)}
    return found


def arguments_of(trainer: Trainer, command: Sequence[str]) -> Namespace | None:
    """Return the trainer's arguments in a command; None for another command, or invalid arguments.

    They may be in conflict, see `Trainer.conflict`.
    """
    if (words := trainer.words_of(command)) is None:
        return None
    try:
        with redirect_stderr(StringIO()):
            given, unknown = _parser(trainer.name).parse_known_args(trainer.own_args(words))
    except SystemExit:
        return None
    return None if unknown else given


@cache
def _parser(trainer: str) -> ArgumentParser:
    return find(trainer).parser()
