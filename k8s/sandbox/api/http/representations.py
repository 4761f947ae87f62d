"""How objects are written in an answer: whole, as rows of a table, or as metadata only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from k8s.sandbox.api.api_errors import ApiError
from k8s.sandbox.api.http import tables
from k8s.sandbox.api.served import ServedResource
from k8s.sandbox.api.storage.store import Record

Object = Mapping[str, Any]
META = "meta.k8s.io/v1"
"""The group and version of tables and of metadata alone."""


@dataclass(slots=True)
class Representation:
    """What one request accepts. A table's headings are sent once per stream."""

    served: ServedResource
    form: str = "Object"
    """Object, Table or PartialObjectMetadata."""
    include: str = "Metadata"
    """What a table's row holds besides its cells: None, Metadata or Object."""
    headings_sent: bool = False

    def record(self, record: Record) -> bytes:
        """Write a stored object."""
        return record.json if self.form == "Object" else self.obj(record.obj)

    def obj(self, obj: Object) -> bytes:
        """Write an object."""
        if self.form == "Table":
            meta = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
            return msgspec.json.encode(self._table([obj], meta))
        return msgspec.json.encode(self._partial(obj) if self.form == "PartialObjectMetadata" else obj)

    def many(self, records: Iterable[Record], meta: Mapping[str, Any]) -> bytes:
        """Write a list."""
        if self.form == "Table":
            return msgspec.json.encode(self._table((record.obj for record in records), meta))
        if self.form == "PartialObjectMetadata":
            kind, version = "PartialObjectMetadataList", META
            items = [msgspec.json.encode(self._partial(record.obj)) for record in records]
        else:
            kind, version = f"{self.served.resource.kind}List", self.served.resource.api_version
            items = [record.json for record in records]
        head = msgspec.json.encode({"kind": kind, "apiVersion": version, "metadata": meta})
        return head[:-1] + b',"items":[' + b",".join(items) + b"]}"

    def _table(self, objects: Iterable[Object], meta: Mapping[str, Any]) -> Object:
        key = self.served.key
        rows = []
        for obj in objects:
            row: dict[str, Any] = {"cells": tables.cells(key, obj)}
            if self.include != "None":
                row["object"] = obj if self.include == "Object" else self._partial(obj)
            rows.append(row)
        headings = None if self.headings_sent else tables.column_definitions(key)
        self.headings_sent = True
        return {
            "kind": "Table",
            "apiVersion": META,
            "metadata": meta,
            "columnDefinitions": headings,
            "rows": rows,
        }

    def _partial(self, obj: Object) -> Object:
        return {"kind": "PartialObjectMetadata", "apiVersion": META, "metadata": obj["metadata"]}


def accepted(served: ServedResource, accept: str, include: str) -> Representation:
    """Return the first form in an `Accept` header that we can write.

    Raises:
        ApiError: There is none.
    """
    for media in (accept or "*/*").split(","):
        kind, *parameters = (part.strip() for part in media.split(";"))
        if kind not in ("application/json", "application/*", "*/*"):
            continue
        asked = dict(parameter.partition("=")[::2] for parameter in parameters)
        form = asked.get("as", "Object").removesuffix("List")
        if form == "Object" or (
            form in ("Table", "PartialObjectMetadata")
            and asked.get("g") == "meta.k8s.io"
            and asked.get("v") == "v1"
        ):
            return Representation(served, form, include or "Metadata")
    raise ApiError(
        406,
        "NotAcceptable",
        "only the following media types are accepted: application/json, "
        "application/json;as=Table;v=v1;g=meta.k8s.io, "
        "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    )
