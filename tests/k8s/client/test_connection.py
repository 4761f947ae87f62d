"""Turns, pauses, and proxies of requests."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k8s.client.auth.cluster_config import ClusterConfig, load
from k8s.client.auth.proxies import proxy_from
from k8s.client.client import Client
from k8s.client.connection import ServerClock
from k8s.client.rate_limiter import RateLimiter
from k8s.client.session import make_socket
from k8s.models.resources import PODS
from k8s.text.errors import KubeError, ServerFailed, Throttled
from tests.k8s.client.test_cluster_config import config, write
from tests.scripted.certificates import issue, make_authority, server_tls
from tests.scripted.server import (
    SUCCESS,
    WAIT_S,
    Answer,
    Cut,
    Drop,
    ScriptedCluster,
    Socket,
    Stall,
    Stream,
    page,
    refusal,
)
from tests.support.socks import pump

VERSION = "/version"
ALL_PODS = "/api/v1/pods"
ONE = "/api/v1/namespaces/default/pods/a"
KNOWN = Answer({"gitVersion": "v1"})


def busy(retry_after: str, code: int = 429) -> Answer:
    return refusal(code, "too many requests", headers={"Retry-After": retry_after})


async def test_every_kind_of_request_takes_its_turn() -> None:
    """Six requests, one a second at the most: while the first pauses the rest, none of them is sent."""
    limiter = RateLimiter(per_s=0.001, burst=6, reserve=0)
    async with ScriptedCluster() as cluster, cluster.client(limiter=limiter) as client:
        cluster.say(VERSION, KNOWN)
        cluster.say(ONE, Answer({}), method="PATCH")
        cluster.say(ALL_PODS, page([]))
        cluster.say(ALL_PODS, Stream().end(), watch=True)
        cluster.say(f"{ONE}/log", Stream().end())
        cluster.say(f"{ONE}/exec", Socket([SUCCESS]))
        await client.get_json(VERSION)
        await client.patch(PODS, "a", {}, "default")
        await client.list_page(PODS)
        assert [line async for line in client.watch(PODS, version="1")] == []
        async with client.log("a", "default", follow=True) as body:
            await body.read()
        async with client.exec("a", "default", ["true"]) as opened:
            await opened.receive()
        before = len(cluster.requests)
        seventh = asyncio.create_task(client.get_json(VERSION))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await asyncio.shield(seventh)
        assert len(cluster.requests) == before == 6
        seventh.cancel()


async def test_a_list_in_pages_takes_one_turn() -> None:
    limiter = RateLimiter(per_s=0.001, burst=1, reserve=0)
    async with ScriptedCluster() as cluster, cluster.client(limiter=limiter) as client:
        cluster.say(ALL_PODS, page([1], following="a"), page([2], following="b"), page([3]))
        found: list[object] = list(await client.list(PODS))
    assert found == [1, 2, 3]


async def test_retry_after_of_a_429_pauses_all_requests_of_the_client(
    cluster: ScriptedCluster, client: Client
) -> None:
    cluster.say(ALL_PODS, busy("7"))
    cluster.say(VERSION, KNOWN)
    assert client.throttled_until_s == 0.0
    with pytest.raises(Throttled) as caught:
        await client.list_page(PODS)
    assert caught.value.retry_after_s == 7
    now_s = asyncio.get_running_loop().time()
    assert now_s < client.throttled_until_s <= now_s + 7
    other = asyncio.create_task(client.get_json(VERSION))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await asyncio.shield(other)
    assert cluster.asked(VERSION) == []
    other.cancel()


async def test_a_503_pauses_requests_only_with_a_retry_after_header(
    cluster: ScriptedCluster, client: Client
) -> None:
    cluster.say(ALL_PODS, busy("9", 503), refusal(503, "no leader"))
    with pytest.raises(ServerFailed):
        await client.list_page(PODS)
    assert client.throttled_until_s > 0
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(ALL_PODS, refusal(503, "no leader"))
        with pytest.raises(ServerFailed):
            await client.list_page(PODS)
        assert client.throttled_until_s == 0.0


@pytest.mark.parametrize("code", [429, 503])
async def test_reading_waits_out_a_short_pause_and_goes_on(
    code: int, cluster: ScriptedCluster, client: Client
) -> None:
    cluster.say(VERSION, busy("0.02", code), busy("0.02", code), KNOWN)
    assert await client.get_json(VERSION) == {"gitVersion": "v1"}
    assert client.throttled_until_s == 0.0
    first, _, last = cluster.asked(VERSION)
    assert last.at_s - first.at_s >= 0.04


async def test_a_command_waits_out_a_short_pause_and_runs(cluster: ScriptedCluster, client: Client) -> None:
    cluster.say(f"{ONE}/exec", busy("0.01"), busy("0.01"), Socket([SUCCESS]))
    async with client.exec("a", "default", ["true"]) as opened:
        assert (await opened.receive()).data == bytes([SUCCESS[0]]) + SUCCESS[1]


async def test_a_throttled_read_is_retried_at_most_three_times(
    cluster: ScriptedCluster, client: Client
) -> None:
    cluster.say(VERSION, busy("0.01"))
    with pytest.raises(Throttled):
        await client.get_json(VERSION)
    assert len(cluster.asked(VERSION)) == 4


async def test_writes_are_never_retried() -> None:
    cases: list[Answer | Cut | Drop | Stall] = [
        busy("0.01"),
        busy("0.01", 503),
        refusal(500),
        Cut(),
        Drop(),
        Stall(),
    ]
    for reply in cases:
        async with ScriptedCluster() as cluster, cluster.client(request_s=0.3) as client:
            for method in ("POST", "PATCH", "DELETE"):
                for path in (ONE, ONE.removesuffix("/a")):
                    cluster.say(path, reply, method=method)
            for change in (
                client.create(PODS, {"metadata": {"name": "a"}}, "default"),
                client.patch(PODS, "a", {}, "default"),
                client.delete(PODS, "a", "default"),
            ):
                with pytest.raises(KubeError):
                    await change
        assert sorted(each.method for each in cluster.requests) == ["DELETE", "PATCH", "POST"]


async def test_waiting_for_a_turn_does_not_count_as_waiting_for_an_answer() -> None:
    limiter = RateLimiter(burst=20)
    async with ScriptedCluster() as cluster, cluster.client(limiter=limiter, request_s=0.15) as client:
        cluster.say(ALL_PODS, Stream(b"one\n").end(), watch=True)
        limiter.pause(0.4)
        assert [line async for line in client.watch(PODS, version="1")] == [b"one"]


async def test_a_server_clock_offset_is_detected(cluster: ScriptedCluster, client: Client) -> None:
    cluster.clock_ahead_s = 3600
    cluster.say(VERSION, KNOWN)
    for _ in range(3):
        await client.get_json(VERSION)
    assert client.server_clock_offset_s == pytest.approx(3600, abs=WAIT_S)
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(VERSION, KNOWN)
        for _ in range(3):
            await client.get_json(VERSION)
        assert client.server_clock_offset_s == 0.0


@pytest.mark.skipif(sys.platform != "linux", reason="how long is asked for differs elsewhere")
def test_a_peer_that_is_gone_is_noticed_within_a_minute() -> None:
    made = make_socket((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 0)))
    with made:
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        idle_s, interval_s, count = (
            made.getsockopt(socket.IPPROTO_TCP, getattr(socket, name))
            for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT")
        )
        assert idle_s + interval_s * count <= 60
        assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) <= 60_000


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
async def test_connections_use_tcp_keepalive() -> None:
    def kept_alive() -> int:
        """Count this process's connections that have keepalive on, as the kernel sees them."""
        mine = {f"{port:04X}" for port in ports}
        lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
        # Field 5 is the timer that runs: 2 is keepalive.
        return sum(
            words[2].rpartition(":")[2] in mine and words[5].startswith("02:")
            for words in map(str.split, lines)
        )

    async with ScriptedCluster() as cluster, cluster.client() as client:
        ports = {int(cluster.host.rpartition(":")[2])}
        cluster.say(ALL_PODS, Stream(b"one\n"), watch=True)
        watch = client.watch(PODS, version="1")
        assert await anext(watch) == b"one"
        async with asyncio.timeout(WAIT_S):
            while not kept_alive():
                await asyncio.sleep(0.01)
        await watch.aclose()


WATCHED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\none\n\r\n"


@contextmanager
def deaf_after(said: bytes, tls: ssl.SSLContext) -> Iterator[tuple[str, threading.Event]]:
    """Run a TLS server that sends `said` to the first client and then ignores everything.

    Yield its address, and an event that is set after the first request.
    """
    asked, over = threading.Event(), threading.Event()

    def serve() -> None:
        with (
            suppress(OSError),
            listening.accept()[0] as plain,
            tls.wrap_socket(plain, server_side=True) as caller,
        ):
            caller.recv(65536)
            caller.sendall(said)
            asked.set()
            over.wait(WAIT_S)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving = threading.Thread(target=serve)
        serving.start()
        try:
            yield f"https://127.0.0.1:{listening.getsockname()[1]}", asked
        finally:
            over.set()
            listening.shutdown(socket.SHUT_RDWR)  # if nobody came
            serving.join()


def sockets_to(host: str) -> int:
    """Count this process's sockets that are connected to a server."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue  # a copy of it would stay open
            with socket.socket(fileno=os.dup(int(name))) as each:
                found += each.getpeername()[1:2] == (int(host.rpartition(":")[2]),)
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
@pytest.mark.parametrize("is_stream", [True, False], ids=["a watch", "an answer that never begins"])
async def test_no_socket_outlives_its_client_when_the_server_never_closes_the_connection(
    tmp_path: Path, is_stream: bool
) -> None:
    authority = make_authority(tmp_path)
    with deaf_after(WATCHED if is_stream else b"", server_tls(issue(authority, "server"))) as (host, asked):
        access = ClusterConfig(host=host, ssl_ca_cert=str(authority.path))
        async with Client(access, limiter=RateLimiter(1000, 1000)) as client:
            if is_stream:
                watch = client.watch(PODS, version="1")
                assert await anext(watch) == b"one"
                assert sockets_to(host) == 1
                await watch.aclose()
            else:
                asking = asyncio.create_task(client.get_json(VERSION))
                assert await asyncio.to_thread(asked.wait, WAIT_S)
                asking.cancel()
                assert sockets_to(host) == 1
                await asyncio.wait([asking])
        assert sockets_to(host) == 0


@asynccontextmanager
async def proxy_to(target: str) -> AsyncIterator[tuple[str, list[bytes]]]:
    """Run a proxy to one server, and record its requests."""
    asked: list[bytes] = []
    host, _, port = target.rpartition("/")[2].rpartition(":")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        upstream, downstream = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
        await asyncio.gather(pump(reader, downstream), pump(upstream, writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        name, number = server.sockets[0].getsockname()
        yield f"http://{name}:{number}", asked


@pytest.mark.parametrize("is_named", [True, False], ids=["proxy-url", "HTTPS_PROXY"])
async def test_a_server_behind_a_proxy_is_reached_and_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_named: bool
) -> None:
    authority = make_authority(tmp_path)
    tls = server_tls(issue(authority, "server", names="DNS:api.lab"))
    async with ScriptedCluster(tls) as cluster, proxy_to(cluster.host) as (proxy, asked):
        cluster.say(VERSION, KNOWN)
        cluster.say(f"{ONE}/exec", Socket([SUCCESS]))
        proxy = proxy.replace("//", "//li:hidden@")
        monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9" if is_named else proxy)
        cluster_part = {"certificate-authority": "authority.crt"} | ({"proxy-url": proxy} if is_named else {})
        for server, more in (
            ("https://api.lab:6443", {}),
            ("https://10.0.0.1", {"tls-server-name": "api.lab"}),
        ):
            made = config(server, {"token": "t"}, cluster={**cluster_part, **more})
            async with Client(await load(write(tmp_path / "config", made))) as client:
                assert await client.get_json(VERSION) == {"gitVersion": "v1"}
                async with client.exec("a", "default", ["true"]) as opened:
                    assert (await opened.receive()).data == bytes([SUCCESS[0]]) + SUCCESS[1]
    heads = [head.split(b" HTTP")[0] for head in asked]
    assert heads == [b"CONNECT api.lab:6443", b"CONNECT 10.0.0.1:443"]
    assert all(b"Proxy-Authorization: Basic" in head for head in asked)
    assert "Proxy-Authorization" not in cluster.requests[0].headers


async def test_no_proxy_is_respected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    monkeypatch.setenv("NO_PROXY", "10.0.0.0/8")
    assert (await load(write(tmp_path / "config", config("https://10.9.9.9")))).proxy is None
    assert (await load(write(tmp_path / "config", config("https://11.9.9.9")))).proxy == "http://proxy:3128"


PROXY = "http://proxy:3128"


def test_a_proxy_is_used_unless_no_proxy_matches_the_server() -> None:
    cases: list[tuple[str, str, bool]] = [
        ("", "https://10.2.3.4:6443", False),
        ("*", "https://10.2.3.4:6443", True),
        ("10.0.0.0/8", "https://10.2.3.4:6443", True),
        ("10.0.0.0/8", "https://11.2.3.4:6443", False),
        ("10.0.0.0/88", "https://10.2.3.4:6443", False),
        ("10.2.3.4", "https://10.2.3.4:6443", True),
        ("10.2.3.4:6443", "https://10.2.3.4:6443", True),
        ("10.2.3.4:6443", "https://10.2.3.4", False),
        ("10.2.3.4:443", "https://10.2.3.4", True),
        ("10.2.3.4:" + "9" * 5000, "https://10.2.3.4", False),
        ("fd00::/8", "https://[fd00::1]", True),
        ("[fd00::1]:443", "https://[fd00::1]", True),
        ("fd00::1", "https://[fd00::1]", True),
        ("fd00::1", "https://[fd00::2]", False),
        ("example.com", "https://example.com", True),
        ("Example.COM", "https://api.EXAMPLE.com", True),
        ("example.com", "https://badexample.com", False),
        (".example.com", "https://example.com", False),
        (".example.com", "https://api.example.com", True),
        ("*.example.com", "https://api.example.com", True),
        (" other.org , example.com:6443", "https://api.example.com:6443", True),
        ("", "https://localhost:6443", True),
        ("", "https://127.0.0.1:6443", True),
        ("", "https://[::1]:6443", True),
        ("", "https://[::ffff:127.0.0.1]:6443", True),
    ]
    for no_proxy, server, is_direct in cases:
        environment = {"HTTPS_PROXY": PROXY, "NO_PROXY": no_proxy}
        assert proxy_from(environment, server)[1] == ("" if is_direct else PROXY)
        assert proxy_from({"https_proxy": PROXY, "no_proxy": no_proxy}, server)[1] == (
            "" if is_direct else PROXY
        )


def test_each_scheme_has_a_proxy_of_its_own() -> None:
    environment = {"HTTPS_PROXY": "proxy:1", "HTTP_PROXY": "socks5://proxy:2"}
    assert proxy_from(environment, "https://a")[1] == "http://proxy:1"
    assert proxy_from(environment, "http://a")[1] == "socks5://proxy:2"
    environment = {"all_proxy": "socks5h://proxy:3", "HTTP_PROXY": "proxy:1", "NO_PROXY": ".lab"}
    assert proxy_from(environment, "https://a")[1] == "socks5h://proxy:3"
    assert proxy_from(environment, "http://a")[1] == "http://proxy:1"
    assert proxy_from(environment, "https://a.lab")[1] == proxy_from({}, "https://a")[1] == ""


@given(st.text())
def test_any_no_proxy_value_is_parsed_without_an_error(no_proxy: str) -> None:
    assert proxy_from({"HTTPS_PROXY": PROXY, "NO_PROXY": no_proxy}, "https://10.0.0.1")[1] in ("", PROXY)


NOW_S = datetime(2026, 11, 20, 18, tzinfo=UTC).timestamp()


def date(at_s: float) -> str:
    return format_datetime(datetime.fromtimestamp(int(at_s), UTC), usegmt=True)


def hear(
    clock: ServerClock, ahead_s: float, *, sent_s: float, took_s: float = 0.1, share: float = 0.5
) -> None:
    """Observe an answer from a clock that is ahead; `share` is where `Date` falls within the request."""
    clock.observe(date(sent_s + share * took_s + ahead_s), sent_s, sent_s + took_s)


@given(st.lists(st.tuples(st.floats(-1.9, 1.9), st.floats(0, 1), st.floats(0, 60), st.floats(0, 1))))
def test_offsets_below_two_seconds_are_ignored(answers: list[tuple[float, float, float, float]]) -> None:
    clock = ServerClock()
    for ahead_s, fraction, took_s, share in answers:
        hear(clock, ahead_s, sent_s=NOW_S + fraction, took_s=took_s, share=share)
    assert clock.offset_s == 0.0


@given(
    st.floats(6, 100_000) | st.floats(-100_000, -6),
    st.lists(st.tuples(st.floats(0, 30), st.floats(0, 2), st.floats(0, 1)), min_size=2),
)
def test_a_wrong_server_clock_is_detected_after_two_responses(
    ahead_s: float, answers: list[tuple[float, float, float]]
) -> None:
    clock = ServerClock()
    for later_s, took_s, share in answers:
        hear(clock, ahead_s, sent_s=NOW_S + later_s, took_s=took_s, share=share)
    assert clock.offset_s == pytest.approx(ahead_s, abs=3.5)


def test_a_clock_offset_needs_two_matching_dates_and_ignores_single_outliers() -> None:
    clock = ServerClock()
    hear(clock, 3600, sent_s=NOW_S)
    assert clock.offset_s == 0.0
    hear(clock, 3600, sent_s=NOW_S + 0.3)
    assert clock.offset_s == pytest.approx(3600, abs=1)
    known_s = clock.offset_s
    hear(clock, -50, sent_s=NOW_S + 5)  # a balancer's own error page
    hear(clock, 3600, sent_s=NOW_S + 6)
    hear(clock, -50, sent_s=NOW_S + 7)
    assert clock.offset_s == known_s
    hear(clock, 0, sent_s=NOW_S + 8)
    hear(clock, 0, sent_s=NOW_S + 9)  # the server's clock was set right
    assert abs(clock.offset_s) < 1


def test_the_date_of_a_slow_response_does_not_change_the_clock_offset() -> None:
    clock = ServerClock()
    for number in range(3):
        hear(clock, 30, sent_s=NOW_S + number, took_s=60)
    assert clock.offset_s == 0.0


@given(st.text() | st.sampled_from(["", "0", "Mon, 01 Jan 0001 00:00:00 GMT", "Fri, 20 Nov 2026 18:00:00"]))
def test_an_invalid_date_header_does_not_change_the_clock_offset(words: str) -> None:
    clock = ServerClock()
    clock.observe(words, NOW_S, NOW_S)
    assert clock.offset_s == 0.0


def test_a_local_clock_that_jumps_back_does_not_change_the_offset() -> None:
    clock = ServerClock()
    for _ in range(3):
        clock.observe(date(NOW_S), NOW_S, NOW_S - 3600)
    assert clock.offset_s == 0.0
