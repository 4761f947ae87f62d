"""What the new-job form asks: its fields from top to bottom, and what they hold at first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from k8s.kinds import CREATABLE
from trainer.catalogue import TRAINERS, Argument, Trainer

COMMAND = "command"
"""The answer to `run` that means: not a packaged trainer."""

DEFAULT_IMAGE = "pytorch/pytorch:2.6.0-cuda12.4-cudnn9-runtime"
"""Offered until another image was used."""

DIRECTORIES: Mapping[str, str] = {"log-dir": "logs", "checkpoint-dir": "checkpoints"}
"""Arguments of trainers that are not asked, and the name of their folder among a job's files."""

_MAIN_ARGUMENTS = ("dataset", "data", "model", "epochs", "batch-size", "lr")


@dataclass(frozen=True, slots=True)
class FormField:
    """One field of the form."""

    key: str
    """What the answer is called: a field of `JobSpec`, or `ddp.epochs`."""
    label: str
    """The words before the field."""
    help: str
    """One sentence about it, without a full stop."""
    default: str = ""
    hint: str = ""
    """Shown in the field while it is empty: what empty means."""
    unit: str = ""
    """Shown behind the field."""
    choices: tuple[tuple[str, str], ...] = ()
    """Answers allowed, each with its words; not empty for a choice."""
    shape: Literal["text", "short", "choice", "lines"] = "text"
    """What it is answered with: a line, a number or quantity, one of the choices, several lines."""


_ABOUT_JOB = (
    FormField("name", "Name", "What the job is called: a-z, 0-9 and -", hint="a name, as in bert-base-1"),
    FormField(
        "kind",
        "Kind",
        "Which operator runs it",
        CREATABLE[0].title,
        choices=tuple((kind.title, f"{kind.title}  {kind.resource.api_version}") for kind in CREATABLE),
        shape="choice",
    ),
    FormField("namespace", "Namespace", "Where on the cluster it runs", "default"),
    FormField("image", "Image", "What its containers start from; a trainer needs gpuconsole[trainer] in it"),
)
_ABOUT_SIZE = (
    FormField("workers", "Workers", "Pods in all, the master among them", "1", unit="pods", shape="short"),
    FormField(
        "gpus", "GPUs", "Accelerators of each pod; 0 runs on CPUs", "1", unit="each pod", shape="short"
    ),
    FormField(
        "processes",
        "Processes",
        "Training processes of each pod, torchrun's nproc_per_node; empty: one for each GPU",
        hint="1 per GPU",
        unit="each pod",
        shape="short",
    ),
)
RUN = FormField(
    "run",
    "Run",
    "A packaged trainer, or a command of your own",
    TRAINERS[0].name,
    choices=(*((each.name, f"{each.name}: {each.title}") for each in TRAINERS), (COMMAND, "a command")),
    shape="choice",
)
"""What to run; the questions after it depend on the answer."""
ABOUT_COMMAND = (
    FormField(
        COMMAND,
        "Command",
        "Run by sh -c in each pod; several lines are fine",
        hint="torchrun train.py --epochs 3",
        shape="lines",
    ),
    FormField(
        "log_dir",
        "Event files",
        "Folder in the pods where it writes event files, for the curves",
        hint="none, or a folder as in /workspace/logs",
    ),
)
"""Asked when a command of the user's own is run."""
_ABOUT_FILES = (
    FormField("claim", "Volume claim", "Where files outlive the pods", hint="none"),
    FormField(
        "mount_path", "Mounted at", "The claim's folder in the pods, and where it starts", "/workspace"
    ),
    FormField("env", "Environment", "One NAME=value on each line", hint="NAME=value", shape="lines"),
)
RARE = (
    FormField("cpu", "CPU", "Cores of each pod, as in 4 or 500m", hint="no request", shape="short"),
    FormField("memory", "Memory", "Memory of each pod, as in 32Gi", hint="no request", shape="short"),
    FormField(
        "shared_memory",
        "Shared memory",
        "Size of /dev/shm, which data loaders need",
        "2Gi",
        hint="64 MiB",
        shape="short",
    ),
    FormField("retries", "Retries", "How often it may start again", "0", unit="times", shape="short"),
    FormField(
        "clean_pods",
        "Clean pods",
        "Which pods to remove when it ends; removed pods lose their logs",
        "None",
        choices=(("None", "None: keep their logs"), ("Running", "Running ones"), ("All", "All")),
        shape="choice",
    ),
    FormField("priority_class", "Priority class", "Who goes first when GPUs are short", hint="none"),
    FormField("gpu_resource", "GPU resource", "What the cluster calls its GPUs", "nvidia.com/gpu"),
    FormField("working_dir", "Starts in", "Working folder", hint="where the claim is mounted"),
    FormField(
        "more_volumes", "More volumes", "One claim:/path on each line", hint="claim:/path", shape="lines"
    ),
    FormField("labels", "Labels", "One name=value on each line", hint="team=vision", shape="lines"),
)
"""What few people change."""

SECTIONS: tuple[tuple[str, tuple[FormField, ...]], ...] = (
    ("Job", _ABOUT_JOB),
    ("Size", _ABOUT_SIZE),
    ("What to run", (RUN,)),
    ("Files and environment", _ABOUT_FILES),
)
"""The form from top to bottom; trainers' arguments and `ABOUT_COMMAND` follow `RUN`, `RARE` comes last."""

_DEFAULTS: Mapping[str, str] = {
    question.key: question.default
    for question in (*(each for _, part in SECTIONS for each in part), *ABOUT_COMMAND, *RARE)
}


def questions_of(trainer: Trainer) -> tuple[tuple[FormField, ...], tuple[FormField, ...]]:
    """Return what is asked about a trainer: first what most people choose, then the rest.

    Folders for event files and checkpoints are not asked: they follow from the claim and the name.
    """
    asked = [each for each in trainer.arguments if each.name not in DIRECTORIES]
    main = tuple(_question(trainer, each) for each in asked if each.name in _MAIN_ARGUMENTS)
    rest = tuple(_question(trainer, each) for each in asked if each.name not in _MAIN_ARGUMENTS)
    return main, rest


def _question(trainer: Trainer, argument: Argument) -> FormField:
    choices = ("false", "true") if isinstance(argument.default, bool) else argument.choices
    is_short = isinstance(argument.default, int | float) and not choices
    label = argument.name.replace("-", " ") if len(argument.name) > 2 else argument.name.upper()
    return FormField(
        f"{trainer.name}.{argument.name}",
        label[:1].upper() + label[1:],
        argument.words,
        default_text(argument),
        hint="none",
        unit=argument.unit,
        choices=tuple((choice, {"true": "yes", "false": "no"}.get(choice, choice)) for choice in choices),
        shape="choice" if choices else "short" if is_short else "text",
    )


def default_text(argument: Argument) -> str:
    """Return what stands in a trainer's field at first."""
    return str(argument.default).lower() if isinstance(argument.default, bool) else str(argument.default)


def default_texts() -> dict[str, str]:
    """Return the answers of a form that nobody has touched."""
    texts = dict(_DEFAULTS)
    texts["image"] = DEFAULT_IMAGE
    for trainer in TRAINERS:
        texts |= {f"{trainer.name}.{each.name}": default_text(each) for each in trainer.arguments}
    return texts
