"""Values of `-o json` and `-o yaml`. Their keys are a contract: add, do not rename."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from k8s.snapshot import Holder, Instance, Job, NodeRow, SharedGpuMemory
from tui.text.format import age, duration

Values = dict[str, Any]


def node_values(node: NodeRow) -> Values:
    """Return a node as in `top nodes -o json`."""
    return {
        "name": node.name,
        "ip": node.ip,
        "roles": list(node.roles),
        "status": node.status,
        "gpu_model": node.gpu_model,
        "is_simulated": node.is_simulated,
        "resources": {
            name: {"total": share.total, "allocated": share.allocated, "unhealthy": share.unhealthy}
            for name, share in node.resources.items()
        },
        "gpus_total": node.gpus_total,
        "gpus_allocated": node.gpus_allocated,
        "gpus_unhealthy": node.gpus_unhealthy,
        "gpus_free": node.gpus_free,
        "largest_free": node.largest_free,
        "mode": node.mode,
        "gpu_memory_bytes": node.gpu_memory or None,
        "shared_memory": _shared_values(node.shared),
        "holders": [_holder_values(each) for each in node.holders],
    }


def _holder_values(holder: Holder) -> Values:
    return {
        "namespace": holder.namespace,
        "pod": holder.pod,
        "job": holder.job,
        "gpus": holder.gpus,
        "resources": dict(holder.resources),
        "devices": list(holder.devices),
    }


def _shared_values(shared: SharedGpuMemory | None) -> Values | None:
    if shared is None:
        return None
    return {
        "total_gib": shared.total_gib,
        "allocated_gib": shared.allocated_gib,
        "devices": shared.devices,
        "devices_allocated": shared.devices_allocated,
        "allocated_gib_by_device": {str(name): held for name, held in shared.allocated_by_device.items()},
    }


def job_values(job: Job, now: datetime) -> Values:
    """Return a job as in `list -o json`."""
    return {
        "namespace": job.ref.namespace,
        "name": job.ref.name,
        "kind": job.ref.kind,
        "api_version": job.ref.api_version,
        "status": str(job.status),
        "reason": job.reason,
        "gpus_requested": job.gpus_requested,
        "gpus_allocated": job.gpus_allocated,
        "instances_running": job.instances_running,
        "instances_total": len(job.instances),
        "nodes": list(job.nodes),
        "user": job.user,
        "priority": job.priority,
        "age_s": seconds_since(job.created, now),
        "duration_s": duration_s(job, now),
        "created": timestamp(job.created),
    }


def job_details(job: Job, now: datetime, tensorboard: str | None) -> Values:
    """Return a job as in `get -o json`."""
    return {
        **job_values(job, now),
        "trainer": job.trainer,
        "log_dir": job.log_dir,
        "started": timestamp(job.started),
        "finished": timestamp(job.finished),
        "instances": [_instance_values(each, now) for each in job.instances],
        "conditions": [
            {
                "type": each.type,
                "status": each.status,
                "reason": each.reason or "",
                "message": each.message or "",
                "since": timestamp(each.last_transition_time),
            }
            for each in job.conditions
        ],
        "tensorboard": tensorboard,
    }


def _instance_values(instance: Instance, now: datetime) -> Values:
    return {
        "name": instance.name,
        "role": instance.role,
        "index": instance.index,
        "is_chief": instance.is_chief,
        "ranks": list(instance.ranks),
        "ranks_proof": instance.ranks_proof,
        "status": str(instance.status),
        "reason": instance.reason,
        "gpus": instance.gpus,
        "node": instance.node,
        "restarts": instance.restarts,
        "age_s": seconds_since(instance.created, now),
        "pod": instance.pod,
    }


def seconds_since(moment: datetime | None, now: datetime) -> int | None:
    """Return the age of a moment in whole seconds, at least 0 because clocks differ."""
    return None if moment is None else max(0, int((now - moment).total_seconds()))


def duration_s(job: Job, now: datetime) -> int | None:
    """Return a job's run time so far; None before it starts."""
    return None if job.started is None else seconds_since(job.started, job.finished or now)


def duration_text(job: Job, now: datetime) -> str:
    """Format a job's run time in whole seconds, the API's resolution."""
    seconds = duration_s(job, now)
    return age(seconds) if seconds is not None and seconds < 10 else duration(seconds)


def timestamp(moment: datetime | None) -> str | None:
    """Format a time as the API does."""
    return None if moment is None else moment.strftime("%Y-%m-%dT%H:%M:%SZ")
