"""Values of `top --live -o json`: measurements with their source and time; None is unknown."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from k8s.telemetry.gpu_warnings import GpuWarning
from k8s.telemetry.readings import GpuReading, NodeReadings, PodReadings, RankReading, Traffic, Usage
from tui.tables.column import Values
from tui.text.format import seconds_since


def node_live_values(node: NodeReadings, gpus: Iterable[Values], now: datetime) -> Values:
    """Return a node's measurements with its `gpus`, or why there are none."""
    missing = node.missing
    return {
        "gpus": list(gpus),
        "missing": None if missing is None else {"cause": str(missing.cause), "words": missing.words},
        "usage": _usage_values(node.usage, now),
        "traffic": _traffic_values(node.traffic, now),
    }


def gpu_values(gpu: GpuReading, warnings: Iterable[GpuWarning], now: datetime) -> Values:
    """Return the measurements of a GPU or MIG instance."""
    return {
        "index": gpu.index,
        "uuid": gpu.uuid,
        "model": gpu.model,
        "mig_id": gpu.mig_id or None,
        "mig_profile": gpu.mig_profile or None,
        "utilisation_percent": gpu.utilisation,
        "tensor_active_percent": gpu.tensor_active,
        "memory_used_bytes": gpu.memory_used,
        "memory_total_bytes": gpu.memory_total,
        "power_w": gpu.power_w,
        "power_limit_w": gpu.power_limit_w,
        "temperature_c": gpu.temperature_c,
        "memory_temperature_c": gpu.memory_temperature_c,
        "sm_clock_mhz": gpu.sm_clock_mhz,
        "throttles": None if gpu.throttles is None else sorted(str(each) for each in gpu.throttles),
        "xid": gpu.xid,
        "ecc_errors": gpu.ecc_errors,
        "row_remap_failed": gpu.row_remap_failed,
        "holders": [each._asdict() for each in gpu.holders],
        "warnings": [warning_values(each) for each in warnings],
        **_told(gpu, now),
    }


def warning_values(warning: GpuWarning) -> Values:
    """Return a GPU warning."""
    return {"kind": str(warning.kind), "sentence": warning.text, "is_serious": warning.is_serious}


def rank_values(line: RankReading, gpu: Values | None) -> Values:
    """Return one rank of a job and its GPU, in the form of `gpu_values`."""
    return {
        "rank": line.rank,
        "instance": line.instance.name,
        "pod": line.instance.pod,
        "node": line.instance.node,
        "is_assumed": line.is_assumed,
        "gpu": gpu,
    }


def pod_values(pod: PodReadings, now: datetime) -> Values:
    """Return a pod's usage other than GPUs."""
    return {
        "pod": pod.pod,
        "usage": _usage_values(pod.usage, now),
        "traffic": _traffic_values(pod.traffic, now),
    }


def _usage_values(usage: Usage | None, now: datetime) -> Values | None:
    if usage is None:
        return None
    return {"cpu_cores": usage.cpu_cores, "memory_bytes": usage.memory_bytes, **_told(usage, now)}


def _traffic_values(traffic: Traffic | None, now: datetime) -> Values | None:
    if traffic is None:
        return None
    return {
        "received_bytes_per_s": traffic.received_bps,
        "sent_bytes_per_s": traffic.sent_bps,
        "read_bytes_per_s": traffic.read_bps,
        "written_bytes_per_s": traffic.written_bps,
        **_told(traffic, now),
    }


def _told(told: GpuReading | Usage | Traffic, now: datetime) -> Values:
    # Whole seconds: sources are not more precise than that.
    return {
        "source": str(told.source),
        "read_at": told.read_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "age_s": seconds_since(told.read_at, now),
    }
