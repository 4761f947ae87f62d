"""What the MPI operators decide for a job, its workers and its launcher, without any cluster."""

from __future__ import annotations

import json
from typing import Any

import pytest

from k8s.kinds import MPIKind
from k8s.kinds.kubeflow.mpi_job import MPIJob
from k8s.kinds.kubeflow.mpi_job_v1 import MPIJobV1
from k8s.kinds.kubeflow.mpi_job_v1alpha1 import MPIJobV1Alpha1
from k8s.kinds.kubeflow.pytorch_job import PyTorchJob
from k8s.models.resources import CONFIG_MAPS, JOBS, SERVICES, Resource
from k8s.sandbox.controller_runtime import PROCESSES
from k8s.sandbox.controllers import mpi
from k8s.sandbox.controllers.reconcile import GANG, ObservedJob, Plan
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


def named(name: str) -> Manifest:
    return {"metadata": {"name": name, "uid": f"uid-{name}"}}


def launcher(name: str, *, suspend: bool = False, ended: str = "", **status: Any) -> Manifest:
    if ended:
        status["conditions"] = [
            {"type": ended, "status": "True", "reason": "BackoffLimitExceeded", "message": "No more tries"}
        ]
    return {**named(name), "spec": {"suspend": suspend}, "status": status}


def decide(
    job: Manifest,
    pods: list[Manifest] = [],  # noqa: B006
    launcher: Manifest | None = None,
    kind: MPIKind = NEW,
    **owners: str,
) -> Plan:
    name = job["metadata"]["name"]
    children: dict[Resource, list[Manifest]] = {
        JOBS: [] if launcher is None else [launcher],
        CONFIG_MAPS: [named(f"{name}-config")] if launcher else [],
        SERVICES: [named(name)] if launcher else [],
    }
    taken = {key.replace("_", "-"): uid for key, uid in owners.items()}
    return mpi.decide(ObservedJob(kind, job, pods, owners=taken, children=children))


def made(plan: Plan, resource: Resource) -> Manifest:
    (found,) = (obj for of, obj in plan.objects if of == resource)
    return found


def true_conditions(plan: Plan) -> dict[str, str]:
    return {each["type"]: each["reason"] for each in plan.status["conditions"] if each["status"] == "True"}


def env(pod_spec: Manifest) -> dict[str, str]:
    return {each["name"]: each.get("value", "") for each in pod_spec["containers"][0]["env"]}


def test_a_new_job_gets_workers_launcher_hostfile_and_service() -> None:
    plan = decide(stored(mpi_job("vgg", "mpirun", "true", workers=2, slots=3, backoffLimit=1)))
    assert true_conditions(plan) == {"Created": "MPIJobCreated"}
    assert [each["metadata"]["name"] for each in plan.create] == ["vgg-worker-0", "vgg-worker-1"]
    second = plan.create[1]
    assert second["metadata"]["labels"] == {
        "training.kubeflow.org/operator-name": "mpi-operator",
        "training.kubeflow.org/job-name": "vgg",
        "training.kubeflow.org/job-role": "worker",
        "training.kubeflow.org/replica-index": "1",
    }
    assert second["metadata"]["annotations"] == {GANG: "2", PROCESSES: "3"}
    assert second["metadata"]["ownerReferences"][0] == {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "name": "vgg",
        "uid": UID,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    assert (second["spec"]["hostname"], second["spec"]["subdomain"]) == ("vgg-worker-1", "vgg")
    assert second["spec"]["containers"][0]["command"] == ["/usr/sbin/sshd", "-De"]
    assert env(second["spec"]) == {"K_MPI_JOB_ROLE": "worker"}
    config = made(plan, CONFIG_MAPS)
    assert config["metadata"]["name"] == "vgg-config"
    assert config["data"]["hostfile"] == (
        "vgg-worker-0.vgg.default.svc slots=3\nvgg-worker-1.vgg.default.svc slots=3\n"
    )
    assert config["data"]["discover_hosts.sh"].startswith("#!/bin/sh\necho vgg-worker-0.vgg.default.svc\n")
    assert made(plan, SERVICES)["spec"]["clusterIP"] == "None"
    job = made(plan, JOBS)
    assert job["metadata"]["name"] == "vgg-launcher"
    assert job["metadata"]["ownerReferences"][0]["uid"] == UID
    assert job["spec"]["backoffLimit"] == 1
    template = job["spec"]["template"]
    assert template["metadata"]["labels"]["training.kubeflow.org/job-role"] == "launcher"
    assert env(template["spec"])["OMPI_MCA_orte_default_hostfile"] == "/etc/mpi/hostfile"
    assert env(template["spec"])["OMPI_MCA_orte_set_default_slots"] == "3"
    assert template["spec"]["volumes"][-1]["configMap"]["name"] == "vgg-config"
    assert template["spec"]["containers"][0]["volumeMounts"][-1]["mountPath"] == "/etc/mpi"


def test_the_launcher_of_mpich_gets_its_own_hostfile() -> None:
    job = stored(mpi_job("vgg", "mpirun", slots=2, workers=1))
    job["spec"]["mpiImplementation"] = "MPICH"
    plan = decide(job)
    assert made(plan, CONFIG_MAPS)["data"]["hostfile"] == "vgg-worker-0.vgg.default.svc:2\n"
    found = env(made(plan, JOBS)["spec"]["template"]["spec"])
    assert found["HYDRA_HOST_FILE"] == "/etc/mpi/hostfile"
    assert not [name for name in found if name.startswith("OMPI")]


def test_a_launcher_that_works_too_is_the_first_host() -> None:
    job = stored(mpi_job("vgg", "mpirun", workers=1))
    job["spec"]["runLauncherAsWorker"] = True
    plan = decide(job)
    hosts = made(plan, CONFIG_MAPS)["data"]["hostfile"].split()[::2]
    assert hosts == ["vgg-launcher.vgg.default.svc", "vgg-worker-0.vgg.default.svc"]
    assert plan.create[0]["metadata"]["labels"]["training.kubeflow.org/replica-index"] == "1"
    assert "NVIDIA_VISIBLE_DEVICES" not in env(made(plan, JOBS)["spec"]["template"]["spec"])


def test_a_launcher_may_wait_for_its_workers() -> None:
    job = stored(mpi_job("vgg", "mpirun", workers=2))
    job["spec"]["launcherCreationPolicy"] = "WaitForWorkersReady"
    pods = [worker("vgg-worker-0"), worker("vgg-worker-1", "Pending")]
    assert JOBS not in dict(decide(job).objects)
    assert JOBS not in dict(decide(job, pods).objects)
    assert JOBS in [of for of, _ in decide(job, [worker("vgg-worker-0"), worker("vgg-worker-1")]).objects]


def test_it_runs_once_the_launcher_and_all_workers_do() -> None:
    job = stored(mpi_job("vgg", "mpirun", workers=2))
    pods = [worker("vgg-worker-0"), worker("vgg-worker-1", "Pending")]
    starting = decide(job, pods, launcher("vgg-launcher", active=1, ready=1))
    assert "Running" not in true_conditions(starting)
    running = decide(job, [pods[0], worker("vgg-worker-1")], launcher("vgg-launcher", active=1, ready=1))
    assert true_conditions(running)["Running"] == "MPIJobRunning"
    assert running.status["replicaStatuses"] == {"Launcher": {"active": 1}, "Worker": {"active": 2}}
    assert running.objects == []
    assert running.create == []


@pytest.mark.parametrize(
    ("policy", "deleted"),
    [("None", []), ("Running", ["vgg-worker-0"]), ("All", ["vgg-worker-0", "vgg-worker-1"])],
)
def test_the_launchers_end_is_the_jobs_and_its_workers_go_by_policy(policy: str, deleted: list[str]) -> None:
    job = stored(mpi_job("vgg", "mpirun", workers=2, cleanPodPolicy=policy))
    pods = [worker("vgg-worker-0"), worker("vgg-worker-1", "Failed")]
    plan = decide(
        job, pods, launcher("vgg-launcher", ended="Complete", completionTime="2026-01-01T00:00:00Z")
    )
    assert true_conditions(plan)["Succeeded"] == "MPIJobSucceeded"
    assert plan.status["completionTime"] == "2026-01-01T00:00:00Z"
    assert [each["metadata"]["name"] for each in plan.delete] == deleted
    assert plan.create == []
    again = decide(stored(job, **plan.status), pods, None)
    assert again.status["conditions"] == plan.status["conditions"]
    assert (again.objects, again.create) == ([], [])


def test_a_launcher_that_gave_up_fails_the_job_with_its_reason() -> None:
    job = stored(mpi_job("vgg", "mpirun"))
    plan = decide(job, [worker("vgg-worker-0")], launcher("vgg-launcher", ended="Failed", failed=1))
    (failed,) = (each for each in plan.status["conditions"] if each["type"] == "Failed")
    assert (failed["reason"], failed["message"]) == ("BackoffLimitExceeded", "No more tries")
    assert plan.status["replicaStatuses"]["Launcher"] == {"failed": 1}
    assert ("BackoffLimitExceeded", "No more tries", True) in plan.events


def test_a_suspended_job_gives_back_its_workers_and_begins_anew() -> None:
    job = stored(mpi_job("vgg", "mpirun", workers=1, suspend=True))
    begun = decide(job)
    assert begun.create == []
    assert made(begun, JOBS)["spec"]["suspend"] is True
    assert "startTime" not in begun.status
    pods = [worker("vgg-worker-0")]
    plan = decide(job, pods, launcher("vgg-launcher", active=1, ready=1))
    assert plan.delete == pods
    assert plan.patches == [(JOBS, "vgg-launcher", {"spec": {"suspend": True}})]
    assert "Suspended" in true_conditions(plan)
    job["spec"]["runPolicy"]["suspend"] = False
    resumed = decide({**job, "status": plan.status}, [], launcher("vgg-launcher", suspend=True))
    assert resumed.patches == [(JOBS, "vgg-launcher", {"spec": {"suspend": False}})]
    assert [each["metadata"]["name"] for each in resumed.create] == ["vgg-worker-0"]
    assert "Suspended" not in true_conditions(resumed)


def test_a_pod_of_that_name_that_is_anothers_or_still_leaves_is_waited_for() -> None:
    job = stored(mpi_job("vgg", "mpirun", workers=2))
    leaving = worker("vgg-worker-1", deletionTimestamp="2026-01-01T00:00:00Z")
    plan = decide(job, [leaving], None, vgg_worker_0="another")
    assert plan.create == []


def test_a_job_that_shrinks_loses_its_last_workers() -> None:
    plan = decide(
        stored(mpi_job("vgg", "mpirun", workers=1)), [worker("vgg-worker-0"), worker("vgg-worker-1")]
    )
    assert [each["metadata"]["name"] for each in plan.delete] == ["vgg-worker-1"]


def test_a_job_without_a_launcher_is_told_once_and_left_alone() -> None:
    job = stored(mpi_job("vgg", "mpirun"))
    del job["spec"]["mpiReplicaSpecs"]["Launcher"]
    plan = decide(job)
    assert [reason for reason, _, _ in plan.events] == ["MPIJobCreated", "ValidationError"]
    assert (plan.objects, plan.create) == ([], [])
    assert decide({**job, "status": plan.status}).events == []


def test_of_an_arena_job_the_workers_sleep_and_the_launcher_runs_the_command() -> None:
    plan = decide(arena(), kind=ARENA)
    assert "conditions" not in plan.status
    assert [each["metadata"]["name"] for each in plan.create] == [
        f"pytorch-4-vgg16-worker-{i}" for i in range(4)
    ]
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
    assert [of for of, _ in plan.objects] == [CONFIG_MAPS], "the launcher waits for its workers"
    ready = [worker(each["metadata"]["name"]) for each in plan.create]
    job = made(decide(arena(), ready, kind=ARENA), JOBS)
    template = job["spec"]["template"]
    assert (job["metadata"]["name"], job["spec"]["backoffLimit"]) == ("pytorch-4-vgg16-launcher", 0)
    assert template["metadata"]["labels"]["mpi_role_type"] == "launcher"
    assert template["spec"]["containers"][0]["command"][2].startswith("mpirun ")
    assert template["spec"]["containers"][0]["resources"] == {}
    assert env(template["spec"])["OMPI_MCA_plm_rsh_agent"] == "/etc/mpi/kubexec.sh"
    modes = {each["key"]: each["mode"] for each in template["spec"]["volumes"][-1]["configMap"]["items"]}
    assert modes == {"kubexec.sh": 0o555, "hostfile": 0o444}


def test_an_arena_jobs_status_is_one_word_and_its_workers_go_with_it() -> None:
    pods = [worker("pytorch-4-vgg16-worker-0")]
    name = "pytorch-4-vgg16-launcher"
    active = decide(arena(), pods, launcher(name, active=1), ARENA)
    assert active.status["launcherStatus"] == "Active"
    assert active.status["workerReplicas"] == 1
    done = decide(arena(), pods, launcher(name, succeeded=1, ended="Complete"), ARENA)
    assert done.status["launcherStatus"] == "Succeeded"
    assert "completionTime" in done.status
    assert done.delete == pods
    failed = decide(arena(cleanPodPolicy="None"), pods, launcher(name, failed=1, ended="Failed"), ARENA)
    assert failed.status["launcherStatus"] == "Failed"
    assert failed.delete == []
    retried = decide(arena(), pods, launcher(name, failed=1), ARENA)
    assert "launcherStatus" not in retried.status


def test_an_arena_jobs_lost_worker_is_made_anew() -> None:
    lost = worker("pytorch-4-vgg16-worker-2", "Failed")
    assert lost in decide(arena(), [lost], None, ARENA).delete


@pytest.mark.parametrize(
    ("spec", "slots"),
    [({"slotsPerWorker": 3}, 3), ({"replicas": None, "gpus": 16}, 8), ({"replicas": None, "gpus": 2}, 2)],
)
def test_an_arena_job_has_a_rank_for_each_gpu_unless_it_says_otherwise(spec: Manifest, slots: int) -> None:
    config = made(decide(arena(**spec), kind=ARENA), CONFIG_MAPS)["data"]
    assert config["hostfile"].splitlines()[0] == f"pytorch-4-vgg16-worker-0 slots={slots}"


def test_another_kind_is_not_for_this_operator() -> None:
    with pytest.raises(TypeError, match="PyTorchJob is not for MPI"):
        mpi.decide(ObservedJob(PyTorchJob(), stored(mpi_job("x")), []))


def by_pods(job: Manifest, *pods: Manifest, config: Manifest | None = None) -> Plan:
    children: dict[Resource, list[Manifest]] = {CONFIG_MAPS: [config] if config else []}
    return mpi.decide_by_pods(ObservedJob(MPIJobV1(), job, pods, children=children))


def v1_job(*, workers: int = 2, launcher_gpus: int = 0, **policy: Any) -> Manifest:
    job = stored(mpi_job("vgg", "mpirun", "true", workers=workers, slots=3, **policy))
    job["apiVersion"] = "kubeflow.org/v1"
    if launcher_gpus:
        first = job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]
        first["resources"] = {"limits": {"nvidia.com/gpu": str(launcher_gpus)}}
    return job


def test_the_training_operator_makes_the_launchers_pod_itself_and_says_where_the_workers_are() -> None:
    plan = by_pods(v1_job())
    first, *workers = plan.create
    assert [each["metadata"]["name"] for each in plan.create] == [
        "vgg-launcher",
        "vgg-worker-0",
        "vgg-worker-1",
    ]
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
    assert [each["key"] for each in first["spec"]["volumes"][-1]["configMap"]["items"]] == [
        "kubexec.sh",
        "hostfile",
        "discover_hosts.sh",
    ]
    assert plan.services == [] and [resource for resource, _ in plan.objects] == [CONFIG_MAPS]
    config = made(plan, CONFIG_MAPS)
    assert config["metadata"]["ownerReferences"][0]["apiVersion"] == "kubeflow.org/v1"
    assert config["data"]["hostfile"] == "vgg-worker-0 slots=3\nvgg-worker-1 slots=3\n"
    assert config["data"]["discover_hosts.sh"] == "#!/bin/sh"


def test_the_hosts_to_discover_are_the_workers_that_run_and_a_launcher_with_gpus() -> None:
    plan = by_pods(v1_job(launcher_gpus=1))
    config = made(plan, CONFIG_MAPS)
    assert config["data"]["hostfile"].startswith("vgg-launcher slots=3\nvgg-worker-0 slots=3\n")
    assert "NVIDIA_VISIBLE_DEVICES" not in env(plan.create[0]["spec"])
    pods = [worker("vgg-launcher"), worker("vgg-worker-0", "Pending"), worker("vgg-worker-1")]
    ((_, name, patch),) = by_pods(v1_job(launcher_gpus=1), *pods, config=config).patches
    assert name == "vgg-config"
    assert patch["data"]["discover_hosts.sh"] == "#!/bin/sh\necho vgg-launcher:3\necho vgg-worker-1:3"
    assert by_pods(v1_job(launcher_gpus=1), *pods, config={**config, **patch}).patches == []


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
