"""One cause has one sentence: in `why` and its short form, preflight of flags and of a file, and the form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from k8s.cluster.cluster_mirror import ClusterMirror
from k8s.jobs.create import job_objects
from k8s.kinds import CREATABLE
from k8s.kinds.job_spec import EnvSource, JobSpec, Mount
from k8s.reasons.cause import Cause
from k8s.reasons.cluster_checks import check_against_cluster
from k8s.reasons.gather import answer_why
from k8s.reasons.job_reasons import JobReasons
from k8s.snapshot import ClusterSnapshot
from tests.scripted.server import Answer, Compute, Reply, ScriptedCluster, page
from tests.support.new_job_form import form_values
from tests.support.objects import GPU, Object, joined, node, pod_of, pytorch_job
from tui.draft.job_draft import parse_values
from tui.draft.manifest_yaml import ManifestObject
from tui.draft.preflight import check_manifests, check_submit, preflight
from tui.tables.filters import own_names

KIND = next(kind for kind in CREATABLE if kind.resource.kind == "PyTorchJob")
SPACE = "/api/v1/namespaces/default"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
QUEUE = "/apis/kueue.x-k8s.io/v1beta1/namespaces/default/localqueues/team"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
JOBS = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
CREATED = "2026-11-01T00:00:00Z"
ON_DATA: Mapping[str, Any] = {"mounts": (Mount("data", "/data"),)}
WANDB: Mapping[str, Any] = {"env_from": (EnvSource(True, "wandb", "key", "KEY"),)}
KEY = f"requests.{GPU}"
TAINT = {"key": "team", "value": "vision", "effect": "NoSchedule"}
CLAIM = "Waits for volume claim data"
NO_ANSWERS: Mapping[str, Reply] = {}
REFUSED = "Its pods cannot be created:"
INACTIVE = {"type": "Active", "status": "False", "message": "it is stopped."}
STOPPED = {QUEUE: Answer({"metadata": {"name": "team"}, "status": {"conditions": [INACTIVE]}})}


def claim(phase: str, storage_class: str = "", **meta: str) -> Mapping[str, Reply]:
    spec = {"accessModes": ["ReadWriteMany"], "storageClassName": storage_class, "volumeName": "pv-1"}
    obj = {"metadata": {"name": "data", **meta}, "spec": spec, "status": {"phase": phase}}
    return {f"{SPACE}/persistentvolumeclaims/data": Answer(obj)}


def quota(hard: Mapping[str, str], used: Mapping[str, str] | None = None) -> Mapping[str, Reply]:
    status = {"hard": hard, "used": used or {}}
    return {f"{SPACE}/resourcequotas": page([{"metadata": {"name": "team"}, "spec": {}, "status": status}])}


def limits(**bounds: Mapping[str, str]) -> Mapping[str, Reply]:
    spec = {"limits": [{"type": "Container", **bounds}]}
    return {f"{SPACE}/limitranges": page([{"metadata": {"name": "small"}, "spec": spec}])}


def sized(name: str, gpus: int = 8, cpu: str = "64", **labels: str) -> Object:
    found = node(name, gpus)
    found["metadata"]["labels"] = {**labels, "kubernetes.io/hostname": name}
    found["status"]["allocatable"] |= {"cpu": cpu, "memory": "512Gi", "pods": "110"}
    return found


class Situation(msgspec.Struct, frozen=True):
    """A job and its cluster; `held` are the GPUs of other jobs by node."""

    mark: str
    """Severity and field of the cause before create."""
    sentence: str
    change: Mapping[str, Any]
    answers: Mapping[str, Reply] = msgspec.field(default_factory=dict)
    nodes: tuple[Object, ...] = (sized("a"), sized("b"))
    held: Mapping[str, int] = msgspec.field(default_factory=dict)
    has_pods: bool = True
    kubelet: str = ""
    """Message of the node on which the pods cannot start; empty if they have none."""


def podless(
    mark: str, sentence: str, change: Mapping[str, Any], answers: Mapping[str, Reply] = NO_ANSWERS
) -> Situation:
    return Situation(mark, sentence, change, answers, has_pods=False)


BETWEEN = f"{GPU}; no node that is large enough accepts it"
QUEUED: Mapping[str, Any] = {"queue": "team", "suspend": True}
DISKS = {f"{CLASSES}/fast": Answer({"metadata": {"name": "fast"}, "provisioner": "lab/disks"})}
TOKEN = {f"{SPACE}/secrets/wandb": Answer({"metadata": {"name": "wandb"}, "data": {"token": "eA=="}})}
GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
GROUP = {f"{GROUPS}/pytorchjob-bert": Answer({"metadata": {"name": "g"}, "spec": {"minMember": 3}})}
MESSAGE = "0/9 nodes are available: 9 node(s) had untolerated taint {team: vision}."
THREE = (sized("a"), sized("b"), sized("c"))
SITUATIONS = [
    Situation("error mounts", f"{CLAIM}, which does not exist in default.", ON_DATA),
    Situation("error mounts", f"{CLAIM}, whose volume pv-1 is lost.", ON_DATA, claim("Lost")),
    Situation("error mounts", f"{CLAIM}, which is being deleted.", ON_DATA,
              claim("Bound", deletionTimestamp=CREATED)),
    Situation("warning mounts", f"{CLAIM}: no volume is bound to it, and it names no storage class.",
              ON_DATA, claim("Pending")),
    Situation("error mounts", f"{CLAIM}: there is no storage class fast.", ON_DATA, claim("Pending", "fast")),
    Situation("warning mounts",
              f"{CLAIM}: no volume is bound to it (storage class fast, made by lab/disks).",
              ON_DATA, {**claim("Pending", "fast"), **DISKS}),
    Situation("error env_from", "Waits for Secret wandb, which does not exist in default.", WANDB,
              kubelet='secret "wandb" not found'),
    Situation("error env_from", "Waits for ConfigMap paths, which does not exist in default.",
              {"env_from": (EnvSource(False, "paths"),)}, kubelet='configmap "paths" not found'),
    Situation("error env_from", "Waits for key key of Secret wandb, which has no such key.", WANDB, TOKEN,
              kubelet="couldn't find key key in Secret default/wandb"),
    podless("error priority_class", "Its pods cannot be created: there is no PriorityClass urgent.",
            {"priority_class": "urgent"}),
    podless("error queue", "Waits in queue team: there is no such LocalQueue in namespace default.", QUEUED),
    podless("warning queue", "Waits in queue team, which admits nothing: it is stopped.", QUEUED, STOPPED),
    podless("warning gpus", f"Waits for quota: 2 pods together need 8 {GPU}; quota team has 6 of 16 left.",
            {"workers": 2, "gpus": 4}, quota({KEY: "16"}, {KEY: "10"})),
    podless("warning workers", "Waits for quota: 2 pods together need 2 pods; quota team has 1 of 9 left.",
            {"workers": 2}, quota({"count/pods": "9"}, {"count/pods": "8"})),
    podless("warning gpus", f"Waits for quota: master-0 needs 4 {GPU}; quota team has 0 of 4 left.",
            {"gpus": 4}, quota({KEY: "4"}, {KEY: "4"})),
    podless("error gpus", f"Never starts: 2 pods together need 8 {GPU}; quota team allows 6.",
            {"workers": 2, "gpus": 4}, quota({KEY: "6"}, {KEY: "6"})),
    podless("error memory", "Never starts: master-0 needs 64Gi memory; quota team allows 32Gi.",
            {"memory": "64Gi"}, quota({"requests.memory": "32Gi"})),
    podless("error cpu", f"{REFUSED} master-0 needs 4 cpu; LimitRange small allows at most 2 a container.",
            {"cpu": "4"}, limits(max={"cpu": "2"})),
    podless("error gpus",
            f"{REFUSED} master-0 needs 1 {GPU}; LimitRange small allows at least 2 a container.",
            {"gpus": 1}, limits(min={GPU: "2"})),
    Situation("error gpus", f"Too big: master-0 needs 16 {GPU}; the largest node has 8 (a).", {"gpus": 16}),
    Situation("error gpus", f"Too big: master-0 needs 8 {GPU}; the largest node with gpu=a100 has 1 (b).",
              {"gpus": 8, "node_selector": {"gpu": "a100"}}, nodes=(sized("a"), sized("b", 1, gpu="a100"))),
    Situation("error cpu", "Too big: master-0 needs 100 cpu; the largest node has 64 (a).", {"cpu": "100"}),
    Situation("error gpus", f"Too big: no node has 8 {GPU} and 32 cpu together.", {"gpus": 8, "cpu": "32"},
              nodes=(sized("a", 8, "16"), sized("b", 2))),
    Situation("error gpus", "No node has amd.com/gpu: master-0 needs 1 amd.com/gpu.",
              {"gpus": 1, "gpu_resource": "amd.com/gpu"}),
    Situation("error node_selector", "No node matches: master-0 asks for gpu=h100; 2 nodes looked at.",
              {"gpus": 1, "node_selector": {"gpu": "h100"}}),
    Situation("error excluded_nodes",
              "No node matches: master-0 asks for kubernetes.io/hostname not in (a, b); 2 nodes looked at.",
              {"excluded_nodes": ("a", "b")}),
    Situation("error tolerations", f"Never starts: master-0 needs 1 {BETWEEN} (1 node tainted).",
              {"gpus": 1}, nodes=(node("a", taints=[TAINT]),)),
    Situation("warning node_selector", f"Waits for a node: master-0 needs 1 {BETWEEN} (1 node cordoned).",
              {"gpus": 1}, nodes=(node("a", unschedulable=True),)),
    Situation("warning gpus", f"Waits for GPUs: master-0 needs 8 {GPU}; none is free (16 in use).",
              {"gpus": 8}, held={"a": 8, "b": 8}),
    Situation("warning gpus",
              f"Waits for GPUs: master-0 needs 8 {GPU}; the largest free block is 5 on a (9 free in total).",
              {"gpus": 8}, held={"a": 3, "b": 4}),
    Situation("warning gpus", "Waits for GPUs: room for 1 of 2 pods, "
              f"each needs 8 {GPU} (8 free in total, together they need 16).",
              {"workers": 2, "gpus": 8}, held={"b": 8}),
    Situation("warning gpus", "Waits for its gang: 3 must start together, 2 fit.",
              {"workers": 3, "gpus": 8, "gang": True}, GROUP, THREE, {"c": 8}),
    Situation("error gpus", f"Never fits: 3 pods need 8 {GPU} each; the empty cluster has room for 2.",
              {"workers": 3, "gpus": 8}),
]  # fmt: skip


def served(situation: Situation, spec: JobSpec) -> tuple[Object, list[Object], dict[str, Reply]]:
    """Return the job's object, the pods of all jobs, and the answers of the cluster."""
    manifest = KIND.manifest(spec)
    meta = {"uid": "job-bert", "creationTimestamp": CREATED, "resourceVersion": "1", "namespace": "default"}
    job = {**manifest, "metadata": {**manifest["metadata"], **meta}, "status": {"conditions": []}}
    mine = []
    for replica in KIND.replicas(manifest) if situation.has_pods else ():
        status: Object = {"conditions": [{"type": "PodScheduled", "status": "False", "message": MESSAGE}]}
        if situation.kubelet:
            state = {"waiting": {"reason": "CreateContainerConfigError", "message": situation.kubelet}}
            status = {"containerStatuses": [{"name": "pytorch", "state": state}]}
        on = "a" if situation.kubelet else ""
        pod = pod_of(job, f"{replica.role}-{replica.index}", phase="Pending", **status)
        pod["metadata"]["creationTimestamp"] = CREATED
        pod["spec"] = {**replica.template["spec"], "nodeName": on}
        mine.append(pod)
    others = [
        pod_of(pytorch_job(f"gpt-{name}", gpus=gpus), "master-0", on=name, gpus=gpus)
        for name, gpus in situation.held.items()
    ]
    answers: dict[str, Reply] = {
        SPACE: Answer({"metadata": {"name": "default"}}),
        "/apis/kubeflow.org/v1/pytorchjobs": page([job]),
        "/api/v1/nodes": page([*situation.nodes]),
        f"{SPACE}/pods": page(mine),
        f"{SPACE}/events": page([]),
        f"{SPACE}/resourcequotas": page([]),
        f"{SPACE}/limitranges": page([]),
        "/api/v1/pods": page([*mine, *others]),
        "/apis/scheduling.k8s.io/v1/priorityclasses": page([]),
        **situation.answers,
    }
    return job, [*mine, *others], answers


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda each: each.sentence[:60])
async def test_a_cause_has_the_same_words_before_and_after_create(situation: Situation) -> None:
    spec = JobSpec(**{"name": "bert", "image": "a", "command": ("true",), **situation.change})
    job, pods, answers = served(situation, spec)
    rows, jobs = joined([*situation.nodes], pods, [job])
    snapshot = ClusterSnapshot(nodes=tuple(rows.values()), jobs=(), is_synced=True)
    async with ScriptedCluster() as cluster, cluster.client() as client:
        for path, reply in answers.items():
            cluster.say(path, reply)
        cluster.say(REVIEWS, Compute(lambda _: Answer({"status": {"allowed": True}}, 201)), method="POST")
        objects = job_objects(KIND, spec, is_optional_too=False)
        manifest = KIND.manifest(spec)

        async def nodes() -> ClusterSnapshot:
            return snapshot

        flags = await check_submit(client, KIND, spec, objects, snapshot)
        (of_file,) = await check_manifests(
            client, [ManifestObject(KIND.resource, manifest)], "default", nodes
        )
        by_cluster = await check_against_cluster(client, KIND, spec, objects)
        result = replace(parse_values(form_values()), kind=KIND, spec=spec)
        form = [*preflight(result, snapshot), *by_cluster]
        cluster.say(f"{JOBS}/bert", Answer(job))
        answer = await answer_why(client, jobs["bert"], snapshot)
        mirror = ClusterMirror(client)
        reasons = JobReasons(mirror, own_names)
        listed = await reasons.explain_once((await mirror.read_once()).jobs)
        row = next(job.reason for job in listed.jobs if job.ref.name == "bert")

    words = Cause(situation.sentence).text
    assert answer.sentence == situation.sentence
    for causes in (flags, of_file.causes):
        (found,) = (cause for cause in causes if cause.text == words)
        assert f"{found.severity} {found.field}" == situation.mark
    assert any(line.text.startswith(words) for line in form)
    assert row == answer.brief
    reason = answer.brief.replace(f" {GPU}", "")
    assert situation.sentence.replace(f" {GPU}", "").startswith(reason) and reason
