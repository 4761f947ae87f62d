"""Copy of a job under a new name: a manifest and, if the job carries its spec, a `JobSpec` for the form."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec

from k8s.client.client import Client
from k8s.jobs.arena_objects import tensorboard_name, tensorboard_problem
from k8s.jobs.owned_objects import JOB_LABEL, MANAGED_BY, MANAGER, OwnedObject, owned_objects_of
from k8s.jobs.run_folders import LOGS, moved_folder, moved_to_run, run_name, run_stamp
from k8s.kinds import CREATABLE, KINDS, CreatableKind, Manifest
from k8s.kinds.carried_spec import SPEC_ANNOTATION, NoSpec, carried_spec
from k8s.kinds.job_spec import (
    LOG_DIR_ANNOTATION,
    LONGEST_NAME,
    SUBMISSION_ANNOTATION,
    TRAINER_ANNOTATION,
    USER_ANNOTATION,
    JobSpec,
)
from k8s.kinds.parse import nested
from k8s.kinds.pod_code import (
    code_config_name,
    debug_config_name,
    files_config_name,
    git_secret_name,
    trainer_config_name,
)
from k8s.kinds.pod_labels import map_objects, objects_in, renamed
from k8s.kinds.pods_spec import spec_of_pods
from k8s.models.resources import CONFIG_MAPS, DEPLOYMENTS, SECRETS, Resource
from k8s.text.errors import KubeError, NotFound

# Length limit of names that are also label values, such as those of jobs.
LONGEST_LABEL = 63
# Metadata that belongs to one object only.
MADE_BY_SERVERS = (
    "uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink",
    "ownerReferences", "finalizers", "deletionTimestamp", "deletionGracePeriodSeconds", "generateName",
)  # fmt: skip
# Added by the Job controller to the template of its object.
_MADE_LABELS = frozenset(
    {
        "controller-uid",
        "batch.kubernetes.io/controller-uid",
        "job-name",
        "batch.kubernetes.io/job-name",
        "pod-template-hash",
    }
)
_MADE_ANNOTATIONS = frozenset(
    {
        "kubectl.kubernetes.io/last-applied-configuration",
        "batch.kubernetes.io/job-tracking",
        "batch.kubernetes.io/cronjob-scheduled-timestamp",
        SUBMISSION_ANNOTATION,
        SPEC_ANNOTATION,
    }
)
_CONFIGS = (code_config_name, files_config_name, trainer_config_name, debug_config_name)
# Fields in which a pod names a ConfigMap or a Secret, and the functions that may have named it.
_PLACES = (
    ("configMap", "name", _CONFIGS),
    ("secret", "secretName", (git_secret_name,)),
    ("secretKeyRef", "name", (git_secret_name,)),
)
_NUMBER = re.compile(r"-(\d{1,9})$")


class NotCloned(KubeError):
    """Object that is not a job, or of an unknown kind."""


class Clone(msgspec.Struct, frozen=True, kw_only=True):
    """Job to be created as a copy of an existing one."""

    source: str
    name: str
    resource: Resource
    manifest: Manifest
    kind: CreatableKind | None = None
    """None if the console cannot create jobs of this kind."""
    spec: JobSpec | None = None
    """Fills in the form; None if the manifest has to be edited."""
    why_yaml: str = ""
    """Reason why there is no spec, as a sentence."""
    lost: tuple[str, ...] = ()
    """Labels and annotations that were added to the job later."""
    mentions: tuple[str, ...] = ()

    @property
    def mentions_text(self) -> str:
        """Sentence on where the old name remains; empty if nowhere."""
        return f"Still refers to {self.source} in: {', '.join(self.mentions)}." if self.mentions else ""


def next_name(name: str, taken: Collection[str]) -> str:
    """Return a free name: `bert-2` after `bert`, `bert-3` after `bert-2`."""
    longest = LONGEST_NAME if len(name) <= LONGEST_NAME else LONGEST_LABEL
    found = _NUMBER.search(name)
    base, number = (name[: found.start()], int(found[1]) + 1) if found else (name, 2)
    while (free := f"{base[: longest - len(str(number)) - 1].rstrip('-.')}-{number}") in taken:
        number += 1
    return free


def clone(obj: Manifest, taken: Collection[str] = (), *, name: str = "", user: str = "") -> Clone:
    """Return a copy of a job, as stored by the server.

    Args:
        obj: The job.
        taken: Names in use by jobs of its namespace.
        name: New name; empty for the next free name.
        user: User who clones; empty if unknown.

    Raises:
        NotCloned: The object is not a job, or of an unknown kind.
    """
    kind_words = (obj.get("kind"), obj.get("apiVersion"))
    kinds = (each for each in KINDS if (each.resource.kind, each.resource.api_version) == kind_words)
    kind = next(kinds, None)
    meta = obj.get("metadata")
    source = str(meta.get("name", "")) if isinstance(meta, Mapping) else ""
    if kind is None or not source:
        raise NotCloned(
            f"Could not clone {obj.get('kind') or 'this'} {source}.".replace(" .", "."),
            "Only jobs of a supported kind can be cloned.",
            "Edit its YAML and create that: gpuconsole submit -f FILE.",
        )
    name = name or next_name(source, {source, *taken})
    run = run_name(name, run_stamp(datetime.now(UTC)))
    original = cleaned(obj)
    manifest = _renamed(original, source, name, user, run)
    creatable = next((each for each in CREATABLE if each is kind), None)
    spec: JobSpec | None = None
    lost: tuple[str, ...] = ()
    why = f"The form has no fields for a {kind.resource.kind}."
    if creatable is not None:
        try:
            spec, lost = carried_spec(creatable, original, _carried(meta))
        except NoSpec as error:
            why = f"The form cannot be filled in: {error}."
        else:
            spec, why = _renamed_spec(spec, name, user, run), ""
    return Clone(
        source=source,
        name=name,
        resource=kind.resource,
        manifest=manifest,
        kind=creatable,
        spec=spec,
        why_yaml=why,
        lost=lost,
        mentions=tuple(_mentions(manifest, source)),
    )


def _carried(meta: object) -> object:
    annotations = meta.get("annotations") if isinstance(meta, Mapping) else None
    return annotations.get(SPEC_ANNOTATION) if isinstance(annotations, Mapping) else None


def _renamed_spec(spec: JobSpec, name: str, user: str, run: str) -> JobSpec:
    source = spec.name
    spec = replace(spec, name=name, user=user)
    if not spec.trainer:
        return spec
    log_dir = moved_folder(spec.log_dir, source, run, LOGS) if spec.log_dir else ""
    return replace(spec, command=tuple(moved_to_run(spec.command, source, run)), log_dir=log_dir)


async def copied_owned_objects(
    client: Client, manifest: Manifest, source: str, namespace: str
) -> tuple[OwnedObject, ...]:
    """Return copies of the objects that were created with the job `source`, for its clone `manifest`.

    Objects named in the clone must exist; others (TensorBoard, Service of its pods, Arena's record)
    are generated if the source has them.

    Raises:
        KubeError: An object is gone, or may not be read.
    """
    name = str(manifest["metadata"]["name"])
    if source in ("", name):
        return ()
    named = set(_names_in(manifest))
    found = []
    for resource, makers in ((CONFIG_MAPS, _CONFIGS), (SECRETS, (git_secret_name,))):
        for make in makers:
            if make(name) not in named:
                continue
            try:
                held = await client.get(resource, make(source), namespace)
            except NotFound as error:
                raise KubeError(
                    f"Could not clone {source}.",
                    f"{resource.kind} {make(source)}, with what it needs to run, is gone.",
                    "Submit the job again from its folder or repository.",
                ) from error
            labels = {JOB_LABEL: name, MANAGED_BY: MANAGER}
            copy: Manifest = {
                "apiVersion": resource.api_version,
                "kind": resource.kind,
                "metadata": {"name": make(name), "namespace": namespace, "labels": labels},
            }
            copy |= {key: held[key] for key in ("data", "binaryData", "type") if key in held}
            found.append(OwnedObject(resource, copy, "name"))
    return (*found, *await _made_anew(client, manifest, source, namespace))


async def _made_anew(client: Client, manifest: Manifest, source: str, namespace: str) -> list[OwnedObject]:
    # Objects that no field names are generated from the spec, if the source has such an object.
    words = (manifest.get("kind"), manifest.get("apiVersion"))
    kinds = (each for each in CREATABLE if (each.resource.kind, each.resource.api_version) == words)
    kind = next(kinds, None)
    try:
        spec = spec_of_pods(kind, manifest) if kind is not None else None
    except (AttributeError, LookupError, TypeError, ValueError):
        spec = None
    if kind is None or spec is None:
        return []
    spec = replace(spec, name=str(manifest["metadata"]["name"]), namespace=namespace, tensorboard=True)
    board = await _its_own(client, DEPLOYMENTS, tensorboard_name(source), source, namespace)
    containers = nested(board or {}, "spec", "template", "spec").get("containers") or [{}]
    has_board = board is not None and not tensorboard_problem(spec)
    image = str(containers[0].get("image") or "")
    spec = replace(spec, tensorboard=has_board, tensorboard_image=image if has_board else "")
    found = []
    for old, new in zip(_beside(kind, replace(spec, name=source)), _beside(kind, spec), strict=True):
        if await _its_own(client, old.resource, str(old.manifest["metadata"]["name"]), source, namespace):
            found.append(new)
    return found


def _beside(kind: CreatableKind, spec: JobSpec) -> list[OwnedObject]:
    return [
        each
        for each in owned_objects_of(kind, spec)
        if each.is_optional or each.field in ("workers", "tensorboard")
    ]


async def _its_own(
    client: Client, resource: Resource, name: str, job: str, namespace: str
) -> dict[str, Any] | None:
    # None if it is not visible, or belongs to something else. Arena's own objects have its labels.
    try:
        found = await client.get(resource, name, namespace)
    except KubeError:
        return None
    meta = nested(found, "metadata")
    labels = nested(meta, "labels")
    is_arenas = labels.get("createdBy") == "arena"
    return found if is_arenas or job in (labels.get(JOB_LABEL), labels.get("release")) else None


def cleaned(obj: Manifest) -> Manifest:
    """Return an object as a user would write it, without status and generated fields; not suspended."""
    found = {key: deepcopy(value) for key, value in obj.items() if key != "status"}
    spec = found.get("spec")
    for meta in [each["metadata"] for each in objects_in(found) if isinstance(each.get("metadata"), dict)]:
        for key in MADE_BY_SERVERS:
            meta.pop(key, None)
        _drop(meta, "labels", _MADE_LABELS)
        _drop(meta, "annotations", _MADE_ANNOTATIONS)
    if isinstance(spec, dict):
        if spec.get("manualSelector") is not True and "template" in spec:
            spec.pop("selector", None)
        holders = (("suspend", spec), ("suspend", spec.get("runPolicy")), ("pause", spec.get("runMode")))
        for field, holder in holders:
            if isinstance(holder, dict):
                holder.pop(field, None)
        if spec.get("runMode") == {}:
            del spec["runMode"]
    return found


def _drop(meta: dict[str, Any], field: str, names: Collection[str]) -> None:
    # The field is removed with its last entry.
    held = meta.get(field)
    if isinstance(held, dict):
        meta[field] = {key: value for key, value in held.items() if key not in names}
    if field in meta and not meta[field]:
        del meta[field]


def _renamed(manifest: Manifest, source: str, name: str, user: str, run: str) -> Manifest:
    # A packaged trainer writes to a new folder.
    manifest = renamed(manifest, source, name, user)
    meta = {**manifest["metadata"], "name": name}
    annotations = dict(nested(meta, "annotations")) if isinstance(meta.get("annotations"), dict) else {}
    if USER_ANNOTATION in annotations:
        annotations |= {USER_ANNOTATION: user} if user else {}
    if annotations.get(TRAINER_ANNOTATION):
        if folder := annotations.get(LOG_DIR_ANNOTATION):
            annotations[LOG_DIR_ANNOTATION] = moved_folder(str(folder), source, run, LOGS)
        manifest = {**manifest, "spec": _with_moved_args(manifest.get("spec"), source, run)}
    if annotations:
        meta["annotations"] = annotations
    return _with_moved_names({**manifest, "metadata": meta}, source, name)


def _with_moved_args(spec: Any, source: str, run: str) -> Any:
    def change(found: Manifest) -> Manifest:
        for key, words in found.items():
            if isinstance(words, list) and all(isinstance(word, str) for word in words):
                if key in ("command", "args"):
                    found[key] = moved_to_run(words, source, run)
                elif key == "subPath":  # a list here is the folders of the job's own TensorBoard
                    found[key] = [moved_folder(word, source, run, LOGS) for word in words]
        return found

    return map_objects(spec, change)


def _mentions(manifest: Manifest, source: str) -> Iterator[str]:
    # Only matches the name, or that of one of its pods, as a word.
    word = re.compile(rf"(?<![\w.-]){re.escape(source)}(?:-[a-z]+-\d+)?(?![\w.-])")
    seen = set()
    for path, text in _texts({key: value for key, value in manifest.items() if key != "kind"}):
        place = ".".join(path[-2:] if path[-2:-1] in (("labels",), ("annotations",)) else path[-1:])
        if path != ("metadata", "name") and place not in seen and word.search(text):
            seen.add(place)
            yield place


def _texts(value: object, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    # List items have the path of the list; a variable's value has the variable's name.
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            is_variable = key == "value" and isinstance(value.get("name"), str)
            yield from _texts(each, (*path, str(value["name"]) if is_variable else str(key)))
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each, path)


def _with_moved_names(manifest: Manifest, source: str, name: str) -> Manifest:
    def change(found: Manifest) -> Manifest:
        for holder, key, makers in _PLACES:
            names = {make(source): make(name) for make in makers}
            held = found.get(holder)
            if isinstance(held, dict) and held.get(key) in names:
                found[holder] = {**held, key: names[held[key]]}
        return found

    moved: Manifest = map_objects(manifest, change)
    return moved


def _names_in(value: object) -> Iterator[str]:
    for each in objects_in(value):
        for holder, key, _ in _PLACES:
            held = each.get(holder)
            if isinstance(held, dict) and isinstance(held.get(key), str):
                yield held[key]
