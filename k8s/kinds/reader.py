"""Decodes the jobs of one kind, whatever nonsense some of them may hold."""

from __future__ import annotations

import msgspec

from k8s.kinds.base import DeclaredJob, JobKind, Manifest
from k8s.models import ListMeta, Reader


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
            return self._kind.parse(obj)
        except (AttributeError, TypeError, KeyError, ValueError) as error:
            raise msgspec.ValidationError(f"not a {self._kind.title}: {error}") from error
