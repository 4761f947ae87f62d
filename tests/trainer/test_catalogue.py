"""The catalogue: what can be launched, and how, also with the flags of the scripts that guides run."""

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

from tests.trainer.jobs import LINE, SMALL, Job
from trainer.catalogue import TRAINERS, UnknownName, find
from trainer.distributed.outputs import check_file, write_atomically
from trainer.messages import TrainingError


def test_the_command_runs_the_trainer_under_torchrun_and_keeps_the_working_directory_out() -> None:
    assert find("ddp").command(["--epochs", "2"]) == [
        "python", "-P", "-m", "trainer.launch", "-m", "trainer.train_ddp", "--epochs", "2",
    ]  # fmt: skip


def test_the_benchmark_is_run_by_mpirun_with_the_ranks_the_job_has() -> None:
    start = ["mpirun", "--allow-run-as-root", "--tag-output"]
    end = ["python", "-P", "-m", "trainer.train_mpi", "--model", "vgg16"]
    mpi = find("mpi")
    assert mpi.command(["--model", "vgg16"]) == [*start, *end]
    assert mpi.command({"model": "vgg16"}, ranks=4) == [*start, "-np", "4", *end]
    assert mpi.command({"model": "vgg16"}, ranks=4, variables=["NCCL_DEBUG", "PYTHONPATH"]) == [
        *start, "-np", "4", "-x", "NCCL_DEBUG", "-x", "PYTHONPATH", *end,
    ]  # fmt: skip


def test_a_trainer_can_run_under_the_launcher_of_another_job_kind() -> None:
    assert find("mpi").command(["--num-iters", "3"], launcher="torchrun", ranks=4) == [
        "python", "-P", "-m", "trainer.launch", "-m", "trainer.train_mpi", "--num-iters", "3",
    ]  # fmt: skip
    assert find("ddp").command(launcher="mpirun", ranks=2)[3:] == [
        "-np", "2", "python", "-P", "-m", "trainer.train_ddp",
    ]  # fmt: skip


def test_the_trainer_and_its_arguments_are_recognised_in_a_command() -> None:
    ddp, mpi = find("ddp"), find("mpi")
    words = ["--model", "tiny", "-m", "trainer.train_mpi"]
    for command in (
        mpi.command(words),
        mpi.command(words, ranks=4, variables=["A"]),
        mpi.command(words, launcher="torchrun"),
    ):
        assert mpi.words_of(command) == words
        assert ddp.words_of(command) is None
    assert ddp.words_of(ddp.command()) == []
    own = ["env", "A=1", "python", "-P", "-m", "trainer.train_mpi"]
    for other in ([], own, own[2:], ["sh", "-c", "python -P -m trainer.train_mpi"]):
        assert mpi.words_of(other) is None


def test_a_form_gives_values_by_name() -> None:
    command = find("ddp").command({"epochs": "2", "download": "true", "data": "-odd"})
    assert command[6:] == ["--epochs", "2", "--download", "--data=-odd", "--dataset", "digits"]
    command = find("ddp").command({"dataset": "mnist", "data": "/mnist"})
    assert command[6:] == ["--dataset", "mnist", "--data", "/mnist"]
    assert find("ddp").command({"download": "false"})[6:] == []


def test_a_gpt_has_its_own_default_batch_size_outside_forms() -> None:
    gpt = ["--model", "gpt", "--dataset", "sequences"]
    parser = find("ddp").parser()
    assert (parser.parse_args([]).batch_size, parser.parse_args(gpt).batch_size) == (64, 8)
    assert parser.parse_args([*gpt, "--batch-size", "3"]).batch_size == 3
    shown = find("ddp").command({"model": "gpt", "dataset": "sequences"})
    assert shown[6:] == [*gpt, "--batch-size", "64"]
    assert "--batch-size" not in find("ddp").command({"model": "lenet"})


def test_an_unknown_trainer_or_argument_is_answered_with_those_there_are() -> None:
    with pytest.raises(UnknownName, match=r"There is no trainer .horovod.\. There is: ddp, mpi"):
        find("horovod")
    with pytest.raises(UnknownName, match=r"no argument .epoch.\..* epochs"):
        find("ddp").command({"epoch": "2"})


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("epochs", "two", "--epochs: 'two' is not a whole number"),
        ("epochs", "0", "--epochs: 0 is not 1 or more"),
        ("lr", "nan", "--lr: nan is not 0 or more"),
        ("lr", "inf", r"--lr: inf is not 1e\+30 or less"),
        ("weight-decay", "1e9", "--weight-decay: 1e9 is not 100 or less"),
        ("seed", "99999999999999999999", "--seed: 99999999999999999999 is not 4294967295 or less"),
        ("seed", "-1", "--seed: -1 is not 0 or more"),
        ("wait-for-others", "1" + "0" * 5000, "--wait-for-others: '10+' is not a whole number"),
        ("on-full-disk", "ignore", "--on-full-disk: 'ignore' is not one of stop, continue"),
        ("device", "tpu", "--device: 'tpu' is not one of auto, cpu, cuda"),
        ("download", "yes", "--download: 'yes' is neither true nor false"),
    ],
)
def test_a_wrong_value_is_refused_before_anything_is_launched(name: str, text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        find("ddp").command({name: text})


def test_the_command_line_of_a_trainer_is_its_catalogue_entry() -> None:
    for trainer in TRAINERS:
        parsed = vars(trainer.parser().parse_args([]))
        assert parsed == {each.name.replace("-", "_"): each.default for each in trainer.arguments}


GPT_OF_NOISE = "--model gpt --dataset sequences"


@pytest.mark.parametrize(
    ("name", "words", "error"),
    [
        ("ddp", "--batch-size many", "argument --batch-size: 'many' is not a whole number."),
        ("ddp", "--model resnet18 --batch-size 1",
         "argument --batch-size: 1 is not 2 or more, which --model resnet18 needs"),
        ("ddp", "--log_interval 0", "argument --log-every: 0 is not 1 or more."),
        ("ddp", "--no_cuda=1", "unrecognized arguments: --no_cuda=1."),
        ("ddp", "--model gpt",
         "argument --model: gpt cannot train on --dataset digits; name a text or token file"),
        ("ddp", "--dataset tokens",
         "argument --model: cnn cannot train on --dataset tokens; choose --model gpt"),
        ("ddp", "--dataset cifar10",
         "argument --dataset: 'cifar10' is not one of digits, mnist, folder, tokens, images, sequences"),
        ("ddp", "--model resnt50",
         "argument --model: 'resnt50' is not one of the 84 choices; did you mean resnet50"),
        ("ddp", f"{GPT_OF_NOISE} --width 130", "argument --width: 130 is not a multiple of --heads 4"),
        ("ddp", f"{GPT_OF_NOISE} --token-bytes 4",
         "argument --vocabulary: required if --token-bytes is not 1 (GPT-2's is 50257)"),
        ("ddp", "--epochs 1 --profile", "--profile was removed: run the trainer under nsys profile"),
        ("mpi", "--master_port=7", "--master-port was removed: set MASTER_PORT (mpirun -x MASTER_PORT"),
        ("mpi", "--model vgg", "argument --model: 'vgg' is not one of vgg16, resnet50, resnet18, tiny."),
        ("mpi", "--use-adasum", "unrecognized arguments: --use-adasum."),
    ],
)  # fmt: skip
def test_a_wrong_command_line_is_answered_in_one_line_with_status_2(
    capsys: pytest.CaptureFixture[str], name: str, words: str, error: str
) -> None:
    with pytest.raises(SystemExit) as exit_:
        find(name).parser().parse_args(words.split())
    assert exit_.value.code == 2
    printed = capsys.readouterr().err
    assert printed.startswith(f"error: {error}") and printed.count("\n") == 1
    assert printed.endswith(f"See python -m {find(name).module} --help.\n")


def test_every_argument_explains_itself() -> None:
    for trainer in TRAINERS:
        for argument in trainer.arguments:
            assert argument.words
            assert not argument.words.endswith(".")
            assert argument.words[0].isupper()
            assert not argument.choices or argument.default in argument.choices


def test_the_console_can_read_the_catalogue_ranks_and_event_files_without_torch_or_numpy() -> None:
    script = (
        "import sys, trainer.catalogue, trainer.ranks, trainer.tfevents\n"
        "print([name for name in ('torch', 'numpy', 'tensorboard') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


def test_the_help_shows_bounds_and_other_names() -> None:
    for trainer in TRAINERS:
        text = " ".join(trainer.parser().format_help().split())
        for argument in trainer.arguments:
            if isinstance(argument.default, int | float) and not isinstance(argument.default, bool):
                assert argument.least is not None and argument.most is not None
                assert argument.least <= argument.default <= argument.most
                for bound in (argument.least, argument.most):
                    assert argument.read(str(bound)) == bound
                unit = f" {argument.unit}" if argument.unit else ""
                default = argument.zero or argument.default
                assert f"(default: {default}; {argument.bounds}{unit})" in text
    text = " ".join(find("ddp").parser().format_help().split())
    assert "also --logdir, --dir (default: logs)" in text
    assert "also --no-cuda for cpu (default: auto)" in text
    assert "for --model gpt the default is 8 (default: 64; 1 to 1000000 images)" in text


def test_a_zero_default_has_a_keyword_that_the_parser_accepts() -> None:
    for trainer in TRAINERS:
        for argument in trainer.arguments:
            is_number = isinstance(argument.default, int | float) and not isinstance(argument.default, bool)
            assert bool(argument.zero) == (is_number and argument.default == 0 and argument.name != "seed")
            assert "0 means" not in argument.words
            if argument.zero:
                assert argument.read(argument.zero) == argument.read("0") == 0
                parsed = trainer.parser().parse_args([argument.flag, argument.zero])
                assert vars(parsed)[argument.name.replace("-", "_")] == 0
            with pytest.raises(ValueError, match="not a whole number"):
                find("ddp").argument("epochs").read("auto")


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
