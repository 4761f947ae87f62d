"""The real single-node cluster that lies beside the repository where there is one."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from k8s.client.client import Client
from k8s.models.resources import Resource
from tests import ROOT

FOLDER = ROOT.parent / "shared" / "cluster"  # folder of the scripts that start and stop it
NODE = "real-node-0"  # its one node, which says that it has 8 `nvidia.com/gpu`
STARTING_S = 200
BUSYBOX = {"image": "busybox:latest", "imagePullPolicy": "Never"}  # the one image that it has


ROLES = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role")
ROLE_BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")


def start() -> Path:
    """Start it unless it runs; return its administrator's kubeconfig. Skips the test where there is none."""
    if not (FOLDER / "up").exists():
        pytest.skip(f"no real cluster: {FOLDER}/up is not there")
    if os.geteuid() != 0:
        pytest.skip("no real cluster: starting one needs root")
    done = subprocess.run(
        [FOLDER / "up"],
        capture_output=True,
        text=True,
        timeout=STARTING_S,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, f"the real cluster did not start: {done.stderr[-2000:]}"
    return Path(done.stdout.splitlines()[-1])


def kill_apiserver(kubeconfig: Path) -> None:
    """Kill its API server without warning; `start` brings it back with everything that it stored.

    Removes the file with its pid too: `start` would take a zombie that is never reaped for alive.
    """
    noted = kubeconfig.parent / "run" / "apiserver.pid"
    os.kill(int(noted.read_text()), signal.SIGKILL)
    noted.unlink()


async def allow(admin: Client, verb: str, group: str, resource: str) -> None:
    """Let alice do something in the test's namespace."""
    name = f"may-{verb}-{resource.replace('/', '-')}"
    namespace = admin.config.namespace
    rule = {"apiGroups": [group], "resources": [resource], "verbs": [verb]}
    meta = {"name": name}
    await admin.create(ROLES, {"metadata": meta, "rules": [rule]}, namespace)
    role = {"apiGroup": ROLES.group, "kind": "Role", "name": name}
    subject = {"apiGroup": ROLES.group, "kind": "User", "name": "alice"}
    await admin.create(ROLE_BINDINGS, {"metadata": meta, "roleRef": role, "subjects": [subject]}, namespace)
