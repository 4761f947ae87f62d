from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from k8s.client.client import Client
from k8s.client.proxied import split_place
from k8s.logs import stores
from k8s.logs.lines import read_stamp, write_stamp
from k8s.logs.stores import _FIELDS, _LABELS, MAX_RANGE_NS, LogStore, StoredLog, find_logs
from k8s.text.errors import KubeError, NotFound
from tests.scripted.log_stores import (
    PROXY,
    START_NS,
    TOO_LARGE,
    ScriptedLoki,
    ScriptedVictoriaLogs,
    at,
    entries,
    rows,
)
from tests.scripted.server import Answer, Drop, Reply, ScriptedCluster, Stall, page, refusal

END_NS = at(3_600_000)
MANY = entries("bert-worker-0", [f"line {number}" for number in range(80)])
LOKI, VLOGS = PROXY.format("monitoring", "loki:3100"), PROXY.format("monitoring", "vlogs:9428")
PLACES = {"loki": "monitoring/loki:3100", "vlogs": "monitoring/vlogs:9428"}


async def find(client: Client, place: str = PLACES["loki"], *, namespace: str = "vision") -> Any:
    pods = "bert-worker-[0-9]+|bert-launcher"
    return await find_logs(client, place, namespace, pods, START_NS, END_NS)


async def lines_of(store: LogStore, log: StoredLog, most: int = 100_000) -> list[str]:
    found = await store.tail(log, START_NS, END_NS, most)
    return [each[read_stamp(each)[1] :].decode() for each in found]


@pytest.mark.parametrize("not_indexed", [(), (1,), (1, 2)], ids=["labels", "metadata", "all metadata"])
@pytest.mark.parametrize("names", _LABELS, ids="-".join)
async def test_loki_finds_pods_by_the_labels_of_any_collector(
    names: Sequence[str], not_indexed: Sequence[int]
) -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        held = [
            *entries("bert-worker-1", ["one", "two"], names),
            *entries("bert-large-worker-0", ["x"], names),
        ]
        ScriptedLoki(held, *(names[number] for number in not_indexed)).serve(cluster, LOKI)
        store, (log,) = await find(client)
        assert (log.namespace, log.pod, log.container) == ("vision", "bert-worker-1", "pytorch")
        assert await lines_of(store, log) == ["one", "two"]
        assert (await find(client, namespace=""))[1] == [log]


@pytest.mark.parametrize("names", _FIELDS, ids="-".join)
async def test_victorialogs_finds_pods_by_the_fields_of_any_collector(names: Sequence[str]) -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        held = rows("bert-worker-1", ["one", "two"], names) + rows("bert-large-worker-0", ["x"], names)
        ScriptedVictoriaLogs(held).serve(cluster, VLOGS)
        store, (log,) = await find(client, PLACES["vlogs"])
        assert (log.namespace, log.pod, log.container) == ("vision", "bert-worker-1", "pytorch")
        assert await lines_of(store, log) == ["one", "two"]
        assert (await find(client, PLACES["vlogs"], namespace=""))[1] == [log]


@pytest.mark.parametrize("most", [1, 7, 50, 10_000])
@pytest.mark.parametrize("kind", PLACES)
async def test_a_long_log_is_read_in_pages_without_a_gap(
    kind: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "PAGE", 10)
    monkeypatch.setattr(stores, "SMALL_PAGE", 1)
    texts = [f"line {number}" for number in range(60)]
    # Three lines have each time, so pages end between them.
    loki = ScriptedLoki(
        (labels, at(n // 3), t) for n, (labels, _, t) in enumerate(entries("bert-worker-0", texts))
    )
    loki.max_entries = 6
    stamps = [each["_time"] for each in rows("bert-worker-0", texts)]
    victoria = [{**each, "_time": stamps[n // 3]} for n, each in enumerate(rows("bert-worker-0", texts))]
    async with ScriptedCluster() as cluster, cluster.client() as client:
        loki.serve(cluster, LOKI)
        ScriptedVictoriaLogs(victoria).serve(cluster, VLOGS)
        store, (log,) = await find(client, PLACES[kind])
        found = await lines_of(store, log, most)
    assert (found if kind == "loki" else sorted(found, key=texts.index)) == texts[-most:]


@pytest.mark.parametrize("reply", [TOO_LARGE, Drop(), Stall()], ids=["refused", "cut off", "not answered"])
async def test_long_lines_are_read_in_small_pages(reply: Reply, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "PAGE_BYTES", 2**10)
    monkeypatch.setattr(stores, "WITHIN_S", 0.1 if isinstance(reply, Stall) else 30.0)
    texts = [f"{number}".ljust(256 if 100 <= number < 300 else 4) for number in range(1_000)]
    async with ScriptedCluster() as cluster, cluster.client() as client:
        loki = ScriptedLoki(entries("bert-worker-0", texts))
        loki.max_bytes, loki.too_large = 2**12, reply
        loki.serve(cluster, LOKI)
        store, (log,) = await find(client)
        assert await lines_of(store, log) == texts
        loki.max_bytes = 100
        with pytest.raises(KubeError):
            await lines_of(store, log)


@pytest.mark.parametrize("count", [4_000, 6_000])
@pytest.mark.parametrize("kind", PLACES)
async def test_lines_of_one_time_are_read_at_once(kind: str, count: int) -> None:
    texts = [f"line {number}" for number in range(count)]
    (labels, _, _), (row, *_) = entries("bert-worker-0", texts)[0], rows("bert-worker-0", texts)
    ends = [(labels, at(0), "first"), (labels, at(2), "last")]
    loki = ScriptedLoki([*ends, *((labels, at(1), text) for text in texts)])
    held = [{**row, "_time": write_stamp(stamp_ns), "_msg": text} for _, stamp_ns, text in loki.held]
    async with ScriptedCluster() as cluster, cluster.client() as client:
        loki.serve(cluster, LOKI)
        ScriptedVictoriaLogs(held).serve(cluster, VLOGS)
        store, (log,) = await find(client, PLACES[kind])
        first, *others, last = await lines_of(store, log)
        is_cut = kind == "loki" and count > 5_000
        assert (first, last, len(set(others))) == ("first", "last", 5_000 if is_cut else count)
        assert store.gaps == ("only 5,000 of the entries with one time were read" if is_cut else "")


async def test_a_store_that_searches_no_long_ranges_is_read_by_days() -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        spread = [(labels, at(n * 30_000_000), text) for n, (labels, _, text) in enumerate(MANY)]
        loki = ScriptedLoki(spread)
        loki.max_hours = 100
        loki.serve(cluster, LOKI)
        store, (log,) = await find(client)
        found = await store.tail(log, START_NS, START_NS + MAX_RANGE_NS, 100)
        assert [each[read_stamp(each)[1] :].decode() for each in found] == [text for *_, text in MANY]
        (newest,) = await store.tail(log, START_NS, START_NS + MAX_RANGE_NS, 1)
        assert newest == found[-1]


async def test_a_log_that_is_longer_than_memory_allows_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "MAX_ENTRIES", 20)
    async with ScriptedCluster() as cluster, cluster.client() as client:
        ScriptedLoki(entries("bert-worker-0", map(str, range(30)))).serve(cluster, LOKI)
        store, (log,) = await find(client)
        assert (await lines_of(store, log, 5))[0] == "25" and not store.gaps
        assert (await lines_of(store, log, 20))[0] == "10" and store.gaps


CRI = "2025-11-24T16:00:00.5Z stderr "
DOCKER = json.dumps({"log": "step 1\n", "stream": "stdout", "time": "x"})


@pytest.mark.parametrize(
    ("held", "lines"),
    [
        ([f"{CRI}P a long ", f"{CRI}F line"], ["a long line"]),
        ([f"{CRI}F ", "plain"], ["", "plain"]),
        ([f"{CRI}P unfinished"], ["unfinished"]),
        ([DOCKER, '{"log": "the program\'s own"}'], ["step 1", '{"log": "the program\'s own"}']),
        (['{"log": ', "no time stderr F x"], ['{"log": ', "no time stderr F x"]),
        (["Traceback:\n  File x\nMemoryError"], ["Traceback:", "  File x", "MemoryError"]),
        (["\x1b[31mred\r\x07"], ["\x1b[31mred\r\x07"]),
    ],
)
async def test_lines_are_as_the_program_wrote_them(held: list[str], lines: list[str]) -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        ScriptedLoki(entries("bert-worker-0", held)).serve(cluster, LOKI)
        store, (log,) = await find(client)
        assert await lines_of(store, log) == lines
        (stamped, *_) = await store.tail(log, START_NS, END_NS, 9)
        assert read_stamp(stamped)[0] == at(500 if held[0].startswith(CRI) else 0)


async def test_malformed_entries_are_left_out_and_mentioned() -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        server = ScriptedVictoriaLogs(rows("bert-worker-0", ["one", "two", "three"]))
        server.junk = (b'{"_time": "20', b"\xff", b"[" * 100_000)
        server.serve(cluster, VLOGS)
        store, (log,) = await find(client, PLACES["vlogs"])
        assert await lines_of(store, log) == ["one", "two", "three"] and "malformed" in store.gaps
        # One of the size of a page ends it, for no time tells where the next page begins.
        server.held, server.junk = [], (b"[",)
        assert await store.tail(log, START_NS, END_NS, 1) == []


async def test_names_that_kubernetes_does_not_allow_are_left_out() -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        ScriptedLoki(entries("bert-worker-0", ["one"])).serve(cluster, LOKI)
        place = {"namespace": "vision", "pod": "bert-worker-0"}
        hostile = [{**place, "pod": 'bert-0"} | line_format "x'}, {**place, "container": "\x1b]0;x\x07"}, {}]
        cluster.replace(f"{LOKI}/loki/api/v1/series", Answer({"data": hostile}))
        with pytest.raises(NotFound, match=r"^Loki monitoring/loki has no line of it\.$"):
            await find(client)


TENANT = "It requires a tenant: `log_store: TENANT@monitoring/loki` in config.yaml."
BUSY = refusal(503, 'no endpoints available for service "loki"', "ServiceUnavailable")


@pytest.mark.parametrize(
    ("reply", "sentence"),
    [
        (refusal(403, 'User "li" cannot get services/proxy', "Forbidden"), "cannot get services/proxy"),
        (Answer(b"no org id\n", 401), TENANT),
        (Answer(b"<h1>401 Required</h1>", 401), "It requires a password or a token, and none can be given."),
        (Answer(b"<html>\n<h1>Forbidden</h1></html>", 403), "It answers 403 with a web page."),
        (Answer(b"", 302), "It answers 302: no reason given"),
        (Answer(b"<!DOCTYPE html><title>Log in</title>"), "It answers with a web page."),
        (Answer(b'{"status": "success", "data": [1'), "The answer is malformed"),
        (Answer(b'{"status": "success", "data": {"a": 1}}'), "The answer is malformed"),
        (Answer(b"too many \x1b[31moutstanding requests", 429), "It answers 429: too many"),
        (Answer(b"404 page not found", 404), "It answers 404: 404 page not found"),
        (BUSY, 'no endpoints available for service "loki"'),
        (Stall(), "It did not answer in time."),
    ],
)
async def test_a_store_that_cannot_be_read_is_one_sentence(
    reply: Reply, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "WITHIN_S", 0.05 if isinstance(reply, Stall) else 30.0)
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(f"{LOKI}/loki/api/v1/labels", reply)
        with pytest.raises(NotFound) as refused:
            await find(client)
    what = refused.value.what
    assert what.startswith("Loki monitoring/loki ") and sentence in what
    assert what.isprintable()


def service(name: str, namespace: str, port: tuple[str, int], component: str) -> dict[str, Any]:
    meta = {"name": name, "namespace": namespace, "labels": {"app.kubernetes.io/component": component}}
    return {"metadata": meta, "spec": {"ports": [{"name": port[0], "port": port[1]}]}}


async def test_a_store_is_found_by_the_services_of_the_charts() -> None:
    loki, vl = ("write", "canary", "read", "gateway"), "vl-victoria-logs-cluster"
    services = [service(f"loki-{each}", "monitoring", ("http-metrics", 3100), each) for each in loki]
    services += [service(f"{vl}-{each}", "logs", ("http", 9471), each) for each in ("vlinsert", "vlselect")]
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say("/api/v1/services", page(services), page([]))
        gateway = ScriptedLoki(entries("other", [""]))
        gateway.serve(cluster, PROXY.format("monitoring", "loki-gateway:http-metrics"))
        select = ScriptedVictoriaLogs(rows("bert-worker-0", ["here"]))
        select.serve(cluster, PROXY.format("logs", f"{vl}-vlselect:http"))
        assert (await find(client, ""))[0].name == f"VictoriaLogs logs/{vl}-vlselect"
        # One service of each store is enough.
        assert len([each for each in cluster.requests if "/proxy/" in each.path]) == 3
        cluster.replace("/api/v1/services", page([]))
        with pytest.raises(NotFound, match=r"^No Loki or VictoriaLogs was found in the cluster\.$"):
            await find(client, "")
        cluster.replace("/api/v1/services", refusal(403, "no", "Forbidden"))
        ScriptedLoki(entries("bert-worker-0", [""])).serve(cluster, PROXY.format("loki", "loki:3100"))
        assert (await find(client, ""))[0].name == "Loki loki/loki"


@pytest.mark.parametrize("is_url", [False, True], ids=["service", "url"])
async def test_a_tenant_is_named_and_a_url_gets_no_credentials(is_url: bool) -> None:
    token = {"BearerToken": "Bearer secret"}
    async with ScriptedCluster() as cluster, cluster.client(api_key=token) as client:
        loki = ScriptedLoki(entries("bert-worker-0", ["one"]))
        loki.tenant = "lab"
        loki.serve(cluster, "/at/loki" if is_url else LOKI)
        place = f"{cluster.host}/at/loki" if is_url else PLACES["loki"]
        store, (log,) = await find(client, f"lab@{place}")
        assert await lines_of(store, log) == ["one"]
        sent = {each.headers.get("Authorization") for each in loki.asked}
        assert sent == {None if is_url else "Bearer secret"}
        victoria = ScriptedVictoriaLogs(rows("bert-worker-0", ["one"]))
        victoria.serve(cluster, VLOGS)
        await find(client, f"12:34@{PLACES['vlogs']}")
        headers = victoria.asked[0].headers
        assert (headers["AccountID"], headers["ProjectID"]) == ("12", "34")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("monitoring/loki:3100", ("", "monitoring/loki:3100")),
        ("lab|ml@logs/https:loki:443/x", ("lab|ml", "logs/https:loki:443/x")),
        ("lab@https://logs.example.com:8443/loki", ("lab", "https://logs.example.com:8443/loki")),
        ("12:34@logs/vlogs", ("12:34", "logs/vlogs")),
        *((text, None) for text in ("loki", "ftp://x", "https://li:secret@x", "a b@c/d", "a@b@c/d", "")),
        *(
            (text, None)
            for text in ("http://x?token=secret", "http://x/#secret", "lab@http://li:secret@x/loki")
        ),
        *((text, None) for text in ("http://[::1", "http://x:99999", "http://x:y", "http:///loki")),
    ],
)
def test_a_place_is_a_service_or_a_url_with_a_tenant(text: str, found: tuple[str, str] | None) -> None:
    if found is not None:
        assert split_place(text) == found
        return
    with pytest.raises(ValueError) as refused:
        split_place(text)
    assert "secret" not in str(refused.value)
