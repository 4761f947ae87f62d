"""A job's spec as JSON in an annotation of its object, from which a clone fills in the form.

The object is the truth: a spec that does not give the object as it is stored fills in nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from k8s.kinds import CreatableKind, Manifest
from k8s.kinds.job_spec import JOB_FIELDS, USER_ANNOTATION, JobSpec
from k8s.kinds.parse import nested, text_of
from k8s.kinds.pod_code import credentials_in, default_pull_policy, git_secret_name, strip_credentials
from k8s.kinds.pod_labels import objects_in
from k8s.models.quantity import parse
from k8s.text.redact import Redactor, names_secret

SPEC_ANNOTATION = "gpuconsole.dev/spec"
# All annotations of an object together may have 256 KiB.
LONGEST_CHARS = 32 * 2**10
_MOST_NAMED = 3
_ADDED_LATER = ("metadata.labels.", "metadata.annotations.")
_EMPTY: tuple[object, ...] = (None, "", [], {})
# Read from the object, or not part of a copy: new claims exist by now.
_LEFT_OUT = ("name", "namespace", "user", "suspend", "new_claims")
# Values that servers and operators fill in. Source: kubernetes `pkg/apis/core/v1/defaults.go` and
# `pkg/apis/batch/v1/defaults.go`; kubeflow/mpi-operator v0.8.0 and kubeflow/trainer v2.3.0, their CRDs.
_FILLED_IN: Mapping[str, object] = {
    "apiVersion": "v1",
    "defaultMode": 0o644,
    "dnsPolicy": "ClusterFirst",
    "launcherCreationPolicy": "AtStartup",
    "launcherOnMaster": False,
    "mainContainer": "mpi",
    "managedBy": "trainer.kubeflow.org/trainjob-controller",
    "manualSelector": False,
    "mpiImplementation": "OpenMPI",
    "podReplacementPolicy": "TerminatingOrFailed",
    "readOnly": False,
    "runLauncherAsWorker": False,
    "schedulerName": "default-scheduler",
    "sshAuthMountPath": "/root/.ssh",
    "terminationGracePeriodSeconds": 30,
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}


class NoSpec(ValueError):
    """An object from which the form cannot be filled in; the message says why."""


def with_spec(manifest: Manifest, spec: JobSpec) -> Manifest:
    """Return the manifest with the spec in an annotation.

    Values of variables that may be secrets are left to the manifest. Without an annotation stay a job that
    sends local files or credentials, one with another secret in it, and one whose spec is too long.
    """
    text = _encoded(spec)
    if not text:
        return manifest
    meta = manifest["metadata"]
    annotations = {**(meta.get("annotations") or {}), SPEC_ANNOTATION: text}
    return {**manifest, "metadata": {**meta, "annotations": annotations}}


def _encoded(spec: JobSpec) -> str:
    if spec.sync_mode == "folder" or spec.config_files or spec.git_secret == git_secret_name(spec.name):
        return ""
    if credentials_in(spec) or strip_credentials(spec.sync_source) != spec.sync_source:
        return ""
    given = {
        name: value
        for name, value in _plain(spec).items()
        if name not in _LEFT_OUT and getattr(spec, name) != JOB_FIELDS[name].default
    }
    if spec.env:
        given["env"] = {name: None if names_secret(name, each) else each for name, each in spec.env.items()}
    text = json.dumps(given, ensure_ascii=False, separators=(",", ":"))
    return text if len(text) <= LONGEST_CHARS and Redactor().object(given) == given else ""


def _plain(spec: JobSpec) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(msgspec.to_builtins(spec)))
    return found


def carried_spec(kind: CreatableKind, obj: Manifest, text: object) -> tuple[JobSpec, tuple[str, ...]]:
    """Return the spec that a job's object carries, and its labels and annotations that are not in the spec.

    Args:
        kind: The kind of the job.
        obj: The object, without status, annotation and what only servers set.
        text: The value of its annotation, None if it has none.

    Raises:
        NoSpec: It carries none, or one that is invalid, of a newer version, or not that of the object.
    """
    if text is None:
        raise NoSpec(f"this {kind.resource.kind} has no annotation {SPEC_ANNOTATION}")
    meta = nested(obj, "metadata")
    spec = replace(
        _decoded(text, obj),
        name=text_of(meta.get("name")),
        namespace=text_of(meta.get("namespace")),
        user=text_of(nested(meta, "annotations").get(USER_ANNOTATION)),
    )
    try:
        made = kind.manifest(spec)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise NoSpec(f"its annotation {SPEC_ANNOTATION} is not valid") from error
    found = [*differences(made, obj)]
    changed = [place for place in found if not place.startswith(_ADDED_LATER)]
    if changed:
        more = f" and {len(changed) - _MOST_NAMED} more" if len(changed) > _MOST_NAMED else ""
        named = ", ".join(changed[:_MOST_NAMED])
        verb = "differs" if len(changed) == 1 else "differ"
        raise NoSpec(f"{named}{more} {verb} from what gpuconsole created")
    return spec, tuple(place.removeprefix("metadata.").replace("s.", " ", 1) for place in found)


def _decoded(text: object, obj: Manifest) -> JobSpec:
    invalid = f"its annotation {SPEC_ANNOTATION} is not valid"
    if not isinstance(text, str) or len(text) > LONGEST_CHARS:
        raise NoSpec(invalid)
    try:
        given = json.loads(text)
        if unknown := sorted(set(given) - set(JOB_FIELDS)):
            raise NoSpec(f"another version of gpuconsole made it, with {', '.join(unknown)[:200]}")
        env = given.get("env") or {}
        given |= {"env": {**env, **_values(obj, [name for name, value in env.items() if value is None])}}
        spec: JobSpec = msgspec.convert(given, JobSpec)
    except NoSpec:
        raise
    except (AttributeError, RecursionError, TypeError, ValueError) as error:
        raise NoSpec(invalid) from error
    # msgspec ignores unknown fields of the values within.
    read = _plain(spec)
    if any(read[name] != value for name, value in given.items()):
        raise NoSpec(invalid)
    return spec


def _values(value: object, names: list[str]) -> dict[str, str]:
    # The values of these variables of the pods.
    found: dict[str, str] = {}
    for each in objects_in(value):
        if each.get("name") in names and isinstance(each.get("value"), str):
            found[each["name"]] = each["value"]
    return found


def differences(made: Any, stored: Any, path: str = "") -> Iterator[str]:
    """Yield the places at which a stored object is not as it was made, beyond what servers fill in."""
    if isinstance(made, Mapping) and isinstance(stored, Mapping):
        filled_in = {**_FILLED_IN, "imagePullPolicy": default_pull_policy(text_of(stored.get("image")))}
        for key in {**made, **stored}:
            place = f"{path}.{key}" if path else str(key)
            if key not in made and key in filled_in and stored[key] == filled_in[key]:
                continue
            yield from differences(made.get(key), stored.get(key), place)
    elif isinstance(made, list) and isinstance(stored, list) and len(made) == len(stored):
        for number, pair in enumerate(zip(made, stored, strict=True)):
            yield from differences(*pair, f"{path}[{number}]")
    elif isinstance(made or stored, Mapping) and not (made and stored):
        # One side has nothing; the other may have only what servers fill in.
        yield from differences(made or {}, stored or {}, path)
    elif made != stored and not (made in _EMPTY and stored in _EMPTY):
        # Servers write quantities in another form.
        is_quantity = ".resources" in path or path.endswith(".sizeLimit")
        if not is_quantity or not _is_as_much(str(made), str(stored)):
            yield path


def _is_as_much(made: str, stored: str) -> bool:
    try:
        return parse(made) == parse(stored)
    except ValueError:
        return False
