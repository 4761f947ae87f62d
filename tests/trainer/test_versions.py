"""The versions that a benchmark says: asked of a scripted API server, and read as drivers write them."""

import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="training needs torch, which gpuconsole[trainer] brings")

from trainer.benchmark.report import driver_version, kubernetes_version, versions_line


class _Answer(BaseHTTPRequestHandler):
    status, body = 200, b"{}"
    asked: list[tuple[str, str]]

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers.get("Authorization", "")))
        self.send_response(self.status)
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as a pod's service account is mounted, with the key of the server beside it."""
    folder = tmp_path_factory.mktemp("account")
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-keyout", "key.pem", "-out", "ca.crt", "-days", "2", "-subj", "/CN=api",
            "-addext", "subjectAltName=IP:127.0.0.1",
        ],
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip
    (folder / "token").write_text("a-token\n")
    return folder


@contextmanager
def api_server(account: Path, body: bytes, status: int = 200) -> Iterator[tuple[int, list[tuple[str, str]]]]:
    """Serve one answer over TLS; yields the port, and what was asked with which credentials."""
    asked: list[tuple[str, str]] = []
    handler = type("Answer", (_Answer,), {"status": status, "body": body, "asked": asked})
    server = HTTPServer(("127.0.0.1", 0), handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(account / "ca.crt", account / "key.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_port, asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("body", "status", "version"),
    [
        (b'{"major": "1", "gitVersion": "v1.28.3-aliyun.1"}', 200, "1.28.3-aliyun.1"),
        (b'{"gitVersion": "\\u001b[31m"}', 200, "unknown"),
        (b"{}", 200, "unknown"),
        (b"[]", 200, "unknown"),
        (b"not json", 200, "unknown"),
        (b"\xff", 200, "unknown"),
        (b'{"kind": "Status"}', 403, "unknown"),
    ],
)
def test_the_kubernetes_version_is_read_from_the_api_server_of_the_pod(
    account: Path, body: bytes, status: int, version: str
) -> None:
    with api_server(account, body, status) as (port, asked):
        env = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(port)}
        assert kubernetes_version(env, account) == version
    assert asked == [("/version", "Bearer a-token")]


def test_an_api_server_without_a_trusted_certificate_gets_no_request(account: Path, tmp_path: Path) -> None:
    with api_server(account, b'{"gitVersion": "v1.28.3"}') as (port, asked):
        env = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(port)}
        assert kubernetes_version(env, tmp_path) == "unknown"
        (tmp_path / "ca.crt").write_text("no certificate")
        assert kubernetes_version(env, tmp_path) == "unknown"
        assert kubernetes_version(env | {"KUBERNETES_SERVICE_PORT": "x"}, account) == "unknown"
    assert asked == []
    assert kubernetes_version({}, tmp_path / "none") == ""


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  418.87.01  Wed Sep 25 06:00:38 UTC 2019\n"
         "GCC version:  gcc version 7.4.0 (Ubuntu 7.4.0-1ubuntu1~18.04.1)\n", "418.87.01"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  555.42.02  Release Build", "555.42.02"),
        ("something else", "unknown"),
    ],
)  # fmt: skip
def test_the_driver_is_read_from_its_kernel_module(tmp_path: Path, text: str, version: str) -> None:
    (tmp_path / "version").write_text(text)
    assert driver_version(tmp_path / "version") == version


@pytest.mark.parametrize(
    ("script", "version"),
    [
        ("echo 550.54.15; echo 550.54.15", "550.54.15"),
        ("echo NVIDIA-SMI has failed; exit 9", "unknown"),
        ("exit 0", "unknown"),
        (None, ""),
    ],
)
def test_without_the_kernel_module_file_the_driver_version_comes_from_nvidia_smi(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str | None, version: str
) -> None:
    if script is not None:
        program = tmp_path / "nvidia-smi"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert driver_version(tmp_path / "none") == version


def test_missing_and_unknown_versions_are_shown_as_such() -> None:
    libraries = {"CUDA": "12.4", "NCCL": "2.21.5", "torch": "2.6"}
    assert versions_line({"Kubernetes": "unknown", "NVIDIA driver": "", **libraries}) == (
        "Versions: Kubernetes unknown, no NVIDIA driver, CUDA 12.4, NCCL 2.21.5, torch 2.6"
    )
