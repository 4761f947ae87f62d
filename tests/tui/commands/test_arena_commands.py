"""Every `arena submit` command of the guides works as it was written, but for the word `arena`."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from k8s.job_spec import JOB_FIELDS, JobSpec, Mount
from tests import FIXTURES
from tests.tui.commands.conftest import CommandLine
from tui.commands.support.parser import CommandParser
from tui.commands.support.submit_flags import add_spec_arguments, spec_of

GUIDES = sorted((FIXTURES / "guides").glob("*.sh"))
BENCHMARK = (
    "mpirun --allow-run-as-root -np 4 -bind-to none -map-by slot -x NCCL_DEBUG=INFO -x"
    " NCCL_SOCKET_IFNAME=eth0 -x LD_LIBRARY_PATH -x PATH --mca pml ob1 --mca btl_tcp_if_include eth0"
    " --mca oob_tcp_if_include eth0"
    " --mca orte_keep_fqdn_hostnames t --mca btl ^openib python /examples/pytorch_synthetic_benchmark.py"
    " --model={} --batch-size=64"
)
DIST = (
    "python /root/code/mnist-pytorch/mnist.py --epochs 10 --backend nccl --dir /mnist_data/pytorch_data/logs"
    " --data /mnist_data/pytorch_data/"
)
GIT = {
    "sync_mode": "git",
    "sync_source": "https://code.aliyun.com/370272561/mnist-pytorch.git",
    "working_dir": "/root",
}
MPI = {"gpus": 1, "workers": 4}
JOBS: dict[str, dict[str, Any]] = {
    "pytorch-dist": {
        **GIT,
        "gpus": 1,
        "workers": 3,
        "mounts": (Mount("training-data", "/mnist_data"),),
        "tensorboard": True,
        "log_dir": "/mnist_data/pytorch_data/logs",
        "command": ("sh", "-c", DIST),
    },
    "pytorch-dist-git": {
        **GIT,
        "gpus": 1,
        "workers": 2,
        "command": ("sh", "-c", "python /root/code/mnist-pytorch/mnist.py --backend gloo"),
    },
    "pytorch-private": {
        **GIT,
        "env": {"GIT_SYNC_USERNAME": "yourname", "GIT_SYNC_PASSWORD": "yourpwd"},
        "command": ("sh", "-c", "python /root/code/mnist-pytorch/mnist.py --backend gloo"),
    },
    **{
        f"pytorch-{topo}4-{model}": {
            **MPI,
            "gpu_topology": bool(topo),
            "command": ("sh", "-c", BENCHMARK.format(model)),
        }
        for topo in ("topo-", "")
        for model in ("vgg16", "resnet50")
    },
}
"""What each asks for, besides name and image, where it is not the default."""


def words_of(name: str) -> list[str]:
    """Return the words that the shell makes of a guide's command; `...` stands for a name and an image."""
    text = (FIXTURES / "guides" / f"{name}.sh").read_text().replace("\\\n", " ")
    arena, *words = shlex.split(text.replace("...", f"--name={name} --image=x"))
    assert arena == "arena"
    return words


def job_of(name: str) -> JobSpec:
    """Return the job that the flags of a guide's command describe."""
    words = words_of(name)
    parser = CommandParser(prog="gpuconsole")
    add_spec_arguments(parser)
    flags = parser.parse_args(words[words.index("submit") + 2 :])
    flags.rest = []
    return spec_of(flags, "default")


def test_every_command_of_the_guides_is_here() -> None:
    assert {path.stem for path in GUIDES} == set(JOBS)
    assert len(GUIDES) == 7


@pytest.mark.parametrize("name", JOBS)
def test_a_guides_command_is_read_as_it_was_meant(name: str) -> None:
    spec = job_of(name)
    assert spec.name == name
    always = {"namespace", "user", "name", "image"}
    said = {
        field: getattr(spec, field)
        for field in JOB_FIELDS
        if field not in always and getattr(spec, field) != JOB_FIELDS[field].default
    }
    expected = {field: value for field, value in JOBS[name].items() if value != JOB_FIELDS[field].default}
    assert said == expected


@pytest.mark.parametrize("name", ["pytorch-dist", "pytorch-dist-git", "pytorch-private"])
async def test_a_guides_command_makes_a_manifest(alone: CommandLine, name: str) -> None:
    ended = await alone(*words_of(name), "--dry-run=client")
    assert (ended.status, ended.out) == (0, f"PyTorchJob default/{name} created (dry run).\n")


@pytest.mark.parametrize(
    "words",
    [
        "list", "get JOB", "get JOB --type pytorchjob", "logs JOB", "logs JOB -t 5",
        "logs JOB -i JOB-worker-0", "logs JOB -i worker-0 -t 5", "logs -f JOB", "logs JOB -f", "logs --help",
        "top node", "top job", "data list",
    ],
)  # fmt: skip
async def test_the_guides_other_commands_are_understood(alone: CommandLine, words: str) -> None:
    ended = await alone(*words.replace("JOB", "pytorch-dist").split())
    assert ended.status == (0 if "--help" in words else 1)
    assert "There is no kubeconfig" in ended.err or "--help" in words
