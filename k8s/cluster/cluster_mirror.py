"""Mirrors of a cluster's collections, joined into one snapshot at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import replace

from k8s.client.client import Client, fetch_username, fetch_version
from k8s.cluster.backoff import Backoff, ServerProbe, pause
from k8s.cluster.discovery import (
    NamespaceRules,
    RestMapper,
    ServedKinds,
    choose,
    fetch_rules,
    fetch_served,
    no_rules,
)
from k8s.cluster.job_builder import RankEvidence
from k8s.cluster.joiner import NOT_LISTED, TURN_S, Joiner, Rows, cooperatively
from k8s.cluster.mirror import Mirror, MirrorState
from k8s.cluster.owners import OwnerLookup
from k8s.kinds import KINDS, DeclaredJob, JobKind, JobRef, kind_of
from k8s.kinds.parse import JobReader
from k8s.models import Meta, Node, Pod, Reader
from k8s.models.resources import DEVICE_GROUP, DEVICE_VERSIONS, NODES, PODS, Resource
from k8s.snapshot import ClusterSnapshot, Job, LifeSigns
from k8s.text.errors import (
    Forbidden,
    KubeError,
    NotFound,
    NotKubernetes,
    Throttled,
    Unauthorized,
    Unreachable,
    join_sentences,
    without_frames,
)

if TYPE_CHECKING:
    from k8s.models.dra import DeviceClaims, DeviceKind

# Shortest interval between two snapshots.
PUBLISH_S = 0.1
# The interval until the first lists are complete: the user is waiting for them.
FIRST_S = 0.01
# While the first lists go on, all is painted anew, so snapshots are rarer: the next one comes after at most
# as long as all took so far. They have longer turns, and in between only the progress is shown.
LISTING_FACTOR, LISTING_S, LISTING_TURN_S, PROGRESS_S = 5, 10.0, 0.02, 3.0
# After a snapshot, the loop is free for this multiple of the time it took, so that keys stay responsive.
IDLE_FACTOR, LONGEST_IDLE_S = 4, 10.0
# Longest wait of second pages for a snapshot of the first, and of that of pods for everything else.
ROWS_FIRST_S, OTHERS_FIRST_S = 2.0, 10.0
# API versions of job kinds and device claims.
_SOUGHT = frozenset(kind.resource.api_version for kind in KINDS) | {
    f"{DEVICE_GROUP}/{version}" for version in DEVICE_VERSIONS
}
# After these errors the served kinds are unknown, so discovery is retried before mirroring.
_TRY_AGAIN = (Unreachable, NotKubernetes, Unauthorized, Throttled)


class Explainer(Protocol):
    """Gives the jobs of snapshots reasons that say more than their objects."""

    def steps(self, rows: Rows, nodes: Iterable[Node], declared: Iterable[DeclaredJob]) -> Iterable[None]:
        """Explain joined rows, yielding between pieces of work; `nodes` is empty if they are not known."""

    def shown(self, jobs: tuple[Job, ...]) -> tuple[Job, ...]:
        """Return the jobs with their reasons."""

    async def run(self) -> None:
        """Find reasons until cancelled; `ClusterMirror.publish_soon` publishes new ones."""


class ClusterMirror:
    """The mirror of one cluster, and its newest snapshot."""

    def __init__(
        self,
        client: Client,
        namespace: str = "",
        *,
        backoff: Backoff | None = None,
        is_narrow: bool = False,
        has_nodes: bool = True,
    ) -> None:
        """Prepare to mirror what `client` may see.

        Args:
            client: The cluster.
            namespace: Namespace of the jobs to show; empty for all.
            backoff: Delays between retries.
            is_narrow: Read nothing of other namespaces. The allocation of nodes is then not known, and
                neither are the reasons of waiting jobs; `namespace` must not change.
            has_nodes: Read the nodes. Without them, a job on a node that does not answer seems to run.
        """
        self.client = client
        self._is_narrow = is_narrow and bool(namespace)
        self._has_nodes = has_nodes
        self.has_jobs = True  # False: `read_once` lists only what nodes need, except for the names of holders
        self.namespace = namespace
        """Namespace of the shown jobs, empty for all. May change at any time: see `show_namespace`."""
        self.all_jobs: tuple[Job, ...] = ()
        """The jobs of the newest snapshot, and those of all other readable namespaces."""
        self.joined_jobs: tuple[Job, ...] = ()
        """The same jobs as their objects describe them, without the explainer's reasons."""
        self.latest = ClusterSnapshot()
        self.explainer: Explainer | None = None
        self.idle_factor = IDLE_FACTOR
        """More of it makes snapshots rarer while much changes."""
        self._changed = asyncio.Event()
        self._wake_event = asyncio.Event()
        # Everything that waits for an unreachable cluster shares this probe.
        self.probe = ServerProbe(client, backoff, self._changed.set)
        self._running: asyncio.TaskGroup | None = None
        self._tasks: dict[Resource, asyncio.Task[None]] = {}
        self._nodes: Mirror[Node] = self._mirror(NODES, Reader(Node), _meta, ("",))
        self._pods: Mirror[Pod] = self._mirror(PODS, Reader(Pod), _meta)
        self._jobs: dict[Resource, Mirror[DeclaredJob]] = {}
        self._devices: dict[Resource, Mirror[Any]] = {}
        self._claims: DeviceClaims | None = None
        self._is_discovered = False
        self.known_served: ServedKinds | None = None
        """An earlier answer of this server, to begin with; None if there is none."""
        self.store_served: Callable[[ServedKinds], None] = lambda served: None
        self._server_version = ""
        self._heartbeat_error: KubeError | None = None
        self._joiner = Joiner()
        self.evidence: Mapping[str, RankEvidence] = {}
        """Ranks that the logs of jobs prove, by uid; call `publish_soon` when that changes."""
        self.life: Callable[[tuple[Job, ...]], Mapping[str, LifeSigns]] = lambda jobs: {}
        """Returns the trouble in the output of jobs; call `publish_soon` when that changes."""
        self._rest_mapper = RestMapper(client)
        self._owner_lookup = OwnerLookup(client, self._rest_mapper.resource_of, self._changed.set)

    @property
    def _mirrors(self) -> list[Mirror[Any]]:
        nodes = [self._nodes] if self._has_nodes else []
        return [*nodes, self._pods, *self._jobs.values(), *self._devices.values()]

    @property
    def _is_synced(self) -> bool:
        return self._is_discovered and all(mirror.state.is_synced for mirror in self._mirrors)

    def _mirror(
        self, resource: Resource, decoder: Any, meta: Callable[[Any], Meta], scopes: tuple[str, ...] = ()
    ) -> Mirror[Any]:
        # All namespaces; where forbidden, the one shown or that of the kubeconfig.
        own = self.namespace or self.client.config.namespace
        scopes = scopes or ((own,) if self._is_narrow else ("", own))
        mirror = Mirror(self.client, resource, scopes, decoder, meta, self._changed.set, self.probe)
        mirror.first_namespace = self.namespace if resource.is_namespaced else ""
        return mirror

    def show_namespace(self, namespace: str) -> None:
        """Show the jobs of another namespace; empty for all.

        If the user may not read all namespaces, the mirrors restart in the new one.
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

    def publish_soon(self) -> None:
        """Publish a snapshot although no object has changed."""
        self._changed.set()

    def retry_now(self) -> None:
        """Reconnect all waiting mirrors, reload credentials and repeat discovery now."""
        self.client.retry_credentials()
        self.probe.retry_now()
        self._wake_event.set()
        for mirror in self._mirrors:
            mirror.retry_now()

    async def run(
        self,
        publish: Callable[[ClusterSnapshot], None],
        prepare: Callable[[ClusterSnapshot], Iterable[None]] = lambda _: (),
    ) -> None:
        """Mirror until cancelled, and publish a new snapshot after changes, at most ten per second.

        The steps of `prepare` are for what takes long before; other tasks may run between them.
        """
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as self._running:
            run_s = loop.time()
            for mirror in self._mirrors:
                self._start(mirror)
            self._running.create_task(self._discover_forever())
            self._running.create_task(self._owner_lookup.run())
            self._running.create_task(self._heartbeat_forever())
            if self.explainer is not None:
                self._running.create_task(self.explainer.run())
            while True:
                await self._changed.wait()
                self._changed.clear()
                began_s = loop.time()
                others_s = await cooperatively(
                    self._steps(prepare), TURN_S if self._is_synced else LISTING_TURN_S
                )
                publish(snapshot := self.latest)
                shown_s = ended_s = loop.time()
                idle_s = min(LONGEST_IDLE_S, self.idle_factor * (ended_s - began_s - others_s))
                if snapshot.is_synced:
                    await asyncio.sleep(max(PUBLISH_S, idle_s))
                idle_s = max(FIRST_S, min(LISTING_S, LISTING_FACTOR * idle_s, ended_s - run_s))
                while not self._is_synced and loop.time() < ended_s + idle_s:
                    await asyncio.sleep(FIRST_S)
                    if loop.time() > shown_s + PROGRESS_S:
                        shown_s, rows = loop.time(), (snapshot.nodes, snapshot.jobs)
                        publish(replace(self._header(), nodes=rows[0], jobs=rows[1], life=snapshot.life))

    async def _wait_for_rows(self) -> None:
        # The first rows need neither the other pages nor the time that these take.
        await self._wait_until(
            ROWS_FIRST_S,
            lambda each: each.listed is not None and self.latest.progress == self._header().progress,
        )
        await asyncio.sleep(PUBLISH_S)  # until they are painted

    async def _wait_for_others(self) -> None:
        # Rows are jobs and nodes, of which there are few: the pods that fill them can wait.
        await self._wait_for_rows()
        await self._wait_until(OTHERS_FIRST_S, lambda each: each is self._pods.state)

    async def _wait_until(self, most_s: float, is_enough: Callable[[MirrorState], object]) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(most_s):
                while not self._is_discovered or not all(
                    each.is_synced or each.problem or is_enough(each)
                    for each in [mirror.state for mirror in self._mirrors]
                ):
                    await asyncio.sleep(FIRST_S)

    def _start(self, mirror: Mirror[Any]) -> None:
        # Replaces the running mirror of the same resource; does nothing before `run`.
        self._stop(mirror.resource)
        if self._running is not None:
            mirror.before_more = self._wait_for_others if mirror is self._pods else self._wait_for_rows
            self._tasks[mirror.resource] = self._running.create_task(mirror.run())

    def _stop(self, resource: Resource) -> None:
        if task := self._tasks.pop(resource, None):
            task.cancel()

    def _mirror_kind(self, kind: JobKind) -> None:
        mirror = self._mirror(kind.resource, JobReader(kind), _meta_of_job)
        self._jobs[kind.resource] = mirror
        self._start(mirror)

    async def _discover_forever(self) -> None:
        # Periodic, so that kinds that are installed later appear.
        if self.known_served is not None:
            self._mirror_served(self.known_served)
        backoff = self.probe.backoff
        delays = backoff.delays()
        while True:
            try:
                await self._discover()
            except KubeError as error:
                problem = await self.probe.explain(error)
                if isinstance(problem, _TRY_AGAIN):
                    await self.probe.wait(problem, delays, self._wake_event)
                    continue
                self._adopt_all()
            delays = backoff.delays()
            with suppress(NotKubernetes):
                await self._fetch_version()
            await pause(self._wake_event, backoff.discovery_s)

    async def _heartbeat_forever(self) -> None:
        # An open watch proves only an open socket, so silent clusters are asked regularly.
        loop, every_s = asyncio.get_running_loop(), self.probe.backoff.heartbeat_s
        while True:
            live = [mirror for mirror in self._mirrors if mirror.state.is_live]
            remaining_s = (
                max((mirror.last_seen_s for mirror in live), default=loop.time()) + every_s - loop.time()
            )
            if remaining_s > 0 and self._heartbeat_error is None:
                await asyncio.sleep(remaining_s)
                continue
            found: KubeError | None = None
            if live and not self.client.throttled_until_s:
                try:
                    await min(live, key=lambda mirror: len(mirror.objects)).check_server()
                except KubeError as error:
                    found = without_frames(error)
                else:
                    for mirror in live:
                        mirror.last_seen_s = loop.time()
            if (found is None) is not (self._heartbeat_error is None):
                self._heartbeat_error = found
                self._changed.set()
            await asyncio.sleep(every_s)

    async def _fetch_version(self) -> None:
        # Raises NotKubernetes if the endpoint is not a Kubernetes API.
        if self._server_version:
            return
        try:
            answer = await fetch_version(self.client)
        except NotKubernetes:
            raise
        except KubeError:
            return
        self._server_version = str(answer.get("gitVersion") or "")
        await fetch_username(self.client)
        self._changed.set()

    async def _discover(self, known: ServedKinds | None = None) -> None:
        served = await fetch_served(self.client, _SOUGHT, known)
        if served is not known:
            self.store_served(served)
        self._mirror_served(served)

    def _mirror_served(self, served: ServedKinds) -> None:
        if any(version.startswith(f"{DEVICE_GROUP}/") for version in served.plurals):
            from k8s.models.dra import DEVICE_KINDS, DeviceClaims  # slow to import

            self._claims = self._claims or DeviceClaims()
            for kind in choose(DEVICE_KINDS, served):
                if kind.resource not in self._devices:
                    self._mirror_devices(kind)
        self._adopt(choose(KINDS, served))

    def _mirrors_of_kinds(self) -> list[Mirror[Any]]:
        return [*self._jobs.values(), *self._devices.values()]

    def _mirror_devices(self, kind: DeviceKind) -> None:
        scopes = () if kind.resource.is_namespaced else ("",)
        mirror = self._mirror(kind.resource, Reader(kind.value_type), _meta, scopes)
        self._devices[kind.resource] = mirror
        self._start(mirror)

    def _adopt(self, kinds: Sequence[JobKind]) -> None:
        # A starting server omits kinds for a while. A kind that disappears is dropped only if it cannot be
        # listed either, or another version of it has come.
        self._rest_mapper.reset()
        wanted = {kind.resource: kind for kind in kinds if self.has_jobs}
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
        # Without discovery, mirrors of kinds that do not exist report so themselves.
        if not self._is_discovered:
            self._adopt(KINDS)

    async def read_once(self) -> ClusterSnapshot:
        """List everything once and return the snapshot, for one-shot commands.

        Collections that may not be read, or are not served, are named in the snapshot's problems.

        Raises:
            KubeError: The cluster could not be read at all.
        """
        fixed = [_list_once(mirror) for mirror in self._mirrors]  # those of jobs are found meanwhile
        await asyncio.gather(*fixed, self._list_jobs_once())
        snapshot, found = self.snapshot(), None
        with suppress(KubeError):  # without its owner a pod has the name of the one below it
            while self.has_jobs and found is not self._owner_lookup.owners:
                found = self._owner_lookup.owners
                await self._owner_lookup.fetch_missing()
                snapshot = self.snapshot()
        return replace(snapshot, is_synced=True)

    async def _list_jobs_once(self) -> None:
        own = self.namespace or self.client.config.namespace
        early, has_rules = [], self.has_jobs and not self._is_narrow
        if not has_rules and self.known_served is not None:
            self._mirror_served(self.known_served)
            early = [_list_once(mirror) for mirror in self._mirrors_of_kinds()]
        # Where each kind has one scope, the rules would cost a round trip more than refusals do.
        review = fetch_rules(self.client, own) if has_rules else no_rules()
        rules, *_ = await asyncio.gather(review, self._discover_once(), *early)
        rest = [mirror for mirror in self._mirrors_of_kinds() if not mirror.state.is_synced]
        await asyncio.gather(*(_list_once(mirror, rules) for mirror in rest))

    async def _discover_once(self) -> None:
        try:
            await self._discover(self.known_served)
        except _TRY_AGAIN:
            raise
        except KubeError as error:
            if error.is_foreign:
                await self._fetch_version()
            self._adopt_all()

    @property
    def nodes(self) -> Collection[Node]:
        """All nodes, as they are now."""
        return self._nodes.objects.values()

    @property
    def pods(self) -> Mapping[str, Pod]:
        """All pods by UID, including those of no job, as they are now."""
        return self._pods.objects

    @property
    def covered_namespace(self) -> str:
        """Namespace to which `all_jobs` is limited; empty if it has those of all."""
        is_limited = self._is_narrow or self._pods.missing is not None
        return (self.namespace or self.client.config.namespace) if is_limited else ""

    @property
    def reads_nothing(self) -> bool:
        """Return True if neither pods nor jobs of any kind may be read, or are served."""
        return self._pods.state.is_absent and all(each.state.is_absent for each in self._jobs.values())

    def is_current(self, ref: JobRef) -> bool:
        """Return True if a job and the pods are watched and the server answers, whatever else fails."""
        mirrors = (self._pods, self._jobs.get(kind_of(ref).resource))
        states = [each.state for each in mirrors if each is not None]
        is_answered = self._is_discovered and self._heartbeat_error is None
        return is_answered and all(
            each.is_synced and (each.problem is None or each.is_absent) for each in states
        )

    def snapshot(self) -> ClusterSnapshot:
        """Return the current snapshot."""
        for _ in self._steps(lambda _: ()):
            pass
        return self.latest

    def _steps(self, prepare: Callable[[ClusterSnapshot], Iterable[None]]) -> Iterator[None]:
        # Builds the current snapshot, `latest`, between whose steps other tasks may run.
        header, is_partial = self._header(), not self._pods.state.is_synced
        nodes, _, declared, _ = objects = self._objects()
        yield from self._joiner.steps(
            *objects, is_partial=is_partial, evidence=self.evidence, has_jobs=self.has_jobs
        )
        rows = self._joiner.rows
        yield from self._explanations(rows, nodes, declared)
        self._owner_lookup.update(self._joiner.above)
        self.joined_jobs = jobs = rows[1]
        self.all_jobs = jobs = self.explainer.shown(jobs) if self.explainer else jobs
        life = self.life(jobs)
        if header.namespace:
            jobs = tuple(job for job in jobs if job.ref.namespace == header.namespace)
        nodes_shown = rows[0]
        if self._has_nodes and not self._nodes.state.is_synced:  # until then pods may lie on any
            nodes_shown = tuple(row for row in nodes_shown if row.status != NOT_LISTED)
        latest = replace(header, nodes=nodes_shown, jobs=jobs, life=life)
        yield from prepare(latest)
        self.latest = latest

    def _explanations(
        self, rows: Rows, nodes: Iterable[Node], declared: Iterable[DeclaredJob]
    ) -> Iterable[None]:
        if self.explainer is None:
            return ()
        # Pending reasons need complete lists of nodes and pods.
        is_complete = self._has_nodes and not self._is_narrow
        is_known = is_complete and self._nodes.state.is_synced and self._pods.state.is_synced
        return self.explainer.steps(rows, nodes if is_known else (), declared)

    def _objects(self) -> tuple[Iterable[Node], Iterable[Pod], Iterable[DeclaredJob], Mapping[str, Meta]]:
        nodes: Iterable[Node] = self._nodes.objects.values()
        pods: Iterable[Pod] = self._pods.objects.values()
        if self._claims is not None:
            devices = [each for mirror in self._devices.values() for each in mirror.objects.values()]
            nodes, pods = self._claims.merge(nodes, pods, devices)
        return nodes, pods, self._declared(), self._owner_lookup.owners

    def _header(self) -> ClusterSnapshot:
        # Everything except the rows: the identity of the cluster and the freshness of its data.
        config = self.client.config
        mirrors = self._mirrors
        trouble, stale, since_s = trouble_of(mirrors, self.probe.problem, self._heartbeat_error)
        return ClusterSnapshot(
            context=config.context, user=config.acting_user, namespace=self.namespace,
            server_version=self._server_version, is_synced=self._is_synced,
            progress=list_progress((mirror.resource, mirror.state) for mirror in mirrors),
            stale=stale, trouble=trouble, stale_since_s=since_s,
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
            unreadable=tuple(
                found for mirror in mirrors if (found := mirror.unreadable(self.namespace)) is not None
            ),
        )  # fmt: skip

    def _declared(self) -> list[DeclaredJob]:
        # Without discovery, several versions of a resource are mirrored: each job counts once.
        by_uid: dict[str, DeclaredJob] = {}
        for mirror in self._jobs.values():
            for uid, job in mirror.objects.items():
                by_uid.setdefault(uid, job)
        return list(by_uid.values())


async def _list_once(mirror: Mirror[Any], rules: NamespaceRules | None = None) -> None:
    """List a collection, unless `rules` forbid it; a refusal is recorded in the mirror and not raised."""
    resource = mirror.resource
    if rules is not None and rules.refuse("list", resource.group, resource.plural):
        mirror.refuse_list()
        return
    try:
        await mirror.list_once()
    except (Forbidden, NotFound):
        return


_meta: Callable[[Any], Meta] = attrgetter("metadata")
_meta_of_job: Callable[[DeclaredJob], Meta] = attrgetter("meta")
# Status word of each problem, most fundamental first.
_TROUBLES: tuple[tuple[type[KubeError], str], ...] = (
    (Unauthorized, "login expired"),
    (Throttled, "throttled"),
    (NotKubernetes, "no Kubernetes API"),
    (Unreachable, "away"),
    (KubeError, "failing"),
)


def trouble_of(
    mirrors: Sequence[Mirror[Any]], unanswered: KubeError | None, heartbeat_error: KubeError | None = None
) -> tuple[str, str, float]:
    """Return the reason that data may be old, as a word and as text, and its start; empty if it is current.

    Args:
        mirrors: The mirrors that are shown.
        unanswered: Error of the probe while no request is answered; newer than the watches' own errors.
        heartbeat_error: Error of the last heartbeat: watches are open but silent.
    """
    ailing = [
        (mirror, unanswered or problem)
        for mirror in mirrors
        if (problem := mirror.state.problem or heartbeat_error) is not None and not mirror.state.is_absent
    ]
    for kind, word in _TROUBLES:
        found = [(mirror, problem) for mirror, problem in ailing if isinstance(problem, kind)]
        if found:
            problem = found[0][1]
            reason, retry = problem.why or problem.what, "ctrl+r retries now."
            if isinstance(problem, Unauthorized):
                reason = join_sentences(problem.why, problem.hint, retry)
            elif isinstance(problem, NotKubernetes):
                reason = join_sentences(problem.what, problem.why, problem.hint, retry)
            elif isinstance(problem, Unreachable):
                reason = join_sentences(reason, problem.hint, f"Retrying automatically; {retry}")
            if unanswered is None and len(ailing) < sum(not mirror.state.is_absent for mirror in mirrors):
                reason = f"{', '.join(mirror.resource.full_name for mirror, _ in found)}: {reason}"
            last_seen_s = [mirror.last_seen_s for mirror, _ in ailing if mirror.last_seen_s]
            return word, reason, min(last_seen_s, default=0.0)
    return "", "", 0.0


def list_progress(lists: Iterable[tuple[Resource, MirrorState]]) -> str:
    """Format the progress of the first lists: `1,500 of 10,000 pods so far…`; empty before and after."""
    parts = []
    for resource, state in lists:
        if state.listed and not state.is_synced:
            of_all = f" of {state.listed + state.remaining:,}" if state.remaining else ""
            parts.append(f"{state.listed:,}{of_all} {resource.plural}")
    return f"{', '.join(parts)} so far…" if parts else ""
