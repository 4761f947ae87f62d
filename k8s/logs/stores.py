"""Logs of pods that are gone, in the cluster's own store: Loki or VictoriaLogs.

A store is found and queried as Prometheus is, through the API server's proxy, or at a URL.

Sources: Loki, "HTTP API", "Query logs within a range of time" and "Query streams"; VictoriaLogs, "Querying
logs" and "LogsQL"; the Helm charts loki, loki-stack, loki-distributed, victoria-logs-single and
victoria-logs-cluster (services); Promtail, Alloy, Fluent Bit, Vector, OpenTelemetry (labels and fields).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from k8s.client.auth.cluster_config import ClusterConfig
from k8s.client.auth.proxies import proxy_for
from k8s.client.client import Client
from k8s.client.proxied import fetch_proxied, find_services, parse_address, refusal_text
from k8s.logs.lines import read_stamp, to_stamp, write_stamp
from k8s.text.errors import Forbidden, KubeError, NotFound, ServerFailed, TooLarge, Unauthorized
from k8s.text.sanitize import sanitize

# Loki refuses ranges above 721 hours by default.
MAX_RANGE_NS = 720 * 3600 * 10**9
# Entries of one answer, and of one container; containers of a job.
PAGE, MAX_ENTRIES, MAX_LOGS = 2_000, 100_000, 1_024
WITHIN_S = 30.0
SELECTORS = (
    "app.kubernetes.io/name in (loki,loki-distributed,loki-simple-scalable,victoria-logs-single,"
    "victoria-logs-cluster,vlsingle,vlogs,vlselect)",
    "app in (loki,vlselect)",
)
# Tried if services may not be listed.
WELL_KNOWN = (
    *("monitoring/loki-gateway:80", "loki/loki-gateway:80", "logging/loki-gateway:80"),
    *("monitoring/loki:3100", "loki/loki:3100", "loki-stack/loki:3100"),
    "monitoring/vlogs-victoria-logs-single-server:9428",
    "victoria-logs/victoria-logs-victoria-logs-single-server:9428",
)
MAX_CANDIDATES = 8
# Parts of them that answer no queries; the gateway leads to the one that does.
_NOT_QUERIED = re.compile(
    "write|backend|canary|memberlist|ingester|distributor|compactor|index-gateway|cache|minio|ruler|bloom"
    "|scheduler|insert|storage|agent|vector"
)
_IS_VICTORIA = re.compile(r"\bvl(?!an)|victoria")
_PLACE = re.compile(r"(?:(?P<tenant>[\w!.*'()|:-]+)@)?(?P<place>(?P<url>https?://[^@\s]+)|[^@\s]+)")
_OBJECT_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
_LIMIT = re.compile(r"max entries limit.*> (\d+)\)")
_PAGE_ANSWER = re.compile(r"(It answers \d+): *<.*", re.DOTALL)

# Namespace, pod and container, as collectors name them. In Loki all but the first may be structured metadata.
_LABELS = (
    ("namespace", "pod", "container"),
    ("namespace", "k8s_pod_name", "k8s_container_name"),
    ("k8s_namespace_name", "k8s_pod_name", "k8s_container_name"),
    ("service_namespace", "k8s_pod_name", "k8s_container_name"),
    ("kubernetes_namespace_name", "kubernetes_pod_name", "kubernetes_container_name"),
    ("namespace_name", "pod_name", "container_name"),
)
_FIELDS = (
    ("kubernetes.pod_namespace", "kubernetes.pod_name", "kubernetes.container_name"),
    ("kubernetes.namespace_name", "kubernetes.pod_name", "kubernetes.container_name"),
    ("kubernetes.namespace", "kubernetes.pod.name", "kubernetes.container.name"),
    ("k8s.namespace.name", "k8s.pod.name", "k8s.container.name"),
    ("kubernetes_pod_namespace", "kubernetes_pod_name", "kubernetes_container_name"),
    ("kubernetes_namespace_name", "kubernetes_pod_name", "kubernetes_container_name"),
    _LABELS[0],
)
# A line as the container runtime wrote it, which some collectors leave. Source: CRI, "Logging".
_CRI = re.compile(r"(\S{20,35}) (?:stdout|stderr) ([FP])(?::\S+)? ?(.*)", re.DOTALL)

_Entry = tuple[int, str]


class StoredLog(msgspec.Struct, frozen=True, order=True):
    """A container whose log a store has."""

    namespace: str
    pod: str
    container: str
    """Empty if the collector does not tell."""
    query: str


class _DockerLine(msgspec.Struct):
    log: str
    stream: str


class _LokiStream(msgspec.Struct):
    values: list[list[Any]] = []
    metric: dict[str, str] = {}


class _LokiResult(msgspec.Struct):
    result: list[_LokiStream] = []


class LogStore:
    """A server that holds the logs of all containers."""

    title = ""

    def __init__(self, client: Client, place: str, tenant: str = "") -> None:
        """Prepare queries to a service, as in config.yaml, or a URL; nothing is sent yet."""
        url = urlsplit(place)
        self._client, self._host = client, f"{url.scheme}://{url.netloc}" if "://" in place else ""
        address = None if self._host else parse_address(place)
        self._tenant, self._path = tenant, address.path if address else url.path.rstrip("/")
        self.place = f"{address.namespace}/{address.service}" if address else place
        self.name = f"{self.title} {self.place}"
        self.is_cut = False
        """True if a log has more than `MAX_ENTRIES`; the oldest were left out."""
        self.unreadable = 0
        """Number of entries that could not be decoded."""

    async def find(self, namespace: str, pods: str, start_ns: int, end_ns: int) -> list[StoredLog]:
        """Return the containers of pods with matching names, of one namespace or, if it is empty, of all.

        Raises:
            KubeError: The store may not be read, does not answer, or is of another kind.
        """
        raise NotImplementedError

    async def _page(self, query: str, start_ns: int, end_ns: int, limit: int) -> list[_Entry]:
        raise NotImplementedError

    def _headers(self) -> Mapping[str, str]:
        raise NotImplementedError

    async def tail(self, log: StoredLog, start_ns: int, end_ns: int, most: int) -> list[bytes]:
        """Return the last lines, each behind its time as the kubelet writes it, oldest first.

        Raises:
            KubeError: The store does not answer.
        """
        found: list[_Entry] = []
        limit, is_full = PAGE, True
        while is_full and len(found) < most and start_ns < end_ns:
            size, unreadable = min(limit, most - len(found)), self.unreadable
            try:
                page = await self._page(log.query, start_ns, end_ns, size)
            except ServerFailed as error:
                allowed = int(match[1]) if (match := _LIMIT.search(error.why)) else 0
                limit = size // 4 if isinstance(error, TooLarge) else min(allowed, size - 1)
                if limit < 1:
                    raise
                continue
            page.sort(key=lambda entry: entry[0])
            is_full = bool(page) and len(page) + self.unreadable - unreadable >= size
            if is_full and len(found) + len(page) < most:
                # The end is exclusive, and more lines may have the time of the oldest: they come again.
                oldest_ns = end_ns = page[0][0]
                if oldest_ns < page[-1][0]:
                    end_ns, page = oldest_ns + 1, [entry for entry in page if entry[0] > oldest_ns]
            found[:0] = page
        self.is_cut |= most >= MAX_ENTRIES and len(found) >= most
        return list(_lines(found))

    async def _ask(self, endpoint: str, **query: str) -> bytes:
        doing, path = f"read {self.name}", self._path + endpoint
        more: dict[str, Any] = {"query": query, "headers": self._headers(), "within_s": WITHIN_S}
        try:
            if not self._host:
                body = await fetch_proxied(self._client, path, doing, **more)
            else:
                # Without the cluster's credentials: the URL may lead anywhere.
                config = ClusterConfig(host=self._host, proxy=proxy_for(None, self._host))
                async with Client(config) as client:
                    body = await fetch_proxied(client, path, doing, **more)
        except ServerFailed as error:
            if "no org id" in error.why:
                raise Unauthorized(f"{self.name} requires a tenant.") from error
            error.why = _PAGE_ANSWER.sub(r"\1 with a web page.", error.why)
            raise
        if body.lstrip()[:1] == b"<":
            raise ServerFailed(f"Could not {doing}.", "It answers with a web page.")
        return body


class Loki(LogStore):
    """Loki, which finds streams by their labels."""

    title = "Loki"

    def _headers(self) -> Mapping[str, str]:
        return {"X-Scope-OrgID": self._tenant} if self._tenant else {}

    async def find(self, namespace: str, pods: str, start_ns: int, end_ns: int) -> list[StoredLog]:
        """Return the containers, by the first labels that are known and have such pods."""
        span = {"start": str(start_ns), "end": str(end_ns)}
        labels = set(await self._read("labels", list[str], **span))
        forms = [form for form in _LABELS if form[0] in labels]
        # Metadata is searched only if no label has the pod, for that reads all lines of the namespace.
        for form in [form for form in forms if form[1] in labels] or forms:
            place = f'{form[0]}="{namespace}"' if namespace else f'{form[0]}=~".+"'
            if form[1] in labels:
                match = {"match[]": f'{{{place},{form[1]}=~"{pods}"}}'}
                found = await self._read("series", list[dict[str, str]], **match, **span)
            else:
                span_s = (end_ns - start_ns) // 10**9
                lines = f'count_over_time({{{place}}} | {form[1]}=~"{pods}" [{span_s}s])'
                query = f"sum by ({','.join(form)}) ({lines})"
                counts = await self._read("query", _LokiResult, query=query, time=span["end"])
                found = [each.metric for each in counts.result]
            if logs := _logs(found, [form], lambda pairs: _selector(pairs, labels)):
                return logs
        return []

    async def _page(self, query: str, start_ns: int, end_ns: int, limit: int) -> list[_Entry]:
        asked = {"query": query, "start": str(start_ns), "end": str(end_ns), "limit": str(limit)}
        found = await self._read("query_range", _LokiResult, direction="backward", **asked)
        entries = []
        for values in (each.values for each in found.result):
            for value in reversed(values):  # the newest comes first
                if len(value) >= 2 and str(value[0]).isdigit() and isinstance(value[1], str):
                    entries.append((int(value[0]), value[1]))
                else:
                    self.unreadable += 1
        return entries

    async def _read(self, endpoint: str, of: Any, **query: str) -> Any:
        body = await self._ask(f"/loki/api/v1/{endpoint}", **query)
        try:
            answer = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
            return msgspec.json.decode(answer.get("data", b"[]"), type=of)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise ServerFailed(f"Could not read {self.name}.", f"The answer is malformed: {error}") from error


class VictoriaLogs(LogStore):
    """VictoriaLogs, which finds entries by their fields."""

    title = "VictoriaLogs"

    def _headers(self) -> Mapping[str, str]:
        account, _, project = self._tenant.partition(":")
        return {"AccountID": account, "ProjectID": project or "0"} if account else {}

    async def find(self, namespace: str, pods: str, start_ns: int, end_ns: int) -> list[StoredLog]:
        """Return the containers, by the names that any collector gives the fields."""
        forms = [
            (f'"{place}":="{namespace}" ' if namespace else "") + f'"{pod}":~"^(?:{pods})$"'
            for place, pod, _ in _FIELDS
        ]
        fields = ", ".join(f'"{name}"' for name in dict.fromkeys(name for form in _FIELDS for name in form))
        query = f"{' or '.join(f'({form})' for form in forms)} | uniq by ({fields}) limit {MAX_LOGS}"
        rows = await self._rows(query, start_ns, end_ns)
        return _logs(rows, _FIELDS, lambda pairs: " ".join(f'"{key}":="{text}"' for key, text in pairs))

    async def _page(self, query: str, start_ns: int, end_ns: int, limit: int) -> list[_Entry]:
        fields = f"{query} | fields _time, _msg, log, message"
        entries = []
        for row in await self._rows(fields, start_ns, end_ns, limit=str(limit)):
            stamp_ns, _ = read_stamp(row.get("_time", "").encode())
            self.unreadable += not stamp_ns
            if stamp_ns:
                entries.append((stamp_ns, row.get("_msg") or row.get("log") or row.get("message") or ""))
        return entries

    async def _rows(self, query: str, start_ns: int, end_ns: int, **more: str) -> list[dict[str, str]]:
        span = {"start": write_stamp(start_ns), "end": write_stamp(end_ns)}
        rows = []
        for line in (await self._ask("/select/logsql/query", query=query, **span, **more)).splitlines():
            try:
                rows.append(msgspec.json.decode(line, type=dict[str, str]))
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                self.unreadable += 1
        return rows


def _logs(rows: Iterable[Mapping[str, str]], forms: Sequence[tuple[str, ...]], query: Any) -> list[StoredLog]:
    found = set()
    for row in rows:
        form = next((form for form in forms if row.get(form[0]) and row.get(form[1])), None)
        pairs = [(key, row[key]) for key in form or () if row.get(key)]
        # What is no name of Kubernetes' comes from elsewhere, and belongs in no query.
        if form and all(_OBJECT_NAME.fullmatch(text) for _, text in pairs):
            found.add(StoredLog(row[form[0]], row[form[1]], row.get(form[2], ""), query(pairs)))
    return sorted(found)[:MAX_LOGS]


def _selector(pairs: Iterable[tuple[str, str]], labels: set[str]) -> str:
    pairs = list(pairs)
    inside = ",".join(f'{key}="{text}"' for key, text in pairs if key in labels)
    return f"{{{inside}}}" + "".join(f' | {key}="{text}"' for key, text in pairs if key not in labels)


def _lines(entries: Iterable[_Entry]) -> Iterator[bytes]:
    # Without the runtime's wrapping, which splits long lines; an entry may be a whole traceback.
    partial = ""
    for entry_ns, entry in entries:
        stamp_ns, text, is_partial = entry_ns, entry, False
        if match := _CRI.fullmatch(entry):
            own_ns, _ = read_stamp(match[1].encode())
            if own_ns:
                stamp_ns, text, is_partial = own_ns, match[3], match[2] == "P"
        elif entry.startswith("{") and '"log"' in entry:
            try:
                wrapped = msgspec.json.decode(entry, type=_DockerLine)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                wrapped = None
            if wrapped is not None and wrapped.stream in ("stdout", "stderr"):
                text = wrapped.log
        partial += text.removesuffix("\n")
        if not is_partial:
            yield from (to_stamp(stamp_ns) + each.encode() for each in partial.split("\n"))
            partial = ""
    if partial:
        yield to_stamp(stamp_ns) + partial.encode()


def split_place(text: str) -> tuple[str, str]:
    """Return tenant and place of `log_store`: `TENANT@` or nothing before a service's address or a URL.

    Raises:
        ValueError: The text has a different form.
    """
    if (found := _PLACE.fullmatch(text)) is None:
        raise ValueError(f"{text!r} is neither a URL nor a service address, such as monitoring/loki:3100")
    return found["tenant"] or "", found["url"] or parse_address(found["place"]).name


async def find_logs(
    client: Client, configured: str, namespace: str, pods: str, start_ns: int, end_ns: int
) -> tuple[LogStore, list[StoredLog]]:
    """Return the store that has logs of some pods, and these logs, of at most `MAX_RANGE_NS`.

    `configured` is `log_store` of config.yaml, empty to search for a store. `pods` matches whole names, in
    the syntax of RE2. An empty namespace means all.

    Raises:
        NotFound: No store has any, or may be read; the message is a sentence.
    """
    refused: dict[str, str] = {}
    silent: dict[str, str] = {}
    answered: set[str] = set()
    candidates, problem = await _candidates(client, configured)
    for store in candidates:
        kind = "" if configured else store.title
        if kind in answered:
            continue  # another service of the same store
        try:
            if logs := await store.find(namespace, pods, start_ns, end_ns):
                return store, logs
            answered.add(kind)
            silent[kind] = f"{store.name} has no line of it."
        except Forbidden:
            where = f"services/proxy in namespace {store.place.partition('/')[0]}"
            refused.setdefault(kind, f"{store.name} cannot be read: you may not get {where}.")
        except Unauthorized as error:
            where = f"`log_store: TENANT@{store.place}`"
            refused.setdefault(kind, f"{error.what} Name it in config.yaml: {where}.")
        except KubeError as error:
            if configured or not isinstance(error, NotFound):  # no such service
                silent[kind] = f"{store.name} cannot be read: {sanitize(refusal_text(error))}"
    sentences = problem if problem and not answered else " ".join({**silent, **refused}.values())
    raise NotFound(sentences or "There is no Loki or VictoriaLogs in the cluster.")


async def _candidates(client: Client, configured: str) -> tuple[list[LogStore], str]:
    # With the reason that only the usual names can be tried; empty if they need not.
    tenant, places, problem = "", [configured], ""
    if configured:
        tenant, places[0] = split_place(configured)
    else:
        try:
            ports = ("http-metrics", "http", "web"), (3100, 9428, 9471, 80)
            found = await find_services(client, SELECTORS, *ports)
        except KubeError as error:
            why = "you may not list services." if isinstance(error, Forbidden) else refusal_text(error)
            problem = f"Log stores cannot be searched for: {sanitize(why)}"
            places = list(WELL_KNOWN) if isinstance(error, Forbidden) else []
        else:
            parts = {
                each.name: meta.label("app.kubernetes.io/component") or meta.label("app") or each.service
                for each, meta in found.items()
            }
            queried = [each for each, part in parts.items() if not _NOT_QUERIED.search(part)]
            places = sorted(queried, key=lambda each: ("gateway" not in each, "headless" in each))
    stores: list[LogStore] = []
    for each in places[:MAX_CANDIDATES]:
        stores += [] if _IS_VICTORIA.search(each) else [Loki(client, each, tenant)]
        stores += [] if "loki" in each else [VictoriaLogs(client, each, tenant)]
    return stores, problem
