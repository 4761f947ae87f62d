"""Checkpoints written while training goes on: a copy, one at a time, whole at the end."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="checkpoints are torch's, which gpuconsole[trainer] brings")

from trainer.ddp.checkpoint import State, list_checkpoints, load_checkpoint  # noqa: E402
from trainer.ddp.checkpoint_folder import CheckpointFolder  # noqa: E402
from trainer.ddp.checkpoint_writer import CheckpointWriter  # noqa: E402
from trainer.messages import NotFinite, TrainingError  # noqa: E402

WAIT_S = 60


@dataclass(frozen=True)
class SlowFolder(CheckpointFolder):
    """A folder on a disk that writes when it is let."""

    may_write: threading.Event = field(default_factory=threading.Event)
    events: list[str] = field(default_factory=list)

    def write(self, state: State) -> str:
        self.events.append(f"starts {state['step']}")
        assert self.may_write.wait(WAIT_S)
        saved = super().write(state)
        self.events.append(f"wrote {state['step']}")
        return saved


def folder_of(path: Path, continues: bool = False) -> SlowFolder:
    return SlowFolder(path, keep=9, model="cnn", job="", continues_when_full=continues)


def state(step: int, weights: Any) -> State:
    return {
        "step": step, "epoch": 0, "images": 0, "model": {"weights": weights}, "random": [[weights.clone()]],
    }  # fmt: skip


def test_training_goes_on_while_a_copy_is_written(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    writer, weights = CheckpointWriter(folder), torch.full((9,), 1.0)
    writer.start(state(1, weights))
    weights.fill_(7.0)
    assert list_checkpoints(tmp_path) == []
    folder.may_write.set()
    assert writer.finish() == str(tmp_path / "step-00000001.pt")
    saved = load_checkpoint(tmp_path / "step-00000001.pt")
    assert saved["model"]["weights"].tolist() == [1.0] * 9
    assert saved["random"][0][0].tolist() == [1.0] * 9


def test_the_next_waits_until_the_one_before_is_on_the_disk_and_the_last_is_whole_at_the_end(
    tmp_path: Path,
) -> None:
    folder = folder_of(tmp_path)
    writer, weights = CheckpointWriter(folder), torch.zeros(9)
    writer.start(state(1, weights))
    second = threading.Thread(target=writer.start, args=(state(2, weights),))
    second.start()
    folder.may_write.set()
    second.join(WAIT_S)
    writer.close()
    assert folder.events == ["starts 1", "wrote 1", "starts 2", "wrote 2"]
    assert [load_checkpoint(path)["step"] for path in list_checkpoints(tmp_path)] == [2, 1]
    writer.close()


def test_weights_that_are_not_finite_are_refused_at_once_and_what_is_under_way_is_finished(
    tmp_path: Path,
) -> None:
    folder = folder_of(tmp_path)
    folder.may_write.set()
    writer = CheckpointWriter(folder)
    writer.start(state(1, torch.zeros(9)))
    with pytest.raises(NotFinite, match="no longer finite after step 2"):
        writer.start(state(2, torch.full((9,), float("nan"))))
    writer.close()
    assert [path.name for path in list_checkpoints(tmp_path)] == ["step-00000001.pt"]


def test_what_could_not_be_written_is_known_before_the_next_and_raised_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = folder_of(tmp_path)
    folder.may_write.set()
    (tmp_path / ".step-00000001.pt.partial").mkdir()
    writer = CheckpointWriter(folder)
    writer.start(state(1, torch.zeros(9)))
    for thread in threading.enumerate():
        if thread.name == "checkpoint":
            thread.join(WAIT_S)
    assert writer.has_failed
    with pytest.raises(TrainingError, match=r"step-00000001.pt\. Is a directory\. Training stops; no"):
        writer.start(state(2, torch.zeros(9)))
    assert not writer.has_failed
    writer.close()
    writer.start(state(1, torch.zeros(9)))
    writer.close()
    assert capsys.readouterr().err.count("error: Could not write the checkpoint") == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
def test_on_a_full_disk_where_training_may_go_on_it_does(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, continues=True)
    folder.may_write.set()
    (tmp_path / ".step-00000001.pt.partial").symlink_to("/dev/full")
    writer = CheckpointWriter(folder)
    writer.start(state(1, torch.zeros(9)))
    assert writer.finish() == ""
    assert not writer.has_failed
    writer.start(state(2, torch.zeros(9)))
    assert writer.finish().endswith("step-00000002.pt")
