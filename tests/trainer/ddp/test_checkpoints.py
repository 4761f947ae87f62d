"""Checkpoints and their arguments: whole or not there, never trusted blindly, written beside the training."""

from __future__ import annotations

import os
import pickle
import resource
import threading
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.ddp.states import CPU, chosen, lenet_batch, state_of
from trainer.ddp.batches import BatchLoader, noise_images, noise_tokens
from trainer.ddp.checkpoints import CheckpointArgs, check_resumable, checkpoint_args
from trainer.ddp.datasets import Dataset
from trainer.messages import TrainingError

torch = pytest.importorskip("torch", reason="checkpoints are torch's, which gpuconsole[trainer] brings")

from trainer.ddp.checkpoints import (
    CheckpointFolder,
    State,
    check_finite,
    find_not_finite,
    list_checkpoints,
    load_checkpoint,
    load_latest,
    path_of,
    write_checkpoint,
)
from trainer.messages import NotFinite


def state(step: int) -> State:
    weights = {"weights": torch.full((5000,), float(step))}
    return {"step": step, "epoch": 2, "images": 0, "model": weights, "random": [[torch.get_rng_state()]]}


def save_checkpoint(folder: Path, step: int, content: State, keep: int) -> Path:
    check_finite(step, content)
    write_checkpoint(folder, step, content, keep)
    return path_of(folder, step)


def newest_step(folder: Path) -> int:
    found = load_latest(folder)
    assert found is not None
    return int(found[1]["step"])


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_newest_checkpoint_comes_back_and_only_the_newest_are_kept(tmp_path: Path) -> None:
    for step in (5, 90, 100):
        save_checkpoint(tmp_path, step, state(step), keep=2)
    assert names(tmp_path) == ["step-00000090.pt", "step-00000100.pt"]
    found = load_latest(tmp_path)
    assert found is not None
    path, loaded = found
    assert path.name == "step-00000100.pt"
    assert torch.equal(loaded["model"]["weights"], state(100)["model"]["weights"])


def test_a_new_checkpoint_is_kept_despite_existing_higher_steps(tmp_path: Path) -> None:
    for step in (150, 200):
        save_checkpoint(tmp_path, step, state(step), keep=2)
    path = save_checkpoint(tmp_path, 118, state(118), keep=1)
    assert path.exists()
    assert names(tmp_path) == ["step-00000118.pt", "step-00000150.pt", "step-00000200.pt"]


def test_a_torn_file_does_not_count_as_kept(tmp_path: Path) -> None:
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
def test_a_checkpoint_with_non_finite_values_is_neither_saved_nor_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], number: float, place: tuple[str | int, ...]
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
    assert newest_step(tmp_path) == 1
    assert capsys.readouterr().err == (
        f"warning: The checkpoint {tmp_path}/step-00000002.pt cannot be used. {where} in it is not finite.\n"
    )


def test_the_largest_and_the_smallest_numbers_are_finite() -> None:
    largest = torch.finfo(torch.float32).max
    assert (
        find_not_finite({"weights": [torch.tensor([largest, -largest, 1e-45])], "none": torch.zeros(0)}) == ""
    )
    assert find_not_finite({"bf16": torch.tensor([1, float("nan")], dtype=torch.bfloat16)}) == "bf16"


def test_without_a_checkpoint_there_is_nothing_to_resume(tmp_path: Path) -> None:
    assert load_latest(tmp_path) is None
    assert load_latest(tmp_path / "not there") is None


@pytest.mark.parametrize("damage", ["truncated", "emptied", "bit flipped", "foreign"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    save_checkpoint(tmp_path, 1, state(1), keep=2)
    newest = save_checkpoint(tmp_path, 2, state(2), keep=2)
    content = bytearray(newest.read_bytes())
    if damage == "bit flipped":
        content[len(content) // 2] ^= 1
    kept: dict[str, bytes] = {"truncated": bytes(content[: len(content) // 2]), "emptied": b""}
    kept["foreign"] = b"hello" * 99
    newest.write_bytes(kept.get(damage, bytes(content)))
    assert newest_step(tmp_path) == 1
    [warning] = capsys.readouterr().err.splitlines()
    assert warning.startswith(f"warning: The checkpoint {newest} cannot be read.")


@pytest.mark.parametrize("method", [8, 12, 14, 99], ids=["deflate", "bzip2", "lzma", "unknown"])
def test_a_part_with_another_compression_in_its_header_is_damage(tmp_path: Path, method: int) -> None:
    path = save_checkpoint(tmp_path, 1, state(1), keep=1)
    whole = path.read_bytes()
    with zipfile.ZipFile(path) as parts:
        headers = [each.header_offset for each in parts.infolist()]
    entry = 0
    for header in headers:
        entry = whole.index(b"PK\x01\x02", entry + 1)
        content = bytearray(whole)
        content[header + 8] = content[entry + 10] = method
        path.write_bytes(content)
        with pytest.raises(TrainingError, match="cannot be read"):
            load_checkpoint(path)


def test_a_flipped_bit_or_a_cut_gives_the_same_checkpoint_or_the_error_of_a_damaged_one(
    tmp_path: Path,
) -> None:
    path = save_checkpoint(tmp_path, 1, {"step": 1, "model": {"w": torch.arange(6.0)}}, keep=1)
    whole = path.read_bytes()
    cuts = [whole[:size] for size in range(0, len(whole), 61)]
    flips = [bytearray(whole) for _ in range(0, len(whole) * 8, 97)]
    for number, flipped in enumerate(flips):
        flipped[number * 97 // 8] ^= 1 << number * 97 % 8
    for content in (*cuts, *map(bytes, flips)):
        path.write_bytes(content)
        try:
            found = load_checkpoint(path)
        except TrainingError as error:
            assert str(path) in str(error)
        else:
            assert found["step"] == 1 and torch.equal(found["model"]["w"], torch.arange(6.0))


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


def test_a_foreign_file_is_not_loaded_as_a_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "step-00000001.pt"
    torch.save({"weights": torch.zeros(3)}, path)
    with pytest.raises(TrainingError, match=r"not written by this trainer"):
        load_checkpoint(path)
    (tmp_path / "notes.txt").touch()
    (tmp_path / ".step-00000002.pt.partial").touch()
    assert list_checkpoints(tmp_path) == [path]


def test_a_write_error_within_a_tensor_is_raised_as_os_error_and_leaves_no_file(tmp_path: Path) -> None:
    large = {"step": 1, "model": {"weights": torch.zeros(3_000_000)}}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            save_checkpoint(tmp_path, 1, large, keep=2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert names(tmp_path) == []


def test_an_unreadable_checkpoint_folder_raises_a_training_error(tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    with pytest.raises(TrainingError, match=r"Cannot read .*taken\. Not a directory\. .* --checkpoint-dir"):
        list_checkpoints(tmp_path / "taken")


def saved(folder: CheckpointFolder, step: int) -> str:
    return folder.write(state(step))


def folder_of(path: Path, job: str = "digits", continues: bool = False) -> CheckpointFolder:
    return CheckpointFolder(path, 2, job, continues)


def resume(folder: CheckpointFolder, how: str) -> State:
    found = folder.load(how)
    assert found is not None
    folder.resumed(*found)
    return found[1]


def tree(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.pt"))


def test_a_checkpoint_without_a_recorded_time_is_as_old_as_its_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "step-00000007.pt"
    torch.save({"format": 1, **state(7)}, path)
    os.utime(path, (time.time() - 330, time.time() - 330))
    assert resume(folder_of(tmp_path), "must")
    assert capsys.readouterr().out.startswith("continues step 7, saved 5 min ago\n")


def test_a_new_run_moves_the_old_ones_checkpoints_aside_each_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = folder_of(tmp_path)
    for step in (150, 200):
        saved(folder, step)
    assert folder.load("never") is None
    assert capsys.readouterr().out == (
        f"starts from scratch; the old checkpoints (2) are now in {tmp_path}/old-1\n"
    )
    saved(folder, 118)
    assert folder.load("never") is None
    saved(folder, 3)
    assert tree(tmp_path) == [
        "old-1/step-00000150.pt", "old-1/step-00000200.pt", "old-2/step-00000118.pt", "step-00000003.pt",
    ]  # fmt: skip
    assert resume(folder, "auto")["step"] == 3


def test_a_new_run_in_an_empty_folder_moves_and_prints_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert folder_of(tmp_path / "none").load("never") is None
    assert folder_of(tmp_path).load("never") is None
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr().out == ""


def test_a_damaged_newer_checkpoint_is_moved_aside_on_resume(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = folder_of(tmp_path)
    for step in (150, 200):
        saved(folder, step)
    (tmp_path / "step-00000200.pt").write_bytes(b"torn")
    assert folder.load("auto") is not None
    assert capsys.readouterr().out == ""
    assert tree(tmp_path) == ["step-00000150.pt", "step-00000200.pt"], "it is only read, and may be refused"
    assert resume(folder, "auto")["step"] == 150
    saved(folder, 175)
    assert tree(tmp_path) == ["old-1/step-00000200.pt", "step-00000150.pt", "step-00000175.pt"]
    assert f"What could not be read is now in {tmp_path}/old-1." in capsys.readouterr().err


def test_old_checkpoints_go_to_another_folder_if_a_file_has_its_name(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    saved(folder, 1)
    (tmp_path / "old-1").write_text("a file of somebody")
    assert folder.load("never") is None
    assert tree(tmp_path) == ["old-2/step-00000001.pt"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
def test_a_full_disk_stops_training_or_is_reported_by_on_full_disk(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    full = tmp_path / ".step-00000002.pt.partial"
    full.symlink_to("/dev/full")
    with pytest.raises(TrainingError) as caught:
        saved(folder_of(tmp_path), 2)
    assert str(caught.value) == (
        f"Could not write the checkpoint {tmp_path}/step-00000002.pt. No space left on device."
        f" Training stops; no checkpoint is in {tmp_path}."
        " Make room or choose another --checkpoint-dir, then start again;"
        " --on-full-disk continue would train on."
    )
    saved(folder_of(tmp_path), 1)
    full.symlink_to("/dev/full")
    going_on = folder_of(tmp_path, continues=True)
    going_on.start(state(2))
    assert (going_on.finish(), going_on.has_failed) == ("", False)
    assert names(tmp_path) == ["step-00000001.pt"], "no half file"
    assert f"Training goes on; the last checkpoint is {tmp_path}/step-00000001.pt." in capsys.readouterr().err
    assert saved(going_on, 2).endswith("step-00000002.pt")


def test_other_write_errors_stop_training_despite_on_full_disk_continue(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, continues=True)
    saved(folder, 1)
    (tmp_path / ".step-00000002.pt.partial").mkdir()
    with pytest.raises(TrainingError, match=r"Is a directory\. Training stops; ") as caught:
        saved(folder, 2)
    assert "--on-full-disk" not in str(caught.value)
    assert [path.name for path in list_checkpoints(tmp_path)] == ["step-00000001.pt"]


WAIT_S = 180


class SlowFolder(CheckpointFolder):
    """A folder on a disk that writes when it is let."""

    def __init__(self, path: Path, *, may_write: bool = True) -> None:
        super().__init__(path, 9, "", continues_when_full=False)
        self.may_write = threading.Event()
        self.events: list[str] = []
        if may_write:
            self.may_write.set()

    def write(self, state: State) -> str:
        self.events.append(f"starts {state['step']}")
        assert self.may_write.wait(WAIT_S)
        saved = super().write(state)
        self.events.append(f"wrote {state['step']}")
        return saved


def copied_state(step: int, weights: Any) -> State:
    return {
        "step": step, "epoch": 0, "images": 0, "model": {"weights": weights}, "random": [[weights.clone()]],
    }  # fmt: skip


def test_training_goes_on_while_a_copy_is_written(tmp_path: Path) -> None:
    folder, weights = SlowFolder(tmp_path, may_write=False), torch.full((9,), 1.0)
    folder.start(copied_state(1, weights))
    weights.fill_(7.0)
    assert list_checkpoints(tmp_path) == []
    folder.may_write.set()
    assert folder.finish() == str(tmp_path / "step-00000001.pt")
    saved = load_checkpoint(tmp_path / "step-00000001.pt")
    assert saved["model"]["weights"].tolist() == [1.0] * 9
    assert saved["random"][0][0].tolist() == [1.0] * 9


def test_a_checkpoint_waits_for_the_previous_write_and_close_completes_the_last(tmp_path: Path) -> None:
    folder, weights = SlowFolder(tmp_path, may_write=False), torch.zeros(9)
    folder.start(copied_state(1, weights))
    second = threading.Thread(target=folder.start, args=(copied_state(2, weights),))
    second.start()
    folder.may_write.set()
    second.join(WAIT_S)
    folder.close()
    assert folder.events == ["starts 1", "wrote 1", "starts 2", "wrote 2"]
    assert [load_checkpoint(path)["step"] for path in list_checkpoints(tmp_path)] == [2, 1]
    folder.close()


def test_non_finite_weights_are_rejected_at_once_and_the_running_write_completes(tmp_path: Path) -> None:
    folder = SlowFolder(tmp_path)
    folder.start(copied_state(1, torch.zeros(9)))
    with pytest.raises(NotFinite, match="no longer finite after step 2"):
        folder.start(copied_state(2, torch.full((9,), float("nan"))))
    folder.close()
    assert [path.name for path in list_checkpoints(tmp_path)] == ["step-00000001.pt"]


def test_a_failed_checkpoint_write_is_raised_once_at_the_next_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = SlowFolder(tmp_path)
    (tmp_path / ".step-00000001.pt.partial").mkdir()
    folder.start(copied_state(1, torch.zeros(9)))
    for thread in threading.enumerate():
        if thread.name == "checkpoint":
            thread.join(WAIT_S)
    assert folder.has_failed
    with pytest.raises(TrainingError, match=r"step-00000001.pt\. Is a directory\. Training stops; no"):
        folder.start(copied_state(2, torch.zeros(9)))
    assert not folder.has_failed
    folder.close()
    folder.start(copied_state(1, torch.zeros(9)))
    folder.close()
    assert capsys.readouterr().err.count("error: Could not write the checkpoint") == 1


SGD = ("--optimizer", "sgd", "--momentum", "0.9")
GPT = ("--model", "gpt", "--dataset", "sequences")


def kept(*words: str, vocabulary: int = 256) -> CheckpointArgs:
    arguments = chosen(*words)
    samples: Any
    shape: tuple[int, ...]
    if arguments.model == "gpt":
        length = arguments.sequence_length
        samples, shape = noise_tokens(3, length, vocabulary, 1), (length,)
    else:
        size = arguments.image_size or 28
        samples, shape, vocabulary = noise_images(3, size, 10, 1), (1, size, size), 10
    return checkpoint_args(arguments, Dataset(samples, samples, shape, vocabulary, BatchLoader(CPU)))


@pytest.mark.parametrize(
    ("before", "now", "words"),
    [
        ((*GPT, "--heads", "2"), GPT, "--heads 2 (here 4)"),
        ((*GPT, "--layers", "2", "--width", "64"), GPT, "--layers 2 (here 4), --width 64 (here 128)"),
        ((*GPT, "--sequence-length", "64"), GPT, "--sequence-length 64 (here 256)"),
        ((), ("--momentum", "0.5"), "--optimizer adamw (here sgd), --momentum 0 (here 0.5)"),
        (SGD, ("--optimizer", "adamw", "--lr", "1"), "--optimizer sgd (here adamw), --momentum 0.9 (here 0)"),
        (("--image-size", "32"), (), "--image-size 32 (here 28)"),
    ],
)
def test_incompatible_checkpoint_arguments_are_listed_with_both_values(
    before: tuple[str, ...], now: tuple[str, ...], words: str
) -> None:
    with pytest.raises(TrainingError) as caught:
        check_resumable(kept(*before), kept(*now))
    assert str(caught.value).startswith(f"The checkpoint was made with {words}. Choose what it was made with")


def test_another_vocabulary_is_named_as_it_was_decided() -> None:
    with pytest.raises(TrainingError, match=r"with --vocabulary 256 \(here 50257\)\."):
        check_resumable(kept(*GPT), kept(*GPT, vocabulary=50257))


def test_only_changed_arguments_are_reported_when_resuming() -> None:
    before = ("--momentum", "0.5", "--epochs", "2")
    now = ("--momentum", "0.9", "--epochs", "4", "--lr", "0.1", "--weight-decay", "0")
    assert check_resumable(kept(*before), kept(*now)) == (
        "--momentum 0.9 (was 0.5), --lr 0.1 (was 0.003), --weight-decay 0.0 (was 0.01), --epochs 4 (was 2)"
    )
    assert check_resumable(kept(*now), kept(*now)) == ""
    assert check_resumable({}, kept(*now)) == "", "a checkpoint of an older trainer says nothing"
    large = "--model", "resnet18", "--image-size"
    assert check_resumable(kept(*large, "64"), kept(*large, "96")) == "--image-size 96 (was 64)"


def test_the_momentum_and_weight_decay_of_this_run_count_and_not_the_checkpoints() -> None:
    before = state_of("--momentum", "0.5", "--weight-decay", "0.1")
    now = state_of("--momentum", "0.9", "--weight-decay", "0")
    before.train_step(*lenet_batch())
    now.load_state_dict(before.state_dict())
    [weights] = now.state_dict()["optimizer"]["param_groups"]
    assert (weights["momentum"], weights["weight_decay"]) == (0.9, 0.0)
