"""Objects of clusters of 1.34 to 1.37, and the sums and rows that they become.

Each line of a case is a node, `n1: 2 of 4, bert 2`, or a job, `bert: Running 2 of 2`, with its reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from k8s.diagnosis.evidence import Evidence
from k8s.diagnosis.rules import explain
from k8s.models import Node, Pod, Reader, convert
from k8s.models.dra import DeviceClaims, DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from k8s.reasons.objects import FullPod
from k8s.snapshot import Job, NodeRow, format_sums
from tests.support.evidence import NOW
from tests.support.objects import (
    GPU,
    RECORDED,
    Object,
    batch_job,
    join,
    listed,
    node,
    pod_of,
    pytorch_job,
    read_jobs,
)

AMD, NVIDIA = "gpu.amd.com", "gpu.nvidia.com"
_TYPES: dict[str, Any] = {
    "ResourceClaim": ResourceClaim,
    "ResourceSlice": ResourceSlice,
    "DeviceClass": DeviceClass,
    "DeviceTaintRule": DeviceTaintRule,
}


class Case(NamedTuple):
    title: str
    objects: list[Object]
    lines: list[str]


def shown(objects: Iterable[Object], *asked: str) -> list[str]:
    """Return the rows of nodes, pods, devices and jobs, and why some jobs are so.

    Nodes and pods may lack a kind.
    """
    objects = list(objects)
    kinds: dict[str, list[Object]] = {}
    for each in objects:
        default = "Pod" if "containers" in each["spec"] else "Node"
        kinds.setdefault(each.get("kind", default), []).append(each)
    nodes = Reader[Node](Node).read_list(listed(*kinds.pop("Node", [])))[1]
    pods = Reader[Pod](Pod).read_list(listed(*kinds.pop("Pod", [])))[1]
    devices = [convert(each, type_) for kind, type_ in _TYPES.items() for each in kinds.pop(kind, [])]
    merged_nodes, merged_pods = DeviceClaims().merge(nodes, pods, devices)
    jobs = read_jobs(*(each for of_kind in kinds.values() for each in of_kind))
    node_rows, job_rows = join(merged_nodes, merged_pods, jobs)
    full = {
        each["metadata"]["name"]: convert(each, FullPod) for each in objects if "containers" in each["spec"]
    }
    rows = {row.name: row for row in node_rows}
    evidence = [
        Evidence(job=job, now=NOW, node_rows=rows, nodes=tuple(merged_nodes), pods=full)
        for job in job_rows
        if job.ref.name in asked
    ]
    return [
        *map(node_line, node_rows),
        *map(job_line, sorted(job_rows, key=lambda job: job.ref.name)),
        *map(why_line, evidence),
    ]


def why_line(evidence: Evidence) -> str:
    answer = explain(evidence)
    facts = [fact.text for fact in answer.facts if fact.kind in ("gpu", "nodes")]
    return " | ".join((f"why {evidence.job.ref.name}: {answer.sentence}", *facts))


def node_line(row: NodeRow) -> str:
    bad = f", {row.gpus_unhealthy} out of order" if row.gpus_unhealthy else ""
    bad += f", {row.trouble}" if row.trouble else ""
    bad += "".join(f", {each} is not counted" for each in row.uncounted)
    held = [f"{job} {amount}" for _, job, amount in row.jobs]
    sums = format_sums([row], is_short=True)
    if row.shared is not None:
        sums = f"{row.shared.allocated_gib} of {row.shared.total_gib}G of {row.shared.devices} GPUs"
    mode = f" ({row.mode})" if row.mode not in ("exclusive", "dra", "normal", "share") else ""
    return ", ".join((f"{row.name}: {sums}{mode}{bad}", *held))


def job_line(job: Job) -> str:
    reason = f" ({job.reason})" if job.reason else ""
    amount = f"{job.gpu_fraction:g} of a GPU" if job.gpu_fraction else ""
    amount = amount or f"{job.gpus_allocated} of {job.gpus_requested}"
    return f"{job.ref.name}: {job.status} {amount}{reason}"


def check(cases: Iterable[Case]) -> None:
    failures = [
        (title, found, lines)
        for title, objects, lines in cases
        for asked in ([line[4:].partition(":")[0] for line in lines if line.startswith("why ")],)
        if (found := shown(objects, *asked)) != lines
    ]
    assert not failures, "\n".join(f"{title}:\n  {found}\n  {lines}" for title, found, lines in failures)


def device(name: str, *, of: str = "", kind: str = "", taint: str = "") -> Object:
    """Return a device; a partition of the card `of`, if that is given."""
    found: Object = {"name": name, "attributes": {"type": {"string": kind}} if kind else {}}
    if of:
        found["consumesCounters"] = [{"counterSet": of, "counters": {"memory": {"value": "10Gi"}}}]
    if taint:
        found["taints"] = [{"key": "lab.io/xid", "value": "79", "effect": taint}]
    return found


def slice_of(on: str, *devices: Object | str, driver: str = AMD) -> Object:
    return {
        "kind": "ResourceSlice",
        "metadata": {"name": f"{on}-{driver}"},
        "spec": {
            "driver": driver,
            "nodeName": on,
            "pool": {"name": on, "generation": 1, "resourceSliceCount": 1},
            "devices": [device(each) if isinstance(each, str) else each for each in devices],
        },
    }


def taint_rule(name: str, chosen: dict[str, Any] | None, effect: str = "NoSchedule") -> Object:
    taint = {"key": "ops/drain", "effect": effect, "timeAdded": "2026-11-20T08:00:00Z"}
    spec = {"taint": taint} | ({} if chosen is None else {"deviceSelector": chosen})
    return {"kind": "DeviceTaintRule", "metadata": {"name": name}, "spec": spec}


def claim(name: str, pool: str, devices: str, *users: str, driver: str = AMD, group: str = "") -> Object:
    """Return a claim that got `devices`, reserved for the pods of some uids, or for a PodGroup."""
    results = [
        {"request": "r", "driver": driver, "pool": pool, "device": each} for each in devices.split(",")
    ]
    reserved = [{"resource": "pods", "name": uid, "uid": uid} for uid in users]
    if group:
        reserved = [
            {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": group, "uid": f"g-{group}"}
        ]
    return {
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {},
        "status": {"allocation": {"devices": {"results": results}}, "reservedFor": reserved},
    }


def class_of(resource: str, driver: str, *types: str) -> Object:
    """Return the class of a driver's devices that limits on `resource` get."""
    expression = " && ".join(
        [f"device.driver == '{driver}'"]
        + [f"device.attributes['{driver}'].type == '{each}'" for each in types]
    )
    return {
        "kind": "DeviceClass",
        "metadata": {"name": f"{resource.partition('/')[2]}.{driver}"},
        "spec": {"extendedResourceName": resource, "selectors": [{"cel": {"expression": expression}}]},
    }


def lone(name: str, on: str, limits: dict[str, int] | None = None, **spec: Any) -> Object:
    """Return a running pod without an owner."""
    return {
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {
            "nodeName": on,
            "containers": [{"name": "m", "resources": {"limits": limits or {}}}],
            **spec,
        },
        "status": {"phase": "Running"},
    }


def served(pod: Object, *resources: str) -> Object:
    """Add the claim that the scheduler made for the limits of a pod."""
    mappings = [
        {"containerName": "m", "resourceName": each, "requestName": f"container-0-request-{n}"}
        for n, each in enumerate(resources)
    ]
    pod["status"]["extendedResourceClaimStatus"] = {
        "resourceClaimName": f"{pod['metadata']['name']}-extended-resources-x7",
        "requestMappings": mappings,
    }
    return pod


def bare(name: str) -> Object:
    """Return a node whose kubelet has no device plugin."""
    found = node(name)
    for amounts in ("allocatable", "capacity"):
        del found["status"][amounts][GPU]
    return found


def in_group(pod: Object, group: str, claim_name: str) -> Object:
    """Make a pod one of a PodGroup, and let it use a claim."""
    pod["spec"] |= {"schedulingGroup": {"podGroupName": group}, "resourceClaims": [{"name": "gpu"}]}
    pod["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": claim_name}]
    return pod


def recorded(name: str) -> list[Object]:
    found: Object = json.loads((RECORDED / f"{name}.json").read_bytes())
    items: list[Object] = found.get("items", [found])
    return items


def test_a_device_counts_once_on_its_node_in_its_job_and_in_every_sum() -> None:
    unclaimed = "0/2 nodes are available: 2 cannot allocate all claims"
    no_devices = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": unclaimed}
    sora = pytorch_job("sora", gpus=0)
    all_tainted = "devices g0, g1, g2, … tainted ops/drain:NoSchedule (rule all)"
    bert = pytorch_job("bert", gpus=3)
    extended = served(pod_of(bert, "master-0", on="n1", gpus=3, uid="p1"), GPU)
    of_bert = claim("bert-x", "n1", "a,b,c", "p1", driver=NVIDIA)
    offer = slice_of("n1", "a", "b", "c", "d", driver=NVIDIA)
    whole_class = class_of(GPU, NVIDIA, "gpu")
    parts = [device(f"gpu-{card}-{part}", of=f"gpu-{card}") for card in (0, 1) for part in range(4)]
    cut = slice_of("n1", *parts, device("gpu-0", of="gpu-0"), device("gpu-1", of="gpu-1"))
    check(
        [
            Case(
                "limits that a recorded 1.36 cluster serves with a claim",
                [bare("gpu-node-0"), *recorded("dra-extended-resource")],
                [
                    "gpu-node-0: 2 of 4, dra-ext 2",
                    "dra-ext: Starting 2 of 2 (pod-0 its container is being created)",
                ],
            ),
            Case(
                "the same for a user who may not read device classes",
                [bare("gpu-node-0"), *recorded("dra-extended-resource")[1:]],
                [
                    "gpu-node-0: 2 of 4, dra-ext 2",
                    "dra-ext: Starting 2 of 2 (pod-0 its container is being created)",
                ],
            ),
            Case(
                "a job whose limits a claim serves",
                [bare("n1"), extended, bert, of_bert, offer, whole_class],
                ["n1: 3 of 4, bert 3", "bert: Running 3 of 3"],
            ),
            Case(
                "limits whose slices may not be read",
                [bare("n1"), node("n2"), extended, bert, of_bert],
                ["n1: 3 of 3, bert 3", "n2: 0 of 8", "bert: Running 3 of 3"],
            ),
            Case(
                "limits of which nothing but the pod may be read",
                [bare("n1"), node("n2"), extended, bert],
                ["n1: 3 of 3, bert 3", "n2: 0 of 8", "bert: Running 3 of 3"],
            ),
            Case(
                "limits whose claim may not be read",
                [bare("n1"), extended, bert, offer, whole_class],
                ["n1: 3 of 4, bert 3", "bert: Running 3 of 3"],
            ),
            Case(
                "limits, and a claim of its own",
                [
                    bare("n1"),
                    extended,
                    bert,
                    of_bert,
                    claim("own", "n1", "d", "p1", driver=NVIDIA),
                    offer,
                    whole_class,
                ],
                ["n1: 4 of 4, bert 4", "bert: Running 4 of 4"],
            ),
            Case(
                "a node with a device plugin beside one with slices",
                [
                    bare("n1"),
                    node("n2", gpus=8),
                    extended,
                    bert,
                    of_bert,
                    lone("probe", "n2", {GPU: 5}),
                    offer,
                    whole_class,
                ],
                [
                    "n1: 3 of 4, bert 3",
                    "n2: 5 of 8, probe 5",
                    "bert: Running 3 of 3",
                    "probe: Running 5 of 5",
                ],
            ),
            Case(
                "two classes of one driver for different extended resources",
                [
                    bare("n1"),
                    extended,
                    bert,
                    of_bert,
                    offer,
                    class_of("amd.com/gpu", NVIDIA),
                    whole_class,
                ],
                ["n1: 3 of 4, bert 3", "bert: Running 3 of 3"],
            ),
            Case(
                "a class for the partitions of a card",
                [
                    bare("n1"),
                    served(lone("eval", "n1", {"nvidia.com/mig-1g.10gb": 1}), "nvidia.com/mig-1g.10gb"),
                    claim("e", "n1", "m", "eval", driver=NVIDIA),
                    slice_of("n1", device("a", of="a"), device("m", of="a", kind="mig"), driver=NVIDIA),
                    class_of("nvidia.com/mig-1g.10gb", NVIDIA, "mig"),
                    whole_class,
                ],
                ["n1: 1 of 1, eval 1", "eval: Running 1 of 1"],
            ),
            Case(
                "a job that gets its devices by claims alone",
                [
                    bare("n1"),
                    pytorch_job("glm", gpus=0),
                    pod_of(pytorch_job("glm"), "master-0", on="n1", gpus=0, uid="g"),
                    claim("g", "n1", "a,b", "g", driver=NVIDIA),
                    offer,
                    whole_class,
                ],
                ["n1: 2 of 4, glm 2", "glm: Running 2 of 2"],
            ),
            Case(
                "partitions of a card in two claims",
                [
                    bare("n1"),
                    lone("eval", "n1"),
                    lone("tune", "n1"),
                    cut,
                    claim("a", "n1", "gpu-1-0", "tune"),
                    claim("b", "n1", "gpu-1-2,gpu-1-3", "eval"),
                ],
                ["n1: 1 of 2, tune 1, eval shared", "eval: Running 0 of 0", "tune: Running 1 of 1"],
            ),
            Case(
                "partitions of both cards in one claim",
                [
                    bare("n1"),
                    lone("eval", "n1"),
                    cut,
                    claim("a", "n1", "gpu-0-1,gpu-1-1,gpu-1-2", "eval"),
                ],
                ["n1: 2 of 2, eval 2", "eval: Running 2 of 2"],
            ),
            Case(
                "shares of a device that several claims have",
                [
                    bare("n1"),
                    lone("eval", "n1"),
                    lone("tune", "n1"),
                    slice_of("n1", device("x") | {"allowMultipleAllocations": True}, "y"),
                    claim("a", "n1", "x", "eval"),
                    claim("b", "n1", "x", "tune"),
                ],
                ["n1: 1 of 2, eval 1, tune shared", "eval: Running 1 of 1", "tune: Running 0 of 0"],
            ),
            Case(
                "a claim that two pods share, of which the first has ended",
                [
                    bare("n1"),
                    lone("eval", "n1") | {"status": {"phase": "Succeeded"}},
                    lone("tune", "n1"),
                    slice_of("n1", "x"),
                    claim("a", "n1", "x", "eval", "tune"),
                ],
                ["n1: 1 of 1, tune 1", "tune: Running 1 of 1"],
            ),
            Case(
                "a claim reserved for a PodGroup",
                [
                    bare("n1"),
                    in_group(lone("eval", "n1"), "gang", "shared-x"),
                    in_group(lone("tune", "n1"), "gang", "shared-x"),
                    in_group(lone("odd", "n1"), "others", "shared-x"),
                    slice_of("n1", "x", "y"),
                    claim("shared-x", "n1", "x,y", group="gang"),
                ],
                ["n1: 2 of 2, eval 2, tune shared", "eval: Running 2 of 2", "tune: Running 0 of 0"],
            ),
            Case(
                "tainted devices are out of order, unless a taint only informs",
                [
                    bare("n1"),
                    slice_of("n1", "a", device("b", taint="NoExecute"), device("c", taint="None")),
                ],
                ["n1: 0 of 2, 1 out of order, device b tainted lab.io/xid=79:NoExecute"],
            ),
            Case(
                "a card is out of order once all its parts are tainted",
                [
                    bare("n1"),
                    slice_of(
                        "n1",
                        device("a-0", of="a", taint="NoSchedule"),
                        device("a-1", of="a"),
                        device("b-0", of="b", taint="NoSchedule"),
                        device("b-1", of="b", taint="NoSchedule"),
                    ),
                ],
                [
                    "n1: 0 of 1, 1 out of order, devices a-0, b-0, b-1 tainted lab.io/xid=79:NoSchedule",
                ],
            ),
            Case(
                "rules taint the devices that they select",
                [
                    bare("n1"),
                    slice_of("n1", "x", "y", "z"),
                    bare("n2"),
                    slice_of("n2", "x", "y"),
                    taint_rule("drain-x", {"driver": AMD, "device": "x"}),
                    taint_rule("drain-n1", {"pool": "n1", "device": "y"}, "NoExecute"),
                    taint_rule("dry-run", {"pool": "n2"}, "None"),
                    taint_rule("of-nothing", None),
                    taint_rule("of-others", {"driver": NVIDIA}),
                    taint_rule("by-cel", {"selectors": [{"cel": {"expression": "true"}}]}),
                    taint_rule("by-class", {"deviceClassName": "gpu.amd.com"}),
                ],
                [
                    "n1: 0 of 1, 2 out of order, device x tainted ops/drain:NoSchedule (rule drain-x); "
                    "device y tainted ops/drain:NoExecute (rule drain-n1)",
                    "n2: 0 of 1, 1 out of order, device x tainted ops/drain:NoSchedule (rule drain-x)",
                ],
            ),
            Case(
                "why a claim waits where a rule taints all devices",
                [
                    bare("n1"),
                    slice_of("n1", "g0", "g1", "g2", "g3"),
                    bare("n2"),
                    taint_rule("all", {}),
                    sora,
                    pod_of(sora, "master-0", gpus=0, phase="Pending", conditions=[no_devices]),
                ],
                [
                    f"n1: 0 of 0, 4 out of order, {all_tainted}",
                    "n2: 0 of 0",
                    f"sora: Pending 0 of 0 (master-0: {unclaimed})",
                    f"why sora: Waits for a node: master-0; the scheduler says {unclaimed}."
                    f" | n1: {all_tainted} | by requests and labels alone there would be room",
                ],
            ),
            Case(
                "a v1beta1 slice nests the properties of a device",
                [
                    bare("n1"),
                    slice_of(
                        "n1", {"name": "a", "basic": device("", of="card-a")}, {"name": "b", "basic": {}}
                    ),
                ],
                ["n1: 0 of 2"],
            ),
        ]
    )


def restarting(pod: Object, code: int, times: int, *values: int) -> Object:
    """Give the container of a pod a rule for some exit codes, and let it have exited."""
    rule = {"action": "Restart", "exitCodes": {"operator": "In", "values": list(values)}}
    pod["spec"]["restartPolicy"] = "Never"
    pod["spec"]["containers"][0] |= {"restartPolicy": "Never", "restartPolicyRules": [rule]}
    name = pod["spec"]["containers"][0]["name"]
    ended = {"terminated": {"exitCode": code, "reason": "Error"}}
    pod["status"]["containerStatuses"] = [{"name": name, "state": ended, "restartCount": times}]
    return pod


def set_of(name: str, pods: int, **status: Any) -> list[Object]:
    """Return a JobSet that restarts in place, and its running pods, each restarted as often."""
    template = {
        "spec": {"restartPolicy": "Never", "containers": [{"name": "w", "resources": {"limits": {GPU: 1}}}]}
    }
    group = {"name": "w", "replicas": 1, "template": {"spec": {"parallelism": pods, "template": template}}}
    owner: Object = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {
            "failurePolicy": {"maxRestarts": 5, "restartStrategy": "InPlaceRestart"},
            "replicatedJobs": [group],
        },
        "status": status,
    }
    found = [owner]
    for index in range(pods):
        pod = lone(f"{name}-w-0-{index}", "n1", {GPU: 1})
        pod["metadata"]["labels"] = {
            "jobset.sigs.k8s.io/jobset-name": name,
            "jobset.sigs.k8s.io/replicatedjob-name": "w",
            "batch.kubernetes.io/job-completion-index": str(index),
        }
        pod["metadata"]["ownerReferences"] = [
            {
                "kind": "JobSet",
                "apiVersion": owner["apiVersion"],
                "name": name,
                "uid": name,
                "controller": True,
            }
        ]
        found.append(restarting(pod, 42, status.get("currentInPlaceRestartAttempt", 0), 42))
    return found


def test_a_container_that_restarts_in_place_does_not_end_its_job() -> None:
    gemma = batch_job("gemma", pods=2, indexed=True, backoffLimit=4)
    up = pod_of(gemma, "1", on="n1", gpus=1)

    def first(code: int, times: int) -> Object:
        return restarting(pod_of(gemma, "0", on="n1", gpus=1), code, times, 42, 43)

    check(
        [
            Case(
                "a recorded pod between two runs",
                [node("gpu-node-0", gpus=2), *recorded("pod-restart-rule")],
                [
                    "gpu-node-0: 1 of 2, rule-restart 1",
                    "rule-restart: Restarting 1 of 1 (pod-0 exit 42, restarted once)",
                ],
            ),
            Case(
                "a pod of a Job that a rule restarts",
                [node("n1"), gemma, first(43, 3), up],
                [
                    "n1: 2 of 8, gemma 2",
                    "gemma: Restarting 2 of 2 (1 of 2 pods; pod-0 exit 43, restarted 3 times)",
                ],
            ),
            Case(
                "one for whose exit there is no rule",
                [node("n1"), gemma, first(1, 3), up],
                ["n1: 2 of 8, gemma 2", "gemma: Restarting 2 of 2 (1 of 2 pods; pod-0 exit 1)"],
            ),
            Case(
                "the attempts of a JobSet are not added to the restarts of its pods",
                [node("n1"), *set_of("llama", 3, currentInPlaceRestartAttempt=2, restarts=1)],
                ["n1: 3 of 8, llama 3", "llama: Restarting 3 of 3 (2 of 5: w-0 exit 42, restarted twice)"],
            ),
        ]
    )


def elsewhere(kind: str, **status: Any) -> Object:
    """Return a job of two GPUs that MultiKueue runs on another cluster."""
    job = batch_job("opus", pods=2) if kind == "Job" else pytorch_job("opus", workers=2, gpus=1)
    manager = {"managedBy": "kueue.x-k8s.io/multikueue"}
    job["spec"] |= manager if kind == "Job" else {"runPolicy": manager}
    return job | {"status": status}


def test_a_job_on_another_cluster_runs_and_holds_nothing_here() -> None:
    since = "2026-11-20T18:36:10Z"
    runs, reason = (
        {"type": "Running", "status": "True"},
        "runs on another cluster; its pods are not in this one",
    )
    waiting = "opus: Pending 0 of 2 (waits for a place on another cluster)"
    done = {"type": "Complete", "status": "True"}
    check(
        [
            Case(
                "a Job", [elsewhere("Job", active=2, startTime=since)], [f"opus: Running 0 of 2 ({reason})"]
            ),
            Case("a Job that has no place yet", [elsewhere("Job")], [waiting]),
            Case("a Job that has ended", [elsewhere("Job", conditions=[done])], ["opus: Succeeded 0 of 2"]),
            Case(
                "a PyTorchJob",
                [elsewhere("PyTorchJob", conditions=[runs], startTime=since)],
                [f"opus: Running 0 of 2 ({reason})"],
            ),
            Case("a PyTorchJob that has no place yet", [elsewhere("PyTorchJob")], [waiting]),
            Case(
                "a job that its own controller manages",
                [batch_job("opus", pods=2, managedBy="kubernetes.io/job-controller")],
                ["opus: Pending 0 of 2 (no pods yet)"],
            ),
        ]
    )
    job = join([], [], read_jobs(elsewhere("Job", active=2, startTime=since)))[1][0]
    assert (job.gpus_waiting, job.started is not None) == (0, True)
    assert {(each.status, each.reason) for each in job.instances} == {("Unknown", "in another cluster")}


def test_replica_types_are_read_in_any_case() -> None:
    job, pods = pytorch_job("t5", workers=2, gpus=2), []
    specs = job["spec"]["pytorchReplicaSpecs"]
    for place in ("master-0", "worker-0"):
        pods.append(pod_of(job, place, on="n1", gpus=2))
    job["spec"]["pytorchReplicaSpecs"] = {"master": specs["Master"], "WORKER": specs["Worker"]}
    launcher = {"replicas": 1, "template": {"spec": {"containers": [{"name": "l"}]}}}
    mpi: Object = {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": "ring", "namespace": "default", "uid": "ring"},
        "spec": {"mpiReplicaSpecs": {"launcher": launcher, "worker": specs["Worker"] | {"replicas": 3}}},
    }
    check(
        [
            Case("a PyTorchJob", [node("n1"), job, *pods], ["n1: 4 of 8, t5 4", "t5: Running 4 of 4"]),
            Case("an MPIJob", [mpi], ["ring: Pending 0 of 6 (no pods yet: its operator has not answered)"]),
        ]
    )


def ill(name: str, *conditions: str, cordoned: bool = False, **marks: str) -> Object:
    """Return a Ready node with further conditions, each `Type Status Reason`, and with labels."""
    found = node(name, **({"unschedulable": True} if cordoned else {}))
    for each in conditions:
        kind, status, reason, *message = each.split(" ", 3)
        found["status"]["conditions"].append(
            {"type": kind, "status": status, "reason": reason, "message": "".join(message)}
        )
    found["metadata"]["labels"] = {
        key.replace("__", "/").replace("_", "-"): text for key, text in marks.items()
    }
    return found


def with_devices(pod: Object, *health: str) -> Object:
    """Let a pod report the health of its GPUs a, b, …"""
    devices = [{"resourceID": f"GPU-{chr(97 + n)}", "health": each} for n, each in enumerate(health)]
    pod["status"]["containerStatuses"] = [
        {
            "name": "pytorch",
            "state": {"running": {}},
            "allocatedResourcesStatus": [{"name": GPU, "resources": devices}],
        }
    ]
    return pod


def test_faults_of_nodes_and_devices_are_shown_and_explain_their_jobs() -> None:
    yi = pytorch_job("yi", workers=2, gpus=2)
    pods = [pod_of(yi, place, on="n1", gpus=2) for place in ("master-0", "worker-0")]
    held = ["n1: 4 of 8, yi 4", "yi: Running 4 of 4"]
    reason, ill_gpu = (f"worker-0{colon} nvidia.com/gpu GPU-b is unhealthy" for colon in ("", ":"))
    unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    waiting = pod_of(yi, "master-0", gpus=2, phase="Pending", conditions=[unscheduled])
    sentinel = ill(
        "n1",
        "GpuMemWatch True GpuMemWatchIsNotHealthy DCGM_FR_VOLATILE_DBE_DETECTED GPU:3",
        "GpuPcieWatch False GpuPcieWatchIsHealthy No health failures",
        cordoned=True,
        k8saas_nvidia_com__cordon_by="NVSentinel",
        k8saas_nvidia_com__cordon_reason="GPU-fatal",
    )
    marks = sentinel["metadata"]["labels"]
    sentinel["metadata"]["labels"] = {
        key.replace("k8saas-nvidia-com", "k8saas.nvidia.com"): marks[key] for key in marks
    }
    dbe = "GpuMemWatch (DCGM_FR_VOLATILE_DBE_DETECTED GPU:3); cordoned by NVSentinel: GPU-fatal"
    check(
        [
            Case(
                "an unhealthy device of a running pod",
                [
                    node("n1"),
                    yi,
                    pods[0],
                    with_devices(pod_of(yi, "worker-0", on="n1", gpus=2), "Healthy", "Unhealthy"),
                ],
                [
                    held[0],
                    f"yi: Running 4 of 4 ({reason})",
                    f"why yi: It runs, but on a device that is out of order: {ill_gpu}. | {ill_gpu}",
                ],
            ),
            Case(
                "a device of which nothing is known",
                [
                    node("n1"),
                    yi,
                    pods[0],
                    with_devices(pod_of(yi, "worker-0", on="n1", gpus=2), "Unknown", "Healthy"),
                ],
                held,
            ),
            Case(
                "conditions that are bad when true",
                [
                    ill(
                        "n1",
                        "KernelDeadlock True DockerHung",
                        "GPUProblem True Xid79",
                        "FrequentKubeletRestart True F",
                    )
                ],
                ["n1: 0 of 8, KernelDeadlock (DockerHung); GPUProblem (Xid79); FrequentKubeletRestart (F)"],
            ),
            Case(
                "the same on a node that is well",
                [
                    ill(
                        "n1",
                        "KernelDeadlock False KernelHasNoDeadlock",
                        "ReadonlyFilesystem False X",
                        "XIDErrors False N",
                    )
                ],
                ["n1: 0 of 8"],
            ),
            Case(
                "conditions that are bad when false",
                [ill("n1", "AcceleratedHardwareReady False NvidiaXID79Error", "IbHealthy False LinkDown")],
                ["n1: 0 of 8, AcceleratedHardwareReady (NvidiaXID79Error); IbHealthy (LinkDown)"],
            ),
            Case(
                "the same on a node that is well",
                [ill("n1", "AcceleratedHardwareReady True NvidiaReady", "IbHealthy Unknown NotRead")],
                ["n1: 0 of 8"],
            ),
            Case(
                "types that tell nothing, and one whose reason does",
                [
                    ill(
                        "n1",
                        "EtcdIsVoter False NoMember",
                        "UpdateAvailable True New",
                        "GpuHealth False GpuUnhealthy",
                    )
                ],
                ["n1: 0 of 8, GpuHealth (GpuUnhealthy)"],
            ),
            Case(
                "a job on a node that NVSentinel closed",
                [sentinel, yi, *pods],
                [f"n1: 4 of 8, {dbe}, yi 4", held[1], f"why yi: It runs: 2 of 2 pods. | n1: {dbe}"],
            ),
            Case(
                "a job that waits for such a node",
                [sentinel, pytorch_job("yi", gpus=2), waiting],
                [
                    f"n1: 0 of 8, {dbe}",
                    "yi: Pending 0 of 2 (master-0: Unschedulable)",
                    "why yi: Waits for a node: master-0 needs 2 nvidia.com/gpu; no node that is large enough "
                    "accepts it (1 node cordoned). | cordoned: n1 (by NVSentinel: GPU-fatal, GpuMemWatch)"
                    " | n1: 8 of 8 nvidia.com/gpu free, cordoned",
                ],
            ),
            Case(
                "one that was evicted from a node with a fault",
                [
                    ill("n1", "DiskPressure True KubeletHasDiskPressure"),
                    pytorch_job("yi", gpus=2),
                    pod_of(
                        yi,
                        "master-0",
                        on="n1",
                        gpus=2,
                        phase="Failed",
                        reason="Evicted",
                        message="low on disk",
                    ),
                ],
                [
                    "n1: 0 of 8, DiskPressure (KubeletHasDiskPressure)",
                    "yi: Restarting 0 of 2 (master-0 Evicted: low on disk)",
                    "why yi: Restarts: master-0 was evicted from n1: low on disk."
                    " | n1: DiskPressure (KubeletHasDiskPressure)",
                ],
            ),
        ]
    )


def amounts_of(text: str) -> dict[str, int]:
    return {name: int(amount) for name, _, amount in (each.rpartition("=") for each in text.split())}


def offering(text: str, marks: dict[str, str]) -> Object:
    """Return a node with amounts, `nvidia.com/gpu=8 …`, and with labels and annotations (`@key`)."""
    found = bare("n1")
    found["metadata"] |= {
        "labels": {key: value for key, value in marks.items() if key[0] != "@"},
        "annotations": {key[1:]: value for key, value in marks.items() if key[0] == "@"},
    }
    for name in ("allocatable", "capacity"):
        found["status"][name] |= amounts_of(text)
    return found


def test_parts_of_gpus_are_not_counted_as_gpus() -> None:
    card = "GPU-%d,10,81559,100,NVIDIA-NVIDIA A100-SXM4-80GB,0,true:"
    gfd = {"nvidia.com/gpu.product": "NVIDIA-A10-SHARED", "nvidia.com/gpu.count": "2"}
    gke = "cloud.google.com/gke-"
    clients = {f"{gke}gpu-sharing-strategy": "time-sharing", f"{gke}max-shared-clients-per-gpu": "6"}
    hami = {"@hami.io/node-nvidia-register": "".join(card % n for n in range(8))}
    as_json = {"@hami.io/node-nvidia-register": json.dumps([{"id": f"GPU-{n}", "count": 5} for n in "ab"])}
    single = {
        "nvidia.com/mig.strategy": "single",
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3-MIG-1g.20gb",
    }
    volcano = {"@volcano.sh/node-vgpu-register": card % 1 + card % 2}
    odd = {"accelerator": "acme-x1", "zone": "a"}
    amd = "amd.com/compute-memory-partition"
    cce = "volcano.sh/gpu-mem.128Mi=%d volcano.sh/gpu-core.percentage=%d"
    qgpu = "tke.cloud.tencent.com/qgpu-core=%d tke.cloud.tencent.com/qgpu-memory=%d"
    neuron = " ".join(f"aws.amazon.com/neuron{each}" for each in ("=16", "core=32", "device=16"))
    nv = "nvidia.com"
    rows: list[tuple[str, str, dict[str, str], str, str]] = [
        ("HAMi", f"{nv}/gpu=80", hami, f"{nv}/gpu=3", "3 of 80 shares of 8 GPUs (vgpu), a 3"),
        ("HAMi with JSON", f"{nv}/gpu=10", as_json, "", "0 of 10 shares of 2 GPUs (vgpu)"),
        ("HAMi with one share a card", f"{nv}/gpu=8", hami, "", "0 of 8"),
        ("a broken register", f"{nv}/gpu=8", {"@hami.io/node-nvidia-register": "[{"}, "", "0 of 8"),
        (
            "Volcano",
            "volcano.sh/vgpu-number=20",
            volcano,
            "volcano.sh/vgpu-number=1",
            "1 of 20 shares of 2 GPUs (vgpu), a 1",
        ),
        (
            "time slices",
            f"{nv}/gpu=8",
            gfd | {f"{nv}/gpu.replicas": "4"},
            f"{nv}/gpu=1",
            "1 of 8 shares of 2 GPUs (time-slicing), a 1",
        ),
        (
            "MPS",
            f"{nv}/gpu=8",
            gfd | {f"{nv}/gpu.sharing-strategy": "mps"},
            "",
            "0 of 8 shares of 2 GPUs (mps)",
        ),
        (
            "slices by name",
            f"{nv}/gpu.shared=8",
            {},
            f"{nv}/gpu.shared=2",
            "2 of 8 shares (time-slicing), a 2",
        ),
        ("GKE's time-sharing", f"{nv}/gpu=12", clients, "", "0 of 12 shares of 2 GPUs (time-slicing)"),
        (
            "GKE's partitions",
            f"{nv}/gpu=24",
            {f"{gke}gpu-partition-size": "2g.10gb"},
            "",
            "0 of 24 shares of 8 GPUs (mig)",
        ),
        (
            "both of them",
            f"{nv}/gpu=84",
            {f"{gke}gpu-partition-size": "1g.5gb"} | clients,
            "",
            "0 of 84 shares of 2 GPUs (mig)",
        ),
        ("MIG as GPUs", f"{nv}/gpu=16", single, "", "0 of 16 shares of 4 GPUs (mig)"),
        (
            "whole GPUs and slices",
            f"{nv}/gpu=4 {nv}/mig-3g.40gb=8",
            {},
            f"{nv}/gpu=4",
            "4 of 4 GPUs and 0 of 8 shares of 4 GPUs (exclusive, mig), a 4",
        ),
        ("slices of two sizes", f"{nv}/mig-3g.40gb=4 {nv}/mig-1g.10gb=8", {}, "", "0 of 12 shares (mig)"),
        ("AMD's CPX", "amd.com/gpu=64", {amd: "cpx_nps4"}, "", "0 of 64 shares of 8 GPUs (partitions)"),
        (
            "the same by name",
            "amd.com/cpx_nps4=16",
            {},
            "amd.com/cpx_nps4=3",
            "3 of 16 shares of 2 GPUs (partitions), a 3",
        ),
        ("whole GPUs of AMD", "amd.com/gpu=8", {amd: "spx_nps1"}, "", "0 of 8"),
        ("CCE", cce % (640, 200), {}, cce % (40, 25), "5 of 80G of 2 GPUs, a 5G"),
        ("qGPU", qgpu % (400, 96), {}, qgpu % (20, 8), "8 of 96G of 4 GPUs, a 8G"),
        (
            "vGPUs of virtual machines",
            f"{nv}/GRID_T4-8Q=4",
            {},
            f"{nv}/GRID_T4-8Q=1",
            "1 of 4 shares (vgpu), a 1",
        ),
        ("passed through", f"{nv}/GH100_H100_SXM5_80GB=8", {}, f"{nv}/GH100_H100_SXM5_80GB=2", "2 of 8, a 2"),
        ("Ascend on CCE", "huawei.com/ascend-1980=8", {}, "huawei.com/ascend-1980=8", "8 of 8, a 8"),
        ("Neuron's chips and cores", neuron, {}, "aws.amazon.com/neuroncore=3", "2 of 16, a 3"),
        ("Neuron's chips", neuron, {}, "aws.amazon.com/neuron=4", "4 of 16, a 4"),
        ("unknown", "acme.io/npu=8 rdma/ib=4", odd, "", "0 of 0, acme.io/npu is not counted"),
        ("the same without a label", "acme.io/npu=8", {}, "", "0 of 0"),
    ]
    for name in ("hygon.com/dcunum", "mthreads.com/gpu", "cambricon.com/mlu370"):
        rows.append((name, f"{name}=8", {}, f"{name}=2", "2 of 8, a 2"))
    for title, offers, marks, takes, line in rows:
        pods = [lone("a", "n1", amounts_of(takes))] if takes else []
        assert shown([offering(offers, marks), *pods])[0] == f"n1: {line}", title


def grouped(name: str, group: str, total: str, *, gpus: int = 4, on: str = "n1", **status: Any) -> Object:
    """Return a plain pod of a group of Kueue."""
    pod = lone(name, on, {GPU: gpus})
    pod["metadata"]["labels"] = {
        "kueue.x-k8s.io/pod-group-name": group,
        "kueue.x-k8s.io/queue-name": "research",
    }
    pod["metadata"]["annotations"] = {"kueue.x-k8s.io/pod-group-total-count": total}
    pod["status"] |= status
    return pod


def fraction(name: str, group: str, **annotations: str) -> Object:
    """Return a pod that shares a GPU by KAI."""
    pod = lone(name, "n1")
    pod["metadata"]["annotations"] = {key.replace("_", "-"): text for key, text in annotations.items()}
    pod["metadata"]["labels"] = {"runai-gpu-group": group}
    return pod


def reservation(group: str) -> Object:
    pod = lone(f"gpu-reservation-{group}", "n1", {GPU: 1})
    pod["metadata"] |= {"namespace": "kai-resource-reservation", "labels": {"runai-gpu-group": group}}
    return pod


def test_plain_pods_of_a_group_and_fractions_of_a_gpu_are_jobs_and_reservations_are_not() -> None:
    gate = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
    ended: Object = {"phase": "Succeeded"}
    check(
        [
            Case(
                "a group whose last pod is still to come",
                [node("n1"), grouped("a", "sora", "3"), grouped("b", "sora", "3")],
                ["n1: 8 of 8, sora 8", "sora: Running 8 of 12 (2 of 3 pods; 1 not created yet)"],
            ),
            Case(
                "a group that waits for Kueue",
                [
                    node("n1"),
                    *(grouped(each, "sora", "2", on="", phase="Pending", conditions=[gate]) for each in "ab"),
                ],
                ["n1: 0 of 8", "sora: Pending 0 of 8 (pod-0: SchedulingGated)"],
            ),
            Case(
                "a group that has ended",
                [node("n1"), grouped("a", "sora", "2", **ended), grouped("b", "sora", "2", **ended)],
                ["n1: 0 of 8", "sora: Succeeded 0 of 8"],
            ),
            Case(
                "one of which a pod failed",
                [node("n1"), grouped("a", "sora", "2", **ended), grouped("b", "sora", "2", phase="Failed")],
                ["n1: 0 of 8", "sora: Failed 0 of 8 (pod-1 failed)"],
            ),
            Case(
                "a group without a size, and another pod",
                [node("n1"), grouped("a", "sora", "many"), lone("probe", "n1", {GPU: 1})],
                ["n1: 5 of 8, sora 4, probe 1", "probe: Running 1 of 1", "sora: Running 4 of 4"],
            ),
            Case(
                "two fractions of one GPU",
                [
                    node("n1"),
                    reservation("g"),
                    fraction("eval", "g", gpu_fraction="0.5"),
                    fraction("tune", "g", gpu_fraction="0.25"),
                ],
                [
                    "n1: 1 of 8, eval 0.5, tune 0.25",
                    "eval: Running 0.5 of a GPU",
                    "tune: Running 0.25 of a GPU",
                ],
            ),
            Case(
                "fractions of several GPUs, and memory of one",
                [
                    node("n1"),
                    *map(reservation, "ghi"),
                    fraction("eval", "g", gpu_fraction="0.5", gpu_fraction_num_devices="2"),
                    fraction("tune", "i", gpu_memory="4000"),
                ],
                ["n1: 3 of 8, eval 1, tune shared", "eval: Running 1 of a GPU", "tune: Running 0 of 0"],
            ),
            Case(
                "a reservation whose pods may not be read",
                [node("n1"), reservation("g")],
                ["n1: 1 of 8"],
            ),
            Case(
                "fractions that are no numbers",
                [
                    node("n1"),
                    fraction("eval", "g", gpu_fraction="half"),
                    fraction("tune", "g", gpu_fraction="nan"),
                ],
                ["n1: 0 of 8"],
            ),
        ]
    )
