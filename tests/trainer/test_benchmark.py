"""The synthetic benchmark as a user meets it: its lines, versions, files, and how it ends."""

import asyncio
import json
import os
import re
import signal
import sys
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

torch = pytest.importorskip("torch", reason="training needs torch, which gpuconsole[trainer] brings")

import torch.distributed as dist

from tests.trainer.forked_rank import FORKING
from tests.trainer.jobs import Job, free_port
from trainer.benchmark.report import AllReduce, head_lines, iteration_line, result_lines
from trainer.benchmark.run import Benchmark, TrainStep, make_network, run
from trainer.catalogue import find
from trainer.distributed.process_group import ProcessGroup
from trainer.ranks import Ranks
from trainer.signals import StopRequest
from trainer.tfevents import ScalarCurve

TINY = ["trainer.train_mpi", "--model", "tiny", "--batch-size", "8"]
QUICK = [*TINY, "--num-warmup-batches", "1", "--num-batches-per-iter", "2", "--num-iters", "3"]
QUICK += ["--allreduce-mib", "1"]
LONG = [*TINY, "--num-iters", "1000000"]
FIGURE = r"\d+\.\d"
BLOCK = [
    "Model: tiny",
    "Batch size: 8",
    "Number of CPUs: {ranks}",
    r"Running warmup\.\.\.",
    r"Running benchmark\.\.\.",
    f"Iter #0: {FIGURE} img/sec per CPU",
    f"Iter #1: {FIGURE} img/sec per CPU",
    f"Iter #2: {FIGURE} img/sec per CPU",
    rf"Img/sec per CPU: {FIGURE} \+-{FIGURE}",
    rf"Total img/sec on {{ranks}} CPU\(s\): {FIGURE} \+-{FIGURE}",
]


BEYOND = [
    *(
        rf"All-reduce of {size}: \d+\.\d\d ms, bus bandwidth \d+\.\d{{4}} GB/s"
        for size in ("1 KiB", "4 KiB", "16 KiB", "64 KiB", "256 KiB", "1 MiB")
    ),
    rf"Scaling efficiency: {FIGURE} % \({FIGURE} img/sec per CPU with {{ranks}}, {FIGURE} with one alone\)",
]


def assert_block(lines: list[str], ranks: int) -> None:
    """Check that the lines of the benchmark stand in their order, with nothing between.

    Before them are the versions, after them what carries the gradients and what that costs, where
    there are several ranks.
    """
    last = [*BLOCK, *(BEYOND if ranks > 1 else ())]
    start = len(lines) - len(last)
    text = "\n".join(lines[start:])
    assert re.fullmatch("\n".join(last).replace("{ranks}", str(ranks)), text), "\n".join(lines)
    before = lines[start - 2 : start] if ranks > 1 else ["", lines[start - 1]]
    if ranks > 1:
        assert before.pop() == "Measuring one CPU alone, to compare with..."
    assert re.fullmatch(r"Versions: no Kubernetes, .* torch \S+", before[-1]), lines


def test_the_lines_are_those_of_horovods_benchmark() -> None:
    lines = [
        *head_lines("vgg16", 64, 4, "GPU"),
        iteration_line(0, 205.1249, "GPU"),
        *result_lines([205.5, 205.2, 205.1, 205.5, 205.1, 205.1, 205.3, 204.3, 205.0, 204.9], 4, "GPU"),
    ]
    assert lines == [
        "Model: vgg16",
        "Batch size: 64",
        "Number of GPUs: 4",
        "Iter #0: 205.1 img/sec per GPU",
        "Img/sec per GPU: 205.1 +-0.6",
        "Total img/sec on 4 GPU(s): 820.4 +-2.6",
    ]


@pytest.mark.usefixtures("imported_torchvision")
def test_each_network_gets_images_of_its_size() -> None:
    with torch.device("meta"):
        for name in find("mpi").argument("model").choices:
            network, size = make_network(name)
            assert network(torch.empty(2, 3, size, size)).shape == (2, 1000)
            assert size == (32 if name == "tiny" else 224)


def test_a_single_process_benchmark_prints_its_lines_and_writes_no_files(job: Job) -> None:
    job.start(QUICK)
    assert job.end() == [0], job.lines
    first = "device cpu, precision fp32, backend none, world size 1, threads "
    assert job.lines[0][0].startswith(first)
    assert len(job.lines[0]) == 2 + len(BLOCK)
    assert_block(job.lines[0], 1)
    assert list(job.folder.iterdir()) == []


@pytest.mark.slow
def test_two_ranks_measure_together_and_rank_0_reports(job: Job) -> None:
    words = [*QUICK, "--log-dir", "logs", "--fp16-allreduce", "--precision", "bf16", "--json", "to/a.json"]
    job.start_mpi_ranks(2, words)
    assert job.end() == [0, 0], job.lines
    assert job.lines[0].pop() == f"result in {job.folder / 'to' / 'a.json'}"
    assert_block(job.lines[0], 2)
    result = json.loads((job.folder / "to" / "a.json").read_text())
    for rank, lines in enumerate(job.lines):
        joins = f"rank {rank} of 2 (Open MPI) joins the process group at 127.0.0.1:"
        assert [line for line in lines if line.startswith(joins)] == lines[:1]
    assert len(job.lines[1]) == 1
    assert "backend gloo, world size 2" in job.lines[0][1]
    assert job.lines[0][2] == f"event files in {job.folder / 'logs'}"
    drawn = job.curves()
    assert drawn.keys() == {
        "benchmark/img_per_sec", "benchmark/total_img_per_sec",
        "benchmark/allreduce_bus_gb_per_s", "benchmark/scaling_efficiency",
    }  # fmt: skip
    assert_result(result, drawn)
    each, total = drawn["benchmark/img_per_sec"], drawn["benchmark/total_img_per_sec"]
    assert list(each.steps) == list(total.steps) == [0, 1, 2]
    printed = [float(line.split()[2]) for line in job.lines[0] if line.startswith("Iter #")]
    assert list(each.values) == pytest.approx(printed, abs=0.06)
    assert list(total.values) == pytest.approx([2 * value for value in each.values])


def assert_result(result: dict[str, Any], drawn: dict[str, ScalarCurve]) -> None:
    assert (result["model"], result["batch_size"], result["precision"]) == ("tiny", 8, "bf16")
    assert (result["ranks"], result["unit"], result["backend"]) == (2, "CPU", "gloo")
    assert result["versions"]["torch"] == torch.__version__
    assert result["versions"]["Kubernetes"] is None
    values = list(drawn["benchmark/img_per_sec"].values)
    assert result["iterations_img_per_sec"] == pytest.approx(values)
    assert result["img_per_sec"] == pytest.approx(sum(values) / 3)
    assert result["total_img_per_sec"] == pytest.approx(2 * sum(values) / 3)
    assert result["scaling_efficiency"] == pytest.approx(
        result["img_per_sec"] / result["one_rank_img_per_sec"]
    )
    assert list(drawn["benchmark/scaling_efficiency"].values) == pytest.approx([result["scaling_efficiency"]])
    bandwidth = drawn["benchmark/allreduce_bus_gb_per_s"]
    assert list(bandwidth.steps) == [1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20]
    assert [each["bytes"] for each in result["all_reduce"]] == list(bandwidth.steps)
    for each, value in zip(result["all_reduce"], bandwidth.values, strict=True):
        assert each["bus_gb_per_s"] == pytest.approx(each["bytes"] / each["seconds"] / 1e9)
        assert each["bus_gb_per_s"] == pytest.approx(value)


@pytest.mark.parametrize(("ranks", "expected"), [(2, 1.0), (4, 1.5), (8, 1.75)])
def test_bus_bandwidth_is_that_of_nccl_tests(ranks: int, expected: float) -> None:
    assert AllReduce(size_bytes=10**9, seconds=1.0, ranks=ranks).bus_gb_per_s == expected


def test_warm_up_steps_are_not_measured() -> None:
    calls: list[str] = []

    class Step:
        def distribute(self, *, fp16_allreduce: bool) -> None:
            calls.append("together")

        def __call__(self) -> None:
            if "Running benchmark..." not in calls:
                calls.append("warm-up")
                time.sleep(0.05)

    arguments = find("mpi").parser().parse_args([*QUICK[1:], "--num-warmup-batches", "3"])
    group = ProcessGroup(Ranks(0, 1, 0, 1, "alone"), torch.device("cpu"), 1)
    result = Benchmark(arguments, group, cast(TrainStep, Step()), None, calls.append).run({})
    assert calls.count("warm-up") == arguments.num_warmup_batches
    assert min(result.img_per_sec) > 8 * 2 / 0.05


def test_with_throughput_only_neither_one_rank_nor_all_reduce_is_measured(job: Job) -> None:
    job.start_mpi_ranks(2, [*QUICK, "--throughput-only", "--json", "a"])
    assert job.end() == [0, 0], job.lines
    assert [line.split(":")[0] for line in job.lines[0][-3:]] == [
        "Img/sec per CPU", "Total img/sec on 2 CPU(s)", f"result in {job.folder / 'a'}",
    ]  # fmt: skip
    result = json.loads((job.folder / "a").read_text())
    assert (result["scaling_efficiency"], result["all_reduce"]) == (None, [])


def test_a_network_that_is_freed_last_does_not_destroy_the_process_group(imported_torch: None) -> None:
    """Only the end of the process does: the reducer would wait for a thread that waits for the GIL."""
    rank = FORKING.Process(target=_free_network_last)
    rank.start()
    rank.join()
    assert rank.exitcode == 0


def _free_network_last() -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "RANK": "0", "WORLD_SIZE": "1"}
    group = ProcessGroup(Ranks(0, 1, 0, 1, "the environment"), torch.device("cpu"), 200)
    group.backend = "gloo"  # as if it were not alone
    group.init()
    joined = weakref.ref(dist.group.WORLD)
    step = TrainStep(find("mpi").parser().parse_args(QUICK[1:]), 1, group.device)
    step.distribute(fp16_allreduce=False)
    group.destroy()
    del group, step
    os._exit(int(joined() is None))


def test_a_benchmark_stops_at_once_on_sigterm_and_keeps_its_points(job: Job) -> None:
    job.start([*LONG, "--log-dir", "logs"])
    job.wait_for("Iter #2")
    job.processes[0].send_signal(signal.SIGTERM)
    assert job.end() == [143]
    assert job.lines[0][-1] == "Stopped by SIGTERM before the benchmark was done; nothing of it is saved."
    assert {0, 1} <= set(job.curves()["benchmark/img_per_sec"].steps)


def test_an_unsupported_precision_is_reported_by_all_ranks_before_measuring(job: Job) -> None:
    job.start_mpi_ranks(2, [*QUICK, "--precision", "fp16"])
    assert job.end() == [2, 2], job.lines
    for lines in job.lines:
        assert lines[1:] == [
            "error: --precision fp16: it needs a GPU, and this rank runs on the CPU."
            " Use --precision fp32 or bf16."
        ]


def test_without_torchvision_the_tiny_network_is_offered(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("torchvision", "torchvision.models"):
        monkeypatch.setitem(sys.modules, name, None)
    assert run(find("mpi").parser().parse_args(["--model", "vgg16"]), StopRequest()) == 1
    line = capsys.readouterr().err
    assert line.startswith("error: torchvision is not installed. ")
    assert line.endswith(" Install gpuconsole[trainer], or use --model tiny.\n")


@pytest.mark.slow
def test_the_benchmark_runs_under_torchrun(job: Job) -> None:
    command = find("mpi").command([*QUICK[1:]], launcher="torchrun")
    job.start(command[3:], PET_STANDALONE="1", PET_NPROC_PER_NODE="1", PET_TEE="3")
    assert job.end() == [0], job.lines
    lines = [line.partition(":")[2] for line in job.lines[0] if line.startswith("[default0]")]
    assert_block(lines, 1)


pytest.importorskip("torch", reason="training needs torch, which gpuconsole[trainer] brings")

from tests.scripted.certificates import Certificate, issue, make_authority, server_tls
from tests.scripted.server import Answer, ScriptedCluster
from trainer.benchmark.report import driver_version, kubernetes_version, versions_line


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as a pod's service account is mounted, with the server's certificate beside it."""
    folder = tmp_path_factory.mktemp("account")
    authority = make_authority(folder)
    issue(authority, "api")
    authority.path.rename(folder / "ca.crt")
    (folder / "token").write_text("a-token\n")
    return folder


def api_server(account: Path, body: bytes, status: int = 200) -> ScriptedCluster:
    cluster = ScriptedCluster(server_tls(Certificate(account / "api.crt", account / "api.key")))
    cluster.say("/version", Answer(body, status))
    return cluster


async def version_of(cluster: ScriptedCluster, account: Path, **env: str) -> str:
    """Return the version that a pod with this service account finds."""
    host, port = cluster.host.removeprefix("https://").split(":")
    given: Mapping[str, str] = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port, **env}
    return await asyncio.to_thread(kubernetes_version, given, account)


@pytest.mark.parametrize(
    ("body", "status", "version"),
    [
        (b'{"major": "1", "gitVersion": "v1.28.3-aliyun.1"}', 200, "1.28.3-aliyun.1"),
        (b'{"gitVersion": "\\u001b[31m"}', 200, "unknown"),
        (b"{}", 200, "unknown"),
        (b"[]", 200, "unknown"),
        (b"not json", 200, "unknown"),
        (b"\xff", 200, "unknown"),
        (b'{"kind": "Status"}', 403, "unknown"),
    ],
)
async def test_the_kubernetes_version_is_read_from_the_api_server_of_the_pod(
    account: Path, body: bytes, status: int, version: str
) -> None:
    async with api_server(account, body, status) as cluster:
        assert await version_of(cluster, account) == version
    assert [(each.path, each.headers["Authorization"]) for each in cluster.requests] == [
        ("/version", "Bearer a-token")
    ]


async def test_an_api_server_without_a_trusted_certificate_gets_no_request(
    account: Path, tmp_path: Path
) -> None:
    async with api_server(account, b'{"gitVersion": "v1.28.3"}') as cluster:
        assert await version_of(cluster, tmp_path) == "unknown"
        (tmp_path / "ca.crt").write_text("no certificate")
        assert await version_of(cluster, tmp_path) == "unknown"
        assert await version_of(cluster, account, KUBERNETES_SERVICE_PORT="x") == "unknown"
    assert cluster.requests == []
    assert kubernetes_version({}, tmp_path / "none") == ""


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  418.87.01  Wed Sep 25 06:00:38 UTC 2019\n"
         "GCC version:  gcc version 7.4.0 (Ubuntu 7.4.0-1ubuntu1~18.04.1)\n", "418.87.01"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  555.42.02  Release Build", "555.42.02"),
        ("something else", "unknown"),
    ],
)  # fmt: skip
def test_the_driver_is_read_from_its_kernel_module(tmp_path: Path, text: str, version: str) -> None:
    (tmp_path / "version").write_text(text)
    assert driver_version(tmp_path / "version") == version


@pytest.mark.parametrize(
    ("script", "version"),
    [
        ("echo 550.54.15; echo 550.54.15", "550.54.15"),
        ("echo NVIDIA-SMI has failed; exit 9", "unknown"),
        ("exit 0", "unknown"),
        (None, ""),
    ],
)
def test_without_the_kernel_module_file_the_driver_version_comes_from_nvidia_smi(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str | None, version: str
) -> None:
    if script is not None:
        program = tmp_path / "nvidia-smi"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert driver_version(tmp_path / "none") == version


def test_missing_and_unknown_versions_are_shown_as_such() -> None:
    libraries = {"CUDA": "12.4", "NCCL": "2.21.5", "torch": "2.6"}
    assert versions_line({"Kubernetes": "unknown", "NVIDIA driver": "", **libraries}) == (
        "Versions: Kubernetes unknown, no NVIDIA driver, CUDA 12.4, NCCL 2.21.5, torch 2.6"
    )
