"""What torchrun in a pod is told by variables: how its nodes meet, and how often it starts again."""

from __future__ import annotations

from typing import Any

from k8s.job_spec import JobSpec
from k8s.kinds.base import Manifest
from k8s.kinds.pods.env import variable

DYNAMIC = "c10d"
"""The rendezvous that torchrun brings itself; the others need a server."""
_BACKEND, _ENDPOINT, _MAX_RESTARTS = "PET_RDZV_BACKEND", "PET_RDZV_ENDPOINT", "PET_MAX_RESTARTS"


def rendezvous_env(spec: JobSpec, endpoint: str) -> list[Manifest]:
    """Return the variables, for torchrun and for a packaged trainer alike.

    Args:
        spec: The job.
        endpoint: `host:port` where its nodes meet; the user names that of an etcd.
    """
    found = []
    if spec.max_restarts:
        found.append(variable(_MAX_RESTARTS, str(spec.max_restarts)))
    if spec.rdzv_backend:
        found.append(variable(_BACKEND, spec.rdzv_backend))
    if spec.rdzv_backend == DYNAMIC and endpoint:
        found.append(variable(_ENDPOINT, endpoint))
    return found


def take_rendezvous(env: dict[str, str], endpoint: str) -> dict[str, Any]:
    """Take out of the variables what `rendezvous_env` writes, as fields of a spec."""
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
