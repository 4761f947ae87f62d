"""Decodes the jobs of one kind, whatever nonsense some of them may hold, and keeps them small."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from k8s.kinds.base import DeclaredJob, JobKind, Manifest, Replica
from k8s.models import ListMeta, Reader

_KEPT_OF_CONTAINER = ("name", "image", "resources", "restartPolicy")
"""What is kept of a container in a pod template: what decides where it can run."""


class JobReader:
    """Turns the bytes of a kind's objects into `DeclaredJob`s."""

    def __init__(self, kind: JobKind) -> None:
        """Prepare to read jobs of `kind`."""
        self._kind = kind
        self._objects: Reader[Manifest] = Reader(dict)

    def read(self, body: bytes | msgspec.Raw) -> DeclaredJob:
        """Decode one job.

        Raises:
            msgspec.DecodeError: It is not JSON, or its fields are of the wrong types.
        """
        return self._parse(self._objects.read(body))

    def read_list(self, body: bytes) -> tuple[ListMeta, list[DeclaredJob], int]:
        """Decode a list; a job that makes no sense is left out and counted.

        Raises:
            msgspec.DecodeError: The body is not a list at all.
        """
        where, objects, unreadable = self._objects.read_list(body)
        jobs = []
        for obj in objects:
            try:
                jobs.append(self._parse(obj))
            except msgspec.ValidationError:
                unreadable += 1
        return where, jobs, unreadable

    def _parse(self, obj: Manifest) -> DeclaredJob:
        try:
            return _trimmed(self._kind.parse(obj))
        except (AttributeError, TypeError, KeyError, ValueError) as error:
            raise msgspec.ValidationError(f"not a {self._kind.title}: {error}") from error


def _trimmed(job: DeclaredJob) -> DeclaredJob:
    """Return a job whose places keep only what a picture of a thousand jobs needs of them."""
    templates = {id(each.template): _trimmed_template(each.template) for each in job.replicas}
    return replace(job, replicas=tuple([_without_wishes(each, templates) for each in job.replicas]))


def _without_wishes(place: Replica, templates: Mapping[int, Mapping[str, Any]]) -> Replica:
    return Replica(
        place.name,
        place.role,
        place.index,
        place.is_chief,
        place.ranks,
        place.ranks_proof,
        templates[id(place.template)],
        place.restart_policy,
    )


def _trimmed_template(template: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what decides where a template's pods can run; nothing of one that makes no sense."""
    try:
        spec = template.get("spec") or {}
        kept = {
            field: [
                {key: each[key] for key in _KEPT_OF_CONTAINER if key in each}
                for each in spec.get(field) or ()
            ]
            for field in ("containers", "initContainers")
        }
        return {"spec": {**spec, **kept}}
    except (AttributeError, TypeError):
        return {}
