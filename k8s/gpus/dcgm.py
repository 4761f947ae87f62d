"""Samples in the Prometheus text format, and conversion of DCGM samples to one reading per GPU.

Fields and labels differ between clusters and versions, so a missing value is unknown, never 0.
Source: NVIDIA/dcgm-exporter, `etc/default-counters.csv` (fields and units) and
`internal/pkg/rendermetrics` (labels); Prometheus, "Exposition formats", text-based format 0.0.4. OpenMetrics
1.0 differs only in parts that are skipped here (comments, exemplars, timestamps).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Set
from datetime import datetime
from typing import NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from k8s.gpus.readings import GpuReading, PodContainer, Source, Throttle

# Sample lines of exporters have a few hundred bytes; longer lines are skipped.
MAX_LINE_BYTES = 16 * 1024
_NAME = re.compile(r"[ \t]*([a-zA-Z_:][a-zA-Z0-9_:]*)[ \t]*(\{)?")
_LABEL = re.compile(r'[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\]|\\.)*)"[ \t]*(,|(?=\}))')
_END = re.compile(r"[ \t]*\}")
_ESCAPED = re.compile(r"\\(.)")
_MEANINGS = {"n": "\n"}


class Sample(NamedTuple):
    """One sample: a metric, its labels and its value, which may be infinite or NaN."""

    name: str
    labels: Mapping[str, str]
    value: float


def read_samples(text: bytes, wanted: Iterable[str] | None = None) -> Iterator[Sample]:
    """Yield the samples of a text, or only those of the `wanted` metrics.

    Malformed lines are skipped, so one bad field hides no other, and HTML yields nothing.
    """
    names = None if wanted is None else frozenset(wanted)
    for line in text.split(b"\n"):
        if not line or line[0] == 35 or len(line) > MAX_LINE_BYTES:  # 35: a comment's #
            continue
        sample = _sample(line.decode("utf-8", "replace"), names)
        if sample is not None:
            yield sample


def _sample(line: str, wanted: frozenset[str] | None) -> Sample | None:
    start = _NAME.match(line)
    if start is None or (wanted is not None and start[1] not in wanted):
        return None
    labels: dict[str, str] = {}
    place = start.end()
    if start[2]:
        while found := _LABEL.match(line, place):
            value = found[2]
            labels[found[1]] = _ESCAPED.sub(_meaning, value) if "\\" in value else value
            place = found.end()
        end = _END.match(line, place)
        if end is None:
            return None
        place = end.end()
    fields = line[place:].split(None, 1)
    if not fields:
        return None
    try:
        return Sample(start[1], labels, float(fields[0]))
    except ValueError:
        return None


def _meaning(escaped: re.Match[str]) -> str:
    return _MEANINGS.get(escaped[1], escaped[1])


def known(value: float) -> float | None:
    """Return a value, or None for one of DCGM's blank values.

    Blanks are near 2^31, 2^47 and 2^63 (`DCGM_INT32_BLANK`, `DCGM_FP64_BLANK`, `DCGM_INT64_BLANK`,
    each followed by not-found, not-supported and not-permitted); no GPU metric is that large.
    """
    if not math.isfinite(value) or value < 0:
        return None
    for blank in _BLANKS:
        if blank <= value <= blank + 16:
            return None
    return None if value >= _TOO_LARGE else value


_BLANKS = (0x7FFFFFF0, 2.0**47)
_TOO_LARGE = 2.0**62


T = TypeVar("T")
_MIB = 1024 * 1024
_UTILISATION = "DCGM_FI_DEV_GPU_UTIL"
_ENGINES = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
_TENSOR = "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"
_USED, _FREE, _RESERVED, _TOTAL = (f"DCGM_FI_DEV_FB_{word}" for word in ("USED", "FREE", "RESERVED", "TOTAL"))
_POWER, _HEAT, _MEMORY_HEAT = "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_MEMORY_TEMP"
_LIMITS = ("DCGM_FI_DEV_ENFORCED_POWER_LIMIT", "DCGM_FI_DEV_POWER_MGMT_LIMIT")
_CLOCK, _XID, _XID_COUNT = "DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_XID_ERRORS", "DCGM_EXP_XID_ERRORS_COUNT"
_REASONS = ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS")
_EVENTS = "DCGM_EXP_CLOCK_EVENTS_COUNT"
_ECC, _REMAP = "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "DCGM_FI_DEV_ROW_REMAP_FAILURE"
METRICS = (
    *(_UTILISATION, _ENGINES, _TENSOR, _USED, _FREE, _RESERVED, _TOTAL, _POWER, _HEAT, _MEMORY_HEAT),
    *(*_LIMITS, _CLOCK, _XID, _XID_COUNT, *_REASONS, _EVENTS, _ECC, _REMAP),
)
"""Metrics to read from an exporter; all others are skipped."""
# Bits of the throttle reasons. Others, such as idle or application clocks, slow nothing down.
_BITS = {
    0x04: Throttle.POWER_CAP,
    0x08: Throttle.HARDWARE,
    0x20: Throttle.THERMAL,
    0x40: Throttle.HARDWARE_THERMAL,
    0x80: Throttle.POWER_BRAKE,
}
# Values of the label `clock_event`.
_EVENT_NAMES = {
    "power_cap": Throttle.POWER_CAP,
    "hw_slowdown": Throttle.HARDWARE,
    "sw_thermal": Throttle.THERMAL,
    "hw_thermal": Throttle.HARDWARE_THERMAL,
    "hw_power_brake": Throttle.POWER_BRAKE,
}
# Labels of the pod that holds the GPU, the most reliable first: beside `exported_pod`, `pod` is the exporter.
_POD_LABELS = (
    ("exported_namespace", "exported_pod", "exported_container"),
    ("pod_namespace", "pod_name", "container_name"),
    ("exported_pod_namespace", "exported_pod_name", "exported_container_name"),
    ("namespace", "pod", "container"),
)
# Labels of the node, the most reliable first.
_HOSTS = ("Hostname", "hostname", "node", "kubernetes_node", "exported_node", "nodename")
_EXPORTER = "dcgm-exporter"
# The longest name in Kubernetes.
MAX_NAME = 253
# Limit of accepted GPUs and MIG instances; a real node has at most 16 times 7.
MAX_GPUS = 1024


class _Gpu(msgspec.Struct):
    """Values of one GPU while its samples are collected."""

    index: int
    labels: Mapping[str, str]
    of_device: dict[str, float] = msgspec.field(default_factory=dict)
    """Values of samples without a pod label."""
    of_pods: dict[str, float] = msgspec.field(default_factory=dict)
    """Maximum of the samples with a pod label: a shared GPU has one per pod."""
    throttles: set[Throttle] = msgspec.field(default_factory=set)
    holders: dict[PodContainer, None] = msgspec.field(default_factory=dict)

    def value(self, *names: str) -> float | None:
        for name in names:
            found = self.of_device.get(name, self.of_pods.get(name))
            if found is not None:
                return found
        return None


def gpu_readings(
    samples: Iterable[Sample], node: str, source: Source, read_at: datetime
) -> tuple[GpuReading, ...]:
    """Return the readings of one node by GPU index; each MIG instance has a reading of its own.

    Args:
        samples: Samples of that node only.
        node: Name of the node.
        source: Origin of the samples.
        read_at: Time of the samples.
    """
    gpus: dict[tuple[int, str], _Gpu] = {}
    for sample in samples:
        place = _place(sample.labels)
        if place is None or (place not in gpus and len(gpus) >= MAX_GPUS):
            continue
        _add(gpus.setdefault(place, _Gpu(place[0], sample.labels)), sample, source)
    readings = [_reading(gpu, place[1], node, source, read_at) for place, gpu in gpus.items()]
    readings = _without_parents(_with_shared_numbers(readings))
    return tuple(sorted(readings, key=lambda each: (each.index, len(each.mig_id), each.mig_id)))


def node_of(labels: Mapping[str, str], nodes: Set[str]) -> str:
    """Return the node in `nodes` that a sample belongs to, by host name; empty if there is none."""
    for label in _HOSTS:
        host = labels.get(label, "")
        for name in (host, host.partition(".")[0], host.rpartition(":")[0]):
            if name and name in nodes:
                return name
    return ""


def _place(labels: Mapping[str, str]) -> tuple[int, str] | None:
    # None if the sample is not about a GPU.
    index = labels.get("gpu") or labels.get("device", "").removeprefix("nvidia")
    if not index.isdecimal() or len(index) > 4:
        return None
    return int(index), _word(labels, "GPU_I_ID")


def _word(labels: Mapping[str, str], *names: str) -> str:
    return next((labels[name] for name in names if labels.get(name)), "")[:MAX_NAME]


def _add(gpu: _Gpu, sample: Sample, source: Source) -> None:
    holder = _holder(sample.labels, source)
    if holder is not None:
        gpu.holders[holder] = None
    value = known(sample.value)
    if value is None:
        return
    if sample.name == _EVENTS:
        event = _EVENT_NAMES.get(sample.labels.get("clock_event", ""))
        gpu.of_device.setdefault(_EVENTS, 0.0)
        if event is not None and value:
            gpu.throttles.add(event)
        return
    if sample.name == _XID_COUNT:
        xid = sample.labels.get("xid", "")
        gpu.of_device.setdefault(_XID_COUNT, 0.0)
        if value and xid.isdecimal() and len(xid) <= 4:
            gpu.of_device[_XID_COUNT] = float(xid)
        return
    if holder is None:
        gpu.of_device[sample.name] = value
    else:
        gpu.of_pods[sample.name] = max(value, gpu.of_pods.get(sample.name, value))


def _holder(labels: Mapping[str, str], source: Source) -> PodContainer | None:
    for namespace, pod, container in _POD_LABELS:
        if labels.get(pod) and labels.get(namespace):
            if source is Source.PROMETHEUS and _EXPORTER in labels[pod]:
                return None  # where no pod has the GPU, Prometheus names the pod that it scraped
            return PodContainer(*(_word(labels, label) for label in (namespace, pod, container)))
    return None


def _reading(gpu: _Gpu, mig_id: str, node: str, source: Source, read_at: datetime) -> GpuReading:
    labels = gpu.labels
    engines = gpu.value(_ENGINES)
    utilisation = gpu.value(_UTILISATION) if not mig_id else None
    if utilisation is None and engines is not None:
        utilisation = 100 * engines
    xid, remap = gpu.value(_XID, _XID_COUNT), gpu.value(_REMAP)
    ecc, tensor = gpu.value(_ECC), gpu.value(_TENSOR)
    used = gpu.value(_USED)
    return GpuReading(
        node=node,
        index=gpu.index,
        source=source,
        read_at=read_at,
        uuid=_word(labels, "UUID", "uuid", "gpu_uuid"),
        model=_word(labels, "modelName", "model_name"),
        mig_id=mig_id,
        mig_profile=_word(labels, "GPU_I_PROFILE"),
        utilisation=None if utilisation is None else min(100.0, utilisation),
        tensor_active=None if tensor is None else min(100.0, 100 * tensor),
        memory_used=None if used is None else int(used * _MIB),
        memory_total=_memory_total(gpu),
        power_w=None if mig_id else gpu.value(_POWER),  # an exporter repeats the card's for each instance
        power_limit_w=None if mig_id else gpu.value(*_LIMITS),
        temperature_c=gpu.value(_HEAT),
        memory_temperature_c=gpu.value(_MEMORY_HEAT) or None,  # 0 where it has no such sensor
        sm_clock_mhz=gpu.value(_CLOCK),
        throttles=_throttles(gpu),
        xid=None if xid is None else int(xid),
        ecc_errors=None if ecc is None else int(ecc),
        row_remap_failed=None if remap is None else bool(remap),
        holders=tuple(gpu.holders),
    )


def _memory_total(gpu: _Gpu) -> int | None:
    total, used, free = gpu.value(_TOTAL), gpu.value(_USED), gpu.value(_FREE)
    if total is None:
        if used is None or free is None:
            return None
        total = used + free + (gpu.value(_RESERVED) or 0.0)
    return int(total * _MIB)


def _throttles(gpu: _Gpu) -> frozenset[Throttle] | None:
    reasons = gpu.value(*_REASONS)
    if reasons is None:
        return frozenset(gpu.throttles) if _EVENTS in gpu.of_device else None
    return frozenset(meaning for bit, meaning in _BITS.items() if int(reasons) & bit)


def _with_shared_numbers(readings: list[GpuReading]) -> list[GpuReading]:
    # Temperature and faults belong to the card, so MIG instances inherit them.
    cards = {reading.index: reading for reading in readings if not reading.mig_id}
    return [
        replace(
            reading,
            temperature_c=_or(reading.temperature_c, card.temperature_c),
            memory_temperature_c=_or(reading.memory_temperature_c, card.memory_temperature_c),
            throttles=_or(reading.throttles, card.throttles),
            xid=_or(reading.xid, card.xid),
            ecc_errors=_or(reading.ecc_errors, card.ecc_errors),
        )
        if reading.mig_id and (card := cards.get(reading.index)) is not None
        else reading
        for reading in readings
    ]


def _or(own: T | None, of_card: T | None) -> T | None:
    return of_card if own is None else own


def _without_parents(readings: list[GpuReading]) -> list[GpuReading]:
    # Pods get the instances of a partitioned GPU, not the GPU itself.
    cut = {reading.index for reading in readings if reading.mig_id}
    return [reading for reading in readings if reading.mig_id or reading.index not in cut]
