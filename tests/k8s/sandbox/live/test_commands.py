"""Commands, shells and ports of jobs that run or hang: how they exit, and what other users can reach."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest

from k8s.cluster.cluster_mirror import ClusterMirror
from k8s.jobs.port_forward import forward
from k8s.kinds.job_spec import JobSpec
from k8s.kinds.kubeflow.pytorch_job import PYTORCH_JOBS, PyTorchJob
from k8s.models.resources import JOBS, PODS
from k8s.reasons.gather import answer_why
from k8s.reasons.stacks import StackReport, inspect_ranks
from k8s.sandbox import SandboxAddress
from k8s.sandbox.node.nodes import Ports
from k8s.snapshot import ClusterSnapshot, Job
from tests import ROOT
from tests.k8s.sandbox.live.running import (
    PATIENCE_S,
    Space,
    batch_job,
    conditions,
    has,
    listening_sockets,
    marked,
    phase,
    pod,
    pytorch_job,
)
from tests.support import second_account
from tests.support.shell_app import InTerminal
from tests.support.terminal import Terminal
from tests.trainer.jobs import SMALL
from trainer.catalogue import find
from tui.commands import console
from tui.commands.support.connect import read_jobs
from tui.draft.job_files import create_with_files
from tui.session.life_feed import LifeFeed
from tui.settings.options import ConsoleOptions
from tui.tables.filters import is_fault
from tui.tables.jobs import COLUMNS, JobsNow, job_row
from tui.terminal import tty_state
from tui.text.format import Clock

BY_RANK = 'echo before; for rank in 0 1 2 3; do echo "[1,$rank]<stdout>:by rank"; done; echo after; exit 3'
"""Prints as mpirun does with --tag-output, which is not what is tested here."""
SCRIPT = """
import os, time
rank = int(os.environ["RANK"])
print(f"rank {rank} starts", flush=True)
if rank == 2:
    raise ValueError("bad shard 7")
time.sleep(60)
"""


@pytest.mark.slow
async def test_waiting_and_following_exit_as_the_job_does(space: Space) -> None:
    raises = (sys.executable, "-c", "{}['lr']")
    await space.create(JOBS, batch_job("well", "sleep", "0.1", backoffLimit=0))
    await space.create(JOBS, batch_job("raises", *raises, backoffLimit=0))
    submit = ("submit", "job", "--image=x", "--follow", "--name")
    well, raised, killed, followed = await asyncio.gather(
        space.run_console("wait", "well"),
        space.run_console("wait", "raises"),
        space.run_console(*submit, "killed", "--", "sh", "-c", "kill -9 $$$$"),
        space.run_console(*submit, "f-raises", "--", *raises),
    )
    assert well[:2] == (0, "well Succeeded\n")
    assert raised[:2] == (1, "raises Failed\n")
    assert (killed[0], followed[0]) == (137, 1)
    for _, _, err in (raised, followed):
        assert "raises failed: pod-0 exit 1: KeyError: 'lr'" in err


@pytest.mark.slow
async def test_a_wait_ends_with_the_job(space: Space) -> None:
    await space.create(JOBS, batch_job("removed", "sleep", "300"))
    assert await space.gpuconsole("wait", "removed", "--for=running") == "removed Running\n"
    waiting = asyncio.create_task(space.run_console("wait", "removed"))
    await space.delete(JOBS, "removed")
    status, out, _ = await waiting
    # Where it is gone before the command looks, there is no such job.
    assert (status, out) in ((1, "removed Deleted\n"), (1, ""))


async def test_a_job_past_its_deadline_fails_without_an_exit_code(space: Space) -> None:
    await space.create(JOBS, batch_job("late", "sleep", "300", activeDeadlineSeconds=1))
    status, out, _ = await space.run_console("wait", "late")
    assert (status, out) == (1, "late Failed\n")
    assert conditions(await space.comes(JOBS, "late", conditions))["Failed"] == "True"


@pytest.mark.slow
async def test_following_an_mpi_job_prints_lines_of_the_launcher_and_rank_0(
    space: Space, tmp_path: Path
) -> None:
    status, out, err = await space.run_console(
        *("submit", "--follow", "mpi", "--name", "follow", "--image", "x"),
        *("--workers", "2", "--slots-per-worker", "2", BY_RANK),
        cwd=tmp_path,
    )
    assert status == 3, err
    assert out.splitlines() == [
        f"MPIJob {space.name}/follow created.",
        "before",
        "[1,0]<stdout>:by rank",
        "after",
    ]
    assert f"To see why: gpuconsole --kubeconfig '{space.kubeconfig}' -n {space.name} why follow" in err


@pytest.mark.end_to_end
async def test_the_rank_that_raised_is_named_with_its_exception(space: Space, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    await space.gpuconsole(
        *("submit", "pytorch", "--name", "shards", "--image", "x", "--nproc-per-node", "4"),
        f"torchrun {tmp_path}/train.py",
    )
    await space.comes(PYTORCH_JOBS, "shards", has("Failed"))
    (row,) = msgspec.json.decode(await space.gpuconsole("list", "-o", "json"))["items"]
    assert row["reason"] == "rank 2 exit 1: ValueError: bad shard 7"
    failure = msgspec.json.decode(await space.gpuconsole("get", "shards", "-o", "json"))["failure"]
    assert (failure["rank"], failure["instance"]) == (2, "master-0")
    assert failure["error"] == "ValueError: bad shard 7"
    assert any("train.py" in line for line in failure["traceback"])
    assert any("3 ranks" in each for each in failure["others"])
    for command in ("why", "diagnose"):
        text = await space.gpuconsole(command, "shards")
        assert text.startswith("Failed: rank 2 exit 1 first, ")
        assert ": ValueError: bad shard 7.\n" in text
        assert f"gpuconsole --kubeconfig '{space.kubeconfig}' -n {space.name} logs shards -r 2" in text
    lines = (await space.gpuconsole("logs", "shards", "-r", "2")).splitlines()
    assert lines[0] == "[rank2]: rank 2 starts"
    assert all(line.startswith("[rank2]: ") for line in lines)


async def test_a_running_sandbox_is_joined_where_there_is_no_kubeconfig(
    running: SandboxAddress, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(running.kubeconfig.parents[2]))
    for words in (("top", "nodes", "-o", "name"), ("top", "nodes", "--context", "lab")):
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "tui", *words),
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = (text.decode() for text in await child.communicate())
        if "--context" in words:
            assert child.returncode == 1 and "sandbox that runs" not in err
        else:
            assert (child.returncode, out.split()[-2:]) == (0, ["node/sandbox-0", "node/sandbox-1"]), err
            assert err == "There is no kubeconfig: this is the sandbox that runs on this machine.\n"
    for function in ("terminal_problem", "prepare"):
        monkeypatch.setattr(tty_state, function, str)
    assert console.prepare(ConsoleOptions()).is_sandbox, "without a question"


SERVE = """
import http.server, sys
http.server.test(http.server.SimpleHTTPRequestHandler, port=int(sys.argv[1]), bind="127.0.0.1")
"""


@pytest.mark.slow
async def test_the_console_gives_its_terminal_to_a_pod_and_comes_back(space: Space) -> None:
    await space.create(PODS, pod("shelled", "sleep", "600"))
    await space.comes(PODS, "shelled", phase("Running"))

    def use() -> None:
        with InTerminal(str(space.kubeconfig), space.name, "shelled") as terminal:
            terminal.wait_for("no shell yet")
            terminal.send("s")
            terminal.wait_for("-- shelled: exit or ctrl+d ends it")
            terminal.send("stty size; echo $((40 + 2))\r")
            terminal.wait_for("24 80")
            terminal.wait_for("42")
            terminal.resize(100, 30)
            terminal.send("until stty size | grep '30 100'; do sleep 0.1; done; exit 7\r")
            terminal.wait_for("ended with 7")
            terminal.send("x")
            screen = terminal.wait_for("keys 1")
            assert "went on" in screen
            assert "stty" not in screen

    await asyncio.to_thread(use)


async def shell_into(space: Space, name: str, use: Callable[[Terminal], None]) -> None:
    """Open a shell in a new job by the command line, and check that it leaves its terminal as it was."""
    await space.create(JOBS, batch_job(name, "sleep", "600"))
    await space.comes(JOBS, name, lambda job: (job.get("status") or {}).get("active"))
    found = await space.objects(PODS, label_selector=f"batch.kubernetes.io/job-name={name}")
    await space.comes(PODS, found[0]["metadata"]["name"], phase("Running"))
    words = [sys.executable, "-P", "-m", "tui", "shell", name, *space.options]

    def run() -> None:
        with Terminal(words, columns=80, lines=24) as terminal:
            before = terminal.attributes
            terminal.wait_for("exit or ctrl+d ends it")
            use(terminal)
            assert terminal.attributes == before

    await asyncio.to_thread(run)


@pytest.mark.slow
async def test_the_command_line_opens_a_shell_in_a_job(space: Space) -> None:
    def use(terminal: Terminal) -> None:
        terminal.send("echo $((40 + 2)); exit 3\r")
        assert terminal.wait_for_end() == 3
        assert "42" in terminal.text

    await shell_into(space, "worked", use)


@pytest.mark.slow
async def test_a_signal_ends_a_shell_and_restores_the_terminal(space: Space) -> None:
    def use(terminal: Terminal) -> None:
        terminal.wait_for(lambda _: terminal.is_raw)
        terminal.signal(signal.SIGTERM)
        assert terminal.wait_for_end() == 143

    await shell_into(space, "signalled", use)


async def test_a_web_server_in_a_pod_is_reached_until_the_pod_is_gone(space: Space) -> None:
    port = Ports().of("this test")
    await space.create(PODS, pod("serving", "python", "-c", SERVE, str(port)))
    await space.comes(PODS, "serving", phase("Running"))
    async with asyncio.timeout(PATIENCE_S), forward(space.client, "serving", space.name, port) as opened:

        async def fetch() -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", opened.local_port)
            writer.write(b"GET / HTTP/1.0\r\n\r\n")
            try:
                return await reader.read()
            except ConnectionResetError:
                return b""
            finally:
                writer.close()

        while not (answer := await fetch()):  # it runs, but does not listen yet
            await asyncio.sleep(0.05)
        assert b"200 OK" in answer
        await space.delete(PODS, "serving", grace_period_s=0)
        while await fetch():
            await asyncio.sleep(0.05)
        assert opened.last_error


RANKS = """
import os, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
print("sum", int(total), "port", os.environ["MASTER_PORT"], flush=True)
while not os.path.exists(os.environ["RELEASE"]):
    time.sleep(0.05)
dist.destroy_process_group()
"""
KNOCK = """
import socket, sys
for address, port in (word.split(":") for word in sys.argv[1:]):
    try:
        socket.create_connection((address, int(port)), timeout=5).close()
    except OSError as error:
        print(type(error).__name__)
    else:
        print("open")
"""


def own_address() -> str:
    """Return an address of this machine that others can reach; empty when it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return ""
        return str(probe.getsockname()[0])


@pytest.mark.slow
async def test_the_ranks_of_a_job_listen_on_loopback_only(space: Space, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    release = tmp_path / "release"
    (tmp_path / "ranks.py").write_text(RANKS)
    command = ("torchrun", str(tmp_path / "ranks.py"))
    job = pytorch_job("local", *command, env={"MARK": space.name, "RELEASE": str(release)})
    await space.create(PYTORCH_JOBS, job)
    try:
        await space.comes(PYTORCH_JOBS, "local", has("Running"))
        said = await space.says("local-master-0", "sum 2 port ")
        found = listening_sockets(marked(space.name))
        assert {str(address) for address, _ in found} == {"127.0.0.1"}
        outside = own_address()
        port = int(said.split("port ")[1].split()[0])
        assert port not in {number for _, number in found}, "they meet at a file"
        if os.geteuid() == 0:
            assert second_account.said(KNOCK, f"127.0.0.1:{port}").split() == ["ConnectionRefusedError"]
        if os.geteuid() == 0 and outside:
            words = [f"{outside}:{port}" for _, port in found]
            answers = second_account.said(KNOCK, *words).split()
            assert set(answers) == {"ConnectionRefusedError"}
    finally:
        release.touch()
    await space.comes(PYTORCH_JOBS, "local", has("Succeeded"))


HAS_TORCH = pytest.mark.skipif(
    find_spec("torch") is None, reason="needs torch, which gpuconsole[trainer] brings"
)
SILENT = """
import time
for step in range(20):
    print(f"step {step} loss 0.5", flush=True)
    time.sleep(0.1)
time.sleep(1000)
"""
HANGING = """
import time
import torch.distributed as dist
from torch import ones

def load_batch():
    time.sleep(1000)

dist.init_process_group("gloo")
for step in range(9):
    if step == 5 and dist.get_rank() == 1:
        load_batch()
    dist.all_reduce(ones(4))
"""


@pytest.mark.end_to_end
async def test_a_hung_job_is_reported_in_its_row_in_why_and_among_the_faults(space: Space) -> None:
    await space.create(PYTORCH_JOBS, pytorch_job("silent", "python", "-c", SILENT, workers=1))
    feed = ClusterMirror(space.client, space.name)
    life = LifeFeed(
        space.client, None, lambda: feed.all_jobs, on_signs=feed.publish_soon, least_s=1.2, read_s=0.5
    )
    feed.evidence, feed.life = life.evidence, life.signs
    found: asyncio.Queue[tuple[Job, ClusterSnapshot]] = asyncio.Queue()

    def take(snapshot: ClusterSnapshot) -> None:
        for job in snapshot.jobs:
            if job.ref.name == "silent" and snapshot.signs(job).silence is not None:
                found.put_nowait((job, snapshot))

    life.life.watch("test", lambda: feed.all_jobs)
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        running = [group.create_task(feed.run(take)), group.create_task(life.run())]
        job, snapshot = await found.get()
        for each in running:
            each.cancel()
    assert is_fault(job, snapshot.signs(job))
    row = job_row(job, COLUMNS, JobsNow(Clock.ahead(0), signs=snapshot.signs), has_detail=True)
    assert row.detail is not None and re.match(r"└ no line for .*usually every \d\.\ds", row.detail)
    assert (await answer_why(space.client, job, snapshot)).sentence.startswith("It runs, but no line for ")


async def submit(space: Space, spec: JobSpec) -> None:
    await create_with_files(space.client, PyTorchJob(), replace(spec, namespace=space.name, image="x"))


async def running_job(space: Space, name: str) -> Job | None:
    snapshot = await read_jobs(ConsoleOptions(), space.client)
    return next((job for job in snapshot.jobs if job.ref.name == name and job.status == "Running"), None)


async def report_of(space: Space, name: str, is_so: Callable[[StackReport], object]) -> StackReport:
    """Ask the ranks of a job until the report is as claimed."""
    report = StackReport()
    async with asyncio.timeout(PATIENCE_S):
        while not is_so(report):
            await asyncio.sleep(0.2)
            if job := await running_job(space, name):
                report = await inspect_ranks(space.client, job)
    return report


@pytest.mark.slow
@HAS_TORCH
async def test_a_debuggable_job_names_the_rank_its_line_and_the_collective(
    space: Space, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(HANGING)
    command = ("python", f"{tmp_path}/train.py")
    await submit(space, JobSpec(name="hung", workers=2, command=command, debuggable=True))
    report = await report_of(space, "hung", lambda found: found.collectives)
    assert [(each.who, each.place, each.code) for each in report.groups] == [
        ("rank 0", "all_reduce (train.py:13)", "dist.all_reduce(ones(4))"),
        ("rank 1", "load_batch (train.py:7)", "time.sleep(1000)"),
    ]
    assert "Rank 1 never entered all_reduce #6: rank 0 waits in it for " in report.sentence
    assert report.problems == ()
    for pid in marked(f"GPUCONSOLE_POD_UID={(await space.get(PODS, 'hung-worker-0'))['metadata']['uid']}"):
        os.kill(pid, signal.SIGSTOP)
    report = await report_of(space, "hung", lambda found: "(stopped)" in found.sentence)
    assert (
        "worker server: timed out; faulthandler: the process did not handle the signal" in report.problems[0]
    )


@pytest.mark.slow
@HAS_TORCH
async def test_a_packaged_trainer_gives_its_stacks_and_a_plain_script_gets_a_debuggable_hint(
    space: Space, tmp_path: Path
) -> None:
    words = find("ddp").command([*SMALL, "--epochs", "2000"])
    await submit(space, JobSpec(name="trained", processes=2, trainer="ddp", command=tuple(words)))
    (tmp_path / "train.py").write_text("import time\ntime.sleep(1000)\n")
    await submit(space, JobSpec(name="plain", command=("python", f"{tmp_path}/train.py")))
    report = await report_of(space, "plain", lambda found: "hrtimer_nanosleep" in found.sentence)
    assert report.sources == ("/proc",)
    assert "Submit with --debuggable" in report.problems[0]
    report = await report_of(space, "trained", lambda found: "torch's flight recorder" in found.sources)
    assert {rank for each in report.groups for rank in each.ranks} == {0, 1}
