"""A trainer under its launcher, and how both end: when asked, when a rank fails, when one never comes."""

import os
import re
import signal
import socket
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="training needs torch, which gpuconsole[trainer] brings")

from tests import ROOT
from tests.trainer.jobs import LINE, LONG, SMALL, Job, free_port, ranks_of

TOO_SOON = "Stopped by SIGTERM before training began; there is nothing new to save."
OF_THE_STORE = re.compile(
    r"\[W\d{4} .*TCPStore\.cpp|Exception raised from |<omitting python frames>|frame #\d+: |$"
)
"""Output of torchrun on a slow machine when the pod that holds the store has ended before it."""
SIGNALS = pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])


WAITING_RANK = """
import os, threading
from trainer.signals import StopRequest, stop_when_launcher_dies

StopRequest().exit_on_signal("before training began; there is nothing new to save")
stop_when_launcher_dies()
os.write(1, b"waits\\n")  # in one piece: another rank writes there too
threading.Event().wait()
"""


@pytest.mark.slow
def test_pods_train_together_with_rank_prefixes_despite_a_local_trainer_py(job: Job) -> None:
    (job.folder / "trainer.py").write_text("raise SystemExit('the wrong one')")
    job.start_pods(*[[*SMALL, "--epochs", "1"]] * 2)
    assert job.end() == [0, 0], job.lines
    for rank, lines in enumerate(job.lines):
        mine = [line for line in lines if line.startswith(f"[rank{rank}]: epoch 1/1 step ")]
        assert len([line for line in mine if LINE.search(line)]) == 5
    others = [line for lines in job.lines for line in lines if not re.match(r"\[rank\d\]: ", line)]
    assert [line for line in others if not OF_THE_STORE.match(line)] == []


@pytest.mark.slow
def test_a_deleted_pod_saves_its_training_and_the_next_of_its_name_goes_on_from_there(job: Job) -> None:
    job.start_pods(LONG)
    job.wait_for(" step 14/")
    job.processes[0].send_signal(signal.SIGTERM)
    job.processes[0].send_signal(signal.SIGTERM)
    assert job.end() == [143], job.lines
    stopped = [line for line in job.lines[0] if "Stopped by SIGTERM after step" in line]
    assert stopped == [line for line in job.lines[0] if line.startswith("[rank0]: ")][-1:]
    step = int(stopped[0].split("after step ")[1].split(".")[0])

    job.start_pods(LONG)
    assert f"step {step}\n" in job.wait_for("resumed from", process=1)
    job.wait_for(f" step {step + 20}/" if step % 2 == 0 else f" step {step + 21}/", process=1)
    job.processes[1].send_signal(signal.SIGTERM)
    assert job.end()[1] == 143
    steps = list(job.curves()["train/loss"].steps)
    assert steps == sorted(set(steps))
    assert steps[0] <= 2 < step < steps[-1]


@SIGNALS
def test_a_rank_waiting_for_other_ranks_stops_at_once_on_a_signal(job: Job, number: int) -> None:
    job.start(
        ["trainer.train_ddp"], RANK="0", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=free_port()
    )
    job.wait_for("joins the process group")
    job.processes[0].send_signal(number)
    assert job.end() == [128 + number]
    assert job.lines[0][1:] == [TOO_SOON.replace("SIGTERM", signal.Signals(number).name)]


@SIGNALS
@pytest.mark.parametrize(
    ("module", "words"),
    [("trainer.train_ddp", "before training began; there is nothing new to save."),
     ("trainer.launch", "before the ranks were started.")],
)  # fmt: skip
def test_a_process_still_importing_torch_stops_at_once_on_a_signal(
    job: Job, module: str, words: str, number: int
) -> None:
    torch = job.folder / "slow" / "torch"
    torch.mkdir(parents=True)
    (torch / "__init__.py").write_text(
        "import threading\nprint('importing', flush=True)\nthreading.Event().wait()"
    )
    job.start([module], PYTHONPATH=f"{torch.parent}{os.pathsep}{ROOT}")
    job.wait_for("importing")
    job.processes[0].send_signal(number)
    assert job.end() == [128 + number]
    assert job.lines[0] == ["importing", f"Stopped by {signal.Signals(number).name} {words}"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_ranks_stop_when_their_launcher_does(job: Job, number: int) -> None:
    (job.folder / "rank.py").write_text(WAITING_RANK)
    job.start(["trainer.launch", "rank.py"], PET_STANDALONE="1", PET_NPROC_PER_NODE="2")
    job.wait_for("waits")
    job.wait_for("waits")
    ranks = ranks_of(job.processes[0].pid)
    job.processes[0].send_signal(number)
    assert job.end() == [143 if number == signal.SIGTERM else -number]
    assert job.lines[0][2:] == [TOO_SOON] * 2
    if number == signal.SIGTERM:  # else nobody may have waited for them
        assert len(ranks) == 2 and not [rank for rank in ranks if Path(f"/proc/{rank}").exists()]


def test_a_rank_that_is_killed_is_named_and_not_those_that_miss_it(job: Job) -> None:
    (job.folder / "rank.py").write_text(WAITING_RANK)
    job.start(["trainer.launch", "rank.py"], PET_STANDALONE="1", PET_NPROC_PER_NODE="2")
    job.wait_for("waits")
    job.wait_for("waits")
    os.kill(ranks_of(job.processes[0].pid)[1], signal.SIGKILL)
    assert job.end() == [128 + signal.SIGKILL]
    assert job.lines[0][-1] == "launcher: rank 1 ended with SIGKILL"


def test_the_status_of_a_rank_is_the_status_of_its_pod(job: Job) -> None:
    job.start_pods(["--epochs", "0"], processes=2)
    assert job.end() == [2]
    assert job.lines[0][-1].startswith("launcher: rank")
    assert job.lines[0][-1].endswith("ended with exit status 2")
    # The first to fail ends the other, which may have printed its own error by then, or not.
    see = "See python -m trainer.train_ddp --help."
    errors = {f"[rank{rank}]: error: argument --epochs: 0 is not 1 or more. {see}" for rank in "01"}
    assert errors.intersection(job.lines[0])
    assert errors.union(f"[rank{rank}]: {TOO_SOON}" for rank in "01").issuperset(job.lines[0][:-1])


@pytest.mark.slow
def test_a_rank_that_fails_before_it_meets_the_others_is_named_by_those_that_waited(job: Job) -> None:
    job.start_pods([*LONG, "--wait-for-others", "2"], [*LONG, "--epochs", "0"])
    assert job.end() == [1, 2], job.lines
    words = "[rank0]: error: Of 2 processes, rank 1 did not join at 127.0.0.1:"
    [error_line] = [line for line in job.lines[0] if "error: " in line]
    assert error_line.startswith(words)
    assert error_line.endswith(" within 2s. Look for the reason in its log; --wait-for-others waits longer.")


@pytest.mark.parametrize("rank", ["0", "1"])
def test_a_rank_whose_peer_never_joins_reports_a_timeout(job: Job, rank: str) -> None:
    words = ["trainer.train_ddp", "--wait-for-others", "1"]
    job.start(words, RANK=rank, WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=free_port())
    assert job.end() == [1]
    assert job.lines[0][-1].startswith("error: Could not reach the other process at 127.0.0.1:")
    assert job.lines[0][-1].endswith("; --wait-for-others waits longer.")


@pytest.mark.parametrize("module", ["trainer.train_ddp", "trainer.launch"])
def test_a_port_in_use_is_named_with_a_hint(job: Job, module: str) -> None:
    with socket.create_server(("", 0)) as taken:
        port = str(taken.getsockname()[1])
        if module == "trainer.launch":
            pods = {"PET_NNODES": "2", "PET_NODE_RANK": "0"}
            job.start(
                [module, "-m", "trainer.train_ddp"],
                PET_MASTER_ADDR="127.0.0.1", PET_MASTER_PORT=port, **pods,
            )  # fmt: skip
        else:
            job.start([module], RANK="0", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
        assert job.end() == [7], job.lines
    assert job.lines[0][-1] == (
        f"error: Port {port} of this host is in use, so the ranks cannot meet there."
        " Another job, or what is left of one, listens on it."
        f" Choose another MASTER_PORT, or end that process (ss -ltnp 'sport = :{port}' names it)."
    )
