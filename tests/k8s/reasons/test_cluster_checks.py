"""Findings of the preflight on a job's own fields and on a cluster, each with a remedy."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from k8s.jobs.create import job_objects
from k8s.kinds import CREATABLE
from k8s.kinds.job_spec import EnvSource, HostMount, JobSpec, Mount, NewClaim
from k8s.kinds.kubeflow.train_job import TrainJob
from k8s.models.base import Meta
from k8s.models.namespace import Quota, QuotaStatus
from k8s.models.resources import CONFIG_MAPS, SERVICES
from k8s.reasons.cause import Cause
from k8s.reasons.cluster_checks import (
    check_against_cluster,
    check_objects,
    fetch_capacity,
    permission_findings,
    quota_findings,
    run_checks,
)
from k8s.reasons.pod_rules import quota_causes
from k8s.reasons.predicates import ClusterCapacity
from k8s.reasons.requests import ResourceList
from k8s.reasons.static_checks import check_capacity, check_statically
from tests.scripted.server import Answer, Asked, Compute, Reply, ScriptedCluster, page, refusal
from tests.support.objects import Object, batch_job

KIND = CREATABLE[0]
SPACE = "/api/v1/namespaces/default"
CLAIM = f"{SPACE}/persistentvolumeclaims/data"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"
QUEUE = "/apis/kueue.x-k8s.io/v1beta1/namespaces/default/localqueues/team"
SERVED = {
    "kind": "APIResourceList",
    "groupVersion": "kubeflow.org/v1",
    "resources": [{"name": "pytorchjobs", "kind": "PyTorchJob", "namespaced": True, "verbs": ["list"]}],
}
NEWER = {"versions": [{"groupVersion": "kubeflow.org/v2"}]}
DATA: dict[str, Any] = {"mounts": (Mount("data", "/data"),)}
NEW_DATA: dict[str, Any] = {**DATA, "new_claims": (NewClaim("data", "10Gi"),)}
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
GPUS: dict[str, Any] = {"workers": 3, "gpus": 4}
GPU = "requests.nvidia.com/gpu"
WANDB: Mapping[str, Reply] = {f"{SPACE}/secrets/wandb": Answer({"data": {"token": "eA=="}})}


def allow(asked: Asked) -> Answer:
    return Answer({"status": {"allowed": True}}, 201)


def forbid(asked: Asked) -> Answer:
    allowed = json.loads(asked.body)["spec"]["resourceAttributes"]["resource"] != "pytorchjobs"
    return Answer({"status": {"allowed": allowed, "reason": "" if allowed else "not in this house"}}, 201)


def claim(phase: str = "Bound", *modes: str, storage_class: str = "", size: str = "") -> Answer:
    resources = {"requests": {"storage": size} if size else {}}
    spec = {"accessModes": list(modes), "storageClassName": storage_class, "resources": resources}
    return Answer({"metadata": {"name": "data"}, "spec": spec, "status": {"phase": phase}})


def quota(used: str = "", **hard: str) -> dict[str, Reply]:
    """Return the answer with a quota of `gpus` or `pods`, and the GPUs that are used of it."""
    limits = {{"gpus": GPU}.get(name, name): amount for name, amount in hard.items()}
    status = {"hard": limits, "used": {GPU: used} if used else {}}
    return {f"{SPACE}/resourcequotas": page([{"metadata": {"name": "gpus"}, "spec": {}, "status": status}])}


def limit_range(kind: str, most: Mapping[str, str]) -> Answer:
    return page([{"metadata": {"name": "small"}, "spec": {"limits": [{"type": kind, "max": most}]}}])


def classes(name: str, **annotations: str) -> Answer:
    marks = {
        f"storageclass.kubernetes.io/{key.replace('_', '-')}": value for key, value in annotations.items()
    }
    return page([{"metadata": {"name": name, "annotations": marks}}])


def queue(*conditions: Mapping[str, str]) -> dict[str, Reply]:
    return {QUEUE: Answer({"metadata": {"name": "team"}, "status": {"conditions": list(conditions)}})}


def sized(**allocatable: str) -> Object:
    """Return the change of a node that has nothing but these."""
    return {"status": {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]}}


def nodes(*changes: Mapping[str, Any]) -> Answer:
    """Return nodes of 2 CPUs, 8 GiB and 8 GPUs."""
    size = {"cpu": "2", "memory": "8Gi", "nvidia.com/gpu": "8", "pods": "110"}
    plain = {"spec": {}, "status": {"allocatable": size, "conditions": [{"type": "Ready", "status": "True"}]}}
    return page(
        [
            {**plain, **change, "metadata": {"name": f"n{index}", **change.get("metadata", {})}}
            for index, change in enumerate(changes)
        ]
    )


NODES = "/api/v1/nodes"

CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/pytorchjobs.kubeflow.org"
VOLCANO = "scheduling.volcano.sh/v1beta1"
WITH_VOLCANO: Mapping[str, Reply] = {
    "/apis": Answer(
        {"groups": [{"name": each.partition("/")[0], "versions": [{"groupVersion": each}]}
                    for each in ("kubeflow.org/v1", VOLCANO)]}
    ),
    f"/apis/{VOLCANO}": Answer({"resources": [{"name": "podgroups", "verbs": ["list", "watch"]}]}),
}  # fmt: skip


def crd(spec: Mapping[str, Any]) -> Answer:
    """Return the definition of PyTorchJobs whose schema lists these fields of `spec`."""
    schema = {"properties": {"spec": {"properties": spec}}}
    return Answer({"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": schema}}]}})


FINE: Mapping[str, Reply] = {
    SPACE: Answer({"metadata": {"name": "default"}}),
    "/apis": Answer(
        {"groups": [{"name": "kubeflow.org", "versions": [{"groupVersion": "kubeflow.org/v1"}]}]}
    ),
    "/apis/kubeflow.org/v1": Answer(SERVED),
    f"{SPACE}/resourcequotas": page([]),
    f"{SPACE}/limitranges": page([]),
    NODES: nodes({}),
}


async def findings(answers: Mapping[str, Reply], review: Reply | None = None, **change: Any) -> list[Cause]:
    spec = JobSpec(**{"name": "bert", "image": "a", "command": ("true",), **change})
    async with ScriptedCluster() as cluster, cluster.client() as client:
        for path, reply in {**FINE, **answers}.items():
            cluster.say(path, reply)
        cluster.say(REVIEWS, review or Compute(allow), method="POST")
        objects = job_objects(KIND, spec, is_optional_too=False)
        found = await check_against_cluster(client, KIND, spec, objects)
        methods = {asked.method for asked in cluster.requests if asked.path != REVIEWS}
        assert methods == {"GET"}, "a preflight changes nothing"
        return found


NONE_SERVED = Answer({**SERVED, "resources": []})


@pytest.mark.parametrize(
    ("answers", "change", "expected"),
    [
        ({SPACE: refusal(404, 'namespaces "default" not found')}, {}, "error namespace: no namespace"),
        ({"/apis/kubeflow.org/v1": NONE_SERVED}, {},
         "error kind: does not serve PyTorchJob kubeflow.org/v1; choose another kind"),
        ({"/apis": Answer({"groups": [{"name": "kubeflow.org", **NEWER}]}),
          "/apis/kubeflow.org": Answer(NEWER),
          "/apis/kubeflow.org/v1": NONE_SERVED, "/apis/kubeflow.org/v2": Answer(SERVED)}, {},
         "error kind: does not serve PyTorchJob kubeflow.org/v1, but kubeflow.org/v2; write apiVersion:"),
        ({"/apis/kubeflow.org/v1/namespaces/default/pytorchjobs/bert": Answer({"metadata": {}})}, {},
         "error name: PyTorchJob bert already exists in default; choose another name"),
        ({CLAIM: claim("Bound", "ReadWriteOnce")}, {**DATA, "workers": 2},
         "warning mounts: unless all 2 pods fit on one node: volume claim data"),
        ({CLAIM: claim("Bound", "ReadWriteOncePod")}, {**DATA, "workers": 2},
         "error mounts: one pod alone may mount volume claim data (RWOP), not 2"),
        ({CLAIM: claim("Bound", "ReadOnlyMany")}, DATA, "warning mounts: is read-only (ROX)"),
        ({CLAIM: claim("Bound", "ReadWriteMany", size="1Gi")}, NEW_DATA,
         "error new_claims: volume claim data already exists with 1Gi, less than 10Gi; choose another name"),
        ({CLAIM: claim("Bound", "ReadWriteMany", size="10Gi")}, NEW_DATA,
         "warning new_claims: would use volume claim data, which already exists (10Gi)"),
        ({}, {**NEW_DATA, "workers": 2}, "warning mounts: unless all 2 pods fit on one node"),
        ({CLASSES: classes("fast")}, {"new_claims": (NewClaim("data", "10Gi", "slow"),)},
         "error new_claims: volume claim data: there is no storage class slow; choose one of fast"),
        ({CLASSES: classes("fast")}, {**NEW_DATA, "new_claims": (NewClaim("data", "10Gi", ""),)},
         "warning new_claims: no volume is bound to it, and it names no storage class; choose one"),
        ({CRD: crd({"runPolicy": {"properties": {"cleanPodPolicy": {}}}})}, {"suspend": True},
         "warning suspend: would start at once: PyTorchJobs of this cluster have no spec.runPolicy.suspend"),
        ({}, {"gang": True}, "warning gang: no scheduler of this cluster supports pod groups"),
        ({}, {"scheduler": "volcano"}, "warning scheduler: this cluster has no PodGroups of Volcano"),
        ({}, {"pull_secrets": ("reg",)}, "error pull_secrets: Secret reg, which does not exist in default"),
        ({}, {"git_secret": "git", "sync_mode": "git", "sync_source": "/x"},
         "error git_secret: would wait for Secret git, which does not exist"),
        (WANDB, {"env_from": (EnvSource(True, "wandb", "key", "KEY"),)},
         "error env_from: key key of Secret wandb, which has no such key; name one of its keys: token"),
        ({PRIORITIES: page([{"metadata": {"name": "low"}}])}, {"priority_class": "high"},
         "error priority_class: no PriorityClass high; choose one of low"),
    ],
)  # fmt: skip
async def test_a_problem_on_the_cluster_is_reported_at_its_field_with_a_remedy(
    answers: Mapping[str, Reply], change: dict[str, Any], expected: str
) -> None:
    (found,) = await findings(answers, **change)
    start, _, text = expected.partition(": ")
    assert f"{found.severity} {found.field}" == start
    assert text in found.warning and found.remedy


async def test_a_kind_the_user_may_not_create_is_an_error() -> None:
    (found,) = await findings({}, Compute(forbid))
    assert "may not create pytorchjobs" in found.text and "not in this house" in found.text
    assert found.severity == "error"


WAITING = Answer({"metadata": {"name": "local"}, "volumeBindingMode": "WaitForFirstConsumer"})
"""A storage class that makes volumes where the first pod runs."""


@pytest.mark.parametrize(
    ("answers", "change"),
    [
        ({}, {}),
        ({CLAIM: claim("Bound", "ReadWriteMany")}, {**DATA, "workers": 4}),
        ({CLAIM: claim("Bound", "ReadWriteOnce")}, DATA),
        ({CLAIM: claim("Bound", "ReadWriteOnce", "ReadOnlyMany")}, {**DATA, "workers": 4}),
        ({CLAIM: claim("Pending", "ReadWriteMany", storage_class="local"), f"{CLASSES}/local": WAITING},
         DATA),
        ({f"{PRIORITIES}/high": Answer({"metadata": {"name": "high"}})}, {"priority_class": "high"}),
        ({CRD: crd({"runPolicy": {"properties": {"suspend": {}}}})}, {"suspend": True}),
        ({CRD: crd({"runPolicy": {}})}, {"suspend": True}),
        (WITH_VOLCANO, {"gang": True, "scheduler": "volcano"}),
        ({}, {"workers": 2, "new_claims": (NewClaim("data", "10Gi"),)}),
        ({CLASSES: classes("fast", is_default_class="true")},
         {**DATA, "new_claims": (NewClaim("data", "10Gi"),)}),
        (WANDB, {"env_from": (EnvSource(True, "wandb", "token", "KEY"),)}),
        (queue(), {"queue": "team"}),
        (queue({"type": "Active", "status": "True"}, {"type": "Other", "status": "False"}),
         {"queue": "team"}),
        (quota(gpus="12"), GPUS),
        ({f"{SPACE}/limitranges": limit_range("Container", {"cpu": "4"}), NODES: nodes(sized(cpu="8"))},
         {"cpu": "4"}),
        ({CLAIM: Answer({"metadata": 1})}, DATA),
        ({}, NEW_DATA),
        # A config map that an earlier job of this name left is replaced.
        ({f"{SPACE}/configmaps/bert-code": Answer({"metadata": {"name": "bert-code"}})},
         {"sync_mode": "folder", "sync_source": "."}),
    ],
)  # fmt: skip
async def test_a_correct_job_has_no_finding(answers: Mapping[str, Reply], change: dict[str, Any]) -> None:
    assert await findings(answers, **change) == []


async def test_forbidden_requests_cause_no_findings() -> None:
    no = refusal(403, "no", "Forbidden")
    answers = dict.fromkeys(FINE, no) | {CLAIM: no, f"{SPACE}/secrets/wandb": no, PRIORITIES: no, QUEUE: no}
    change = {**DATA, "env_from": (EnvSource(True, "wandb"),), "queue": "team"}
    assert [each for each in await findings(answers, no, **change) if each.field != "queue"] == []


async def test_errors_come_first() -> None:
    found = await findings({CLAIM: claim("Pending")}, **DATA, queue="team")
    assert [each.severity for each in found] == ["error", "warning"]


RUNTIMES = "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes"


async def runtime_findings(answers: Mapping[str, Reply], runtime: str) -> list[str]:
    kind = TrainJob()
    spec = JobSpec(name="bert", image="a", command=("true",), runtime=runtime)
    async with ScriptedCluster() as cluster, cluster.client() as client:
        for path, reply in {SPACE: FINE[SPACE], **answers}.items():
            cluster.say(path, reply)
        found = await check_against_cluster(client, kind, spec, job_objects(kind, spec))
        return [each.warning for each in found if each.field == "runtime"]


async def test_a_runtime_that_is_not_there_is_named_with_those_that_are() -> None:
    there = {RUNTIMES: page([{"metadata": {"name": "mine"}}]), f"{RUNTIMES}/mine": Answer({"metadata": {}})}
    assert await runtime_findings(there, "mine") == []
    (said,) = await runtime_findings(there, "")
    assert said == "would fail: there is no ClusterTrainingRuntime torch-distributed; choose one of mine"
    (said,) = await runtime_findings({RUNTIMES: page([])}, "mine")
    assert said.endswith("there is no ClusterTrainingRuntime mine; ask for it to be installed")
    ours = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainingruntimes"
    (said,) = await runtime_findings({ours: page([])}, "trainingruntime/mine")
    assert "no TrainingRuntime mine in default" in said


async def test_unreadable_training_runtimes_cause_no_findings() -> None:
    assert await runtime_findings({}, "mine") == []
    assert await runtime_findings({RUNTIMES: refusal(403, "no")}, "mine") == []


@pytest.mark.parametrize(
    "nonsense",
    [Answer(b"<html>"), Answer([]), Answer({"items": 7, "status": 7, "metadata": 7}), Answer({"items": [7]})],
    ids=["HTML", "a list", "numbers", "a list of numbers"],
)
async def test_malformed_responses_cause_no_findings(nonsense: Answer) -> None:
    everything = (*FINE, CLAIM, PRIORITIES, QUEUE, f"{SPACE}/secrets/hub", f"{PRIORITIES}/high")
    wanted = {**DATA, **GPUS, "priority_class": "high", "queue": "team", "pull_secrets": ("hub",)}
    found = await findings(dict.fromkeys(everything, nonsense), nonsense, **wanted)
    assert [each for each in found if "high" in each.text] == []


BATCH = next(kind for kind in CREATABLE if kind.resource.kind == "Job")


@pytest.mark.parametrize(
    ("indexed", "hard", "said"),
    [
        (True, "2", "would never start: 4 pods together need 4 nvidia.com/gpu; quota gpus allows 2"),
        (
            False,
            "2",
            "would wait for quota in part: 4 pods together need 4 nvidia.com/gpu; quota gpus allows 2",
        ),
        (False, "0", "would never start: pod-0 needs 1 nvidia.com/gpu; quota gpus allows 0"),
        (False, "4", ""),
    ],
)
async def test_a_quota_counts_only_pods_that_run_at_once(indexed: bool, hard: str, said: str) -> None:
    manifest = batch_job("sweep", pods=4, indexed=indexed)
    async with ScriptedCluster() as cluster, cluster.client() as client:
        for path, reply in quota(gpus=hard).items():
            cluster.say(path, reply)
        found = await quota_findings(client, BATCH, JobSpec(name="sweep"), manifest)
    assert [each.text for each in found] == ([said] if said else [])


def test_a_quota_counts_only_pods_that_request_its_resource() -> None:
    limits = Quota(
        metadata=Meta(name="team"),
        status=QuotaStatus(hard={"requests.example.com/npu": "4"}, used={"requests.example.com/npu": "3"}),
    )
    launcher: ResourceList = {"cpu": 1}
    for pods, who in (
        ({"launcher": launcher, "worker-0": npus(1), "worker-1": npus(1)}, "2 pods together need 2"),
        ({"launcher": launcher, "worker-0": npus(2)}, "worker-0 needs 2"),
    ):
        [cause] = quota_causes(limits, pods, pods.values(), "vision")
        assert f": {who} example.com/npu; quota team has 1 of 4 left" in cause.sentence


def npus(amount: int) -> ResourceList:
    return {"example.com/npu": amount}


async def capacity_of(answer: Answer) -> ClusterCapacity:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(NODES, answer)
        return await fetch_capacity(client)


@pytest.mark.parametrize(("indexed", "fits"), [(True, False), (False, True)])
async def test_sequential_pods_need_room_for_only_one_pod_at_a_time(indexed: bool, fits: bool) -> None:
    manifest = batch_job("sweep", pods=4, gpus=0, indexed=indexed)
    manifest["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "2"}}
    cause = check_capacity(BATCH, manifest, await capacity_of(nodes({})))
    assert (cause is None) == fits


@pytest.mark.parametrize("answer", [refusal(403, "no nodes for you"), page([])], ids=["forbidden", "none"])
async def test_unknown_nodes_give_no_cause(answer: Answer) -> None:
    assert check_capacity(BATCH, batch_job("sweep"), await capacity_of(answer)) is None


DIGEST = f"sha256:{'a' * 64}"


def static_findings(**change: Any) -> list[Cause]:
    spec = JobSpec(**{"name": "bert", "image": "pytorch/pytorch:2.6.0", "command": ("true",), **change})
    return check_statically(KIND, spec, KIND.manifest(spec))


@pytest.mark.parametrize(
    ("change", "field", "expected"),
    [
        ({"image": "Pytorch"}, "image", "is not an image reference"),
        ({"image": "a/b:"}, "image", "registry/name:tag"),
        ({"image": "a//b"}, "image", "is not an image reference"),
        ({"worker_image": "a b"}, "worker_image", "is not an image reference"),
        ({"tensorboard_image": ":tag"}, "tensorboard_image", "is not an image reference"),
        ({"sync_mode": "git", "sync_source": "github.com/x"}, "sync_source", "not a repository's URL"),
        ({"sync_mode": "git", "sync_source": "https://"}, "sync_source", "not a repository's URL"),
        ({"log_dir": "/logs"}, "log_dir", "would lose the event files"),
        ({"log_dir": "/database", "mounts": (Mount("c", "/data"),)}, "log_dir", "not on a mounted volume"),
        ({"log_dir": "/logs", "tensorboard": True}, "log_dir", "where TensorBoard could read them"),
        ({"cpu": "1500m-1"}, "cpu", "more than the limit of 1"),
        ({"host_namespaces": ("network",)}, "host_namespaces", "a node with port 23456 free"),
        ({"memory": "2Gi-1Gi"}, "memory", "at most 1Gi"),
        ({"mounts": (Mount("a", "/w"), Mount("b", "/w/data"))}, "mounts",
         "the volume at /w/data covers that folder of the one at /w"),
    ],
)  # fmt: skip
def test_each_problem_has_its_field_and_a_hint(change: dict[str, Any], field: str, expected: str) -> None:
    found = static_findings(**change)
    assert [each.field for each in found] == [field]
    assert expected in found[0].warning
    assert found[0].remedy


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"image": "localhost:5000/a/b_c:v1"},
        {"image": f"registry.example.com/team/app@{DIGEST}"},
        {"image": "busybox"},
        {"sync_mode": "git", "sync_source": "https://code.example.com/x/y.git"},
        {"sync_mode": "git", "sync_source": "git@code.example.com:x/y.git"},
        {"sync_mode": "git", "sync_source": "ssh://git@code.example.com:2222/x/y.git"},
        {"sync_mode": "rsync", "sync_source": "10.0.0.1::code"},
        {"log_dir": "/data/logs", "mounts": (Mount("c", "/data"),)},
        {"log_dir": "/data", "mounts": (Mount("c", "/data/"),)},
        {"log_dir": "/mnt/logs", "host_mounts": (HostMount("/mnt", "/mnt"),), "tensorboard": True},
        {"log_dir": "logs"},
        {"cpu": "2000m-2"},
        {"mounts": (Mount("a", "/w"), Mount("b", "/work"))},
    ],
)
def test_a_correct_job_has_no_static_finding(change: dict[str, Any]) -> None:
    assert static_findings(**change) == []


def test_a_pod_whose_name_is_too_long_is_found() -> None:
    spec = JobSpec(name="b" * 60, image="a", command=("true",), workers=11)
    found = check_statically(KIND, spec, KIND.manifest(spec))
    assert [each.field for each in found] == ["name"]
    assert "characters, 6 too many" in found[0].text
    spec = replace(spec, name="b" * 54)
    assert check_statically(KIND, spec, KIND.manifest(spec)) == []


@pytest.mark.parametrize(
    ("source", "is_url"),
    [
        ("https://host/x.git", True),
        ("git@host:x.git", True),
        ("file:///home/li/x", True),
        ("file://host/x", True),
        ("/home/li/x", True),
        ("file:////x", False),
        ("file://", False),
        ("x/y", False),
    ],
)
def test_an_invalid_repository_url_is_a_finding(source: str, is_url: bool) -> None:
    git: dict[str, Any] = {"sync_mode": "git", "sync_source": source}
    assert (static_findings(**git) == []) == is_url


def test_a_password_in_a_repository_url_is_accepted_and_never_shown_in_a_finding() -> None:
    git: dict[str, Any] = {"sync_mode": "git"}
    assert static_findings(**git, sync_source="https://li:hunter2@host/x.git") == []
    (found,) = static_findings(**git, sync_source="htps:/li:hunter2@host")
    assert found.field == "sync_source"
    (found,) = static_findings(**git, sync_source="htps://li:hunter2@host/x")
    assert "hunter2" not in found.warning


OBJECTS = [
    (CONFIG_MAPS, {"metadata": {"name": "script"}}),
    (SERVICES, {"metadata": {"name": "board", "namespace": "other"}}),
    (SERVICES, {"metadata": {"generateName": "board-"}}),
]
SPACES = {"default": "/api/v1/namespaces/default", "other": "/api/v1/namespaces/other"}
CORE = Answer({"resources": [{"name": "configmaps", "verbs": []}, {"name": "services", "verbs": []}]})


def allow_all_but_services(asked: Asked) -> Answer:
    allowed = json.loads(asked.body)["spec"]["resourceAttributes"]["resource"] != "services"
    return Answer({"status": {"allowed": allowed, "reason": "" if allowed else "not in this house"}}, 201)


async def sentences(answers: Mapping[str, Reply], review: Reply) -> list[str]:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        for path, reply in answers.items():
            cluster.say(path, reply)
        cluster.say(REVIEWS, review, method="POST")
        return [each.warning for each in await check_objects(client, OBJECTS, "default")]


async def test_a_taken_name_and_a_forbidden_kind_are_reported_for_their_namespace() -> None:
    there = dict.fromkeys([*SPACES.values(), f"{SPACES['default']}/configmaps/script"], Answer({}))
    found = await sentences({**there, "/api/v1": CORE}, Compute(allow_all_but_services))
    assert any("ConfigMap script already exists in default" in text for text in found)
    assert sum("not in this house" in text for text in found) == 2, "in each of the two namespaces"
    assert not any("board already exists" in text for text in found)


async def test_a_missing_namespace_suppresses_other_findings_about_it() -> None:
    missing = refusal(404, 'namespaces "other" not found')
    answers = {SPACES["default"]: Answer({}), SPACES["other"]: missing, "/api/v1": CORE}
    found = await sentences(answers, Compute(allow_all_but_services))
    assert [text for text in found if "there is no namespace other" in text]
    assert not any("board" in text for text in found)


@pytest.mark.parametrize(
    "nonsense",
    [Answer(b"<html>"), Answer([]), Answer({"resources": 7, "status": 7}), Answer({"resources": [7]})],
    ids=["HTML", "a list", "numbers", "a list of numbers"],
)
async def test_malformed_responses_allow_everything(nonsense: Answer) -> None:
    assert await sentences(dict.fromkeys([*SPACES.values(), "/api/v1"], nonsense), nonsense) == []


async def test_checks_that_are_cancelled_before_their_turn_leave_no_warning() -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        asking = asyncio.ensure_future(run_checks([permission_findings(client, [SERVICES], "default")]))
        asyncio.get_running_loop().call_soon(asking.cancel)
        with pytest.raises(asyncio.CancelledError):
            await asking
        gc.collect()
        assert cluster.requests == []


async def test_an_unexpected_exception_in_a_check_is_raised() -> None:
    async def broken() -> list[Cause]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await run_checks([broken()])
