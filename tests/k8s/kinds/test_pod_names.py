from __future__ import annotations

import re

import pytest

from k8s.kinds import pod_patterns


@pytest.mark.parametrize(
    ("kind", "name", "pod", "role", "index"),
    [
        ("PyTorchJob", "ddp", "ddp-master-0", "master", "0"),
        ("TFJob", "a.b", "a.b-ps-12", "ps", "12"),
        ("MPIJob", "resnet", "resnet-launcher", "launcher", None),
        ("MPIJob", "bert", "bert-launcher-x7k2p", "launcher", None),
        ("mpi", "bert", "bert-worker-11", "worker", "11"),
        ("TrainJob", "llama", "llama-node-0-1-x7k2p", "node", "1"),
        ("JobSet", "sweep", "sweep-workers-1-0-bbbbb", "workers", "0"),
        ("PyTorchTrainingJob", "mnist-5b373", "mnist-5b373-node-1", "node", "1"),
        ("Job", "grid", "grid-6-x7k2p", None, "6"),
        ("Job", "grid", "grid-x7k2p", None, None),
        ("RayJob", "tune", "tune-7h2kf-head-9z4wd", "head", None),
        ("RayJob", "tune", "tune-7h2kf", None, None),
        ("RayCluster", "shared", "shared-gpu-group-worker-x7k2p", "gpu-group-worker", None),
        ("Deployment", "web", "web-7d9f8c6b5-x7k2p", None, None),
        ("", "bert", "bert-worker-0", "worker", "0"),
        *(
            (kind, "bert", pod, "", None)
            for kind in ("", "Job", "PyTorchJob", "MPIJob")
            for pod in ("bert-large", "bert-large-worker-0", "bertha-worker-0", "a-bert-worker-0")
        ),
        ("Job", "a.b", "axb-x7k2p", "", None),
        ("", 'a"} or {"b', "x", "", None),
    ],
)
def test_pods_are_known_by_their_names(
    kind: str, name: str, pod: str, role: str | None, index: str | None
) -> None:
    found = [match for each in pod_patterns(name, kind) if (match := re.fullmatch(each, pod))]
    assert bool(found) == (role != "")
    for match in found[:1]:
        assert (match.groupdict().get("role"), match.groupdict().get("index")) == (role, index)
