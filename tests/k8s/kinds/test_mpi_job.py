"""MPIJobs of the mpi-operator, the training-operator and Arena: a launcher, and workers that wait for it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from k8s.kinds.job_spec import JobSpec, Mount
from k8s.kinds.kubeflow.mpi_job import MPIJob
from k8s.kinds.kubeflow.mpi_job_v1 import MPIJobV1
from k8s.kinds.kubeflow.mpi_job_v1alpha1 import MPIJobV1Alpha1
from tests import FIXTURES
from tests.k8s.kinds.operator_objects import a_pod, jobs_in, objects
from tests.support.objects import Object, join

SPEC = JobSpec(
    name="bench",
    image="i:1",
    command=("mpirun", "python", "x.py"),
    workers=4,
    gpus=2,
    cpu="8",
    mounts=(Mount("workspace", "/workspace"),),
)
both = pytest.mark.parametrize("kind", [MPIJob(), MPIJobV1()], ids=["v2beta1", "v1"])


def roles_of(manifest: Object) -> tuple[Object, Object]:
    roles = manifest["spec"]["mpiReplicaSpecs"]
    launcher, worker = (roles[role]["template"]["spec"]["containers"][0] for role in ("Launcher", "Worker"))
    return launcher, worker


@both
def test_the_command_is_the_launchers_and_the_devices_are_the_workers(kind: MPIJob | MPIJobV1) -> None:
    launcher, worker = roles_of(kind.manifest(SPEC))
    assert launcher["command"] == ["mpirun", "python", "x.py"]
    assert "resources" not in launcher
    assert "command" not in worker  # the operator starts sshd, or a sleep
    assert worker["resources"]["limits"] == {"nvidia.com/gpu": "2", "cpu": "8"}
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in launcher["env"]
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} not in worker["env"]


@both
def test_launcher_log_lines_are_tagged_with_their_rank(kind: MPIJob | MPIJobV1) -> None:
    launcher, worker = roles_of(kind.manifest(SPEC))
    tagged = {"name": "OMPI_MCA_orte_tag_output", "value": "1"}
    assert tagged in launcher["env"] and tagged not in worker["env"]
    launcher, _ = roles_of(kind.manifest(replace(SPEC, env={"OMPI_MCA_orte_tag_output": "0"})))
    assert tagged not in launcher["env"]


@both
def test_a_worker_has_one_slot_per_gpu_unless_slots_are_set(kind: MPIJob | MPIJobV1) -> None:
    assert kind.manifest(SPEC)["spec"]["slotsPerWorker"] == 2
    assert kind.manifest(replace(SPEC, gpus=0))["spec"]["slotsPerWorker"] == 1
    assert kind.manifest(replace(SPEC, slots=8))["spec"]["slotsPerWorker"] == 8


@both
def test_the_launcher_mounts_claims_only_if_requested(kind: MPIJob | MPIJobV1) -> None:
    launcher, worker = roles_of(kind.manifest(SPEC))
    assert [each["mountPath"] for each in launcher["volumeMounts"]] == ["/dev/shm"]
    assert [each["mountPath"] for each in worker["volumeMounts"]] == ["/workspace", "/dev/shm"]
    launcher, _ = roles_of(kind.manifest(replace(SPEC, mounts_on_launcher=True)))
    assert [each["mountPath"] for each in launcher["volumeMounts"]] == ["/workspace", "/dev/shm"]


@both
@pytest.mark.parametrize(("chosen", "made"), [("None", "Running"), ("Running", "Running"), ("All", "All")])
def test_workers_never_outlive_the_job_and_the_launchers_log_does(
    kind: MPIJob | MPIJobV1, chosen: str, made: str
) -> None:
    manifest = kind.manifest(replace(SPEC, clean_pods=chosen))
    assert manifest["spec"]["runPolicy"]["cleanPodPolicy"] == made


@both
def test_in_debug_mode_the_launcher_sleeps_and_keeps_its_command(kind: MPIJob | MPIJobV1) -> None:
    manifest = kind.manifest(replace(SPEC, debug=True))
    launcher, worker = roles_of(manifest)
    assert launcher["command"][0] == "sh" and launcher["command"][-3:] == ["mpirun", "python", "x.py"]
    assert "command" not in worker


def test_only_v2beta1_supports_a_launcher_creation_policy() -> None:
    late = replace(SPEC, launcher_policy="WaitForWorkersReady")
    manifest = MPIJob().manifest(late)
    assert manifest["spec"]["launcherCreationPolicy"] == "WaitForWorkersReady"
    assert "launcher_policy" in MPIJobV1().unsupported(late)


@pytest.mark.parametrize(
    ("ended", "launcher_works", "ranks"),
    [
        ("Succeeded", False, [(), (0, 1), (2, 3), (4, 5), (6, 7)]),
        ("Succeeded", True, [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)]),
        ("Failed", False, [()] * 5),
        ("Running", False, [()] * 5),
    ],
)
@both
def test_ranks_of_removed_workers_follow_the_slots_of_a_succeeded_job(
    kind: MPIJob | MPIJobV1, ended: str, launcher_works: bool, ranks: list[tuple[int, ...]]
) -> None:
    obj = kind.manifest(replace(SPEC, slots=2))
    obj["spec"]["runLauncherAsWorker"] = launcher_works
    obj["metadata"] |= {"uid": "u", "namespace": "default"}
    obj["status"] = {"conditions": [{"type": ended, "status": "True"}]}
    (job,) = join([], [], [kind.parse(obj)])[1]
    assert [each.ranks for each in job.instances] == ranks
    assert {each.ranks_proof for each in job.instances if each.ranks} <= {"assumed"}


@pytest.mark.parametrize("conditions", [None, "x", ["x"], [{"type": 1}]])
def test_malformed_conditions_give_no_ranks(conditions: object) -> None:
    obj = MPIJob().manifest(SPEC) | {"status": {"conditions": conditions}}
    assert not any(each.ranks for each in MPIJob().replicas(obj))


V1ALPHA1 = MPIJobV1Alpha1()
ONE_TEMPLATE = JobSpec(name="bench", image="i:1", command=("mpirun", "x"), workers=4, gpus=1)


def test_launcher_and_workers_share_a_template_but_the_launcher_requests_no_resources() -> None:
    body = V1ALPHA1.manifest(ONE_TEMPLATE)["spec"]
    assert (body["replicas"], body["launcherResources"]) == (4, {})
    assert body["template"]["spec"]["containers"][0]["command"] == ["mpirun", "x"]
    launcher, *workers = V1ALPHA1.replicas(V1ALPHA1.manifest(ONE_TEMPLATE))
    assert launcher.template["spec"]["containers"][0]["resources"] == {}
    assert len(workers) == 4


def test_gpu_topology_is_requested_with_the_labels_and_resources_of_arena() -> None:
    template = V1ALPHA1.manifest(replace(ONE_TEMPLATE, gpu_topology=True))["spec"]["template"]
    assert template["metadata"]["labels"]["gpu-topology"] == "bench"
    assert template["metadata"]["labels"]["gpu-topology-replica"] == "4"
    pod = template["spec"]
    assert (pod["hostNetwork"], pod["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    assert pod["containers"][0]["resources"]["limits"] == {"aliyun.com/gpu": "1"}
    assert "volumes" not in pod


def test_mounts_on_launcher_is_written_to_the_spec() -> None:
    spec = replace(ONE_TEMPLATE, mounts=(Mount("c", "/c"),), mounts_on_launcher=True)
    assert V1ALPHA1.manifest(spec)["spec"]["mountsOnLauncher"] is True
    assert V1ALPHA1.manifest(ONE_TEMPLATE)["spec"]["mountsOnLauncher"] is False


NEW, MIDDLE, ARENA = MPIJob(), MPIJobV1(), MPIJobV1Alpha1()


def test_queue_priority_and_retries_are_read_from_the_run_policy() -> None:
    job = jobs_in("mpijob-v2beta1-running")[0]
    assert (job.queue, job.priority, job.restarts_allowed, job.is_suspended) == ("research", "high", 2, False)
    assert (job.outcome, job.min_instances, job.has_status) == (None, None, True)
    assert job.started is not None and job.finished is None


def test_mpi_replicas_have_no_ranks_of_their_own() -> None:
    for situation in ("mpijob-v2beta1-running", "mpijob-v1-running", "mpijob-v1alpha1-running"):
        for replica in jobs_in(situation)[0].replicas:
            assert (replica.ranks, replica.ranks_proof) == ((), "none")


def test_an_mpi_job_with_only_a_launcher_has_one_replica() -> None:
    obj = objects("mpijob-v2beta1-launcher-works")[0]
    del obj["spec"]["mpiReplicaSpecs"]["Worker"]
    assert [replica.instance for replica in NEW.replicas(obj)] == ["launcher-0"]
    assert NEW.replicas({"metadata": {"name": "x"}}) == ()


def test_a_worker_index_is_read_from_its_label_if_its_name_has_none() -> None:
    labels = {
        "training.kubeflow.org/operator-name": "mpi-operator",
        "training.kubeflow.org/job-name": "bert",
        "training.kubeflow.org/job-role": "worker",
        "training.kubeflow.org/replica-index": "3",
    }
    assert NEW.instance_of(a_pod("renamed", labels)) == ("worker", 3)
    assert NEW.instance_of(a_pod("renamed", {**labels, "training.kubeflow.org/replica-index": "x"})) is None


@pytest.mark.parametrize(
    ("owner", "is_new"),
    [
        ({"kind": "MPIJob", "apiVersion": "kubeflow.org/v1", "name": "bert"}, False),
        ({"kind": "MPIJob", "apiVersion": "kubeflow.org/v2beta1", "name": "bert"}, True),
        ({"kind": "Job", "apiVersion": "batch/v1", "name": "bert-launcher"}, True),
    ],
)
def test_pods_of_older_mpi_operators_are_found_by_owner(owner: dict[str, str], is_new: bool) -> None:
    labels = {"group-name": "kubeflow.org", "mpi-job-name": "bert", "mpi-job-role": "worker"}
    pod = a_pod("bert-worker-2", labels, **owner)
    assert (NEW.job_of(pod), MIDDLE.job_of(pod)) == (("bert", "") if is_new else ("", "bert"))
    assert (NEW if is_new else MIDDLE).instance_of(pod) == ("worker", 2)


@pytest.mark.parametrize("name", ["arena-mpi", "arena-mpi-topology"])
def test_requested_gpus_of_an_mpi_job_match_the_arena_annotation(name: str) -> None:
    obj = json.loads((FIXTURES / "objects" / f"{name}.json").read_bytes())
    job = ARENA.parse(obj)
    _, rows = join([], [], [job])
    assert rows[0].gpus_requested == int(obj["metadata"]["annotations"]["requestGPUsOfJobOwner"]) == 4
    assert (job.user, job.restarts_allowed, len(job.replicas)) == ("admin", 0, 5)
    assert not job.has_status


@pytest.mark.parametrize(
    ("asked", "workers", "gpus"),
    [
        ({"gpus": 16}, 2, 16),
        ({"gpus": 4}, 1, 4),
        ({"gpus": 8, "gpusPerNode": 2}, 4, 8),
        ({"processingUnits": 4, "processingUnitsPerNode": 2}, 2, 4),
        ({"processingUnits": 4, "processingUnitsPerNode": 2, "processingResourceType": "cpu"}, 2, 0),
        ({}, 1, 4),
        ({"gpus": 0, "replicas": 3}, 3, 12),
    ],
)
def test_total_gpus_are_divided_as_the_operator_does(asked: dict[str, Any], workers: int, gpus: int) -> None:
    obj = objects("mpijob-v1alpha1-running")[0]
    del obj["spec"]["replicas"]
    obj["spec"] |= asked
    _, rows = join([], [], [ARENA.parse(obj)])
    assert (len(rows[0].instances) - 1, rows[0].gpus_requested) == (workers, gpus)


def test_the_launcher_requests_its_own_resources_instead_of_those_of_a_worker() -> None:
    obj = objects("mpijob-v1alpha1-running")[0]
    obj["spec"]["launcherResources"] = {"limits": {"nvidia.com/gpu": 1}}
    _, rows = join([], [], [ARENA.parse(obj)])
    assert [each.gpus for each in rows[0].instances] == [1, 4, 4]


KIND = MPIJobV1()
PLAIN = JobSpec(name="bench", image="i:1", command=("mpirun", "x"), workers=2)


def test_a_v1_manifest_has_no_v2beta1_fields() -> None:
    body = KIND.manifest(PLAIN)["spec"]
    assert set(body) == {"slotsPerWorker", "runPolicy", "mpiReplicaSpecs"}


def test_a_v1_mpi_job_has_no_kueue_queue_label() -> None:
    manifest = KIND.manifest(JobSpec(name="a", image="i", command=("x",), queue="team-a"))
    assert "kueue.x-k8s.io/queue-name" not in manifest["metadata"]["labels"]
    assert "v2beta1" in KIND.lacks["queue"]
