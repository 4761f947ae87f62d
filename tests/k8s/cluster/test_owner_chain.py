"""Every kind with its children and pods, joined into one row with the expected instances."""

from __future__ import annotations

from k8s.snapshot import Job
from k8s.status import Status
from tests.k8s.kinds.operator_objects import SITUATIONS, jobs_in, pods_in
from tests.support.objects import join

# Replicas of the job in a file, with their pods.
INSTANCES = {
    "job-indexed": {"pod-6": "grid-6-abcde", "pod-7": "grid-7-fghij"},
    "jobset-coordinated": {
        "leader-0": "sweep-leader-0-0-aaaaa",
        "workers-0-0": "",
        "workers-0-1": "",
        "workers-1-0": "sweep-workers-1-0-bbbbb",
        "workers-1-1": "",
    },
    "mpijob-v1-running": {
        "launcher-0": "resnet-launcher",
        "worker-0": "resnet-worker-0",
        "worker-1": "resnet-worker-1",
    },
    "mpijob-v1alpha1-running": {
        "launcher-0": "vgg-launcher-4tq8n",
        "worker-0": "vgg-worker-0",
        "worker-1": "vgg-worker-1",
    },
    "mpijob-v2beta1-launcher-works": {"launcher-0": "pi-launcher-zz9sd", "worker-0": "pi-worker-0"},
    "mpijob-v2beta1-running": {
        "launcher-0": "bert-launcher-x7k2p",
        "worker-0": "bert-worker-0",
        "worker-1": "bert-worker-1",
    },
    "pytorchjob-running": {"master-0": "ddp-master-0", "worker-0": "ddp-worker-0"},
    "raycluster-autoscaled": {
        "head-0": "shared-head-abcde",
        "gpu-group-0": "shared-gpu-group-worker-fghij",
        "gpu-group-1": "",
        "gpu-group-2": "",
    },
    "rayjob-running": {
        "submitter-0": "tune-mm2xz",
        "head-0": "tune-7h2kf-head-9z4wd",
        "gpu-group-0": "tune-7h2kf-gpu-group-worker-zz7gn",
        "gpu-group-1": "tune-7h2kf-gpu-group-worker-4tksl",
        "gpu-group-2": "",
        "gpu-group-3": "",
        "cpu-group-0": "tune-7h2kf-cpu-group-worker-q8b5v",
    },
    "t9k-mpi-replica-form": {"launcher-0": "", "worker-0": "", "worker-1": "horovod-a1b2c-worker-1"},
    "t9k-mpi-worker-form": {
        "launcher-0": "mpi-example-launcher",
        "worker-0": "",
        "worker-1": "mpi-example-worker-1",
    },
    "t9k-pytorch-running": {"node-0": "mnist-5b373-node-0", "node-1": "mnist-5b373-node-1"},
    "tfjob-running": {
        "chief-0": "dist-mnist-chief-0",
        "ps-0": "dist-mnist-ps-0",
        "worker-0": "dist-mnist-worker-0",
        "worker-1": "dist-mnist-worker-1",
    },
    "trainjob-restarted": {
        "node-0": "llama-node-0-0-new11",
        "node-1": "llama-node-0-1-new22",
        "dataset-initializer-0": "llama-dataset-initializer-0-0-qqqqq",
    },
    "volcano-running": {"master-0": "vgg-master-0", "worker-0": "", "worker-1": "vgg-worker-1"},
}
# Where the chief is not the launcher.
CHIEFS = {
    "jobset-coordinated": "workers-1-0",
    "job-indexed": "pod-6",
    "pytorchjob-running": "master-0",
    "raycluster-autoscaled": "head-0",
    "rayjob-running": "submitter-0",
    "t9k-pytorch-running": "node-0",
    "tfjob-running": "chief-0",
    "trainjob-restarted": "node-0",
    "volcano-running": "master-0",
}
GPUS = {
    "job-indexed": (2, 2),
    "jobset-coordinated": (4, 1),
    "mpijob-v1-running": (4, 4),
    "mpijob-v1alpha1-running": (8, 8),
    "mpijob-v2beta1-launcher-works": (2, 2),
    "mpijob-v2beta1-running": (8, 8),
    "pytorchjob-running": (16, 16),
    "raycluster-autoscaled": (6, 2),
    "rayjob-running": (16, 8),
    "t9k-mpi-replica-form": (2, 1),
    "t9k-mpi-worker-form": (6, 3),
    "t9k-pytorch-running": (8, 8),
    "tfjob-running": (3, 3),
    "trainjob-restarted": (16, 16),
    "volcano-running": (3, 2),
}
"""Requested and allocated."""


def row_of(situation: str) -> Job:
    """Return the one row made of a file's objects."""
    _, jobs = join([], pods_in(situation), jobs_in(situation))
    assert [job.ref for job in jobs] == [jobs_in(situation)[0].ref]
    return jobs[0]


def test_every_situation_is_counted_by_hand() -> None:
    assert set(SITUATIONS) == set(INSTANCES) == set(GPUS)


def test_pods_and_children_are_shown_as_the_instances_of_what_the_user_made() -> None:
    for situation in SITUATIONS:
        row = row_of(situation)
        assert {each.name: each.pod for each in row.instances} == INSTANCES[situation]
        assert [each.name for each in row.instances if each.is_chief] == [CHIEFS.get(situation, "launcher-0")]


def test_gpus_are_counted_once_for_the_whole_chain() -> None:
    for situation in SITUATIONS:
        row = row_of(situation)
        assert (row.gpus_requested, row.gpus_allocated) == GPUS[situation]


def test_a_restarted_job_shows_its_new_pods_and_that_it_was_restarted() -> None:
    row = row_of("trainjob-restarted")
    assert (row.status, row.restarts) == (Status.RUNNING, 1)
    assert [each.pod_uid for each in row.instances[:2]] == ["pod-llama-0", "pod-llama-1"]


def test_pods_of_an_mpi_job_are_found_by_their_labels_when_its_launchers_job_may_not_be_read() -> None:
    _, jobs = join([], pods_in("mpijob-v2beta1-running"), jobs_in("mpijob-v2beta1-running")[:1])
    assert [each.pod for each in jobs[0].instances] == list(INSTANCES["mpijob-v2beta1-running"].values())
