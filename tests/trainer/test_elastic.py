"""Ranks that are stopped or killed, and start again: their weights end as if nothing had been."""

import os
import signal
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="training needs torch, which gpuconsole[trainer] brings")

from tests.trainer.jobs import SMALL, Job, free_port, ranks_of
from trainer.catalogue import find
from trainer.ddp.checkpoints import list_checkpoints, load_checkpoint

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
def test_two_ranks_that_are_stopped_end_with_the_weights_of_two_that_were_not(job: Job, whole: Job) -> None:
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
        assert int(killed.wait_for("resumed from").split("step ")[-1]) >= 10
        os.kill(ranks_of(killed.processes[0].pid)[0], signal.SIGKILL)
        assert killed.end() == [128 + signal.SIGKILL], killed.lines
        assert killed.lines[0][-1] == "launcher: rank 0 ended with SIGKILL"


def kill_last_rank(job: Job) -> None:
    job.wait_for(" step 14/")
    os.kill(ranks_of(job.processes[0].pid)[-1], signal.SIGKILL)
