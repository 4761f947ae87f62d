"""The synthetic benchmark as a user meets it: its lines, its files, and how it ends."""

import re
import signal
from importlib.util import find_spec

import pytest

torch = pytest.importorskip("torch", reason="training needs torch, which gpuconsole[trainer] brings")

from tests import ROOT  # noqa: E402
from tests.trainer.jobs import Job, free_port  # noqa: E402
from trainer.benchmark.networks import make_network  # noqa: E402
from trainer.benchmark.report import head_lines, iteration_line, result_lines  # noqa: E402
from trainer.benchmark.run import run  # noqa: E402
from trainer.catalogue import BENCHMARK_MODELS, find  # noqa: E402
from trainer.distributed.process_group import ProcessGroup  # noqa: E402
from trainer.messages import InvalidArguments  # noqa: E402
from trainer.ranks import Ranks  # noqa: E402
from trainer.signals import StopRequest  # noqa: E402

TINY = ["trainer.train_mpi", "--model", "tiny", "--batch-size", "8"]
QUICK = [*TINY, "--num-warmup-batches", "1", "--num-batches-per-iter", "2", "--num-iters", "3"]
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


def assert_block(lines: list[str], ranks: int) -> None:
    """Check that the lines of the benchmark are the last, in their order, with nothing between."""
    text = "\n".join(lines[-len(BLOCK) :])
    assert re.fullmatch("\n".join(BLOCK).replace("{ranks}", str(ranks)), text), "\n".join(lines)


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


def test_a_network_is_measured_on_images_of_its_size() -> None:
    if find_spec("torchvision") is None:
        pytest.skip("needs torchvision")
    with torch.device("meta"):
        for name in BENCHMARK_MODELS:
            network, size = make_network(name)
            assert network(torch.empty(2, 3, size, size)).shape == (2, 1000)
            assert size == (32 if name == "tiny" else 224)


@pytest.mark.slow
def test_alone_it_prints_its_lines_and_writes_no_files(job: Job) -> None:
    job.start(QUICK)
    assert job.end() == [0], job.lines
    assert job.lines[0][0].startswith("device cpu, backend none, world size 1, threads ")
    assert len(job.lines[0]) == 1 + len(BLOCK)
    assert_block(job.lines[0], 1)
    assert list(job.folder.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["the environment", "Open MPI"])
def test_two_ranks_measure_together_and_the_first_one_tells(job: Job, launcher: str) -> None:
    words = [*QUICK, "--log-dir", "logs", "--fp16-allreduce"]
    if launcher == "Open MPI":
        job.start_mpi_ranks(2, words)
    else:
        job.start_ranks(2, words)
    assert job.end() == [0, 0], job.lines
    assert_block(job.lines[0], 2)
    for rank, lines in enumerate(job.lines):
        joins = f"rank {rank} of 2 ({launcher}) joins the process group at 127.0.0.1:"
        assert [line for line in lines if line.startswith(joins)] == lines[:1]
    assert len(job.lines[1]) == 1
    assert "backend gloo, world size 2" in job.lines[0][1]
    assert job.lines[0][2] == f"event files in {job.folder / 'logs'}"
    drawn = job.curves()
    assert drawn.keys() == {"benchmark/img_per_sec", "benchmark/total_img_per_sec"}
    each, total = drawn["benchmark/img_per_sec"], drawn["benchmark/total_img_per_sec"]
    assert list(each.steps) == list(total.steps) == [0, 1, 2]
    printed = [float(line.split()[2]) for line in job.lines[0] if line.startswith("Iter #")]
    assert list(each.values) == pytest.approx(printed, abs=0.06)
    assert list(total.values) == pytest.approx([2 * value for value in each.values])


@pytest.mark.slow
def test_the_address_may_be_an_argument(job: Job) -> None:
    port = free_port()
    job.start_mpi_ranks(2, [*QUICK, "--master-addr", "localhost", "--master-port", port], MASTER_ADDR="gone")
    assert job.end() == [0, 0], job.lines
    assert job.lines[1] == [f"rank 1 of 2 (Open MPI) joins the process group at localhost:{port}"]


@pytest.mark.slow
def test_when_a_rank_is_killed_the_others_end_with_a_sentence(job: Job) -> None:
    job.start_mpi_ranks(2, LONG)
    job.wait_for("Iter #0")
    job.processes[1].kill()
    assert job.end() == [1, -signal.SIGKILL]
    assert job.lines[0][-1].startswith("error: Another rank of the job is gone, so this one stops (")
    assert "Traceback" not in "\n".join(job.lines[0])


@pytest.mark.slow
def test_asked_to_stop_it_stops_at_once_and_its_points_are_there(job: Job) -> None:
    job.start([*LONG, "--log-dir", "logs"])
    job.wait_for("Iter #2")
    job.processes[0].send_signal(signal.SIGTERM)
    assert job.end() == [143]
    assert job.lines[0][-1] == "Stopped by SIGTERM before the benchmark was done; nothing of it is saved."
    assert {0, 1} <= set(job.curves()["benchmark/img_per_sec"].steps)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--model", "alexnet"], "argument --model: 'alexnet' is none of vgg16, resnet50, resnet18, tiny."),
        (["--batch-size", "0"], "argument --batch-size: 0 is not 1 or more."),
        (["--num-iters", "ten"], "argument --num-iters: 'ten' is not a whole number."),
        (["--master-port", "65536"], "argument --master-port: 65536 is not 65535 or less."),
        (["--use-adasum"], "unrecognized arguments: --use-adasum."),
    ],
)
def test_wrong_arguments_are_answered_in_one_line(
    capsys: pytest.CaptureFixture[str], words: list[str], error: str
) -> None:
    with pytest.raises(SystemExit) as exit_:
        find("mpi").parser().parse_args(words)
    assert exit_.value.code == 2
    assert capsys.readouterr().err == f"error: {error} See python -m trainer.train_mpi --help.\n"


@pytest.mark.parametrize(
    ("backend", "launcher", "words"),
    [
        ("mpi", "Open MPI", "--backend mpi: this torch was built without MPI. Use --backend auto."),
        ("nccl", "Open MPI", "--backend nccl: it joins GPUs, and this rank computes on the processor."),
    ],
)
def test_a_backend_that_is_not_here_is_refused(backend: str, launcher: str, words: str) -> None:
    if torch.distributed.is_mpi_available():
        pytest.skip("this torch was built with MPI")
    with pytest.raises(InvalidArguments, match=re.escape(words)):
        ProcessGroup(Ranks(0, 2, 0, 2, launcher), torch.device("cpu"), 1, backend)


def test_torchrun_says_itself_where_ranks_meet(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "none"}.items():
        monkeypatch.setenv(name, value)
    arguments = find("mpi").parser().parse_args(["--master-addr", "x"])
    assert run(arguments, StopRequest()) == 2
    assert capsys.readouterr().err.startswith("error: --master-addr and --master-port are for mpirun;")


@pytest.mark.slow
def test_a_folder_that_rank_0_cannot_write_ends_all_ranks(job: Job) -> None:
    job.start_mpi_ranks(2, [*QUICK, "--log-dir", "/dev/null/logs"])
    assert job.end() == [1, 1], job.lines
    for lines in job.lines:
        assert lines[1:] == [
            "error: Cannot write to /dev/null/logs. Not a directory. Choose another folder with --log-dir."
        ]


@pytest.mark.slow
def test_without_torchvision_the_tiny_network_is_offered(job: Job) -> None:
    package = job.folder / "without" / "torchvision"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ModuleNotFoundError('No module named torchvision')")
    job.start(["trainer.train_mpi", "--model", "vgg16"], PYTHONPATH=f"{package.parent}:{ROOT}")
    assert job.end() == [1]
    assert job.lines[0][-1] == (
        "error: torchvision is not installed. No module named torchvision."
        " Install gpuconsole[trainer], or use --model tiny."
    )


@pytest.mark.slow
def test_under_torchrun_it_measures_too(job: Job) -> None:
    command = find("mpi").command([*QUICK[1:]], launcher="torchrun")
    job.start(command[3:], PET_STANDALONE="1", PET_NPROC_PER_NODE="2", PET_TEE="3")
    assert job.end() == [0], job.lines
    lines = [line.partition(":")[2] for line in job.lines[0] if line.startswith("[default0]")]
    assert_block(lines, 2)
