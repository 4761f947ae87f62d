"""A sandbox that runs, for tests: reached only as its users reach it."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Any

import aiohttp

from k8s.client.client import Client
from k8s.errors import NotFound
from k8s.jobs.port_forward import forward
from k8s.models.resources import CLAIMS, PODS, Resource

Manifest = dict[str, Any]
PATIENCE_S, TENSORBOARD_S = 20.0, 90.0


def eventually(claim: Callable[[], object], within_s: float = PATIENCE_S) -> None:
    """Wait until a claim is true; fail when it does not become so."""
    deadline = time.monotonic() + within_s
    while not claim():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.01)


def marked(mark: str) -> list[int]:
    """Return the processes whose environment holds a mark."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                if mark.encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def listening_sockets(pids: Collection[int]) -> list[tuple[IPv4Address | IPv6Address, int]]:
    """Return address and port of each socket on which processes listen for TCP."""
    found: dict[str, tuple[IPv4Address | IPv6Address, int]] = {}
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            text, _, port = fields[1].partition(":")
            words = bytes.fromhex(text)
            # Each 32 bits are in this machine's order.
            packed = b"".join(
                words[at : at + 4][:: -1 if sys.byteorder == "little" else 1]
                for at in range(0, len(words), 4)
            )
            address = ip_address(packed)
            mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
            if fields[3] == "0A":
                found[f"socket:[{fields[9]}]"] = (mapped or address, int(port, 16))
    held = set()
    for pid in pids:
        with suppress(OSError):
            for descriptor in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    held.add(os.readlink(descriptor))
    return [place for socket, place in found.items() if socket in held]


async def comes(
    client: Client,
    resource: Resource,
    name: str,
    claim: Callable[[Manifest], object],
    namespace: str = "default",
    within_s: float = PATIENCE_S,
) -> Manifest:
    """Wait until an object is as claimed, and return it."""
    deadline = asyncio.get_running_loop().time() + within_s
    while True:
        try:
            found = await client.get(resource, name, namespace)
        except NotFound:
            found = {}
        if found and claim(found):
            return found
        assert asyncio.get_running_loop().time() < deadline, found
        await asyncio.sleep(0.03)


async def goes(
    client: Client, resource: Resource, name: str, namespace: str = "default", within_s: float = PATIENCE_S
) -> None:
    """Wait until an object is gone."""
    deadline = asyncio.get_running_loop().time() + within_s
    while True:
        try:
            found = await client.get(resource, name, namespace)
        except NotFound:
            return
        assert asyncio.get_running_loop().time() < deadline, found
        await asyncio.sleep(0.03)


async def log_of(client: Client, pod: str, namespace: str = "default", **how: Any) -> str:
    """Return a pod's log."""
    async with client.log(pod, namespace, **how) as body:
        return (await body.read()).decode()


def has(condition: str) -> Callable[[Manifest], bool]:
    """Return the claim that a condition of an object is true."""
    return lambda obj: conditions(obj).get(condition) == "True"


def conditions(obj: Manifest) -> dict[str, str]:
    """Return an object's conditions and whether they are true."""
    return {each["type"]: each["status"] for each in (obj.get("status") or {}).get("conditions") or ()}


def phase(*names: str) -> Callable[[Manifest], bool]:
    """Return the claim that a pod is in one of these phases."""
    return lambda pod: pod["status"].get("phase") in names


def pod(name: str, *command: str, gpus: int = 0, **spec: Any) -> Manifest:
    """Return a bare pod with one container; `container` adds to that."""
    container: Manifest = {"name": "main", "image": "busybox", "command": list(command)}
    container |= spec.pop("container", {})
    if gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"restartPolicy": "Never", "containers": [container], **spec},
    }


def pytorch_job(
    name: str,
    *command: str,
    workers: int = 1,
    gpus: int = 0,
    restart: str = "Never",
    env: dict[str, str] | None = None,
    **policy: Any,
) -> Manifest:
    """Return a job of one master and `workers` workers that all run the same command."""
    container: Manifest = {"name": "pytorch", "image": "busybox", "command": list(command)}
    container["env"] = [{"name": key, "value": value} for key, value in (env or {}).items()]
    if gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}
    template = {"spec": {"containers": [container], "terminationGracePeriodSeconds": 2}}
    roles: Manifest = {"Master": {"replicas": 1, "restartPolicy": restart, "template": template}}
    if workers:
        roles["Worker"] = {"replicas": workers, "restartPolicy": restart, "template": template}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"nprocPerNode": "1", "runPolicy": policy, "pytorchReplicaSpecs": roles},
    }


def mpi_job(
    name: str,
    *command: str,
    workers: int = 2,
    slots: int = 2,
    gpus: int = 0,
    restart: str = "Never",
    **policy: Any,
) -> Manifest:
    """Return an MPIJob v2beta1 of a launcher that runs a command, and workers that wait for it."""
    worker: Manifest = {"name": "mpi", "image": "busybox"}
    if gpus:
        worker["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}
    launcher = {"name": "mpi", "image": "busybox", "command": list(command)}

    def role(replicas: int, container: Manifest, policy: str) -> Manifest:
        spec = {"containers": [container], "terminationGracePeriodSeconds": 2}
        return {"replicas": replicas, "restartPolicy": policy, "template": {"spec": spec}}

    roles = {"Launcher": role(1, launcher, restart), "Worker": role(workers, worker, "Never")}
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"slotsPerWorker": slots, "runPolicy": policy, "mpiReplicaSpecs": roles},
    }


def batch_job(name: str, *command: str, policy: str = "Never", **spec: Any) -> Manifest:
    """Return a Job whose pods run a command."""
    container = {"name": "main", "image": "busybox", "command": list(command)}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "template": {
                "spec": {
                    "restartPolicy": policy,
                    "containers": [container],
                    "terminationGracePeriodSeconds": 5,
                }
            },
            **spec,
        },
    }


async def create_pod(client: Client, manifest: Manifest) -> Manifest:
    """Create a pod and wait until it has ended."""
    await client.create(PODS, manifest, "default")
    return await comes(client, PODS, manifest["metadata"]["name"], phase("Succeeded", "Failed"))


async def claim_folder(client: Client, name: str) -> Path:
    """Create a claim, and return the folder that stands for it."""
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    await client.create(CLAIMS, claim, "default")
    bound = await comes(client, CLAIMS, name, phase("Bound"))
    return Path(bound["metadata"]["annotations"]["gpuconsole.dev/path"])


async def the_pod(client: Client, release: str, *phases: str) -> Manifest:
    """Wait until a job's TensorBoard has one pod, in one of these phases."""
    deadline = asyncio.get_running_loop().time() + TENSORBOARD_S
    while True:
        pods = await client.list(PODS, "default", label_selector=f"role=tensorboard,release={release}")
        if len(pods) == 1 and pods[0]["status"].get("phase") in phases:
            return pods[0]
        assert asyncio.get_running_loop().time() < deadline, pods
        await asyncio.sleep(0.05)


async def scalars(client: Client, pod: str) -> dict[str, Any]:
    """Return the scalar tags that a pod's TensorBoard knows, by run, through a forwarded port."""
    async with forward(client, pod, "default", 6006) as opened, aiohttp.ClientSession() as session:
        deadline = asyncio.get_running_loop().time() + TENSORBOARD_S
        while True:
            async with session.get(f"http://{opened.address}/data/plugin/scalars/tags") as answer:
                found: dict[str, Any] = await answer.json()
            if found:
                return found
            assert asyncio.get_running_loop().time() < deadline, opened.last_error
            await asyncio.sleep(0.1)
