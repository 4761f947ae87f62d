"""What others wrote differently but means the same is read as a field; what means something else is named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from k8s.job_spec import HostMount, JobSpec, Mount
from k8s.kinds import CREATABLE
from k8s.kinds.kubeflow.mpi_job import MPIJob
from tests.support.objects import Object

PYTORCH, MPI = CREATABLE[0], MPIJob()
SPEC = JobSpec(
    name="a",
    image="i",
    command=("x",),
    gpus=1,
    cpu="1",
    memory="1Gi",
    env={"LR": "1"},
    mounts=(Mount("c", "/c"),),
    host_mounts=(HostMount("/nfs", "/n"),),
    device_claim="big-gpu",
)


def pod_of(obj: Object) -> Any:
    return obj["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]


def asks(pod: Any, **requests: object) -> None:
    pod["containers"][0]["resources"]["requests"] = requests


def mounts(pod: Any, name: str) -> Any:
    return next(each for each in pod["containers"][0]["volumeMounts"] if each["mountPath"] == name)


@pytest.mark.parametrize(
    "change",
    [
        lambda pod: asks(pod, cpu="1000m", memory="1024Mi"),
        lambda pod: asks(pod, cpu=1),
        lambda pod: mounts(pod, "/n").update(readOnly=False),
        lambda pod: mounts(pod, "/c").update(readOnly=False),
    ],
    ids=["other units", "a number", "a folder that is written", "a claim that is written"],
)
def test_what_means_the_same_is_no_difference(change: Callable[[Any], None]) -> None:
    obj = PYTORCH.manifest(SPEC)
    change(pod_of(obj))
    assert PYTORCH.spec_from_manifest(obj) == (SPEC, ())


@pytest.mark.parametrize(
    ("change", "lost"),
    [
        (lambda pod: mounts(pod, "/c").update(name="nowhere"), {"mount /c", "volume claim-0"}),
        (
            lambda pod: pod["containers"][0]["env"].append({"name": "A", "value": "1", "other": 2}),
            {"variable A's other"},
        ),
        (
            lambda pod: pod["resourceClaims"].append({"name": "second"}),
            {"resourceClaims", "resources.claims"},
        ),
    ],
    ids=["a mount of nothing", "a variable with more", "two claims of devices"],
)
def test_what_means_something_else_is_named(change: Callable[[Any], None], lost: set[str]) -> None:
    obj = PYTORCH.manifest(SPEC)
    change(pod_of(obj))
    assert set(PYTORCH.spec_from_manifest(obj)[1]) == lost


def test_a_gang_of_mpi_is_known_by_its_pods_or_by_its_policy() -> None:
    spec = JobSpec(name="a", image="i", command=("x",), workers=2, gang=True)
    assert MPI.spec_from_manifest(MPI.manifest(spec))[0].gang
    by_policy, by_pods = MPI.manifest(spec), MPI.manifest(spec)
    for role in by_policy["spec"]["mpiReplicaSpecs"].values():
        labels = role["template"]["metadata"]["labels"]
        for key in [key for key in labels if key.startswith("pod-group")]:
            del labels[key]
    assert by_pods["spec"]["runPolicy"].pop("schedulingPolicy", None)
    assert MPI.spec_from_manifest(by_policy)[0].gang
    assert MPI.spec_from_manifest(by_pods)[0].gang
    assert not MPI.spec_from_manifest(MPI.manifest(replace(spec, gang=False)))[0].gang


def test_what_only_the_launcher_mounts_is_named() -> None:
    spec = JobSpec(name="a", image="i", command=("x",), mounts=(Mount("c", "/c"),), mounts_on_launcher=True)
    obj = MPI.manifest(spec)
    launcher = obj["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]
    launcher["containers"][0]["volumeMounts"][0]["mountPath"] = "/else"
    assert "the launcher's own mounts" in MPI.spec_from_manifest(obj)[1]
