"""Fields of the new-job form from top to bottom, made from the declarations of `JobSpec`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal, NamedTuple

from k8s.jobs.run_folders import CHECKPOINTS, LOGS
from k8s.kinds import CREATABLE, CreatableKind
from k8s.kinds.job_spec import JOB_FIELDS, Section
from k8s.kinds.job_spec.field_types import (
    NAMESPACES,
    Choice,
    Duration,
    Number,
    NumberRange,
    OptionalNumber,
    Quantity,
    Switch,
)
from trainer.catalogue import DATASETS, FROM_FILES, OF_TOKENS, TRAINERS, Argument, Trainer

COMMAND = "command"

DEFAULT_IMAGE = "pytorch/pytorch:2.6.0-cuda12.4-cudnn9-runtime"


EDITED_YAML = "yaml"
"""Key of the manifest as the user edited it, for drafts; no field shows it."""

IMAGES_FOLDER = "image"
"""The value of `working_dir` for the image's own; an empty one stands for the mount path."""

DIRECTORIES: Mapping[str, str] = {"log-dir": LOGS, "checkpoint-dir": CHECKPOINTS}
"""Arguments of trainers that name a folder of a run, with the folder's own name; they have no field."""

REPLACED: Mapping[str, str] = {
    **{f"{name}_request": name for name in ("cpu", "memory")},
    **{f"elastic_{name}": "elastic" for name in ("min", "max")},
    **{f"host_{name}": "host_namespaces" for name in NAMESPACES},
    "rdma": "devices",
}
"""Fields of the last release, and those that have their values now."""

_MAIN_ARGUMENTS = ("dataset", "data", "model", "epochs", "batch-size", "lr", "num-iters")


@dataclass(frozen=True, slots=True)
class FormField:
    """Definition of one field."""

    key: str
    """A field of `JobSpec`, or trainer and argument as in `ddp.epochs`."""
    label: str
    help: str
    """One sentence without a full stop, shown while the field has the focus."""
    default: str = ""
    placeholder: str = ""
    """Shown while the field is empty: an example, or the meaning of empty."""
    unit: str = ""
    choices: tuple[tuple[str, str], ...] = ()
    control: Literal["text", "short", "choice", "lines"] = "text"


class FormSection(NamedTuple):
    """Part of the form under one heading."""

    title: str
    fields: tuple[FormField, ...]
    more: tuple[FormField, ...] = ()


_SHORT = (Number, OptionalNumber, NumberRange, Quantity, Duration)
_YES_OR_NO = (("false", "no"), ("true", "yes"))


def job_field(name: str, **changes: Any) -> FormField:
    """Return the form field for a field of `JobSpec`; `changes` override its declaration."""
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
SIZE_FIELDS = (job_field("workers"), job_field("gpus", default="1"), job_field("processes", default=""))
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
COMMAND_FIELDS = (
    job_field(
        COMMAND,
        help="Shell command, run by sh -c in every pod; with torchrun, the script and its arguments",
        placeholder="torchrun train.py --epochs 3",
        control="lines",
    ),
    job_field("torchrun"),
    job_field("log_dir"),
)
CLAIM = FormField(
    "claim", "Volume claim", "PersistentVolumeClaim for files that outlive the pods", placeholder="none"
)
_FIRST_VOLUME = (
    CLAIM,
    FormField(
        "mount_path", "Mount path", "Where the claim is mounted; also the working directory", "/workspace"
    ),
)
_MORE_VOLUMES = job_field("mounts", key="more_volumes", label="More volumes")

MADE_OTHERWISE = frozenset({"command", "trainer", "processes", "working_dir", "mounts", "log_dir", "user"})
"""Fields of `JobSpec` that the form does not parse from one field of the same name."""
_ELSEWHERE = {*MADE_OTHERWISE, "torchrun", "workers", "gpus"} - {"working_dir"}
_IN_FORM = {"working_dir": {"placeholder": f"the mount path; {IMAGES_FOLDER}: the image's own"}}


def _declared(*sections: Section, basic: bool) -> tuple[FormField, ...]:
    return tuple(
        job_field(name, **_IN_FORM.get(name, {}))
        for name, each in JOB_FIELDS.items()
        if each.section in sections and each.is_basic == basic and name not in _ELSEWHERE
    )


TEMPLATE = FormField(
    "template",
    "Template",
    "Starting point: fills in the fields you have not set",
    choices=(("", "none"),),
    control="choice",
)
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
JOB_FORM_FIELDS: tuple[FormField, ...] = (
    *(field for section in SECTIONS for field in (*section.fields, *section.more)),
    *COMMAND_FIELDS,
)

_DEFAULTS: Mapping[str, str] = {field.key: field.default for field in JOB_FORM_FIELDS}


def trainer_fields(trainer: Trainer) -> tuple[tuple[FormField, ...], tuple[FormField, ...]]:
    """Return the basic and the other fields of a trainer's arguments."""
    arguments = [each for each in trainer.arguments if each.name not in DIRECTORIES]
    main = tuple(_argument_field(trainer, each) for each in arguments if each.name in _MAIN_ARGUMENTS)
    rest = tuple(_argument_field(trainer, each) for each in arguments if each.name not in _MAIN_ARGUMENTS)
    return main, rest


def labels(keys: Iterable[str]) -> str:
    """Return the labels of fields, joined by commas."""
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


def argument_text(argument: Argument, value: object) -> str:
    """Return a value of an argument as text of its field."""
    return (
        str(value).lower()
        if isinstance(value, bool)
        else argument.zero
        if value == 0 and argument.zero
        else str(value)
    )


def default_text(argument: Argument) -> str:
    """Return an argument's default as text of its field."""
    return argument_text(argument, argument.default)


def default_values() -> dict[str, str]:
    """Return the value of every field of an untouched form, by key."""
    values = dict(_DEFAULTS)
    values["image"] = DEFAULT_IMAGE
    for trainer in TRAINERS:
        values |= {f"{trainer.name}.{each.name}": default_text(each) for each in trainer.arguments}
    return values


# Arguments of a trainer that only some data sets use.
_OF_DATASET = {
    "data": FROM_FILES,
    "download": ("mnist",),
    **dict.fromkeys(("train-images", "val-images"), ("digits", "images", "sequences")),
    "image-size": ("digits", "mnist", "folder", "images"),
    "classes": ("images",),
    "augment": ("folder", "images"),
    "workers": ("folder",),
    "token-bytes": ("tokens",),
    **dict.fromkeys(("vocabulary", "sequence-length", "layers", "heads", "width"), OF_TOKENS),
}
# Arguments that are used only with one value of another.
_OF_VALUE = {"step-epochs": ("schedule", "step"), "gamma": ("schedule", "step")}
_OF_GIT = ("sync_branch", "sync_revision", "sync_path", "git_secret")
_KEYS = {"mounts": ("claim", "mount_path", "more_volumes")}


def hidden_fields(values: Mapping[str, str]) -> frozenset[str]:
    """Return the keys of fields without an effect; `values` has the value of every field."""
    values = {key: text.strip() for key, text in values.items()}
    hidden = set(lacking(values["kind"]))
    hidden |= _without_code(values["sync_mode"])
    if set(values["gpus"]) == {"0"} and "gpus=" not in values["roles"]:
        hidden.add("gpu_resource")
    if not values["claim"]:
        hidden.add("mount_path")
    if values["tensorboard"] != "true":
        hidden.add("tensorboard_image")
    is_trainer = values["run"] != COMMAND
    if is_trainer:
        hidden.add("torchrun")
    # The other fields of torchrun become variables and an elastic policy, whoever starts it.
    if is_trainer or values["torchrun"] != "true":
        hidden.add("torchrun_options")
    for trainer in TRAINERS if is_trainer else ():
        hidden |= _arguments_without_effect(trainer.name, values)
    return frozenset(hidden)


def unused_values(values: Mapping[str, str]) -> tuple[str, ...]:
    """Return a sentence for each value that the chosen kind ignores; `values` has every field."""
    why = lacking(values["kind"].strip())
    return tuple(
        f"{field.label} is not used: {why[field.key]}"
        for field in JOB_FORM_FIELDS
        if field.key in why and values[field.key].strip() not in ("", field.default)
    )


@cache
def lacking(title: str) -> Mapping[str, str]:
    """Return the keys of the fields that a kind ignores, each with the reason."""
    return lacking_of(next((each for each in CREATABLE if each.title == title), CREATABLE[0]))


def lacking_of(kind: CreatableKind) -> Mapping[str, str]:
    """Return the keys of the fields that a kind ignores, by the kind itself."""
    return {key: why.rstrip(".") for name, why in kind.lacks.items() for key in _KEYS.get(name, (name,))}


def _without_code(mode: str) -> set[str]:
    if not mode:
        return {"sync_source", "sync_image", *_OF_GIT}
    return set() if mode == "git" else set(_OF_GIT)


def _arguments_without_effect(trainer: str, values: Mapping[str, str]) -> set[str]:
    dataset = values.get(f"{trainer}.dataset", "")
    names = {name for name, needed in _OF_DATASET.items() if dataset in DATASETS and dataset not in needed}
    names |= {
        name for name, (other, value) in _OF_VALUE.items() if values.get(f"{trainer}.{other}", value) != value
    }
    return {key for name in names if (key := f"{trainer}.{name}") in values}


def without_replaced(texts: Mapping[str, str]) -> dict[str, str]:
    """Return the values of a draft, those of replaced fields as values of today's."""
    found = {key: text for key, text in texts.items() if key not in REPLACED}
    for name in ("cpu", "memory"):
        if request := texts.get(f"{name}_request"):
            found[name] = f"{request}-{texts.get(name, '')}"
    if bounds := [texts[name] for name in ("elastic_min", "elastic_max") if texts.get(name)]:
        found["elastic"] = "-".join(bounds)
    if namespaces := [name for name in NAMESPACES if texts.get(f"host_{name}") == "true"]:
        found["host_namespaces"] = "\n".join(namespaces)
    if texts.get("rdma") == "true":
        found["devices"] = f"{texts.get('devices', '')}\nrdma/hca=1".strip()
    return found
