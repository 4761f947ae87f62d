"""SOCKS proxies: which requests go through them, what they resolve, and their errors."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from k8s.client.auth.cluster_config import load
from k8s.client.client import Client
from k8s.models.resources import PODS
from k8s.text.errors import NoCluster, Unreachable
from tests.k8s.client.test_cluster_config import config, write
from tests.scripted.certificates import issue, make_authority, server_tls
from tests.scripted.server import SUCCESS, Answer, ScriptedCluster, Socket, Stream, page
from tests.support.socks import REFUSED, SocksProxy, serving

VERSION = "/version"
PODS_PATH = "/api/v1/pods"
ONE = "/api/v1/namespaces/default/pods/a"
NAMES = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY")
SERVER, NAMED = "https://api.rack7.example:6443", ("api.rack7.example", 6443)
DEAD = "socks5://127.0.0.1:9"


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.mark.parametrize(
    ("server", "named", "environment", "requested"),
    [
        (SERVER, "socks5://{}", {}, NAMED),
        ("https://10.77.0.1", "socks5h://li:p%40ss@{}", {"HTTPS_PROXY": DEAD}, ("0a4d0001", 443)),
        (SERVER, "", {"HTTPS_PROXY": "socks5://{}", "ALL_PROXY": DEAD}, NAMED),
        (SERVER, "", {"ALL_PROXY": "socks5h://{}", "HTTP_PROXY": DEAD, "NO_PROXY": "10.0.0.0/8,lake"}, NAMED),
        (SERVER, "", {"all_proxy": "socks5://{}"}, NAMED),
    ],
    ids=str,
)
async def test_everything_goes_through_a_socks_proxy_that_resolves_the_names(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    server: str,
    named: str,
    environment: dict[str, str],
    requested: tuple[str, int],
) -> None:
    authority = make_authority(tmp_path)
    tls = server_tls(issue(authority, "server", names="DNS:api.rack7.example"))
    async with ScriptedCluster(tls) as cluster:
        proxy = SocksProxy(cluster.host, login="li:p@ss" if "@" in named else "")
        cluster.say(PODS_PATH, page([{"kind": "Pod"}]))
        cluster.say(PODS_PATH, Stream(b"added\n").end(), watch=True)
        for subresource in ("exec", "portforward"):
            cluster.say(f"{ONE}/{subresource}", Socket([SUCCESS]))
        async with serving(proxy) as address:
            for name, value in environment.items():
                monkeypatch.setenv(name, value.format(address))
            entry = {"certificate-authority": str(authority.path)}
            entry |= {"proxy-url": named.format(address)} if named else {}
            entry |= {"tls-server-name": "api.rack7.example"} if "10." in server else {}
            made = config(server, {"token": "t"}, cluster=entry)
            async with Client(await load(write(tmp_path / "config", made))) as client:
                assert await client.list(PODS) == [{"kind": "Pod"}]
                assert [line async for line in client.watch(PODS, version="1")] == [b"added"]
                async with client.exec("a", "default", ["true"]) as opened:
                    assert (await opened.receive()).data[1:] == SUCCESS[1]
                async with client.open_socket(f"{ONE}/portforward", "forward", {"ports": "6006"}) as opened:
                    assert (await opened.receive()).data[1:] == SUCCESS[1]
    assert set(proxy.requested) == {requested}


@pytest.mark.parametrize(
    ("login", "refusal", "why"),
    [
        ("", REFUSED, "it could not connect to api.rack7.example:6443: Connection not allowed by ruleset."),
        ("li:other", 0, "it could not connect to api.rack7.example:6443: "),
    ],
)
async def test_a_refusal_by_a_socks_proxy_names_it_and_its_reason(
    tmp_path: Path, login: str, refusal: int, why: str
) -> None:
    async with serving(SocksProxy("http://127.0.0.1:9", login=login, refusal=refusal)) as address:
        entry = {"proxy-url": f"socks5://li:hidden@{address}"}
        made = config("https://api.rack7.example:6443", cluster=entry)
        async with Client(await load(write(tmp_path / "config", made))) as client:
            with pytest.raises(Unreachable) as caught:
                await client.get_json(VERSION)
    assert f"Proxy {address}: {why}" in caught.value.why
    assert "proxy-url" in caught.value.hint
    assert "hidden" not in str(caught.value)


async def test_a_dead_socks_proxy_is_named(tmp_path: Path) -> None:
    made = config("https://api.rack7.example", cluster={"proxy-url": DEAD})
    async with Client(await load(write(tmp_path / "config", made))) as client:
        with pytest.raises(Unreachable, match=r"Proxy 127\.0\.0\.1:9: Connection refused"):
            await client.get_json(VERSION)


async def test_a_certificate_is_verified_through_a_socks_proxy(tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    tls = server_tls(issue(authority, "server", names="DNS:other.example"))
    async with ScriptedCluster(tls) as cluster, serving(SocksProxy(cluster.host)) as address:
        cluster.say(VERSION, Answer({}))
        entry = {"certificate-authority": str(authority.path), "proxy-url": f"socks5://{address}"}
        made = config("https://api.rack7.example", cluster=entry)
        async with Client(await load(write(tmp_path / "config", made))) as client:
            with pytest.raises(
                Unreachable, match=r"api\.rack7\.example:443: its certificate is for another name"
            ):
                await client.get_json(VERSION)


@pytest.mark.parametrize(
    ("proxy", "why"),
    [
        (
            "socks4://li:hidden@bastion:1080",
            "proxy-url: only http, https and socks5 proxies can be used, not socks4",
        ),
        ("bastion:1080", "proxy-url: only http, https and socks5 proxies can be used, not bastion"),
        ("socks5://li:hid/den@bastion", "proxy-url: the address of the proxy is malformed"),
        ("socks5://", "proxy-url: the address of the proxy is malformed"),
    ],
)
async def test_an_unusable_proxy_is_rejected_on_load(tmp_path: Path, proxy: str, why: str) -> None:
    with pytest.raises(NoCluster) as caught:
        await load(write(tmp_path / "config", config("https://x", cluster={"proxy-url": proxy})))
    assert why in caught.value.why and "hid" not in str(caught.value)


async def test_without_the_library_for_socks_its_installation_is_suggested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", DEAD)
    monkeypatch.setitem(sys.modules, "python_socks", None)
    with pytest.raises(NoCluster, match=r"ALL_PROXY: a socks5 proxy needs.*pip install 'python-socks"):
        await load(write(tmp_path / "config", config("https://x")))
