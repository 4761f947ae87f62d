"""Finds a Prometheus in the cluster and asks it, through the API server's proxy to its service.

Used for nodes whose exporter cannot be read directly, and for what exporters of GPUs do not tell: the
network and the disks. A handful of queries for all nodes in sight, not one for each.

Sources: Prometheus, "HTTP API", instant queries; kube-prometheus, prometheus-community's charts, Arena's
`docs/top/prometheus.md` (where it is); cAdvisor, "Monitoring cAdvisor with Prometheus" (rates).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from k8s.client.client import Client
from k8s.client.transport import not_understood
from k8s.errors import Forbidden, KubeError
from k8s.models import Meta, Reader, Value
from k8s.models.resources import SERVICES
from k8s.telemetry.sources.dcgm import METRICS
from k8s.telemetry.sources.prometheus_address import PrometheusAddress
from k8s.telemetry.sources.prometheus_text import Sample
from k8s.telemetry.sources.proxied import WITHIN_S, fetch_proxied

SELECTORS = (
    "app.kubernetes.io/name in (prometheus,vmsingle,vmselect,thanos-query,victoria-metrics-single)",
    "app in (prometheus,kube-prometheus-stack-prometheus,prometheus-operator-prometheus)",
    "operated-prometheus=true",
    "kubernetes.io/service=prometheus-service",
)
"""Labels of services that answer queries: of kube-prometheus, the charts, VictoriaMetrics, Thanos, Arena."""
MOST_CANDIDATES = 6
"""Services that are tried."""
CHOOSE_S = 5.0
"""Longest time for each of them."""
_PORT_NAMES = ("web", "http-web", "http", "prometheus", "http-query", "reloader-web")
_USUAL = "DCGM_FI_DEV_FB_USED"
"""What every exporter tells of every GPU and MIG instance."""
_GROUP = re.compile("DCGM_(?:FI_DEV|FI_PROF|EXP)_")
_OBJECT_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
_INTERFACES = (
    "lo|veth.*|cali.*|cni.*|docker.*|flannel.*|br-.*|bond.*|tunl.*|cilium.*|lxc.*|kube-.*|nodelocaldns"
)
"""Interfaces whose bytes others count too, or that leave no node."""
_NODE_LABELS = ("Hostname", "hostname", "node", "kubernetes_node")
MOST_NODES, MOST_PODS = 8, 24
"""Asked for in one query: it stands in the address, of which proxies on the way take 8 KiB."""


WELL_KNOWN = (
    PrometheusAddress("monitoring", "prometheus-k8s", "web"),
    PrometheusAddress("monitoring", "prometheus-operated", "web"),
    PrometheusAddress("monitoring", "kube-prometheus-stack-prometheus", "http-web"),
    PrometheusAddress("monitoring", "prometheus-server", "80"),
    PrometheusAddress("kube-system", "prometheus-svc", "prometheus"),
    PrometheusAddress("prometheus", "prometheus-server", "80"),
)
"""Tried where services may not be listed."""


class _ServicePort(Value, frozen=True):
    name: str = ""
    port: int = 0


class _ServiceSpec(Value, frozen=True):
    ports: list[_ServicePort] | None = None
    type: str = ""


class _Service(Value, frozen=True):
    metadata: Meta
    spec: _ServiceSpec = _ServiceSpec()


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


async def find_prometheus(client: Client) -> tuple[PrometheusAddress, ...]:
    """Return the services that may be a Prometheus, the likeliest first; none where there is none.

    Raises:
        KubeError: The cluster does not answer.
    """
    found: dict[tuple[str, str], PrometheusAddress] = {}
    reader: Reader[_Service] = Reader(_Service)
    try:
        for selector in SELECTORS:
            body = await client.list_page(SERVICES, label_selector=selector)
            try:
                services = reader.read_list(body)[1]
            except msgspec.DecodeError as error:
                raise not_understood("Could not list services.", f"It makes no sense: {error}") from error
            for service in services:
                place = (service.metadata.namespace, service.metadata.name)
                found.setdefault(place, _address(service))
    except Forbidden:
        return WELL_KNOWN
    return tuple(found.values())[:MOST_CANDIDATES]


def _address(service: _Service) -> PrometheusAddress:
    ports = service.spec.ports or []
    named = [port for name in _PORT_NAMES for port in ports if port.name == name]
    numbered = [port for port in ports if port.port in (9090, 80)]
    chosen = next(iter([*named, *numbered, *ports]), None)
    port = "" if chosen is None else chosen.name or str(chosen.port)
    scheme = "https" if chosen is not None and "https" in chosen.name else ""
    return PrometheusAddress(service.metadata.namespace, service.metadata.name, port, scheme)


async def query(
    client: Client, address: PrometheusAddress, expression: str, *, within_s: float = WITHIN_S
) -> list[tuple[Sample, float]]:
    """Return the samples that an expression gives now, each with the time for which it was asked.

    Raises:
        Forbidden: This user may not get services/proxy there.
        KubeError: It does not answer, or says something else than a vector.
    """
    doing = f"ask Prometheus ({address.name})"
    body = await fetch_proxied(client, address.path, doing, query={"query": expression}, within_s=within_s)
    try:
        answer = _ANSWER.decode(body)
        if answer.status != "success" or answer.data.result_type != "vector":
            raise not_understood(
                f"Could not {doing}.", answer.error or "It says something else than a vector."
            )
        return [
            (Sample(each.metric.get("__name__", ""), each.metric, float(each.value[1])), each.value[0])
            for each in answer.data.result
        ]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise not_understood(f"Could not {doing}.", f"Its answer makes no sense: {error}") from error


async def choose(client: Client, candidates: Sequence[PrometheusAddress]) -> PrometheusAddress | None:
    """Return the first that knows of GPUs, else the first that answers; None where none does.

    Raises:
        Forbidden: None answered, and of one this user may not get services/proxy.
    """
    answering: PrometheusAddress | None = None
    refused: Forbidden | None = None
    for address in candidates:
        try:
            found = await query(client, address, f"count({_USUAL})", within_s=CHOOSE_S)
        except Forbidden as error:
            refused = error
            continue
        except KubeError:
            continue
        if found:
            return address
        answering = answering or address
    if answering is None and refused is not None:
        raise refused
    return answering


def gpu_expression(nodes: Iterable[str]) -> str:
    """Return the query for all that is read of GPUs on some nodes, and for when Prometheus read it.

    Exporters, charts and relabelling name the node differently, so each name in use is tried. What is
    read when comes as a sample with the label `read_at`.
    """
    hosts = f'"(?:{_alternatives(nodes)})(?:[.].*)?"'
    fields = "|".join(sorted({_GROUP.sub("", name) for name in METRICS}))
    names = f"{_GROUP.pattern}(?:{fields})"
    all_of = " or ".join(f'{{__name__=~"{names}",{label}=~{hosts}}}' for label in _NODE_LABELS)
    # Of a selector alone `timestamp` tells when a sample was taken; of anything else, when it was asked.
    taken = " or ".join(f"timestamp({_USUAL}{{{label}=~{hosts}}})" for label in _NODE_LABELS)
    return f'{all_of} or label_replace({taken},"read_at","1","","")'


def pod_traffic_expression(pods: Iterable[tuple[str, str]]) -> str:
    """Return the query for bytes a second that pods move; label `what` says which of the four it is."""
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
    """Return the query for bytes a second that nodes move: few numbers, so all nodes at once."""
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
    """Return a pattern for names of Kubernetes objects, in which only the dot means something else."""
    return "|".join(sorted(name for name in set(names) if _OBJECT_NAME.fullmatch(name))).replace(".", "[.]")
