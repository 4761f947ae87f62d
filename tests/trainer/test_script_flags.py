"""The flags of the scripts that guides run: T9k's, Arena's and PyTorch's MNIST examples."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

from tests.trainer.jobs import LINE, SMALL, Job
from trainer.catalogue import find
from trainer.distributed.outputs import check_file, write_atomically
from trainer.messages import TrainingError

T9K = ["--backend", "nccl", "--log_dir", "log", "--save_path=./model_state_dict.pt", "--no_cuda"]
ARENA = [
    "--epochs", "10", "--batch-size", "64", "--test-batch-size", "1000", "--lr", "0.01", "--momentum", "0.5",
    "--seed", "1", "--no-cuda", "--log-interval", "10", "--save-model", "--dir", "logs/mnist",
    "--data", "data", "--backend", "gloo",
]  # fmt: skip


def test_the_flags_of_the_t9k_script_keep_their_meaning() -> None:
    chosen = find("ddp").parser().parse_args(T9K)
    assert (chosen.backend, chosen.log_dir, chosen.save_path, chosen.device) == (
        "nccl", "log", "./model_state_dict.pt", "cpu",
    )  # fmt: skip


def test_the_flags_of_the_arena_example_keep_their_meaning() -> None:
    chosen = find("ddp").parser().parse_args(ARENA)
    assert (chosen.epochs, chosen.batch_size, chosen.test_batch_size) == (10, 64, 1000)
    assert (chosen.lr, chosen.momentum, chosen.seed) == (0.01, 0.5, 1)
    assert (chosen.device, chosen.backend) == ("cpu", "gloo")
    assert (chosen.dataset, chosen.data) == ("mnist", "data")
    assert (chosen.log_every, chosen.log_dir, chosen.save_path) == (10, "logs/mnist", "mnist_cnn.pt")


def test_script_flags_are_translated_and_other_arguments_stay_unchanged() -> None:
    words = ["--logdir=a", "--dir", "b", "--no-cuda", "--save_model", "--x_y", "c_d", "-n", "--log-every=2"]
    assert find("ddp").own_args(words) == [
        "--log-dir=a", "--log-dir", "b", "--device", "cpu", "--save-path", "mnist_cnn.pt",
        "--x_y", "c_d", "-n", "--log-every=2",
    ]  # fmt: skip
    assert find("mpi").own_args(["--num_iters", "3", "--no_cuda"]) == ["--num-iters", "3", "--no-cuda"]
    for trainer in ("ddp", "mpi"):
        assert find(trainer).own_args(find(trainer).own_args(words)) == find(trainer).own_args(words)


def test_the_data_argument_selects_the_dataset_by_default() -> None:
    parser = find("ddp").parser()
    assert parser.parse_args([]).dataset == "digits"
    assert parser.parse_args(["--data=x"]).dataset == "mnist"
    assert parser.parse_args(["--data=x", "--dataset", "digits"]).dataset == "digits"
    for words in (["--data=x", "--model", "gpt"], ["--model=gpt", "--data", "x"]):
        assert parser.parse_args(words).dataset == "tokens"
        assert find("ddp").own_args(words) == [*words, "--dataset", "tokens", "--batch-size", "8"]
    assert parser.parse_args(["--data=x", "--model", "gpt", "--dataset=sequences"]).dataset == "sequences"
    assert find("ddp").own_args(["--model", "cnn", "--epochs", "2"])[-1] == "2"


def test_a_run_with_script_flags_writes_curves_and_trained_weights(
    tmp_path: Path, run_here: Callable[..., list[str]]
) -> None:
    torch = pytest.importorskip("torch", reason="training needs torch, which gpuconsole[trainer] brings")
    flags = [*SMALL, *ARENA[2:], "--epochs", "1", "--dir", "logs", "--log_interval", "5", "--data=none"]
    lines = run_here(*flags, "--dataset", "digits", "--batch-size", "16")
    assert [found[3] for line in lines if (found := LINE.match(line))] == ["5", "10"]
    assert list(Job(tmp_path).curves()["train/loss"].steps) == [5, 10]
    weights = tmp_path / "mnist_cnn.pt"
    assert f"weights in {weights}" in lines
    from trainer.ddp.models import make_model

    make_model("cnn").load_state_dict(torch.load(weights, weights_only=True))
    assert not list(tmp_path.glob(".*.partial"))


def test_an_unwritable_save_path_is_reported_and_leaves_no_partial_file(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"--save-path: .* is a folder\. Name a file\."):
        check_file("--save-path", tmp_path)
    with pytest.raises(TrainingError, match=r"Cannot write to .*Choose another folder with --save-path"):
        check_file("--save-path", Path("/dev/null/a/b.pt"))
    check_file("--save-path", tmp_path / "new" / "a.pt")

    def fill_the_disk(file: IO[bytes]) -> None:
        file.write(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    whole = tmp_path / "new" / "a.pt"
    write_atomically("--save-path", whole, lambda file: file.write(b"whole"))
    with pytest.raises(
        TrainingError, match=r"Cannot write .*a\.pt\. No space left on device\. Choose another"
    ):
        write_atomically("--save-path", whole, fill_the_disk)
    assert (list(whole.parent.iterdir()), whole.read_text()) == ([whole], "whole")
