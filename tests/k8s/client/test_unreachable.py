"""Why a server cannot be reached, in words, and what to do about it."""

from __future__ import annotations

import errno
import socket
from datetime import datetime
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from k8s.client.auth.cluster_config import ClusterConfig
from k8s.client.client import Client
from k8s.client.transport import is_broken_by_peer
from k8s.errors import KubeError, Unreachable
from tests.scripted.certificates import Certificate, issue, make_authority, server_tls
from tests.scripted.server import ScriptedCluster


async def failure(host: str, **config: object) -> Unreachable:
    """Ask a server for its version, and return why there is no answer."""
    async with Client(ClusterConfig(host=host, **config)) as client:  # type: ignore[arg-type]
        with pytest.raises(Unreachable) as failed:
            await client.get_json("/version", doing="ask for the version")
    found: KubeError = failed.value
    assert isinstance(found, Unreachable) and found.what == "Could not ask for the version."
    return found


async def test_where_nothing_listens_that_is_said_and_what_to_do() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        error = await failure(f"https://127.0.0.1:{port}")
    assert error.why == f"127.0.0.1:{port}: Connection refused: nothing listens there."
    assert error.hint == "Start the cluster, or correct the server in the kubeconfig."


async def test_a_name_without_an_address_is_said() -> None:
    error = await failure("https://no-such-host.invalid:6443")
    assert error.why == "no-such-host.invalid: no address is known for this name."
    assert "VPN" in error.hint


async def test_an_authority_that_is_not_trusted_is_said(tmp_path: Path) -> None:
    served, other = make_authority(tmp_path), make_authority(_folder(tmp_path, "other"))
    async with ScriptedCluster(tls=server_tls(issue(served, "server"))) as cluster:
        error = await failure(cluster.host, ssl_ca_cert=str(other.path))
    where = cluster.host.removeprefix("https://")
    assert error.why == f"{where}: its certificate is signed by an authority that is not trusted."
    assert error.hint == "Correct certificate-authority-data in the kubeconfig, or fetch the kubeconfig anew."


async def test_a_certificate_for_another_name_is_said(tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    certificate = issue(authority, "server", names="DNS:elsewhere.example")
    async with ScriptedCluster(tls=server_tls(certificate)) as cluster:
        error = await failure(cluster.host, ssl_ca_cert=str(authority.path))
    assert error.why.endswith(": its certificate is for another name.")
    assert "tls-server-name" in error.hint


@pytest.mark.parametrize(("year", "state"), [(2020, "has expired"), (2100, "is not valid yet")])
async def test_a_certificate_out_of_its_time_is_said(tmp_path: Path, year: int, state: str) -> None:
    certificate = _valid_in(tmp_path, year)
    async with ScriptedCluster(tls=server_tls(certificate)) as cluster:
        error = await failure(cluster.host, ssl_ca_cert=str(certificate.path))
    assert error.why.endswith(f": its certificate {state}.")
    assert "clock" in error.hint


@pytest.mark.parametrize(
    ("cause", "is_broken"),
    [
        (ConnectionResetError(errno.ECONNRESET, "reset"), True),
        (OSError(errno.ENETUNREACH, "unreachable"), False),
        (TimeoutError(), False),
        (None, True),
    ],
)
def test_silence_is_told_from_a_connection_that_the_other_end_breaks(
    cause: Exception | None, is_broken: bool
) -> None:
    error = Unreachable("Could not watch.")
    error.__cause__ = cause
    assert is_broken_by_peer(error) is is_broken


async def test_a_server_that_speaks_no_tls_is_said() -> None:
    async with ScriptedCluster() as cluster:
        error = await failure(cluster.host.replace("http:", "https:"))
    assert error.why == f"{cluster.host.removeprefix('http://')}: it does not speak TLS."
    assert "http or https" in error.hint


def _folder(parent: Path, name: str) -> Path:
    made = parent / name
    made.mkdir()
    return made


def _valid_in(folder: Path, year: int) -> Certificate:
    """Make a certificate that signs itself and is valid for a day of a year."""
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
