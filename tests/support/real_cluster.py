"""The real single-node cluster that lies beside the repository where there is one."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from k8s.client.client import Client
from k8s.kinds import CREATABLE
from k8s.models.resources import CLAIMS, CONFIG_MAPS, DEPLOYMENTS, QUOTAS, SECRETS, SERVICES, Resource
from tests import ROOT

FOLDER = ROOT.parent / "shared" / "cluster"  # folder of the scripts that start and stop it
NODE = "real-node-0"  # its one node, which says that it has 8 `nvidia.com/gpu`
STARTING_S = 200
BUSYBOX = {"image": "busybox:latest", "imagePullPolicy": "Never"}  # the one image that it has

# The job kinds that it has; of MPIJobs the newest version only, as one CRD name has one place.
SERVED = tuple(kind for kind in CREATABLE if kind.title in ("PyTorchJob", "MPIJob", "TrainJob", "Job"))
every_served_kind = pytest.mark.parametrize("kind", SERVED, ids=lambda kind: kind.title)
_MADE = (*(kind.resource for kind in SERVED), CONFIG_MAPS, SECRETS, SERVICES, DEPLOYMENTS, CLAIMS)
_OF_EVERY_NAMESPACE = ("kube-root-ca.crt", "default-token-")
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


def kill(kubeconfig: Path, name: str) -> None:
    """Kill its `apiserver` or `kubelet` without warning; `start` brings it back, and containers run on.

    Removes the file with its pid too: `start` would take a zombie that is never reaped for alive.
    """
    noted = kubeconfig.parent / "run" / f"{name}.pid"
    os.kill(int(noted.read_text()), signal.SIGKILL)
    noted.unlink()


async def allow(admin: Client, verb: str, group: str, resource: str) -> None:
    name = f"may-{verb}-{resource.replace('/', '-')}"
    namespace = admin.config.namespace
    rule = {"apiGroups": [group], "resources": [resource], "verbs": [verb]}
    meta = {"name": name}
    await admin.create(ROLES, {"metadata": meta, "rules": [rule]}, namespace)
    role = {"apiGroup": ROLES.group, "kind": "Role", "name": name}
    subject = {"apiGroup": ROLES.group, "kind": "User", "name": "alice"}
    await admin.create(ROLE_BINDINGS, {"metadata": meta, "roleRef": role, "subjects": [subject]}, namespace)


async def made_objects(client: Client) -> set[str]:
    """Return the names of the objects in the client's namespace, as `configmaps/bert-code`."""
    found = await asyncio.gather(*(client.list(each, client.config.namespace) for each in _MADE))
    return {
        f"{resource.plural}/{obj['metadata']['name']}"
        for resource, objects in zip(_MADE, found, strict=True)
        for obj in objects
        if not obj["metadata"]["name"].startswith(_OF_EVERY_NAMESPACE)
    }


async def make_quota(client: Client, name: str, hard: dict[str, str]) -> None:
    """Create a quota, and wait until its controller has counted: until then it refuses every pod."""
    namespace = client.config.namespace
    await client.create(QUOTAS, {"metadata": {"name": name}, "spec": {"hard": hard}}, namespace)
    async with asyncio.timeout(STARTING_S):
        while "hard" not in (await client.get(QUOTAS, name, namespace)).get("status", {}):
            await asyncio.sleep(0.1)


def is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod["status"].get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def acting_as(kubeconfig: Path, folder: Path, **user: object) -> str:
    """Write the administrator's kubeconfig with changes of its user, as `as`; return its path."""
    config = yaml.safe_load(kubeconfig.read_text())
    config["users"][0]["user"].update(user)
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return str(path)


async def console(kubeconfig: str, *words: str) -> tuple[int, str, str]:
    """Run a one-shot command as a user would; return its exit status, output and errors."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "tui", *words),
        env={**os.environ, "PYTHONPATH": str(ROOT), "KUBECONFIG": kubeconfig},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await child.communicate()
    return child.returncode or 0, out.decode(), err.decode()
