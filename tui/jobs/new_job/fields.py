"""The fields of the new-job form from top to bottom, and their defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from k8s.jobs.run_folders import CHECKPOINTS, LOGS
from k8s.kinds import CREATABLE
from trainer.catalogue import TRAINERS, Argument, Trainer

COMMAND = "command"
"""The value of `run` that stands for the user's own command."""

DEFAULT_IMAGE = "pytorch/pytorch:2.6.0-cuda12.4-cudnn9-runtime"
"""Until another image was used."""

CONTINUE = "continue_from"
"""The value that names the earlier run whose checkpoint the job goes on from."""

DIRECTORIES: Mapping[str, str] = {"log-dir": LOGS, "checkpoint-dir": CHECKPOINTS}
"""Trainer arguments without a field, and the folder of each below the job's own on the claim."""

_MAIN_ARGUMENTS = ("dataset", "data", "model", "epochs", "batch-size", "lr")


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


_JOB_FIELDS = (
    FormField(
        "name",
        "Name",
        "Name of the job: lowercase letters, digits and '-'",
        placeholder="e.g. bert-base-1",
    ),
    FormField(
        "kind",
        "Kind",
        "Kind of object to create; its operator must be installed in the cluster",
        CREATABLE[0].title,
        choices=tuple((kind.title, f"{kind.title}  {kind.resource.api_version}") for kind in CREATABLE),
        control="choice",
    ),
    FormField("namespace", "Namespace", "Namespace to create the job in", "default"),
    FormField("image", "Image", "Container image; a packaged trainer needs gpuconsole[trainer] in it"),
)
SIZE_FIELDS = (
    FormField(
        "workers", "Workers", "Number of pods, including the master", "1", unit="pods", control="short"
    ),
    FormField("gpus", "GPUs", "GPUs per pod; 0 trains on the CPU", "1", unit="per pod", control="short"),
    FormField(
        "processes",
        "Processes",
        "Training processes per pod (torchrun --nproc-per-node); empty: one per GPU",
        placeholder="1 per GPU",
        unit="per pod",
        control="short",
    ),
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
    FormField(
        COMMAND,
        "Command",
        "Shell command run by sh -c in every pod; may span several lines",
        placeholder="torchrun train.py --epochs 3",
        control="lines",
    ),
    FormField(
        "log_dir",
        "Event files",
        "Directory in the pods where it writes TensorBoard event files, for the curves",
        placeholder="none, or e.g. /workspace/logs",
    ),
)
"""Shown for the user's own command."""
_STORAGE_FIELDS = (
    FormField(
        "claim", "Volume claim", "PersistentVolumeClaim for files that outlive the pods", placeholder="none"
    ),
    FormField(
        "mount_path", "Mount path", "Where the claim is mounted; also the working directory", "/workspace"
    ),
    FormField(
        CONTINUE,
        "Continue",
        "Earlier job, or its folder, whose checkpoint to go on from",
        placeholder="no, start anew",
    ),
    FormField("env", "Environment", "One NAME=value per line", placeholder="NAME=value", control="lines"),
)
ADVANCED_FIELDS = (
    FormField("cpu", "CPU", "CPUs per pod, e.g. 4 or 500m", placeholder="no request", control="short"),
    FormField("memory", "Memory", "Memory per pod, e.g. 32Gi", placeholder="no request", control="short"),
    FormField(
        "shared_memory",
        "Shared memory",
        "Size of /dev/shm; data loader workers need it",
        "2Gi",
        placeholder="64 MiB",
        control="short",
    ),
    FormField("retries", "Retries", "Retries before the job fails (backoffLimit)", "0", control="short"),
    FormField(
        "clean_pods",
        "Clean pods",
        "Pods to delete when the job ends (cleanPodPolicy); their logs go with them",
        "None",
        choices=(("None", "None: keep all pods"), ("Running", "Running pods"), ("All", "All pods")),
        control="choice",
    ),
    FormField("priority_class", "Priority class", "PriorityClass of the pods", placeholder="none"),
    FormField("gpu_resource", "GPU resource", "Resource name of the GPUs", "nvidia.com/gpu"),
    FormField("working_dir", "Working dir", "Working directory in the pods", placeholder="the mount path"),
    FormField(
        "more_volumes", "More volumes", "One claim:/path per line", placeholder="claim:/path", control="lines"
    ),
    FormField("labels", "Labels", "One name=value per line", placeholder="team=vision", control="lines"),
)
"""Folded away until opened."""

SECTIONS: tuple[tuple[str, tuple[FormField, ...]], ...] = (
    ("Job", _JOB_FIELDS),
    ("Size", SIZE_FIELDS),
    ("Workload", (RUN,)),
    ("Storage and environment", _STORAGE_FIELDS),
)
"""The form from top to bottom, but for what follows `RUN` and for `ADVANCED_FIELDS`, which come last."""

_DEFAULTS: Mapping[str, str] = {
    field.key: field.default
    for field in (*(each for _, fields in SECTIONS for each in fields), *COMMAND_FIELDS, *ADVANCED_FIELDS)
}


def trainer_fields(trainer: Trainer) -> tuple[tuple[FormField, ...], tuple[FormField, ...]]:
    """Return the fields of a trainer's arguments: those most people change, then the rest.

    Directories for event files and checkpoints have none: see `form_spec`.
    """
    arguments = [each for each in trainer.arguments if each.name not in DIRECTORIES]
    main = tuple(_argument_field(trainer, each) for each in arguments if each.name in _MAIN_ARGUMENTS)
    rest = tuple(_argument_field(trainer, each) for each in arguments if each.name not in _MAIN_ARGUMENTS)
    return main, rest


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
