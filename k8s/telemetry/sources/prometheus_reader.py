"""The third tier: what a Prometheus in the cluster has read of exporters, nodes and pods."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

from k8s.client.client import Client
from k8s.errors import KubeError
from k8s.snapshot import NodeRow
from k8s.telemetry.readings import NodeReadings, NoReadings, NoReadingsCause, Source, Traffic
from k8s.telemetry.sources import prometheus
from k8s.telemetry.sources.dcgm import gpu_readings, node_of
from k8s.telemetry.sources.prometheus_address import PrometheusAddress
from k8s.telemetry.sources.prometheus_text import Sample
from k8s.telemetry.sources.refusals import Refusals

_NONE = NoReadings(NoReadingsCause.NO_EXPORTER, "No Prometheus is found in the cluster.")
_PLACE = "prometheus"
T = TypeVar("T")


class PrometheusReader:
    """Asks one Prometheus, which is found once, and remembers what may not be asked."""

    def __init__(
        self,
        client: Client,
        refusals: Refusals,
        now: Callable[[], datetime],
        address: PrometheusAddress | None = None,
    ) -> None:
        """Prepare; nothing is asked yet.

        Args:
            client: The cluster.
            refusals: What is not asked for now.
            now: This machine's clock, with a time zone.
            address: Where it is, if the user said so.
        """
        self._client, self._refusals, self._now = client, refusals, now
        self._configured = address
        self._address: PrometheusAddress | None = None

    @property
    def refused(self) -> NoReadings | None:
        """Return why it is not asked for now; None when it may be."""
        return self._refusals.get(_PLACE)

    async def gpus(self, nodes: Iterable[str]) -> dict[str, NodeReadings]:
        """Return the GPUs of the nodes of which it knows any."""
        names = list(nodes)
        if not names:
            return {}
        batches = _batches(names, prometheus.MOST_NODES)
        samples = await self._query(*map(prometheus.gpu_expression, batches))
        # Those of many nodes take a second, in which keys are answered.
        return await asyncio.to_thread(self._by_node, samples, frozenset(names))

    def _by_node(
        self, samples: Iterable[tuple[Sample, float]], nodes: frozenset[str]
    ) -> dict[str, NodeReadings]:
        """Return the GPUs of the nodes that samples are of, each sample with the time it was asked for."""
        now = self._now()
        found: dict[str, list[Sample]] = {}
        read_at: dict[str, datetime] = {}
        for sample, asked_s in samples:
            node = node_of(sample.labels, nodes)
            if not node:
                continue
            if "read_at" in sample.labels:
                moment = now - timedelta(seconds=_age_s(asked_s, sample.value))
                read_at[node] = min(moment, read_at.get(node, moment))
            else:
                found.setdefault(node, []).append(sample)
        return {
            node: NodeReadings(node, gpu_readings(each, node, Source.PROMETHEUS, read_at.get(node, now)))
            for node, each in found.items()
        }

    async def traffic_of_pods(self, pods: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Traffic]:
        """Return what pods, by namespace and name, move over the network and to their disks."""
        if not pods:
            return {}
        found: dict[tuple[str, str], dict[str, float]] = {}
        batches = _batches(pods, prometheus.MOST_PODS)
        for sample, _ in await self._query(*map(prometheus.pod_traffic_expression, batches)):
            labels = sample.labels
            place = (labels.get("namespace", ""), labels.get("pod", ""))
            found.setdefault(place, {})[labels.get("what", "")] = sample.value
        return {pod: self._traffic(found[pod]) for pod in pods if pod in found}

    async def traffic_of_nodes(self, nodes: Sequence[NodeRow]) -> dict[str, Traffic]:
        """Return what nodes move over the network and to their disks."""
        if not nodes:
            return {}
        names = {row.name: row.name for row in nodes} | {row.ip: row.name for row in nodes if row.ip}
        found: dict[str, dict[str, float]] = {}
        for sample, _ in await self._query(prometheus.node_traffic_expression()):
            labels = sample.labels
            instance = labels.get("instance", "")
            node = next(
                (
                    names[name]
                    for name in (labels.get("node", ""), instance, instance.rpartition(":")[0])
                    if name in names
                ),
                "",
            )
            if node:
                found.setdefault(node, {})[labels.get("what", "")] = sample.value
        return {node: self._traffic(rates) for node, rates in found.items()}

    async def _query(self, *expressions: str) -> list[tuple[Sample, float]]:
        """Return what expressions give; nothing where no Prometheus is, or none that may be asked."""
        if self.refused is not None:
            return []
        try:
            if self._address is None:
                self._address = await self._find()
                if self._address is None:
                    self._refusals.keep(_PLACE, _NONE)
                    return []
            found = []
            for expression in filter(None, expressions):
                found += await prometheus.query(self._client, self._address, expression)
            return found
        except KubeError as error:
            where = self._address or self._configured
            of = f" in namespace {where.namespace}" if where is not None else ""
            self._refusals.note(_PLACE, error, f"get services/proxy{of}", _NONE.words)
            self._address = None
            return []

    async def _find(self) -> PrometheusAddress | None:
        if self._configured is not None:
            return self._configured
        return await prometheus.choose(self._client, await prometheus.find_prometheus(self._client))

    def _traffic(self, rates: Mapping[str, float]) -> Traffic:
        known = {what: rate for what, rate in rates.items() if 0 <= rate < float("inf")}
        return Traffic(
            received_bps=known.get("received"),
            sent_bps=known.get("sent"),
            read_bps=known.get("read"),
            written_bps=known.get("written"),
            source=Source.PROMETHEUS,
            read_at=self._now(),
        )


def _batches(names: Sequence[T], most: int) -> list[Sequence[T]]:
    return [names[start : start + most] for start in range(0, len(names), most)]


def _age_s(asked_s: float, taken_s: float) -> float:
    """Return how old a sample was when it was asked for; Prometheus shows none older than five minutes."""
    age_s = asked_s - taken_s
    return age_s if 0 <= age_s < 3600 else 0.0
