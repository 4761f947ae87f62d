"""Values of the form for a new job, and snapshots of the cluster that it is for."""

from __future__ import annotations

from typing import Any

from k8s.kinds import CreatableKind, JobRef
from k8s.kinds.job_spec import JOB_FIELDS, JobSpec
from k8s.snapshot import ClusterSnapshot, Job, NodeRow, Share
from k8s.status import Status
from tui.draft.fields import COMMAND, default_values
from tui.draft.job_draft import texts_of


def form_values(**values: str) -> dict[str, str]:
    return {**default_values(), "name": "bert-1", "claim": "workspace", **values}


def values_from_spec(spec: JobSpec, kind: CreatableKind) -> dict[str, str]:
    """Return the form's values of a clone."""
    texts = texts_of({name: getattr(spec, name) for name in JOB_FIELDS})
    return {**default_values(), "kind": kind.title, **texts}


def command(line: str, **values: str) -> dict[str, str]:
    return form_values(run=COMMAND, command=line, **values)


def node(
    name: str, total: int, held: int = 0, status: str = "Ready", resource: str = "nvidia.com/gpu"
) -> NodeRow:
    shares = {resource: Share(total, held, 0)}
    allocatable: dict[str, str | int | float] = {resource: total, "cpu": "64", "memory": "512Gi"}
    labels = {"kubernetes.io/hostname": name}
    return NodeRow(name, "", (), status, False, "", shares, (), None, labels=labels, allocatable=allocatable)


def job(name: str, namespace: str = "default") -> Job:
    ref = JobRef(namespace, name, "PyTorchJob", "kubeflow.org/v1")
    return Job(ref, "u", Status.RUNNING, "", 0, 0, (), 0, "", "", None, None, None, (), "", "")


def cluster(*nodes: NodeRow, **fields: Any) -> ClusterSnapshot:
    return ClusterSnapshot(nodes=nodes, is_synced=True, **fields)
