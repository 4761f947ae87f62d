"""Which fields of the new-job form change nothing, given the others: they are not shown, and not read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from types import MappingProxyType

from k8s.job_spec import JobSpec
from k8s.kinds import CREATABLE, CreatableKind
from trainer.catalogue import DATASETS, FROM_FILES, OF_TOKENS, TRAINERS
from tui.jobs.new_job.fields import COMMAND, CONTINUE, IMAGES_FOLDER, JOB_FORM_FIELDS, default_values

_OF_DATASET = {
    "data": FROM_FILES,
    "download": ("mnist",),
    **dict.fromkeys(("train-images", "val-images"), ("digits", "images", "sequences")),
    "image-size": ("digits", "mnist", "cifar10", "cifar100", "folder", "images"),
    "classes": ("images",),
    "augment": ("cifar10", "cifar100", "folder", "images"),
    "workers": ("folder",),
    "token-bytes": ("tokens",),
    **dict.fromkeys(("vocabulary", "sequence-length", "layers", "heads", "width", "parallel"), OF_TOKENS),
}
"""Arguments of a trainer that say something for some data sets only."""
_OF_VALUE = {
    "step-epochs": ("schedule", "step"),
    "gamma": ("schedule", "step"),
    **dict.fromkeys(("bucket-mb", "static-graph", "copy-buckets"), ("parallel", "ddp")),
}
"""Arguments that say something for one value of another only."""
_PROBES = {"processes": (2, 3), "clean_pods": ("All", "Running"), "retries": (1, 2)}
"""Fields of `JobSpec` that some kinds have no place for, each with two values."""
_OF_GIT = ("sync_branch", "sync_revision", "sync_path", "git_secret")
_OF_TORCHRUN = ("max_restarts", "rdzv_backend", "torchrun_options")
_KEYS = {"mounts": ("claim", "mount_path", CONTINUE, "more_volumes")}
"""The form's fields for a field of `JobSpec`, where they are others."""


def hidden_fields(values: Mapping[str, str]) -> frozenset[str]:
    """Return the keys of fields whose values change nothing.

    Args:
        values: The value of every field.
    """
    values = {key: text.strip() for key, text in values.items()}
    hidden = set(lacking(values["kind"]))
    hidden |= _without_code(values["sync_mode"])
    if set(values["gpus"]) == {"0"}:
        hidden.add("gpu_resource")
    if not values["claim"]:
        hidden.add("mount_path")
    if values["tensorboard"] != "true":
        hidden.add("tensorboard_image")
    is_trainer = values["run"] != COMMAND
    if is_trainer:
        hidden.add("torchrun")
    if is_trainer or values["torchrun"] != "true":
        hidden.update(_OF_TORCHRUN)
    trainer = next((each for each in TRAINERS if each.name == values["run"]), None)
    resumes = trainer is not None and any(argument.name == "resume" for argument in trainer.arguments)
    if not (resumes and (values["claim"] or values["working_dir"] not in ("", IMAGES_FOLDER))):
        hidden.add(CONTINUE)
    for trainer in TRAINERS if is_trainer else ():
        hidden |= _arguments_without_effect(trainer.name, values, is_continued=CONTINUE not in hidden)
    return frozenset(hidden)


def unused_values(values: Mapping[str, str]) -> tuple[str, ...]:
    """Return a sentence for each value that was set and that the chosen kind has no place for.

    Args:
        values: The value of every field.
    """
    why = lacking(values["kind"].strip())
    defaults = default_values()
    return tuple(
        f"{field.label} is not used: {why[field.key]}"
        for field in JOB_FORM_FIELDS
        if field.key in why and values[field.key].strip() not in ("", defaults[field.key])
    )


@cache
def lacking(title: str) -> Mapping[str, str]:
    """Return the keys of the fields that a kind of job has no place for, each with the reason."""
    return lacking_of(next((each for each in CREATABLE if each.title == title), CREATABLE[0]))


def lacking_of(kind: CreatableKind) -> Mapping[str, str]:
    """Return the same for a kind itself."""
    lacks = getattr(kind, "lacks", None)
    if lacks is None:
        spec = JobSpec(name="x", image="x", command=("x",), workers=2, gpus=1)
        lacks = {
            name: f"a {kind.title} has no such field"
            for name, probes in _PROBES.items()
            if len({str(kind.manifest(replace(spec, **{name: each}))) for each in probes}) == 1  # type: ignore[arg-type]
        }
    found = {key: why.rstrip(".") for name, why in lacks.items() for key in _KEYS.get(name, (name,))}
    return MappingProxyType(found)


def _without_code(mode: str) -> set[str]:
    """Return the fields about code that say nothing for the place where it comes from."""
    if not mode:
        return {"sync_source", "sync_image", *_OF_GIT}
    return set() if mode == "git" else set(_OF_GIT)


def _arguments_without_effect(trainer: str, values: Mapping[str, str], *, is_continued: bool) -> set[str]:
    dataset = values.get(f"{trainer}.dataset", "")
    names = {name for name, needed in _OF_DATASET.items() if dataset in DATASETS and dataset not in needed}
    names |= {
        name for name, (other, value) in _OF_VALUE.items() if values.get(f"{trainer}.{other}", value) != value
    }
    if is_continued and values[CONTINUE]:
        names.add("resume")
    return {key for name in names if (key := f"{trainer}.{name}") in values}
