"""Completion in a real shell, with the names of a real cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from k8s.client.client import Client
from k8s.models.resources import JOBS, NODES
from tests import ROOT

pytestmark = pytest.mark.cluster

JOB = {
    "metadata": {"name": "ours"},
    "spec": {
        "suspend": True,
        "template": {
            "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}
        },
    },
}


async def test_bash_completes_the_jobs_nodes_and_namespaces(
    admin: Client, kubeconfig: Path, tmp_path: Path
) -> None:
    namespace = admin.config.namespace
    await admin.create(JOBS, JOB, namespace)
    binary = tmp_path / "gpuconsole"
    binary.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -P -m tui "$@"\n')
    binary.chmod(0o755)
    env = {
        **os.environ,
        **{f"XDG_{name}_HOME": str(tmp_path / name) for name in ("STATE", "CONFIG", "DATA", "CACHE")},
        "HOME": str(tmp_path),
        "KUBECONFIG": str(kubeconfig),
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
    }
    script = f"""
    source <(gpuconsole completion bash)
    gpuconsole -n {namespace} completion --refresh
    try() {{ COMP_LINE="gpuconsole -n $*"; COMP_POINT=${{#COMP_LINE}}; _python_argcomplete gpuconsole
        echo "${{COMPREPLY[*]}}"; }}
    try {namespace} logs ' '
    try {namespace[:9]}
    try {namespace} describe node ' '
    """
    known = [node["metadata"]["name"] for node in await admin.list(NODES)]
    done = subprocess.run(
        ["bash", "--norc", "-c", script], env=env, capture_output=True, text=True, check=True, timeout=60
    )
    jobs, namespaces, nodes = (line.split() for line in done.stdout.splitlines())
    assert "ours" in jobs and namespace in namespaces and known[0] in nodes, done.stdout + done.stderr
