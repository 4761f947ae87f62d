"""Ranks that torchrun starts again: they go on from the newest good checkpoint, and lose nothing by it."""

import os
import signal
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="training needs torch, which gpuconsole[trainer] brings")

from tests.trainer.jobs import SMALL, Job, free_port, ranks_of
from trainer.catalogue import find
from trainer.ddp.checkpoints import list_checkpoints, load_checkpoint

pytestmark = pytest.mark.slow

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
    job = start(tmp_path_factory.mktemp("whole"), WORDS, PET_STANDALONE="1")
    assert job.end() == [0], job.lines
    return job


@pytest.mark.parametrize("rendezvous", ["static", "c10d"])
def test_when_a_rank_is_killed_torchrun_restarts_all_and_the_weights_end_as_if_nothing_had_been(
    tmp_path: Path, rendezvous: str, whole: Job
) -> None:
    meet = {"PET_STANDALONE": "1"}
    if rendezvous == "static":
        meet = {"PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": free_port()}
    killed = start(tmp_path / "killed", WORDS, **meet)
    try:
        killed.wait_for("epoch 2/12 step 14/")
        os.kill(ranks_of(killed.processes[0].pid)[1], signal.SIGKILL)
        killed.wait_for("restart 1 of 2: a rank failed, and torchrun started all of them again")
        resumed = killed.wait_for("resumed from")
        assert int(resumed.split("step ")[-1]) >= 10
        assert killed.end() == [0], killed.lines
    finally:
        killed.kill()
    ours, theirs = weights_of(killed), weights_of(whole)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert list(killed.curves()["train/loss"].steps)[-1] == 120
