"""Fields of the new-job form that have no effect, given the others: hidden, and not parsed."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from k8s.kinds import CREATABLE, CreatableKind
from trainer.catalogue import DATASETS, FROM_FILES, OF_TOKENS, TRAINERS
from tui.draft.fields import COMMAND, JOB_FORM_FIELDS

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
_OF_VALUE = {
    "step-epochs": ("schedule", "step"),
    "gamma": ("schedule", "step"),
}
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
