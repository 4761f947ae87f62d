"""Every `arena submit` command of the guides works as it was written, but for the word `arena`."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from k8s.job_spec import JOB_FIELDS, JobSpec, Mount
from tests import FIXTURES
from tests.scripted.feed import say_kinds
from tests.scripted.server import Answer, Compute, ScriptedCluster
from tests.tui.commands.conftest import CommandLine
from tui.commands.submission.submit_flags import add_spec_arguments, spec_of
from tui.commands.support.parser import CommandParser

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


@pytest.mark.parametrize("name", JOBS)
async def test_a_guides_command_makes_a_manifest(alone: CommandLine, name: str) -> None:
    kind = "PyTorchJob" if words_of(name)[-1].startswith("python ") else "MPIJob"
    ended = await alone(*words_of(name), "--dry-run=client")
    lines = [f"{kind} default/{name} created (dry run).", *BESIDE.get(name, ())]
    assert (ended.status, ended.out.splitlines()) == (0, lines)
    assert "yourpwd" not in (await alone(*words_of(name), "--dry-run=client", "-o", "yaml")).out
    assert ended.err in ("", "Without effect here: --loglevel.\n")


BESIDE = {
    "pytorch-dist": (
        "deployment.apps/pytorch-dist-tensorboard created (dry run)",
        "service/pytorch-dist-tensorboard created (dry run)",
    ),
    "pytorch-private": ("secret/pytorch-private-git created (dry run)",),
}
"""What is created beside the job."""
RECORDED_AS = {
    "pytorch-dist": "arena-pytorch-dist",
    "pytorch-dist-git": "arena-pytorch-dist-git",
    "pytorch-4-vgg16": "arena-mpi",
    "pytorch-topo-4-vgg16": "arena-mpi-topology",
}
"""What Arena made of the command on a real cluster; its image and git host were replaced there."""
MPI_JOBS = "/apis/kubeflow.org/v1alpha1/namespaces/default/mpijobs"


def essence_of(job: Any) -> dict[str, Any]:
    """Return what both must have in common: pods, commands, devices, mounts, and what finds them."""
    spec = job["spec"]
    roles = spec.get("pytorchReplicaSpecs") or {"": spec}
    found: dict[str, Any] = {"labels": {key: job["metadata"]["labels"][key] for key in ("app", "release")}}
    found["gpus"] = job["metadata"]["annotations"]["requestGPUsOfJobOwner"]
    for role, part in roles.items():
        pod = part["template"]["spec"]
        (container,) = pod["containers"]
        labels = part["template"]["metadata"]["labels"]
        found[role] = {
            "replicas": part["replicas"],
            "name": container["name"],
            # For the recording the inner quotes were kept from the shell.
            "command": [word.replace('-np "4"', "-np 4") for word in container["command"]],
            "limits": container["resources"]["limits"],
            "mounts": {each["mountPath"] for each in container.get("volumeMounts", ())} - CODE,
            "claims": [
                each["persistentVolumeClaim"]["claimName"]
                for each in pod.get("volumes", ())
                if "persistentVolumeClaim" in each
            ],
            "host network": pod.get("hostNetwork", False),
            "topology": {key: labels[key] for key in labels if key.startswith("gpu-topology")},
        }
    return found


CODE = {"/root/code"}


@pytest.mark.parametrize("name", RECORDED_AS)
async def test_what_is_sent_matches_arena(run: CommandLine, cluster: ScriptedCluster, name: str) -> None:
    say_kinds(cluster, {"kubeflow.org/v1": ["pytorchjobs"], "kubeflow.org/v1alpha1": ["mpijobs"]})
    beside = ("/apis/apps/v1/namespaces/default/deployments", "/api/v1/namespaces/default/services")
    for path in (MPI_JOBS, "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs", *beside):
        cluster.say(path, Compute(lambda asked: Answer(json.loads(asked.body), 201)), method="POST")
    ended = await run(*words_of(name), "--dry-run=server", "-o", "json")
    assert ended.status == 0, ended.err
    recorded = json.loads((FIXTURES / "objects" / f"{RECORDED_AS[name]}.json").read_text())
    (asked,) = [
        each
        for each in cluster.requests
        if each.method == "POST" and each.path.endswith(("torchjobs", "mpijobs"))
    ]
    sent = json.loads(asked.body)
    assert (sent["kind"], sent["apiVersion"]) == (recorded["kind"], recorded["apiVersion"])
    assert essence_of(sent) == essence_of(recorded)
