"""Proxies, chosen as kubectl chooses them: that of the kubeconfig, else one of the environment."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from urllib.parse import urlsplit

_DEFAULT_PORTS = {"http": 80, "https": 443}
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_SCHEMES = ("http", "https")


def proxy_for(named: str | None, server: str) -> str | None:
    """Return the address of the proxy for `server`; `named` is the kubeconfig's. None: connect directly.

    Raises:
        ValueError: The proxy cannot be used.
    """
    proxy = named or proxy_from(os.environ, server)
    if proxy and urlsplit(proxy).scheme not in _SCHEMES:
        raise ValueError(f"only http and https proxies can be used, not {urlsplit(proxy).scheme or 'this'}")
    return proxy or None


def with_direct_loopback(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a child process that reaches this machine without a proxy."""
    found = dict(environment)
    upper, lower = found.get("NO_PROXY", ""), found.get("no_proxy", "")
    for name, exceptions in (("NO_PROXY", upper or lower), ("no_proxy", lower or upper)):
        parts = [part.strip() for part in exceptions.split(",") if part.strip()]
        # Many programs know `*` only where it stands alone.
        found[name] = "*" if "*" in parts else ",".join(dict.fromkeys((*parts, *_LOOPBACK)))
    return found


def proxy_from(environment: Mapping[str, str], server: str) -> str:
    """Return the address of the proxy for `server`; empty for a direct connection.

    Source: golang.org/x/net/http/httpproxy, and apimachinery's NewProxierWithNoProxyCIDR.
    """
    parts = urlsplit(server)
    host = (parts.hostname or "").rstrip(".")
    name = f"{parts.scheme}_proxy"
    proxy = environment.get(name.upper()) or environment.get(name) or ""
    if not proxy or is_loopback(host):
        return ""
    port = parts.port or _DEFAULT_PORTS.get(parts.scheme, 0)
    exceptions = environment.get("NO_PROXY") or environment.get("no_proxy") or ""
    if any(_is_excepted(host, port, each.strip().lower()) for each in exceptions.split(",")):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def is_loopback(host: str) -> bool:
    """Return True if a host name or address is this machine's loopback."""
    address = _address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def _is_excepted(host: str, port: int, exception: str) -> bool:
    # An entry of NO_PROXY is `*`, an address, a network, or a domain, each but `*` with an optional port.
    if exception in ("", "*"):
        return exception == "*"
    address = _address(host)
    if address is not None and "/" in exception:
        try:
            return address in ipaddress.ip_network(exception, strict=False)
        except ValueError:
            return False
    named, colon, wanted_port = exception.rpartition(":")
    if colon and wanted_port.isdecimal() and (named.endswith("]") or ":" not in named):
        if wanted_port.lstrip("0") != str(port):
            return False
        exception = named
    if address is not None:
        return address == _address(exception.strip("[]"))
    if exception.startswith(("*.", ".")):
        return host.endswith(exception.removeprefix("*"))
    return host == exception or host.endswith(f".{exception}")


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    return address.ipv4_mapped or address if isinstance(address, ipaddress.IPv6Address) else address
