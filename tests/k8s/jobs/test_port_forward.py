"""A forwarded port, where what fails fails alone; and the place of a job's TensorBoard."""

from __future__ import annotations

import asyncio
import copy
import os
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from k8s.client import transport
from k8s.jobs.port_forward import CARRIED, FAILED, Forward, forward
from k8s.jobs.tensorboard import PodPort, find_tensorboard
from k8s.snapshot import Job
from k8s.text.errors import Forbidden, KubeError, NotFound
from tests.scripted.server import V4, WAIT_S, Answer, Reply, ScriptedCluster, Speaker, Talk, page, refusal
from tests.support import second_account
from tests.support.objects import joined, node, pod_of, pytorch_job

PATH = "/api/v1/namespaces/ns/pods/a/portforward"
PORT = 6006
NUMBER = PORT.to_bytes(2, "little")


async def begin(speaker: Speaker) -> None:
    """Say the port on both channels, as a kubelet does."""
    await speaker.say(CARRIED, NUMBER)
    await speaker.say(FAILED, NUMBER)


async def echo(speaker: Speaker) -> None:
    await begin(speaker)
    async for channel, content in speaker.heard():
        assert channel == CARRIED
        await speaker.say(CARRIED, content)


def talk(speak: Callable[[Speaker], Any]) -> Talk:
    return Talk(speak, (V4,))


class Changes:
    """Changes of a forward, which a test can wait for."""

    def __init__(self) -> None:
        self._came = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()

    def tell(self, _: Forward) -> None:
        task = asyncio.create_task(self._wake())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _wake(self) -> None:
        async with self._came:
            self._came.notify_all()

    async def until(self, claim: Callable[[], object]) -> None:
        async with asyncio.timeout(WAIT_S), self._came:
            await self._came.wait_for(claim)


@asynccontextmanager
async def forwarded(*replies: Reply, **how: Any) -> AsyncIterator[Forward]:
    """Forward a port to a pod that says these things, the first of them when it is tried."""
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(PATH, *replies)
        async with forward(client, "a", "ns", PORT, **how) as opened:
            assert [each.query for each in cluster.asked(PATH)] == [{"ports": "6006"}]
            yield opened


@asynccontextmanager
async def connected(to: Forward) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    host, _, port = to.address.partition(":")
    assert host == "127.0.0.1"
    async with asyncio.timeout(WAIT_S):
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            yield reader, writer
        finally:
            writer.close()


async def test_bytes_go_both_ways_on_many_connections_at_once() -> None:
    async def talk_alone(opened: Forward, number: int) -> bool:
        sent = bytes([number]) * 200_000
        async with connected(opened) as (reader, writer):
            writer.write(sent)
            return await reader.readexactly(len(sent)) == sent

    async with forwarded(talk(echo)) as opened:
        assert all(await asyncio.gather(*[talk_alone(opened, number) for number in range(20)]))
        assert (opened.bytes_sent, opened.bytes_received) == (4_000_000, 4_000_000)
        assert (opened.pod, opened.port, opened.last_error) == ("a", PORT, "")


async def test_the_port_number_prefix_is_stripped_even_when_split() -> None:
    async def split(speaker: Speaker) -> None:
        for channel, content in (
            (0, NUMBER[:1]),
            (1, NUMBER),
            (0, NUMBER[1:] + b"wel"),
            (0, b""),
            (0, b"come"),
        ):
            await speaker.say(channel, content)
        await speaker.say(7, b"of another port")

    async with forwarded(talk(split)) as opened, connected(opened) as (reader, _):
        assert await reader.read() == b"welcome"


async def test_a_failed_connection_does_not_affect_others_and_is_reported() -> None:
    async def refuse(speaker: Speaker) -> None:
        await begin(speaker)
        await speaker.say(CARRIED, b"half")
        await speaker.say(FAILED, b"dial tcp4 127.0.0.1:6006: connect: connection refused\n")

    replies: list[Reply] = [
        talk(echo),
        talk(echo),
        talk(refuse),
        *[refusal(404, 'pods "a" not found', "NotFound")] * 2,
        talk(echo),
    ]
    async with forwarded(*replies) as opened:
        async with connected(opened) as (first, first_writer):
            first_writer.write(b"a")
            assert await first.readexactly(1) == b"a"
            for words in ("connection refused", 'pods "a" not found'):
                async with connected(opened) as (reader, _):
                    with pytest.raises(ConnectionResetError):
                        await reader.read()
                assert words in opened.last_error
            first_writer.write(b"b")
            assert await first.readexactly(1) == b"b"
        async with connected(opened) as (reader, writer):
            writer.write(b"c")
            assert await reader.readexactly(1) == b"c"
        assert opened.last_error == ""


@pytest.mark.parametrize(("uid", "is_served"), [(0, True), (os.getuid(), True), (None, True), (4711, False)])
async def test_connections_of_other_accounts_are_reset_and_reported(
    monkeypatch: pytest.MonkeyPatch, uid: int | None, is_served: bool
) -> None:
    monkeypatch.setattr(transport, "uid_of_peer", lambda _: uid)
    async with forwarded(talk(echo), talk(echo)) as opened, connected(opened) as (reader, writer):
        writer.write(b"a")
        if is_served:
            assert await reader.readexactly(1) == b"a"
            assert opened.last_error == ""
        else:
            with pytest.raises(ConnectionResetError):
                await reader.read()
            assert opened.last_error.splitlines() == [
                f"Refused a connection to {opened.address}.",
                "It came from another account of this machine (user id 4711).",
                "Forwarded ports serve the account that forwards them, and root.",
            ]


ASK = """
import socket, sys
try:
    with socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=20) as pod:
        pod.sendall(b"secret?")
        print(pod.recv(99))
except ConnectionError:
    print("closed")
"""


@second_account.only_root
async def test_a_second_account_reaches_no_pod_through_a_forwarded_port() -> None:
    async with forwarded(talk(echo), talk(echo)) as opened:
        answer = await asyncio.to_thread(second_account.said, ASK, str(opened.local_port))
        assert answer == "closed\n"
        async with connected(opened) as (reader, writer):
            writer.write(b"mine")
            assert await reader.readexactly(4) == b"mine"


async def test_a_half_closed_client_still_receives_the_response() -> None:
    async def answer_late(speaker: Speaker) -> None:
        await begin(speaker)
        assert await speaker.hear() == (CARRIED, b"question")
        await has_ended.wait()
        for word in (b"ans", b"wer"):
            await speaker.say(CARRIED, word)

    has_ended = asyncio.Event()
    async with forwarded(talk(answer_late)) as opened, connected(opened) as (reader, writer):
        writer.write(b"question")
        writer.write_eof()
        has_ended.set()
        assert await reader.read() == b"answer"


async def test_a_client_that_disconnects_closes_the_pod_connection() -> None:
    left = asyncio.Event()

    async def listen(speaker: Speaker) -> None:
        await begin(speaker)
        async for _ in speaker.heard():
            await speaker.say(CARRIED, b"x" * 100_000)
        left.set()

    changes = Changes()
    async with forwarded(Talk(begin, (V4,)), talk(listen), on_change=changes.tell) as opened:
        async with connected(opened) as (reader, writer):
            writer.write(b"x")
            await reader.readexactly(1)
            place = writer.get_extra_info("socket")
            place.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await changes.until(lambda: opened.connections == 0)
        async with asyncio.timeout(WAIT_S):
            await left.wait()
        assert opened.last_error == ""


async def test_a_slow_client_applies_backpressure_to_the_pod() -> None:
    said = 0

    async def flood(speaker: Speaker) -> None:
        nonlocal said
        await begin(speaker)
        while True:
            await speaker.say(CARRIED, bytes(100_000))
            said += 100_000

    async with (
        forwarded(Talk(begin, (V4,)), talk(flood), talk(echo)) as opened,
        connected(opened) as (slow, _),
    ):
        await slow.readexactly(1)
        async with connected(opened) as (reader, writer):
            for _ in range(300):  # the flood has as many turns
                writer.write(b"x")
                await reader.readexactly(1)
        before = said
        assert before < 300 * 100_000
        await slow.readexactly(before)


async def test_closing_a_port_forward_closes_connections_and_the_listener() -> None:
    left = asyncio.Event()

    async def listen(speaker: Speaker) -> None:
        await begin(speaker)
        await speaker.say(CARRIED, b"x")
        async for _ in speaker.heard():
            pass
        left.set()

    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(PATH, Talk(begin, (V4,)), talk(listen))
        async with forward(client, "a", "ns", PORT) as opened:
            reader, writer = await asyncio.open_connection("127.0.0.1", opened.local_port)
            await reader.readexactly(1)
        async with asyncio.timeout(WAIT_S):
            await left.wait()
        writer.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", opened.local_port)


@pytest.mark.parametrize(
    ("reply", "kind"), [(refusal(403, "no", "Forbidden"), Forbidden), (refusal(404, "none"), NotFound)]
)
async def test_a_refused_port_forward_raises_before_listening(reply: Reply, kind: type[KubeError]) -> None:
    with pytest.raises(kind):
        async with forwarded(reply):
            pytest.fail("it was refused")


async def test_a_requested_local_port_is_used_or_reported_as_in_use() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        number = taken.getsockname()[1]
        with pytest.raises(KubeError, match=f"Port {number} of this machine: Address already in use"):
            async with forwarded(talk(echo), local_port=number):
                pytest.fail("it is in use")
    async with forwarded(talk(echo), local_port=number) as opened:
        assert opened.address == f"127.0.0.1:{number}"


Object = dict[str, Any]
SERVICES, PODS = (f"/api/v1/namespaces/default/{plural}" for plural in ("services", "pods"))
READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
ARENA: Object = {
    "metadata": {"name": "bert-tensorboard", "labels": {"role": "tensorboard", "release": "bert"}},
    "spec": {
        "ports": [{"name": "tensorboard", "nodePort": 32199, "port": 6006, "targetPort": 6006}],
        "selector": {"app": "pytorchjob", "release": "bert", "role": "tensorboard"},
    },
}
"""As arena v0.15.5 makes it."""


def bert() -> tuple[Job, Object]:
    made = pytorch_job("bert")
    chief = pod_of(made, "master-0", on="n1")
    _, jobs = joined([node("n1")], [chief], [made])
    return jobs["bert"], chief


def serving(name: str, *ports: Object, **status: Any) -> Object:
    spec = {"containers": [{"name": "a"}, {"name": "b", "ports": list(ports)}]}
    return {"metadata": {"name": name}, "spec": spec, "status": status or READY}


async def found(services: object, pods: list[Object], chief: Object | None = None) -> tuple[PodPort, str]:
    """Look for bert's TensorBoard; return it, and the labels by which its pods were found."""
    job, own = bert()
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(SERVICES, services if isinstance(services, Answer) else page(services))  # type: ignore[arg-type]
        cluster.say(PODS, page(pods))
        cluster.say(f"{PODS}/bert-master-0", Answer(chief or own))
        place = await find_tensorboard(client, job)
        return place, next((asked.query["labelSelector"] for asked in cluster.asked(PODS)), "")


async def test_arenas_service_leads_to_a_ready_pod() -> None:
    others = {"metadata": {"name": "vit-tensorboard", "labels": {"role": "tensorboard", "release": "vit"}}}
    leaving = serving("leaving")
    leaving["metadata"]["deletionTimestamp"] = "2026-11-20T18:00:00Z"
    starting = serving("starting", phase="Running", conditions=[{"type": "Ready", "status": "False"}])
    place, labels = await found([others, ARENA], [leaving, starting, serving("tb-7c")])
    assert place == PodPort("default", "tb-7c", 6006)
    assert labels == "app=pytorchjob,release=bert,role=tensorboard"


async def test_a_port_that_is_named_is_looked_up_in_the_pod() -> None:
    service = copy.deepcopy(ARENA)
    board = {"name": "http-tensorboard", "port": 80, "targetPort": "web"}
    service["spec"]["ports"] = [{"name": "metrics", "port": 9090}, board]
    other, web = {"name": "metrics", "containerPort": 9090}, {"name": "web", "containerPort": 8080}
    place, _ = await found([service], [serving("old", other), serving("new", other, web)])
    assert place == PodPort("default", "new", 8080)


@pytest.mark.parametrize("bad", [None, True, 7, "x", [None], {"metadata": 1}, {"metadata": {"labels": [1]}}])
async def test_a_malformed_service_or_pod_is_left_out(bad: Any) -> None:
    labels = {"labels": ARENA["metadata"]["labels"]}
    ports = {"selector": {"a": "b"}, "ports": [None, {"port": "x"}]}
    odd = [
        bad,
        *({**ARENA, key: bad} for key in ARENA),
        {"metadata": labels},
        {"metadata": labels, "spec": ports},
    ]
    pods = [bad, {**serving("a"), "status": bad}]
    place, _ = await found([*odd, ARENA], [*pods, serving("tb-7c")])
    assert place.pod == "tb-7c"
    with pytest.raises(NotFound):
        await found(odd, [serving("tb"), {**serving("b"), "spec": {"containers": 1}}])


@pytest.mark.parametrize(
    ("name", "is_its"),
    [
        ("bert-tensorboard", True),
        ("tensorboard-bert", True),
        ("bert", False),
        ("bert-large-tensorboard", False),
        ("tensorboard", False),
    ],
)
async def test_only_a_service_named_for_the_job_counts(name: str, is_its: bool) -> None:
    service = {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], "selector": {"a": "b"}}}
    if is_its:
        assert (await found([service], [serving("tb")]))[0] == PodPort("default", "tb", 80)
    else:
        with pytest.raises(NotFound, match="No TensorBoard found for"):
            await found([service], [serving("tb")])


@pytest.mark.parametrize("services", [page([]), refusal(403, "no")])
async def test_a_pod_of_the_job_that_declares_the_port_counts(services: Answer) -> None:
    chief = serving("bert-master-0", {"containerPort": 22}, {"containerPort": 6006})
    assert (await found(services, [], chief))[0] == PodPort("default", "bert-master-0", 6006)
    chief["status"] = {"phase": "Pending"}
    with pytest.raises(NotFound):
        await found(services, [], chief)


async def test_an_unready_tensorboard_is_distinguished_from_a_missing_one() -> None:
    with pytest.raises(NotFound, match="No pod behind the Service bert-tensorboard is ready"):
        await found([ARENA], [])
    with pytest.raises(NotFound, match="No TensorBoard found for"):
        await found([], [])
