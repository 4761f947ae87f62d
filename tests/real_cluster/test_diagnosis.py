"""Reasons why jobs wait, and stacks of those that hang, with a real scheduler, quota and kubelet."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from k8s.client.client import Client
from k8s.cluster.cluster_mirror import ClusterMirror
from k8s.kinds.kubeflow.pytorch_job import PYTORCH_JOBS
from k8s.models.resources import JOBS, Resource
from k8s.reasons.cause import Cause
from k8s.reasons.gather import answer_why
from k8s.reasons.job_reasons import JobReasons
from k8s.reasons.stacks import StackReport, inspect_ranks
from tests import ROOT
from tests.real_cluster.feed import LONGEST_S, job_called
from tests.support import real_cluster
from tests.support.objects import GPU, Object, pytorch_job
from tests.support.real_cluster import ROLE_BINDINGS, acting_as
from tui.tables.filters import own_names

WAIT_S = 180.0  # longest wait for a scheduler, a controller or a kubelet to have said its word
LOOK_EVERY_S = 0.5

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


def job(name: str, pods: int = 1, *, gpus: int = 0, **spec: Any) -> Object:
    container: Object = {"name": "main", "command": ["sleep", "600"], **real_cluster.BUSYBOX}
    if gpus:
        container["resources"] = {"limits": {GPU: str(gpus)}}
    container |= spec.pop("container", {})
    pod = {"restartPolicy": "Never", "containers": [container], "terminationGracePeriodSeconds": 0, **spec}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"completions": pods, "parallelism": pods, "backoffLimit": 0, "template": {"spec": pod}},
    }


async def until(client: Client, are_so: Mapping[str, Callable[[Cause], object]]) -> dict[str, Cause]:
    """Ask why each of these jobs waits until the cluster has had its say of it."""
    found: dict[str, Cause] = {}
    answers: dict[str, Cause] = {}
    try:
        async with asyncio.timeout(WAIT_S):
            while len(found) < len(are_so):
                mirror = ClusterMirror(client, client.config.namespace)
                JobReasons(mirror, own_names)
                snapshot = await mirror.read_once()
                for each in snapshot.jobs:
                    if (name := each.ref.name) in are_so and name not in found:
                        answers[name] = await answer_why(client, each, snapshot)
                        if are_so[name](answers[name]):
                            found[name] = answers[name]
                await asyncio.sleep(LOOK_EVERY_S)
    except TimeoutError:
        texts = [answer.as_text() for name, answer in answers.items() if name not in found]
        raise AssertionError("never came true; last was:\n" + "\n".join(texts)) from None
    return found


async def make(client: Client, obj: Object, resource: Resource = JOBS) -> None:
    await client.create(resource, obj, client.config.namespace)


def facts(answer: Cause, kind: str) -> list[str]:
    return [fact.text for fact in answer.facts if fact.kind == kind]


def has(kind: str) -> Callable[[Cause], object]:
    return lambda answer: facts(answer, kind)


def says(word: str) -> Callable[[Cause], object]:
    return lambda answer: word in answer.sentence


# Jobs, what is said of each once the cluster has had its say, and how the sentence begins
CASES: dict[str, tuple[dict[str, Any], Callable[[Cause], object], str]] = {
    "huge": (
        {"gpus": 16},
        has("scheduler"),
        f"Too big: pod-0 needs 16 {GPU}; the largest node has 8 ({real_cluster.NODE}).",
    ),
    "picky": (
        {"nodeSelector": {"disk": "ssd"}},
        has("scheduler"),
        "No node matches: pod-0 asks for disk=ssd; 1 node looked at.",
    ),
    "reader": (
        {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "corpus"}}]},
        has("claim"),
        "Waits for volume claim corpus, which does not exist in HERE.",
    ),
    "urgent": (
        {"priorityClassName": "urgent"},
        has("event"),
        "Its pods cannot be created: there is no PriorityClass urgent.",
    ),
    "alone": (
        {"schedulerName": "volcano"},
        says("volcano"),
        "Waits for scheduler volcano, which has not looked at pod-0 for ",
    ),
    "lost": (
        {"container": {"image": "lab/nowhere:1"}},
        has("image"),
        "Waits for its image: lab/nowhere:1 is not on the node, and imagePullPolicy Never forbids pulling it "
        f"(pod-0 on {real_cluster.NODE}).",
    ),
    "unset": (
        {"container": {"envFrom": [{"configMapRef": {"name": "settings"}}]}},
        says("ConfigMap"),
        "Waits for ConfigMap settings, which does not exist in HERE.",
    ),
    "fails": (
        {"container": {"command": ["sh", "-c", "exit 3"]}},
        lambda found: found.sentence.startswith("Failed") and "exit" in found.sentence,
        "Failed: pod-0 exit 3, ",
    ),
    "raises": (
        {"container": {"command": ["sh", "-c", "echo 'ValueError: bad shard 7' >&2; exit 1"]}},
        lambda found: found.sentence.startswith("Failed") and found.triage,
        "Failed: pod-0 exit 1, ",
    ),
    "grows": (
        {"container": {"command": ["tail", "/dev/zero"], "resources": {"limits": {"memory": "32Mi"}}}},
        lambda found: found.sentence.startswith("Failed") and found.triage,
        "Failed: pod-0 OOMKilled, ",
    ),
    "runs": ({"pods": 2, "gpus": 1}, says("2 of 2"), "It runs: 2 of 2 pods."),
}
SCHEDULERS_WORDS = {"huge": "Insufficient nvidia.com/gpu", "picky": "didn't match"}


async def test_jobs_are_explained_as_the_real_cluster_makes_them_wait(admin: Client) -> None:
    for name, (spec, _, _) in CASES.items():
        await make(admin, job(name, **spec))
    answers = await until(admin, {name: is_so for name, (_, is_so, _) in CASES.items()})
    for name, (_, _, sentence) in CASES.items():
        expected = sentence.replace("HERE", admin.config.namespace)
        assert answers[name].sentence[: len(expected)] == expected
        assert sentence[-1] != "." or answers[name].sentence == expected
    for name, words in SCHEDULERS_WORDS.items():
        assert words in facts(answers[name], "scheduler")[0]
    assert answers["fails"].sentence.endswith("; it had no retries.")
    assert answers["raises"].sentence.endswith(": ValueError: bad shard 7.")
    assert answers["raises"].brief == "pod-0 exit 1: ValueError: bad shard 7"
    assert answers["grows"].brief == "pod-0 OOMKilled"
    assert "its memory limit is 32Mi" in answers["grows"].sentence


async def test_without_log_permission_the_diagnosis_gives_the_exit_code_and_the_refusal(
    admin: Client, alice: Client
) -> None:
    for group, resource in (("", "pods"), ("", "events"), ("batch", "jobs")):
        for verb in ("get", "list"):
            await real_cluster.allow(admin, verb, group, resource)
    await make(admin, job("raises", container=CASES["raises"][0]["container"]))
    answer = (await until(alice, {"raises": lambda found: found.sentence.startswith("Failed")}))["raises"]
    assert answer.sentence.startswith("Failed: pod-0 exit 1, ")
    assert any('logs: The cluster says: pods "raises-' in text for text in facts(answer, "unseen"))
    assert any('cannot get resource "pods/log"' in text for text in facts(answer, "unseen"))


async def test_cpu_that_the_node_has_not_left_is_found_by_adding_up_its_pods(admin: Client) -> None:
    nodes = await admin.get_json(f"/api/v1/nodes/{real_cluster.NODE}")
    cpus = int(nodes["status"]["allocatable"]["cpu"])
    half: Object = {"container": {"resources": {"requests": {"cpu": f"{cpus * 600}m"}}}}
    await make(admin, job("first", **half))
    await until(admin, {"first": lambda found: found.sentence.startswith("It runs")})
    await make(admin, job("second", **half))
    answer = (await until(admin, {"second": has("scheduler")}))["second"]
    words = f"Waits for cpu: pod-0 needs {cpus * 0.6:g} cpu; the largest free block is "
    assert answer.sentence.startswith(words)
    assert "Insufficient cpu" in facts(answer, "scheduler")[0]


async def test_a_quota_that_can_never_allow_a_pod_is_named_with_its_numbers(admin: Client) -> None:
    await real_cluster.make_quota(admin, "gpus", {f"requests.{GPU}": "2"})
    await make(admin, job("greedy", gpus=4))
    answers = await until(admin, {"greedy": has("event")})
    sentence = "Never starts: pod-0 needs 4 nvidia.com/gpu; quota gpus allows 2."
    assert answers["greedy"].sentence == sentence


async def test_a_job_without_an_operator_is_distinguished_from_a_suspended_job(admin: Client) -> None:
    orphan = pytorch_job("orphan")
    held_back = pytorch_job("held-back")
    held_back["spec"]["runPolicy"] = {"suspend": True}
    for each in (orphan, held_back):
        each["metadata"] = {"name": each["metadata"]["name"]}
        for role in each["spec"]["pytorchReplicaSpecs"].values():
            role["template"]["spec"]["containers"][0]["image"] = "busybox"
        await make(admin, each, PYTORCH_JOBS)
    answers = await until(admin, {"orphan": says("operator"), "held-back": says("")})
    assert answers["orphan"].sentence.endswith("ago; its operator has not reacted yet.")
    assert answers["held-back"].sentence == "Suspended: its object says suspend, so it has no pods."


async def test_a_user_of_one_namespace_gets_the_message_of_the_scheduler(kubeconfig: Path) -> None:
    async with await Client.connect(f"{kubeconfig}-alice", namespace="alice") as alice:
        name = f"huge-{uuid4().hex[:6]}"
        await make(alice, job(name, gpus=16))
        try:
            answer = (await until(alice, {name: has("scheduler")}))[name]
        finally:
            await alice.delete(JOBS, name, "alice")
        assert answer.sentence.startswith("Waits for a node: pod-0; the scheduler says 0/")
        assert any('cannot list resource "nodes"' in text for text in facts(answer, "unseen"))


SCRIPT = """
from trainer import debuggable
import time
debuggable.arm()
def load_batch():
    time.sleep(600)
load_batch()
"""


async def report_of(client: Client, name: str, is_so: Callable[[StackReport], object]) -> StackReport:
    report = StackReport()
    async with asyncio.timeout(LONGEST_S):
        while not is_so(report):
            snapshot = await ClusterMirror(client, client.config.namespace).read_once()
            found = job_called(snapshot, "Job", name)
            if found is not None and found.status == "Running":
                report = await inspect_ranks(client, found)
            await asyncio.sleep(0.2)
    return report


async def test_a_non_python_process_is_diagnosed_from_proc(admin: Client) -> None:
    shell = {"command": ["sh", "-c", "sleep 600; true"]}
    await admin.create(JOBS, job("hang", container=shell), admin.config.namespace)
    report = await report_of(admin, "hang", lambda found: "(sleeping)" in found.sentence)
    assert [(each.source, each.code) for each in report.groups] == [("/proc", "sleep 600")]
    assert "this program is not Python" in report.problems[0]


async def test_a_python_process_that_is_armed_gives_its_stack(admin: Client) -> None:
    folders = dict.fromkeys((sys.base_prefix, "/lib", "/lib64", "/usr/lib", str(ROOT)))
    mounts = [{"name": f"v{at}", "mountPath": path} for at, path in enumerate(folders)]
    volumes = [{"name": f"v{at}", "hostPath": {"path": path}} for at, path in enumerate(folders)]
    env = {"PATH": f"{sys.base_prefix}/bin:/bin", "PYTHONPATH": str(ROOT), "RANK": "3", "LOCAL_RANK": "1"}
    container: dict[str, Any] = {
        "command": ["python3", "-c", SCRIPT],
        "env": [{"name": name, "value": value} for name, value in env.items()],
        "volumeMounts": mounts,
    }
    await admin.create(JOBS, job("armed", container=container, volumes=volumes), admin.config.namespace)
    report = await report_of(admin, "armed", lambda found: found.sources == ("faulthandler",))
    assert report.sentence == "Rank 3 in load_batch (<string>:6)."


async def test_a_missing_exec_permission_is_named_in_the_stack_report(
    admin: Client, kubeconfig: Path, tmp_path: Path
) -> None:
    namespace, user = str(admin.config.namespace), f"reader-{uuid4().hex[:6]}"
    binding = {
        "metadata": {"name": user},
        "roleRef": {"apiGroup": ROLE_BINDINGS.group, "kind": "ClusterRole", "name": "view"},
        "subjects": [{"apiGroup": ROLE_BINDINGS.group, "kind": "User", "name": user}],
    }
    await admin.create(ROLE_BINDINGS, binding, namespace)
    await admin.create(JOBS, job("hang"), namespace)
    await report_of(admin, "hang", lambda found: found.groups)
    path = acting_as(kubeconfig, tmp_path, **{"as": user})
    async with await Client.connect(path, namespace=namespace) as reader:
        report = await report_of(reader, "hang", lambda found: found.problems)
    assert report.groups == ()
    assert f"in pods of namespace {namespace}, which needs the permission create" in report.problems[0]
