"""Builders of the evidence that `k8s.reasons` examines, each in a line or two."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from k8s import models
from k8s.kinds import JobRef
from k8s.models import Condition, Node
from k8s.models.event import Event
from k8s.reasons.cause import Cause
from k8s.reasons.evidence import Evidence
from k8s.reasons.gather import declared_of
from k8s.reasons.objects import FullPod
from k8s.reasons.rules import explain
from k8s.snapshot import Holder, Instance, Job, NodeRow, Share
from k8s.status import Status
from tests.support.objects import GPU, Object, node, pytorch_job

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)  # the moment at which everything is looked at
REF = JobRef("default", "bert", "PyTorchJob", "kubeflow.org/v1")


def ago(seconds: float) -> str:
    """Return a moment before now, as the API writes it."""
    return (NOW - timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def instance(
    name: str = "master-0",
    status: Status = Status.PENDING,
    reason: str = "",
    *,
    node: str = "",
    has_pod: bool = True,
    ranks: tuple[int, ...] = (),
) -> Instance:
    role, _, index = name.rpartition("-")
    return Instance(
        name=name,
        role=role,
        index=int(index),
        is_chief=name == "master-0",
        ranks=ranks,
        ranks_proof="declared" if ranks else "none",
        status=status,
        reason=reason,
        gpus=8,
        node=node,
        restarts=0,
        created=None,
        pod=f"bert-{name}" if has_pod else "",
        pod_uid=f"uid-{name}" if has_pod else "",
        containers=("pytorch",),
    )


def job_of(
    instances: Iterable[Instance],
    status: Status = Status.PENDING,
    reason: str = "",
    conditions: Iterable[Object] = (),
    age_s: float = 300,
) -> Job:
    found = tuple(instances)
    return Job(
        ref=REF,
        uid="job-bert",
        status=status,
        reason=reason,
        gpus_requested=8 * len(found),
        gpus_allocated=0,
        instances=found,
        instances_running=sum(each.status is Status.RUNNING for each in found),
        user="li",
        priority="",
        created=NOW - timedelta(seconds=age_s),
        started=None,
        finished=None,
        conditions=tuple(models.convert(each, Condition) for each in conditions),
        log_dir="",
        trainer="",
    )


def spec_of(gpus: int = 8, **fields: Any) -> Object:
    """Return the spec of a pod with one container that wants GPUs."""
    container: Object = {"name": "pytorch", "image": "lab/train:1", "resources": {"limits": {GPU: gpus}}}
    return {"containers": [container], **fields}


def pod(name: str, spec: Object | None = None, age_s: float = 300, **status: Any) -> FullPod:
    """Return the pod of an instance; unless told otherwise a scheduler has found no node for it."""
    unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
    obj = {
        "metadata": {"name": f"bert-{name}", "namespace": "default", "creationTimestamp": ago(age_s)},
        "spec": spec if spec is not None else spec_of(),
        "status": {"phase": "Pending", "conditions": [unscheduled], **status},
    }
    found: FullPod = models.convert(obj, FullPod)
    return found


def event(about: str, reason: str, message: str, *, kind: str = "Pod", seconds_ago: float = 10) -> Event:
    obj = {
        "metadata": {"name": f"{about}.{reason}", "uid": f"{about}.{reason}.{seconds_ago}"},
        "involvedObject": {"kind": kind, "name": about},
        "reason": reason,
        "message": message,
        "lastTimestamp": ago(seconds_ago),
    }
    found: Event = models.convert(obj, Event)
    return found


def nodes_of(*objects: Object) -> tuple[Node, ...]:
    return tuple(models.convert(each, Node) for each in objects)


def labelled(name: str, gpus: int = 8, labels: Mapping[str, str] | None = None, **spec: Any) -> Object:
    found = node(name, gpus, **spec)
    found["metadata"]["labels"] = dict(labels or {})
    return found


def silent(name: str, gpus: int = 8) -> Object:
    """Return a node that does not answer, for ten minutes."""
    found = node(name, gpus)
    found["status"]["conditions"] = [
        {"type": "Ready", "status": "Unknown", "lastTransitionTime": ago(600), "message": "never heard of it"}
    ]
    return found


def held(name: str, total: int, **gpus_by_job: int) -> NodeRow:
    holders = tuple(Holder("default", f"{job}-master-0", job, gpus) for job, gpus in gpus_by_job.items())
    share = Share(total, sum(gpus_by_job.values()), 0)
    return NodeRow(name, "", (), "Ready", False, "", {GPU: share}, holders, None)


def evidence_of(
    *instances: Instance,
    status: Status = Status.PENDING,
    reason: str = "",
    conditions: Iterable[Object] = (),
    age_s: float = 300,
    manifest: Object | None = None,
    pods: Iterable[FullPod] = (),
    nodes: Iterable[Object] | None = None,
    rows: Iterable[NodeRow] = (),
    **parts: Any,
) -> Evidence:
    """Return evidence about the job bert, whose operator has answered unless `manifest` shows otherwise."""
    own = pytorch_job("bert", workers=len(instances)) | {"status": {"conditions": []}}
    found = own if manifest is None else manifest
    return Evidence(
        job=job_of(instances, status, reason, conditions, age_s),
        now=NOW,
        manifest=found,
        declared=declared_of(REF, found),
        pods={each.metadata.name: each for each in pods},
        nodes=nodes_of(*nodes) if nodes is not None else None,
        node_rows={row.name: row for row in rows},
        **parts,
    )


def explained(*instances: Instance, **parts: Any) -> Cause:
    return explain(evidence_of(*instances, **parts))


def read(kind: Any, obj: Object) -> Any:
    return models.convert(obj, kind)


def texts(answer: Cause, kind: str) -> list[str]:
    return [fact.text for fact in answer.facts if fact.kind == kind]


def starting(name: str = "worker-0", **status: Any) -> Any:
    """Return the pod of an instance that has a node."""
    return pod(name, spec_of(nodeName="a"), conditions=[], **status)


def waiting(reason: str, message: str = "", name: str = "pytorch", **more: Any) -> Object:
    return {"name": name, "state": {"waiting": {"reason": reason, "message": message}}, **more}


def ended(code: int, reason: str = "Error", at: float = 10, name: str = "pytorch", **more: Any) -> Object:
    return {
        "name": name,
        "state": {"terminated": {"exitCode": code, "reason": reason, "finishedAt": ago(at), **more}},
    }


def on_node(name: str = "worker-0", status: Status = Status.STARTING, **more: Any) -> Any:
    return instance(name, status, node="a", **more)


class Case(msgspec.Struct, frozen=True):
    """A waiting job; a sentence that ends with `…` is only the start."""

    sentence: str
    instances: tuple[Instance, ...]
    parts: Mapping[str, Any]
    help: str = ""
    """The first advice; empty for any."""
    facts: tuple[str, ...] = ()
    """Starts of facts, `kind: text`, and of advice, `help: text`."""
    absent: str = ""
    """In no fact."""


def case(
    sentence: str,
    *instances: Instance,
    help: str = "",
    facts: tuple[str, ...] = (),
    absent: str = "",
    **parts: Any,
) -> Case:
    return Case(sentence, instances or (instance(),), parts, help, facts, absent)


def check(case: Case) -> None:
    answer = explained(*case.instances, **case.parts)
    is_start = case.sentence.endswith("…")
    assert (answer.sentence[: len(case.sentence) - 1] + "…" if is_start else answer.sentence) == case.sentence
    assert case.help in ("", *answer.help[:1])
    found = [f"{fact.kind}: {fact.text}" for fact in answer.facts]
    assert len(found) < 20
    found += [f"help: {line}" for line in answer.help]
    assert [each for each in case.facts if not any(fact.startswith(each) for fact in found)] == []
    assert not case.absent or not any(case.absent in fact for fact in found)


def ids(case: Case) -> str:
    return case.sentence[:60]
