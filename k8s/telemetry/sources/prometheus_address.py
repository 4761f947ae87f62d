"""Where a Prometheus is, as config.yaml names it and as the API server's proxy finds it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from k8s.models.resources import SERVICES

_ADDRESS = re.compile(
    r"(?P<namespace>[a-z0-9-]+)/(?:(?P<scheme>https?):)?(?P<name>[a-z0-9.-]+)"
    r"(?::(?P<port>[a-z0-9-]+))?(?P<prefix>(?:/[\w.-]+)*)/?"
)


@dataclass(frozen=True, slots=True)
class PrometheusAddress:
    """A service that answers queries."""

    namespace: str
    service: str
    port: str = ""
    """Number or name; empty where the service has but one."""
    scheme: str = ""
    prefix: str = ""
    """Path before `/api/v1`, as `/prometheus`."""

    @property
    def path(self) -> str:
        """Return the path on the API server of its queries."""
        parts = [self.service, self.port] if self.port else [self.service]
        if self.scheme:
            parts = [self.scheme, self.service, self.port]
        return f"{SERVICES.path(self.namespace)}/{':'.join(parts)}/proxy{self.prefix}/api/v1/query"

    @property
    def name(self) -> str:
        """Return it as in config.yaml: `monitoring/prometheus-k8s:web`."""
        scheme = f"{self.scheme}:" if self.scheme else ""
        port = f":{self.port}" if self.port else ""
        return f"{self.namespace}/{scheme}{self.service}{port}{self.prefix}"


def parse_address(text: str) -> PrometheusAddress:
    """Read `namespace/service`, `namespace/service:port` or `namespace/https:service:port/prefix`.

    Raises:
        ValueError: It is nothing like that.
    """
    found = _ADDRESS.fullmatch(text)
    if found is None or ".." in text:
        raise ValueError(f"{text!r} is no address of a service, as monitoring/prometheus-k8s:web")
    scheme = found["scheme"] if found["scheme"] == "https" else ""
    return PrometheusAddress(
        found["namespace"], found["name"], found["port"] or "", scheme or "", found["prefix"] or ""
    )
