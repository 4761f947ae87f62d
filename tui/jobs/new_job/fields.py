"""The fields of the new-job form from top to bottom, made from the declarations of `JobSpec`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from k8s.job_spec import JOB_FIELDS, Section
from k8s.job_spec.field_types import Choice, Duration, Number, OptionalNumber, Quantity, Switch
from k8s.jobs.run_folders import CHECKPOINTS, LOGS
from k8s.kinds import CREATABLE
from trainer.catalogue import TRAINERS, Argument, Trainer

COMMAND = "command"
"""The value of `run` that stands for the user's own command."""

DEFAULT_IMAGE = "pytorch/pytorch:2.6.0-cuda12.4-cudnn9-runtime"
"""Until another image was used."""

CONTINUE = "continue_from"
"""The value that names the earlier run whose checkpoint the job goes on from."""

EDITED_YAML = "yaml"
"""The value that keeps the manifest as somebody edited it, for the draft; no field has it."""

DIRECTORIES: Mapping[str, str] = {"log-dir": LOGS, "checkpoint-dir": CHECKPOINTS}
"""Trainer arguments without a field, and the folder of each below the job's own on the claim."""

OF_MPIRUN = ("master-addr", "master-port")
"""Trainer arguments for ranks that mpirun starts; without a field, as mostly they are found out."""

IMAGES_FOLDER = "image"
"""The value of `working_dir` that leaves it to the image; empty stands for the claim's mount path."""

_MAIN_ARGUMENTS = ("dataset", "data", "model", "epochs", "batch-size", "lr", "num-iters")


@dataclass(frozen=True, slots=True)
class FormField:
    """The definition of one field."""

    key: str
    """Name of its value: a field of `JobSpec`, or trainer and argument as in `ddp.epochs`."""
    label: str
    help: str
    """One sentence without a full stop, shown while the field has the focus."""
    default: str = ""
    placeholder: str = ""
    """Shown while the field is empty: an example, or what empty means."""
    unit: str = ""
    """Shown after the field."""
    choices: tuple[tuple[str, str], ...] = ()
    """Allowed values, each with its label; for a `choice` only."""
    control: Literal["text", "short", "choice", "lines"] = "text"
    """The widget: one line, one short line for a number or quantity, a select, or several lines."""


class FormSection(NamedTuple):
    """A part of the form under one heading."""

    title: str
    fields: tuple[FormField, ...]
    """Open from the start."""
    more: tuple[FormField, ...] = ()
    """Folded away until opened."""


_SHORT = (Number, OptionalNumber, Quantity, Duration)
_YES_OR_NO = (("false", "no"), ("true", "yes"))


def job_field(name: str, **changes: Any) -> FormField:
    """Return the form's field for a field of `JobSpec`, made from its declaration.

    Args:
        name: Of the field.
        changes: What the form says otherwise.
    """
    declared = JOB_FIELDS[name]
    of_type = declared.type
    choices: tuple[tuple[str, str], ...] = _YES_OR_NO if isinstance(of_type, Switch) else ()
    choices = of_type.choices if isinstance(of_type, Choice) else choices
    is_short = isinstance(of_type, _SHORT)
    made = FormField(
        name,
        declared.title,
        declared.help,
        declared.default_text,
        placeholder=declared.placeholder,
        unit=declared.unit,
        choices=choices,
        control="choice" if choices else "lines" if of_type.is_repeated else "short" if is_short else "text",
    )
    return replace(made, **changes)


KIND = FormField(
    "kind",
    "Kind",
    "Kind of object to create; its operator must be installed in the cluster",
    CREATABLE[0].title,
    choices=tuple((kind.title, f"{kind.title}  {kind.resource.api_version}") for kind in CREATABLE),
    control="choice",
)
"""What the job becomes."""
SIZE_FIELDS = (
    job_field("workers"),
    job_field("gpus", default="1"),
    job_field("processes", default=""),
)
"""How many pods, and what each has."""
RUN = FormField(
    "run",
    "Run",
    "A packaged trainer, or your own command",
    TRAINERS[0].name,
    choices=(
        *((each.name, f"{each.name}: {each.title}") for each in TRAINERS),
        (COMMAND, "your own command"),
    ),
    control="choice",
)
"""What to run; the fields that follow depend on its value."""
COMMAND_FIELDS = (
    job_field(
        COMMAND,
        help="Shell command run by sh -c in every pod, may span several lines; with torchrun its script",
        placeholder="torchrun train.py --epochs 3",
        control="lines",
    ),
    job_field("torchrun"),
    job_field("log_dir"),
)
"""Shown for the user's own command."""
CLAIM = FormField(
    "claim", "Volume claim", "PersistentVolumeClaim for files that outlive the pods", placeholder="none"
)
"""The first of the job's volumes."""
_FIRST_VOLUME = (
    CLAIM,
    FormField(
        "mount_path", "Mount path", "Where the claim is mounted; also the working directory", "/workspace"
    ),
    FormField(
        CONTINUE,
        "Continue",
        "Earlier job, or its folder, whose checkpoint to go on from",
        placeholder="no, start anew",
    ),
)
_MORE_VOLUMES = job_field("mounts", key="more_volumes", label="More volumes")

MADE_OTHERWISE = frozenset({"command", "trainer", "processes", "working_dir", "mounts", "log_dir", "user"})
"""Fields of `JobSpec` that are not just the text of the form's field of that name."""
_ELSEWHERE = {*MADE_OTHERWISE, "torchrun", "workers", "gpus"} - {"working_dir"}
_IN_FORM = {"working_dir": {"placeholder": f"the mount path; {IMAGES_FOLDER}: the image's own"}}
"""What the form says otherwise than the declarations."""


def _declared(*sections: Section, basic: bool) -> tuple[FormField, ...]:
    """Return the fields of some sections as declared: those that most people change, or the rest."""
    return tuple(
        job_field(name, **_IN_FORM.get(name, {}))
        for name, each in JOB_FIELDS.items()
        if each.section in sections and each.is_basic == basic and name not in _ELSEWHERE
    )


TEMPLATE = FormField(
    "template",
    "Template",
    "What to start from: fills in what you have not set",
    choices=(("", "none"),),
    control="choice",
)
"""Fills in other fields; its own value is no part of the job."""
_NAME, *_JOB = _declared("job", basic=True)
SECTIONS: tuple[FormSection, ...] = (
    FormSection("Job", (TEMPLATE, _NAME, KIND, *_JOB), _declared("job", basic=False)),
    FormSection("Code", _declared("code", basic=True), _declared("code", basic=False)),
    FormSection("Resources", SIZE_FIELDS, _declared("resources", basic=False)),
    FormSection("Launch", (RUN,), _declared("launch", basic=False)),
    FormSection(
        "Data and environment",
        (*_FIRST_VOLUME, *_declared("environment", basic=True)),
        (_MORE_VOLUMES, *_declared("storage", "environment", basic=False)),
    ),
    FormSection("Scheduling", _declared("scheduling", basic=True), _declared("scheduling", basic=False)),
    FormSection("Lifecycle", _declared("lifecycle", basic=True), _declared("lifecycle", basic=False)),
)
"""The form from top to bottom, but for what follows `RUN`."""
JOB_FORM_FIELDS: tuple[FormField, ...] = (
    *(field for section in SECTIONS for field in (*section.fields, *section.more)),
    *COMMAND_FIELDS,
)
"""All but the arguments of trainers."""

_DEFAULTS: Mapping[str, str] = {field.key: field.default for field in JOB_FORM_FIELDS}


def trainer_fields(trainer: Trainer) -> tuple[tuple[FormField, ...], tuple[FormField, ...]]:
    """Return the fields of a trainer's arguments: those most people change, then the rest.

    Directories for event files and checkpoints have none: see `form_spec`.
    """
    arguments = [each for each in trainer.arguments if each.name not in (*DIRECTORIES, *OF_MPIRUN)]
    main = tuple(_argument_field(trainer, each) for each in arguments if each.name in _MAIN_ARGUMENTS)
    rest = tuple(_argument_field(trainer, each) for each in arguments if each.name not in _MAIN_ARGUMENTS)
    return main, rest


def labels(keys: Iterable[str]) -> str:
    """Return the labels of fields, by their keys, in a row."""
    known = {field.key: field.label for field in (*JOB_FORM_FIELDS, *_argument_fields())}
    return ", ".join(known.get(key, key) for key in keys)


def _argument_fields() -> tuple[FormField, ...]:
    return tuple(each for trainer in TRAINERS for part in trainer_fields(trainer) for each in part)


def _argument_field(trainer: Trainer, argument: Argument) -> FormField:
    choices = ("false", "true") if isinstance(argument.default, bool) else argument.choices
    is_short = isinstance(argument.default, int | float) and not choices
    label = argument.name.replace("-", " ") if len(argument.name) > 2 else argument.name.upper()
    return FormField(
        f"{trainer.name}.{argument.name}",
        label[:1].upper() + label[1:],
        argument.words,
        default_text(argument),
        placeholder="none",
        unit=argument.unit,
        choices=tuple((choice, {"true": "yes", "false": "no"}.get(choice, choice)) for choice in choices),
        control="choice" if choices else "short" if is_short else "text",
    )


def default_text(argument: Argument) -> str:
    """Return an argument's default as it stands in its field."""
    return str(argument.default).lower() if isinstance(argument.default, bool) else str(argument.default)


def default_values() -> dict[str, str]:
    """Return the value of every field of an untouched form, by key."""
    values = dict(_DEFAULTS)
    values["image"] = DEFAULT_IMAGE
    for trainer in TRAINERS:
        values |= {f"{trainer.name}.{each.name}": default_text(each) for each in trainer.arguments}
    return values
