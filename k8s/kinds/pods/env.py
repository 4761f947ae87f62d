"""The variables of a job's pods: ours, the user's, and those from Secrets and ConfigMaps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from k8s.job_spec import EnvSource, JobSpec
from k8s.kinds.base import Manifest
from k8s.kinds.parse import text_of
from k8s.kinds.pod_code import own_environment
from k8s.kinds.pods.understood import Understood, named

Env = Sequence[Manifest]
"""Entries of a container's `env`."""
_KEY_REFERENCES = {"secretKeyRef": True, "configMapKeyRef": False}
_WHOLE_REFERENCES = {"secretRef": True, "configMapRef": False}


def environment(spec: JobSpec) -> dict[str, str]:
    """Return the variables of every pod: what makes each rank's lines tell whose they are, then the user's.

    Without GPUs none is to be seen: NVIDIA's container runtime shows all of them to who asks for none.
    Source: torchrun's `--tee 3` and TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE; PYTHONSAFEPATH
    keeps a `trainer.py` in the working folder from being run in place of ours.
    """
    ours = {
        "PYTHONUNBUFFERED": "1",
        "PET_TEE": "3",
        "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "[rank${rank}]: ",
    }
    if not spec.gpus and not spec.devices and not spec.device_claim:
        ours["NVIDIA_VISIBLE_DEVICES"] = "void"
    if spec.trainer:
        ours["PYTHONSAFEPATH"] = "1"
    return {**ours, **own_environment(spec)}


def variable(name: str, value: str) -> Manifest:
    """Return an entry of `env`."""
    return {"name": name, "value": value}


def variable_from_field(name: str, path: str) -> Manifest:
    """Return an entry of `env` that a pod's own field fills."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def env_entries(spec: JobSpec, extra: Env = ()) -> list[Manifest]:
    """Return the variables of a container; a user's own take the place of those of a kind, `extra`."""
    plain = environment(spec)
    chosen = {*spec.env, *(each.name for each in spec.env_from)}
    return [
        *(variable(name, value) for name, value in plain.items()),
        *(each for each in extra if each["name"] not in chosen),
        *(_reference(each) for each in spec.env_from if each.name),
    ]


def env_sources(spec: JobSpec) -> list[Manifest]:
    """Return the Secrets and ConfigMaps of which a container gets every key."""
    return [
        {"secretRef" if each.is_secret else "configMapRef": {"name": each.source}}
        for each in spec.env_from
        if not each.name
    ]


def take_env(container: Manifest, spec: JobSpec, extra: Env = ()) -> Understood:
    """Take the variables out; those that every job like `spec` has anyway are made again.

    Args:
        container: It is taken apart.
        spec: What else is known of the job.
        extra: What its kind adds.
    """
    ours = env_entries(spec, extra)
    env: dict[str, str] = {}
    sources: list[EnvSource] = []
    lost = []
    for each in container.pop("env", None) or ():
        name, origin = text_of(each.get("name")), each.get("valueFrom")
        if _as_made(each) in ours:
            continue
        if origin:
            source = _key_source(name, origin)
            sources += [source] if source else []
            lost += [] if source else [f"variable {name}, which comes from {_origin(origin)}"]
            continue
        lost += named(each, "name", "value", prefix=f"variable {name}'s ")
        value = str(each.get("value") or "")
        if variable(name, value) not in ours:
            env[name] = value
    left = []
    for each in container.pop("envFrom", None) or ():
        source = _whole_source(each)
        sources += [source] if source else []
        left += [] if source else [each]
    lost += [f"variables from {_origin(each)}" for each in left]
    return Understood({"env": env, "env_from": tuple(sources)}, lost)


def _as_made(entry: Manifest) -> Manifest:
    """Return a variable without the version that servers write beside a pod's field."""
    field = (entry.get("valueFrom") or {}).get("fieldRef") or {}
    is_usual = field.get("apiVersion") == "v1" and "fieldPath" in field
    return variable_from_field(str(entry.get("name")), field["fieldPath"]) if is_usual else entry


def _reference(source: EnvSource) -> Manifest:
    key = "secretKeyRef" if source.is_secret else "configMapKeyRef"
    return {"name": source.name, "valueFrom": {key: {"name": source.source, "key": source.key}}}


def _key_source(name: str, origin: Mapping[str, Any]) -> EnvSource | None:
    """Return where a variable comes from, if that is one key of a Secret or a ConfigMap and no more."""
    for kind, is_secret in _KEY_REFERENCES.items():
        reference = origin.get(kind)
        if len(origin) == 1 and isinstance(reference, Mapping) and set(reference) == {"name", "key"}:
            return EnvSource(is_secret, str(reference["name"]), str(reference["key"]), name)
    return None


def _whole_source(each: Mapping[str, Any]) -> EnvSource | None:
    for kind, is_secret in _WHOLE_REFERENCES.items():
        reference = each.get(kind)
        if len(each) == 1 and isinstance(reference, Mapping) and set(reference) == {"name"}:
            return EnvSource(is_secret, str(reference["name"]))
    return None


def _origin(source: Mapping[str, Any]) -> str:
    """Return where a variable comes from: `secret wandb`."""
    what, where = next(iter(source.items()))
    name = where.get("name", "") if isinstance(where, Mapping) else ""
    return f"{what.removesuffix('KeyRef').removesuffix('Ref')} {name}".rstrip()
