from __future__ import annotations

import re

import pytest

from k8s.kinds import pod_pattern


@pytest.mark.parametrize(
    ("kind", "name", "pods"),
    [
        ("PyTorchJob", "ddp", "ddp-master-0 ddp-worker-12"),
        ("TFJob", "a.b", "a.b-ps-12 a.b-chief-0"),
        ("MPIJob", "bert", "bert-launcher bert-launcher-x7k2p bert-worker-11"),
        ("TrainJob", "llama", "llama-node-0-1-x7k2p llama-dataset-initializer-0-0-x7k2p"),
        ("JobSet", "sweep", "sweep-workers-1-0-bbbbb"),
        ("PyTorchTrainingJob", "mnist-5b373", "mnist-5b373-node-1"),
        ("Job", "grid", "grid-6-x7k2p grid-x7k2p grid-task-0"),
        ("RayJob", "tune", "tune-7h2kf-head-9z4wd tune-7h2kf tune-7h2kf-gpu-group-worker-4tksl"),
        ("RayCluster", "shared", "shared-gpu-group-worker-x7k2p"),
        ("Deployment", "web", "web-7d9f8c6b5-x7k2p"),
        ("pytorch", "bert", "bert-worker-0"),
        ("", "bert", "bert-worker-0 bert-3 bert-launcher"),
    ],
)
def test_pods_of_a_job_are_known_by_their_names(kind: str, name: str, pods: str) -> None:
    assert all(re.fullmatch(pod_pattern(name, kind), pod) for pod in pods.split())


@pytest.mark.parametrize("kind", ["", "Job", "PyTorchJob", "MPIJob", "TrainJob"])
def test_pods_of_jobs_with_longer_names_are_others(kind: str) -> None:
    pattern = pod_pattern("a.bert", kind)
    others = (
        "a.bert-large",
        "a.bert-large-worker-0",
        "a.bertha-worker-0",
        "b-a.bert-worker-0",
        "axbert-worker-0",
    )
    assert not any(re.fullmatch(pattern, pod) for pod in others)
    assert pod_pattern('a"} or {"b', kind) == ""
