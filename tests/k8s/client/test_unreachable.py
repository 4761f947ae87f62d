"""Explanations of transport errors, with advice; and SOCKS proxies: their requests, names and errors."""

from __future__ import annotations

import asyncio
import errno
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from k8s.client.auth.cluster_config import ClusterConfig, load
from k8s.client.client import Client
from k8s.client.transport import is_broken_by_peer
from k8s.models.resources import PODS
from k8s.text.errors import Invalid, KubeError, NoCluster, Unreachable
from tests import ROOT
from tests.k8s.client.test_cluster_config import config, write
from tests.scripted.certificates import Certificate, issue, make_authority, server_tls
from tests.scripted.server import SUCCESS, Answer, ScriptedCluster, Socket, Stream, page
from tests.support.socks import REFUSED, SocksProxy, serving

RESET, SILENCE = b"reset", b"silence"
"""In place of an answer."""


async def failure(host: str, **config: object) -> Unreachable:
    """Ask a server for its version, and return the explanation of the failure."""
    async with Client(ClusterConfig(host=host, **config)) as client:  # type: ignore[arg-type]
        with pytest.raises(Unreachable) as failed:
            await client.get_json("/version", doing="ask for the version")
    found: KubeError = failed.value
    assert isinstance(found, Unreachable) and found.what == "Could not ask for the version."
    return found


async def test_connection_refused_is_reported_with_advice() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        error = await failure(f"https://127.0.0.1:{port}")
    assert error.why == f"127.0.0.1:{port}: Connection refused: nothing listens there."
    assert error.hint == "Start the cluster, or correct the server in the kubeconfig."


async def test_an_unresolvable_host_name_is_reported() -> None:
    error = await failure("https://no-such-host.invalid:6443")
    assert error.why == "no-such-host.invalid: no address is known for this name."
    assert "VPN" in error.hint


async def test_an_untrusted_certificate_authority_is_reported(tmp_path: Path) -> None:
    served, other = make_authority(tmp_path), make_authority(_folder(tmp_path, "other"))
    async with ScriptedCluster(tls=server_tls(issue(served, "server"))) as cluster:
        error = await failure(cluster.host, ssl_ca_cert=str(other.path))
    where = cluster.host.removeprefix("https://")
    assert error.why == f"{where}: its certificate is signed by an authority that is not trusted."
    assert error.hint == "Correct certificate-authority-data in the kubeconfig, or get a new kubeconfig."


async def test_the_scheme_of_a_server_may_be_written_in_capitals(tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    async with ScriptedCluster(tls=server_tls(issue(authority, "server"))) as cluster:
        cluster.say("/version", Answer({"gitVersion": "v1"}))
        config = ClusterConfig(host=cluster.host.upper(), ssl_ca_cert=str(authority.path))
        async with Client(config) as client:
            assert await client.get_json("/version") == {"gitVersion": "v1"}


def test_the_default_tls_context_of_aiohttp_trusts_no_authority() -> None:
    code = (
        "import k8s.client.session, aiohttp.connector\n"
        "context = aiohttp.connector._SSL_CONTEXT_VERIFIED\n"
        "print(context.verify_mode.name, context.check_hostname, context.cert_store_stats()['x509_ca'])"
    )
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.split() == ["CERT_REQUIRED", "True", "0"]


async def test_a_certificate_host_name_mismatch_is_reported(tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    certificate = issue(authority, "server", names="DNS:elsewhere.example")
    async with ScriptedCluster(tls=server_tls(certificate)) as cluster:
        error = await failure(cluster.host, ssl_ca_cert=str(authority.path))
    assert error.why.endswith(": its certificate is for another name.")
    assert "tls-server-name" in error.hint


@pytest.mark.parametrize(("year", "state"), [(2020, "has expired"), (2100, "is not valid yet")])
async def test_an_expired_or_not_yet_valid_certificate_is_reported(
    tmp_path: Path, year: int, state: str
) -> None:
    certificate = _valid_in(tmp_path, year)
    async with ScriptedCluster(tls=server_tls(certificate)) as cluster:
        error = await failure(cluster.host, ssl_ca_cert=str(certificate.path))
    assert error.why.endswith(f": its certificate {state}.")
    assert "clock" in error.hint


def test_a_timeout_is_distinguished_from_a_connection_broken_by_the_peer() -> None:
    cases: list[tuple[Exception | None, bool]] = [
        (ConnectionResetError(errno.ECONNRESET, "reset"), True),
        (OSError(errno.ENETUNREACH, "unreachable"), False),
        (TimeoutError(), False),
        (None, True),
    ]
    for cause, is_broken in cases:
        error = Unreachable("Could not watch.")
        error.__cause__ = cause
        assert is_broken_by_peer(error) is is_broken


async def test_a_server_without_tls_is_reported() -> None:
    async with ScriptedCluster() as cluster:
        error = await failure(cluster.host.replace("http:", "https:"))
    assert error.why == f"{cluster.host.removeprefix('http://')}: it does not speak TLS."
    assert "http or https" in error.hint


OK = b"HTTP/1.1 200 OK\r\n"
SCHEME, PROXY = "its port, http or https", "proxy-url"


@pytest.mark.parametrize(
    ("scheme", "answer", "why", "hint"),
    [
        ("https", b"", "{}: it closed the connection while it was being opened.", SCHEME),
        ("https", RESET, "{}: it closed the connection while it was being opened.", SCHEME),
        ("https", b"HTTP/1.1 400 Bad Request\r\n\r\n", "{}: it does not speak TLS.", SCHEME),
        ("http", b"", "{}: it closed the connection without an answer.", SCHEME),
        ("http", RESET, "{}: it closed the connection without an answer.", SCHEME),
        ("http", b"\x15\x03\x01\x00\x02\x02\x46", "{}: it does not speak HTTP.", SCHEME),
        ("http", b"SSH-2.0-OpenSSH_9\r\n", "{}: it does not speak HTTP.", SCHEME),
        ("http", OK + b"X: " + b"a" * 300_000 + b"\r\n\r\n", "Got more than 8190 bytes when reading.", ""),
        ("http", OK + b"X: a\r\n" * 100_000 + b"\r\n", "cannot be read: Too many headers received.", ""),
        ("http", OK + b"Content-Length: -5\r\n\r\n", "Invalid character in Content-Length.", ""),
        ("http", OK + b"Content-Length: 9\r\n\r\n{}", "Response payload is not completed.", ""),
        ("proxy", b"", "10.1.2.3:6443: it closed the connection without an answer.", ""),
        ("proxy", None, "Proxy {}: Connection refused: nothing listens there.", PROXY),
        (
            "proxy",
            b"HTTP/1.1 502 Bad Gateway\r\n\r\n",
            "The proxy {} refused: it answered 502 Bad Gateway.",
            PROXY,
        ),
        ("proxy", SILENCE, "The cluster, or the proxy {}, did not answer in time.", PROXY),
    ],
    ids=lambda value: repr(value)[:30],
)
async def test_connection_errors_name_the_server_or_the_proxy(
    scheme: str, answer: bytes | None, why: str, hint: str
) -> None:
    async with answering(answer) as where:
        is_proxied = scheme == "proxy"
        config = ClusterConfig(
            host="https://10.1.2.3:6443" if is_proxied else f"{scheme}://{where}",
            proxy=f"http://li:SECRET@{where}" if is_proxied else None,
        )
        async with Client(config, request_s=0.2 if answer is SILENCE else 30.0) as client:
            with pytest.raises(Unreachable) as failed:
                await client.get_json("/version")
    assert failed.value.why.endswith(why.format(where)), failed.value.why
    assert hint in failed.value.hint
    assert "SECRET" not in str(failed.value) and "\n" not in failed.value.why


async def test_an_http_request_to_an_https_server_is_answered_with_a_hint_to_use_https() -> None:
    said = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"
    async with answering(said) as where, Client(ClusterConfig(host=f"http://{where}")) as client:
        with pytest.raises(Invalid) as failed:
            await client.get_json("/version")
    assert failed.value.why == "The cluster says: Client sent an HTTP request to an HTTPS server."
    assert "https://" in failed.value.hint


@asynccontextmanager
async def answering(answer: bytes | None) -> AsyncIterator[str]:
    """Yield the address of a socket that sends these bytes to a request; None listens to nothing."""
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10_000)
        if answer is SILENCE:
            await ended.wait()
        elif answer is RESET:
            writer.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0" + bytes(4)
            )
        else:
            writer.write(answer or b"")
            with suppress(ConnectionError):
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    if answer is None:
        server.close()
    try:
        yield f"{host}:{port}"
    finally:
        ended.set()
        server.close()
        await server.wait_closed()


def _folder(parent: Path, name: str) -> Path:
    made = parent / name
    made.mkdir()
    return made


def _valid_in(folder: Path, year: int) -> Certificate:
    """Create a self-signed certificate that is valid for one day of a year."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    here = x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).add_extension(here, critical=True)
    builder = builder.not_valid_before(datetime(year, 1, 1)).not_valid_after(datetime(year, 1, 2))
    made = Certificate(folder / "old.crt", folder / "old.key")
    made.path.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    form = serialization.PrivateFormat.PKCS8
    made.key.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, plain))
    return made


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
