"""Create several objects as one: each exactly once even if answers get lost, or none of them.

Every object carries the id of its submission, so that an object whose answer was lost is told
apart from one created by others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from uuid import uuid4

from k8s.client.client import Client
from k8s.kinds import JobRef, Manifest, kind_of
from k8s.kinds.job_spec import SUBMISSION_ANNOTATION
from k8s.kinds.parse import nested, text_of
from k8s.models.resources import CLAIMS, PODS, Resource
from k8s.text.errors import Conflict, KubeError, NotFound, ServerFailed, Unreachable

T = TypeVar("T")

# Sends of an object whose answer gets lost.
ATTEMPTS = 2
# Time for a cancelled request to be answered.
GRACE_S = 1.0
_WAITS_S = (0.0, 0.2, 1.0)
# An object without owner that is younger may belong to a submission in progress.
_UNDER_WAY = timedelta(minutes=2)


async def with_grace(request: Coroutine[Any, Any, T]) -> T:
    """Await a request; if cancelled, wait up to `GRACE_S` for its answer first."""
    # A server finishes what it has begun: if asked at once, it would not have the object yet.
    sending = asyncio.create_task(request)
    try:
        return await asyncio.shield(sending)
    except asyncio.CancelledError:
        await asyncio.wait([sending], timeout=GRACE_S)
        raise
    finally:
        sending.cancel()
        if sending.done() and not sending.cancelled():
            sending.exception()  # retrieved, so that asyncio does not log it


class Transaction:
    """Objects of one submission."""

    def __init__(self, client: Client, namespace: str, *, dry_run: bool = False) -> None:
        self.id = uuid4().hex
        self._client = client
        self._namespace = namespace
        self._is_dry_run = dry_run
        # Objects that exist, or may exist, because of us; with their uid if known.
        self._sent: dict[tuple[Resource, str], str | None] = {}

    async def create(self, resource: Resource, manifest: Manifest) -> dict[str, Any]:
        """Create an object and return it as stored; if the answer is lost, look it up.

        Raises:
            Conflict: The name is in use.
            KubeError: Creation failed; after `Unreachable` and `ServerFailed` the object may exist.
        """
        manifest = self._stamped(manifest)
        name = text_of(manifest["metadata"].get("name"))
        if self._is_dry_run or not name:  # a generated name cannot be looked up
            return await self._client.create(resource, manifest, self._namespace, dry_run=self._is_dry_run)
        key = (resource, name)
        made: dict[str, Any] | None = None
        for attempt in range(ATTEMPTS):
            is_first = key not in self._sent
            self._sent.setdefault(key, None)
            try:
                made = await with_grace(self._client.create(resource, manifest, self._namespace))
            except (Unreachable, ServerFailed) as error:
                made = await self._find(resource, name, error)
                if made is None and attempt + 1 == ATTEMPTS:
                    raise
            except KubeError as error:
                if is_first:
                    del self._sent[key]
                elif isinstance(error, Conflict) and error.is_name_in_use:
                    made = await self._find(resource, name, error)
                if made is None:
                    raise
            if made is not None:
                break
        assert made is not None
        self._sent[key] = text_of(made["metadata"].get("uid"))
        return made

    async def create_claim(self, manifest: Manifest) -> dict[str, Any] | None:
        """Create a volume claim and return None, or return the existing claim of its name.

        Raises:
            KubeError: Creation failed.
        """
        name = text_of(manifest["metadata"]["name"])
        try:
            await self.create(CLAIMS, manifest)
        except Conflict as error:
            if not error.is_name_in_use:
                raise
            return await self._client.get(CLAIMS, name, self._namespace)
        return None

    async def create_anew(self, resource: Resource, manifest: Manifest, label: str) -> dict[str, Any]:
        """Create an object, replacing one of its name that a deleted job of ours has left.

        Leftovers of a job of the same name share the value of `label` with it.

        Raises:
            Conflict: The name belongs to an object in use, as the hint says.
            KubeError: Creation failed.
        """
        try:
            return await self.create(resource, manifest)
        except Conflict as error:
            if not error.is_name_in_use:
                raise
            name = text_of(manifest["metadata"]["name"])
            try:
                held = await self._client.get(resource, name, self._namespace)
            except NotFound:
                return await self.create(resource, manifest)
            if why := await self._in_use(held, nested(manifest, "metadata", "labels").get(label), label):
                error.hint = f"{why} Choose another name, or delete that {resource.kind} first."
                raise
        if self._is_dry_run:
            return held
        await self._delete(resource, name, text_of(held["metadata"].get("uid")))
        return await self.create(resource, manifest)

    async def own(self, resource: Resource, name: str, references: list[dict[str, str]]) -> None:
        """Set the owner of an object created here, so that both are deleted together.

        Raises:
            KubeError: The owner could not be written.
        """
        patch = {"metadata": {"ownerReferences": references}}
        try:
            await self._client.patch(resource, name, patch, self._namespace)
        except (Unreachable, ServerFailed):  # the patch is idempotent
            await self._client.patch(resource, name, patch, self._namespace)

    async def roll_back(self) -> list[str]:
        """Delete the created objects, the newest first, and return those left, e.g. `configmaps/bert-code`.

        A volume claim that a pod has mounted stays: it may contain data.
        """
        left = []
        for (resource, name), uid in reversed(self._sent.items()):
            try:
                if uid is None:
                    found = await self._client.get(resource, name, self._namespace)
                    if not self._is_ours(found):
                        continue
                    uid = text_of(found["metadata"].get("uid"))
                if resource == CLAIMS and await self._is_mounted(name):
                    left.append(f"{resource.full_name}/{name}")
                    continue
                await self._delete(resource, name, uid)
            except NotFound:
                continue
            except KubeError:
                left.append(f"{resource.full_name}/{name}")
        self._sent.clear()
        return left

    async def _is_mounted(self, claim: str) -> bool:
        # True too if pods cannot be listed.
        try:
            pods = await self._client.list(PODS, self._namespace)
        except KubeError:
            return True
        volumes = [volume for pod in pods for volume in nested(pod, "spec").get("volumes") or ()]
        return any(nested(each, "persistentVolumeClaim").get("claimName") == claim for each in volumes)

    def _stamped(self, manifest: Manifest) -> Manifest:
        meta = manifest["metadata"]
        annotations = {**(meta.get("annotations") or {}), SUBMISSION_ANNOTATION: self.id}
        return {**manifest, "metadata": {**meta, "annotations": annotations}}

    def _is_ours(self, obj: Manifest) -> bool:
        return nested(obj, "metadata", "annotations").get(SUBMISSION_ANNOTATION) == self.id

    async def _find(self, resource: Resource, name: str, lost: KubeError) -> dict[str, Any] | None:
        # Raises `lost` if the cluster cannot tell.
        for wait_s in _WAITS_S:
            await asyncio.sleep(wait_s)
            try:
                found = await self._client.get(resource, name, self._namespace)
            except NotFound:
                return None
            except (Unreachable, ServerFailed):
                continue
            except KubeError:
                break
            return found if self._is_ours(found) else None
        try:
            raise lost
        finally:
            del lost  # its traceback leads to this frame

    async def _in_use(self, held: Manifest, value: object, label: str) -> str:
        # Empty for leftovers of a deleted job of ours.
        meta = nested(held, "metadata")
        name = f"{text_of(held.get('kind'))} {text_of(meta.get('name'))}"
        if nested(meta, "labels").get(label) != value:
            return f"{name} does not belong to a job of this name."
        for owner in meta.get("ownerReferences") or ():
            if await self._is_there(owner):
                return f"{name} belongs to {owner.get('kind')} {owner.get('name')}."
        made = datetime.fromisoformat(text_of(meta.get("creationTimestamp")) or "1970-01-01T00:00:00Z")
        now = datetime.now(UTC) + timedelta(seconds=self._client.server_clock_offset_s)
        if not meta.get("ownerReferences") and now - made < _UNDER_WAY:
            return f"{name} belongs to another submission, which may still be in progress."
        return ""

    async def _is_there(self, owner: Manifest) -> bool:
        ref = JobRef(
            self._namespace,
            text_of(owner.get("name")),
            text_of(owner.get("kind")),
            text_of(owner.get("apiVersion")),
        )
        try:
            found = await self._client.get(kind_of(ref).resource, ref.name, ref.namespace)
        except NotFound:
            return False
        return text_of(nested(found, "metadata").get("uid")) == owner.get("uid")

    async def _delete(self, resource: Resource, name: str, uid: str) -> None:
        try:
            await self._client.delete(resource, name, self._namespace, uid=uid)
        except (NotFound, Conflict):
            return  # it is gone, or another one has its name


def owner_reference(owner: Manifest) -> dict[str, str]:
    """Return the owner reference to a stored object."""
    meta = owner["metadata"]
    return {
        "apiVersion": text_of(owner.get("apiVersion")),
        "kind": text_of(owner.get("kind")),
        "name": text_of(meta.get("name")),
        "uid": text_of(meta.get("uid")),
    }
