"""Ranks that are stopped or killed, and start again: their weights end as if nothing had been."""

import os
import signal
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="training needs torch, which gpuconsole[trainer] brings")

from tests.trainer.jobs import SMALL, Job, free_port, ranks_of
from trainer.catalogue import find
from trainer.ddp.checkpoints import list_checkpoints, load_checkpoint

WORDS = [*SMALL, "--epochs", "12", "--checkpoint-every", "3"]


def start(folder: Path, words: list[str], **env: str) -> Job:
    folder.mkdir(exist_ok=True)
    job = Job(folder)
    command = find("ddp").command(words)[3:]
    job.start(command, PET_NPROC_PER_NODE="2", PET_MAX_RESTARTS="2", **env)
    return job


def weights_of(job: Job) -> dict[str, object]:
    state = load_checkpoint(list_checkpoints(job.folder / "checkpoints")[0])
    assert state["step"] == 120
    weights: dict[str, object] = state["model"]
    return weights


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """The same training, which nothing disturbed."""
    job = Job(tmp_path_factory.mktemp("whole"), forks=True)
    job.start_two(WORDS)
    assert job.end() == [0, 0], job.lines
    return job


@pytest.mark.end_to_end
def test_two_ranks_that_are_stopped_end_with_the_weights_of_two_that_were_not(job: Job, whole: Job) -> None:
    """Each rank needs its own random state: with that of rank 0, rank 1 would drop other units."""
    job.start_two(WORDS)
    job.wait_for("epoch 3/12 step 24/")
    job.processes[0].send_signal(signal.SIGTERM)
    assert job.end() == [143, 143], job.lines
    [said] = [line for line in job.lines[0] if line.startswith("Stopped by SIGTERM after step ")]
    step = int(said.split("after step ")[1].split(".")[0])
    with Job(job.folder, forks=True) as rest:
        rest.start_two([*WORDS, "--resume", "must"])
        assert rest.end() == [0, 0], rest.lines
    assert f": epoch {1 + step // 10}, step {step}" in "\n".join(rest.lines[0])
    ours, theirs = weights_of(rest), weights_of(whole)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    steps = list(rest.curves()["train/loss"].steps)
    assert steps == sorted(set(steps))
    assert steps[-1] == 120


@pytest.mark.parametrize(
    "rendezvous",
    [pytest.param("static", marks=pytest.mark.end_to_end), pytest.param("c10d", marks=pytest.mark.slow)],
)
def test_after_a_killed_rank_torchrun_restarts_all_and_the_final_weights_are_equal(
    tmp_path: Path, rendezvous: str, whole: Job
) -> None:
    meet = {"PET_STANDALONE": "1"}
    if rendezvous == "static":
        meet = {"PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": free_port()}
    with start(tmp_path / "killed", WORDS, **meet) as killed:
        killed.wait_for("epoch 2/12 step 14/")
        os.kill(ranks_of(killed.processes[0].pid)[1], signal.SIGKILL)
        killed.wait_for("restart 1 of 2: a rank failed, and torchrun started all of them again")
        resumed = killed.wait_for("resumed from")
        assert int(resumed.split("step ")[-1]) >= 10
        assert killed.end() == [0], killed.lines
    ours, theirs = weights_of(killed), weights_of(whole)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert list(killed.curves()["train/loss"].steps)[-1] == 120
