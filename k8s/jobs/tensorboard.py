"""Find a job's TensorBoard: the pod and the port to forward to.

Arena creates a Deployment and a Service for the job, labelled role=tensorboard and release=JOB
(arena v0.15.5); other platforms name theirs after the job; and a job's own pod may serve one on a
declared port 6006.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from k8s.client.client import Client
from k8s.kinds.parse import nested, text_of
from k8s.models.resources import NODES, PODS, SERVICES
from k8s.snapshot import Job
from k8s.text.errors import Forbidden, NotFound

PORT = 6006
WORD = "tensorboard"
# Limit of a job's own pods to look at, its chief first.
_PODS_ASKED = 4

Manifest = Mapping[str, Any]
Listed = Awaitable[list[dict[str, Any]]]


class PodPort(msgspec.Struct, frozen=True):
    """Port of a pod."""

    namespace: str
    pod: str
    port: int


async def find_tensorboard(client: Client, job: Job, listed: Listed | None = None) -> PodPort:
    """Return the port at which a job's TensorBoard can be reached; `listed` is the answer of `services_of`.

    Raises:
        NotFound: No TensorBoard is found, or none is running.
        KubeError: A request failed.
    """
    namespace, name = job.ref.namespace, job.ref.name
    seen = ""
    instances = sorted(job.instances, key=lambda each: not each.is_chief)[:_PODS_ASKED]
    listed = listed or services_of(client, job)
    services, ports = await asyncio.gather(
        listed, asyncio.gather(*(_own_port(client, each.pod, namespace) for each in instances))
    )
    for service in services:
        seen = text_of(_at(service, "metadata").get("name"))
        for pod in await _pods_behind(client, service, namespace):
            if port := _target_port(_service_port(service), pod):
                return PodPort(namespace, text_of(_at(pod, "metadata").get("name")), port)
    for instance, port in zip(instances, ports, strict=True):
        if port:
            return PodPort(namespace, instance.pod, port)
    if seen:
        raise NotFound(
            f"The TensorBoard of {name} is not running.", f"No pod behind the Service {seen} is ready."
        )
    raise NotFound(
        f"No TensorBoard found for {name}.",
        f"No Service in its namespace is labelled role={WORD}, and none of its pods has port {PORT}.",
        "Curves are drawn without one; or forward a port of one of its pods.",
    )


async def tensorboard_proxy(client: Client, job: Job) -> str:
    """Return the path of a job's TensorBoard below the API server: through its Service, or its own pod.

    Raises:
        NotFound: The job has none.
        KubeError: A request failed.
    """
    namespace = job.ref.namespace
    for service in await services_of(client, job):
        name = text_of(_at(service, "metadata").get("name"))
        port = _service_port(service).get("port")
        return f"{SERVICES.path(namespace)}/{name}{f':{port}' if port else ''}/proxy"
    place = await find_tensorboard(client, job)
    return f"{PODS.path(namespace)}/{place.pod}:{place.port}/proxy"


async def services_of(client: Client, job: Job) -> list[dict[str, Any]]:
    """Return the Services of a job's TensorBoards, Arena's first; empty if they may not be listed."""
    services: list[dict[str, Any]] = []
    with suppress(Forbidden):
        services = await client.list(SERVICES, job.ref.namespace)
    found = [each for each in services if _serves_tensorboard(each, job.ref.name)]
    return sorted(found, key=lambda each: not _is_of_arena(each, job.ref.name))


async def find_tensorboard_url(client: Client, job: Job, listed: Listed) -> str | None:
    """Return the address of the TensorBoard that Arena started for a job; None without one.

    Its Service is a LoadBalancer, or a NodePort reached at the first ready node.
    """
    with suppress(Forbidden, NotFound):
        for service in (each for each in await listed if _is_of_arena(each, job.ref.name)):
            port = next(iter(_dicts(_at(service, "spec").get("ports"))), {})
            for each in _dicts(_at(service, "status", "loadBalancer").get("ingress")):
                if host := each.get("ip") or each.get("hostname"):
                    return f"http://{host}:{port.get('port')}"
            if port.get("nodePort") and (host := _first_ready(await client.list(NODES))):
                return f"http://{host}:{port['nodePort']}"
    return None


def _first_ready(nodes: Iterable[Manifest]) -> str:
    for node in filter(_is_ready, nodes):
        for address in _dicts(_at(node, "status").get("addresses")):
            if address.get("type") == "InternalIP":
                return text_of(address.get("address"))
    return ""


def _is_of_arena(service: Manifest, job_name: str) -> bool:
    return {"role": WORD, "release": job_name}.items() <= _at(service, "metadata", "labels").items()


def _serves_tensorboard(service: Manifest, job_name: str) -> bool:
    name = text_of(_at(service, "metadata").get("name"))
    is_named_so = job_name in name and name.replace(job_name, "", 1).strip("-") == WORD
    return is_named_so or _is_of_arena(service, job_name)


def _service_port(service: Manifest) -> Manifest:
    # By name, else by number, else the first.
    ports = _dicts(_at(service, "spec").get("ports"))

    def likeness(port: Manifest) -> bool:
        return WORD not in str(port.get("name")) and PORT not in (port.get("port"), port.get("targetPort"))

    return min(ports, key=likeness, default={})


async def _pods_behind(client: Client, service: Manifest, namespace: str) -> list[Manifest]:
    selector = _at(service, "spec", "selector")
    if not selector:
        return []
    chosen = ",".join(f"{key}={value}" for key, value in selector.items())
    return [pod for pod in await client.list(PODS, namespace, label_selector=chosen) if _is_ready(pod)]


def _is_ready(obj: Manifest) -> bool:
    # A pod or a node.
    conditions = _dicts(_at(obj, "status").get("conditions"))
    is_leaving = bool(_at(obj, "metadata").get("deletionTimestamp"))
    ready = {"type": "Ready", "status": "True"}.items()
    return not is_leaving and any(ready <= each.items() for each in conditions)


def _target_port(service_port: Manifest, pod: Manifest) -> int:
    # 0 if the pod has no port of that name.
    target = service_port.get("targetPort") or service_port.get("port") or 0
    if isinstance(target, int):
        return target
    return next((number for name, number in _ports(pod) if name == target), 0)


async def _own_port(client: Client, name: str, namespace: str) -> int:
    # 0 without one.
    pod: Manifest = {}
    with suppress(NotFound, Forbidden):
        pod = await client.get(PODS, name, namespace) if name else {}
    if _at(pod, "status").get("phase") != "Running":
        return 0
    return next((number for name, number in _ports(pod) if number == PORT or WORD in name), 0)


def _ports(pod: Manifest) -> Iterator[tuple[str, int]]:
    for container in _dicts(_at(pod, "spec").get("containers")):
        for port in _dicts(container.get("ports")):
            if isinstance(number := port.get("containerPort"), int):
                yield text_of(port.get("name")), number


def _at(obj: object, *names: str) -> Manifest:
    # Empty for a malformed object too: no other Service or pod shall suffer from it.
    try:
        return nested(obj, *names) if isinstance(obj, dict) else {}
    except TypeError:
        return {}


def _dicts(found: object) -> Iterable[Manifest]:
    return (each for each in found if isinstance(each, dict)) if isinstance(found, list) else ()
