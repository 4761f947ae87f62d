"""Certificates for tests, made by openssl: an authority, and whom it vouches for."""

from __future__ import annotations

import os
import ssl
import subprocess
from pathlib import Path

import msgspec
import pytest


class Certificate(msgspec.Struct, frozen=True):
    path: Path
    key: Path


def _openssl(*words: str) -> None:
    try:
        subprocess.run(["openssl", *words], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl is not installed, so there is no certificate to test with")


def make_authority(folder: Path, *, has_key_ids: bool = True) -> Certificate:
    """Make an authority that signs itself; without key identifiers it is one as EKS makes them."""
    return _make(folder, "authority", "basicConstraints=critical,CA:TRUE", has_key_ids=has_key_ids)


def issue(
    authority: Certificate, name: str, *, names: str = "IP:127.0.0.1", has_key_ids: bool = True
) -> Certificate:
    """Make a certificate for a server at these names, or for a client."""
    folder = authority.path.parent
    return _make(folder, name, f"subjectAltName={names}", signer=authority, has_key_ids=has_key_ids)


def _make(
    folder: Path, name: str, extension: str, signer: Certificate | None = None, *, has_key_ids: bool
) -> Certificate:
    made = Certificate(folder / f"{name}.crt", folder / f"{name}.key")
    words = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    words += ["-keyout", str(made.key), "-out", str(made.path), "-days", "2", "-subj", f"/CN={name}"]
    words += ["-addext", extension]
    if not has_key_ids:
        words += ["-config", os.devnull]  # the default configuration requires the issuer's
        words += ["-addext", "subjectKeyIdentifier=none", "-addext", "authorityKeyIdentifier=none"]
    if signer is not None:
        words += ["-CA", str(signer.path), "-CAkey", str(signer.key)]
        words += ["-addext", "basicConstraints=critical,CA:FALSE"]
    _openssl(*words)
    return made


def encrypt(key: Path) -> Path:
    made = key.with_suffix(".encrypted")
    _openssl("ec", "-in", str(key), "-out", str(made), "-aes256", "-passout", "pass:hidden")
    return made


def server_tls(certificate: Certificate, *, clients_of: Certificate | None = None) -> ssl.SSLContext:
    """Return a server's TLS settings; its clients may show a certificate of the authority `clients_of`."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate.path, certificate.key)
    if clients_of is not None:
        tls.load_verify_locations(clients_of.path)
        tls.verify_mode = ssl.CERT_OPTIONAL
    return tls
