"""Pod that reads the volume claim of a job whose own pods are gone.

It mounts the claims of the job read-only at the same paths, sleeps, and is read by `exec`. It ends by itself
after `LIFE_S`, also when its owner was killed; ended ones are deleted by the next one and by `prune`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any
from uuid import uuid4

from k8s.client.client import Client
from k8s.jobs.transaction import with_grace
from k8s.kinds import Manifest
from k8s.kinds.parse import nested, text_of
from k8s.models.resources import PODS
from k8s.text.errors import Forbidden, KubeError, NotFound

READER_LABEL = "gpuconsole.dev/reader"
CONTAINER = "reader"
LIFE_S = 900
# Longest wait for the pod to run: its image may have to be pulled.
START_S = 300.0
_COPIED = ("imagePullSecrets", "nodeSelector", "securityContext", "tolerations")


def reader_manifest(
    job: str, namespace: str, template: Mapping[str, Any], image: str = "", container: str = ""
) -> Manifest:
    """Return the pod that reads the claims of a job.

    Args:
        job: Name of the job.
        namespace: Namespace of the job.
        template: Template of the pod that wrote the files.
        image: Image with a shell and `find`; empty for that of the job.
        container: Container of the template whose image is used; empty for the first.

    Raises:
        KubeError: No claim is mounted.
    """
    spec = nested(template, "spec")
    claims = [each for each in spec.get("volumes") or () if each.get("persistentVolumeClaim")]
    names = {each.get("name") for each in claims}
    containers = sorted(spec.get("containers") or (), key=lambda each: each.get("name") != container)
    every = [each for found in containers for each in found.get("volumeMounts") or ()]
    mounts = list({each.get("mountPath"): each for each in reversed(every)}.values())
    mounts = [each for each in mounts if each.get("name") in names and not each.get("subPathExpr")]
    if not containers or not mounts:
        raise KubeError(f"There is no volume of {job} to read.", "Its pods mount no volume claim.")
    used = {each["name"] for each in mounts}
    body: Manifest = {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": LIFE_S,
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "containers": [
            {
                "name": CONTAINER,
                "image": image or containers[0].get("image"),
                "imagePullPolicy": "IfNotPresent",
                "command": ["sh", "-c", f"sleep {LIFE_S}"],
                "resources": {
                    "requests": {"cpu": "10m", "memory": "64Mi"},
                    "limits": {"cpu": "500m", "memory": "256Mi"},
                },
                "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                "volumeMounts": [{**each, "readOnly": True} for each in mounts],
            }
        ],
        "volumes": [each for each in claims if each["name"] in used],
        **{key: spec[key] for key in _COPIED if spec.get(key)},
    }
    meta = {
        "name": f"{job[:40].rstrip('.-')}-reader-{uuid4().hex[:5]}",
        "namespace": namespace,
        "labels": {READER_LABEL: "true", "app.kubernetes.io/managed-by": "gpuconsole"},
        "annotations": {"sidecar.istio.io/inject": "false"},
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": body}


@asynccontextmanager
async def running_reader(client: Client, manifest: Manifest) -> AsyncIterator[str]:
    """Create a reader pod, wait until it runs, yield its name, and delete it.

    Raises:
        KubeError: It could not be created, or does not start.
    """
    name, namespace = text_of(manifest["metadata"]["name"]), text_of(manifest["metadata"]["namespace"])
    with suppress(KubeError):
        await delete_ended_readers(client, namespace)
    try:
        await with_grace(client.create(PODS, manifest, namespace))
        hint = "Check that the volume can be attached and the image can be pulled, or name another image."
        await until_running(client, name, namespace, "Could not read the volume.", hint)
        yield name
    finally:
        with suppress(KubeError):  # it ends by itself
            await asyncio.shield(client.delete(PODS, name, namespace, grace_period_s=0))


async def until_running(client: Client, name: str, namespace: str, what: str, hint: str) -> None:
    """Wait until a temporary pod runs; `what` failed otherwise, and `hint` is what to check.

    Raises:
        KubeError: It has ended, or does not start within `START_S`.
    """
    phase = why = ""
    try:
        async with asyncio.timeout(START_S):
            while phase != "Running":
                pod = await client.get(PODS, name, namespace)
                phase, why = text_of(nested(pod, "status").get("phase")), _waiting_reason(pod)
                if phase in ("Failed", "Succeeded"):
                    raise KubeError(what, f"Pod {name} has ended: {phase}.")
                await asyncio.sleep(0.2)
    except TimeoutError as error:
        why = f"Pod {name} does not start within {START_S:.0f} s: {why or phase or 'Unknown'}."
        raise KubeError(what, why, hint) from error


def _waiting_reason(pod: Mapping[str, Any]) -> str:
    status = nested(pod, "status")
    states = [nested(each, "state", "waiting") for each in status.get("containerStatuses") or ()]
    blocked = [each for each in status.get("conditions") or () if each.get("status") == "False"]
    return next(
        (text_of(each.get("message") or each.get("reason")) for each in (*states, *blocked) if each), ""
    )


async def delete_ended_readers(client: Client, namespace: str = "") -> list[str]:
    """Delete reader pods that have ended, as those of a console that was killed; return their names.

    Raises:
        KubeError: Pods cannot be listed.
    """
    deleted = []
    for pod in await client.list(PODS, namespace, label_selector=f"{READER_LABEL}=true"):
        meta, phase = nested(pod, "metadata"), nested(pod, "status").get("phase")
        # The server has selected them, but nothing else may ever be deleted here.
        if phase in ("Failed", "Succeeded") and READER_LABEL in nested(meta, "labels"):
            name = text_of(meta.get("name"))
            with suppress(Forbidden, NotFound):
                await client.delete(PODS, name, text_of(meta.get("namespace")), uid=text_of(meta.get("uid")))
                deleted.append(name)
    return deleted
