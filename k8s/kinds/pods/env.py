"""Variables of a job's pods: ours, the user's, those from Secrets and ConfigMaps, and torchrun's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from k8s.kinds.base import Manifest
from k8s.kinds.pod_code import own_environment

if TYPE_CHECKING:
    from k8s.kinds.job_spec import EnvSource, JobSpec

# Entries of a container's `env`.
Env = Sequence[Manifest]
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


def _reference(source: EnvSource) -> Manifest:
    key = "secretKeyRef" if source.is_secret else "configMapKeyRef"
    return {"name": source.name, "valueFrom": {key: {"name": source.source, "key": source.key}}}


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
