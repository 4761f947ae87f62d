"""Contract of every kind of job for objects from any source, and for their pods; and of a new kind."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from k8s.kinds import KINDS, AnyOwner, JobKind, kind_of
from k8s.kinds.base import JobRef
from k8s.kinds.parse import JobReader
from k8s.status import Status
from tests import ROOT
from tests.k8s.kinds.operator_objects import SITUATIONS, jobs_in, kind_named, objects, pods_in, read_pods
from tests.support.objects import GPU, RECORDED, Object, join, node

every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: type(kind).__name__)


def test_every_kind_has_an_object_to_be_tested_on() -> None:
    seen = {type(kind_named(objects(situation)[0])) for situation in SITUATIONS}
    assert {type(kind) for kind in KINDS} <= seen


def test_kinds_are_unique_by_name_and_version_and_by_title() -> None:
    assert len({(kind.resource.kind, kind.resource.api_version) for kind in KINDS}) == len(KINDS)
    assert len({kind.title for kind in KINDS}) == len(KINDS)
    assert len({kind.resource for kind in KINDS}) == len(KINDS)


def test_a_parsed_job_keeps_its_kind_version_namespace_and_name() -> None:
    for situation in SITUATIONS:
        job, obj = jobs_in(situation)[0], objects(situation)[0]
        assert (job.ref.kind, job.ref.api_version) == (obj["kind"], obj["apiVersion"])
        assert (job.ref.namespace, job.ref.name) == (obj["metadata"]["namespace"], obj["metadata"]["name"])
        assert kind_of(job.ref) is kind_named(obj)


def test_each_pod_is_claimed_by_exactly_one_kind() -> None:
    """By a kind and for a job that are in the file; the kind's selector finds it too."""
    for situation in SITUATIONS:
        there = {(job.ref.kind, job.ref.api_version, job.ref.name) for job in jobs_in(situation)}
        for pod in pods_in(situation):
            claims = []
            for kind in KINDS:
                if name := kind.job_of(pod):
                    claims.append((kind.resource.kind, kind.resource.api_version, name))
                    pairs = [each.partition("=") for each in kind.pod_selector(name).split(",")]
                    assert all(pod.metadata.label(key) == value for key, _, value in pairs), pod.metadata.name
            assert len(claims) == 1, pod.metadata.name
            assert set(claims) <= there, pod.metadata.name


def test_recorded_pods_are_claimed_by_pytorchjob_except_tensorboard_pods() -> None:
    for pod in read_pods(*json.loads((RECORDED / "pods.json").read_bytes())["items"]):
        claims = {type(kind).__name__ for kind in KINDS if kind.job_of(pod)}
        assert claims == (set() if pod.metadata.label("role") == "tensorboard" else {"PyTorchJob"})


def test_a_job_has_a_place_for_each_of_its_pods() -> None:
    """The same place is found from the object and from the pod; where pods have numbers, each its own."""
    for situation in SITUATIONS:
        job = jobs_in(situation)[0]
        kind = kind_of(job.ref)
        places = {(replica.role, replica.index) for replica in job.replicas}
        roles = {replica.role for replica in job.replicas}
        names = {replica.name: (replica.role, replica.index) for replica in job.replicas if replica.name}
        assert len(places) == len(job.replicas)
        assert sum(replica.is_chief for replica in job.replicas) == 1
        for pod in pods_in(situation):
            found = kind.instance_of(pod)
            assert found == names.get(pod.metadata.name, found)
            if found is not None:
                assert found in places if found[1] is not None else found[0] in roles, pod.metadata.name


def test_instances_and_gpus_are_known_before_there_are_pods() -> None:
    for situation in SITUATIONS:
        _, jobs = join([], [], jobs_in(situation)[:1])
        asked = sum(count_gpus(obj) for obj in objects(situation)[:1])
        assert jobs[0].instances
        assert (jobs[0].gpus_requested > 0) == (asked > 0)
        assert jobs[0].gpus_allocated == 0


def count_gpus(obj: object) -> int:
    """Return the number of accelerators that a manifest mentions anywhere."""
    if isinstance(obj, list):
        return sum(map(count_gpus, obj))
    if not isinstance(obj, dict):
        return 0
    return sum(int(value) if key == "nvidia.com/gpu" else count_gpus(value) for key, value in obj.items())


def test_any_other_owner_of_pods_gets_a_generic_kind() -> None:
    kind = kind_of(JobRef("vision", "web", "Deployment", "apps/v1"))
    assert isinstance(kind, AnyOwner)
    assert (kind.title, kind.container) == ("Deployment", "")
    assert kind.resource.path("vision", "web") == "/apis/apps/v1/namespaces/vision/deployments/web"
    policy = kind_of(JobRef("", "p", "Policy", "example.com/v1")).resource
    assert policy.plural == "policies"
    pod = kind_of(JobRef("vision", "alone", "Pod", "v1"))
    assert (pod.resource.path("vision", "alone"), pod.title) == (
        "/api/v1/namespaces/vision/pods/alone",
        "Pod",
    )


def test_a_generic_owner_kind_claims_and_numbers_no_pods() -> None:
    kind = kind_of(JobRef("vision", "web", "Deployment", "apps/v1"))
    for situation in SITUATIONS:
        for pod in pods_in(situation):
            assert (kind.job_of(pod), kind.instance_of(pod)) == ("", None)
    job = kind.parse(
        {"metadata": {"name": "web", "namespace": "vision", "uid": "u"}, "status": {"replicas": 1}}
    )
    assert (job.ref.name, job.replicas, job.outcome, job.is_suspended) == ("web", (), None, False)


def test_the_user_is_read_from_creator_annotations_of_known_systems() -> None:
    for key in ("gpuconsole.dev/user", "arena.kubeflow.org/username", "notebooks.kubeflow.org/creator"):
        for kind in KINDS:
            obj = next(found for each in SITUATIONS for found in objects(each) if kind_named(found) is kind)
            obj["metadata"]["annotations"] = {key: "li"}
            assert kind.parse(obj).user == "li"


@every_kind
def test_the_queue_is_the_one_that_a_label_or_an_annotation_names(kind: JobKind) -> None:
    for key in ("kueue.x-k8s.io/queue-name", "kai.scheduler/queue", "scheduling.volcano.sh/queue-name"):
        for where in ("labels", "annotations"):
            obj = next(found for each in SITUATIONS for found in objects(each) if kind_named(found) is kind)
            obj["metadata"] |= {"labels": {}, "annotations": {}, where: {key: "team-b"}}
            assert kind.parse(obj).queue == "team-b"


AT = "2026-11-20T12:00:00Z"


def conditions(*claims: str, message: str = "") -> Object:
    """Return a status with conditions; a minus before the name of one makes it false."""
    found = [{"type": each.lstrip("-"), "status": str(each[0] != "-")} for each in claims]
    return {"conditions": [{**each, "message": message, "lastTransitionTime": AT} for each in found]}


def volcano(phase: str) -> Object:
    return {"state": {"phase": phase, "message": "so it is", "lastTransitionTime": AT}}


def ray(state: str, program: str, reason: str = "", message: str = "") -> Object:
    status = {"jobDeploymentStatus": state, "jobStatus": program, "endTime": AT}
    return {**status, "reason": reason, "message": message}


def t9k(phase: str) -> Object:
    ends = conditions("Completed" if phase == "Succeeded" else "-Completed", "Failed", message="how it ended")
    return {"phase": phase, **ends}


FAILED, SUCCEEDED = Status.FAILED, Status.SUCCEEDED
OUTCOMES: list[tuple[str, list[Object], Status | None, str]] = [
    ("job-indexed", [{}, conditions("-Complete", "Suspended")], None, ""),
    ("job-indexed", [conditions("Complete")], SUCCEEDED, ""),
    ("job-indexed", [conditions("FailureTarget", "Failed", message="no retries")], FAILED, "no retries"),
    (
        "job-indexed",
        [{"conditions": [{**conditions("Failed")["conditions"][0], "reason": "DeadlineExceeded"}]}],
        FAILED,
        "DeadlineExceeded",
    ),
    ("tfjob-running", [conditions("Running", "Succeeded", message="done")], SUCCEEDED, "done"),
    ("mpijob-v2beta1-running", [conditions("Failed", "-Running", message="ran out")], FAILED, "ran out"),
    ("mpijob-v1alpha1-running", [{"launcherStatus": word} for word in ("Active", "")], None, ""),
    ("mpijob-v1alpha1-running", [{"launcherStatus": "Succeeded", "completionTime": AT}], SUCCEEDED, ""),
    ("mpijob-v1alpha1-running", [{"launcherStatus": "Failed", "completionTime": AT}], FAILED, ""),
    ("trainjob-restarted", [{}, conditions("-Suspended")], None, ""),
    ("trainjob-restarted", [conditions("Complete", "-Suspended")], SUCCEEDED, ""),
    ("trainjob-restarted", [conditions("Failed", "-Complete", message="why")], FAILED, "why"),
    ("jobset-coordinated", [conditions("StartupPolicyInProgress")], None, ""),
    ("jobset-coordinated", [conditions("Completed")], SUCCEEDED, ""),
    ("jobset-coordinated", [conditions("Completed", "Failed", message="why")], FAILED, "why"),
    (
        "volcano-running",
        [volcano(each) for each in ("Pending", "Running", "Restarting", "Completing", "Aborting", "Aborted")],
        None,
        "",
    ),
    ("volcano-running", [volcano("Completed")], SUCCEEDED, "so it is"),
    ("volcano-running", [volcano("Failed"), volcano("Terminated")], FAILED, "so it is"),
    (
        "rayjob-running",
        [ray("", ""), ray("Initializing", ""), ray("Running", "RUNNING"), ray("Suspended", "")],
        None,
        "",
    ),
    ("rayjob-running", [ray("Retrying", "FAILED")], None, ""),
    ("rayjob-running", [ray("Complete", "SUCCEEDED")], SUCCEEDED, ""),
    ("rayjob-running", [ray("Complete", "FAILED"), ray("Failed", "FAILED")], FAILED, "program failed"),
    ("rayjob-running", [ray("Complete", "STOPPED"), ray("Failed", "STOPPED")], FAILED, "program stopped"),
    (
        "rayjob-running",
        [ray("Failed", "", "AppFailed", "exit 1"), ray("ValidationFailed", "", "AppFailed", "exit 1")],
        FAILED,
        "AppFailed: exit 1",
    ),
    (
        "t9k-pytorch-running",
        [t9k(phase) for phase in ("Pending", "Running", "Paused", "Resuming", "Unknown")],
        None,
        "",
    ),
    ("t9k-pytorch-running", [t9k("Succeeded")], SUCCEEDED, "how it ended"),
    ("t9k-pytorch-running", [t9k("Failed")], FAILED, "how it ended"),
]


@pytest.mark.parametrize(("situation", "statuses", "outcome", "reason"), OUTCOMES)
def test_a_job_ends_with_the_last_word_of_its_operator(
    situation: str, statuses: list[Object], outcome: Status | None, reason: str
) -> None:
    for status in statuses:
        obj = objects(situation)[0]
        kind = kind_of(jobs_in(situation)[0].ref)
        job = kind.parse({**obj, "status": status})
        assert (job.outcome, job.outcome_reason) == (outcome, reason), status
        assert (job.finished is not None) == (outcome is not None), status


def test_a_stopped_volcano_job_and_a_suspended_mpi_job_are_suspended() -> None:
    obj = objects("volcano-running")[0]
    for phase, is_suspended in (("Aborting", True), ("Aborted", True), ("Running", False), ("Failed", False)):
        job = kind_of(jobs_in("volcano-running")[0].ref).parse({**obj, "status": volcano(phase)})
        assert job.is_suspended is is_suspended
    mpi = objects("mpijob-v2beta1-running")[0]
    mpi["spec"]["runPolicy"]["suspend"] = True
    assert kind_of(jobs_in("mpijob-v2beta1-running")[0].ref).parse(mpi).is_suspended


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
ODD: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, 0, -1, 2**40, 1e300, "", "x", "7", "9" * 30, [], [None], {}, [{}], {"x": 1}]
).map(deepcopy)


@st.composite
def spoiled(draw: st.DrawFn, kind: JobKind) -> Any:
    """Draw an object of a kind in which some values, anywhere, became others."""
    situations = [each for each in SITUATIONS if kind_named(objects(each)[0]) is kind]
    obj = objects(draw(st.sampled_from(situations)))[0]
    for _ in range(draw(st.integers(1, 3))):
        holders = [each for each in walk(obj) if each]
        holder = draw(st.sampled_from(holders)) if holders else obj
        key = draw(st.sampled_from(list(holder) if isinstance(holder, dict) else list(range(len(holder)))))
        holder[key] = draw(ODD | JSON)
    return obj


def walk(obj: Any) -> list[Any]:
    """Return every object and list in a manifest, itself first."""
    inner = obj.values() if isinstance(obj, dict) else obj if isinstance(obj, list) else ()
    found = [each for value in inner for each in walk(value)]
    return [obj, *found] if isinstance(obj, (dict, list)) else found


@every_kind
@given(data=st.data())
@settings(max_examples=100)
def test_any_object_is_joined_or_rejected(kind: JobKind, data: st.DataObject) -> None:
    obj = data.draw(spoiled(kind))
    try:
        job = JobReader(kind).read(json.dumps(obj).encode())
    except msgspec.DecodeError:
        return
    assert len(job.replicas) < 10_000
    _, rows = join([], [], [job])
    assert rows[0].ref == job.ref


@every_kind
@given(obj=JSON)
@settings(max_examples=50)
def test_any_json_is_parsed_or_rejected(kind: JobKind, obj: Any) -> None:
    body = json.dumps({"metadata": {"name": "a", "uid": "u"}, "spec": obj, "status": obj}).encode()
    try:
        assert JobReader(kind).read(body).ref.name == "a"
    except msgspec.DecodeError:
        return


@every_kind
@given(
    labels=st.dictionaries(
        st.sampled_from(
            sorted({key for each in SITUATIONS for pod in pods_in(each) for key in pod.metadata.labels or ()})
        ),
        st.text(max_size=12),
    ),
    name=st.text(max_size=20),
)
@settings(max_examples=50)
def test_any_labels_give_a_place_or_none(kind: JobKind, labels: dict[str, str], name: str) -> None:
    pod = read_pods({"metadata": {"name": name, "labels": labels}})[0]
    instance = kind.instance_of(pod)
    assert instance is None or instance[1] is None or instance[1] >= 0
    assert isinstance(kind.job_of(pod), str)


@every_kind
def test_a_job_is_not_lost_because_of_nulls(kind: JobKind) -> None:
    obj = next(objects(each)[0] for each in SITUATIONS if kind_named(objects(each)[0]) is kind)
    obj["metadata"] |= {
        "labels": None,
        "creationTimestamp": None,
        "ownerReferences": None,
        "annotations": None,
    }
    obj["spec"] = {**dict.fromkeys(obj["spec"]), **obj["spec"]}
    odd = {"conditions": [None, dict.fromkeys(("type", "status", "reason", "lastTransitionTime"))]}
    for status in (None, {}, dict.fromkeys(obj.get("status") or {}), odd):
        assert JobReader(kind).read(json.dumps({**obj, "status": status}).encode()).replicas


JOB: Object = {
    "apiVersion": "tune.example.org/v1",
    "kind": "TuneJob",
    "metadata": {"name": "sweep", "namespace": "lab", "uid": "job-sweep"},
    "spec": {
        "trials": 3,
        "template": {"spec": {"containers": [{"name": "trial", "resources": {"limits": {GPU: 2}}}]}},
    },
    "status": {"conditions": []},
}

SHOW = """
import json, sys
import k8s.kinds
from k8s.cluster.discovery import ServedKinds, choose
from tests.support.objects import joined

nodes, pods, jobs = json.load(sys.stdin)
_, rows = joined(nodes, pods, jobs)
served = ServedKinds({"tune.example.org/v1": frozenset({"tunejobs"})})
print(json.dumps({
    "file": k8s.kinds.__file__,
    "mirrored": [kind.title for kind in choose(k8s.kinds.KINDS, served)],
    "titles": [k8s.kinds.kind_of(job.ref).title for job in rows.values()],
    "rows": [
        [job.ref.name, job.status, job.gpus_requested, job.gpus_allocated,
         [(each.name, each.pod, each.node, each.status) for each in job.instances]]
        for job in rows.values()
    ],
}))
"""


def trial(index: int) -> Object:
    """Return a pod of the job that only its labels name: its owner is an object in between."""
    labels = {"tune.example.org/study": "sweep", "tune.example.org/trial": str(index)}
    meta = {"name": f"sweep-{index}", "namespace": "lab", "uid": f"pod-{index}", "labels": labels}
    spec = {"nodeName": "a", **JOB["spec"]["template"]["spec"]}
    return {"metadata": meta, "spec": spec, "status": {"phase": "Running"}}


def shown(folder: Path, *objects: list[Object]) -> dict[str, Any]:
    """Join objects in a process that has `k8s` from `folder`, and return what it makes of them."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", SHOW],
        input=json.dumps(objects),
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(folder), str(ROOT)))},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert Path(found.pop("file")).is_relative_to(folder)
    return found


def test_a_kind_added_by_one_file_and_one_line_is_mirrored_and_its_jobs_have_rows(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "k8s", tmp_path / "k8s", ignore=shutil.ignore_patterns("__pycache__"))
    kinds = tmp_path / "k8s" / "kinds"
    objects = [node("a")], [trial(0), trial(2)], [JOB]

    known = shown(tmp_path, *objects[:2], [])
    assert "TuneJob" not in known["mirrored"]
    assert [name for name, *_ in known["rows"]] == ["sweep-0", "sweep-2"]  # pods without a known job

    shutil.copy(ROOT / "tests" / "k8s" / "kinds" / "tune_job.py", kinds)
    listing = kinds / "__init__.py"
    text = listing.read_text()
    head = "\nKINDS: tuple[JobKind, ...] = (\n"
    assert head in text
    text = text.replace(head, f"{head}    TuneJob(),\n")
    listing.write_text(text.replace("\nCREATABLE:", "\nfrom k8s.kinds.tune_job import TuneJob\n\nCREATABLE:"))

    first, last = (["trial-" + name, "sweep-" + name, "a", "Running"] for name in "02")
    trials = [first, ["trial-1", "", "", "Pending"], last]
    assert shown(tmp_path, *objects) == {
        "mirrored": ["TuneJob"],
        "titles": ["TuneJob"],
        "rows": [["sweep", "Running", 6, 4, trials]],
    }
