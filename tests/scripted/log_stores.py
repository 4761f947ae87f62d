"""Loki and VictoriaLogs, as far as their answers to queries for logs go, behind a scripted cluster's proxy.

Sources: Loki, "HTTP API", and its errors; VictoriaLogs, "Querying logs".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from k8s.logs.lines import read_stamp, write_stamp
from k8s.logs.stores import _FIELDS, _LABELS
from tests.scripted.server import Answer, Asked, Compute, Reply, ScriptedCluster

START_NS = 1_764_000_000 * 10**9
PROXY = "/api/v1/namespaces/{}/services/{}/proxy"
_LARGER = "trying to send message larger than max (4195318 vs. 4194304)"
TOO_LARGE = Answer(f"rpc error: code = ResourceExhausted desc = {_LARGER}".encode(), 500)
_MATCHER = re.compile(r'"?([\w.]+)"?\s*(:=|:~|=~|=)\s*"([^"]*)"')


_Entry = tuple[dict[str, str], int, str]


def at(number: int) -> int:
    """Return a moment: the start and so many milliseconds."""
    return START_NS + number * 10**6


def entries(
    pod: str, lines: Iterable[str], names: Sequence[str] = _LABELS[0], *, first_ns: int = START_NS
) -> list[_Entry]:
    """Return lines of a pod, a millisecond apart; `names` are the labels of namespace, pod and container."""
    labels = dict(zip(names, ("vision", pod, "pytorch"), strict=True))
    return [(labels, first_ns + number * 10**6, line) for number, line in enumerate(lines)]


def rows(pod: str, lines: Iterable[str], names: Sequence[str] = _FIELDS[0]) -> list[dict[str, str]]:
    """Return the same as VictoriaLogs holds it."""
    found = entries(pod, lines, names)
    return [{"_time": write_stamp(at_ns), "_msg": line, **labels} for labels, at_ns, line in found]


def _matches(fields: Mapping[str, str], matchers: Iterable[tuple[str, str, str]]) -> bool:
    return all(
        re.fullmatch(text.removeprefix("^").removesuffix("$"), fields.get(key, "")) is not None
        if "~" in operator
        else fields.get(key) == text
        for key, operator, text in matchers
    )


class ScriptedLoki:
    """One that holds `entries`; the labels in `metadata` are not indexed."""

    def __init__(self, held: Iterable[_Entry], *metadata: str) -> None:
        self.held, self.metadata = list(held), metadata
        self.max_entries, self.max_bytes, self.max_hours, self.tenant = 5000, 2**22, 721, ""
        self.too_large: Reply = TOO_LARGE
        self.asked: list[Asked] = []

    def serve(self, cluster: ScriptedCluster, root: str) -> None:
        for endpoint in ("labels", "series", "query", "query_range"):
            cluster.say(f"{root}/loki/api/v1/{endpoint}", Compute(self._answer))

    def _answer(self, asked: Asked) -> Reply:
        self.asked.append(asked)
        query, endpoint = asked.query, asked.path.rpartition("/")[2]
        if self.tenant and asked.headers.get("X-Scope-OrgID") != self.tenant:
            return Answer(b"no org id\n", 401)
        start, end = int(query.get("start", 0)), int(query.get("end") or query["time"])
        if end - start > 721 * 3600 * 10**9 and endpoint != "query":
            return Answer(b"the query time range exceeds the limit (query length: 800h, limit: 30d1h)", 400)
        if endpoint == "query_range" and end - start > self.max_hours * 3600 * 10**9:
            return Answer(b"too many outstanding requests", 429)
        if endpoint == "labels":
            return _data(sorted({key for labels, *_ in self.held for key in labels} - {*self.metadata}))
        inside, _, after = query.get("match[]", query.get("query", "")).partition('"}')
        selected = _MATCHER.findall(inside.partition("{")[2] + '"')
        assert not {key for key, *_ in selected} & {*self.metadata}
        matchers = [*selected, *_MATCHER.findall(after)]
        found = [each for each in self.held if start <= each[1] < end and _matches(each[0], matchers)]
        streams: dict[str, list[list[str]]] = {}
        if endpoint == "query_range":
            if (limit := int(query["limit"])) > self.max_entries:
                words = "max entries limit per query exceeded, limit > max_entries_limit_per_query"
                return Answer(f"{words} ({limit} > {self.max_entries})".encode(), 400)
            assert query["direction"] == "backward"
            found = sorted(found, key=lambda each: each[1])[::-1][:limit]
            if sum(len(line) for *_, line in found) > self.max_bytes:
                return self.too_large
        for labels, stamp_ns, line in found:
            streams.setdefault(json.dumps(labels), []).append([str(stamp_ns), line])
        if endpoint == "series":
            return _data([json.loads(labels) for labels in streams])
        if endpoint == "query":
            by = re.findall(r"sum by \(([\w,]+)\)", query["query"])[0].split(",")
            counts = [{key: text for key, text in json.loads(each).items() if key in by} for each in streams]
            return _data(
                {"resultType": "vector", "result": [{"metric": each, "value": [1, "2"]} for each in counts]}
            )
        result = [{"stream": json.loads(labels), "values": values} for labels, values in streams.items()]
        return _data({"resultType": "streams", "result": result, "stats": {}})


def _data(data: object) -> Answer:
    return Answer({"status": "success", **({"data": data} if data else {})})


class ScriptedVictoriaLogs:
    """One whose entries have any fields."""

    def __init__(self, held: Iterable[dict[str, str]]) -> None:
        self.held = list(held)
        self.junk: tuple[bytes, ...] = ()  # lines after the others
        self.asked: list[Asked] = []

    def serve(self, cluster: ScriptedCluster, root: str) -> None:
        cluster.say(f"{root}/select/logsql/query", Compute(self._answer))

    def _answer(self, asked: Asked) -> Reply:
        self.asked.append(asked)
        terms, pipe, *last = asked.query["query"].split(" | ")
        start, end = (read_stamp(asked.query[name].encode())[0] for name in ("start", "end"))
        found = [
            each
            for each in self.held
            if start <= read_stamp(each["_time"].encode())[0] <= end
            and any(_matches(each, _MATCHER.findall(term)) for term in terms.split(" or "))
        ]
        verb, _, names = pipe.partition(" ")
        fields = re.findall(r"[\w.]+", names.removeprefix("by"))
        rows: list[dict[str, Any]] = [{key: each[key] for key in fields if key in each} for each in found]
        if verb == "uniq":
            rows = [dict(pairs) for pairs in dict.fromkeys(tuple(each.items()) for each in rows)]
        elif last:
            first = int(last[0].split()[-3])
            rows = sorted(rows, key=lambda each: str(each["_time"]))[::-1][first : first + 1]
        return Answer(
            b"".join(line + b"\n" for line in (*(json.dumps(each).encode() for each in rows), *self.junk))
        )
