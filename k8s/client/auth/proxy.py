"""Which proxy the environment asks for on the way to a server, by the rules of kubectl.

Source: golang.org/x/net/http/httpproxy, and apimachinery's NewProxierWithNoProxyCIDR.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

_DEFAULT_PORTS = {"http": 80, "https": 443}


def proxy_from(environment: Mapping[str, str], server: str) -> str:
    """Return the proxy's address for a server's; empty when it is reached without one."""
    parts = urlsplit(server)
    host = (parts.hostname or "").rstrip(".")
    name = f"{parts.scheme}_proxy"
    proxy = environment.get(name.upper()) or environment.get(name) or ""
    if not proxy or _is_loopback(host):
        return ""
    port = parts.port or _DEFAULT_PORTS.get(parts.scheme, 0)
    exceptions = environment.get("NO_PROXY") or environment.get("no_proxy") or ""
    if any(_is_excepted(host, port, each.strip().lower()) for each in exceptions.split(",")):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def _is_loopback(host: str) -> bool:
    address = _address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def _is_excepted(host: str, port: int, exception: str) -> bool:
    """Tell whether a word of NO_PROXY means a host: `*`, an address, a network, a name or one below it."""
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
        return ipaddress.ip_address(host)
    except ValueError:
        return None
