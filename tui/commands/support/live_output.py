"""`top nodes --live` and `top jobs --live`: current measurements beside the allocation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from statistics import fmean

from k8s.client.client import Client
from k8s.client.proxied import parse_address
from k8s.gpus.gpu_warnings import GpuWarning, warnings_of
from k8s.gpus.reader import TelemetryReader
from k8s.gpus.readings import (
    GpuReading,
    NodeReadings,
    PodReadings,
    RankReading,
    Telemetry,
    Traffic,
    Usage,
    holders_of,
    readings_by_rank,
)
from k8s.snapshot import ClusterSnapshot, Job, NodeRow
from tui.commands.support.output import write, write_stderr, write_table
from tui.settings.options import ConsoleOptions
from tui.tables.column import OutputColumn, Values
from tui.text import gpu_words
from tui.text.format import NOTHING, age, memory, plural, seconds_since

_NUMBERS = (
    OutputColumn("UTIL", "right"),
    OutputColumn("MEMORY", "right"),
    OutputColumn("POWER", "right"),
    OutputColumn("TEMP", "right"),
    OutputColumn("SOURCE"),
    OutputColumn("AGE", "right"),
)
NODE_COLUMNS = (
    OutputColumn("NODE"),
    OutputColumn("GPU"),
    OutputColumn("MODEL", is_wide=True),
    *_NUMBERS,
    OutputColumn("HELD BY"),
    OutputColumn("NOTE"),
)
RANK_COLUMNS = (
    OutputColumn("NAMESPACE"),
    OutputColumn("JOB"),
    OutputColumn("RANK", "right"),
    OutputColumn("INSTANCE"),
    OutputColumn("NODE"),
    OutputColumn("GPU"),
    OutputColumn("MODEL", is_wide=True),
    *_NUMBERS,
    OutputColumn("NOTE"),
)
USAGE_COLUMNS = (
    OutputColumn("CPU", "right"),
    OutputColumn("MEMORY", "right"),
    OutputColumn("RECEIVED/s", "right"),
    OutputColumn("SENT/s", "right"),
    OutputColumn("READ/s", "right"),
    OutputColumn("WRITTEN/s", "right"),
    OutputColumn("SOURCES"),
)
_Uses = Sequence[tuple[tuple[str, ...], Usage | None, Traffic | None]]
_BLANK = (NOTHING,) * len(_NUMBERS)


class LiveReadings:
    """Measurements of the nodes and jobs of one snapshot, and their output."""

    def __init__(self, snapshot: ClusterSnapshot, telemetry: Telemetry) -> None:
        """Relate all ages to the current time."""
        self._snapshot, self._telemetry = snapshot, telemetry
        self._now = datetime.now(UTC)

    @classmethod
    async def read(
        cls,
        options: ConsoleOptions,
        client: Client,
        snapshot: ClusterSnapshot,
        nodes: Iterable[NodeRow],
        jobs: Iterable[Job] = (),
    ) -> LiveReadings:
        """Measure nodes and jobs; report on stderr, in one line, what this user may not read."""
        address = parse_address(options.prometheus) if options.prometheus else None
        telemetry = await TelemetryReader(client, prometheus=address).read(nodes, jobs)
        for notice in telemetry.notices:
            write_stderr(notice)
        return cls(snapshot, telemetry)

    def node_values(self, node: NodeRow) -> Values:
        """Return the measurements of a node."""
        found = self._of(node.name)
        return node_live_values(found, [self._gpu_values(gpu) for gpu in found.gpus], self._now)

    def job_values(self, job: Job) -> Values:
        """Return the measurements of a job: its ranks' GPUs and its pods' usage."""
        namespace = job.ref.namespace
        pods = [self._telemetry.pods.get((namespace, each.pod)) for each in job.instances]
        return {
            "ranks": [
                rank_values(line, None if line.gpu is None else self._gpu_values(line.gpu))
                for line in self._ranks(job)
            ],
            "pods": [pod_values(pod, self._now) for pod in pods if pod is not None],
        }

    def write_nodes(self, nodes: Sequence[NodeRow], *, is_wide: bool) -> None:
        """Print a line per GPU, and one with the reason for each node without measurements."""
        rows = [row for node in nodes for row in self._node_rows(node)]
        write_table(NODE_COLUMNS, rows, is_wide=is_wide)
        found = [self._of(node.name) for node in nodes]
        uses: _Uses = [((each.node,), each.usage, each.traffic) for each in found]
        self._write_usage((OutputColumn("NODE"),), uses)
        measured = [gpu for each in found for gpu in each.gpus]
        known = [gpu.utilisation for gpu in measured if gpu.utilisation is not None]
        total = sum(node.gpus_total for node in nodes)
        mean = f"; they work {fmean(known):.0f} % of the time" if known else ""
        write(f"\nMeasured: {plural(len(measured), 'GPU')} of {total}{mean}.")

    def write_jobs(self, jobs: Sequence[Job], *, is_wide: bool) -> None:
        """Print a line per rank of each job that holds GPUs."""
        lines = [(job, line) for job in jobs for line in self._ranks(job)]
        if not lines:
            write("No running job holds GPUs.")
            return
        write_table(RANK_COLUMNS, [self._rank_row(job, line) for job, line in lines], is_wide=is_wide)
        pods = self._telemetry.pods.values()
        uses: _Uses = [((pod.namespace, pod.pod), pod.usage, pod.traffic) for pod in pods]
        self._write_usage((OutputColumn("NAMESPACE"), OutputColumn("POD")), uses)

    def _write_usage(self, names: Sequence[OutputColumn], uses: _Uses) -> None:
        rows = [
            (*place, *self._usage_cells(usage, traffic))
            for place, usage, traffic in uses
            if usage is not None or traffic is not None
        ]
        if rows:
            write("")
            write_table((*names, *USAGE_COLUMNS), rows)

    def _of(self, node: str) -> NodeReadings:
        return self._telemetry.nodes.get(node, NodeReadings(node))

    def _ranks(self, job: Job) -> tuple[RankReading, ...]:
        if not job.gpus_allocated:
            return ()
        return readings_by_rank(job, self._telemetry, self._snapshot.nodes)

    def _node_rows(self, node: NodeRow) -> Iterable[tuple[str, ...]]:
        found = self._of(node.name)
        why = found.missing.words if found.missing is not None else ""
        if not found.gpus and (why or node.gpus_total):
            yield (node.name, NOTHING, NOTHING, *_BLANK, NOTHING, why or NOTHING)
        for gpu in found.gpus:
            pods = [f"{each.namespace}/{each.pod}" for each in holders_of(gpu, self._snapshot.nodes)]
            yield (
                node.name,
                _gpu_name(gpu),
                gpu.model or NOTHING,
                *self._numbers(gpu),
                ", ".join(pods) or NOTHING,
                self._note(gpu) or why or NOTHING,
            )

    def _rank_row(self, job: Job, line: RankReading) -> tuple[str, ...]:
        gpu, instance = line.gpu, line.instance
        why = "" if gpu is not None else self._why_unknown(instance.node)
        assumed = "Whose GPU it is is taken from the scheduler's books." if line.is_assumed else ""
        return (
            job.ref.namespace,
            job.ref.name,
            NOTHING if line.rank is None else str(line.rank),
            instance.name,
            instance.node or NOTHING,
            NOTHING if gpu is None else _gpu_name(gpu),
            NOTHING if gpu is None else gpu.model or NOTHING,
            *(_BLANK if gpu is None else self._numbers(gpu)),
            ("" if gpu is None else self._note(gpu)) or why or assumed or NOTHING,
        )

    def _why_unknown(self, node: str) -> str:
        found = self._of(node)
        if found.missing is not None:
            return found.missing.words
        return f"{found.source} does not say whose GPUs these are." if found.gpus else ""

    def _numbers(self, gpu: GpuReading) -> tuple[str, ...]:
        return (
            gpu_words.percent(gpu.utilisation),
            gpu_words.gpu_memory(gpu.memory_used, gpu.memory_total),
            gpu_words.power(gpu.power_w, gpu.power_limit_w),
            gpu_words.temperature(gpu.temperature_c),
            str(gpu.source),
            self._age(gpu),
        )

    def _usage_cells(self, usage: Usage | None, traffic: Traffic | None) -> tuple[str, ...]:
        rates = (
            (None,) * 4
            if traffic is None
            else (traffic.received_bps, traffic.sent_bps, traffic.read_bps, traffic.written_bps)
        )
        told = [f"{each.source} {self._age(each)}" for each in (usage, traffic) if each is not None]
        return (
            gpu_words.cores(usage),
            gpu_words.host_memory(usage),
            *(NOTHING if rate is None else memory(rate) for rate in rates),
            ", ".join(told),
        )

    def _age(self, told: GpuReading | Usage | Traffic) -> str:
        return age((self._now - told.read_at).total_seconds())

    def _note(self, gpu: GpuReading) -> str:
        return " ".join(warning.text for warning in warnings_of(gpu))

    def _gpu_values(self, gpu: GpuReading) -> Values:
        return gpu_values(gpu, warnings_of(gpu), self._now)


def _gpu_name(gpu: GpuReading) -> str:
    return f"{gpu.name} ({gpu.mig_profile})" if gpu.mig_profile else gpu.name


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
