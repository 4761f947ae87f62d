"""Commands in pods, their ports and the curves they write, on a real kubelet."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from k8s.client.client import Client
from k8s.jobs import exec
from k8s.jobs.port_forward import forward
from k8s.jobs.reader_pod import READER_LABEL, delete_ended_readers, running_reader
from k8s.kinds import JobRef
from k8s.kinds.job_spec import LOG_DIR_ANNOTATION
from k8s.logs import LogLine, Options, Target, targets_of
from k8s.logs.read import read
from k8s.models.resources import CLAIMS, JOBS, PODS, SERVICES, Resource
from k8s.snapshot import ClusterSnapshot
from k8s.status import Status
from k8s.text.errors import Forbidden, Invalid, KubeError, NotFound
from tests.k8s.sandbox.live.running import comes, goes
from tests.real_cluster import operator_objects
from tests.real_cluster.conftest import shared_namespace
from tests.real_cluster.feed import feed_of, job_called
from tests.support.real_cluster import is_ready
from trainer.tfevents import EventWriter
from tui.runs.curve_feed import CurveFeed

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

# A web server, and a program that says back what it hears
SERVING = "mkdir /www; seq 1 200000 > /www/numbers; httpd -f -p 8080 -h /www & nc -ll -p 7777 -e cat"
PATIENCE_S = 180.0
POD = "p"


@pytest.fixture(scope="module")
def shared(kubeconfig: Path) -> Iterator[str]:
    """A namespace with a running pod, for the tests that leave it as it is."""
    yield from shared_namespace(kubeconfig, "console", make_pod)


@pytest.fixture
async def client(kubeconfig: Path, shared: str) -> AsyncIterator[Client]:
    async with await Client.connect(str(kubeconfig), namespace=shared) as found, asyncio.timeout(PATIENCE_S):
        yield found


async def make_pod(client: Client) -> None:
    await operator_objects.make(client, PODS, POD, operator_objects.pod_spec("main", 0, SERVING))
    await comes(client, PODS, POD, is_ready, client.config.namespace, PATIENCE_S)


async def run(
    client: Client, script: str, *, sent: bytes = b"", until: bytes = b"", has_terminal: bool = False
) -> tuple[bytes, bytes, int | None]:
    """Run a shell's script; `sent` is sent once it has written `until`. Return output, errors, exit code."""
    words = ["sh", "-c", script]
    out = {exec.STDOUT: b"", exec.STDERR: b""}
    running = exec.start(client, POD, client.config.namespace, words, has_terminal=has_terminal)
    async with running as command:
        if has_terminal:
            await command.resize(123, 45)
        async for channel, content in command.output():
            out[channel] += content
            if sent and until in out[exec.STDOUT]:
                await command.write(sent)
                sent = b""
        return out[exec.STDOUT], out[exec.STDERR], command.exit_code


async def test_a_command_has_its_output_its_errors_and_its_exit_code(client: Client) -> None:
    assert await run(client, "echo out; echo err >&2; exit 7") == (b"out\n", b"err\n", 7)
    assert await run(client, "kill -9 $$") == (b"", b"", 137)
    output, _, code = await run(client, "seq 1 300000")
    assert (len(output), output[-7:], code) == (1988895, b"300000\n", 0)
    assert await run(client, r"printf '\303'; sleep 0.1; printf '\251'") == ("é".encode(), b"", 0)


async def test_bytes_reach_a_command_as_they_are(client: Client) -> None:
    sent = bytes(range(256)) * 100
    output, _, code = await run(
        client, f"echo ready; head -c {len(sent)} | md5sum; exit 3", sent=sent, until=b"ready"
    )
    assert hashlib.md5(sent).hexdigest().encode() in output
    assert code == 3


async def test_a_terminal_has_our_size_and_follows_it(client: Client) -> None:
    script = "trap 'stty size; exit 5' WINCH; echo ready; while :; do sleep 0.1; done"
    running = exec.start(client, POD, client.config.namespace, ["sh", "-c", script], has_terminal=True)
    said = b""
    async with running as command:
        async for _, content in command.output():
            said += content
            if said.endswith(b"ready\r\n"):
                await command.resize(123, 45)
    assert (said.split()[-2:], command.exit_code) == ([b"45", b"123"], 5)


async def test_a_terminals_keys_are_signals(client: Client) -> None:
    script = "trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.1; done"
    output, _, code = await run(client, script, sent=b"\x03", until=b"ready", has_terminal=True)
    assert b"caught" in output
    assert code == 9


async def test_the_best_shell_that_is_there_is_started(client: Client) -> None:
    async with exec.start(client, POD, client.config.namespace) as command:
        await command.write(b"echo I am $0; exit 4\n")
        output = b"".join([content async for _, content in command.output()])
    assert (output, command.exit_code) == (b"I am ash\n", 4)


async def test_a_silent_command_is_waited_for_while_the_server_answers(client: Client) -> None:
    words = ["sh", "-c", "sleep 6; exit 2"]
    async with exec.start(client, POD, client.config.namespace, words, ping_s=2.0) as command:
        assert [each async for each in command.output()] == []
    assert command.exit_code == 2


async def test_exec_and_port_forward_errors_contain_the_message_of_the_cluster(
    client: Client, kubeconfig: Path
) -> None:
    namespace = client.config.namespace
    for where, words, kind in (
        (("gone", namespace), "not found", NotFound),
        ((POD, namespace), "executable file not found", KubeError),
    ):
        with pytest.raises(kind, match=words):
            async with exec.start(client, *where, ["no-such-program"]) as command:
                assert [each async for each in command.output()] == []
    with pytest.raises(Invalid, match="container zz is not valid"):
        async with exec.start(client, POD, namespace, container="zz"):
            pytest.fail("it was refused")
    async with await Client.connect(f"{kubeconfig}-alice", namespace=namespace) as alice:
        with pytest.raises(Forbidden, match='cannot get resource "pods/exec"'):
            async with exec.start(alice, POD, namespace):
                pytest.fail("it was refused")
        with pytest.raises(Forbidden, match='cannot get resource "pods/portforward"'):
            async with forward(alice, POD, namespace, 8080):
                pytest.fail("it was refused")


async def fetch(port: int, path: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    return answer


async def test_a_web_server_in_a_pod_is_reached_by_many_at_once(client: Client) -> None:
    async with forward(client, POD, client.config.namespace, 8080) as opened:
        answers = await asyncio.gather(*[fetch(opened.local_port, "/numbers") for _ in range(10)])
        assert {(len(answer.partition(b"\r\n\r\n")[2]), answer[-7:]) for answer in answers} == {
            (1288895, b"200000\n")
        }
        assert opened.bytes_received == sum(map(len, answers))
        assert opened.last_error == ""


async def test_megabytes_go_both_ways(client: Client) -> None:
    sent = bytes(range(256)) * 20_000
    async with forward(client, POD, client.config.namespace, 7777) as opened:
        reader, writer = await asyncio.open_connection("127.0.0.1", opened.local_port)
        writer.write(sent)
        assert await reader.readexactly(len(sent)) == sent
        writer.close()


async def test_a_port_without_a_listener_is_reported_and_the_forward_stays_open(client: Client) -> None:
    async with forward(client, POD, client.config.namespace, 9) as opened:
        with pytest.raises(ConnectionResetError):
            await fetch(opened.local_port, "/")
        assert "connection refused" in opened.last_error


async def echoed(port: int, text: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect as soon as the pod's program listens; a pod is ready as soon as it runs."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(text)
            try:
                assert await reader.readexactly(len(text)) == text
            except (ConnectionResetError, asyncio.IncompleteReadError):
                writer.close()
                await asyncio.sleep(0.1)
            else:
                return reader, writer


async def test_a_killed_pod_ends_connections_and_its_successor_serves(admin: Client) -> None:
    namespace = admin.config.namespace
    await make_pod(admin)
    async with forward(admin, POD, namespace, 7777) as opened:
        reader, writer = await echoed(opened.local_port, b"x")
        await admin.delete(PODS, POD, namespace, grace_period_s=0)
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
        await goes(admin, PODS, POD, namespace, PATIENCE_S)
        with pytest.raises(ConnectionResetError):
            await fetch(opened.local_port, "/")
        assert 'pods "p" not found' in opened.last_error
        await make_pod(admin)
        _, writer = await echoed(opened.local_port, b"again")
        writer.close()
        assert opened.last_error == ""


async def texts(client: Client, targets: tuple[Target, ...], rank: int) -> list[str]:
    items = [item async for batch in read(client, targets, Options(rank=rank)) for item in batch]
    return [item.text.decode() for item in items if isinstance(item, LogLine)]


async def test_a_rank_that_no_pod_declares_is_in_the_lines_or_is_an_error(admin: Client) -> None:
    command = "echo torchrun; echo '[rank2]: two'; echo '[rank3]: three'"
    template = {"spec": operator_objects.pod_spec("main", 0, command)}
    async with feed_of(admin) as feed:
        await operator_objects.make(admin, JOBS, "plain", {"template": template})

        def is_over(snapshot: ClusterSnapshot) -> bool:
            job = job_called(snapshot, "Job", "plain")
            return job is not None and job.status is Status.SUCCEEDED

        job = job_called(await feed.until(is_over), "Job", "plain")
    assert job is not None
    targets = targets_of(job)
    assert await texts(admin, targets, 2) == ["torchrun", "two"]
    for rank in (7, 9):
        with pytest.raises(NotFound, match=f"no line of rank {rank}") as raised:
            await texts(admin, targets, rank)
        assert "name ranks 2, 3" in raised.value.why


VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", is_namespaced=False)
CURVE_PATIENCE_S = 120.0
STEPS = 200
# The volume is a folder of the node.
WRITE = """
mkdir -p /w/logs
while [ ! -e /w/begin ]; do sleep 0.1; done
echo "$CONTENT" | base64 -d > /w/all; size=$(wc -c < /w/all); at=0
while [ $at -lt $size ]; do
    dd if=/w/all bs=1 count=1 skip=$at 2>/dev/null >> /w/logs/events.out.tfevents.1.a; at=$((at+1))
done
while [ ! -e /w/end ]; do sleep 0.2; done
"""


@pytest.fixture
async def claim(admin: Client, tmp_path: Path) -> AsyncIterator[str]:
    """A claim whose volume is a folder of the node, which is this machine."""
    name, storage = admin.config.namespace, {"storage": "1Mi"}
    spec: dict[str, Any] = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
    volume = {"capacity": storage, "hostPath": {"path": str(tmp_path), "type": "DirectoryOrCreate"}}
    await admin.create(VOLUMES, {"metadata": {"name": name}, "spec": {**spec, **volume}})
    bound = {**spec, "resources": {"requests": storage}, "volumeName": name}
    await operator_objects.make(admin, CLAIMS, "workspace", bound)
    await comes(
        admin, CLAIMS, "workspace", lambda made: made["status"]["phase"] == "Bound", name, CURVE_PATIENCE_S
    )
    yield "workspace"
    await admin.delete(VOLUMES, name)


def losses(feed: CurveFeed) -> list[tuple[int, float]]:
    return [pair for curve in feed.curves() for pair in zip(curve.steps, curve.values, strict=True)]


async def test_a_file_written_byte_by_byte_is_read_by_exec_and_then_from_its_volume(
    admin: Client, claim: str, tmp_path: Path
) -> None:
    with EventWriter(tmp_path / "made") as writer:
        for step in range(STEPS):
            writer.write_scalar("loss", step, step / 4)
    wanted = [(step, step / 4) for step in range(STEPS)]
    template = operator_objects.template("main", 0)
    container = template["spec"]["containers"][0]
    container["command"] = ["sh", "-c", WRITE]
    container["env"] = [{"name": "CONTENT", "value": base64.b64encode(writer.path.read_bytes()).decode()}]
    container["volumeMounts"] = [{"name": "w", "mountPath": "/w"}]
    template["spec"]["volumes"] = [{"name": "w", "persistentVolumeClaim": {"claimName": claim}}]
    namespace = admin.config.namespace
    annotations = {LOG_DIR_ANNOTATION: "/w/logs"}
    async with feed_of(admin, namespace) as cluster, asyncio.timeout(CURVE_PATIENCE_S):
        await operator_objects.make(admin, JOBS, "bytes", {"template": template}, annotations=annotations)
        ref = JobRef(namespace, "bytes", "Job", "batch/v1")
        feed = CurveFeed(admin, ref, lambda: job_called(cluster.newest, "Job", "bytes"))
        seen = set()
        while losses(feed) != wanted:
            try:
                await feed.read_once()
            except KubeError:  # the pod or its folder is not there yet
                await asyncio.sleep(0.2)
            else:
                (tmp_path / "begin").touch()
            assert losses(feed) == wanted[: len(losses(feed))]
            seen.add(len(losses(feed)))
        assert len(seen) > 2, "it was read while it grew"
        assert feed.problem == "" and "/w/logs in bytes-" in feed.source_text

        (tmp_path / "end").touch()
        await cluster.until(
            lambda snapshot: (job := job_called(snapshot, "Job", "bytes")) is not None and job.status.is_final
        )
        later = CurveFeed(admin, ref, lambda: job_called(cluster.newest, "Job", "bytes"))
        with pytest.raises(KubeError):
            await later.read_once()
        manifest = await later.reader_manifest()
        async with running_reader(admin, manifest) as later.reader:
            await later.read_once()
            with pytest.raises(KubeError, match="Read-only"):
                await _touch(admin, later.reader)
        assert losses(later) == wanted
        assert later.source_text == f"/w/logs in {manifest['metadata']['name']}"

        left = await later.reader_manifest()
        left["spec"]["activeDeadlineSeconds"] = 1
        await admin.create(PODS, left, namespace)
        name = left["metadata"]["name"]
        await comes(
            admin, PODS, name, lambda pod: pod["status"].get("phase") == "Failed", namespace, CURVE_PATIENCE_S
        )
        assert await delete_ended_readers(admin, namespace) == [name]
        readers = await admin.list(PODS, namespace, label_selector=f"{READER_LABEL}=true")
        assert [pod for pod in readers if not pod["metadata"].get("deletionTimestamp")] == []


async def _touch(client: Client, pod: str) -> None:
    await client.run(pod, client.config.namespace, ["touch", "/w/x"])


async def test_a_tensorboard_is_read_through_the_proxy_of_its_service(admin: Client) -> None:
    answers = {"tags": {".": {"loss": {}}}, "scalars": [[1.7e9, 1, 2.5], [1.7e9 + 1, 2, 2.25]]}
    files = " ".join(
        f"echo '{json.dumps(body)}' > /www/data/plugin/scalars/{name};" for name, body in answers.items()
    )
    serving = f"mkdir -p /www/data/plugin/scalars; {files} httpd -f -p 6006 -h /www"
    namespace, labels = admin.config.namespace, {"app": "board"}
    await operator_objects.make(
        admin, PODS, "board", operator_objects.pod_spec("main", 0, serving), labels=labels
    )
    spec = {"selector": labels, "ports": [{"port": 80, "targetPort": 6006}]}
    await operator_objects.make(admin, SERVICES, "plain-tensorboard", spec)
    await operator_objects.make(
        admin, JOBS, "plain", {"suspend": True, "template": operator_objects.template("main", 0)}
    )
    ref = JobRef(namespace, "plain", "Job", "batch/v1")
    async with feed_of(admin, namespace) as cluster, asyncio.timeout(CURVE_PATIENCE_S):
        await cluster.until(lambda snapshot: job_called(snapshot, "Job", "plain") is not None)
        while True:
            feed = CurveFeed(admin, ref, lambda: job_called(cluster.newest, "Job", "plain"))
            try:
                await feed.read_once()
                break
            except KubeError:  # the endpoints are not there yet
                await asyncio.sleep(0.2)
        assert losses(feed) == [(1, 2.5), (2, 2.25)]
        assert feed.source_text == "TensorBoard at plain-tensorboard:80"
