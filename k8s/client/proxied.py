"""Services and pods behind the API server's proxy: their addresses, typed lists, and bounded reads.

The response is not the API server's own: it may have any size, take any time, or ask for
credentials. None of this may block the console or log it out.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from k8s.client.client import Client
from k8s.client.transport import read_at_most, translated, unparsable
from k8s.models import Meta, Reader, Value
from k8s.models.resources import SERVICES, Resource
from k8s.text.errors import KubeError, TooLarge, Unreachable

T = TypeVar("T")

# An exporter returns 20 KiB for 8 GPUs, and 400 KiB for 16 GPUs with seven MIG instances each.
MAX_BYTES = 8 * 1024 * 1024
# Pages of 500 objects: a cluster has at most 5,000 nodes.
_MOST_PAGES = 20
WITHIN_S = 15.0
"""Timeout of a whole response, counted from the time the request is sent."""
_ADDRESS = re.compile(
    r"(?P<namespace>[a-z0-9-]+)/(?:(?P<scheme>https?):)?(?P<name>[a-z0-9.-]+)"
    r"(?::(?P<port>[a-z0-9-]+))?(?P<prefix>(?:/[\w.-]+)*)/?"
)
_PLACE = re.compile(
    r"(?:(?P<tenant>[\w!.*'()|:-]+)@)?(?P<place>(?P<url>https?://[^@\s?#/][^@\s?#]*)|[^@\s]+)"
)


class ServiceAddress(msgspec.Struct, frozen=True):
    """A service that answers queries."""

    namespace: str
    service: str
    port: str = ""
    """Number or name; empty if the service has only one."""
    scheme: str = ""
    prefix: str = ""
    """Path before that of its API, such as `/prometheus`."""

    @property
    def path(self) -> str:
        """The path on the API server under which it is reached."""
        parts = [self.service, self.port] if self.port else [self.service]
        if self.scheme:
            parts = [self.scheme, self.service, self.port]
        return f"{SERVICES.path(self.namespace)}/{':'.join(parts)}/proxy{self.prefix}"

    @property
    def name(self) -> str:
        """The notation of config.yaml: `monitoring/prometheus-k8s:web`."""
        scheme = f"{self.scheme}:" if self.scheme else ""
        port = f":{self.port}" if self.port else ""
        return f"{self.namespace}/{scheme}{self.service}{port}{self.prefix}"


def parse_address(text: str) -> ServiceAddress:
    """Parse `namespace/service`, `namespace/service:port` or `namespace/https:service:port/prefix`.

    Raises:
        ValueError: The text has a different form.
    """
    found = _ADDRESS.fullmatch(text)
    if found is None or ".." in text:
        raise ValueError("not a service address, such as monitoring/prometheus-k8s:web")
    scheme = "https" if found["scheme"] == "https" else ""
    return ServiceAddress(found["namespace"], found["name"], found["port"] or "", scheme, found["prefix"])


def split_place(text: str) -> tuple[str, str]:
    """Return tenant and place of `log_store`: `TENANT@` or nothing before a service's address or a URL.

    Raises:
        ValueError: The text has a different form.
    """
    found = _PLACE.fullmatch(text)
    if found is None or urlsplit(found["url"] or "").port == 0:  # and if it is no number, or too large
        raise ValueError("neither a URL nor a service address, such as monitoring/loki:3100")
    return found["tenant"] or "", found["url"] or parse_address(found["place"]).name


class _ServicePort(Value, frozen=True):
    name: str = ""
    port: int = 0


class _ServiceSpec(Value, frozen=True):
    ports: list[_ServicePort] | None = None
    type: str = ""


class _Service(Value, frozen=True):
    metadata: Meta
    spec: _ServiceSpec = _ServiceSpec()


async def find_services(
    client: Client, selectors: Sequence[str], port_names: Sequence[str], port_numbers: Sequence[int]
) -> dict[ServiceAddress, Meta]:
    """Return the services with these labels in all namespaces, each once, and their metadata.

    Of their ports, the first with one of the names is chosen, else of the numbers, else the first.

    Raises:
        Forbidden: The user may not list services.
        KubeError: The cluster does not answer.
    """
    found: dict[tuple[str, str], tuple[ServiceAddress, Meta]] = {}
    lists = (list_values(client, SERVICES, _Service, label_selector=each) for each in selectors)
    for services in await asyncio.gather(*lists):
        for service in services:
            meta, ports = service.metadata, service.spec.ports or []
            named = [port for name in port_names for port in ports if port.name == name]
            numbered = [port for port in ports if port.port in port_numbers]
            chosen = next(iter([*named, *numbered, *ports]), None)
            port = "" if chosen is None else chosen.name or str(chosen.port)
            scheme = "https" if chosen is not None and "https" in chosen.name else ""
            address = ServiceAddress(meta.namespace, meta.name, port, scheme)
            found.setdefault((meta.namespace, meta.name), (address, meta))
    return dict(found.values())


async def list_values(
    client: Client, resource: Resource, value_type: type[T], namespace: str = "", **query: Any
) -> list[T]:
    """Return the well-formed objects of a list; `query` are parameters of `Client.list_page`.

    Raises:
        KubeError: The server refused or did not answer, or its answer is no list.
    """
    reader: Reader[T] = Reader(value_type)
    found: list[T] = []
    token = ""
    for _ in range(_MOST_PAGES):
        body = await client.list_page(resource, namespace, continue_token=token, **query)
        try:
            where, items, _ = reader.read_list(body)
        except msgspec.DecodeError as error:
            why = f"The list is malformed: {error}"
            raise unparsable(f"Could not list {resource.full_name}.", why) from error
        found += items
        if not (token := where.continue_):
            break
    return found


async def fetch_proxied(
    client: Client,
    path: str,
    doing: str,
    *,
    query: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    within_s: float = WITHIN_S,
) -> bytes:
    """Return the response body of a pod or service; `headers` are passed on to it.

    Raises:
        Forbidden: The user may not use the proxy, or the target refuses the API server.
        TooLarge: The response is longer than `MAX_BYTES`.
        KubeError: No response in time, or an error response.
    """
    # Waiting for a turn may take longer than the answer: only the answer is timed, here and in `stream`.
    sent: dict[str, Any] = {"query": query, "headers": headers, "idle_s": within_s, "open_s": within_s}
    opened = client.stream(path, doing, **sent, is_urgent=False, is_proxied=True, is_endless=False)
    try:
        with translated(doing):
            async with opened as body, asyncio.timeout(within_s):
                found = await read_at_most(body, MAX_BYTES + 1)
    except Unreachable as error:
        if isinstance(error.__cause__, TimeoutError):  # the cluster may answer everything else at once
            raise Unreachable(error.what, "It did not answer in time.") from error
        raise
    if len(found) > MAX_BYTES:
        why = f"It answers with more than {MAX_BYTES // 2**20} MiB."
        raise TooLarge(f"Could not {doing}.", why)
    return found


def refusal_text(error: KubeError) -> str:
    """Return the server's reason in one line, without the common prefix."""
    return (error.why or error.what).removeprefix("The cluster says: ").split("\n", 1)[0]
