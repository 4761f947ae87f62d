"""Jobs that wait, one row for each cause: the sentence, and the advice; also for malformed objects."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from msgspec.structs import replace

from k8s.kinds import JobRef
from k8s.models.namespace import Claim, Quota
from k8s.reasons import objects as o
from k8s.reasons.gather import answer_why
from k8s.reasons.requests import ObjectVolumeSource, Volume
from k8s.reasons.rules import explain
from k8s.snapshot import ClusterSnapshot
from k8s.status import Status
from k8s.text.errors import KubeError
from tests.scripted.server import Answer as Say
from tests.scripted.server import ScriptedCluster
from tests.support.evidence import (
    Case,
    ago,
    case,
    check,
    event,
    evidence_of,
    explained,
    held,
    ids,
    instance,
    job_of,
    on_node,
    pod,
    read,
    silent,
    spec_of,
    starting,
    waiting,
)
from tests.support.objects import GPU, Object, node, pod_of, pytorch_job

PODLESS = instance(has_pod=False)


SUSPENDED = pytorch_job("bert", labels={"kueue.x-k8s.io/queue-name": "research"})
SUSPENDED["spec"]["runPolicy"] = {"suspend": True}
SUSPENDED_BY_USER = pytorch_job("bert") | {"spec": SUSPENDED["spec"], "status": {"conditions": []}}
DELETED = pytorch_job("bert", finalizers=["lab/keep"])
NOT_VALID = "PyTorchJobSpec is not valid: 1 worker at least"
NOT_ACCEPTED = (event("bert", "PyTorchJobFailedValidation", NOT_VALID, kind="PyTorchJob"),)
MADE = [{"type": "Created", "status": "True", "message": "PyTorchJob bert is created."}]
NO_QUOTA = {
    "type": "QuotaReserved",
    "status": "False",
    "reason": "Pending",
    "message": "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu",
}
RESERVED, ADMITTED = ({"type": each, "status": "True"} for each in ("QuotaReserved", "Admitted"))
QUEUE = {"research": read(o.LocalQueue, {"metadata": {"name": "q"}, "spec": {"clusterQueue": "gpus"}})}
PREEMPTED = {"type": "Evicted", "status": "True", "reason": "Preempted"}
URGENT = replace(job_of([]), ref=JobRef("lab", "urgent", "Job", "batch/v1"), uid="u-7", user="mai")


def workload(*conditions: Object, status: Object | None = None, **spec: Any) -> o.Workload:
    meta = {"name": "pytorchjob-bert", "namespace": "default"}
    decided = {"conditions": list(conditions), **(status or {})}
    found: o.Workload = read(
        o.Workload, {"metadata": meta, "spec": {"queueName": "research", **spec}, "status": decided}
    )
    return found


def queued(sentence: str, facts: tuple[str, ...] = (), **parts: Any) -> Case:
    return case(sentence, PODLESS, facts=facts, status=Status.QUEUED, manifest=SUSPENDED, **parts)


def accommodates(uid: str) -> o.Workload:
    message = f"Preempted to accommodate a workload (UID: w-1, JobUID: {uid}) due to reclamation"
    return workload(PREEMPTED | {"message": message})


def refused(message: str, sentence: str) -> Case:
    """Return a job whose pods the server refuses with a message."""
    events = (event("bert", "FailedCreatePod", f"Error creating: {message}", kind="PyTorchJob"),)
    facts = ("event: PyTorchJob/bert FailedCreatePod: Error creating:",)
    return case(sentence, PODLESS, facts=facts, events=events)


CREATION = "Its pods cannot be created:"
WITHOUT_PODS = [
    case("No operator acts on it: PyTorchJob bert has no status and no pods after 5 min.", PODLESS,
         help="Ask an administrator whether the operator for PyTorchJob is running.",
         manifest=pytorch_job("bert"), age_s=300),
    case("Was created 12 s ago; its operator has not reacted yet.", PODLESS,
         manifest=pytorch_job("bert"), age_s=12),
    case(f"Its operator rejects its spec: {NOT_VALID}.", PODLESS, events=NOT_ACCEPTED,
         help="Correct the spec, and submit the job again.",
         facts=(f"event: PyTorchJob PyTorchJobFailedValidation: {NOT_VALID}",)),
    case(f"Failed: Its operator rejects its spec: {NOT_VALID}.", PODLESS, events=NOT_ACCEPTED,
         status=Status.FAILED, help="Correct the spec, and submit the job again.",
         facts=(f"event: PyTorchJob PyTorchJobFailedValidation: {NOT_VALID}",)),
    case("It is gone: PyTorchJob bert was deleted.", is_gone=True),
    case("Is being deleted: 0 pods left; finalizers keep it: lab/keep.", PODLESS,
         status=Status.TERMINATING, manifest=DELETED),
    case("Is being deleted: 1 pod left on a.", instance(node="a"), status=Status.TERMINATING,
         manifest=DELETED),
    case("Has no pods: its operator has created none of 2, 5 min after it was created.", PODLESS,
         instance("worker-0", has_pod=False), conditions=MADE,
         facts=("job: Created is True: PyTorchJob bert is created",)),
    case("Suspended: its object says suspend, so it has no pods.", PODLESS, absent="pods: ",
         help="Resume it: gpuconsole resume bert", status=Status.SUSPENDED, manifest=SUSPENDED_BY_USER),
    case("Suspended: its object says suspend; 1 pod still there.", manifest=SUSPENDED_BY_USER),
    case("Waits in kube-queue, which has not admitted it.", PODLESS, status=Status.QUEUED,
         manifest=pytorch_job("bert", annotations={"scheduling.x-k8s.io/suspend": "true"})),
    queued("Waits in queue research (ClusterQueue gpus), 3 before it: couldn't assign flavors to pod set "
           "main: insufficient unused quota for nvidia.com/gpu.",
           ("queue: 3 before it in research, 5 in the ClusterQueue",),
           workload=workload(NO_QUOTA), local_queues=QUEUE, queue_positions=(3, 5)),
    queued("Waits in queue research (ClusterQueue gpus): quota is reserved, admission waits for provision "
           "(Pending).",
           workload=workload(RESERVED, status={"admission": {"clusterQueue": "gpus"}, "admissionChecks": [
               {"name": "provision", "state": "Pending", "message": "fetcher for nodes"}]})),
    queued("Waits in queue research: it was evicted, Preempted by li/urgent; couldn't…",
           workload=workload(PREEMPTED | {"message": "Preempted by li/urgent."}, NO_QUOTA)),
    queued("Waits in queue research: it was evicted, Preempted; the next attempt is in 90 s.",
           workload=workload(PREEMPTED, status={"requeueState": {"count": 1, "requeueAt": ago(-90)}})),
    queued("Kueue has deactivated it: its Workload in queue research is not active.",
           workload=workload(active=False)),
    queued("Waits in queue research: it was evicted, Preempted to accommodate urgent of mai due to "
           "reclamation.",
           workload=accommodates("u-7"), jobs=(URGENT,)),
    queued("Waits in queue research: it was evicted, Preempted to accommodate a workload (UID: w-1, JobUID: "
           "UNKNOWN) due to reclamation.", workload=accommodates("UNKNOWN"), jobs=(URGENT,)),
    queued("Waits in queue research: Kueue has created no Workload for it in 5 min."),
    case("Too big:…", pods=[pod("master-0")], nodes=[node("a", 4)], rows=[held("a", 4)],
         workload=workload(ADMITTED)),
    case("Its pods are gated: master-0 may not be scheduled until lab/approval is removed.",
         pods=[pod("master-0", spec_of(schedulingGates=[{"name": "lab/approval"}]), conditions=[])]),
    refused('pods "bert-master-0" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=8, '
            "used: requests.nvidia.com/gpu=12, limited: requests.nvidia.com/gpu=16",
            "Waits for quota: master-0 needs 8 nvidia.com/gpu; quota gpus has 4 of 16 left."),
    refused('pods "bert-master-0" is forbidden: exceeded quota: gpus, requested: cpu=32,requests.memory=2Ti, '
            "used: cpu=0,requests.memory=0, limited: cpu=16,requests.memory=4Ti",
            "Never starts: master-0 needs 32 cpu; quota gpus allows 16."),
    refused('pods "x" is forbidden: failed quota: cpus: must specify limits.cpu,limits.memory',
            f"{CREATION} quota cpus requires every container to set limits.cpu,limits.memory."),
    refused('pods "x" is forbidden: maximum memory usage per Container is 1Gi, but limit is 64Gi',
            f"{CREATION} a LimitRange says maximum memory usage per Container is 1Gi, but limit is 64Gi."),
    refused('pods "x" is forbidden: no PriorityClass with name urgent was found',
            f"{CREATION} there is no PriorityClass urgent."),
    refused('pods "x" is forbidden: error looking up service account default/trainer: serviceaccount '
            '"trainer" not found', f"{CREATION} there is no ServiceAccount trainer."),
    refused('pods "x" is forbidden: violates PodSecurity "restricted:latest": privileged (container "a")',
            f'{CREATION} PodSecurity restricted:latest forbids them: privileged (container "a").'),
    refused('admission webhook "policy.lab" denied the request: images must come from lab/',
            f"{CREATION} admission webhook policy.lab denies them: images must come from lab/."),
    refused("the moon is full", f"{CREATION} Error creating: the moon is full."),
    case(f"{CREATION} there is no ServiceAccount trainer.", PODLESS, accounts={"trainer": None}),
]  # fmt: skip


@pytest.mark.parametrize("case", WITHOUT_PODS, ids=ids)
def test_a_job_without_pods_is_explained(case: Case) -> None:
    check(case)


def test_a_quota_with_enough_left_or_for_other_pods_is_not_the_cause() -> None:
    key = f"requests.{GPU}"
    for used, scopes in (("8", []), ("12", ["BestEffort"])):
        status = {"hard": {key: "16"}, "used": {key: used}}
        other = read(Quota, {"metadata": {"name": "gpus"}, "spec": {"scopes": scopes}, "status": status})
        assert "quota" not in explained(PODLESS, quotas=(other,)).sentence


def test_a_job_on_another_cluster_names_the_cluster() -> None:
    job = replace(job_of([instance(has_pod=False, status=Status.UNKNOWN)], Status.RUNNING), is_elsewhere=True)
    checks = [{"name": "mk", "state": "Ready", "message": 'The workload got reservation on "worker-us"'}]
    for status, cluster in (
        ({"clusterName": "worker-eu"}, "worker-eu"),
        ({"admissionChecks": checks}, "worker-us"),
        ({}, "another cluster"),
    ):
        found = workload(ADMITTED, status=status)
        answer = explain(replace(evidence_of(instance()), job=job, workload=found))
        assert answer.sentence == f"Runs on {cluster}, its pods are not in this cluster."


MOUNTS = spec_of(volumes=[{"name": "d", "persistentVolumeClaim": {"claimName": "corpus"}}])
FULL: Mapping[str, Any] = {"nodes": [node("a")], "rows": [held("a", 8, gpt=8)]}
ROOM: Mapping[str, Any] = {"nodes": [node("a")], "rows": [held("a", 8)]}
MASTER: Mapping[str, Any] = {"pods": [pod("master-0")]}
WORKERS = [f"worker-{number}" for number in range(5)]
TWO_OF_FIVE: Mapping[str, Any] = {
    "pods": list(map(pod, WORKERS)),
    "nodes": list(map(node, "abcde")),
    "rows": [held("a", 8), held("b", 8), *(held(each, 8, gpt=8) for each in "cde")],
}


def unscheduled(message: str = "", spec: Object | None = None) -> list[o.FullPod]:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return [pod("master-0", spec, conditions=[condition])]


def grown(seconds_ago: float, *more: Any) -> Mapping[str, Any]:
    asked = event("bert-master-0", "TriggeredScaleUp", "gpu-pool 1->2", seconds_ago=seconds_ago)
    return {**MASTER, **FULL, "events": (asked, *more)}


def group(status: Object | None = None, name: str = "gang", **spec: Any) -> o.PodGroup:
    found: o.PodGroup = read(o.PodGroup, {"metadata": {"name": name}, "spec": spec, "status": status or {}})
    return found


def native(count: int) -> Object:
    return {"gang": {"minCount": count}}


IGNORED = spec_of(schedulerName="nobody")
CLAIMS = "0/1 nodes are available: 1 cannot allocate all claims."
APART = "0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules."
REQUIRED = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "kubernetes.io/hostname"}]}
AFFINE = spec_of(
    affinity={"podAffinity": REQUIRED, "podAntiAffinity": REQUIRED},
    topologySpreadConstraints=[
        {"topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": when}
        for key, when in (("zone", "DoNotSchedule"), ("rack", "ScheduleAnyway"))
    ],
)
TAINTED = node("a", 0, taints=[{"key": "k", "effect": "NoSchedule"}])
TAINTED["status"]["allocatable"]["pods"] = "110"
INQUEUE = {
    "phase": "Inqueue",
    "conditions": [
        {
            "type": "Unschedulable",
            "status": "True",
            "reason": "NotEnoughResources",
            "message": "2/4 tasks in gang",
        }
    ],
}
NOT_PLACED = {"conditions": [{"type": "PodGroupScheduled", "status": "False", "message": "2 of 3 placed"}]}
VOLCANO = group(INQUEUE, "bert", minMember=4, queue="lab")
LATE_CLAIM = read(
    Claim,
    {"metadata": {"name": "corpus"}, "spec": {"storageClassName": "fast"}, "status": {"phase": "Pending"}},
)
LATE = {
    "fast": read(o.StorageClass, {"metadata": {"name": "fast"}, "volumeBindingMode": "WaitForFirstConsumer"})
}
UNSCHEDULED = [
    case("Waits for GPUs: master-0 needs 8 nvidia.com/gpu; none is free (8 in use).",
         pods=[pod("master-0", MOUNTS)], **FULL, claims={"corpus": LATE_CLAIM}, storage_classes=LATE),
    case("No scheduler acts on it: nobody has not looked at master-0 for 5 min.",
         pods=[pod("master-0", IGNORED, conditions=[])], nodes=[node("a")]),
    case("Waits for scheduler nobody, which has not looked at master-0 for 20 s.",
         pods=[pod("master-0", IGNORED, age_s=20, conditions=[])], nodes=[node("a")]),
    case("Waits for new nodes, which the autoscaler requested 40 s ago: gpu-pool 1->2.",
         **grown(40), facts=("also: Waits for GPUs:",)),
    case("Waits for GPUs:…", **grown(2000)),
    case("Waits for GPUs:…", **grown(40, event("bert-master-0", "NotTriggerScaleUp", "max size",
         seconds_ago=5))),
    case("Waits for its gang: 5 must start together, 2 fit.", *map(instance, WORKERS), **TWO_OF_FIVE,
         pod_group=group(schedulingPolicy=native(5))),
    case("Waits for its gang: PodGroup gang is new.", **MASTER, **ROOM, pod_group=group(minMember=1)),
    case("Waits for its gang: 4 must start together, 2 fit.", *map(instance, WORKERS), **TWO_OF_FIVE,
         pod_group=group(minMember=4)),
    case("Waits for GPUs: room for 2 of 5 pods…", *map(instance, WORKERS), **TWO_OF_FIVE,
         pod_group=group(schedulingPolicy={"basic": {}}), absent="must fit at once"),
    case("Waits for its gang: 3 must start together, PodGroup g is new: 2 of 3 placed.", **MASTER,
         **ROOM,
         pod_group=group(NOT_PLACED, "g", schedulingPolicy=native(3))),
    case("Waits for its gang: 4 must start together, PodGroup bert is Inqueue in queue lab: 2/4 tasks "
         "in gang.", **MASTER, **ROOM, pod_group=VOLCANO),
    case("Waits for GPUs:…", **MASTER, **FULL, pod_group=VOLCANO,
         facts=("gang: PodGroup bert: all 4 pods must fit at once", "also: Waits for its gang:")),
    case("Waits until pods of lower priority have left a: master-0 goes there next.",
         pods=[pod("master-0", nominatedNodeName="a")], **ROOM),
    case(f"Waits for a node: master-0; the scheduler says {CLAIMS}", pods=unscheduled(CLAIMS),
         nodes=[node("a", 0)],
         facts=(f"scheduler: master-0: {CLAIMS[:-1]}",)),
    case(f"Waits for a node: master-0; the scheduler says {APART}", **ROOM,
         pods=unscheduled(f"{APART} preemption: none helps.", AFFINE),
         facts=("pods: must be beside certain other pods (podAffinity)",
                "pods: must not be beside certain other pods (podAntiAffinity)",
                "pods: must be spread evenly over zone",
                "nodes: by requests and labels alone there would be room")),
    case("Waits for a node: master-0; the scheduler says 0/9 nodes are available: 9 Insufficient "
         "nvidia.com/gpu.",
         pods=unscheduled(), unseen=("nodes: User cannot list resource nodes",), absent="nodes: by requests",
         events=(event("bert-master-0", "FailedScheduling",
                       "0/9 nodes are available: 9 Insufficient nvidia.com/gpu."),),
         facts=("unseen: nodes: User cannot list resource nodes",)),
    case("Never starts:…", pods=[pod("master-0", {"containers": []})], nodes=[TAINTED],
         facts=("nodes: a: 110 pods, tainted", "pods: master-0: no requests")),
]  # fmt: skip


@pytest.mark.parametrize("case", UNSCHEDULED, ids=ids)
def test_pods_without_a_node_are_explained(case: Case) -> None:
    check(case)


ILL = node("a")
ILL["status"]["conditions"] = [{"type": "Ready", "status": "False", "message": "disk is full"}]
HERE: Mapping[str, Any] = {"nodes": [node("a")]}
LAYERS = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create "
    "failed: unable to start container process: error during container init: error running prestart hook #0: "
    "exit status 1, stdout: , stderr: Auto-detected mode as 'legacy'\n"
)
FAULT = "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.9"
IMAGE = "Waits for its image: lab/train:1"


def unpulled(reason: str, message: str, why: str) -> Case:
    broken = starting(containerStatuses=[waiting(reason, message)])
    return case(f"{IMAGE} {why}…", on_node(reason=f"waits for image: {reason}"), pods=[broken], **HERE)


def unstarted(reason: str, message: str) -> Case:
    """Return a job whose runtime reports a driver that is too old."""
    pods = [starting(containerStatuses=[waiting(reason, message)])]
    help = "Use an image with an older CUDA version, or nodes with a newer driver."
    return case(f"Cannot start worker-0: {FAULT}.", on_node(), pods=pods, **HERE,
    facts=("cause: driver too old",),
                help=help)  # fmt: skip


def unmounted(message: str, what: str, help: str, volume: str = "c") -> Case:
    """Return a job whose kubelet misses an object or a key for a volume."""
    volumes = [
        Volume("c", config_map=ObjectVolumeSource("paths")),
        Volume("s", secret=ObjectVolumeSource(secret_name="wandb")),
    ]
    found = starting()
    found = structs.replace(found, spec=structs.replace(found.spec, volumes=volumes))
    said = f'MountVolume.SetUp failed for volume "{volume}" : {message}'
    late = "Unable to attach or mount volumes: unmounted volumes=[c], unattached volumes=[c]: timed out"
    events = tuple(event("bert-worker-0", "FailedMount", text) for text in (said, late))
    return case(f"Waits for {what}.", on_node(), pods=[found], **HERE, events=events, help=help)


def initial(name: str, **state: Any) -> Mapping[str, Any]:
    return {"pods": [starting(initContainerStatuses=[{"name": name, **state}])], **HERE}


EXISTING = "Create it, or name one that exists."
ADDED = "Add the key to the {}, or name another."
PULLING = (event("bert-worker-0", "Pulling", 'Pulling image "lab/train:1"'),)
MISSING_PULLS = (event("bert-worker-0", "Failed", 'Failed to pull image "lab/train:1": 403 Forbidden'),)
BACKS_OFF = starting(containerStatuses=[waiting("ImagePullBackOff", 'Back-off pulling image "lab/train:1"')])
MASTER_PULLS = instance("master-0", Status.STARTING, "waits for image: ErrImagePull", node="a")
CODE_FAILS = {
    "state": {"waiting": {"reason": "CrashLoopBackOff"}},
    "lastState": {"terminated": {"exitCode": 128, "message": "could not resolve host"}},
    "restartCount": 3,
}
BOUND = [
    case("Waits for node a, which has not answered for 10 min: worker-0 and worker-1 are bound to it.",
         on_node(), on_node("worker-1"), nodes=[silent("a")]),
    case("Waits for node a, which is no longer there: worker-0 is bound to it.", on_node(),
         nodes=[node("b")]),
    case("Waits for node a, which is not ready: worker-0 is bound to it.", on_node(), nodes=[ILL],
         facts=("nodes: a: Ready is False: disk is full",)),
    unpulled("ErrImageNeverPull", "is not present with pull policy of Never", "is not on the node, and"),
    unpulled("ErrImagePull", 'failed to resolve reference "lab/train:1": not found',
             "does not exist (worker-0 on"),
    unpulled("ErrImagePull", "manifest unknown", "does not exist (worker-0 on a)."),
    unpulled("ErrImagePull", "pull access denied, may require authorization",
             "does not exist, or needs a login"),
    unpulled("ErrImagePull", "unexpected status: 401 Unauthorized", "needs a login"),
    unpulled("ErrImagePull", "dial tcp: lookup registry.lab: no such host", "cannot be pulled: its registry"),
    unpulled("ErrImagePull", "toomanyrequests: You have reached your pull rate limit",
             "was pulled too often"),
    unpulled("InvalidImageName", "couldn't parse image reference", "is not a valid image name"),
    unpulled("ErrImagePull", "the dog ate it", "cannot be pulled (worker-0 on a)."),
    case("Waits for Secret registry-login, which does not exist in default.", on_node(), pods=[BACKS_OFF],
         **HERE,
         events=MISSING_PULLS, secrets={"registry-login": None},
         facts=(f"image: {IMAGE} needs a login (worker-0 on a).",)),
    case('Cannot start worker-0: exec: "trian": not found.', on_node(), **HERE,
         pods=[starting(containerStatuses=[waiting("RunContainerError", 'exec: "trian": not found')])]),
    unstarted("RunContainerError", f"{LAYERS}{FAULT}: unknown"),
    unstarted("StartError", f"{LAYERS}{FAULT}: unknown"),
    unstarted("CreateContainerError", f"{LAYERS}{FAULT}: unknown"),
    case('Waits for its volumes on a: MountVolume.SetUp failed for volume "x": mount failed: exit status 32 '
         "(worker-0).", on_node(), pods=[starting()], **HERE,
         events=(event("bert-worker-0", "FailedMount",
                       'MountVolume.SetUp failed for volume "x": mount failed: exit status 32'),)),
    case("Waits for its network on a: no network (worker-0).", on_node(), pods=[starting()], **HERE,
         events=(event("bert-worker-0", "FailedCreatePodSandBox", "no network"),)),
    unmounted('secret "y" not found', "Secret y, which does not exist in default", EXISTING),
    unmounted('configmap "y" not found', "ConfigMap y, which does not exist in default", EXISTING),
    unmounted("configmap references non-existent config key: k",
              "key k of ConfigMap paths, which has no such key", ADDED.format("ConfigMap")),
    unmounted("references non-existent secret key: k",
              "key k of Secret wandb, which has no such key", ADDED.format("Secret"), "s"),
    unmounted("references non-existent secret key: k",
              "key k of the Secret of volume projected, which has no such key", ADDED.format("Secret"),
              "projected"),
    case("Waits for the master: worker-0 looks for its name; master-0 is Starting: waits for image: "
         "ErrImagePull.",
         MASTER_PULLS, on_node(), **initial("init-pytorch", state={"running": {"startedAt": ago(60)}})),
    case("The code cannot be fetched: init-code of worker-0 ended with exit 128, 3 restarts so far: could "
         "not resolve host.", on_node(), **initial("init-code", **CODE_FAILS),
         help="See what it printed: gpuconsole logs bert -i worker-0 -c init-code"),
    case("Waits for init container init-code, which has been fetching the code in worker-0 for 90 s.",
         on_node(),
         **initial("init-code", state={"running": {"startedAt": ago(90)}})),
    case("Pulls its image: worker-0 waits for lab/train:1.", on_node(), pods=[starting()], **HERE,
         events=PULLING),
    case("Is being started: worker-0 on a; bound, its node has not started it.",
         on_node(reason="bound, its node has not started it"), pods=[starting()], **HERE),
]  # fmt: skip


@pytest.mark.parametrize("case", BOUND, ids=ids)
def test_pods_that_do_not_start_on_their_node_are_explained(case: Case) -> None:
    check(case)


def test_the_end_of_a_long_message_of_a_runtime_is_kept() -> None:
    long = starting(containerStatuses=[waiting("RunContainerError", f"{'layer: ' * 200}{FAULT}")])
    assert explained(on_node(), pods=[long], **HERE).sentence.endswith(f"{FAULT}.")


CORE = "/api/v1/namespaces/default"
OWN = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs/bert"
WORKLOADS = "/apis/kueue.x-k8s.io/v1beta1/namespaces/default/workloads"

_leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(
        [
            "bert",
            "a",
            "8",
            "-1",
            "True",
            "False",
            "2026-11-21T11:00:00Z",
            "0001-01-01T00:00:00+23:00",
            "default",
        ]
    )
)
_KEYS = [
    *("metadata", "name", "labels", "spec", "status", "items", "continue", "containers", "resources"),
    *("requests", "nvidia.com/gpu", "nodeName", "affinity", "nodeAffinity", "nodeSelectorTerms", "key"),
    *("operator", "values", "taints", "effect", "conditions", "type", "reason", "state", "waiting"),
    *("exitCode", "finishedAt", "hard", "used", "template", "suspend", "replicas", "volumes"),
]
_nonsense = st.recursive(
    _leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(_KEYS), inner, max_size=6),
    max_leaves=30,
)


def _mutated(obj: Any, draw: st.DataObject) -> Any:
    """Return an object of which some parts are something else."""
    if draw.draw(st.integers(0, 11)) == 0:
        return draw.draw(_nonsense)
    if isinstance(obj, dict):
        return {key: _mutated(value, draw) for key, value in obj.items()}
    if isinstance(obj, list):
        return [_mutated(value, draw) for value in obj]
    return obj


def _body(draw: st.DataObject, obj: Object) -> Say:
    kind = draw.draw(st.integers(0, 5))
    found = draw.draw(_nonsense) if kind == 0 else _mutated(obj, draw)
    if kind == 1:
        return Say(draw.draw(st.binary(max_size=40)))
    return Say(json.dumps(found).encode())


@pytest.mark.slow
@settings(max_examples=40)
@given(draw=st.data())
def test_a_diagnosis_of_malformed_objects_returns_an_answer_or_a_kube_error(draw: st.DataObject) -> None:
    asyncio.run(_ask_for_nonsense(draw))


async def _ask_for_nonsense(draw: st.DataObject) -> None:
    own = pytorch_job("bert", labels={"kueue.x-k8s.io/queue-name": "q"}) | {"status": {"conditions": []}}
    there = pod_of(own, "master-0", phase="Pending", conditions=[])
    there["spec"]["volumes"] = [{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}]
    event = {
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "name": "bert-master-0"},
        "reason": "FailedMount",
        "message": "m",
        "lastTimestamp": "2026-11-21T11:00:00Z",
    }
    taint = {"key": "k", "effect": "NoSchedule"}
    quota = {"metadata": {"name": "q"}, "status": {"hard": {"pods": "1"}, "used": {"pods": "1"}}}
    served: dict[str, Object] = {
        OWN: own,
        "/api/v1/nodes": {"items": [node("a", 8), node("b", 4, taints=[taint])]},
        "/api/v1/pods": {"items": [there]},
        f"{CORE}/pods": {"items": [there]},
        f"{CORE}/events": {"items": [event]},
        f"{CORE}/resourcequotas": {"items": [quota]},
        f"{CORE}/limitranges": {"items": [{"metadata": {"name": "l"}, "spec": {"limits": []}}]},
        f"{CORE}/persistentvolumeclaims/c": {"metadata": {"name": "c"}, "status": {"phase": "Pending"}},
        WORKLOADS: {"items": [{"metadata": {"name": "w"}, "status": {"conditions": []}}]},
    }
    status = draw.draw(st.sampled_from(list(Status)))
    with_node = draw.draw(st.sampled_from(["", "a"]))
    instances = [instance(status=status, node=with_node), instance("worker-0", has_pod=False)]
    async with ScriptedCluster() as cluster, cluster.client() as client:
        for path, obj in served.items():
            cluster.say(path, _body(draw, obj))
        try:
            job = job_of(instances, status)
            snapshot = ClusterSnapshot(jobs=(job,), nodes=(held("a", 8, gpt=4),), is_synced=True)
            answer = await answer_why(client, job, snapshot)
        except KubeError:
            return
        assert answer.sentence and answer.as_text()
