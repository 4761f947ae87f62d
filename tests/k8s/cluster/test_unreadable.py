"""Objects with a field of the wrong type hide neither themselves nor others."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from k8s.kinds import KINDS
from k8s.kinds.parse import JobReader
from k8s.models import Node, Pod, Reader
from k8s.models.event import Event
from k8s.reasons.pending import PendingReasons
from k8s.status import Status
from tests import FIXTURES
from tests.support.objects import join, listed, recorded

NONSENSE: tuple[Any, ...] = (
    *(0, -5, 2**70, 1.5, True, "garbage", "0001-01-01T00:00:00+23:00", "", [], {}),
    *([1], ["a"], [[]], [{}], [{"name": 3}], {"a": 1}, {"a": {"b": []}}, {"name": "c", "x": [None]}, None),
)


def _named(obj: Any) -> bool:
    meta = obj.get("metadata")
    return isinstance(meta, dict) and isinstance(meta.get("name"), str)


def _paths(obj: Any, *above: str | int) -> Iterator[tuple[str | int, ...]]:
    pairs = obj.items() if isinstance(obj, dict) else enumerate(obj) if isinstance(obj, list) else ()
    for key, value in pairs:
        yield (*above, key)
        yield from _paths(value, *above, key)


def _with(obj: Any, path: tuple[str | int, ...], value: Any) -> Any:
    made = copy.deepcopy(obj)
    inner = made
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return made


def _objects(path: Path) -> list[Any]:
    return list(yaml.safe_load_all(path.read_text()))


def _jobs() -> list[Any]:
    found = [each for path in sorted((FIXTURES / "objects").iterdir()) for each in _objects(path)]
    served = {(kind.resource.kind, kind.resource.api_version) for kind in KINDS}
    mine = [each for each in found if (each["kind"], each["apiVersion"]) in served]
    return list(json.loads(json.dumps(mine, default=str)))


JOBS = _jobs()
CASES: list[tuple[str, Any, Any]] = [
    *((f"{job['kind']} {job['apiVersion']}", job, None) for job in JOBS),
    *(("Pod", each, Reader(Pod)) for each in recorded("pods")[:3]),
    *(("Node", each, Reader(Node)) for each in recorded("nodes")[:1]),
    *(("Event", each, Reader(Event)) for each in recorded("events")[:1]),
]


@pytest.mark.parametrize(
    ("title", "obj", "reader"), CASES, ids=lambda each: each if isinstance(each, str) else ""
)
@given(draw=st.data())
@settings(max_examples=60, deadline=None)
def test_a_field_of_the_wrong_type_does_not_hide_any_object(
    title: str, obj: Any, reader: Any, draw: st.DataObject
) -> None:
    kind = next(
        (each for each in KINDS if title == f"{each.resource.kind} {each.resource.api_version}"), None
    )
    reader = reader or JobReader(kind)  # type: ignore[arg-type]
    broken = obj
    for _ in range(draw.draw(st.integers(1, 3))):
        path = draw.draw(st.sampled_from(list(_paths(broken))))
        broken = _with(broken, path, draw.draw(st.sampled_from(NONSENSE)))
    other = _with(_with(obj, ("metadata", "name"), "other"), ("metadata", "uid"), "other")
    meta = attrgetter("meta" if kind else "metadata")
    _, read, unreadable = reader.read_list(listed(broken, other))
    by_name = {meta(each).name: each for each in read}
    assert not meta(by_name["other"]).unreadable
    flagged = [each for each in read if meta(each).unreadable]
    assert len(read) - len(flagged) + unreadable == 2
    assert not _named(broken) or broken["metadata"]["name"] in by_name
    jobs = read if kind else []
    pods, nodes = (read if title == each else [] for each in ("Pod", "Node"))
    node_rows, job_rows = join(nodes, pods, jobs)
    for _ in (reasons := PendingReasons()).steps(job_rows, nodes, node_rows, jobs):
        pass
    shown = {row.ref.name: row for row in reasons.shown(job_rows)}
    for each in flagged if kind else ():
        row = shown[meta(each).name]
        assert row.status is Status.UNKNOWN and meta(each).unreadable in row.reason
    if nodes:
        assert {row.name for row in node_rows} == by_name.keys()
