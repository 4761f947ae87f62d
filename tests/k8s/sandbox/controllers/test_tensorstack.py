"""Plans for TensorStack's jobs: modes, restarts, the end; MPI launchers; TensorBoards."""

from __future__ import annotations

from typing import Any

import pytest

from k8s.kinds.t9k import T9kMPIJob, T9kPyTorchJob
from k8s.models.resources import CONFIG_MAPS, DEPLOYMENTS, SERVICES
from k8s.sandbox.controller_runtime import PROCESSES
from k8s.sandbox.controllers import tensorstack
from k8s.sandbox.controllers.reconcile import GANG, ObservedJob, Plan
from tests.k8s.sandbox.controllers.test_replicas import UID, ago, as_pod, condition_statuses
from tests.k8s.sandbox.live.running import Manifest

KIND = T9kPyTorchJob()


def role(kind: str, replicas: int = 1, restart: str = "ExitCode", **container: Any) -> Manifest:
    main = {"name": "main", "command": ["sh"], "args": ["-c", "true"], **container}
    template = {"spec": {"initContainers": [{"name": "first"}], "containers": [main]}}
    return {"type": kind, "replicas": replicas, "restartPolicy": restart, "template": template}


def job(*roles: Manifest, status: Manifest | None = None, **spec: Any) -> Manifest:
    meta = {"name": "bert", "namespace": "default", "uid": UID}
    spec["replicaSpecs"] = list(roles or [role("node")])
    return {"metadata": meta, "spec": spec, "status": status or {}}


def decide(obj: Manifest, *pods: Manifest) -> Plan:
    return tensorstack.decide(ObservedJob(KIND, obj, pods))


def made(plan: Plan, name: str = "node-0") -> Manifest:
    return next(each for each in plan.create if each["metadata"]["name"].endswith(name))


def there(plan: Plan, phase: str, code: int | None = None) -> list[Manifest]:
    """Return the pods that a plan makes, in a phase."""
    found = []
    for each in plan.create:
        pod = as_pod(each["metadata"]["name"], phase, code)
        pod["metadata"]["annotations"] = each["metadata"]["annotations"]
        found.append(pod)
    return found


def container(pod: Manifest) -> tuple[list[str], list[str], dict[str, str]]:
    main = pod["spec"]["containers"][-1]
    return main["command"], main["args"], {each["name"]: each["value"] for each in main["env"]}


def test_pods_are_named_for_job_role_and_number_and_never_restart_themselves() -> None:
    plan = decide(job(role("node", 2)))
    names = [each["metadata"]["name"] for each in plan.create]
    prefix = names[0].removesuffix("-node-0")
    assert names == [f"{prefix}-node-0", f"{prefix}-node-1"]
    assert prefix.startswith("bert-") and len(prefix) == len("bert-") + 5
    first = plan.create[0]
    assert first["metadata"]["labels"] == {
        "tensorstack.dev/owner-name": "bert",
        "replica-index": "0",
        "replica-type": "node",
        "job-role": "master",
    }
    assert first["metadata"]["annotations"][GANG] == "2"
    assert first["spec"]["restartPolicy"] == "Never"
    assert first["metadata"]["ownerReferences"][0]["kind"] == "PyTorchTrainingJob"
    assert plan.status["phase"] == "Pending"
    assert condition_statuses(plan) == {"Initialized": "True"}


def test_torchrun_takes_the_arguments_and_the_command_is_ignored() -> None:
    counts = {"procPerNode": "4", "maxRestarts": 3}
    torchrun = {"enabled": True, "rdzvBackend": "c10d", "extraOptions": ["--tee=3"], **counts}
    plan = decide(job(role("node", args=["train.py", "--x"]), torchrunConfig=torchrun))
    command, args, env = container(made(plan))
    assert command == ["torchrun", "--standalone", "--max-restarts=3", "--tee=3"]
    assert args == ["train.py", "--x"]
    assert env == {"PET_NPROC_PER_NODE": "4"}
    both = decide(job(role("node", 2, args=["train.py"]), torchrunConfig=torchrun))
    command, _, env = container(made(both, "node-1"))
    assert "--standalone" not in command
    assert (env["PET_NNODES"], env["PET_NODE_RANK"]) == ("2", "1")
    assert env["PET_MASTER_ADDR"] == both.create[0]["metadata"]["name"]


def test_the_training_container_is_the_one_named_python_else_the_first() -> None:
    two = role("node")
    two["template"]["spec"]["containers"].append({"name": "python", "command": ["python"], "args": ["t.py"]})

    def commands() -> list[list[str]]:
        debug = decide(job(two, runMode={"debug": {"enabled": True}}))
        return [each["command"] for each in made(debug)["spec"]["containers"]]

    for _ in range(2):
        assert commands() == [["sh"], ["sleep", "inf"]]
    two["template"]["spec"]["containers"][1]["name"] = "other"
    assert commands() == [["sleep", "inf"], ["python"]]


def test_debug_takes_its_own_command_and_may_skip_init_containers() -> None:
    roles = [{"type": "node", "skipInitContainer": True, "command": ["top"]}]
    pod = made(decide(job(runMode={"debug": {"enabled": True, "replicaSpecs": roles}})))
    assert container(pod)[:2] == (["top"], [])
    assert "initContainers" not in pod["spec"]


def test_a_pod_of_another_mode_or_size_is_replaced() -> None:
    pods = there(decide(job()), "Running")
    assert decide(job(), *pods).delete == []
    assert decide(job(runMode={"debug": {"enabled": True}}), *pods).delete == pods
    elastic = {"enabled": True, "minReplicas": 1, "maxReplicas": 3, "expectedReplicas": 2}
    grown = decide(job(elastic=elastic), *pods)
    assert grown.delete == pods
    assert [each["metadata"]["name"][-6:] for each in grown.create] == ["node-1"]


@pytest.mark.parametrize(
    ("restart", "code", "replaced", "phase"),
    [
        ("ExitCode", 1, False, "Failed"),
        ("ExitCode", 130, True, "Pending"),
        ("ExitCode", 137, True, "Pending"),
        ("ExitCode", 138, True, "Pending"),
        ("ExitCode", 143, True, "Pending"),
        ("ExitCode", 139, False, "Failed"),
        ("OnFailure", 1, True, "Pending"),
        ("Always", 1, True, "Pending"),
        ("Never", 137, False, "Failed"),
    ],
)
def test_a_failed_pod_is_replaced_by_the_restart_policy_of_its_role(
    restart: str, code: int, replaced: bool, phase: str
) -> None:
    obj = job(role("node", restart=restart))
    pods = there(decide(obj), "Failed", code)
    plan = decide(obj, *pods)
    assert bool(plan.replaced) is replaced
    assert plan.delete == (pods if replaced else [])
    assert plan.status["phase"] == phase
    assert plan.status["backoffCount"] == int(replaced)
    observed = ObservedJob(KIND, {**obj, "status": plan.status}, pods, replaced=plan.replaced)
    again = tensorstack.decide(observed)
    assert again.status["backoffCount"] == int(replaced)
    assert (again.create, again.delete) == ([], []), "the watch still shows the pod"


def test_the_backoff_limit_is_shared_by_all_roles() -> None:
    obj = job(role("ps", restart="OnFailure"), role("worker", 2, "OnFailure"), runPolicy={"backoffLimit": 1})
    obj["status"] = {"backoffCount": 1}
    first, *others = there(decide(obj), "Running")
    for each in others:
        each["status"]["phase"] = "Failed"
    plan = decide(obj, first, *others)
    assert plan.status["phase"] == "Failed"
    failed = [each["reason"] for each in plan.status["conditions"] if each["type"] == "Failed"]
    assert failed == ["BackoffLimitExceeded"]


def test_only_the_first_role_decides_how_a_job_ends() -> None:
    obj = job(role("ps"), role("worker", 1, "Never"))
    master, worker = there(decide(obj), "Running")
    worker["status"]["phase"] = "Failed"
    plan = decide(obj, master, worker)
    assert plan.status["phase"] == "Running"
    assert condition_statuses(plan) == {"Initialized": "True", "Running": "True", "ReplicaFailure": "True"}
    master["status"]["phase"] = "Succeeded"
    assert decide(obj, master, worker).status["phase"] == "Succeeded"


def test_restart_policy_always_replaces_succeeded_workers_but_not_the_master() -> None:
    obj = job(role("ps", restart="Always"), role("worker", 1, "Always"))
    master, worker = there(decide(obj), "Running")
    worker["status"]["phase"] = "Succeeded"
    assert decide(obj, master, worker).delete == [worker]
    master["status"]["phase"] = "Succeeded"
    assert decide(obj, master, worker).status["phase"] == "Succeeded"


@pytest.mark.parametrize(("policy", "kept"), [("None", 2), ("Unfinished", 1), ("All", 0), (None, 2)])
def test_a_finished_job_deletes_pods_by_its_clean_up_policy(policy: str | None, kept: int) -> None:
    obj = job(role("ps"), role("worker"), runPolicy={"cleanUpPolicy": policy} if policy else {})
    master, worker = there(decide(obj), "Running")
    master["status"]["phase"] = "Succeeded"
    plan = decide(obj, master, worker)
    assert 2 - len(plan.delete) == kept
    assert plan.create == []
    assert condition_statuses(plan)["Completed"] == "True"


def test_a_deadline_ends_a_job_and_counts_from_when_it_was_resumed() -> None:
    since = [{"type": "Initialized", "status": "True", "reason": "-", "lastTransitionTime": ago(100)}]
    obj = job(runPolicy={"activeDeadlineSeconds": 50}, status={"phase": "Running", "conditions": since})
    assert decide(obj).status["phase"] == "Failed"
    since.append({"type": "Paused", "status": "False", "reason": "Resumed", "lastTransitionTime": ago(10)})
    plan = decide(obj)
    assert plan.status["phase"] != "Failed"
    assert plan.requeue_after_s is not None and 30 < plan.requeue_after_s < 45


def test_a_paused_job_has_no_pods_and_resumes_with_its_resume_command() -> None:
    pods = there(decide(job()), "Running")
    again = {"type": "node", "command": ["resume"], "args": ["x"]}
    paused = {"pause": {"enabled": True, "resumeSpecs": [again]}}
    ending = decide(job(runMode=paused, status={"phase": "Running"}), *pods)
    assert (ending.delete, ending.status["phase"]) == (pods, "Running")
    gone = decide(job(runMode=paused, status=ending.status))
    assert gone.status["phase"] == "Paused"
    assert condition_statuses(gone)["Paused"] == "True"
    assert decide(job(runMode=paused, status=gone.status)).events == []
    paused["pause"]["enabled"] = False
    resumed = decide(job(runMode=paused, status=gone.status))
    assert resumed.status["phase"] == "Resuming"
    assert container(made(resumed))[:2] == (["resume"], ["x"])


def test_a_role_without_containers_is_rejected() -> None:
    empty = role("node")
    empty["template"]["spec"]["containers"] = []
    with pytest.raises(ValueError, match="no containers"):
        decide(job(empty))


def test_a_job_that_names_no_backoff_limit_has_three_tries_left() -> None:
    for before, phase in ((2, "Pending"), (3, "Failed")):
        obj = job(status={"backoffCount": before})
        assert decide(obj, *there(decide(obj), "Failed", 137)).status["phase"] == phase


def test_a_masters_success_beside_an_unfinished_master_is_kept() -> None:
    obj = job(role("node", 2, "Always"))
    first, second = there(decide(obj), "Running")
    first["status"]["phase"] = "Succeeded"
    plan = decide(obj, first, second)
    assert (plan.delete, plan.status["phase"]) == ([], "Running")


def test_a_pod_that_ended_is_not_replaced_for_a_new_mode() -> None:
    obj = job(role("node"), role("worker", 1, "Never"))
    master, worker = there(decide(obj), "Running")
    worker["status"]["phase"] = "Failed"
    debug = job(role("node"), role("worker", 1, "Never"), runMode={"debug": {"enabled": True}})
    assert decide(debug, master, worker).delete == [master]


@pytest.mark.parametrize("switch", ["enabled", "enable"])
def test_a_job_is_paused_only_when_its_last_pod_is_gone(switch: str) -> None:
    paused = {"pause": {switch: True}}
    name = decide(job()).create[0]["metadata"]["name"]
    leaving = as_pod(name, "Running", deletionTimestamp=ago(0))
    assert decide(job(runMode=paused, status={"phase": "Running"}), leaving).status["phase"] == "Running"
    assert decide(job(runMode=paused, status={"phase": "Running"})).status["phase"] == "Paused"


def test_a_job_without_a_running_master_runs_no_more() -> None:
    plan = decide(job(status={"phase": "Running"}))
    assert plan.status["phase"] == "Pending"
    assert condition_statuses(plan)["Running"] == "False"


def test_automatic_processes_per_node_are_passed_to_torchrun() -> None:
    torchrun = {"enabled": True, "procPerNode": "auto"}
    assert container(made(decide(job(torchrunConfig=torchrun))))[2] == {"PET_NPROC_PER_NODE": "auto"}


def decide_mpi(obj: Manifest, *pods: Manifest) -> Plan:
    return tensorstack.decide(ObservedJob(T9kMPIJob(), obj, pods))


def mpi_job(**spec: Any) -> Manifest:
    return {"metadata": {"name": "walk", "namespace": "default", "uid": UID}, "spec": spec, "status": {}}


def worker(gpus: int = 0) -> Manifest:
    limits = {"nvidia.com/gpu": gpus} if gpus else {}
    own = {"name": "mpi-worker", "image": "i", "env": [{"name": "A", "value": "b"}]}
    container = {**own, "resources": {"limits": limits}}
    return {"spec": {"containers": [{"name": "beside", "image": "i"}, container]}}


MCA = {"btl": "^openib"}
OPTIONS, COMMAND = ["-N", "3"], ["./walk", "20"]
OLDER = {
    "worker": {"replicas": 2, "extraMPIArgs": OPTIONS, "cmd": COMMAND, "template": worker(gpus=1)},
    "mca": MCA,
}
NEWER = {
    "mpiConfig": {"mca": MCA, "extraArgs": OPTIONS, "script": COMMAND},
    "replicaSpecs": [
        {"type": "worker", "replicas": 2, "template": worker(gpus=1)},
        {"type": "launcher", "template": {"spec": {"containers": [{"name": "mpi-launcher", "image": "i"}]}}},
    ],
}


@pytest.mark.parametrize("spec", [OLDER, NEWER], ids=["older", "newer"])
def test_a_launcher_runs_mpirun_and_finds_its_workers_by_a_hostfile(spec: Manifest) -> None:
    plan = decide_mpi(mpi_job(**spec))
    names = [pod["metadata"]["name"] for pod in plan.create]
    prefix = names[0].removesuffix("-launcher-0")
    assert names == [f"{prefix}-launcher-0", f"{prefix}-worker-0", f"{prefix}-worker-1"]
    launcher, *workers = [pod["spec"] for pod in plan.create]
    commands = [each["command"] for each in launcher["containers"] if each.get("command")]
    assert commands == [["mpirun", "--mca", "btl", "^openib", *OPTIONS, *COMMAND]]
    assert all(not (each.get("resources") or {}).get("limits") for each in launcher["containers"])
    for each in workers:
        assert [found.get("command") for found in each["containers"]] == [None, ["/usr/sbin/sshd", "-De"]]
        assert each["containers"][1]["env"] == [{"name": "A", "value": "b"}]
    ((resource, config),) = plan.objects
    assert (resource, config["metadata"]["name"]) == (CONFIG_MAPS, f"{prefix}-config")
    assert config["data"] == {"hostfile": f"{prefix}-worker-0 slots=3\n{prefix}-worker-1 slots=3\n"}
    assert plan.create[1]["metadata"]["annotations"][PROCESSES] == "3"
    observed = ObservedJob(T9kMPIJob(), mpi_job(**spec), (), children={CONFIG_MAPS: [config]})
    assert tensorstack.decide(observed).objects == []


@pytest.mark.parametrize(
    ("options", "gpus", "slots"),
    [
        ([], 0, 1),
        ([], 4, 4),
        (["-N", "3"], 0, 3),
        (["-np", "5"], 0, 3),
        (["-np", "2"], 4, 4),
        (["-np", "x"], 0, 1),
    ],
)
def test_slots_of_a_worker_come_from_its_gpus_or_the_mpirun_options(
    options: list[str], gpus: int, slots: int
) -> None:
    job = mpi_job(worker={"replicas": 2, "extraMPIArgs": options, "cmd": ["x"], "template": worker(gpus)})
    assert T9kMPIJob().slots_of(job) == slots


def test_a_launcher_with_its_own_command_keeps_it() -> None:
    own = {"name": "mpi-launcher", "image": "i", "command": ["sh", "-c", "mpirun hostname"]}
    spec = {"replicaSpecs": [{"type": "launcher", "template": {"spec": {"containers": [own]}}}]}
    (pod,) = decide_mpi(mpi_job(**spec)).create
    assert pod["spec"]["containers"][0]["command"] == own["command"]


def test_the_older_switch_ends_the_workers_of_a_finished_job() -> None:
    for switch, kept in ((True, 0), (False, 2), (None, 2)):
        obj = mpi_job(**OLDER, runPolicy={"cleanUpWorkers": switch})
        launcher, *workers = there(decide_mpi(obj), "Running")
        launcher["status"]["phase"] = "Succeeded"
        plan = decide_mpi(obj, launcher, *workers)
        assert plan.status["phase"] == "Succeeded"
        assert 2 - len(plan.delete) == kept


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"logDir": {"pvc": [{"name": "v", "subPath": ["./log"]}]}}, ["--logdir", "/t9k/logs/v/log"]),
        ({"logDir": {"pvc": [{"name": "v"}]}}, ["--logdir", "/t9k/logs/v"]),
        ({"trainingLogFilesets": ["t9k://pvc/v/runs/a"]}, ["--logdir", "/t9k/logs/v/runs/a"]),
        (
            {"logDir": {"pvc": [{"name": "v", "subPath": ["a", "b"]}, {"name": "w"}]}},
            ["--logdir_spec", "v/a:/t9k/logs/v/a,v/b:/t9k/logs/v/b,w:/t9k/logs/w"],
        ),
    ],
)
def test_tensorboard_reads_the_log_folders_of_the_mounted_claims(
    asked: dict[str, Any], words: list[str]
) -> None:
    observed = ObservedJob(KIND, job(tensorboardSpec=asked), ())
    (_, deployment), (_, service) = tensorstack.tensorboard_of(observed)
    pod_spec = deployment["spec"]["template"]["spec"]
    (container,) = pod_spec["containers"]
    assert container["command"] == ["tensorboard", *words, "--host", "0.0.0.0"]
    mounted = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    claims = {each["name"]: each["persistentVolumeClaim"]["claimName"] for each in pod_spec["volumes"]}
    assert mounted == {volume: f"/t9k/logs/{claim}" for volume, claim in claims.items()}
    assert service["metadata"]["labels"] == {"role": "tensorboard", "release": "bert"}
    assert service["spec"]["selector"].items() <= deployment["spec"]["template"]["metadata"]["labels"].items()


@pytest.mark.parametrize("asked", [None, {}, {"logDir": {"pvc": []}}, {"image": "tensorflow/tensorflow"}])
def test_a_job_that_names_no_folder_has_none(asked: dict[str, Any] | None) -> None:
    assert tensorstack.tensorboard_of(ObservedJob(KIND, job(tensorboardSpec=asked), ())) == []


def test_a_job_reports_its_tensorboard_status() -> None:
    asking = job(tensorboardSpec={"trainingLogFilesets": ["t9k://pvc/v/runs"]})
    first = tensorstack.decide(ObservedJob(KIND, asking, ()))
    assert [resource for resource, _ in first.objects] == [DEPLOYMENTS, SERVICES]
    assert first.status["tensorboard"]["ready"] is False
    children = {resource: [{**obj, "status": {"availableReplicas": 1}}] for resource, obj in first.objects}
    ready = tensorstack.decide(ObservedJob(KIND, asking, (), children=children))
    assert (ready.objects, ready.status["tensorboard"]["ready"]) == ([], True)
