"""Selection of a job's events, and the merging of repeated ones."""

from __future__ import annotations

from typing import Any

from k8s import models
from k8s.models import Pod
from k8s.models.event import Event
from k8s.snapshot import Job
from tests.support.objects import Object, batch_job, joined, pod_of, pytorch_job, recorded
from tui.tables.events import EventGrouper, JobEventFilter, fold_job_events, full_text

UID = "0a1b2c3d-0000-4000-8000-000000000000"


def event(kind: str, name: str, message: str = "happened", **more: Any) -> Event:
    uid = more.pop("uid", "")
    obj = {
        "metadata": {"name": f"{name}.1", "uid": f"{kind} {name} {message} {more.get('lastTimestamp', '')}"},
        "involvedObject": {"kind": kind, "name": name, "uid": uid, "namespace": "default"},
        "type": "Normal",
        "reason": "Reason",
        "message": message,
        **more,
    }
    found: Event = models.convert(obj, Event)
    return found


def relatives_of(obj: Object, *pods: Object, others: tuple[Object, ...] = ()) -> tuple[Job, JobEventFilter]:
    _, jobs = joined([], list(pods), [obj, *others])
    job = jobs[obj["metadata"]["name"]]
    by_uid = {pod["metadata"]["uid"]: models.convert(pod, Pod) for pod in pods}
    return job, JobEventFilter(job, by_uid, jobs.values())


def names_in(relatives: JobEventFilter, *events: Event) -> list[str | None]:
    return [relatives.name_of(each.involved_object) for each in events]


def test_events_of_a_job_include_its_pods_pod_groups_and_workloads() -> None:
    bert = pytorch_job("bert", workers=2, uid=UID)
    _, relatives = relatives_of(bert, pod_of(bert, "worker-0"))
    assert names_in(
        relatives,
        event("PyTorchJob", "bert", uid=UID),
        event("Pod", "bert-worker-0"),
        event("PodGroup", "bert"),
        event("PodGroup", f"podgroup-{UID}"),
        event("Workload", "pytorchjob-bert-0f3a9"),
        event("Job", "bert-worker"),
    ) == ["job", "worker-0", "PodGroup", "PodGroup", "Workload", "Job worker"]


def test_events_of_other_jobs_and_objects_are_excluded() -> None:
    bert, large = pytorch_job("bert", uid=UID), pytorch_job("bert-large")
    _, relatives = relatives_of(bert, others=(large, batch_job("bert-master")))
    assert (
        names_in(
            relatives,
            event("PyTorchJob", "bert", uid="of an earlier one"),
            event("PyTorchJob", "bert-large"),
            event("Pod", "bert-large-master-0"),
            event("Workload", "pytorchjob-bert-large-0f3a9"),
            event("Job", "bert-master"),
            event("PodGroup", "podgroup-of-another"),
            event("Node", "a100-1"),
        )
        == [None] * 7
    )


def test_events_of_owners_and_pod_groups_referenced_by_pods_are_included() -> None:
    bert = pytorch_job("bert")
    pod = pod_of(bert, "master-0")
    pod["metadata"]["ownerReferences"].append({"kind": "Job", "name": "bert-node-0", "uid": "j"})
    pod["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": "gang-7"}
    _, relatives = relatives_of(bert, pod)
    found = names_in(relatives, event("Job", "bert-node-0"), event("PodGroup", "gang-7"))
    assert found == ["Job node-0", "PodGroup"]


def test_equal_events_are_folded_and_sorted_newest_first() -> None:
    bert = pytorch_job("bert", workers=3, creationTimestamp="2026-01-01T00:00:00Z")
    pods = [pod_of(bert, place) for place in ("master-0", "worker-0", "worker-1")]
    job, relatives = relatives_of(bert, *pods)
    events = [
        event("Pod", "bert-master-0", "pulled", lastTimestamp="2026-01-01T00:01:00Z", count=2),
        event("Pod", "bert-worker-1", "pulled", lastTimestamp="2026-01-01T00:03:00Z"),
        event("PyTorchJob", "bert", "pulled", lastTimestamp="2026-01-01T00:02:00Z"),
        event("Pod", "bert-worker-0", "failed", type="Warning", eventTime="2026-01-01T00:04:00.123456Z"),
        event("PyTorchJob", "bert", "made", lastTimestamp="2025-12-31T00:00:00Z"),
    ]
    found = fold_job_events(events, relatives, job.created)
    assert [(each.newest.message, each.about, each.count, each.is_warning) for each in found] == [
        ("failed", "worker-0", 1, True),
        ("pulled", "master-0 +1", 3, False),
        ("pulled", "job", 1, False),
    ]
    text = full_text(found[1])
    assert (
        text.startswith("pulled\n") and "seen        3 times" in text and "Pod default/bert-worker-1" in text
    )


def test_recorded_events_of_the_scheduler_have_their_repetitions() -> None:
    found = EventGrouper().group([models.convert(each, Event) for each in recorded("event-series")], {})
    counts = [(each.folded.about, each.folded.count) for each in found]
    assert counts == [("pod/many-08-g8797", 3), ("pod/many-07-svzgv", 2), ("pod/deadline-4jw79", 2)]
    lines = full_text(found[0].folded)
    assert ":53:39" in lines and ":53:41" in lines and "default-scheduler" in lines
