"""A trainer under its launcher: how both end, and how stopped or killed ranks start again."""

import os
import re
import signal
import socket
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="training needs torch, which gpuconsole[trainer] brings")

from tests import ROOT
from tests.trainer.jobs import LINE, LONG, SMALL, Job, free_port, ranks_of
from trainer.catalogue import find
from trainer.ddp.checkpoints import list_checkpoints, load_checkpoint

TOO_SOON = "Stopped by SIGTERM before training began; there is nothing new to save."
# Output of torchrun on a slow machine when the pod that holds the store has ended before it
OF_THE_STORE = re.compile(
    r"\[W\d{4} .*TCPStore\.cpp|Exception raised from |<omitting python frames>|frame #\d+: |$"
)
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
def test_a_deleted_pod_saves_a_checkpoint_and_its_successor_resumes(job: Job) -> None:
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


def start_two_waiting_ranks(job: Job) -> list[int]:
    """Start two ranks under a launcher, and return their process ids once both wait."""
    (job.folder / "rank.py").write_text(WAITING_RANK)
    job.start(["trainer.launch", "rank.py"], PET_STANDALONE="1", PET_NPROC_PER_NODE="2")
    job.wait_for("waits")
    job.wait_for("waits")
    return ranks_of(job.processes[0].pid)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_ranks_stop_when_their_launcher_does(job: Job, number: int) -> None:
    ranks = start_two_waiting_ranks(job)
    job.processes[0].send_signal(number)
    assert job.end() == [143 if number == signal.SIGTERM else -number]
    assert job.lines[0][2:] == [TOO_SOON] * 2
    if number == signal.SIGTERM:  # else nobody may have waited for them
        assert len(ranks) == 2 and not [rank for rank in ranks if Path(f"/proc/{rank}").exists()]


def test_a_rank_that_is_killed_is_named_and_not_those_that_miss_it(job: Job) -> None:
    os.kill(start_two_waiting_ranks(job)[1], signal.SIGKILL)
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


WORDS = [*SMALL, "--epochs", "6", "--checkpoint-every", "3", "--log-every", "1"]


def start(folder: Path, words: list[str], **env: str) -> Job:
    folder.mkdir(exist_ok=True)
    job = Job(folder, forks=True, is_paced=True)
    job.start(find("ddp").command(words)[3:], **env)
    return job


def weights_of(job: Job) -> dict[str, object]:
    state = load_checkpoint(list_checkpoints(job.folder / "checkpoints")[0])
    assert state["step"] == 60
    weights: dict[str, object] = state["model"]
    return weights


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, imported_torch: None) -> Job:
    """The same training, which nothing disturbed."""
    job = Job(tmp_path_factory.mktemp("whole"), forks=True)
    job.start_two(WORDS)
    assert job.end() == [0, 0], job.lines
    return job


@pytest.mark.end_to_end
def test_two_stopped_and_resumed_ranks_end_with_equal_weights(job: Job, whole: Job) -> None:
    """Each rank needs its own random state: with that of rank 0, rank 1 would drop other units."""
    job.is_paced = True
    job.start_two(WORDS)
    job.wait_for("epoch 3/6 step 24/")
    job.processes[1].send_signal(signal.SIGTERM)
    assert job.end() == [143, 143], job.lines
    step = int(job.lines[0][-1].split("after step ")[1].split(".")[0])
    for lines in job.lines:
        assert lines[-1].startswith(f"Stopped by SIGTERM after step {step}. checkpoints/step-")
    with Job(job.folder, forks=True) as rest:
        rest.start_two([*WORDS, "--resume", "must"])
        assert rest.end() == [0, 0], rest.lines
    assert f": epoch {1 + step // 10}, step {step}" in "\n".join(rest.lines[0])
    ours, theirs = weights_of(rest), weights_of(whole)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    losses, undisturbed = (each.curves()["train/loss"] for each in (rest, whole))
    assert list(losses.steps) == list(range(1, 61))
    assert list(losses.values) == list(undisturbed.values)


@pytest.mark.end_to_end
@pytest.mark.usefixtures("imported_torch")
def test_after_a_killed_rank_torchrun_restarts_all_and_the_final_weights_are_equal(
    tmp_path: Path, whole: Job
) -> None:
    meet = {"PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": free_port(), "PET_MAX_RESTARTS": "2"}
    with start(tmp_path / "killed", WORDS, PET_NPROC_PER_NODE="2", **meet) as killed:
        kill_last_rank(killed)
        killed.wait_for("restart 1 of 2: a rank failed, and torchrun started all of them again")
        assert int(killed.wait_for("resumed from").split("step ")[-1]) >= 10
        assert killed.end() == [0], killed.lines
    ours, theirs = weights_of(killed), weights_of(whole)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert list(killed.curves()["train/loss"].steps)[-1] == 60


@pytest.mark.slow
@pytest.mark.usefixtures("imported_torch")
def test_ranks_that_met_by_c10d_restart_as_often_as_allowed(tmp_path: Path) -> None:
    with start(tmp_path / "killed", WORDS, PET_STANDALONE="1", PET_MAX_RESTARTS="1") as killed:
        kill_last_rank(killed)
        killed.wait_for("restart 1 of 1: a rank failed, and torchrun started all of them again")
        assert (
            int(killed.wait_for("resumed from").split("step ")[-1]) >= 9
        )  # the checkpoint of step 12 may be torn
        os.kill(ranks_of(killed.processes[0].pid)[0], signal.SIGKILL)
        assert killed.end() == [128 + signal.SIGKILL], killed.lines
        assert killed.lines[0][-1] == "launcher: rank 0 ended with SIGKILL"


def kill_last_rank(job: Job) -> None:
    job.wait_for(" step 14/")
    os.kill(ranks_of(job.processes[0].pid)[-1], signal.SIGKILL)
