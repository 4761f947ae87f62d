"""The sandbox as a whole: started once, joined, stopped, killed, and what is left of it each time."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from k8s import sandbox
from k8s.client.client import Client
from k8s.kinds.kubeflow.pytorch_job import PYTORCH_JOBS
from k8s.models.resources import CLAIMS, CONFIG_MAPS, DEPLOYMENTS, EVENTS, NODES, PODS
from k8s.sandbox.__main__ import LOG_BYTES
from k8s.sandbox.paths import SandboxPaths
from k8s.text.errors import KubeError
from tests import ROOT
from tests.k8s.sandbox.live.running import (
    comes,
    eventually,
    has,
    leave,
    log_of,
    marked,
    phase,
    pod,
    pytorch_job,
    sleepers,
    until_marked,
)


def disk_full(*_: object) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


QUICK = sandbox.SandboxOptions(nodes=2, gpus_per_node=4, restart_delay_s=0.2)


@pytest.fixture(autouse=True)
async def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SandboxPaths]:
    """A folder for a sandbox of this test's own; nothing of it survives the test."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    yield SandboxPaths.default()
    found = await sandbox.status()
    if found.is_running:
        with suppress(ProcessLookupError):
            os.kill(found.pid, signal.SIGKILL)


@pytest.mark.end_to_end
async def test_a_sandbox_starts_joins_and_stops_with_any_proxy_set(
    paths: SandboxPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    told: list[str] = []
    assert not (await sandbox.status()).is_running
    first = await sandbox.start(QUICK, told.append)
    assert told[0] == "Starting the sandbox" and told[-1] == "Setting up nodes and volumes"
    with monkeypatch.context() as full:
        full.setattr(Path, "write_bytes", disk_full)
        second = await sandbox.start()
    assert (first.was_running, second.was_running) == (False, True)
    assert (second.pid, second.url) == (first.pid, first.url)
    found = await sandbox.status()
    assert (found.is_running, found.answers, found.pid) == (True, True, first.pid)
    reject_readable_secrets(paths)
    async with await Client.connect(str(first.kubeconfig)) as client:
        assert len(await client.list(NODES)) == QUICK.nodes
    assert await sandbox.stop()
    assert not await sandbox.stop()
    assert not (await sandbox.status()).is_running
    assert sandbox.kubeconfig_path() == paths.kubeconfig == first.kubeconfig


def reject_readable_secrets(paths: SandboxPaths) -> None:
    """Check that other users can read neither the folder nor the token, also in the list of processes."""
    assert stat.S_IMODE(paths.folder.stat().st_mode) == 0o700
    for name in ("kubeconfig", "token", "tls.key"):
        assert stat.S_IMODE((paths.folder / name).stat().st_mode) == 0o600
    token = (paths.folder / "token").read_text()
    command_lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not any(token.encode() in line for line in command_lines)


async def test_two_consoles_at_once_get_one_sandbox_which_survives_them(paths: SandboxPaths) -> None:
    program = (
        "import asyncio; from k8s import sandbox;"
        "print(asyncio.run(sandbox.start(sandbox.SandboxOptions(nodes=1))).pid, flush=True)"
    )
    words = [sys.executable, "-c", program]
    consoles = [
        subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True) for _ in range(2)
    ]
    pids = {int((await asyncio.to_thread(console.communicate))[0]) for console in consoles}
    for console in consoles:
        with suppress(ProcessLookupError):
            os.killpg(console.pid, signal.SIGHUP)
    (pid,) = pids
    while not (found := await sandbox.status()).answers and found.is_running:
        pass  # it may be slower than one request waits
    assert (found.pid, found.answers) == (pid, True)
    assert os.getsid(pid) == pid


@pytest.mark.slow
async def test_a_start_that_is_cancelled_stops_the_sandbox(paths: SandboxPaths) -> None:
    def leave_it(_words: str) -> None:
        if paths.is_held:
            starting.cancel()

    starting = asyncio.create_task(sandbox.start(progress=leave_it))
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not paths.is_held
    assert not (await sandbox.start()).was_running


@pytest.mark.slow
async def test_a_restart_keeps_address_and_objects_and_a_reset_forgets_them(paths: SandboxPaths) -> None:
    first = await sandbox.start(QUICK)
    async with await Client.connect(str(first.kubeconfig)) as client:
        config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept"}, "data": {"a": "b"}}
        await client.create(CONFIG_MAPS, config, "default")
        claim = await client.get(CLAIMS, "workspace", "default")
    folder = Path(claim["metadata"]["annotations"]["gpuconsole.dev/path"])
    (folder / "model.pt").write_text("weights")
    await sandbox.stop()
    second = await sandbox.start(sandbox.SandboxOptions(nodes=1, gpus_per_node=8))
    assert second.url == first.url
    async with await Client.connect(str(second.kubeconfig)) as client:
        assert (await client.get(CONFIG_MAPS, "kept", "default"))["data"] == {"a": "b"}
        nodes = await client.list(NODES)
        assert [node["metadata"]["name"] for node in nodes] == ["sandbox-0"]
        assert nodes[0]["status"]["allocatable"]["nvidia.com/gpu"] == "8"
    await sandbox.stop()
    with socket.socket() as thief:
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        thief.bind(("127.0.0.1", int(first.url.rpartition(":")[2])))
        thief.listen()
        third = await sandbox.start(QUICK)
        assert third.url != first.url, "the port is taken"
        assert (await sandbox.status()).answers
    assert (folder / "model.pt").exists()
    await sandbox.reset()
    assert not (await sandbox.status()).is_running
    assert {path.name for path in paths.folder.iterdir()} <= {"sandbox.lock", "start.lock"}


@pytest.mark.slow
async def test_stopping_terminates_pods_gracefully_and_ends_processes_left_by_exec(
    paths: SandboxPaths, tmp_path: Path
) -> None:
    mark, seconds = f"stopping-{os.getpid()}", f"7{os.getpid()}.7"
    trace = tmp_path / "trace"
    script = f"trap 'echo asked >{trace}; exit 0' TERM; echo up; while :; do sleep 0.05; done"
    container = {"env": [{"name": "MARK", "value": mark}]}
    address = await sandbox.start(QUICK)
    async with await Client.connect(str(address.kubeconfig)) as client:
        await client.create(PODS, pod("polite", "sh", "-c", script, container=container), "default")
        await comes(client, PODS, "polite", phase("Running"))
        await leave(client, "default", "polite", seconds)
    await sandbox.stop()
    assert marked(mark) == sleepers(seconds) == []
    assert trace.read_text() == "asked\n"
    address = await sandbox.start(QUICK)
    async with await Client.connect(str(address.kubeconfig)) as client:
        stopped = await client.get(PODS, "polite", "default")
    assert (stopped["status"]["phase"], stopped["status"]["reason"]) == ("Failed", "SandboxStopped")
    assert stopped["status"]["message"] == "The sandbox was stopped while this pod ran."


@pytest.mark.slow
async def test_a_killed_sandbox_leaves_no_process_and_fails_its_pods_at_the_next_start(
    paths: SandboxPaths,
) -> None:
    mark, seconds = f"killed-{os.getpid()}", f"7{os.getpid()}.6"
    address = await sandbox.start(QUICK)
    job = pytorch_job("victim", "sh", "-c", "(setsid sleep 300 &); sleep 300", env={"MARK": mark})
    async with await Client.connect(str(address.kubeconfig)) as client:
        await client.create(PYTORCH_JOBS, job, "default")
        await comes(client, PYTORCH_JOBS, "victim", has("Running"))
        until_marked(mark, 4)
        await leave(client, "default", "victim-master-0", seconds)
    os.killpg(address.pid, signal.SIGKILL)
    eventually(lambda: not marked(mark) and not sleepers(seconds))
    address = await sandbox.start(QUICK)
    assert not address.was_running
    async with await Client.connect(str(address.kubeconfig)) as client:
        lost = await comes(client, PODS, "victim-master-0", phase("Failed"))
        await comes(client, PYTORCH_JOBS, "victim", has("Failed"))
        events = await client.list(EVENTS, "default", field_selector="involvedObject.name=victim-master-0")
    assert lost["status"]["reason"] == "SandboxStopped"
    assert lost["status"]["message"] == "The sandbox was killed while this pod ran."
    assert lost["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137
    assert "SandboxStopped" in {event["reason"] for event in events}


@pytest.mark.slow
async def test_an_unresponsive_sandbox_is_reported_and_can_be_stopped(paths: SandboxPaths) -> None:
    address = await sandbox.start(QUICK)
    os.kill(address.pid, signal.SIGSTOP)
    with pytest.raises(KubeError) as refused:
        await sandbox.start(answer_s=0.1)
    assert refused.value.what == "The sandbox runs but does not answer."
    assert "gpuconsole sandbox stop" in refused.value.hint
    assert not (await sandbox.status()).answers
    assert await sandbox.stop(patience_s=0.5)
    assert not (await sandbox.start(QUICK)).was_running


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
async def test_an_unwritable_folder_is_reported(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(KubeError) as refused:
        await sandbox.start()
    assert refused.value.what == "The sandbox cannot use its folder."


async def test_a_file_in_place_of_the_sandbox_folder_is_reported(paths: SandboxPaths) -> None:
    paths.folder.parent.mkdir(parents=True)
    paths.folder.write_text("")
    with pytest.raises(KubeError) as refused:
        await sandbox.start()
    assert refused.value.what == "The sandbox cannot use its folder."
    assert "XDG_DATA_HOME" in refused.value.hint


async def test_a_folder_that_a_shell_would_quote_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "li o'neil"))
    with pytest.raises(KubeError) as refused:
        await sandbox.start()
    assert "XDG_DATA_HOME" in refused.value.hint
    assert list(tmp_path.iterdir()) == []


async def test_a_broken_database_is_reported_as_a_console_error(paths: SandboxPaths) -> None:
    paths.prepare()
    paths.database.write_bytes(b"this is no database" * 100)
    with pytest.raises(KubeError) as refused:
        await sandbox.start()
    assert refused.value.what and refused.value.why
    assert not (await sandbox.status()).is_running


@pytest.mark.slow
async def test_an_idle_sandbox_stays_up_for_a_running_pod_but_not_for_a_deployment(
    paths: SandboxPaths,
) -> None:
    address = await sandbox.start(sandbox.SandboxOptions(nodes=1, idle_s=1.0))
    labels = {"app": "serves"}
    template = {"metadata": {"labels": labels}, "spec": pod("p", "sleep", "300")["spec"]}
    template["spec"] |= {"restartPolicy": "Always", "terminationGracePeriodSeconds": 1}
    deployment = {
        "metadata": {"name": "serves"},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }
    async with await Client.connect(str(address.kubeconfig)) as client:
        await client.create(DEPLOYMENTS, deployment, "default")
        await comes(client, DEPLOYMENTS, "serves", lambda each: each["status"].get("availableReplicas"))
        busy = await client.create(PODS, pod("busy", "sh", "-c", "sleep 2; echo done"), "default")
        await comes(client, PODS, "busy", phase("Running"))
    log = paths.pods / busy["metadata"]["uid"] / "main" / "0.log"
    eventually(lambda: not paths.is_held)
    assert log.read_text().endswith("done\n")


async def test_processes_left_by_an_earlier_sandbox_end_at_the_next_start(paths: SandboxPaths) -> None:
    seconds = f"7{os.getpid()}.9"
    env = {**os.environ, "GPUCONSOLE_SANDBOX": str(paths.folder), "GPUCONSOLE_POD_UID": "forgotten"}
    # the unmarked child ends first, now and then: its shell must not end by itself then
    script = f"env -i $(command -v sleep) {seconds} & wait; exec sleep 1000"
    left = subprocess.Popen(["sh", "-c", script], env=env, start_new_session=True)
    other = {**env, "GPUCONSOLE_SANDBOX": str(paths.folder.parent)}
    kept = subprocess.Popen(["sleep", "1000"], env=other, start_new_session=True)
    try:
        eventually(lambda: sleepers(seconds))
        await sandbox.start(QUICK)
        assert (left.wait(), kept.poll()) == (-signal.SIGKILL, None)
        assert sleepers(seconds) == []
    finally:
        for each in (left, kept):
            each.kill()
            each.wait()


@pytest.mark.slow
async def test_a_log_is_followed_and_resumed_while_it_is_rotated(paths: SandboxPaths) -> None:
    limits = sandbox.SandboxOptions(nodes=1, log_max_bytes=2**20, log_max_files=4)
    address = await sandbox.start(limits)
    script = "for i in $(seq 0 59); do seq $((i * 1000)) $((i * 1000 + 999)); sleep 0.05; done"
    async with await Client.connect(str(address.kubeconfig)) as client:
        made = await client.create(PODS, pod("wordy", "sh", "-c", script), "default")
        await comes(client, PODS, "wordy", phase("Running"))
        async with client.log("wordy", "default", follow=True) as body:
            followed = (await body.read()).decode()
        whole = await log_of(client, "wordy")
        async with client.log("wordy", "default", timestamps=True, tail=30_000) as body:
            tail = (await body.read()).decode().splitlines()
        since = tail[10_000][:19] + "Z"
        async with client.log("wordy", "default", timestamps=True, since_time=since) as body:
            resumed = (await body.read()).decode().splitlines()
    assert followed == "".join(f"{number}\n" for number in range(60_000))
    files = sorted((paths.pods / made["metadata"]["uid"] / "main").glob("*.log"))
    assert 1 < len(files) <= 4
    assert sum(file.stat().st_size for file in files) < 5 * 2**20
    assert whole == followed
    assert [line.partition(" ")[2] for line in tail] == [str(number) for number in range(30_000, 60_000)]
    assert resumed[-20_000:] == tail[10_000:]
    assert resumed[0] >= since[:19]


def test_a_full_log_is_set_aside_and_the_output_follows(tmp_path: Path) -> None:
    path = tmp_path / "sandbox.log"
    program = (
        "import logging, os, sys, pathlib\n"
        "from k8s.sandbox import __main__ as program\n"
        f"program.begin_log(pathlib.Path({str(path)!r}))\n"
        "for line in range(1500):\n"
        "    record = logging.makeLogRecord({'msg': 'x' * 1000, 'levelno': 40, 'lineno': line})\n"
        "    logging.getLogger().handle(record)\n"
        "os.write(2, b'last words\\n')\n"
    )
    with path.open("ab") as output:
        subprocess.run(
            [sys.executable, "-c", program],
            stdout=output,
            stderr=output,
            cwd=ROOT,
            check=True,
            env=os.environ,
        )
    sizes = {each.name: each.stat().st_size for each in tmp_path.iterdir()}
    assert sizes.keys() == {"sandbox.log", "sandbox.log.1"}
    assert max(sizes.values()) <= LOG_BYTES + 100
    assert path.read_text().endswith("last words\n")
