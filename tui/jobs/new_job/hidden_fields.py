"""Which fields of the new-job form change nothing, given the others: they are not shown, and not read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from k8s.job_spec import JobSpec
from k8s.kinds import CREATABLE
from trainer.catalogue import DATASETS, TRAINERS
from tui.jobs.new_job.fields import COMMAND, CONTINUE

_OF_DATASET = {"data": "mnist", "download": "mnist", "train-images": "digits", "val-images": "digits"}
"""Arguments of a trainer that say something for one data set only."""
_PROBES = {"processes": (2, 3), "clean_pods": ("All", "Running"), "retries": (1, 2)}
"""Fields of `JobSpec` that some kinds have no place for, each with two values."""


def hidden_fields(values: Mapping[str, str]) -> frozenset[str]:
    """Return the keys of fields whose values change nothing.

    Args:
        values: The value of every field.
    """
    values = {key: text.strip() for key, text in values.items()}
    hidden = set(_ignored_by(values["kind"]))
    if set(values["gpus"]) == {"0"}:
        hidden.add("gpu_resource")
    if not values["claim"]:
        hidden.add("mount_path")
    is_trainer = values["run"] != COMMAND
    if not (is_trainer and (values["claim"] or values["working_dir"])):
        hidden.add(CONTINUE)
    for trainer in TRAINERS if is_trainer else ():
        hidden |= _arguments_without_effect(trainer.name, values, is_continued=CONTINUE not in hidden)
    return frozenset(hidden)


def _arguments_without_effect(trainer: str, values: Mapping[str, str], *, is_continued: bool) -> set[str]:
    dataset = values.get(f"{trainer}.dataset", "")
    names = {name for name, needed in _OF_DATASET.items() if dataset in DATASETS and dataset != needed}
    if is_continued and values[CONTINUE]:
        names.add("resume")
    return {key for name in names if (key := f"{trainer}.{name}") in values}


@cache
def _ignored_by(title: str) -> frozenset[str]:
    """Return what a kind of job has no place for."""
    kind = next((each for each in CREATABLE if each.title == title), CREATABLE[0])
    spec = JobSpec(name="x", image="x", command=("x",), workers=2, gpus=1)
    return frozenset(
        key
        for key, probes in _PROBES.items()
        if len({str(kind.manifest(replace(spec, **{key: each}))) for each in probes}) == 1  # type: ignore[arg-type]
    )
