"""Roots of pods: the topmost job, or another owner, and what proves it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from k8s.cluster.joiner import Joiner
from k8s.models import Meta, Pod, Reader, meta_of
from k8s.snapshot import Job
from k8s.status import Status
from tests.k8s.kinds.operator_objects import SITUATIONS, jobs_in, pods_in
from tests.support.objects import (
    GPU,
    Object,
    batch_job,
    join,
    join_again,
    listed,
    pod_of,
    pytorch_job,
    read_jobs,
)


def owned(pod: Object, *owners: Object, by: tuple[str, str, str] | None = None) -> Object:
    """Return a pod with another controller: kind, name and uid, or an object."""
    kind, name, uid = by or (owners[0]["kind"], owners[0]["metadata"]["name"], owners[0]["metadata"]["uid"])
    pod["metadata"]["ownerReferences"] = [{"kind": kind, "name": name, "uid": uid, "controller": True}]
    return pod


def replica_set(uid: str, *, above: str = "") -> Meta:
    found: Object = {"metadata": {"name": "web-1", "uid": uid}}
    return meta_of(owned(found, by=("Deployment", "web", above)) if above else found)


def free_pod(name: str, *, on: str = "n1", gpus: int = 2, phase: str = "Running") -> Object:
    pod = pod_of(batch_job("x"), name, on=on, gpus=gpus, phase=phase)
    pod["metadata"]["labels"] = {}
    del pod["metadata"]["ownerReferences"]
    return pod


def rows_of(pods: list[Object], jobs: list[Object], owners: dict[str, Meta] | None = None) -> dict[str, Job]:
    _, rows = join([], Reader[Pod](Pod).read_list(listed(*pods))[1], read_jobs(*jobs), owners or {})
    return {f"{row.ref.kind} {row.ref.name}": row for row in rows}


def test_child_jobs_have_no_rows_and_their_pods_belong_to_the_top_job() -> None:
    top = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "bert", "namespace": "default", "uid": "train"},
        "spec": {"trainer": {"numNodes": 1}},
    }
    template = {"spec": {"containers": [{"name": "node", "resources": {"limits": {GPU: 4}}}]}}
    middle = owned(
        {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {"name": "bert", "namespace": "default", "uid": "set"},
            "spec": {
                "failurePolicy": {"maxRestarts": 3},
                "replicatedJobs": [{"name": "node", "template": {"spec": {"template": template}}}],
            },
            "status": {"restarts": 2},
        },
        top,
    )
    low = owned(batch_job("bert-node-0", indexed=True), middle)
    pod = pod_of(low, "0", on="n1", gpus=4)
    pod["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"] = "node"
    rows = rows_of([pod], [top, middle, low])
    assert list(rows) == ["TrainJob bert"]
    row = rows["TrainJob bert"]
    assert (row.gpus_requested, row.gpus_allocated, row.restarts) == (4, 4, 2)
    assert [(each.name, each.pod) for each in row.instances] == [("node-0", "bert-node-0-0")]


def test_a_cycle_of_owners_is_followed_once() -> None:
    pod = owned(free_pod("web"), by=("ReplicaSet", "web-1", "one"))
    owners = {"one": replica_set("one", above="two"), "two": replica_set("two", above="one")}
    assert list(rows_of([pod], [], owners)) == ["Deployment web"]


def test_a_launcher_owned_by_a_batch_job_belongs_to_its_mpi_job() -> None:
    mpi = {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": "ring", "namespace": "default", "uid": "mpi"},
        "spec": {"mpiReplicaSpecs": {"Launcher": {"replicas": 1, "template": {}}}},
    }
    launcher = owned(batch_job("ring-launcher", gpus=0), mpi)
    pod = pod_of(launcher, "abcde", on="n1", gpus=0)
    pod["metadata"]["labels"] |= {
        "training.kubeflow.org/job-name": "ring",
        "training.kubeflow.org/operator-name": "mpi-operator",
        "training.kubeflow.org/job-role": "launcher",
    }
    for jobs in ([mpi, launcher], [mpi]):  # by the chain; and by labels where Jobs may not be read
        found = rows_of([pod], jobs)
        assert list(found) == ["MPIJob ring"]
        assert [(each.name, each.pod) for each in found["MPIJob ring"].instances] == [
            ("launcher-0", "ring-launcher-abcde")
        ]


def test_pods_without_a_job_are_listed_under_their_direct_and_then_topmost_owner() -> None:
    pods = [owned(free_pod(f"p{n}"), by=("ReplicaSet", "web-1", "set")) for n in range(2)]
    first = rows_of(pods, [])
    assert {name: row.gpus_allocated for name, row in first.items()} == {"ReplicaSet web-1": 4}
    then = rows_of(pods, [], {"set": replica_set("set", above="deployment")})
    row = then["Deployment web"]
    state = list(then), row.uid, row.gpus_requested, row.gpus_allocated
    assert state == (["Deployment web"], "deployment", 4, 4)
    assert [each.name for each in row.instances] == ["pod-0", "pod-1"]


def test_an_owner_found_later_moves_only_the_pods_below_it() -> None:
    pods = [owned(free_pod("p0"), by=("ReplicaSet", "web-1", "set")), free_pod("alone")]
    joiner, read = Joiner(), Reader[Pod](Pod).read_list(listed(*pods))[1]
    _, before = join_again(joiner, [], read, [])
    assert {row.ref.kind for row in before} == {"ReplicaSet", "Pod"}
    assert set(joiner.above) == {"set"}
    _, after = join_again(joiner, [], read, [], {"set": replica_set("set", above="deployment")})
    assert {row.ref.kind for row in after} == {"Deployment", "Pod"}
    assert set(joiner.above) == {"set", "deployment"}
    by_name = {row.ref.name: row for row in before}
    assert next(row for row in after if row.ref.name == "x-alone") is by_name["x-alone"]


def test_a_chain_of_unknown_owners_may_end_at_a_job() -> None:
    pod = owned(free_pod("p0"), by=("ReplicaSet", "web-1", "set"))
    rows = rows_of([pod], [pytorch_job("bert", uid="bert")], {"set": replica_set("set", above="bert")})
    assert {name: row.gpus_allocated for name, row in rows.items()} == {"PyTorchJob bert": 2}


def test_a_lone_pod_that_wants_gpus_has_a_row() -> None:
    waits = rows_of([free_pod("alone", on="", phase="Pending")], [])["Pod x-alone"]
    assert (waits.gpus_requested, waits.gpus_allocated, waits.status) == (2, 0, Status.PENDING)
    assert rows_of([free_pod("cpu", gpus=0), free_pod("cpu-2", gpus=0, phase="Succeeded")], []) == {}


def ended_pod(phase: str, code: int) -> Object:
    pod = free_pod("alone", phase=phase)
    state = {"terminated": {"exitCode": code, "reason": "Error", "finishedAt": "2026-11-21T12:00:00Z"}}
    pod["status"]["containerStatuses"] = [{"name": "main", "state": state}]
    return pod


def test_a_finished_lone_pod_is_shown_as_a_finished_job_without_gpus() -> None:
    [well] = rows_of([ended_pod("Succeeded", 0)], []).values()
    [ill] = rows_of([ended_pod("Failed", 3)], []).values()
    assert [row.status for row in (well, ill)] == [Status.SUCCEEDED, Status.FAILED]
    assert (well.reason, ill.reason) == ("", "pod-0 exit 3, 12:00:00")
    for row in (well, ill):
        assert (row.gpus_requested, row.gpus_allocated, row.gpus_waiting) == (2, 0, 0)
        assert row.finished == datetime(2026, 11, 21, 12, tzinfo=UTC)
        assert [each.pod for each in row.instances] == ["x-alone"], "whose log can be read"


def test_a_finished_pod_with_an_owner_has_no_row() -> None:
    done = owned(free_pod("p0", phase="Succeeded"), by=("ReplicaSet", "web-1", "set"))
    assert rows_of([done], []) == {}
    up = owned(free_pod("p1"), by=("ReplicaSet", "web-1", "set"))
    row = rows_of([done, up], [])["ReplicaSet web-1"]
    assert (row.status, [each.pod for each in row.instances]) == (Status.RUNNING, ["x-p1"])


def test_a_lone_pod_keeps_its_row_when_it_ends_and_loses_it_when_it_is_gone() -> None:
    joiner = Joiner()

    def row_of(*pods: Object) -> list[Status]:
        read = Reader[Pod](Pod).read_list(listed(*pods))[1]
        return [row.status for row in join_again(joiner, [], read, [])[1]]

    assert row_of(free_pod("alone")) == [Status.RUNNING]
    assert row_of(ended_pod("Succeeded", 0)) == [Status.SUCCEEDED]
    assert row_of() == []


def test_a_static_pod_has_a_row_of_its_own() -> None:
    rows = rows_of([owned(free_pod("static"), by=("Node", "n1", "node"))], [])
    assert list(rows) == ["Pod x-static"]


def test_pods_without_an_index_fill_the_role_places_and_surplus_pods_are_shown() -> None:
    mpi = {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": "ring", "namespace": "default", "uid": "mpi"},
        "spec": {"mpiReplicaSpecs": {"Launcher": {"replicas": 1}, "Worker": {"replicas": 1}}},
    }
    pods = [owned(free_pod(name), mpi) for name in ("a", "b", "c")]
    row = rows_of(pods, [mpi])["MPIJob ring"]
    assert [each.name for each in row.instances] == ["launcher-0", "worker-0", "pod-0"]
    assert {each.pod for each in row.instances} == {"x-a", "x-b", "x-c"}
    assert row.gpus_allocated == 6


@pytest.mark.parametrize(
    ("made", "is_of_it"),
    [("2026-11-20T10:00:00Z", True), ("2026-11-20T10:00:01Z", True), ("2026-11-20T09:59:59Z", False)],
    ids=["in the same second", "a second later", "a second before"],
)
def test_a_pod_matched_by_label_alone_must_not_be_older_than_its_job(made: str, is_of_it: bool) -> None:
    job = pytorch_job("bert", creationTimestamp="2026-11-20T10:00:00Z")
    pod = pod_of(job, "master-0", on="n1")
    pod["metadata"].pop("ownerReferences", None)
    pod["metadata"]["creationTimestamp"] = made
    left_over = {} if is_of_it else {"Pod bert-master-0": 8}
    assert {name: row.gpus_allocated for name, row in rows_of([pod], [job]).items()} == {
        "PyTorchJob bert": 8 if is_of_it else 0,
        **left_over,
    }


# Of the job in a file: its chief, its requested and allocated GPUs, and its replicas with their pods.
CHAINS = {
    "job-indexed": ("pod-6", (2, 2), "pod-6=grid-6-abcde pod-7=grid-7-fghij"),
    "jobset-coordinated": ("workers-1-0", (4, 1),
        "leader-0=sweep-leader-0-0-aaaaa workers-0-0= workers-0-1= workers-1-0=sweep-workers-1-0-bbbbb "
        "workers-1-1="),
    "mpijob-v1-running": ("launcher-0", (4, 4),
        "launcher-0=resnet-launcher worker-0=resnet-worker-0 worker-1=resnet-worker-1"),
    "mpijob-v1alpha1-running": ("launcher-0", (8, 8),
        "launcher-0=vgg-launcher-4tq8n worker-0=vgg-worker-0 worker-1=vgg-worker-1"),
    "mpijob-v2beta1-launcher-works": ("launcher-0", (2, 2),
        "launcher-0=pi-launcher-zz9sd worker-0=pi-worker-0"),
    "mpijob-v2beta1-running": ("launcher-0", (8, 8),
        "launcher-0=bert-launcher-x7k2p worker-0=bert-worker-0 worker-1=bert-worker-1"),
    "pytorchjob-running": ("master-0", (16, 16), "master-0=ddp-master-0 worker-0=ddp-worker-0"),
    "raycluster-autoscaled": ("head-0", (6, 2),
        "head-0=shared-head-abcde gpu-group-0=shared-gpu-group-worker-fghij gpu-group-1= gpu-group-2="),
    "rayjob-running": ("submitter-0", (16, 8),
        "submitter-0=tune-mm2xz head-0=tune-7h2kf-head-9z4wd "
        "gpu-group-0=tune-7h2kf-gpu-group-worker-zz7gn gpu-group-1=tune-7h2kf-gpu-group-worker-4tksl "
        "gpu-group-2= gpu-group-3= cpu-group-0=tune-7h2kf-cpu-group-worker-q8b5v"),
    "t9k-mpi-replica-form": ("launcher-0", (2, 1),
        "launcher-0= worker-0= worker-1=horovod-a1b2c-worker-1"),
    "t9k-mpi-worker-form": ("launcher-0", (6, 3),
        "launcher-0=mpi-example-launcher worker-0= worker-1=mpi-example-worker-1"),
    "t9k-pytorch-running": ("node-0", (8, 8), "node-0=mnist-5b373-node-0 node-1=mnist-5b373-node-1"),
    "tfjob-running": ("chief-0", (3, 3),
        "chief-0=dist-mnist-chief-0 ps-0=dist-mnist-ps-0 worker-0=dist-mnist-worker-0 "
        "worker-1=dist-mnist-worker-1"),
    "trainjob-restarted": ("node-0", (16, 16),
        "node-0=llama-node-0-0-new11 node-1=llama-node-0-1-new22 "
        "dataset-initializer-0=llama-dataset-initializer-0-0-qqqqq"),
    "volcano-running": ("master-0", (3, 2), "master-0=vgg-master-0 worker-0= worker-1=vgg-worker-1"),
}  # fmt: skip


def row_of(situation: str) -> Job:
    """Return the one row made of a file's objects."""
    _, jobs = join([], pods_in(situation), jobs_in(situation))
    assert [job.ref for job in jobs] == [jobs_in(situation)[0].ref]
    return jobs[0]


def instances_of(situation: str) -> dict[str, str]:
    """Return the expected pods of a file's job, by instance."""
    named = (each.partition("=") for each in CHAINS[situation][2].split())
    return {name: pod for name, _, pod in named}


def test_pods_of_child_jobs_are_instances_of_the_top_job_and_their_gpus_count_once() -> None:
    assert set(SITUATIONS) == set(CHAINS)
    for situation, (chief, gpus, _) in CHAINS.items():
        row = row_of(situation)
        assert {each.name: each.pod for each in row.instances} == instances_of(situation)
        assert [each.name for each in row.instances if each.is_chief] == [chief]
        assert (row.gpus_requested, row.gpus_allocated) == gpus


def test_a_restarted_job_shows_its_new_pods_and_that_it_was_restarted() -> None:
    row = row_of("trainjob-restarted")
    assert (row.status, row.restarts) == (Status.RUNNING, 1)
    assert [each.pod_uid for each in row.instances[:2]] == ["pod-llama-0", "pod-llama-1"]


def test_pods_of_an_mpi_job_are_found_by_their_labels_when_its_launchers_job_may_not_be_read() -> None:
    _, jobs = join([], pods_in("mpijob-v2beta1-running"), jobs_in("mpijob-v2beta1-running")[:1])
    assert [each.pod for each in jobs[0].instances] == list(instances_of("mpijob-v2beta1-running").values())
