"""The second tier: each node's own exporter, through the API server's proxy to its pod."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from k8s.client.client import Client
from k8s.client.server_version import fetch_version
from k8s.errors import Forbidden, KubeError, ServerFailed
from k8s.models.resources import NODES
from k8s.snapshot import SANDBOX_VERSION
from k8s.telemetry.readings import GpuReading, NodeReadings, NoReadings, NoReadingsCause, Source
from k8s.telemetry.sources import exporters
from k8s.telemetry.sources.dcgm import METRICS, gpu_readings
from k8s.telemetry.sources.exporters import Exporter
from k8s.telemetry.sources.prometheus_text import read_samples
from k8s.telemetry.sources.proxied import fetch_proxied
from k8s.telemetry.sources.refusals import Refusals

MOST_AT_ONCE = 8
"""Exporters that are read at the same time."""
FOUND_FOR_S = 600.0
"""How long it is believed where the exporters are; one that fails is looked for again."""
_NO_EXPORTER = NoReadings(NoReadingsCause.NO_EXPORTER, "No DCGM exporter runs on it.")
_MOST_SEARCHES = 4
"""Nodes that are looked through pod by pod in one round."""


class ExporterReader:
    """Reads the exporters of some nodes, and remembers where they are and what may not be asked."""

    def __init__(self, client: Client, refusals: Refusals, now: Callable[[], datetime]) -> None:
        """Prepare; nothing is asked yet.

        Args:
            client: The cluster.
            refusals: What is not asked for now.
            now: This machine's clock, with a time zone.
        """
        self._client, self._refusals, self._now = client, refusals, now
        self._exporters: dict[str, Exporter] = {}
        self._found_at_s = float("-inf")
        self._failed: set[str] = set()
        self._searched: set[str] = set()
        self._is_sandbox: bool | None = None
        self._slots = asyncio.Semaphore(MOST_AT_ONCE)

    def forget(self) -> None:
        """Look for the exporters anew."""
        self._found_at_s = float("-inf")

    async def read(self, nodes: Iterable[str]) -> dict[str, NodeReadings]:
        """Return the readings of nodes, or for each why there are none; never raises a `KubeError`."""
        wanted = list(nodes)
        if not wanted:
            return {}
        reason = await self._find(wanted)
        exporters_of = {node: self._exporters[node] for node in wanted if node in self._exporters}
        results = {node: NodeReadings(node, missing=reason or _NO_EXPORTER) for node in wanted}
        # Whether this user may ask at all is found out by one request a namespace, not by one a node.
        first = {exporter.namespace: exporter for exporter in reversed(exporters_of.values())}
        for group in (
            list(first.values()),
            [each for each in exporters_of.values() if each not in first.values()],
        ):
            for readings in await asyncio.gather(*(self._read_one(exporter) for exporter in group)):
                results[readings.node] = readings
        return results

    async def _find(self, wanted: Sequence[str]) -> NoReadings | None:
        """Find out where the exporters are, if that is not known; return why it cannot be."""
        if reason := self._refusals.get("exporters"):
            return reason
        try:
            if self._is_sandbox is None:
                self._is_sandbox = await self._asks_sandbox()
            if self._is_sandbox:
                self._exporters = {node: _of_sandbox(node) for node in wanted}
            elif self._is_due(wanted):
                self._exporters = await self._find_all()
                self._found_at_s = time.monotonic()
                self._failed.clear()
                self._searched.clear()
            if not self._is_sandbox:
                await self._search_unlabelled(wanted)
        except KubeError as error:
            return self._refusals.note("exporters", error, "list pods, so no DCGM exporter is found")
        return None

    async def _asks_sandbox(self) -> bool:
        """Tell whether the cluster is the sandbox; one that does not let its version be read is not."""
        try:
            version = await fetch_version(self._client)
        except Forbidden:
            return False
        return str(version.get("gitVersion") or "").endswith(SANDBOX_VERSION)

    def _is_due(self, wanted: Sequence[str]) -> bool:
        """Tell whether to look for the exporters: that was long ago, or one failed and may be elsewhere."""
        retried = [node for node in wanted if node in self._failed and not self._refusals.get(("node", node))]
        return bool(retried) or time.monotonic() - self._found_at_s > FOUND_FOR_S

    async def _find_all(self) -> dict[str, Exporter]:
        try:
            return await exporters.find_exporters(self._client)
        except Forbidden as error:
            own = self._client.config.namespace
            try:
                return await exporters.find_exporters(self._client, (*exporters.NAMESPACES, own))
            except KubeError:
                raise error from None

    async def _search_unlabelled(self, wanted: Sequence[str]) -> None:
        """Look through the pods of nodes without a known exporter; of many such nodes, of the first few."""
        if self._refusals.get("search"):
            return
        lacking = [node for node in wanted if node not in self._exporters and node not in self._searched]
        for node in lacking[:_MOST_SEARCHES]:
            self._searched.add(node)
            try:
                exporter = await exporters.find_on_node(self._client, node)
            except Forbidden as error:
                self._refusals.note("search", error, "list pods")
                return
            if exporter is not None:
                self._exporters[node] = exporter

    async def _read_one(self, exporter: Exporter) -> NodeReadings:
        node = exporter.node
        permission = (exporter.resource, exporter.namespace)
        if reason := self._refusals.get(permission) or self._refusals.get(("node", node)):
            return NodeReadings(node, missing=reason)
        try:
            async with self._slots:
                text = await self._fetch(exporter)
        except Forbidden as error:
            where = f" in namespace {exporter.namespace}" if exporter.namespace else ""
            return NodeReadings(
                node, missing=self._refusals.note(permission, error, f"get {exporter.resource}{where}")
            )
        except KubeError as error:
            self._failed.add(node)
            absent = "The driver tells nothing of this machine's GPUs." if self._is_sandbox else ""
            return NodeReadings(
                node, missing=self._refusals.note(("node", node), error, "read its exporter", absent)
            )
        source = Source.NVML if self._is_sandbox else Source.DCGM
        # A large text takes a second, in which keys are answered.
        gpus = await asyncio.to_thread(_parse, text, node, source, self._now())
        if gpus:
            return NodeReadings(node, gpus)
        reason = NoReadings(NoReadingsCause.UNREACHABLE, f"{exporter.pod} tells of no GPU.")
        return NodeReadings(node, missing=reason)

    async def _fetch(self, exporter: Exporter) -> bytes:
        doing = f"read the GPUs of {exporter.node}"
        try:
            return await fetch_proxied(self._client, exporter.path, doing)
        except ServerFailed as error:
            if exporter.scheme or not _wants_tls(error):
                raise
        exporter = self._exporters[exporter.node] = replace(exporter, scheme="https")
        return await fetch_proxied(self._client, exporter.path, doing)


def _parse(text: bytes, node: str, source: Source, read_at: datetime) -> tuple[GpuReading, ...]:
    return gpu_readings(read_samples(text, METRICS), node, source, read_at)


def _wants_tls(error: KubeError) -> bool:
    """Tell whether what refused speaks TLS only. Source: Go, `net/http`, and what the proxy makes of it."""
    return "HTTPS server" in error.why or "malformed HTTP" in error.why


def _of_sandbox(node: str) -> Exporter:
    """Return where the sandbox serves the metrics of one of its nodes: beside the node, not in a pod."""
    return Exporter(namespace="", pod=node, node=node, collection=NODES)
