"""The argv of a training container: scripts under torchrun, and lines of shell, however they were quoted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from k8s.job_spec import JobSpec
from k8s.kinds.pods.command import command_of, shell_argv
from k8s.kinds.t9k.t9k_pytorch_job import T9kPyTorchJob

T9K = T9kPyTorchJob()
SPEC = JobSpec(name="a", namespace="b", image="i", torchrun=True)
PREFIX = ["python", "-m", "torch.distributed.run", "--no-python"]
SCRIPT = ["python", "-u", "train.py", "--lr", "1"]
SHELL = ["sh", "-c", "exec python -u train.py --lr $LR"]


@pytest.mark.parametrize(
    ("command", "started"),
    [
        (("train.py", "--lr", "1"), SCRIPT),
        (("train.py --lr 1",), SCRIPT),
        (("sh", "-c", "train.py --lr 1"), SCRIPT),
        (("bash", "-lc", "  train.py '--lr' 1"), SCRIPT),
        (("sh", "-c", "train.py --lr $LR"), SHELL),
        (("train.py --lr $LR",), SHELL),
        (("train.py --lr $LR && sync",), ["sh", "-c", "python -u train.py --lr $LR && sync"]),
        (("sh", "-c", "train.py 1; sync"), ["sh", "-c", "python -u train.py 1; sync"]),
        (("sh", "-c", "python train.py"), ["sh", "-c", "python train.py"]),
        (("sh", "-c", "train.py 'open"), ["sh", "-c", "train.py 'open"]),
        (("sh", "-c", ""), ["sh", "-c", ""]),
    ],
)
def test_torchrun_starts_a_script_however_it_is_quoted(command: tuple[str, ...], started: list[str]) -> None:
    assert command_of(replace(SPEC, command=command)) == [*PREFIX, *started]


def test_a_quoted_script_is_split_into_words_for_t9k() -> None:
    manifest = T9K.manifest(replace(SPEC, command=("sh", "-c", "train.py --lr 1")))
    container = manifest["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"][0]
    assert container["args"] == ["train.py", "--lr", "1"]
    assert "--no-python" not in manifest["spec"]["torchrunConfig"]["extraOptions"]


@pytest.mark.parametrize(
    ("line", "argv"),
    [
        ("for i in 1 2; do echo $i; done", ("sh", "-c", "for i in 1 2; do echo $i; done")),
        ('sh -c "for i in 1 2; do echo $i; done"', ("sh", "-c", "for i in 1 2; do echo $i; done")),
        ("bash -ec 'echo $i'", ("bash", "-ec", "echo $i")),
        ('sh -c "echo \\$i"', ("sh", "-c", 'sh -c "echo \\$i"')),
        ('sh -c "true" && sync', ("sh", "-c", 'sh -c "true" && sync')),
        ("sh -c 'open", ("sh", "-c", "sh -c 'open")),
    ],
)
def test_a_shell_in_a_line_of_shell_is_not_wrapped_again(line: str, argv: tuple[str, ...]) -> None:
    assert shell_argv(line) == argv
