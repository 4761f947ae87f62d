"""The client against a server that answers anything, or nothing."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from k8s.client import transport
from k8s.client.auth.kubeconfig import ConfigOverrides
from k8s.client.client import Client
from k8s.client.transport import MOST_ANSWER_BYTES, MOST_LINE_BYTES, lines, warnings_in
from k8s.cluster.mirror import Mirror
from k8s.models import Meta, Pod, Reader
from k8s.models.resources import JOBS, PODS
from k8s.text.errors import (
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    KubeError,
    NotFound,
    ServerFailed,
    Throttled,
    Unauthorized,
    Unreachable,
)
from tests.k8s.client.test_cluster_config import config, write
from tests.scripted.certificates import issue, make_authority, server_tls
from tests.scripted.server import (
    SUCCESS,
    WAIT_S,
    Answer,
    Asked,
    Compute,
    Cut,
    Drop,
    Reply,
    ScriptedCluster,
    Socket,
    Stall,
    Stream,
    page,
    refusal,
)

ALL_PODS = "/api/v1/pods"
ONE = "/api/v1/namespaces/default/pods/a"


async def test_http_error_codes_map_to_exceptions_with_the_operation_and_the_reason() -> None:
    cases: list[tuple[int, type[KubeError]]] = [
        (400, Invalid),
        (401, Unauthorized),
        (403, Forbidden),
        (404, NotFound),
        (409, Conflict),
        (410, Expired),
        (422, Invalid),
        (429, Throttled),
        (500, ServerFailed),
        (503, ServerFailed),
    ]
    for code, kind in cases:
        async with ScriptedCluster() as cluster, cluster.client() as client:
            cluster.say(ONE, refusal(code, "because of the moon"))
            with pytest.raises(kind) as caught:
                await client.get(PODS, "a", "default")
        assert type(caught.value) is kind
        assert caught.value.what == "Could not read Pod a."
        assert "because of the moon" in caught.value.why


async def test_a_malformed_response_body_raises_server_failed() -> None:
    cases: list[bytes] = [b"<html>504 Gateway</html>", b"", b"[]", b"null", b"\xff\xfe", b"[" * 100_000]
    for body in cases:
        async with ScriptedCluster() as cluster, cluster.client() as client:
            cluster.say(ONE, Answer(body), Answer(body, status=502))
            with pytest.raises(ServerFailed):
                await client.get(PODS, "a", "default")
            with pytest.raises(ServerFailed):
                await client.get(PODS, "a", "default")


async def test_a_server_that_never_answers_is_given_up() -> None:
    async with ScriptedCluster() as cluster, cluster.client(request_s=0.05) as client:
        cluster.say(ALL_PODS, Stall())
        cluster.say(ALL_PODS, Stall(), watch=True)
        with pytest.raises(Unreachable, match="in time"):
            await client.list_page(PODS)
        with pytest.raises(Unreachable, match="in time"):
            async for _ in client.watch(PODS, version="1", timeout_s=300):
                pytest.fail("nothing was sent")


async def test_a_watch_that_falls_silent_is_given_up(cluster: ScriptedCluster, client: Client) -> None:
    cluster.say(ALL_PODS, Stream(), watch=True)
    with pytest.raises(Unreachable, match="in time"):
        async with client.stream(ALL_PODS, "watch pods", query={"watch": "1"}, idle_s=0.05) as body:
            async for _ in lines(body, "watch pods"):
                pytest.fail("nothing was sent")


async def test_a_list_goes_on_until_the_last_page(cluster: ScriptedCluster, client: Client) -> None:
    cluster.say(ALL_PODS, page([1, 2], following="next"), page([3]))
    found: list[Any] = await client.list(PODS, label_selector="a=b")
    assert found == [1, 2, 3]
    first, second = cluster.asked(ALL_PODS)
    assert (first.query["limit"], first.query["labelSelector"]) == ("500", "a=b")
    assert (second.query["continue"], second.query["labelSelector"]) == ("next", "a=b")


async def test_a_watch_requests_bookmarks_and_yields_complete_lines() -> None:
    stream = Stream(b'{"a": "', b"\xc3", b'\xa9"}\n{"b":', b" 1}\n\n", b"last").end()
    opened = []
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(ALL_PODS, stream, watch=True)
        found = [
            line
            async for line in client.watch(PODS, version="7", timeout_s=9, on_open=lambda: opened.append(1))
        ]
        query = cluster.asked(ALL_PODS, watch=True)[0].query
    assert found == ['{"a": "é"}'.encode(), b'{"b": 1}', b"", b"last"]
    sent = query["resourceVersion"], query["allowWatchBookmarks"], query["timeoutSeconds"]
    assert sent == ("7", "true", "9")
    assert opened == [1]


async def test_a_line_of_a_watch_may_be_longer_than_any_buffer() -> None:
    long = b"x" * (5 * 2**20)
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(ALL_PODS, Stream(long, b"\n", b"y\n").end(), watch=True)
        assert [len(line) async for line in client.watch(PODS, version="1")] == [len(long), 1]


async def test_leaving_a_watch_ends_its_connection() -> None:
    stream = Stream(b"one\n")
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(ALL_PODS, stream, watch=True)
        watch = client.watch(PODS, version="1")
        assert await anext(watch) == b"one"
        await watch.aclose()
        await stream.is_over.wait()


async def test_a_dry_run_create_requests_strict_field_validation() -> None:
    path = "/apis/batch/v1/namespaces/vision/jobs"
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(path, Compute(lambda asked: Answer(json.loads(asked.body), 201)), method="POST")
        made = await client.create(JOBS, {"metadata": {"name": "a"}}, "vision", dry_run=True)
        await client.create(JOBS, {"metadata": {"name": "a"}}, "vision")
        rehearsal, real = cluster.asked(path, method="POST")
    assert made == {"metadata": {"name": "a"}}
    assert (rehearsal.query["dryRun"], rehearsal.query["fieldValidation"]) == ("All", "Strict")
    assert "dryRun" not in real.query
    assert real.headers["Content-Type"] == "application/json"


async def test_a_patch_is_a_merge_patch(cluster: ScriptedCluster, client: Client) -> None:
    cluster.say(f"{ONE}/status", Answer({}), method="PATCH")
    await client.patch(PODS, "a", {"x": 1}, "default", subresource="status")
    asked = cluster.asked(f"{ONE}/status", method="PATCH")[0]
    assert asked.headers["Content-Type"] == "application/merge-patch+json"
    assert json.loads(asked.body) == {"x": 1}


async def test_a_delete_may_be_held_to_one_object(cluster: ScriptedCluster, client: Client) -> None:
    cluster.say(ONE, Answer({}), method="DELETE")
    await client.delete(PODS, "a", "default", uid="u", grace_period_s=0)
    options = json.loads(cluster.asked(ONE, method="DELETE")[0].body)
    assert options["preconditions"] == {"uid": "u"}
    assert (options["gracePeriodSeconds"], options["propagationPolicy"]) == (0, "Background")


async def test_a_log_comes_as_its_process_wrote_it() -> None:
    raw = b"loss 0.1\r\nno end \xff\x00"
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(f"{ONE}/log", Stream(raw[:4], raw[4:]).end())
        async with client.log(
            "a", "default", container="pytorch", tail=10, follow=True, timestamps=True
        ) as body:
            assert await body.read() == raw
        query = cluster.asked(f"{ONE}/log")[0].query
    assert query == {"container": "pytorch", "follow": "true", "tailLines": "10", "timestamps": "true"}


async def test_a_hundred_streams_do_not_keep_a_request_waiting(
    cluster: ScriptedCluster, client: Client
) -> None:
    cluster.say(f"{ONE}/log", *[Stream(b"x") for _ in range(100)])
    cluster.say("/version", Answer({"gitVersion": "v1"}))

    async def follow() -> None:
        async with client.log("a", "default", follow=True) as body:
            await body.read()

    streams = [asyncio.create_task(follow()) for _ in range(100)]
    await cluster.until_asked(f"{ONE}/log", 100)
    assert await client.get_json("/version") == {"gitVersion": "v1"}
    for stream in streams:
        stream.cancel()
    await asyncio.wait(streams)


@pytest.mark.parametrize("protocol", ["v5.channel.k8s.io", "v4.channel.k8s.io"])
async def test_a_command_gives_its_channels_as_bytes(protocol: str) -> None:
    frames = [(1, b""), (1, b"\xc3"), (2, b"oops"), (1, b"\xa9"), SUCCESS]
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(f"{ONE}/exec", Socket(frames, (protocol,)))
        output = b""
        async with client.exec("a", "default", ["cat", "x y"], container="main") as socket:
            assert socket.protocol == protocol
            async for message in socket:
                if message.data[0] == 1:
                    output += message.data[1:]
    assert output.decode() == "é"


async def test_errors_do_not_contain_the_bearer_token() -> None:
    secret = "sha256~very-secret"
    key = {"BearerToken": f"Bearer {secret}"}
    async with ScriptedCluster() as cluster, cluster.client(api_key=key) as client:
        cluster.say(ONE, refusal(403, "no"), Drop(), Cut(), Answer(b"?"), Answer([]))
        for _ in range(5):
            with pytest.raises(KubeError) as caught:
                await client.get(PODS, "a", "default")
            assert secret not in f"{caught.value} {caught.value!r} {caught.value.__cause__!r}"
        assert cluster.asked(ONE)[0].headers["Authorization"] == f"Bearer {secret}"


async def test_errors_do_not_contain_the_proxy_password() -> None:
    async with ScriptedCluster() as cluster:
        host = cluster.host
        client = cluster.client(proxy=host.replace("//", "//li:hidden@"))
        cluster.say(ONE, refusal(407, "no"))
    async with client:
        with pytest.raises(KubeError) as caught:
            await client.get(PODS, "a", "default")
    assert "hidden" not in str(caught.value)


async def test_a_server_is_trusted_by_the_kubeconfigs_certificate_and_by_no_other(tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    async with ScriptedCluster(server_tls(issue(authority, "server"))) as cluster:
        cluster.say("/version", Answer({"gitVersion": "v1"}))
        for trusting in ({"ssl_ca_cert": str(authority.path)}, {"verify_ssl": False}):
            async with cluster.client(**trusting) as client:
                assert await client.get_json("/version") == {"gitVersion": "v1"}
        async with cluster.client() as stranger:
            with pytest.raises(Unreachable, match="certificate"):
                await stranger.get_json("/version")


async def test_server_warnings_are_reported_for_writes_but_not_for_reads() -> None:
    said = '299 - "first \\"word\\", a \\\\ and more", 299 kube "second"'
    async with ScriptedCluster() as cluster, cluster.client() as client:
        headers = {"Warning": said}
        cluster.say("/api/v1/namespaces/n/pods", Answer({"kind": "Pod"}, 201, headers), method="POST")
        cluster.say("/api/v1/namespaces/n/pods/p", Answer({"kind": "Pod"}, 200, headers))
        await client.create(PODS, {"metadata": {"name": "p"}}, "n")
        heard: list[str] = []
        client.on_warning(heard.append)
        await client.get(PODS, "p", "n")
        assert heard == []
        await client.create(PODS, {"metadata": {"name": "p"}}, "n")
        assert heard == ['first "word", a \\ and more', "second"]


def test_a_malformed_or_non_299_warning_header_is_ignored() -> None:
    cases: list[str] = ["", "299", '299 - "open', '199 - "other"', "299 -", '299 - "\\']
    for header in cases:
        assert warnings_in([header]) == []


def test_repeated_warnings_are_deduplicated() -> None:
    assert warnings_in(['299 - "a"', '299 - "b", 299 - "a"']) == ["a", "b"]


BOMB = gzip.compress(bytes(MOST_ANSWER_BYTES + (1 << 20)), 1)
NUMBERS = count(1)
Request = Callable[[Client], Awaitable[object]]


class Trickle:
    """A body that sends a byte now and then, for ever or until it is an empty list."""

    def __init__(self, times: int | None = None) -> None:
        self._times = times

    async def answer(self, request: web.Request, closing: asyncio.Event) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for sent in count():
            if closing.is_set() or sent == self._times:
                break
            await response.write(b" ")
            await asyncio.sleep(0.01)
        if not closing.is_set():
            await response.write(b"{}")
        return response


async def list_all(client: Client) -> object:
    return await client.list(PODS)


async def mirror_all(client: Client) -> object:
    mirror: Mirror[Pod] = Mirror(client, PODS, ("",), Reader(Pod), _meta, lambda: None)
    await mirror.list_once()
    return None


async def watch_all(client: Client) -> object:
    return [line async for line in client.watch(PODS, version="1")]


def _meta(pod: Pod) -> Meta:
    return pod.metadata


def next_page(_: Asked) -> Answer:
    return page([], following=str(next(NUMBERS)))


def long_line() -> Stream:
    return Stream(bytes(MOST_LINE_BYTES + 1)).end()


@pytest.mark.parametrize(
    ("request_", "reply", "error", "words"),
    [
        (list_all, Answer(BOMB, headers={"Content-Encoding": "gzip"}), ServerFailed, "over 256 MiB"),
        (mirror_all, Answer(BOMB, headers={"Content-Encoding": "gzip"}), ServerFailed, "over 256 MiB"),
        (list_all, page([], following="same"), ServerFailed, "Page 3 of its list is page 2 again."),
        (mirror_all, page([], following="same"), ServerFailed, "Page 3 of its list is page 2 again."),
        (list_all, Compute(next_page), ServerFailed, "does not end after 50 pages"),
        (list_all, Trickle(), Unreachable, "did not answer in time"),
        (watch_all, long_line, ServerFailed, "answer is over 64 MiB"),
    ],
    ids=lambda each: getattr(each, "__name__", type(each).__name__),
)
async def test_an_answer_without_end_is_given_up_with_a_reason(
    monkeypatch: pytest.MonkeyPatch,
    request_: Request,
    reply: Reply | Callable[[], Stream],
    error: type[KubeError],
    words: str,
) -> None:
    monkeypatch.setattr(transport, "MOST_PAGES", 50)
    is_slow = isinstance(reply, Trickle)
    reply = reply() if callable(reply) else reply
    async with ScriptedCluster() as cluster, cluster.client(request_s=0.05 if is_slow else 30.0) as client:
        cluster.say(ALL_PODS, reply)
        cluster.say(ALL_PODS, reply, watch=True)
        with pytest.raises(error) as caught:
            await request_(client)
    assert words in caught.value.why
    assert "pods" in caught.value.what and caught.value.hint


async def test_a_request_timeout_counts_for_the_whole_answer(tmp_path: Path) -> None:
    async with ScriptedCluster() as cluster:
        cluster.say(ALL_PODS, Trickle(60))
        made = write(tmp_path / "config", config(cluster.host))
        for request_s, is_whole in ((WAIT_S, True), (0.15, False)):
            async with await Client.connect(made, overrides=ConfigOverrides(request_s=request_s)) as client:
                if is_whole:
                    assert await client.list(PODS) == []
                    continue
                with pytest.raises(Unreachable, match="did not answer in time"):
                    await client.list(PODS)


@pytest.mark.parametrize("status", [301, 307, 308])
@pytest.mark.parametrize("method", ["POST", "PATCH", "DELETE"])
async def test_a_redirected_change_is_not_sent_elsewhere(method: str, status: int) -> None:
    async with ScriptedCluster() as cluster, ScriptedCluster() as stranger, cluster.client() as client:
        away = Answer({}, status, {"Location": f"{stranger.host}/steal?x=1"})
        cluster.say(ONE, away, method=method)
        cluster.say(ONE.rpartition("/")[0], away, method=method)
        with pytest.raises(ServerFailed) as caught:
            if method == "POST":
                await client.create(PODS, {"metadata": {"name": "a"}}, "default")
            elif method == "PATCH":
                await client.patch(PODS, "a", {}, "default")
            else:
                await client.delete(PODS, "a", "default")
        assert caught.value.why == "The server redirects to 127.0.0.1; only reading follows that."
        assert stranger.requests == [] and len(cluster.requests) == 1


async def test_reading_follows_a_redirect_on_the_same_server(
    cluster: ScriptedCluster, client: Client
) -> None:
    cluster.say(ONE, Answer({}, 307, {"Location": "/elsewhere"}))
    cluster.say("/elsewhere", Answer({"kind": "Pod"}))
    assert await client.get(PODS, "a", "default") == {"kind": "Pod"}
