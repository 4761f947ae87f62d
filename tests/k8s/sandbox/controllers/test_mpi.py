"""Plans for MPIJobs of all versions: launcher, workers and hostfile."""

from __future__ import annotations

import json
from typing import Any

import pytest

from k8s.kinds import MPIKind
from k8s.kinds.kubeflow.mpi_job import MPIJob
from k8s.kinds.kubeflow.mpi_job_v1 import MPIJobV1
from k8s.kinds.kubeflow.mpi_job_v1alpha1 import MPIJobV1Alpha1
from k8s.models.resources import CONFIG_MAPS, Resource
from k8s.sandbox.controller_runtime import PROCESSES
from k8s.sandbox.controllers import kubeflow
from k8s.sandbox.controllers.reconcile import GANG, RESTARTS, ObservedJob, Plan
from tests import FIXTURES
from tests.k8s.sandbox.live.running import Manifest, mpi_job

NEW, ARENA = MPIJob(), MPIJobV1Alpha1()
UID = "11111111-2222-3333-4444-555555555555"


def stored(job: Manifest, **status: Any) -> Manifest:
    job["metadata"] |= {"uid": UID, "namespace": "default"}
    return {**job, "status": status}


def arena(**spec: Any) -> Manifest:
    job = json.loads((FIXTURES / "objects" / "arena-mpi.json").read_text())
    job["spec"] |= spec
    return stored(job)


def worker(name: str, phase: str = "Running", **meta: Any) -> Manifest:
    ready = [{"type": "Ready", "status": str(phase == "Running")}]
    meta = {"name": name, "namespace": "default", "uid": f"uid-{name}", **meta}
    return {"metadata": meta, "spec": {}, "status": {"phase": phase, "conditions": ready}}


def decide(job: Manifest, *pods: Manifest, kind: MPIKind = NEW, restarts: int = 0) -> Plan:
    return kubeflow.decide_mpi(ObservedJob(kind, job, pods, restarts=restarts))


def names(pods: list[Manifest]) -> list[str]:
    return [each["metadata"]["name"] for each in pods]


def made(plan: Plan, resource: Resource) -> Manifest:
    (found,) = (obj for of, obj in plan.objects if of == resource)
    return found


def true_conditions(plan: Plan) -> dict[str, str]:
    return {each["type"]: each["reason"] for each in plan.status["conditions"] if each["status"] == "True"}


def env(pod_spec: Manifest) -> dict[str, str]:
    return {each["name"]: each.get("value", "") for each in pod_spec["containers"][0]["env"]}


def test_a_new_job_gets_workers_launcher_and_hostfile() -> None:
    plan = decide(stored(mpi_job("vgg", "mpirun", "true", workers=2, slots=3, backoffLimit=1)))
    assert true_conditions(plan) == {"Created": "MPIJobCreated"}
    launcher, _, second = plan.create
    assert names(plan.create) == ["vgg-launcher", "vgg-worker-0", "vgg-worker-1"]
    assert second["metadata"]["labels"] == {
        "training.kubeflow.org/operator-name": "mpi-operator",
        "training.kubeflow.org/job-name": "vgg",
        "training.kubeflow.org/job-role": "worker",
        "training.kubeflow.org/replica-index": "1",
    }
    assert second["metadata"]["annotations"] == {GANG: "3", PROCESSES: "3", RESTARTS: "0"}
    owner = {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "name": "vgg", "uid": UID}
    controls = {"controller": True, "blockOwnerDeletion": True}
    assert second["metadata"]["ownerReferences"][0] == owner | controls
    assert (second["spec"]["hostname"], second["spec"]["subdomain"]) == ("vgg-worker-1", "vgg")
    assert second["spec"]["containers"][0]["command"] == ["/usr/sbin/sshd", "-De"]
    assert env(second["spec"]) == {"K_MPI_JOB_ROLE": "worker"}
    config = made(plan, CONFIG_MAPS)
    assert config["metadata"]["name"] == "vgg-config"
    assert config["data"]["hostfile"] == (
        "vgg-worker-0.vgg.default.svc slots=3\nvgg-worker-1.vgg.default.svc slots=3\n"
    )
    assert config["data"]["discover_hosts.sh"].startswith("#!/bin/sh\necho vgg-worker-0.vgg.default.svc\n")
    assert launcher["metadata"]["labels"]["training.kubeflow.org/job-role"] == "launcher"
    assert env(launcher["spec"])["OMPI_MCA_orte_default_hostfile"] == "/etc/mpi/hostfile"
    assert env(launcher["spec"])["OMPI_MCA_orte_set_default_slots"] == "3"
    assert launcher["spec"]["volumes"][-1]["configMap"]["name"] == "vgg-config"
    assert launcher["spec"]["containers"][0]["volumeMounts"][-1]["mountPath"] == "/etc/mpi"


def test_run_launcher_as_worker_makes_the_launcher_the_first_host() -> None:
    job = stored(mpi_job("vgg", "mpirun", workers=1))
    job["spec"]["runLauncherAsWorker"] = True
    plan = decide(job)
    hosts = made(plan, CONFIG_MAPS)["data"]["hostfile"].split()[::2]
    assert hosts == ["vgg-launcher.vgg.default.svc", "vgg-worker-0.vgg.default.svc"]
    assert plan.create[1]["metadata"]["labels"]["training.kubeflow.org/replica-index"] == "1"
    assert "NVIDIA_VISIBLE_DEVICES" not in env(plan.create[0]["spec"])


def test_a_launcher_may_wait_for_its_workers() -> None:
    job = stored(mpi_job("vgg", "mpirun", workers=2))
    job["spec"]["launcherCreationPolicy"] = "WaitForWorkersReady"
    workers = decide(job).create
    assert names(workers) == ["vgg-worker-0", "vgg-worker-1"]
    assert {each["metadata"]["annotations"][GANG] for each in workers} == {"2"}
    pods = [worker("vgg-worker-0"), worker("vgg-worker-1", "Pending")]
    assert decide(job, *pods).create == []
    (launcher,) = decide(job, worker("vgg-worker-0"), worker("vgg-worker-1")).create
    assert (launcher["metadata"]["name"], launcher["metadata"]["annotations"][GANG]) == ("vgg-launcher", "1")


def test_a_job_runs_while_its_launcher_does() -> None:
    job = stored(mpi_job("vgg", "mpirun", workers=2))
    pods = [worker("vgg-worker-0"), worker("vgg-worker-1")]
    assert "Running" not in true_conditions(decide(job, worker("vgg-launcher", "Pending"), *pods))
    running = decide(job, worker("vgg-launcher"), *pods)
    assert true_conditions(running)["Running"] == "MPIJobRunning"
    assert running.status["replicaStatuses"] == {"Launcher": {"active": 1}, "Worker": {"active": 2}}
    assert running.create == []


def test_the_end_of_the_launcher_is_the_jobs_and_its_workers_go_by_policy() -> None:
    both = ["vgg-worker-0", "vgg-worker-1"]
    for policy, deleted in (("None", []), ("Running", both[:1]), ("All", both)):
        job = stored(mpi_job("vgg", "mpirun", workers=2, cleanPodPolicy=policy))
        pods = [worker("vgg-launcher", "Succeeded"), worker("vgg-worker-0"), worker("vgg-worker-1", "Failed")]
        plan = decide(job, *pods)
        assert true_conditions(plan)["Succeeded"] == "MPIJobSucceeded"
        assert "completionTime" in plan.status
        assert (names(plan.delete), plan.create) == (deleted, [])
        again = decide(stored(job, **plan.status), pods[0])
        assert again.status["conditions"] == plan.status["conditions"]
        assert (again.objects, again.create) == ([], [])


def test_a_failed_launcher_is_replaced_up_to_the_limit_and_a_failed_worker_is_left() -> None:
    job = stored(mpi_job("vgg", "mpirun", workers=1, backoffLimit=1))
    pods = [worker("vgg-launcher", "Failed"), worker("vgg-worker-0", "Failed")]
    retried = decide(job, *pods)
    assert names(retried.delete) == ["vgg-launcher"]
    assert true_conditions(retried)["Restarting"] == "MPIJobRestarting"
    (again,) = decide(job, pods[1], restarts=1).create
    assert again["metadata"]["annotations"][GANG] == "1", "it must not wait for the failed worker"
    failed = decide(job, *pods, restarts=1)
    assert true_conditions(failed)["Failed"] == "MPIJobFailed"
    assert failed.status["replicaStatuses"]["Launcher"] == {"failed": 1}


def test_a_suspended_job_has_no_pods_and_a_resumed_one_starts_again() -> None:
    job = stored(mpi_job("vgg", "mpirun", workers=1, suspend=True))
    begun = decide(job)
    assert (begun.create, begun.objects) == ([], [])
    assert "startTime" not in begun.status
    pods = [worker("vgg-launcher"), worker("vgg-worker-0")]
    plan = decide(job, *pods)
    assert plan.delete == pods
    assert "Suspended" in true_conditions(plan)
    job["spec"]["runPolicy"]["suspend"] = False
    resumed = decide({**job, "status": plan.status})
    assert names(resumed.create) == ["vgg-launcher", "vgg-worker-0"]
    assert "Suspended" not in true_conditions(resumed)


def test_a_job_without_a_launcher_is_reported_once_and_creates_nothing() -> None:
    job = stored(mpi_job("vgg", "mpirun"))
    del job["spec"]["mpiReplicaSpecs"]["Launcher"]
    plan = decide(job)
    ((_, message, is_warning),) = plan.events
    assert "must have one replica" in message and is_warning
    assert (plan.objects, plan.create) == ([], [])
    assert decide({**job, "status": plan.status}).events == []


def test_a_job_for_another_mpi_is_reported_and_creates_nothing() -> None:
    job = stored(mpi_job("vgg", "mpirun"))
    job["spec"]["mpiImplementation"] = "MPICH"
    plan = decide(job)
    ((_, message, is_warning),) = plan.events
    assert "spec.mpiImplementation: the sandbox runs Open MPI only" in message and is_warning
    assert (plan.objects, plan.create) == ([], [])


def test_arena_job_workers_sleep_and_the_launcher_runs_the_command() -> None:
    plan = decide(arena(), kind=ARENA)
    assert "conditions" not in plan.status
    assert names(plan.create) == [f"pytorch-4-vgg16-worker-{i}" for i in range(4)]
    first = plan.create[0]
    labels = {"group_name": "kubeflow.org", "mpi_job_name": "pytorch-4-vgg16", "mpi_role_type": "worker"}
    assert labels.items() <= first["metadata"]["labels"].items()
    assert first["metadata"]["labels"]["release"] == "pytorch-4-vgg16"
    container = first["spec"]["containers"][0]
    assert (container["command"], container["args"]) == (["sleep"], ["365d"])
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    config = made(plan, CONFIG_MAPS)["data"]
    assert config["hostfile"].splitlines()[3] == "pytorch-4-vgg16-worker-3 slots=1"
    assert config["kubexec.sh"].startswith("#!/bin/sh\n")
    (launcher,) = decide(arena(), *(worker(name) for name in names(plan.create)), kind=ARENA).create
    assert launcher["metadata"]["name"] == "pytorch-4-vgg16-launcher"
    assert launcher["metadata"]["labels"]["mpi_role_type"] == "launcher"
    assert launcher["spec"]["containers"][0]["command"][2].startswith("mpirun ")
    assert launcher["spec"]["containers"][0]["resources"] == {}
    assert env(launcher["spec"])["OMPI_MCA_plm_rsh_agent"] == "/etc/mpi/kubexec.sh"
    modes = {each["key"]: each["mode"] for each in launcher["spec"]["volumes"][-1]["configMap"]["items"]}
    assert modes == {"kubexec.sh": 0o555, "hostfile": 0o444}


def test_an_arena_job_reports_its_launcher_status_and_deletes_workers_by_policy() -> None:
    first, name = worker("pytorch-4-vgg16-worker-0"), "pytorch-4-vgg16-launcher"
    assert decide(arena(), worker(name), first, kind=ARENA).status["launcherStatus"] == "Active"
    done = decide(arena(), worker(name, "Succeeded"), first, kind=ARENA)
    assert done.status["launcherStatus"] == "Succeeded"
    assert "completionTime" in done.status and "conditions" not in done.status
    assert done.delete == [first]
    again = decide({**arena(), "status": done.status}, worker(name, "Succeeded"), kind=ARENA)
    assert (again.status, again.create, again.events) == (done.status, [], [])
    failed = decide(arena(cleanPodPolicy="None"), worker(name, "Failed"), first, kind=ARENA)
    assert failed.status["launcherStatus"] == "Failed"
    assert failed.delete == []
    retried = decide(arena(backoffLimit=1), worker(name, "Failed"), first, kind=ARENA)
    assert "launcherStatus" not in retried.status


def test_an_arena_jobs_lost_worker_is_replaced() -> None:
    lost = worker("pytorch-4-vgg16-worker-2", "Failed")
    assert lost in decide(arena(backoffLimit=1), lost, kind=ARENA).delete


@pytest.mark.parametrize(
    ("spec", "slots"),
    [({"slotsPerWorker": 3}, 3), ({"replicas": None, "gpus": 16}, 8), ({"replicas": None, "gpus": 2}, 2)],
)
def test_an_arena_job_has_a_slot_for_each_gpu_by_default(spec: Manifest, slots: int) -> None:
    config = made(decide(arena(**spec), kind=ARENA), CONFIG_MAPS)["data"]
    assert config["hostfile"].splitlines()[0] == f"pytorch-4-vgg16-worker-0 slots={slots}"


def by_pods(job: Manifest, *pods: Manifest) -> Plan:
    return decide(job, *pods, kind=MPIJobV1())


def v1_job(*, workers: int = 2, launcher_gpus: int = 0, **policy: Any) -> Manifest:
    job = stored(mpi_job("vgg", "mpirun", "true", workers=workers, slots=3, **policy))
    job["apiVersion"] = "kubeflow.org/v1"
    if launcher_gpus:
        first = job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]
        first["resources"] = {"limits": {"nvidia.com/gpu": str(launcher_gpus)}}
    return job


def test_the_training_operator_creates_the_launcher_pod_and_a_hostfile_of_workers() -> None:
    plan = by_pods(v1_job())
    first, *workers = plan.create
    assert names(plan.create) == ["vgg-launcher", "vgg-worker-0", "vgg-worker-1"]
    assert first["metadata"]["labels"] == {
        "training.kubeflow.org/operator-name": "mpijob-controller",
        "training.kubeflow.org/job-name": "vgg",
        "training.kubeflow.org/replica-type": "launcher",
        "training.kubeflow.org/job-role": "master",
    }
    assert workers[1]["metadata"]["labels"]["training.kubeflow.org/replica-index"] == "1"
    assert workers[1]["metadata"]["annotations"][PROCESSES] == "3"
    assert workers[1]["spec"]["containers"][0]["command"] == ["sleep"]
    assert workers[1]["spec"]["containers"][0]["args"] == ["365d"]
    assert env(first["spec"]) == {
        "OMPI_MCA_plm_rsh_agent": "/etc/mpi/kubexec.sh",
        "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
        "NVIDIA_VISIBLE_DEVICES": "",
        "NVIDIA_DRIVER_CAPABILITIES": "",
    }
    files = [each["key"] for each in first["spec"]["volumes"][-1]["configMap"]["items"]]
    assert files == ["kubexec.sh", "hostfile", "discover_hosts.sh"]
    assert [resource for resource, _ in plan.objects] == [CONFIG_MAPS]
    config = made(plan, CONFIG_MAPS)
    assert config["metadata"]["ownerReferences"][0]["apiVersion"] == "kubeflow.org/v1"
    assert config["data"]["hostfile"] == "vgg-worker-0 slots=3\nvgg-worker-1 slots=3\n"
    assert config["data"]["discover_hosts.sh"] == "#!/bin/sh\necho vgg-worker-0:3\necho vgg-worker-1:3"


def test_a_launcher_with_gpus_is_one_of_the_hosts() -> None:
    plan = by_pods(v1_job(launcher_gpus=1))
    config = made(plan, CONFIG_MAPS)
    assert config["data"]["hostfile"].startswith("vgg-launcher slots=3\nvgg-worker-0 slots=3\n")
    assert "NVIDIA_VISIBLE_DEVICES" not in env(plan.create[0]["spec"])


def test_the_end_of_the_launchers_pod_is_the_jobs_and_its_workers_go_by_the_policy() -> None:
    pods = [worker("vgg-launcher", "Succeeded"), worker("vgg-worker-0"), worker("vgg-worker-1")]
    plan = by_pods(v1_job(cleanPodPolicy="Running"), *pods)
    assert true_conditions(plan) == {"Created": "MPIJobCreated", "Succeeded": "MPIJobSucceeded"}
    assert [each["metadata"]["name"] for each in plan.delete] == ["vgg-worker-0", "vgg-worker-1"]
    assert plan.objects == [] and plan.create == []
    plan = by_pods(v1_job(), worker("vgg-launcher", "Failed"), *pods[1:])
    assert true_conditions(plan) == {"Created": "MPIJobCreated", "Failed": "MPIJobFailed"}
    assert plan.delete == []
    plan = by_pods(v1_job(suspend=True), *pods)
    assert len(plan.delete) == 3 and plan.objects == []
