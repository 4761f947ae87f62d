"""Feeds the console: mirrors of a cluster's collections, joined into one snapshot at a time.

Nothing here draws, so that the one-shot commands read clusters in the same way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from k8s.client.client import Client
from k8s.client.server_version import fetch_version
from k8s.cluster import Joiner, Rows, in_turns
from k8s.devices.dra import DEVICE_KINDS, DeviceClaims, DeviceKind
from k8s.errors import (
    KubeError,
    NotFound,
    NotKubernetes,
    Throttled,
    Unauthorized,
    Unreachable,
)
from k8s.kinds import KINDS, DeclaredJob, JobKind
from k8s.kinds.parse import JobReader
from k8s.models import Meta, Node, Pod, Reader
from k8s.models.device_claim import ResourceClaim, ResourceSlice
from k8s.models.resources import NODES, PODS, Resource
from k8s.snapshot import ClusterSnapshot, Job
from k8s.status import Status
from k8s.watch.backoff import Backoff, ServerProbe, pause
from k8s.watch.discovery import RestMapper, discover
from k8s.watch.mirror import Mirror
from k8s.watch.owner_lookup import OwnerLookup
from k8s.watch.rules_review import fetch_rules, list_once
from tui.feeds.trouble import list_progress, trouble_of

if TYPE_CHECKING:
    from k8s.diagnosis.pending import PendingReasons

PUBLISH_S = 0.1
"""Shortest time between two snapshots."""
FIRST_S = 0.01
"""The same until everything was listed once: somebody waits for it."""
RESTS = 4
"""Times as long as making a snapshot took, there is none: keys are answered in between."""
_TRY_AGAIN = (Unreachable, NotKubernetes, Unauthorized, Throttled)
"""Nothing is known of the cluster's kinds: what is not mirrored yet waits."""


class ClusterFeed:
    """One cluster, mirrored, and its newest snapshot."""

    def __init__(self, client: Client, namespace: str = "", *, backoff: Backoff | None = None) -> None:
        """Prepare to mirror what `client` may see.

        Args:
            client: The cluster.
            namespace: Whose jobs to show; empty for all namespaces.
            backoff: How long to wait before the cluster is asked again.
        """
        self.client = client
        """The cluster that is mirrored."""
        self.namespace = namespace
        """Whose jobs are shown, empty for all. May be changed at any time: see `show_namespace`."""
        self.all_jobs: tuple[Job, ...] = ()
        """The jobs of the newest snapshot, and those of all other namespaces that may be read."""
        self._changed = asyncio.Event()
        self._poked = asyncio.Event()
        self.probe = ServerProbe(client, backoff, self._changed.set)
        """Where to wait while the cluster is away: one probe for everybody who asks it something."""
        self._running: asyncio.TaskGroup | None = None
        self._tasks: dict[Resource, asyncio.Task[None]] = {}
        self._nodes: Mirror[Node] = self._mirror(NODES, Reader(Node), _meta, ("",))
        self._pods: Mirror[Pod] = self._mirror(PODS, Reader(Pod), _meta)
        self._jobs: dict[Resource, Mirror[DeclaredJob]] = {}
        self._devices: dict[Resource, Mirror[Any]] = {}
        self._claims = DeviceClaims()
        self._is_discovered = False
        self._server_version = ""
        self._joiner = Joiner()
        self._reasons: PendingReasons | None = None
        self._rest_mapper = RestMapper(client)
        self._owner_lookup = OwnerLookup(client, self._rest_mapper.resource_of, self._changed.set)

    @property
    def _mirrors(self) -> list[Mirror[Any]]:
        return [self._nodes, self._pods, *self._jobs.values(), *self._devices.values()]

    def _mirror(
        self,
        resource: Resource,
        decoder: Any,
        meta: Callable[[Any], Meta],
        scopes: tuple[str, ...] = (),
    ) -> Mirror[Any]:
        """Return a mirror of all namespaces, or else of the one shown, or else of the kubeconfig's."""
        own = self.namespace or self.client.config.namespace
        return Mirror(
            self.client, resource, scopes or ("", own), decoder, meta, self._changed.set, self.probe
        )

    def show_namespace(self, namespace: str) -> None:
        """Show the jobs of another namespace; empty for all.

        Where not all of them may be read, the other one is mirrored from now on.
        """
        self.namespace = namespace
        if self._pods.missing is not None:
            self._pods = self._mirror(PODS, Reader(Pod), _meta)
            self._start(self._pods)
        for kind in KINDS:
            mirror = self._jobs.get(kind.resource)
            if mirror is not None and mirror.missing is not None:
                self._mirror_kind(kind)
        self._changed.set()

    def retry_now(self) -> None:
        """Reconnect now whatever waits to be tried again, log in anew, and ask which kinds there are."""
        self.client.retry_credentials()
        self.probe.retry_now()
        self._poked.set()
        for mirror in self._mirrors:
            mirror.retry_now()

    async def run(self, publish: Callable[[ClusterSnapshot], None]) -> None:
        """Mirror for ever, and publish a new snapshot after changes, ten a second at most."""
        async with asyncio.TaskGroup() as self._running:
            for mirror in self._mirrors:
                self._start(mirror)
            self._running.create_task(self._keep_discovering())
            self._running.create_task(self._owner_lookup.run())
            while True:
                await self._changed.wait()
                self._changed.clear()
                began_s = asyncio.get_running_loop().time()
                snapshot = await self._snapshot_in_turns()
                publish(snapshot)
                took_s = asyncio.get_running_loop().time() - began_s
                shortest_s = PUBLISH_S if snapshot.is_synced else FIRST_S
                await asyncio.sleep(max(shortest_s, RESTS * took_s))

    def _start(self, mirror: Mirror[Any]) -> None:
        """Run a mirror in place of the one of the same resource, if anything runs yet."""
        self._stop(mirror.resource)
        if self._running is not None:
            self._tasks[mirror.resource] = self._running.create_task(mirror.run())

    def _stop(self, resource: Resource) -> None:
        if task := self._tasks.pop(resource, None):
            task.cancel()

    def _mirror_kind(self, kind: JobKind) -> None:
        mirror = self._mirror(kind.resource, JobReader(kind), _meta_of_job)
        self._jobs[kind.resource] = mirror
        self._start(mirror)

    async def _keep_discovering(self) -> None:
        """Ask for ever which kinds there are, so that one that is installed later appears."""
        backoff = self.probe.backoff
        delays = backoff.delays()
        while True:
            try:
                await self._discover()
            except KubeError as error:
                problem = await self.probe.explain(error)
                if isinstance(problem, _TRY_AGAIN):
                    await self.probe.wait(problem, delays, self._poked)
                    continue
                self._adopt_all()
            delays = backoff.delays()
            with suppress(NotKubernetes):
                await self._ask_version()
            await pause(self._poked, backoff.discovery_s)

    async def _ask_version(self) -> None:
        """Ask once what the server is.

        Raises:
            NotKubernetes: It is something else.
        """
        if self._server_version:
            return
        try:
            answer = await fetch_version(self.client)
        except NotKubernetes:
            raise
        except KubeError:
            return
        self._server_version = str(answer.get("gitVersion") or "")
        self._changed.set()

    async def _discover(self) -> None:
        """Mirror the kinds that there are, and the claims of devices where the server knows any."""
        sought: tuple[JobKind | DeviceKind, ...] = (*KINDS, *DEVICE_KINDS)
        found = await discover(self.client, sought)
        for kind in found:
            if isinstance(kind, DeviceKind) and kind.resource not in self._devices:
                self._mirror_devices(kind)
        self._adopt([kind for kind in found if not isinstance(kind, DeviceKind)])

    def _mirror_devices(self, kind: DeviceKind) -> None:
        scopes = () if kind.resource.is_namespaced else ("",)
        mirror = self._mirror(kind.resource, Reader(kind.value_type), _meta, scopes)
        self._devices[kind.resource] = mirror
        self._start(mirror)

    def _adopt(self, kinds: Sequence[JobKind]) -> None:
        """Mirror these kinds.

        A server that starts forgets some for a while: what is no longer among them goes only
        when it cannot be listed either, or another version of it has come.
        """
        self._rest_mapper.reset()
        wanted = {kind.resource: kind for kind in kinds}
        places = {(resource.group, resource.plural) for resource in wanted}
        for resource, mirror in list(self._jobs.items()):
            is_gone = isinstance(mirror.state.problem, NotFound) and mirror.state.is_absent
            if resource not in wanted and (is_gone or (resource.group, resource.plural) in places):
                self._stop(resource)
                del self._jobs[resource]
            elif resource in wanted and is_gone:
                mirror.retry_now()
        for resource, kind in wanted.items():
            if resource not in self._jobs:
                self._mirror_kind(kind)
        self._is_discovered = True
        self._changed.set()

    def _adopt_all(self) -> None:
        """Mirror every kind, unless it was known which there are: those that are not there say so."""
        if not self._is_discovered:
            self._adopt(KINDS)

    async def read_once(self) -> ClusterSnapshot:
        """List everything once and return the snapshot, for a command that ends.

        What may not be read, or is not served, is named in the snapshot's problems.

        Raises:
            KubeError: The cluster could not be read at all.
        """
        await asyncio.gather(list_once(self._nodes), list_once(self._pods), self._list_jobs_once())
        snapshot, found = self.snapshot(), None
        with suppress(KubeError):  # without its owner a pod has the name of the one below it
            while found is not self._owner_lookup.owners:
                found = self._owner_lookup.owners
                await self._owner_lookup.fetch_missing()
                snapshot = self.snapshot()
        return replace(snapshot, is_synced=True)

    async def _list_jobs_once(self) -> None:
        own = self.namespace or self.client.config.namespace
        rules, _ = await asyncio.gather(fetch_rules(self.client, own), self._discover_once())
        mirrors = (*self._jobs.values(), *self._devices.values())
        await asyncio.gather(*(list_once(mirror, rules) for mirror in mirrors))

    async def _discover_once(self) -> None:
        try:
            await self._discover()
        except _TRY_AGAIN:
            raise
        except KubeError as error:
            if error.is_foreign:
                await self._ask_version()
            self._adopt_all()

    @property
    def pods(self) -> Mapping[str, Pod]:
        """Return all pods by uid, also those of no job, as they are now."""
        return self._pods.objects

    @property
    def reads_nothing(self) -> bool:
        """Tell whether neither pods nor jobs of any kind may be read, or are served."""
        return self._pods.state.is_absent and all(each.state.is_absent for each in self._jobs.values())

    def snapshot(self) -> ClusterSnapshot:
        """Return the snapshot as it is now."""
        header = self._header()
        nodes, pods, declared, owners = self._objects()
        rows = self._joiner.join(nodes, pods, declared, owners)
        for _ in self._explanations(rows, nodes, declared):
            pass
        return self._with_rows(header, rows)

    async def _snapshot_in_turns(self) -> ClusterSnapshot:
        """Return the snapshot as it is now, and let others work while it is made."""
        header = self._header()
        nodes, pods, declared, owners = self._objects()
        rows = await self._joiner.join_in_turns(nodes, pods, declared, owners)
        await in_turns(self._explanations(rows, nodes, declared))
        return self._with_rows(header, rows)

    def _explanations(
        self, rows: Rows, nodes: Iterable[Node], declared: Iterable[DeclaredJob]
    ) -> Iterable[None]:
        """Explain in steps why jobs wait, once all that they can wait for was listed."""
        if self._reasons is None:
            if not any(job.status is Status.PENDING for job in rows[1]):
                return ()
            # Slow to import, and in a quiet cluster nothing pends.
            from k8s.diagnosis.pending import PendingReasons

            self._reasons = PendingReasons()
        is_known = self._nodes.state.is_synced and self._pods.state.is_synced
        return self._reasons.steps(rows[1], nodes if is_known else (), rows[0], declared)

    def _objects(self) -> tuple[Iterable[Node], Iterable[Pod], Iterable[DeclaredJob], Mapping[str, Meta]]:
        """Return what is to be joined."""
        devices = [each for mirror in self._devices.values() for each in mirror.objects.values()]
        nodes, pods = self._claims.merge(
            self._nodes.objects.values(),
            self._pods.objects.values(),
            [each for each in devices if isinstance(each, ResourceClaim)],
            [each for each in devices if isinstance(each, ResourceSlice)],
        )
        return nodes, pods, self._declared(), self._owner_lookup.owners

    def _with_rows(self, header: ClusterSnapshot, rows: Rows) -> ClusterSnapshot:
        """Return a snapshot of these rows, trusted as far as `header` says."""
        self._owner_lookup.update(self._joiner.above)
        self.all_jobs = jobs = self._reasons.jobs if self._reasons is not None else rows[1]
        if header.namespace:
            jobs = tuple(job for job in jobs if job.ref.namespace == header.namespace)
        return replace(header, nodes=rows[0], jobs=jobs)

    def _header(self) -> ClusterSnapshot:
        """Return all but the rows: whose cluster it is, and how far what is known can be trusted."""
        config = self.client.config
        mirrors = self._mirrors
        trouble, stale, since_s = trouble_of(mirrors, self.probe.problem)
        return ClusterSnapshot(
            context=config.context,
            user=config.user,
            namespace=self.namespace,
            server_version=self._server_version,
            is_synced=self._is_discovered and all(mirror.state.is_synced for mirror in mirrors),
            progress=list_progress((mirror.resource, mirror.state) for mirror in mirrors),
            stale=stale,
            trouble=trouble,
            stale_since_s=since_s,
            throttled_until_s=self.client.throttled_until_s,
            clock_offset_s=self.client.server_clock_offset_s,
            kinds=tuple(
                resource.kind for resource, mirror in self._jobs.items() if not mirror.state.is_absent
            ),
            problems={
                mirror.resource.full_name: mirror.missing
                for mirror in mirrors
                if mirror.missing is not None and mirror.resource not in self._devices
            },
        )

    def _declared(self) -> list[DeclaredJob]:
        """Return the jobs, each once: without discovery, several versions of a resource are mirrored."""
        by_uid: dict[str, DeclaredJob] = {}
        for mirror in self._jobs.values():
            for uid, job in mirror.objects.items():
                by_uid.setdefault(uid, job)
        return list(by_uid.values())


def _meta(obj: Node | Pod | ResourceClaim | ResourceSlice) -> Meta:
    return obj.metadata


def _meta_of_job(job: DeclaredJob) -> Meta:
    return job.meta
