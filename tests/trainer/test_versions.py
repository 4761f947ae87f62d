"""Versions that a benchmark prints: requested from a scripted API server, and read as drivers write them."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="training needs torch, which gpuconsole[trainer] brings")

from tests.scripted.certificates import Certificate, issue, make_authority, server_tls
from tests.scripted.server import Answer, ScriptedCluster
from trainer.benchmark.report import driver_version, kubernetes_version, versions_line


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as a pod's service account is mounted, with the server's certificate beside it."""
    folder = tmp_path_factory.mktemp("account")
    authority = make_authority(folder)
    issue(authority, "api")
    authority.path.rename(folder / "ca.crt")
    (folder / "token").write_text("a-token\n")
    return folder


def api_server(account: Path, body: bytes, status: int = 200) -> ScriptedCluster:
    cluster = ScriptedCluster(server_tls(Certificate(account / "api.crt", account / "api.key")))
    cluster.say("/version", Answer(body, status))
    return cluster


async def version_of(cluster: ScriptedCluster, account: Path, **env: str) -> str:
    """Return the version that a pod with this service account finds."""
    host, port = cluster.host.removeprefix("https://").split(":")
    given: Mapping[str, str] = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port, **env}
    return await asyncio.to_thread(kubernetes_version, given, account)


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
async def test_the_kubernetes_version_is_read_from_the_api_server_of_the_pod(
    account: Path, body: bytes, status: int, version: str
) -> None:
    async with api_server(account, body, status) as cluster:
        assert await version_of(cluster, account) == version
    assert [(each.path, each.headers["Authorization"]) for each in cluster.requests] == [
        ("/version", "Bearer a-token")
    ]


async def test_an_api_server_without_a_trusted_certificate_gets_no_request(
    account: Path, tmp_path: Path
) -> None:
    async with api_server(account, b'{"gitVersion": "v1.28.3"}') as cluster:
        assert await version_of(cluster, tmp_path) == "unknown"
        (tmp_path / "ca.crt").write_text("no certificate")
        assert await version_of(cluster, tmp_path) == "unknown"
        assert await version_of(cluster, account, KUBERNETES_SERVICE_PORT="x") == "unknown"
    assert cluster.requests == []
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
