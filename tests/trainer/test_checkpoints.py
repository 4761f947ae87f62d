"""Checkpoints: whole or not there, and never trusted blindly."""

import os
import pickle
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="checkpoints are torch's, which gpuconsole[trainer] brings")

from trainer.ddp.checkpoint import State, list_checkpoints, load_checkpoint, load_latest, save_checkpoint  # noqa: E402
from trainer.messages import TrainingError  # noqa: E402


def state(step: int) -> State:
    return {
        "step": step,
        "model": {"weights": torch.full((5000,), float(step))},
        "random": [[torch.get_rng_state()]],
    }


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def never(words: str) -> None:
    raise AssertionError(words)


def test_the_newest_checkpoint_comes_back_and_only_the_newest_are_kept(tmp_path: Path) -> None:
    for step in (5, 90, 100):
        save_checkpoint(tmp_path, step, state(step), keep=2)
    assert names(tmp_path) == ["step-00000090.pt", "step-00000100.pt"]
    found = load_latest(tmp_path, never)
    assert found is not None
    path, loaded = found
    assert path.name == "step-00000100.pt"
    assert torch.equal(loaded["model"]["weights"], state(100)["model"]["weights"])


def test_without_a_checkpoint_there_is_nothing_to_resume(tmp_path: Path) -> None:
    assert load_latest(tmp_path, never) is None
    assert load_latest(tmp_path / "not there", never) is None


@pytest.mark.parametrize("damage", ["truncated", "emptied", "bit flipped", "foreign"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_taken(tmp_path: Path, damage: str) -> None:
    save_checkpoint(tmp_path, 1, state(1), keep=2)
    newest = save_checkpoint(tmp_path, 2, state(2), keep=2)
    content = bytearray(newest.read_bytes())
    if damage == "bit flipped":
        content[len(content) // 2] ^= 1
    kept: dict[str, bytes] = {"truncated": bytes(content[: len(content) // 2]), "emptied": b""}
    kept["foreign"] = b"hello" * 99
    newest.write_bytes(kept.get(damage, bytes(content)))
    warnings: list[str] = []
    found = load_latest(tmp_path, warnings.append)
    assert found is not None
    assert found[1]["step"] == 1
    [words] = warnings
    assert f"The checkpoint {newest} cannot be read." in words
    assert "\n" not in words


def test_if_all_are_damaged_training_does_not_silently_start_anew(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 1, state(1), keep=2).write_bytes(b"")
    with pytest.raises(TrainingError, match=r"None of the 1 checkpoints .* --resume never"):
        load_latest(tmp_path, lambda _: None)


def test_a_checkpoint_cannot_run_code(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(tmp_path / "owned"),)

    path = tmp_path / "step-00000001.pt"
    torch.save(Evil(), path)
    with pytest.raises(TrainingError):
        load_checkpoint(path)
    path.write_bytes(pickle.dumps(Evil()))
    with pytest.raises(TrainingError):
        load_checkpoint(path)
    assert not (tmp_path / "owned").exists()


def test_a_file_of_somebody_else_is_not_taken_for_a_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "step-00000001.pt"
    torch.save({"weights": torch.zeros(3)}, path)
    with pytest.raises(TrainingError, match=r"not written by this trainer"):
        load_checkpoint(path)
    (tmp_path / "notes.txt").touch()
    (tmp_path / ".step-00000002.pt.partial").touch()
    assert list_checkpoints(tmp_path) == [path]


def test_a_checkpoint_that_cannot_be_written_leaves_the_old_ones_and_says_why(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 1, state(1), keep=2)
    (tmp_path / ".step-00000002.pt.partial").mkdir()
    with pytest.raises(TrainingError, match=r"Could not write the checkpoint .*Is a directory"):
        save_checkpoint(tmp_path, 2, state(2), keep=2)
    assert [path.name for path in list_checkpoints(tmp_path)] == ["step-00000001.pt"]


def test_a_full_disk_leaves_no_half_file(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("needs Linux's /dev/full")
    (tmp_path / ".step-00000002.pt.partial").symlink_to("/dev/full")
    with pytest.raises(TrainingError, match=r"Could not write the checkpoint"):
        save_checkpoint(tmp_path, 2, state(2), keep=2)
    assert names(tmp_path) == []
