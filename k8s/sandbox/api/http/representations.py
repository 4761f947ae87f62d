"""Representations of objects in answers: JSON or rows of a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from k8s.sandbox.api.api_errors import ApiError
from k8s.sandbox.api.http import tables
from k8s.sandbox.api.served import ServedResource
from k8s.sandbox.api.store import Record

Object = Mapping[str, Any]
META = "meta.k8s.io/v1"


@dataclass(slots=True)
class Representation:
    """The form in which one request gets objects; a table's headings are sent once per stream."""

    served: ServedResource
    is_table: bool = False
    # Object part of a table's rows: None, Metadata or Object.
    include: str = "Metadata"
    headings_sent: bool = False

    def record(self, record: Record) -> bytes:
        """Encode a stored object."""
        return self.obj(record.obj) if self.is_table else record.json

    def obj(self, obj: Object) -> bytes:
        """Encode an object."""
        if self.is_table:
            return self._table([obj], {"resourceVersion": obj["metadata"].get("resourceVersion", "")})
        return msgspec.json.encode(obj)

    def many(self, records: Iterable[Record], meta: Mapping[str, Any]) -> bytes:
        """Encode a list."""
        if self.is_table:
            return self._table((record.obj for record in records), meta)
        resource = self.served.resource
        head = {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": meta}
        items = b",".join(record.json for record in records)
        return msgspec.json.encode(head)[:-1] + b',"items":[' + items + b"]}"

    def _table(self, objects: Iterable[Object], meta: Mapping[str, Any]) -> bytes:
        key = self.served.key
        rows = []
        for obj in objects:
            row: dict[str, Any] = {"cells": tables.cells(key, obj)}
            if self.include == "Object":
                row["object"] = obj
            elif self.include != "None":
                partial = {"kind": "PartialObjectMetadata", "apiVersion": META}
                row["object"] = {**partial, "metadata": obj["metadata"]}
            rows.append(row)
        headings = None if self.headings_sent else tables.column_definitions(key)
        self.headings_sent = True
        head = {"kind": "Table", "apiVersion": META, "metadata": meta, "columnDefinitions": headings}
        return msgspec.json.encode({**head, "rows": rows})


def accepted(served: ServedResource, accept: str, include: str) -> Representation:
    """Return the first form in an `Accept` header that this server supports.

    Raises:
        ApiError: The server supports no form in the header.
    """
    for media in (accept or "*/*").split(","):
        kind, *parameters = (part.strip() for part in media.split(";"))
        if kind not in ("application/json", "application/*", "*/*"):
            continue
        options = dict(parameter.partition("=")[::2] for parameter in parameters)
        group_version = f"{options.get('g')}/{options.get('v')}"
        if options.get("as") == "Table" and group_version == META:
            return Representation(served, is_table=True, include=include or "Metadata")
        if "as" not in options:
            return Representation(served)
    raise ApiError(
        406,
        "NotAcceptable",
        "only the following media types are accepted: application/json, "
        "application/json;as=Table;v=v1;g=meta.k8s.io",
    )
