"""The jobs of Arena's and T9k's own guides, beside what Arena made of them on a real cluster.

What differs does so on purpose: each difference stands in a table with its reason.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import yaml

from k8s.kinds import CREATABLE, CreatableKind
from k8s.kinds.job_spec import JobSpec, Mount
from tests import FIXTURES

PYTORCH, T9K, ARENA_MPI = (
    next(kind for kind in CREATABLE if kind.title == title)
    for title in ("PyTorchJob", "PyTorchTrainingJob", "MPIJob v1alpha1")
)
GIT = {"sync_mode": "git", "sync_source": "https://example.invalid/mnist-pytorch.git"}
IMAGE = "docker.io/library/busybox:latest"
DIST = JobSpec(
    name="pytorch-dist",
    image=IMAGE,
    pull_policy="Never",
    gpus=1,
    workers=3,
    working_dir="/root",
    mounts=(Mount("training-data", "/mnist_data"),),
    tensorboard=True,
    log_dir="/mnist_data/pytorch_data/logs",
    command=(
        *("sh", "-c"),
        "python /root/code/mnist-pytorch/mnist.py --epochs 10 --backend nccl "
        "--dir /mnist_data/pytorch_data/logs --data /mnist_data/pytorch_data/",
    ),
    user="admin",
    **GIT,  # type: ignore[arg-type]
)
GLOO = replace(
    DIST,
    name="pytorch-dist-git",
    workers=2,
    mounts=(),
    tensorboard=False,
    log_dir="",
    command=("sh", "-c", "python /root/code/mnist-pytorch/mnist.py --backend gloo"),
)
MPIRUN = (
    'mpirun --allow-run-as-root -np "4" -bind-to none -map-by slot -x NCCL_DEBUG=INFO '
    "-x NCCL_SOCKET_IFNAME=eth0 -x LD_LIBRARY_PATH -x PATH --mca pml ob1 --mca btl_tcp_if_include eth0 "
    "--mca oob_tcp_if_include eth0 --mca orte_keep_fqdn_hostnames t --mca btl ^openib "
    "python /examples/pytorch_synthetic_benchmark.py --model={} --batch-size=64"
)
VGG16 = JobSpec(
    name="pytorch-4-vgg16",
    image=IMAGE,
    pull_policy="Always",
    gpus=1,
    workers=4,
    working_dir="/root",
    command=("sh", "-c", MPIRUN.format("vgg16")),
    user="admin",
)
VGG16_TOPOLOGY = replace(VGG16, name="pytorch-topo-4-vgg16", gpu_topology=True)
TUTORIAL = JobSpec(
    name="mnist",
    image="t9kpublic/pytorch-1.13.0:sdk-0.5.2",
    gpus=4,
    cpu="4-8",
    memory="8Gi-16Gi",
    processes=4,
    torchrun=True,
    max_restarts=3,
    rdzv_backend="c10d",
    restart_policy="ExitCode",
    run_as_user=1000,
    working_dir="/t9k/mnt",
    mounts=(Mount("mnist", "/t9k/mnt"),),
    log_dir="/t9k/mnt/log",
    tensorboard=True,
    tensorboard_image="tensorflow/tensorflow:2.14.0",
    command=(
        *("torch_mnist_trainingjob.py", "--log_dir", "log", "--save_path", "./model_state_dict.pt"),
        *("--backend", "nccl"),
    ),
)

OF_OURS = {
    "metadata.annotations.gpuconsole.dev/user": "whose it is, to us",
    "metadata.annotations.gpuconsole.dev/log-dir": "where the curves are",
    "metadata.annotations.gpuconsole.dev/tensorboard": "that it has one, for a clone",
    "env.PYTHONUNBUFFERED": "lines come when they are printed",
    "env.PET_TEE": "torchrun's ranks are told apart in the log",
    "env.TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "the same",
    "env.OMPI_MCA_orte_tag_output": "mpirun's ranks are told apart in the log",
    "spec.nprocPerNode": "Arena sets a variable that the operator overrides",
}
OF_ARENA = {
    "env.gpus": "its chart's own; no program reads it",
    "env.workers": "its chart's own; the operator says WORLD_SIZE",
    "template.metadata.name": "pods get names of their own",
    "spec.runPolicy.suspend": "the server's default",
}
OTHERWISE = {
    "spec.runPolicy.cleanPodPolicy": "all logs are kept",
    "spec.cleanPodPolicy": "the launcher's log is kept: it has what all ranks say",
    "Worker.restartPolicy": "without retries a pod that failed is not started again",
}
OF_TUTORIAL = {
    **OF_OURS,
    **OTHERWISE,
    "spec.tensorboardSpec.resources.limits.cpu": "the operator's default",
    "spec.tensorboardSpec.resources.limits.memory": "the same",
    "spec.tensorboardSpec.logDir.pvc[0].subPath[0]": "./log is log",
    "containers[0].name": "the container is called as T9k's manual calls it",
    "/dev/shm.emptyDir.sizeLimit": "no job may fill a node's memory",
    "spec.runPolicy.backoffLimit": "said, where the operator would take 3",
    "spec.runPolicy.cleanUpPolicy": "said: logs are kept",
    "metadata.namespace": "that of the form",
}


def flat(value: Any, path: str = "") -> dict[str, str]:
    """Return each value of a manifest by its path; lists of what has a name by that, mounts by their path."""
    if isinstance(value, Mapping):
        pairs = (flat(inner, f"{path}.{name}").items() for name, inner in value.items())
        return dict(itertools.chain.from_iterable(pairs))
    if isinstance(value, list):
        found: dict[str, str] = {}
        for index, inner in enumerate(value):
            is_variable = isinstance(inner, Mapping) and set(inner) == {"name", "value"}
            own = {f"{path}.{inner['name']}": inner["value"]} if is_variable else {}
            found |= own or flat(inner, f"{path}[{index}]")
        return found
    return {path: str(value)}


def content(manifest: Mapping[str, Any]) -> dict[str, str]:
    """Return the contents of a manifest, volumes under their mount paths, without the fetching of code."""
    found: dict[str, Any] = json.loads(json.dumps(manifest))
    for pod in pod_specs(found):
        volumes = {each.pop("name"): each for each in pod.pop("volumes", ())}
        pod.pop("initContainers", None)
        for container in pod["containers"]:
            mounts = {mount.pop("mountPath"): mount for mount in container.pop("volumeMounts", ())}
            mounts.pop("/root/code", None)
            found_at = {path: {**volumes[each.pop("name")], **each} for path, each in mounts.items()}
            container["mounts"] = found_at
    return flat(found)


def pod_specs(value: Any) -> list[dict[str, Any]]:
    """Return every pod's spec within a manifest."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    found = [spec for each in inner for spec in pod_specs(each)]
    return [*found, value] if isinstance(value, dict) and "containers" in value else found


def differing(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> set[str]:
    """Return the paths at which two manifests say something else."""
    one, other = content(ours), content(theirs)
    return {path for path in {*one, *other} if one.get(path) != other.get(path)}


def unexplained(paths: set[str], reasons: Mapping[str, str]) -> set[str]:
    """Return the paths that end in none of those with a reason."""
    return {path for path in paths if not any(path.endswith(f".{reason}") for reason in reasons)}


def of_arena(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FIXTURES / "arena" / f"{name}.json").read_bytes())
    return found


@pytest.mark.parametrize(
    ("kind", "spec", "fixture"),
    [
        (PYTORCH, DIST, "pytorch-dist.pytorchjob"),
        (PYTORCH, GLOO, "pytorch-dist-git.pytorchjob"),
        (ARENA_MPI, VGG16, "pytorch-4-vgg16.mpijob"),
        (ARENA_MPI, VGG16_TOPOLOGY, "pytorch-topo-4-vgg16.mpijob"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_arenas_guides_give_arenas_manifests(kind: CreatableKind, spec: JobSpec, fixture: str) -> None:
    theirs = of_arena(fixture)
    paths = differing(kind.manifest(spec), theirs)
    assert unexplained(paths, {**OF_OURS, **OF_ARENA, **OTHERWISE}) == set()
    assert any(path.endswith("leanPodPolicy") for path in paths)


@pytest.mark.parametrize("is_topology", [False, True], ids=["plain", "topology"])
def test_the_resnet50_guide_gives_the_vgg16_manifest_with_other_names(is_topology: bool) -> None:
    vgg16 = VGG16_TOPOLOGY if is_topology else VGG16
    name, command = vgg16.name.replace("vgg16", "resnet50"), ("sh", "-c", MPIRUN.format("resnet50"))
    spec = replace(vgg16, name=name, command=command)
    theirs = json.dumps(of_arena(f"{vgg16.name}.mpijob")).replace("vgg16", "resnet50")
    paths = differing(ARENA_MPI.manifest(spec), json.loads(theirs))
    assert unexplained(paths, {**OF_OURS, **OF_ARENA, **OTHERWISE}) == set()


def test_a_t9k_tutorial_job_matches_its_file_except_for_known_differences() -> None:
    theirs = yaml.safe_load((FIXTURES / "t9k" / "job.yaml").read_text())
    paths = differing(T9K.manifest(TUTORIAL), theirs)
    assert unexplained(paths, OF_TUTORIAL) == set()


def test_a_manifest_has_the_labels_and_annotations_that_arena_uses() -> None:
    """Source: kubeflow/arena v0.15.5, `pkg/training/trainer_pytorch.go`: `app` and `release`."""
    manifest = PYTORCH.manifest(DIST)
    master, worker = (
        manifest["spec"]["pytorchReplicaSpecs"][role]["template"]["metadata"] for role in ("Master", "Worker")
    )
    for meta in (manifest["metadata"], master, worker):
        assert (meta["labels"]["app"], meta["labels"]["release"]) == ("pytorchjob", "pytorch-dist")
        assert meta["annotations"]["requestGPUsOfJobOwner"] == "3"
        assert meta["annotations"]["arena.kubeflow.org/username"] == "admin"
    assert master["labels"]["master-pod-name"] == "pytorch-dist-master-0"
    assert "master-pod-name" not in worker["labels"]
