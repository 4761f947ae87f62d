"""Logs of pods that are gone, in the cluster's own store: Loki or VictoriaLogs.

A store is found and queried as Prometheus is, through the API server's proxy, or at a URL.

Sources: Loki, "HTTP API"; VictoriaLogs, "Querying logs" and "LogsQL"; their Helm charts (services); Promtail,
Alloy, Fluent Bit, Vector, Filebeat, OpenTelemetry (labels and fields); CRI, "Logging".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

import msgspec

from k8s.client.auth.cluster_config import ClusterConfig
from k8s.client.auth.proxies import proxy_for
from k8s.client.client import Client
from k8s.client.proxied import fetch_proxied, find_services, parse_address, refusal_text, split_place
from k8s.logs.lines import read_stamp, to_stamp, write_stamp
from k8s.text.errors import Forbidden, KubeError, NotFound, ServerFailed, Unreachable, join_sentences
from k8s.text.sanitize import sanitize

LOKI, VICTORIA_LOGS = "Loki", "VictoriaLogs"
# Ranges of a query after one that failed, and of any: by default, Loki refuses more than 721 hours.
DAY_NS, MAX_RANGE_NS = 24 * 3600 * 10**9, 720 * 3600 * 10**9
# Entries of one answer, also if all have one time, and of one container; containers of a job; services tried.
PAGE, MAX_PAGE, MAX_ENTRIES, MAX_LOGS, MAX_CANDIDATES = 2_000, 5_000, 100_000, 1_024, 8
# Parts of Loki refuse 4 MiB by default, and it may not answer then; 8 of its longest lines have 2 MiB.
SMALL_PAGE, PAGE_BYTES, WITHIN_S = 8, 2**20, 30.0
SELECTORS = (
    "app.kubernetes.io/name in (loki,loki-distributed,loki-simple-scalable,victoria-logs-single,"
    "victoria-logs-cluster,vlsingle,vlogs,vlselect)",
    "app in (loki,vlselect)",
)
# Tried if services may not be listed.
WELL_KNOWN = ("monitoring/loki-gateway:80", "loki/loki-gateway:80", "monitoring/loki:3100", "loki/loki:3100")
# Parts of them that answer no queries.
_NOT_QUERIED = re.compile(
    "write|backend|canary|member|ingest|distrib|compact|index|cache|ruler|insert|storage"
)
_IS_VICTORIA = re.compile(r"\bvl(?!an)|victoria")
_OBJECT_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
_MALFORMED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
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
    *(_LABELS[0], _LABELS[4]),
)
# A line as the container runtime wrote it, which some collectors leave.
_CRI = re.compile(r"(\S{20,35}) (?:stdout|stderr) ([FP])(?::\S+)? ?(.*)", re.DOTALL)

_Entry = tuple[int, str]


class StoredLog(NamedTuple):
    """A container whose log a store has."""

    namespace: str
    pod: str
    container: str
    query: str


class _DockerLine(msgspec.Struct):
    log: str
    stream: Literal["stdout", "stderr"]


class _LokiStream(msgspec.Struct):
    values: list[_Entry] = []
    metric: dict[str, str] = {}


class _LokiResult(msgspec.Struct):
    result: list[_LokiStream] = []


class LogStore:
    """A Loki or VictoriaLogs."""

    def __init__(self, title: str, client: Client, place: str, tenant: str = "") -> None:
        """Prepare queries to a service, as in config.yaml, or a URL; nothing is sent yet."""
        url = urlsplit(place)
        self._client, self._host = client, f"{url.scheme}://{url.netloc}" if "://" in place else ""
        address = None if self._host else parse_address(place)
        self._path = address.path if address else url.path.rstrip("/")
        self.place = f"{address.namespace}/{address.service}" if address else place
        self.title, self.name = title, f"{title} {self.place}"
        account, _, project = tenant.partition(":")
        tenants = {"X-Scope-OrgID": tenant, "AccountID": account, "ProjectID": project or "0"}
        self._headers = tenants if tenant else {}
        self.gaps = ""
        """The lines that were left out; empty if all were read."""

    async def find(self, namespace: str, pods: str, start_ns: int, end_ns: int) -> list[StoredLog]:
        """Return the containers of pods with matching names, of one namespace or, if it is empty, of all.

        Raises:
            KubeError: The store may not be read, does not answer, or is of another kind.
        """
        if self.title == VICTORIA_LOGS:
            forms = " or ".join(
                (f'("{place}":="{namespace}" ' if namespace else "(") + f'"{pod}":~"^(?:{pods})$")'
                for place, pod, _ in _FIELDS
            )
            names = ", ".join(f'"{name}"' for name in dict.fromkeys(sum(_FIELDS, ())))
            rows = await self._rows(f"{forms} | uniq by ({names}) limit {MAX_LOGS}", start_ns, end_ns)
            return _logs(rows, _FIELDS)
        span = {"start": str(start_ns), "end": str(end_ns)}
        labels = frozenset(await self._loki("labels", list[str], **span))
        forms_here = [form for form in _LABELS if form[0] in labels]
        # Metadata is searched only if no label has the pod, for that reads all lines of the namespace.
        for form in [form for form in forms_here if form[1] in labels] or forms_here:
            place = f'{form[0]}="{namespace}"' if namespace else f'{form[0]}=~".+"'
            if form[1] in labels:
                match = {"match[]": f'{{{place},{form[1]}=~"{pods}"}}'}
                rows = await self._loki("series", list[dict[str, str]], **match, **span)
            else:
                span_s = (end_ns - start_ns) // 10**9
                lines = f'count_over_time({{{place}}} | {form[1]}=~"{pods}" [{span_s}s])'
                query = f"sum by ({','.join(form)}) ({lines})"
                counts = await self._loki("query", _LokiResult, query=query, time=span["end"])
                rows = [each.metric for each in counts.result]
            if logs := _logs(rows, [form], labels):
                return logs
        return []

    async def tail(self, log: StoredLog, start_ns: int, end_ns: int, most: int) -> list[bytes]:
        """Return the last lines, each behind its time as the kubelet writes it, or raise `KubeError`."""
        found: list[_Entry] = []
        limit, most_at_once, span_ns, widest_ns = SMALL_PAGE * 16, MAX_PAGE, 0, end_ns - start_ns
        while len(found) < most and start_ns < end_ns:
            size = min(limit, most_at_once, most - len(found))
            first_ns = max(start_ns, end_ns - min(span_ns or widest_ns, widest_ns))
            try:
                page = await self._page(log.query, first_ns, end_ns, size)
            except (ServerFailed, Unreachable):
                is_wide = end_ns - first_ns > DAY_NS
                if size <= SMALL_PAGE and not is_wide:
                    raise
                limit, most_at_once, widest_ns = SMALL_PAGE, MAX_PAGE if is_wide else size // 2, DAY_NS
                continue
            is_full, page_bytes = len(page) >= size, sum(len(text) for _, text in page)
            limit = min(PAGE, size * 16, PAGE_BYTES * max(len(page), 1) // (page_bytes + 1) + 1)
            page = sorted((entry for entry in page if entry[0]), key=lambda entry: entry[0])
            if not (is_full and page):
                end_ns, span_ns = first_ns, 0
            elif len(found) + len(page) < most:
                # Loki searches all hours at once: those that a page will hardly reach are left out.
                oldest_ns, span_ns = page[0][0], 4 * (page[-1][0] - page[0][0])
                if not span_ns and len(page) == size < most_at_once:
                    limit = size * 16
                    continue
                if not span_ns and len(page) == size:
                    self.gaps = f"only {size:,} of the entries with one time were read"
                # The end is exclusive, and more lines may have the time of the oldest: they come again.
                end_ns = oldest_ns + bool(span_ns)
                page = [entry for entry in page if entry[0] >= end_ns]
            found[:0] = page
        if len(found) >= MAX_ENTRIES:
            self.gaps = f"only the last {MAX_ENTRIES:,} entries of a pod were read"
        return list(_lines(found[-most:]))

    async def _page(self, query: str, start_ns: int, end_ns: int, limit: int) -> list[_Entry]:
        if self.title == VICTORIA_LOGS:
            # The parameter `limit` may leave out newer lines if many have one time.
            nth = f"{query} | fields _time | sort by (_time desc) offset {limit - 1} limit 1"
            for row in await self._rows(nth, start_ns, end_ns):
                start_ns = read_stamp(row.get("_time", "").encode())[0] or start_ns
            rows = await self._rows(f"{query} | fields _time, _msg, log", start_ns, end_ns)
            texts = ((row.get("_time", ""), row.get("_msg") or row.get("log", "")) for row in rows)
            return [(read_stamp(time.encode())[0], text) for time, text in texts]
        span = {"start": str(start_ns), "end": str(end_ns), "limit": str(limit), "direction": "backward"}
        found = await self._loki("query_range", _LokiResult, query=query, **span)
        return [entry for stream in found.result for entry in reversed(stream.values)]

    async def _rows(self, query: str, start_ns: int, end_ns: int) -> list[dict[str, str]]:
        span = {"start": write_stamp(start_ns), "end": write_stamp(end_ns - 1)}  # here, both are inclusive
        rows = []
        for line in (await self._ask("/select/logsql/query", query=query, **span)).splitlines():
            try:
                rows.append(msgspec.json.decode(line.decode(errors="replace"), type=dict[str, str]))
            except _MALFORMED:
                rows.append({})
                self.gaps = "entries that are malformed were left out"
        return rows

    async def _loki(self, endpoint: str, of: Any, **query: str) -> Any:
        body = await self._ask(f"/loki/api/v1/{endpoint}", **query)
        try:
            answer = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
            return msgspec.json.decode(answer.get("data", b"[]"), type=of, strict=False)  # times are texts
        except _MALFORMED as error:
            raise ServerFailed(f"Could not read {self.name}.", f"The answer is malformed: {error}") from error

    async def _ask(self, endpoint: str, **query: str) -> bytes:
        doing = f"read {self.name}"
        opened: AbstractAsyncContextManager[Client] = nullcontext(self._client)
        more: dict[str, Any] = {"query": query, "headers": self._headers, "within_s": WITHIN_S}
        try:
            if self._host:  # it may be anywhere, and gets no credentials of the cluster's
                opened = Client(ClusterConfig(host=self._host, proxy=proxy_for(None, self._host)))
            async with opened as client:
                body = await fetch_proxied(client, self._path + endpoint, doing, **more)
        except ServerFailed as error:
            if "no org id" in error.why:
                error.why = f"It requires a tenant: `log_store: TENANT@{self.place}` in config.yaml."
            elif error.why.startswith("It answers 401"):
                error.why = "It requires a password or a token, and none can be given."
            elif "<" in error.why:
                error.why = f"{error.why.partition(':')[0]} with a web page."
            raise
        if body.lstrip()[:1] == b"<":
            raise ServerFailed(f"Could not {doing}.", "It answers with a web page.")
        return body


def _logs(
    rows: Iterable[Mapping[str, str]], forms: Sequence[tuple[str, ...]], labels: frozenset[str] | None = None
) -> list[StoredLog]:
    # `labels` are those of Loki; None for VictoriaLogs.
    found = set()
    for row in rows:
        form = next((form for form in forms if row.get(form[0]) and row.get(form[1])), ())
        pairs = {key: row[key] for key in form if row.get(key)}
        # What is no name of Kubernetes' comes from elsewhere, and belongs in no query.
        if pairs and all(map(_OBJECT_NAME.fullmatch, pairs.values())):
            query = " ".join(f'"{key}":="{text}"' for key, text in pairs.items())
            if labels is not None:
                inside = ",".join(f'{key}="{pairs[key]}"' for key in pairs if key in labels)
                query = f"{{{inside}}}" + "".join(f' | {key}="{pairs[key]}"' for key in pairs.keys() - labels)
            found.add(StoredLog(row[form[0]], row[form[1]], row.get(form[2], ""), query))
    return sorted(found)[:MAX_LOGS]


def _lines(entries: Iterable[_Entry]) -> Iterator[bytes]:
    # Without the runtime's wrapping, which splits long lines; an entry may be a whole traceback.
    partial, stamp_ns = "", 0
    for entry_ns, text in entries:
        is_partial, stamp_ns = False, entry_ns
        if (match := _CRI.fullmatch(text)) and (own_ns := read_stamp(match[1].encode())[0]):
            stamp_ns, text, is_partial = own_ns, match[3], match[2] == "P"
        elif text.startswith("{") and '"log"' in text:
            with suppress(*_MALFORMED):  # the program's own JSON
                text = msgspec.json.decode(text, type=_DockerLine).log
        partial += text.removesuffix("\n")
        if not is_partial:
            yield from (to_stamp(stamp_ns) + each.encode() for each in partial.split("\n"))
            partial = ""
    if partial:
        yield to_stamp(stamp_ns) + partial.encode()


async def find_logs(
    client: Client, configured: str, namespace: str, pods: str, start_ns: int, end_ns: int
) -> tuple[LogStore, list[StoredLog]]:
    """Return the store that has logs of some pods, and these logs, of at most `MAX_RANGE_NS`.

    `configured` is `log_store` of config.yaml, empty to search for a store. `pods` matches whole names, in
    the syntax of RE2. An empty namespace means all.

    Raises:
        NotFound: No store has any, or may be read; the message is a sentence.
    """
    tenant, place = split_place(configured) if configured else ("", "")
    said: dict[str, str] = {}
    for each in [place] if configured else await _places(client):
        both = LOKI, VICTORIA_LOGS
        titles = both[:1] if "loki" in each else both[1:] if _IS_VICTORIA.search(each) else both
        for store in (LogStore(title, client, each, tenant) for title in titles):
            if said.get(store.title, "").endswith(" has no line of it."):
                continue  # another service of the same store
            try:
                if logs := await store.find(namespace, pods, start_ns, end_ns):
                    return store, logs
                said[store.title] = f"{store.name} has no line of it."
            except KubeError as error:
                if configured or not isinstance(error, NotFound):  # no such service
                    why = sanitize(refusal_text(error))
                    said.setdefault(store.title, f"{store.name} cannot be read: {why}")
    raise NotFound(join_sentences(*said.values()) or "No Loki or VictoriaLogs was found in the cluster.")


async def _places(client: Client) -> Sequence[str]:
    try:
        found = await find_services(client, SELECTORS, ("http-metrics", "http"), (3100, 9428, 9471, 80))
    except Forbidden:
        return WELL_KNOWN
    except KubeError as error:
        raise NotFound(f"Log stores cannot be searched for: {sanitize(refusal_text(error))}") from error
    parts = {
        each.name: meta.label("app.kubernetes.io/component") or meta.label("app") or each.service
        for each, meta in found.items()
    }
    queried = [each for each, part in parts.items() if not _NOT_QUERIED.search(part)]
    return sorted(queried, key=lambda each: "gateway" not in each)[:MAX_CANDIDATES]
