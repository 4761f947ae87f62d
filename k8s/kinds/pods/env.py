"""Variables of a job's pods: ours, the user's, those from Secrets and ConfigMaps, and torchrun's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from k8s import job_spec as job_specs
from k8s.kinds.base import Manifest
from k8s.kinds.parse import ParsedPart, named, text_of
from k8s.kinds.pod_code import own_environment

if TYPE_CHECKING:
    from k8s.job_spec import EnvSource, JobSpec

# Entries of a container's `env`.
Env = Sequence[Manifest]
_KEY_REFERENCES = {"secretKeyRef": True, "configMapKeyRef": False}
_WHOLE_REFERENCES = {"secretRef": True, "configMapRef": False}
# Built into torchrun; the other backends need a server.
DYNAMIC = "c10d"
_BACKEND, _ENDPOINT, _MAX_RESTARTS = "PET_RDZV_BACKEND", "PET_RDZV_ENDPOINT", "PET_MAX_RESTARTS"


def environment(spec: JobSpec) -> dict[str, str]:
    """Return the variables of every pod: those that label each rank's output, then the user's.

    Source: torchrun's `--tee 3` and TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE.
    """
    ours = {
        "PYTHONUNBUFFERED": "1",
        "PET_TEE": "3",
        "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "[rank${rank}]: ",
    }
    # NVIDIA's container runtime shows all GPUs to containers that request none.
    if not spec.gpus and not spec.devices and not spec.device_claim:
        ours["NVIDIA_VISIBLE_DEVICES"] = "void"
    if spec.trainer:  # else a `trainer.py` in the working directory would be imported instead
        ours["PYTHONSAFEPATH"] = "1"
    return {**ours, **own_environment(spec)}


def variable(name: str, value: str) -> Manifest:
    """Return an entry of `env`."""
    return {"name": name, "value": value}


def variable_from_field(name: str, path: str) -> Manifest:
    """Return an entry of `env` that is filled from a field of the pod."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def env_entries(spec: JobSpec, extra: Env = ()) -> list[Manifest]:
    """Return the variables of a container; the user's replace those of the kind, `extra`."""
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


def pop_env(container: Manifest, spec: JobSpec, extra: Env = ()) -> ParsedPart:
    """Remove the variables that a spec can express, and drop those that every such job has.

    `spec` has the fields known so far, `extra` the variables that the kind adds.
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
        source = _full_source(each)
        sources += [source] if source else []
        left += [] if source else [each]
    lost += [f"variables from {_origin(each)}" for each in left]
    return ParsedPart({"env": env, "env_from": tuple(sources)}, lost)


def _as_made(entry: Manifest) -> Manifest:
    # Servers add the API version to a field reference.
    field = (entry.get("valueFrom") or {}).get("fieldRef") or {}
    is_usual = field.get("apiVersion") == "v1" and "fieldPath" in field
    return variable_from_field(str(entry.get("name")), field["fieldPath"]) if is_usual else entry


def _reference(source: EnvSource) -> Manifest:
    key = "secretKeyRef" if source.is_secret else "configMapKeyRef"
    return {"name": source.name, "valueFrom": {key: {"name": source.source, "key": source.key}}}


def _key_source(name: str, origin: Mapping[str, Any]) -> EnvSource | None:
    # None if it is not just one key of a Secret or a ConfigMap.
    for kind, is_secret in _KEY_REFERENCES.items():
        reference = origin.get(kind)
        if len(origin) == 1 and isinstance(reference, Mapping) and set(reference) == {"name", "key"}:
            return job_specs.EnvSource(is_secret, str(reference["name"]), str(reference["key"]), name)
    return None


def _full_source(each: Mapping[str, Any]) -> EnvSource | None:
    for kind, is_secret in _WHOLE_REFERENCES.items():
        reference = each.get(kind)
        if len(each) == 1 and isinstance(reference, Mapping) and set(reference) == {"name"}:
            return job_specs.EnvSource(is_secret, str(reference["name"]))
    return None


def _origin(source: Mapping[str, Any]) -> str:
    # E.g. `secret wandb`.
    what, where = next(iter(source.items()))
    name = where.get("name", "") if isinstance(where, Mapping) else ""
    return f"{what.removesuffix('KeyRef').removesuffix('Ref')} {name}".rstrip()


def rendezvous_env(spec: JobSpec, endpoint: str) -> list[Manifest]:
    """Return the variables, which torchrun and packaged trainers read.

    `endpoint` is `host:port` for c10d; for etcd the user sets it.
    """
    found = []
    if spec.max_restarts:
        found.append(variable(_MAX_RESTARTS, str(spec.max_restarts)))
    if spec.rdzv_backend:
        found.append(variable(_BACKEND, spec.rdzv_backend))
    if spec.rdzv_backend == DYNAMIC and endpoint:
        found.append(variable(_ENDPOINT, endpoint))
    return found


def pop_rendezvous(env: dict[str, str], endpoint: str) -> dict[str, Any]:
    """Remove the variables of `rendezvous_env`, and return fields of a spec."""
    found: dict[str, Any] = {}
    if env.get(_MAX_RESTARTS, "").isdecimal() and int(env[_MAX_RESTARTS]):
        found["max_restarts"] = int(env.pop(_MAX_RESTARTS))
    backend = env.get(_BACKEND, "")
    if backend == DYNAMIC and env.get(_ENDPOINT, "") == endpoint:
        env.pop(_ENDPOINT, None)
        found["rdzv_backend"] = env.pop(_BACKEND)
    elif backend.startswith("etcd"):
        found["rdzv_backend"] = env.pop(_BACKEND)
    return found
