"""Listening socket of the server: its TLS certificate, and who may connect.

kubectl sends a token over TLS only. The certificate is made for each sandbox; a key shipped with the program
would be known to everyone. Loopback is open to every user of the machine: the token keeps others out of the
API, and `OwnUserSocket` keeps them from taking the server's connections.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from k8s.client.transport import stranger_of

HANDSHAKE_S = 5.0
BACKLOG = 128
VALID_DAYS = 3650
_NAMES = (
    x509.DNSName("localhost"),
    x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
    x509.IPAddress(ipaddress.ip_address("::1")),
)


class OwnUserSocket(socket.socket):
    """Listening socket that closes connections of users other than root and this process's own.

    A connection whose user the kernel does not report is accepted.
    """

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection.

        Raises:
            ConnectionAbortedError: It came from another user; asyncio ignores this.
        """
        connection, address = super().accept()
        if stranger_of(connection) is not None:
            connection.close()
            raise ConnectionAbortedError
        return connection, address


def listen(port: int) -> OwnUserSocket:
    """Return a socket that listens on loopback; port 0 takes a free one.

    Raises:
        OSError: The port is taken.
    """
    listening = OwnUserSocket()
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", port))
        listening.listen(BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening


def server_context(folder: Path) -> tuple[ssl.SSLContext, str]:
    """Return a server's TLS context, and the certificate for its clients to trust, as PEM.

    Both are stored in `folder`, and made if missing.

    Raises:
        OSError: The folder cannot be written.
    """
    certificate, key = folder / "tls.crt", folder / "tls.key"
    if not (certificate.exists() and key.exists()):
        certificate_pem, key_pem = make_certificate()
        with open(os.open(key, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(key_pem)
        certificate.write_bytes(certificate_pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context, certificate.read_text()


def make_certificate() -> tuple[bytes, bytes]:
    """Return a new self-signed certificate for this machine's loopback, and its private key, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "gpuconsole sandbox")])
    begins = datetime.now(UTC) - timedelta(days=1)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(begins + timedelta(days=VALID_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectAlternativeName(_NAMES), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    key_pem = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    return made.public_bytes(Encoding.PEM), key_pem
