"""Send code that is too large for a ConfigMap into a volume of the job, through a temporary pod."""

from __future__ import annotations

import asyncio
import hashlib
import posixpath
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any
from uuid import uuid4

from k8s.client.client import Client
from k8s.jobs.exec import STDERR, start
from k8s.jobs.reader_pod import until_running
from k8s.jobs.transaction import with_grace
from k8s.kinds import Manifest
from k8s.kinds.job_spec import JobFiles, JobSpec, Mount
from k8s.kinds.parse import text_of
from k8s.kinds.pod_code import HOME, code_folder
from k8s.models.resources import PODS
from k8s.text.errors import KubeError, NotFound

# Folder of a volume with the code of jobs.
ROOT = ".gpuconsole/code"
Progress = Callable[[int, int], None]
"""Called with the bytes sent and the total."""
_LIFE_S = 3600
_PIECE_BYTES = 64 * 2**10
_MOUNT = "/upload"
_UNPACK = (
    'rm -rf "$1.new" && mkdir -p "$1.new" && head -c "$2" | tar xzf - -C "$1.new" '
    '&& rm -rf "$1" && mv "$1.new" "$1"'
)


def upload_mount(spec: JobSpec) -> Mount | None:
    """Return the first writable volume of a job, which takes its code; None without one."""
    return next((mount for mount in spec.mounts if not mount.is_read_only), None)


def uploaded(spec: JobSpec, files: JobFiles) -> JobSpec:
    """Return the spec of a job with its code mounted from a volume."""
    mount = upload_mount(spec)
    assert mount is not None
    folder = posixpath.join(mount.sub_path, code_path(spec, files))
    return replace(
        spec,
        sync_mode="",
        sync_source="",
        sync_image="",
        working_dir=spec.working_dir or HOME,
        mounts=(*spec.mounts, Mount(mount.claim, code_folder(spec), folder)),
    )


def code_path(spec: JobSpec, files: JobFiles) -> str:
    """Return the folder below the mount; equal code of one job shares a folder."""
    return f"{ROOT}/{spec.name}-{hashlib.sha256(files.code).hexdigest()[:12]}"


async def upload_code(
    client: Client, spec: JobSpec, files: JobFiles, on_progress: Progress = lambda sent, total: None
) -> None:
    """Unpack the code into the volume.

    Raises:
        KubeError: The pod did not start, or could not unpack.
    """
    mount = upload_mount(spec)
    assert mount is not None
    on_progress(0, len(files.code))
    pod = _pod(spec, mount)
    name = text_of(pod["metadata"]["name"])
    try:
        made = await with_grace(client.create(PODS, pod, spec.namespace))
    except asyncio.CancelledError:
        with suppress(KubeError):  # it ends by itself
            await asyncio.shield(_remove(client, name, spec.namespace, ""))
        raise
    name, uid = text_of(made["metadata"]["name"]), text_of(made["metadata"].get("uid"))
    try:
        hint = "Check that the volume is bound and the image can be pulled."
        await until_running(client, name, spec.namespace, "Could not send the code into the volume.", hint)
        await _send(client, name, spec, files, on_progress)
    finally:
        await asyncio.shield(_remove(client, name, spec.namespace, uid))


def _pod(spec: JobSpec, mount: Mount) -> Manifest:
    at = {"name": "code", "mountPath": _MOUNT, **({"subPath": mount.sub_path} if mount.sub_path else {})}
    container: dict[str, Any] = {
        "name": "upload",
        "image": spec.sync_image or spec.image,
        "command": ["sh", "-c", f"sleep {_LIFE_S}"],
        "volumeMounts": [at],
    }
    if spec.pull_policy:
        container["imagePullPolicy"] = spec.pull_policy
    pod: Manifest = {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": _LIFE_S,
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
        "volumes": [{"name": "code", "persistentVolumeClaim": {"claimName": mount.claim}}],
        "imagePullSecrets": [{"name": name} for name in spec.pull_secrets],
    }
    meta = {"name": f"{spec.name}-upload-{uuid4().hex[:5]}", "namespace": spec.namespace}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": pod}


async def _send(client: Client, pod: str, spec: JobSpec, files: JobFiles, on_progress: Progress) -> None:
    code = files.code
    words = ("sh", "-c", _UNPACK, "sh", f"{_MOUNT}/{code_path(spec, files)}", str(len(code)))
    errors = b""
    async with start(client, pod, spec.namespace, words, container="upload") as session:

        async def feed() -> None:
            for offset in range(0, len(code), _PIECE_BYTES):
                await session.write(code[offset : offset + _PIECE_BYTES])
                on_progress(min(offset + _PIECE_BYTES, len(code)), len(code))
            await session.end_input()

        feeding = asyncio.create_task(feed())
        try:
            async for channel, content in session.output():
                errors = (errors + content)[-500:] if channel == STDERR else errors
        finally:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)
    if session.exit_code:
        why = errors.decode("utf-8", "replace").strip() or f"tar ended with {session.exit_code}."
        raise KubeError("Could not unpack the code in the volume.", why)


async def _remove(client: Client, name: str, namespace: str, uid: str) -> None:
    try:
        await client.delete(PODS, name, namespace, grace_period_s=0, uid=uid)
    except NotFound:
        return
