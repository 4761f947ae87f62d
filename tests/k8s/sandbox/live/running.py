"""A sandbox that runs, for tests: reached only as its users reach it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import aclosing, asynccontextmanager, suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Any

import aiohttp

from k8s.client.client import Client
from k8s.jobs.port_forward import forward
from k8s.models.resources import CLAIMS, EVENTS, NAMESPACES, PODS, Resource
from k8s.text.errors import NotFound
from tests import ROOT
from tests.k8s.sandbox.calls import wording

Manifest = dict[str, Any]
PATIENCE_S = 300.0
"""Longest wait for anything, on a machine that does much else."""


def eventually(claim: Callable[[], object], within_s: float = PATIENCE_S) -> None:
    """Wait until a claim about processes or files is true, for these send no events."""
    deadline = time.monotonic() + within_s
    while not (found := claim()):
        assert time.monotonic() < deadline, f"after {within_s:g} s {wording(claim)} is still {found!r}"
        time.sleep(0.02)


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


def until_marked(mark: str, at_least: int = 1) -> None:
    """Wait until so many processes have a mark in their environment."""
    eventually(lambda: len(marked(mark)) >= at_least)


def until_unmarked(mark: str) -> None:
    """Wait until the last process with a mark has ended; a failure names those that have not."""
    left = marked(mark)
    deadline = time.monotonic() + PATIENCE_S
    while left:
        assert time.monotonic() < deadline, {pid: command_line(pid) for pid in left}
        time.sleep(0.02)
        left = marked(mark)


def command_line(pid: int) -> bytes:
    """Return the words of a process, each ended by a zero byte; empty when it has gone."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def sleepers(seconds: str) -> list[int]:
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal())
    return [pid for pid in pids if command_line(pid).endswith(f"sleep\0{seconds}\0".encode())]


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


async def until(
    client: Client,
    resource: Resource,
    namespace: str,
    claim: Callable[[dict[str, Manifest]], object],
    name: str = "",
    within_s: float = PATIENCE_S,
    shown: Callable[..., object] | None = None,
) -> dict[str, Manifest]:
    """Follow the objects of a namespace, or one of them, until a claim is true; return them by name."""
    selector = f"metadata.name={name}" if name else ""
    held: dict[str, Manifest] = {}
    with suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            while True:
                page = json.loads(
                    await client.list_page(resource, namespace, limit=0, field_selector=selector)
                )
                held = {each["metadata"]["name"]: each for each in page["items"]}
                version = page["metadata"]["resourceVersion"]
                watch = client.watch(resource, namespace, version=version, field_selector=selector)
                async with aclosing(watch) as lines:
                    while not claim(held):
                        event = json.loads(await anext(lines, b'{"type": "ERROR"}'))
                        if event["type"] == "ERROR":
                            break
                        found = event["object"]
                        if event["type"] == "DELETED":
                            held.pop(found["metadata"]["name"], None)
                        elif event["type"] != "BOOKMARK":
                            held[found["metadata"]["name"]] = found
                    else:
                        return held
    raise AssertionError(
        f"{resource.kind} {name or 'objects'} of {namespace or 'the cluster'}: after {within_s:g} s this is"
        f" not so: {wording(shown or claim)}\n{json.dumps(held)}"
    )


async def comes(
    client: Client,
    resource: Resource,
    name: str,
    claim: Callable[[Manifest], object],
    namespace: str = "default",
    within_s: float = PATIENCE_S,
) -> Manifest:
    """Wait until an object is as claimed, and return it."""

    def is_so(held: dict[str, Manifest]) -> bool:
        return name in held and bool(claim({"status": {}, **held[name]}))

    return (await until(client, resource, namespace, is_so, name, within_s, shown=claim))[name]


async def goes(
    client: Client, resource: Resource, name: str, namespace: str = "default", within_s: float = PATIENCE_S
) -> None:
    """Wait until an object is gone."""
    await until(client, resource, namespace, lambda held: name not in held, name, within_s)


async def log_of(client: Client, pod: str, namespace: str = "default", **how: Any) -> str:
    async with client.log(pod, namespace, **how) as body:
        return (await body.read()).decode()


async def run_in(client: Client, pod: str, *command: str, namespace: str = "default") -> str:
    said = b""
    async with client.exec(pod, namespace, command) as socket:
        async for message in socket:
            if message.data[:1] in (b"\x01", b"\x02"):
                said += message.data[1:]
    return said.decode()


async def leave(client: Client, namespace: str, pod: str, seconds: str) -> None:
    """Start two sleeping processes by exec that leave its session, one of them with a cleared environment."""
    first = f"setsid sh -c ': >first; exec sleep {seconds}'"
    second = f"setsid env -i sh -c ': >second; exec $0 {seconds}' $(command -v sleep)"
    wait = "until test -e first && test -e second; do sleep 0.02; done"
    await run_in(
        client, pod, "sh", "-c", f"({first} & {second} & {wait}) </dev/null 2>&1", namespace=namespace
    )
    eventually(lambda: len(sleepers(seconds)) == 2)


class Space:
    """A namespace of a test's own in a running sandbox."""

    def __init__(self, client: Client, name: str, kubeconfig: Path) -> None:
        self.client = client
        self.name = name
        """The namespace; jobs may also use it to mark their processes."""
        self.kubeconfig = kubeconfig

    @property
    def options(self) -> list[str]:
        """The options of kubectl and of the console that name this namespace."""
        return ["--kubeconfig", str(self.kubeconfig), "-n", self.name]

    async def create(self, resource: Resource, manifest: Manifest) -> Manifest:
        metadata = {**manifest["metadata"], "namespace": self.name}
        return await self.client.create(resource, {**manifest, "metadata": metadata}, self.name)

    async def get(self, resource: Resource, name: str) -> Manifest:
        return await self.client.get(resource, name, self.name)

    async def objects(self, resource: Resource, **selector: str) -> list[Manifest]:
        return await self.client.list(resource, self.name, **selector)

    async def patch(self, resource: Resource, name: str, patch: Manifest) -> Manifest:
        return await self.client.patch(resource, name, patch, self.name)

    async def delete(self, resource: Resource, name: str, **how: Any) -> None:
        await self.client.delete(resource, name, self.name, **how)

    async def comes(self, resource: Resource, name: str, claim: Callable[[Manifest], object]) -> Manifest:
        """Wait until an object is as claimed, and return it."""
        return await comes(self.client, resource, name, claim, self.name)

    async def goes(self, resource: Resource, *names: str) -> None:
        """Wait until objects are gone."""
        for name in names:
            await goes(self.client, resource, name, self.name)

    async def until(
        self, resource: Resource, claim: Callable[[dict[str, Manifest]], object]
    ) -> dict[str, Manifest]:
        """Wait until a claim about all objects, by their names, is true; return them."""
        return await until(self.client, resource, self.name, claim)

    async def log(self, pod: str, **how: Any) -> str:
        return await log_of(self.client, pod, self.name, **how)

    async def says(self, pod: str, words: str, times: int = 1) -> str:
        """Follow a pod's log until it holds some words so many times; return it up to there."""
        await self.comes(PODS, pod, phase("Running", "Succeeded", "Failed"))
        said = b""
        async with asyncio.timeout(PATIENCE_S), self.client.log(pod, self.name, follow=True) as body:
            while said.count(words.encode()) < times:
                line = await body.readline()
                assert line, f"{pod} ended without saying {words!r}: {said.decode()}"
                said += line
        return said.decode()

    async def run_in(self, pod: str, *command: str) -> str:
        return await run_in(self.client, pod, *command, namespace=self.name)

    async def events(self, name: str) -> list[Manifest]:
        return await self.objects(EVENTS, field_selector=f"involvedObject.name={name}")

    async def reasons(self, name: str) -> set[str]:
        return {event["reason"] for event in await self.events(name)}

    async def run_pod(self, manifest: Manifest) -> Manifest:
        await self.create(PODS, manifest)
        return await self.comes(PODS, manifest["metadata"]["name"], phase("Succeeded", "Failed"))

    async def claim_folder(self, name: str) -> Path:
        claim = {
            "metadata": {"name": name},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        }
        await self.create(CLAIMS, claim)
        bound = await self.comes(CLAIMS, name, phase("Bound"))
        return Path(bound["metadata"]["annotations"]["gpuconsole.dev/path"])

    async def board_pod(self, release: str) -> Manifest:
        """Wait until a job's TensorBoard has one pod, which runs."""

        def boards(held: dict[str, Manifest]) -> list[Manifest]:
            wanted = {("role", "tensorboard"), ("release", release)}
            return [each for each in held.values() if wanted <= each["metadata"]["labels"].items()]

        def runs(held: dict[str, Manifest]) -> bool:
            found = boards(held)
            return len(found) == 1 and phase("Running")(found[0])

        (found,) = boards(await self.until(PODS, runs))
        return found

    async def scalars(self, pod: str) -> dict[str, Any]:
        """Return the scalar tags that a pod's TensorBoard knows, by run, through a forwarded port."""
        async with forward(self.client, pod, self.name, 6006) as opened, aiohttp.ClientSession() as session:
            deadline = asyncio.get_running_loop().time() + PATIENCE_S
            while True:
                async with session.get(f"http://{opened.address}/data/plugin/scalars/tags") as answer:
                    found: dict[str, Any] = await answer.json()
                if found:
                    return found
                assert asyncio.get_running_loop().time() < deadline, opened.last_error
                await asyncio.sleep(0.1)

    async def run_console(self, *words: str, cwd: Path | None = None) -> tuple[int | None, str, str]:
        """Run a command of the console in this namespace; return its exit status, output and notices."""
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "tui", *self.options, *words),
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            cwd=cwd,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await child.communicate()
        return child.returncode, out.decode(), err.decode()

    async def gpuconsole(self, *words: str) -> str:
        """Run a command of the console that succeeds; return its output."""
        status, out, err = await self.run_console(*words)
        assert status == 0, err
        return out


@asynccontextmanager
async def own_space(kubeconfig: Path) -> AsyncIterator[Space]:
    """Make a new namespace in a sandbox; its pods and their processes are gone in the end."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    async with await Client.connect(str(kubeconfig), namespace=name) as client:
        space = Space(client, name, kubeconfig)
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space.name}}
        await client.create(NAMESPACES, namespace)
        try:
            yield space
        finally:
            await client.delete(NAMESPACES, space.name)
            for each in await space.objects(PODS):
                with suppress(NotFound):
                    await space.delete(PODS, each["metadata"]["name"], grace_period_s=0)
            await goes(client, NAMESPACES, space.name, "")


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
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"slotsPerWorker": slots, "runPolicy": policy, "mpiReplicaSpecs": roles},
    }


def batch_job(name: str, *command: str, policy: str = "Never", **spec: Any) -> Manifest:
    container = {"name": "main", "image": "busybox", "command": list(command)}
    return {
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
