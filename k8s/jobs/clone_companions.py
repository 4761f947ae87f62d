"""What comes along with a clone: copies of what came along with the job that it is like, under its own name.

Else a clone would mount what belongs to the other job, and goes with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from k8s.client.client import Client
from k8s.errors import KubeError, NotFound
from k8s.jobs.companions import JOB_LABEL, MANAGED_BY, MANAGER, Companion
from k8s.kinds import Manifest
from k8s.kinds.pod_code import code_config_name, files_config_name, git_secret_name, trainer_config_name
from k8s.models.resources import CONFIG_MAPS, SECRETS

_CONFIGS = (code_config_name, files_config_name, trainer_config_name)


def with_moved_names(value: Any, like: str, name: str) -> Any:
    """Return a manifest in which what came along with job `like` is called as it is for job `name`."""
    if isinstance(value, list):
        return [with_moved_names(each, like, name) for each in value]
    if not isinstance(value, dict):
        return value
    moved = {key: with_moved_names(each, like, name) for key, each in value.items()}
    for holder, key, makers in _PLACES:
        names = {make(like): make(name) for make in makers}
        held = moved.get(holder)
        if isinstance(held, dict) and held.get(key) in names:
            moved[holder] = {**held, key: names[held[key]]}
    return moved


async def copied_companions(
    client: Client, manifest: Manifest, like: str, namespace: str
) -> tuple[Companion, ...]:
    """Return copies of what came along with a job, as far as a clone of it names them.

    Args:
        client: The cluster.
        manifest: The clone, after `with_moved_names`.
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
    return tuple(found)


_PLACES = (
    ("configMap", "name", _CONFIGS),
    ("secret", "secretName", (git_secret_name,)),
    ("secretKeyRef", "name", (git_secret_name,)),
)
"""Where a pod names a ConfigMap or a Secret: the field that holds the name, and whose name it may be."""


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
