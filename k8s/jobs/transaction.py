"""Creates several objects as if they were one: each exactly once though answers get lost, or none of them.

Every object carries the id of its submission, by which an object that was created without our hearing of it
is told from one that somebody else made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from uuid import uuid4

from k8s.client.client import Client
from k8s.errors import Conflict, KubeError, NotFound, ServerFailed, Unreachable
from k8s.job_spec import SUBMISSION_ANNOTATION
from k8s.kinds import JobRef, Manifest, kind_of
from k8s.kinds.parse import nested, text_of
from k8s.models.resources import CLAIMS, PODS, Resource

T = TypeVar("T")

ATTEMPTS = 2
"""How often an object is sent whose answer gets lost."""
SETTLE_S = 1.0
"""How long a request that is cancelled may take yet."""
_WAITS_S = (0.0, 0.2, 1.0)
"""Before each question what became of an object."""
_UNDER_WAY = timedelta(minutes=2)
"""So long an object without an owner may belong to a submission that still goes on."""


async def settled(request: Coroutine[Any, Any, T]) -> T:
    """Await a request; where that is cancelled, give it `SETTLE_S` to be answered before it is given up.

    What a server has begun it does all the same: what is asked for meanwhile is not there yet.
    """
    asking = asyncio.create_task(request)
    try:
        return await asyncio.shield(asking)
    except asyncio.CancelledError:
        await asyncio.wait([asking], timeout=SETTLE_S)
        raise
    finally:
        asking.cancel()
        if asking.done() and not asking.cancelled():
            asking.exception()  # it is seen, though nobody waits for it any more


class Transaction:
    """The objects of one submission."""

    def __init__(self, client: Client, namespace: str, *, dry_run: bool = False) -> None:
        """Begin; nothing is sent yet. With `dry_run` the server stores nothing."""
        self.id = uuid4().hex
        """Written into each object."""
        self._client = client
        self._namespace = namespace
        self._is_dry_run = dry_run
        self._sent: dict[tuple[Resource, str], str | None] = {}
        """What is, or may be, on the cluster because of us, with its uid if we know it."""

    async def create(self, resource: Resource, manifest: Manifest) -> dict[str, Any]:
        """Create an object and return it as stored. Where the answer is lost, ask what became of it.

        Raises:
            Conflict: The name is taken.
            KubeError: It could not be created; `Unreachable` and `ServerFailed` leave open whether it was.
        """
        manifest = self._stamped(manifest)
        name = text_of(manifest["metadata"].get("name"))
        if self._is_dry_run or not name:  # a name that the server makes up cannot be asked for
            return await self._client.create(resource, manifest, self._namespace, dry_run=self._is_dry_run)
        key = (resource, name)
        made: dict[str, Any] | None = None
        for attempt in range(ATTEMPTS):
            is_first = key not in self._sent
            self._sent.setdefault(key, None)
            try:
                made = await settled(self._client.create(resource, manifest, self._namespace))
            except (Unreachable, ServerFailed) as error:
                made = await self._find(resource, name, error)
                if made is None and attempt + 1 == ATTEMPTS:
                    raise
            except KubeError as error:
                if is_first:
                    del self._sent[key]
                elif isinstance(error, Conflict) and error.name_is_taken:
                    made = await self._find(resource, name, error)
                if made is None:
                    raise
            if made is not None:
                break
        assert made is not None
        self._sent[key] = text_of(made["metadata"].get("uid"))
        return made

    async def create_claim(self, manifest: Manifest) -> dict[str, Any] | None:
        """Create a volume claim, or return the one that has its name already.

        Raises:
            KubeError: It could not be created.
        """
        name = text_of(manifest["metadata"]["name"])
        try:
            await self.create(CLAIMS, manifest)
        except Conflict as error:
            if not error.name_is_taken:
                raise
            return await self._client.get(CLAIMS, name, self._namespace)
        return None

    async def create_anew(self, resource: Resource, manifest: Manifest, label: str) -> dict[str, Any]:
        """Create an object; one of its name that a dead job of ours has left is deleted first.

        Args:
            resource: Its kind.
            manifest: The object.
            label: A label that it has: what is left of a job of the same name has the same value.

        Raises:
            Conflict: The name is taken by something that is in use, as its hint says.
            KubeError: It could not be created.
        """
        try:
            return await self.create(resource, manifest)
        except Conflict as error:
            if not error.name_is_taken:
                raise
            taken = error
        name = text_of(manifest["metadata"]["name"])
        try:
            held = await self._client.get(resource, name, self._namespace)
        except NotFound:
            return await self.create(resource, manifest)
        if why := await self._in_use(held, nested(manifest, "metadata", "labels").get(label), label):
            taken.hint = f"{why} Choose another name, or delete that {resource.kind} first."
            raise taken
        if self._is_dry_run:
            return held
        await self._delete(resource, name, text_of(held["metadata"].get("uid")))
        return await self.create(resource, manifest)

    async def own(self, resource: Resource, name: str, references: list[dict[str, str]]) -> None:
        """Write into an object that was created here who owns it: it goes when they go.

        Raises:
            KubeError: That could not be written.
        """
        patch = {"metadata": {"ownerReferences": references}}
        try:
            await self._client.patch(resource, name, patch, self._namespace)
        except (Unreachable, ServerFailed):  # said twice it means the same
            await self._client.patch(resource, name, patch, self._namespace)

    async def roll_back(self) -> list[str]:
        """Delete what was created, the newest first, and return what is left: `configmaps/bert-code`.

        A volume claim that a pod has mounted since stays: something may have been written into it.
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
        """Tell whether a pod has a volume claim, or may have it as pods cannot be listed."""
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
        """Return the object of this name if this submission created it.

        Raises:
            KubeError: `lost`, for the cluster does not say.
        """
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
        raise lost

    async def _in_use(self, held: Manifest, value: object, label: str) -> str:
        """Return why an object may not be replaced, in a sentence; empty for what a dead job of ours left."""
        meta = nested(held, "metadata")
        name = f"{text_of(held.get('kind'))} {text_of(meta.get('name'))}"
        if nested(meta, "labels").get(label) != value:
            return f"{name} was not made for a job of this name."
        for owner in meta.get("ownerReferences") or ():
            if await self._is_there(owner):
                return f"{name} belongs to {owner.get('kind')} {owner.get('name')}."
        made = datetime.fromisoformat(text_of(meta.get("creationTimestamp")) or "1970-01-01T00:00:00Z")
        now = datetime.now(UTC) + timedelta(seconds=self._client.server_clock_offset_s)
        if not meta.get("ownerReferences") and now - made < _UNDER_WAY:
            return f"{name} is of another submission, which may still go on."
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
    """Return how an object says that it goes when another, as stored, goes."""
    meta = owner["metadata"]
    return {
        "apiVersion": text_of(owner.get("apiVersion")),
        "kind": text_of(owner.get("kind")),
        "name": text_of(meta.get("name")),
        "uid": text_of(meta.get("uid")),
    }
