"""`shell` and `forward` on the command line, without a terminal."""

from __future__ import annotations

import asyncio
import signal

import pytest

from k8s.jobs import exec
from tests.scripted.server import V4, V5, WAIT_S, Answer, ScriptedCluster, Speaker, Talk, page, refusal
from tests.support.objects import pod_of, pytorch_job
from tests.tui.commands.conftest import CommandLine

PODS = "/api/v1/namespaces/default/pods"
JOB = pytorch_job("bert", workers=2)


@pytest.fixture(autouse=True)
def bert(cluster: ScriptedCluster) -> None:
    """A job of two pods; only the second runs."""
    places = (("master-0", "Pending"), ("worker-0", "Running"))
    pods = [pod_of(JOB, place, on="n1", phase=phase) for place, phase in places]
    for path, objects in (("/api/v1/pods", pods), (PODS, pods), ("/apis/kubeflow.org/v1/pytorchjobs", [JOB])):
        cluster.replace(path, page(objects))


async def sum_up(speaker: Speaker) -> None:
    """Play a command that reads all of its input and ends with 3."""
    heard = b""
    async for channel, content in speaker.heard():
        if channel == exec.CLOSE:
            break
        heard += content
    await speaker.say(exec.STDOUT, b"%d bytes\n\xff" % len(heard))
    await speaker.say(exec.STDERR, b"done\n")
    cause = {"reason": "ExitCode", "message": "3"}
    await speaker.end(status="Failure", details={"causes": [cause]})


async def test_a_command_has_input_output_and_an_exit_code(run: CommandLine) -> None:
    run.cluster.say(f"{PODS}/bert-worker-0/exec", Talk(sum_up, (V5,)))
    child = await run.start("shell", "bert", "--", "wc", "-c")
    assert await child.communicate(b"x" * 1_000_000) == (b"1000000 bytes\n\xff", b"done\n")
    assert child.returncode == 3
    (asked,) = run.cluster.asked(f"{PODS}/bert-worker-0/exec")
    assert asked.query["container"] == "pytorch"
    assert "tty" not in asked.query


async def test_an_old_cluster_cannot_end_input(run: CommandLine) -> None:
    async def take(speaker: Speaker) -> None:
        assert await speaker.hear() == (exec.STDIN, b"abc")
        await has_said.wait()
        await speaker.end()

    has_said = asyncio.Event()
    run.cluster.say(f"{PODS}/bert-worker-0/exec", Talk(take, (V4,)))
    child = await run.start("shell", "bert", "--", "cat")
    assert child.stdin is not None and child.stderr is not None
    child.stdin.write(b"abc")
    child.stdin.close()
    async with asyncio.timeout(WAIT_S):
        assert b"cannot signal the end of input" in await child.stderr.readline()
    has_said.set()
    assert await child.wait() == 0


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("shell", "nobody"), 1, "There is no job nobody"),
        (("shell", "bert", "-i", "worker-9"), 1, "There is no instance worker-9"),
        (("shell", "bert", "-c", "zz"), 1, "There is no container zz in worker-0."),
        (("shell", "bert", "-i", "master-0"), 1, "pod bert-master-0 is not running"),
        (("list", "--", "x"), 2, "Only submit and shell take words after --"),
        (("forward", "bert"), 1, "No TensorBoard found for bert."),
        (("forward", "bert", "-i", "worker-0"), 2, "--instance needs a PORT"),
        (("forward", "bert", "0"), 2, "'0' is not a port"),
        (("forward", "bert", "80", "--tensorboard"), 2, "not allowed with argument"),
        (("forward", "bert", "80", "-i", "master-0"), 1, "pod bert-master-0 is not running"),
    ],
)
async def test_shell_and_forward_report_missing_targets_and_invalid_arguments(
    run: CommandLine, words: tuple[str, ...], status: int, said: str
) -> None:
    for path in ("exec", "portforward"):
        run.cluster.say(f"{PODS}/bert-master-0/{path}", refusal(500, "pod bert-master-0 is not running"))
    for name in ("bert-master-0", "bert-worker-0"):
        run.cluster.say(f"{PODS}/{name}", Answer({"metadata": {"name": name}}))
    (await run(*words)).reports(status, said)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
async def test_forward_prints_its_local_address_and_runs_until_a_signal(
    run: CommandLine, number: signal.Signals, status: int
) -> None:
    async def serve(speaker: Speaker) -> None:
        await speaker.say(0, b"\x50\0")
        await speaker.say(1, b"\x50\0")
        async for _, content in speaker.heard():
            await speaker.say(0, b"heard " + content)

    path = f"{PODS}/bert-worker-0/portforward"
    gone = refusal(404, 'pods "bert-worker-0" not found')
    run.cluster.say(path, Talk(serve, (V4,)), Talk(serve, (V4,)), gone, gone)
    child = await run.start("forward", "bert", "80")
    assert child.stdout is not None and child.stderr is not None
    async with asyncio.timeout(WAIT_S):
        host, _, port = (await child.stdout.readline()).decode().strip().partition(":")
        assert b"forwarding to port 80 of bert-worker-0; ctrl+c to stop" in await child.stderr.readline()
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"x")
        assert await reader.readexactly(7) == b"heard x"
        _, other = await asyncio.open_connection(host, int(port))
        assert b"Could not reach port 80" in await child.stderr.readline()
        assert b'pods "bert-worker-0" not found' in await child.stderr.readline()
        child.send_signal(number)
        assert await child.wait() == status
    for each in (writer, other):
        each.close()


async def test_forward_tensorboard_uses_the_pod_with_the_tensorboard_port(run: CommandLine) -> None:
    async def serve(speaker: Speaker) -> None:
        await speaker.say(0, b"\x76\x17")

    run.cluster.say(f"{PODS}/bert-worker-0", Answer({"metadata": {"name": "bert-worker-0"}}))
    container = {"name": "tb", "ports": [{"containerPort": 6006}]}
    master = {"spec": {"containers": [container]}, "status": {"phase": "Running"}}
    run.cluster.say(f"{PODS}/bert-master-0", Answer(master))
    run.cluster.say(f"{PODS}/bert-master-0/portforward", Talk(serve, (V4,)))
    child = await run.start("forward", "bert", "--tensorboard")
    assert child.stdout is not None
    async with asyncio.timeout(WAIT_S):
        assert (await child.stdout.readline()).startswith(b"http://127.0.0.1:")
        child.send_signal(signal.SIGINT)
        assert await child.wait() == 0
    assert run.cluster.asked(f"{PODS}/bert-master-0/portforward")[0].query == {"ports": "6006"}
