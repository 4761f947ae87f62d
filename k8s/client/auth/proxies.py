"""Proxies, chosen as kubectl chooses them: that of the kubeconfig, else one of the environment."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from importlib.util import find_spec
from urllib.parse import urlsplit

_DEFAULT_PORTS = {"http": 80, "https": 443}
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_SCHEMES = ("http", "https")
_SOCKS = ("socks5", "socks5h")
_SOCKS_PACKAGE = "pip install 'python-socks[asyncio]'"


def proxy_for(named: str | None, server: str) -> str | None:
    """Return the address of the proxy for `server`; `named` is the kubeconfig's. None: connect directly.

    Raises:
        ValueError: The proxy cannot be used.
    """
    source, proxy = ("proxy-url", named) if named else proxy_from(os.environ, server)
    if not proxy:
        return None
    try:
        parts = urlsplit(proxy)
        is_address = bool(parts.hostname) and parts.port != 0
    except ValueError:  # it may hold a password
        raise ValueError(f"{source}: the address of the proxy is malformed") from None
    if parts.scheme not in (*_SCHEMES, *_SOCKS):
        scheme = parts.scheme or "this"
        raise ValueError(f"{source}: only http, https and socks5 proxies can be used, not {scheme}")
    if not is_address:
        raise ValueError(f"{source}: the address of the proxy is malformed")
    if is_socks(proxy) and find_spec("python_socks") is None:
        raise ValueError(f"{source}: a {parts.scheme} proxy needs one more package: {_SOCKS_PACKAGE}")
    return proxy


def is_socks(proxy: str | None) -> bool:
    """Return True if a proxy speaks SOCKS5; it then resolves the names."""
    return urlsplit(proxy or "").scheme in _SOCKS


def with_direct_loopback(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a child process that reaches this machine without a proxy."""
    found = dict(environment)
    upper, lower = found.get("NO_PROXY", ""), found.get("no_proxy", "")
    for name, exceptions in (("NO_PROXY", upper or lower), ("no_proxy", lower or upper)):
        parts = [part.strip() for part in exceptions.split(",") if part.strip()]
        # Many programs know `*` only where it stands alone.
        found[name] = "*" if "*" in parts else ",".join(dict.fromkeys((*parts, *_LOOPBACK)))
    return found


def proxy_from(environment: Mapping[str, str], server: str) -> tuple[str, str]:
    """Return the variable that names the proxy for `server`, and its value; empty for a direct connection.

    Source: golang.org/x/net/http/httpproxy, and apimachinery's NewProxierWithNoProxyCIDR. `ALL_PROXY`, which
    they do not read, counts where there is no proxy for the scheme, as for curl.
    """
    parts = urlsplit(server)
    host = (parts.hostname or "").rstrip(".")
    names = (f"{parts.scheme}_proxy", "all_proxy")
    variables = (each for name in names for each in (name.upper(), name) if environment.get(each))
    variable = next(variables, "")
    if not variable or is_loopback(host):
        return "", ""
    port = parts.port or _DEFAULT_PORTS.get(parts.scheme, 0)
    exceptions = environment.get("NO_PROXY") or environment.get("no_proxy") or ""
    if any(_is_excepted(host, port, each.strip().lower()) for each in exceptions.split(",")):
        return "", ""
    proxy = environment[variable]
    return variable, proxy if "://" in proxy else f"http://{proxy}"


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
