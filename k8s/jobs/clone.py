"""A copy of a job under a new name: a manifest, and a `JobSpec` for the form where one can say it all."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from k8s.client.client import Client
from k8s.errors import KubeError, NotFound
from k8s.job_spec import (
    LOG_DIR_ANNOTATION,
    LONGEST_NAME,
    SUBMISSION_ANNOTATION,
    TRAINER_ANNOTATION,
    USER_ANNOTATION,
    JobSpec,
)
from k8s.jobs.arena_objects import tensorboard_name, tensorboard_problem
from k8s.jobs.companions import JOB_LABEL, MANAGED_BY, MANAGER, Companion, companions_of
from k8s.jobs.run_folders import LOGS, moved_folder, moved_to_run, run_name, run_stamp
from k8s.kinds import CREATABLE, KINDS, CreatableKind, Manifest
from k8s.kinds.parse import nested
from k8s.kinds.pod_code import code_config_name, files_config_name, git_secret_name, trainer_config_name
from k8s.kinds.pods.renaming import renamed
from k8s.models.resources import CONFIG_MAPS, DEPLOYMENTS, SECRETS, Resource

LONGEST_LABEL = 63
"""Characters of any name that is also a label's value, as those of jobs are."""
MADE_BY_SERVERS = (
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "generation",
    "managedFields",
    "selfLink",
    "ownerReferences",
    "finalizers",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generateName",
)
"""Fields of metadata that are about one object only."""
_MADE_LABELS = frozenset(
    {
        "controller-uid",
        "batch.kubernetes.io/controller-uid",
        "job-name",
        "batch.kubernetes.io/job-name",
        "pod-template-hash",
    }
)
"""What the Job controller writes into the template of its own object."""
_MADE_ANNOTATIONS = frozenset(
    {
        "kubectl.kubernetes.io/last-applied-configuration",
        "batch.kubernetes.io/job-tracking",
        "batch.kubernetes.io/cronjob-scheduled-timestamp",
        SUBMISSION_ANNOTATION,
    }
)
_MINOR = re.compile(
    r"annotation .*|pod annotation .*|pod label .*|pod name|name of the container|imagePullPolicy"
    r"|restartPolicy|automountServiceAccountToken|enableServiceLinks|ttlSecondsAfterFinished"
    r"|terminationGracePeriodSeconds|terminationMessagePolicy|ports|nprocPerNode .*"
)
"""What a job can do without, and still do the same in the same place."""
_CONFIGS = (code_config_name, files_config_name, trainer_config_name)
_PLACES = (
    ("configMap", "name", _CONFIGS),
    ("secret", "secretName", (git_secret_name,)),
    ("secretKeyRef", "name", (git_secret_name,)),
)
"""Where a pod names a ConfigMap or a Secret: the field that holds the name, and whose name it may be."""
_NUMBER = re.compile(r"-(\d{1,9})$")


class NotCloned(KubeError):
    """There is nothing of which another could be made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clone:
    """A job that is not made yet, like one that is there."""

    like: str
    """Name of the job that it is like."""
    name: str
    """Its own, which is free."""
    resource: Resource
    manifest: Manifest
    """The whole object under its new name, without what servers and operators write into it."""
    kind: CreatableKind | None = None
    """Its kind, where jobs of it can be made by a form."""
    spec: JobSpec | None = None
    """The spec under the new name; None where the object cannot be read into one."""
    lost: tuple[str, ...] = ()
    """What `spec` does not say, by name; the manifest has it."""
    still_says: tuple[str, ...] = ()
    """Where the manifest names the other job: fields of it."""

    @property
    def fits_form(self) -> bool:
        """Tell whether the spec does what the job did; else the manifest is to be edited."""
        return self.spec is not None and not self.too_much

    @property
    def too_much(self) -> tuple[str, ...]:
        """Return what is lost without which it may be another job, or none that runs."""
        return tuple(name for name in self.lost if not _MINOR.fullmatch(name))

    @property
    def not_carried_over(self) -> str:
        """Return in a sentence what the spec leaves out; empty where it says everything."""
        return f"Not carried over: {', '.join(self.lost)}." if self.lost else ""

    @property
    def names_left(self) -> str:
        """Return in a sentence where the old name still stands; empty where nowhere."""
        return f"Still says {self.like}: {', '.join(self.still_says)}." if self.still_says else ""


def next_name(name: str, taken: Collection[str]) -> str:
    """Return a name that is not taken: `bert-2` after `bert`, `bert-3` after `bert-2`."""
    longest = LONGEST_NAME if len(name) <= LONGEST_NAME else LONGEST_LABEL
    found = _NUMBER.search(name)
    base, number = (name[: found.start()], int(found[1]) + 1) if found else (name, 2)
    while (free := f"{base[: longest - len(str(number)) - 1].rstrip('-.')}-{number}") in taken:
        number += 1
    return free


def clone(obj: Manifest, taken: Collection[str] = (), *, name: str = "", user: str = "") -> Clone:
    """Return a job like the one that an object is.

    Args:
        obj: As the server stores it, whoever made it.
        taken: Names that jobs of its namespace have.
        name: What to call it; empty for the next free name.
        user: Who asks; empty for nobody.

    Raises:
        NotCloned: It is no job, or of a kind that is not known.
    """
    kind_words = (obj.get("kind"), obj.get("apiVersion"))
    kinds = (each for each in KINDS if (each.resource.kind, each.resource.api_version) == kind_words)
    kind = next(kinds, None)
    meta = obj.get("metadata")
    like = str(meta.get("name", "")) if isinstance(meta, Mapping) else ""
    if kind is None or not like:
        raise NotCloned(
            f"Could not clone {obj.get('kind') or 'this'} {like}.".replace(" .", "."),
            "Only jobs of a supported kind can be cloned.",
            "Edit its YAML and create that: gpuconsole submit -f FILE.",
        )
    name = name or next_name(like, {like, *taken})
    manifest = _renamed(cleaned(obj), like, name, user)
    found = Clone(
        like=like,
        name=name,
        resource=kind.resource,
        manifest=manifest,
        still_says=tuple(_mentions(manifest, like)),
    )
    creatable = next((each for each in CREATABLE if each is kind), None)
    if creatable is None:
        return found
    try:
        spec, lost = creatable.spec_from_manifest(manifest)
    except (AttributeError, TypeError, KeyError, ValueError):
        return found
    return replace(found, kind=creatable, spec=replace(spec, user=user), lost=lost)


async def copied_companions(
    client: Client, manifest: Manifest, like: str, namespace: str
) -> tuple[Companion, ...]:
    """Return copies of what came along with a job, for a clone of it.

    What the clone names must be there; of the rest (its TensorBoard, the Service of its pods, Arena's
    record) that is made anew which the job has.

    Args:
        client: The cluster.
        manifest: The clone, as `clone` made it.
        like: Name of the job that it is a clone of.
        namespace: Of both.

    Raises:
        KubeError: One of them is gone, or may not be read.
    """
    name = str(manifest["metadata"]["name"])
    named = set(_names_in(manifest))
    found = []
    for resource, makers in ((CONFIG_MAPS, _CONFIGS), (SECRETS, (git_secret_name,))):
        for make in makers:
            if make(name) not in named or name == like:
                continue
            try:
                held = await client.get(resource, make(like), namespace)
            except NotFound as error:
                raise KubeError(
                    f"Could not clone {like}.",
                    f"{resource.kind} {make(like)}, with what it needs to run, is gone.",
                    "Submit it anew from its folder or repository.",
                ) from error
            labels = {JOB_LABEL: name, MANAGED_BY: MANAGER}
            copy: Manifest = {
                "apiVersion": resource.api_version,
                "kind": resource.kind,
                "metadata": {"name": make(name), "namespace": namespace, "labels": labels},
            }
            copy |= {key: held[key] for key in ("data", "binaryData", "type") if key in held}
            found.append(Companion(resource, copy, "name"))
    return (*found, *(await _made_anew(client, manifest, like, namespace) if name != like else ()))


async def _made_anew(client: Client, manifest: Manifest, like: str, namespace: str) -> list[Companion]:
    """Return for a clone what a job has beside it though no field names it; nothing that nobody can tell."""
    words = (manifest.get("kind"), manifest.get("apiVersion"))
    kinds = (each for each in CREATABLE if (each.resource.kind, each.resource.api_version) == words)
    kind = next(kinds, None)
    try:
        spec = kind.spec_from_manifest(deepcopy(manifest))[0] if kind is not None else None
    except (AttributeError, TypeError, KeyError, ValueError):
        spec = None
    if kind is None or spec is None:
        return []
    spec = replace(spec, name=str(manifest["metadata"]["name"]), namespace=namespace, tensorboard=True)
    board = await _its_own(client, DEPLOYMENTS, tensorboard_name(like), like, namespace)
    containers = nested(board or {}, "spec", "template", "spec").get("containers") or [{}]
    has_board = board is not None and not tensorboard_problem(spec)
    image = str(containers[0].get("image") or "")
    spec = replace(spec, tensorboard=has_board, tensorboard_image=image if has_board else "")
    found = []
    for old, new in zip(_beside(kind, replace(spec, name=like)), _beside(kind, spec), strict=True):
        if await _its_own(client, old.resource, str(old.manifest["metadata"]["name"]), like, namespace):
            found.append(new)
    return found


def _beside(kind: CreatableKind, spec: JobSpec) -> list[Companion]:
    """Return what is made of a spec alone and stands in no field of the job."""
    return [
        each
        for each in companions_of(kind, spec)
        if each.is_optional or each.field in ("workers", "tensorboard")
    ]


async def _its_own(
    client: Client, resource: Resource, name: str, job: str, namespace: str
) -> dict[str, Any] | None:
    """Return an object that belongs to a job, made here or by Arena; None where there is none to be seen."""
    try:
        found = await client.get(resource, name, namespace)
    except KubeError:
        return None
    meta = nested(found, "metadata")
    labels = nested(meta, "labels")
    is_arenas = labels.get("createdBy") == "arena"
    return found if is_arenas or job in (labels.get(JOB_LABEL), labels.get("release")) else None


def cleaned(obj: Manifest) -> Manifest:
    """Return an object as somebody would write it to create another: no status, nothing that was made for it.

    A job that is held back is cloned as one that may run.
    """
    found = {key: deepcopy(value) for key, value in obj.items() if key != "status"}
    spec = found.get("spec")
    for meta in _metadata_in(found):
        for key in MADE_BY_SERVERS:
            meta.pop(key, None)
        _drop(meta, "labels", _MADE_LABELS)
        _drop(meta, "annotations", _MADE_ANNOTATIONS)
    if isinstance(spec, dict):
        if spec.get("manualSelector") is not True and "template" in spec:
            spec.pop("selector", None)
        for holder in (spec, spec.get("runPolicy")):
            if isinstance(holder, dict):
                holder.pop("suspend", None)
    return found


def _metadata_in(value: object) -> Iterator[dict[str, Any]]:
    """Yield the metadata of an object, and of every template in it."""
    if isinstance(value, dict):
        for key, each in value.items():
            if key == "metadata" and isinstance(each, dict):
                yield each
            else:
                yield from _metadata_in(each)
    elif isinstance(value, list):
        for each in value:
            yield from _metadata_in(each)


def _drop(meta: dict[str, Any], field: str, names: Collection[str]) -> None:
    """Remove some labels or annotations, and the field with the last of them."""
    held = meta.get(field)
    if isinstance(held, dict):
        meta[field] = {key: value for key, value in held.items() if key not in names}
    if field in meta and not meta[field]:
        del meta[field]


def _renamed(manifest: Manifest, like: str, name: str, user: str) -> Manifest:
    """Give an object its new name; what a packaged trainer writes goes to a new folder."""
    manifest = renamed(manifest, like, name, user)
    meta = {**manifest["metadata"], "name": name}
    annotations = dict(nested(meta, "annotations")) if isinstance(meta.get("annotations"), dict) else {}
    if USER_ANNOTATION in annotations:
        annotations |= {USER_ANNOTATION: user} if user else {}
    if annotations.get(TRAINER_ANNOTATION):
        run = run_name(name, run_stamp(datetime.now(UTC)))
        if folder := annotations.get(LOG_DIR_ANNOTATION):
            annotations[LOG_DIR_ANNOTATION] = moved_folder(str(folder), like, run, LOGS)
        manifest = {**manifest, "spec": _with_moved_words(manifest.get("spec"), like, run)}
    if annotations:
        meta["annotations"] = annotations
    moved: Manifest = _with_moved_names({**manifest, "metadata": meta}, like, name)
    return moved


def _with_moved_words(value: Any, like: str, run: str) -> Any:
    if isinstance(value, dict):
        return {
            key: moved_to_run(each, like, run)
            if key in ("command", "args") and isinstance(each, list) and all(isinstance(w, str) for w in each)
            else _with_moved_words(each, like, run)
            for key, each in value.items()
        }
    if isinstance(value, list):
        return [_with_moved_words(each, like, run) for each in value]
    return value


def _mentions(manifest: Manifest, like: str) -> Iterator[str]:
    """Yield where a name, or that of one of its pods, stands as a word of its own."""
    word = re.compile(rf"(?<![\w.-]){re.escape(like)}(?:-[a-z]+-\d+)?(?![\w.-])")
    seen = set()
    for path, text in _texts({key: value for key, value in manifest.items() if key != "kind"}):
        place = ".".join(path[-2:] if path[-2:-1] in (("labels",), ("annotations",)) else path[-1:])
        if path != ("metadata", "name") and place not in seen and word.search(text):
            seen.add(place)
            yield place


def _texts(value: object, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield every text with its path; items of a list have that of the list, and their own name if any."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            is_variable = key == "value" and isinstance(value.get("name"), str)
            yield from _texts(each, (*path, str(value["name"]) if is_variable else str(key)))
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each, path)


def _with_moved_names(value: Any, like: str, name: str) -> Any:
    """Return a manifest in which what came along with job `like` is called as it is for job `name`."""
    if isinstance(value, list):
        return [_with_moved_names(each, like, name) for each in value]
    if not isinstance(value, dict):
        return value
    moved = {key: _with_moved_names(each, like, name) for key, each in value.items()}
    for holder, key, makers in _PLACES:
        names = {make(like): make(name) for make in makers}
        held = moved.get(holder)
        if isinstance(held, dict) and held.get(key) in names:
            moved[holder] = {**held, key: names[held[key]]}
    return moved


def _names_in(value: object) -> Iterator[str]:
    if isinstance(value, list):
        for each in value:
            yield from _names_in(each)
    elif isinstance(value, Mapping):
        for holder, key, _ in _PLACES:
            held = value.get(holder)
            if isinstance(held, Mapping) and isinstance(held.get(key), str):
                yield held[key]
        for each in value.values():
            yield from _names_in(each)
