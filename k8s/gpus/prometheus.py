"""Discovery and queries of Prometheus through the API server's proxy.

Used for nodes whose exporter cannot be read directly, and for network and disk traffic. A few
queries cover all visible nodes.

Sources: Prometheus, "HTTP API", instant queries; kube-prometheus, prometheus-community's charts, Arena's
`docs/top/prometheus.md` (service names); cAdvisor, "Monitoring cAdvisor with Prometheus" (rates).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

import msgspec

from k8s.client.client import Client
from k8s.client.proxied import WITHIN_S, ServiceAddress, fetch_proxied, find_services
from k8s.client.transport import unparsable
from k8s.gpus.dcgm import METRICS, Sample, gpu_readings, node_of
from k8s.gpus.readings import NodeReadings, NoReadings, NoReadingsCause, Source, Traffic
from k8s.gpus.refusals import Refusals
from k8s.snapshot import NodeRow
from k8s.text.errors import Forbidden, KubeError, without_frames

# Query services of kube-prometheus, the Helm charts, VictoriaMetrics, Thanos and Arena.
SELECTORS = (
    "app.kubernetes.io/name in (prometheus,vmsingle,vmselect,thanos-query,victoria-metrics-single)",
    "app in (prometheus,kube-prometheus-stack-prometheus,prometheus-operator-prometheus)",
    "operated-prometheus=true",
    "kubernetes.io/service=prometheus-service",
)
MAX_CANDIDATES = 6
# Timeout per candidate.
CHOOSE_S = 5.0
_PORT_NAMES = ("web", "http-web", "http", "prometheus", "http-query", "reloader-web")
# Every exporter has it for every GPU and MIG instance.
_USUAL = "DCGM_FI_DEV_FB_USED"
_GROUP = re.compile("DCGM_(?:FI_DEV|FI_PROF|EXP)_")
_OBJECT_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
# Their bytes are counted elsewhere too, or never leave the node.
_INTERFACES = (
    "lo|veth.*|cali.*|cni.*|docker.*|flannel.*|br-.*|bond.*|tunl.*|cilium.*|lxc.*|kube-.*|nodelocaldns"
)
_NODE_LABELS = ("Hostname", "hostname", "node", "kubernetes_node")
# Per query. The query is part of the URL, and proxies accept about 8 KiB.
MAX_NODES, MAX_PODS = 8, 24


# Tried if services may not be listed.
WELL_KNOWN = (
    ServiceAddress("monitoring", "prometheus-k8s", "web"),
    ServiceAddress("monitoring", "prometheus-operated", "web"),
    ServiceAddress("monitoring", "kube-prometheus-stack-prometheus", "http-web"),
    ServiceAddress("monitoring", "prometheus-server", "80"),
    ServiceAddress("kube-system", "prometheus-svc", "prometheus"),
    ServiceAddress("prometheus", "prometheus-server", "80"),
)


class _Result(msgspec.Struct, frozen=True):
    metric: dict[str, str]
    value: tuple[float, str]


class _Vector(msgspec.Struct, frozen=True):
    result: list[_Result] = []
    result_type: str = msgspec.field(name="resultType", default="")


class _PrometheusAnswer(msgspec.Struct, frozen=True):
    status: str = ""
    data: _Vector = _Vector()
    error: str = ""


_ANSWER = msgspec.json.Decoder(_PrometheusAnswer)


async def find_prometheus(client: Client) -> tuple[ServiceAddress, ...]:
    """Return the services that may be a Prometheus, the most likely first.

    Raises:
        KubeError: The cluster does not answer.
    """
    try:
        found = await find_services(client, SELECTORS, _PORT_NAMES, (9090, 80))
    except Forbidden:
        return WELL_KNOWN
    return tuple(found)[:MAX_CANDIDATES]


async def query(
    client: Client, address: ServiceAddress, expression: str, *, within_s: float = WITHIN_S
) -> list[tuple[Sample, float]]:
    """Return the samples of an instant query, each with its evaluation time in seconds.

    Raises:
        Forbidden: The user may not get services/proxy there.
        KubeError: Prometheus does not answer, or the result is not a vector.
    """
    doing = f"ask Prometheus ({address.name})"
    body = await fetch_proxied(
        client, f"{address.path}/api/v1/query", doing, query={"query": expression}, within_s=within_s
    )
    try:
        answer = _ANSWER.decode(body)
        if answer.status != "success" or answer.data.result_type != "vector":
            raise unparsable(f"Could not {doing}.", answer.error or "The answer is not a vector.")
        return [
            (Sample(each.metric.get("__name__", ""), each.metric, float(each.value[1])), each.value[0])
            for each in answer.data.result
        ]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise unparsable(f"Could not {doing}.", f"The answer is malformed: {error}") from error


async def choose(client: Client, candidates: Sequence[ServiceAddress]) -> ServiceAddress | None:
    """Return the first candidate with GPU metrics, else the first that answers; None if none does.

    Raises:
        Forbidden: None answered, and the user may not get services/proxy of at least one.
    """
    answering: ServiceAddress | None = None
    refused: Forbidden | None = None
    for address in candidates:
        try:
            found = await query(client, address, f"count({_USUAL})", within_s=CHOOSE_S)
        except Forbidden as error:
            refused = without_frames(error)
            continue
        except KubeError:
            continue
        if found:
            return address
        answering = answering or address
    try:
        if answering is None and refused is not None:
            raise refused
        return answering
    finally:
        del refused  # its traceback leads to this frame


def gpu_expression(nodes: Iterable[str]) -> str:
    """Return the query for all GPU metrics of some nodes and the times of their scrapes.

    Exporters, charts and relabelling name the node differently, so every label in use is tried. The
    scrape times are samples with the label `read_at`.
    """
    hosts = f'"(?:{_alternatives(nodes)})(?:[.].*)?"'
    fields = "|".join(sorted({_GROUP.sub("", name) for name in METRICS}))
    names = f"{_GROUP.pattern}(?:{fields})"
    all_of = " or ".join(f'{{__name__=~"{names}",{label}=~{hosts}}}' for label in _NODE_LABELS)
    # `timestamp` of a plain selector is the scrape time; of any other expression, the evaluation time.
    scraped = " or ".join(f"timestamp({_USUAL}{{{label}=~{hosts}}})" for label in _NODE_LABELS)
    return f'{all_of} or label_replace({scraped},"read_at","1","","")'


def pod_traffic_expression(pods: Iterable[tuple[str, str]]) -> str:
    """Return the query for the throughput of pods in bytes per second, with the direction in label `what`."""
    by_namespace: dict[str, list[str]] = {}
    for namespace, pod in pods:
        by_namespace.setdefault(namespace, []).append(pod)
    parts = []
    for namespace, names in sorted(by_namespace.items()):
        chosen = f'namespace="{namespace}",pod=~"{_alternatives(names)}"'
        parts += [
            _rate(what, metric, f"{chosen}{more}", "namespace,pod") for what, metric, more in _TRAFFIC_OF_PODS
        ]
    return " or ".join(parts)


def node_traffic_expression() -> str:
    """Return the query for the throughput of all nodes in bytes per second."""
    return " or ".join(
        _rate(what, metric, f'id="/"{more}', "node,instance") for what, metric, more in _TRAFFIC_OF_NODES
    )


_TRAFFIC_OF_PODS = (
    ("received", "container_network_receive_bytes_total", ""),
    ("sent", "container_network_transmit_bytes_total", ""),
    ("read", "container_fs_reads_bytes_total", ',container!=""'),
    ("written", "container_fs_writes_bytes_total", ',container!=""'),
)
_OUTWARD = f',interface!~"{_INTERFACES}"'
_TRAFFIC_OF_NODES = (
    ("received", "container_network_receive_bytes_total", _OUTWARD),
    ("sent", "container_network_transmit_bytes_total", _OUTWARD),
    ("read", "container_fs_reads_bytes_total", ""),
    ("written", "container_fs_writes_bytes_total", ""),
)


def _rate(what: str, metric: str, chosen: str, by: str) -> str:
    return f'label_replace(sum by ({by})(rate({metric}{{{chosen}}}[5m])),"what","{what}","","")'


def _alternatives(names: Iterable[str]) -> str:
    # Valid object names contain no regex characters except the dot.
    return "|".join(sorted(name for name in set(names) if _OBJECT_NAME.fullmatch(name))).replace(".", "[.]")


_NONE = NoReadings(NoReadingsCause.NO_EXPORTER, "No Prometheus was found in the cluster.")
_PLACE = "prometheus"
T = TypeVar("T")


class PrometheusReader:
    """Queries one Prometheus; remembers its address and refused requests."""

    def __init__(
        self,
        client: Client,
        refusals: Refusals,
        now: Callable[[], datetime],
        address: ServiceAddress | None = None,
    ) -> None:
        """Query `address`, or search for one if it is None; `now` returns a time with a zone."""
        self._client, self._refusals, self._now = client, refusals, now
        self._configured = address
        self._address: ServiceAddress | None = None

    @property
    def refused(self) -> NoReadings | None:
        """The reason that queries are suspended; None if they are not."""
        return self._refusals.get(_PLACE)

    async def gpus(self, nodes: Iterable[str]) -> dict[str, NodeReadings]:
        """Return the GPUs of the nodes that Prometheus has metrics of."""
        names = list(nodes)
        if not names:
            return {}
        batches = _batches(names, MAX_NODES)
        samples = await self._query(*map(gpu_expression, batches))
        # Those of many nodes take a second, in which keys are answered.
        return await asyncio.to_thread(self._by_node, samples, frozenset(names))

    def _by_node(
        self, samples: Iterable[tuple[Sample, float]], nodes: frozenset[str]
    ) -> dict[str, NodeReadings]:
        now = self._now()
        found: dict[str, list[Sample]] = {}
        read_at: dict[str, datetime] = {}
        for sample, evaluated_s in samples:
            node = node_of(sample.labels, nodes)
            if not node:
                continue
            if "read_at" in sample.labels:
                moment = now - timedelta(seconds=_age_s(evaluated_s, sample.value))
                read_at[node] = min(moment, read_at.get(node, moment))
            else:
                found.setdefault(node, []).append(sample)
        return {
            node: NodeReadings(node, gpu_readings(each, node, Source.PROMETHEUS, read_at.get(node, now)))
            for node, each in found.items()
        }

    async def traffic_of_pods(self, pods: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Traffic]:
        """Return the network and disk throughput of pods, by namespace and name."""
        if not pods:
            return {}
        found: dict[tuple[str, str], dict[str, float]] = {}
        batches = _batches(pods, MAX_PODS)
        for sample, _ in await self._query(*map(pod_traffic_expression, batches)):
            labels = sample.labels
            place = (labels.get("namespace", ""), labels.get("pod", ""))
            found.setdefault(place, {})[labels.get("what", "")] = sample.value
        return {pod: self._traffic(found[pod]) for pod in pods if pod in found}

    async def traffic_of_nodes(self, nodes: Sequence[NodeRow]) -> dict[str, Traffic]:
        """Return the network and disk throughput of nodes."""
        if not nodes:
            return {}
        names = {row.name: row.name for row in nodes} | {row.ip: row.name for row in nodes if row.ip}
        found: dict[str, dict[str, float]] = {}
        for sample, _ in await self._query(node_traffic_expression()):
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
        if self.refused is not None:
            return []
        try:
            if self._address is None:
                self._address = await self._find()
                if self._address is None:
                    self._refusals.suspend(_PLACE, _NONE)
                    return []
            found = []
            for expression in filter(None, expressions):
                found += await query(self._client, self._address, expression)
            return found
        except KubeError as error:
            where = self._address or self._configured
            of = f" in namespace {where.namespace}" if where is not None else ""
            self._refusals.record(_PLACE, error, f"get services/proxy{of}", _NONE.words)
            self._address = None
            return []

    async def _find(self) -> ServiceAddress | None:
        if self._configured is not None:
            return self._configured
        return await choose(self._client, await find_prometheus(self._client))

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


def _age_s(evaluated_s: float, scraped_s: float) -> float:
    # Prometheus returns no sample older than five minutes; an impossible age means skewed clocks.
    age_s = evaluated_s - scraped_s
    return age_s if 0 <= age_s < 3600 else 0.0
