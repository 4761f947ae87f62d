"""The proxy from the environment, as kubectl understands it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from k8s.client.auth.cluster_config import proxy_from

PROXY = "http://proxy:3128"


def test_a_server_is_reached_through_the_proxy_unless_it_is_excepted() -> None:
    cases: list[tuple[str, str, bool]] = [
        ("", "https://10.2.3.4:6443", False),
        ("*", "https://10.2.3.4:6443", True),
        ("10.0.0.0/8", "https://10.2.3.4:6443", True),
        ("10.0.0.0/8", "https://11.2.3.4:6443", False),
        ("10.0.0.0/88", "https://10.2.3.4:6443", False),
        ("10.2.3.4", "https://10.2.3.4:6443", True),
        ("10.2.3.4:6443", "https://10.2.3.4:6443", True),
        ("10.2.3.4:6443", "https://10.2.3.4", False),
        ("10.2.3.4:443", "https://10.2.3.4", True),
        ("10.2.3.4:" + "9" * 5000, "https://10.2.3.4", False),
        ("fd00::/8", "https://[fd00::1]", True),
        ("[fd00::1]:443", "https://[fd00::1]", True),
        ("fd00::1", "https://[fd00::1]", True),
        ("fd00::1", "https://[fd00::2]", False),
        ("example.com", "https://example.com", True),
        ("Example.COM", "https://api.EXAMPLE.com", True),
        ("example.com", "https://badexample.com", False),
        (".example.com", "https://example.com", False),
        (".example.com", "https://api.example.com", True),
        ("*.example.com", "https://api.example.com", True),
        (" other.org , example.com:6443", "https://api.example.com:6443", True),
        ("", "https://localhost:6443", True),
        ("", "https://127.0.0.1:6443", True),
        ("", "https://[::1]:6443", True),
    ]
    for no_proxy, server, is_direct in cases:
        environment = {"HTTPS_PROXY": PROXY, "NO_PROXY": no_proxy}
        assert proxy_from(environment, server) == ("" if is_direct else PROXY)
        assert proxy_from({"https_proxy": PROXY, "no_proxy": no_proxy}, server) == (
            "" if is_direct else PROXY
        )


def test_each_scheme_has_a_proxy_of_its_own() -> None:
    environment = {"HTTPS_PROXY": "proxy:1", "HTTP_PROXY": "socks5://proxy:2"}
    assert proxy_from(environment, "https://a") == "http://proxy:1"
    assert proxy_from(environment, "http://a") == "socks5://proxy:2"
    assert proxy_from({}, "https://a") == ""


@given(st.text())
def test_no_exception_breaks_anything(no_proxy: str) -> None:
    assert proxy_from({"HTTPS_PROXY": PROXY, "NO_PROXY": no_proxy}, "https://10.0.0.1") in ("", PROXY)
