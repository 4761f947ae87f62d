"""Checkpoints: whole or not there, and never trusted blindly."""

import os
import pickle
import resource
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="checkpoints are torch's, which gpuconsole[trainer] brings")

from trainer.ddp.checkpoint import (
    CheckpointNotWritten,
    State,
    check_finite,
    find_not_finite,
    list_checkpoints,
    load_checkpoint,
    load_latest,
    write_checkpoint,
)
from trainer.messages import NotFinite, TrainingError


def state(step: int) -> State:
    return {
        "step": step,
        "model": {"weights": torch.full((5000,), float(step))},
        "random": [[torch.get_rng_state()]],
    }


def save_checkpoint(folder: Path, step: int, content: State, keep: int) -> Path:
    check_finite(step, content)
    return write_checkpoint(folder, step, content, keep)


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


def test_what_was_just_written_stays_whatever_higher_steps_lie_there(tmp_path: Path) -> None:
    for step in (150, 200):
        save_checkpoint(tmp_path, step, state(step), keep=2)
    path = save_checkpoint(tmp_path, 118, state(118), keep=1)
    assert path.exists()
    assert names(tmp_path) == ["step-00000118.pt", "step-00000150.pt", "step-00000200.pt"]


def test_a_torn_file_takes_no_place_among_those_that_are_kept(tmp_path: Path) -> None:
    for step in (1, 2):
        save_checkpoint(tmp_path, step, state(step), keep=9)
    (tmp_path / "step-00000003.pt").write_bytes(b"torn")
    save_checkpoint(tmp_path, 4, state(4), keep=2)
    assert names(tmp_path) == ["step-00000002.pt", "step-00000003.pt", "step-00000004.pt"]
    save_checkpoint(tmp_path, 5, state(5), keep=2)
    assert names(tmp_path) == ["step-00000004.pt", "step-00000005.pt"]


def test_the_whole_file_is_on_the_disk_before_it_gets_its_name_and_the_name_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not Path("/proc/self/fd").exists():
        pytest.skip("needs Linux's /proc")
    done: list[tuple[str, str, int]] = []
    fsync, replace = os.fsync, os.replace

    def noting_fsync(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        done.append(("fsync", path.name, path.stat().st_size if path.is_file() else 0))
        fsync(descriptor)

    def noting_replace(source: Path, target: Path) -> None:
        done.append(("rename", Path(target).name, 0))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", noting_fsync)
    monkeypatch.setattr(os, "replace", noting_replace)
    path = save_checkpoint(tmp_path, 1, state(1), keep=2)
    whole = path.stat().st_size
    assert done == [
        ("fsync", ".step-00000001.pt.partial", whole),
        ("rename", "step-00000001.pt", 0),
        ("fsync", tmp_path.name, 0),
    ]


@pytest.mark.parametrize("number", [float("inf"), -float("inf"), float("nan")])
@pytest.mark.parametrize(
    "place", [("model", "bias"), ("optimizer", "state", 0, "exp_avg_sq")], ids=["weights", "optimizer"]
)
def test_what_is_not_finite_is_neither_saved_nor_taken(
    tmp_path: Path, number: float, place: tuple[str | int, ...]
) -> None:
    save_checkpoint(tmp_path, 1, state(1), keep=2)
    spoiled = state(2)
    spoiled["optimizer"] = {"state": {0: {}}, "steps": [3]}
    inner: Any = spoiled
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = torch.tensor([[1.0, number]])
    where = ".".join(map(str, place))
    with pytest.raises(NotFinite, match=rf"no longer finite after step 2 \(in {where}\)"):
        save_checkpoint(tmp_path, 2, spoiled, keep=2)
    assert names(tmp_path) == ["step-00000001.pt"]
    torch.save({"format": 1, **spoiled}, tmp_path / "step-00000002.pt")
    warnings: list[str] = []
    found = load_latest(tmp_path, warnings.append)
    assert found is not None
    assert found[1]["step"] == 1
    assert warnings == [
        f"The checkpoint {tmp_path}/step-00000002.pt cannot be used. {where} in it is not finite."
    ]


def test_the_largest_and_the_smallest_numbers_are_finite() -> None:
    largest = torch.finfo(torch.float32).max
    assert (
        find_not_finite({"weights": [torch.tensor([largest, -largest, 1e-45])], "none": torch.zeros(0)}) == ""
    )
    assert find_not_finite({"bf16": torch.tensor([1, float("nan")], dtype=torch.bfloat16)}) == "bf16"


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


def test_if_all_are_damaged_training_does_not_silently_start_from_scratch(tmp_path: Path) -> None:
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
    with pytest.raises(TrainingError, match=r"Could not write the checkpoint .*Is a directory") as caught:
        save_checkpoint(tmp_path, 2, state(2), keep=2)
    assert isinstance(caught.value, CheckpointNotWritten)
    assert not caught.value.is_full
    assert [path.name for path in list_checkpoints(tmp_path)] == ["step-00000001.pt"]


def test_a_full_disk_leaves_no_half_file(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("needs Linux's /dev/full")
    (tmp_path / ".step-00000002.pt.partial").symlink_to("/dev/full")
    with pytest.raises(CheckpointNotWritten, match=r"\.pt\. No space left on device\.$") as caught:
        save_checkpoint(tmp_path, 2, state(2), keep=2)
    assert caught.value.is_full
    assert names(tmp_path) == []


def test_a_disk_that_fills_up_in_the_middle_of_a_tensor_is_said_in_its_own_words(tmp_path: Path) -> None:
    large = {"step": 1, "model": {"weights": torch.zeros(3_000_000)}}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        with pytest.raises(CheckpointNotWritten, match=r"\.pt\. File too large\.$"):
            save_checkpoint(tmp_path, 1, large, keep=2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert names(tmp_path) == []


def test_a_folder_that_cannot_be_listed_is_said_in_words(tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    with pytest.raises(TrainingError, match=r"Cannot read .*taken\. Not a directory\. .* --checkpoint-dir"):
        list_checkpoints(tmp_path / "taken")
