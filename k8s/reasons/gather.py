"""Fetches the objects that matter for one job, in at most three rounds of requests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from k8s.client.client import Client
from k8s.kinds import KINDS, DeclaredJob, JobKind, JobRef, is_pod_group, kind_of
from k8s.models import Meta, Node
from k8s.models.event import Event
from k8s.models.namespace import Claim, Quota
from k8s.models.resources import CLAIMS, EVENTS, NODES, PODS, QUOTAS, SECRETS, Resource
from k8s.reasons import requests
from k8s.reasons.cause import Cause
from k8s.reasons.evidence import Evidence, dig
from k8s.reasons.failures import CAUSES, FailureCause
from k8s.reasons.objects import (
    ACCOUNTS,
    GROUP_KEYS,
    KUEUE,
    KUEUE_VERSIONS,
    LIMIT_RANGES,
    NATIVE_POD_GROUPS,
    POD_GROUPS,
    PRIORITIES,
    STORAGE_CLASSES,
    ExistingObject,
    Fetcher,
    FullPod,
    LimitRange,
    LocalQueue,
    PendingWorkload,
    PodGroup,
    PriorityClass,
    StorageClass,
    Workload,
    group_names,
)
from k8s.reasons.phrases import order, seconds_between
from k8s.reasons.predicates import infeasible_node, main_resource
from k8s.reasons.requests import SchedulingSpec
from k8s.reasons.rules import explain
from k8s.snapshot import ClusterSnapshot, Instance, Job
from k8s.status import Status
from k8s.text.errors import Forbidden, KubeError, NotFound

VISIBILITY_VERSIONS = ("v1beta2", "v1beta1", "v1alpha1")
# Pods read one by one if the labels of their kind do not find them.
MOST_PODS = 8
# The other pods of a job wait for the same reason.
MOST_PODS_WITH_EVENTS = 4
# Nodes for which all pods are fetched: those that would have room by what is known so far.
MOST_NODES = 8
_READY_OR_DONE = (Status.RUNNING, Status.SUCCEEDED)


async def answer_why(
    client: Client,
    job: Job,
    snapshot: ClusterSnapshot,
    fetcher: Fetcher | None = None,
    nodes: Sequence[Node] = (),
    causes: Sequence[FailureCause] = CAUSES,
) -> Cause:
    """Fetch what matters for a job, and explain its state.

    `fetcher` may hold lists fetched for other jobs a moment ago, `nodes` the mirrored nodes; if empty,
    they are listed. `causes` are the known causes of failures.

    Raises:
        KubeError: The cluster does not answer.
    """
    evidence = replace(await gather(client, job, snapshot, fetcher, nodes), causes=causes)
    # In a thread: with a thousand nodes it takes longer than a key may wait.
    return await asyncio.to_thread(explain, evidence)


async def gather(
    client: Client,
    job: Job,
    snapshot: ClusterSnapshot,
    fetcher: Fetcher | None = None,
    nodes: Sequence[Node] = (),
    pods: Mapping[str, Any] | None = None,
) -> Evidence:
    """Fetch whatever can explain the state of a job; mirrored `pods` by name will do for one that is well.

    Raises:
        KubeError: The job could not be read, for another reason than permission.
    """
    fetcher = fetcher or Fetcher(client)
    kind = kind_of(job.ref)
    now = datetime.now(UTC) + timedelta(seconds=client.server_clock_offset_s)
    evidence = Evidence(
        job=job,
        now=now,
        signs=snapshot.signs(job),
        silent_s=_silent_s(snapshot, now),
        jobs=snapshot.jobs,
        node_rows={row.name: row for row in snapshot.nodes},
        sees_all_pods=PODS.plural not in snapshot.problems,
        nodes=tuple(nodes) or None,
        pods=pods or {},
    )
    evidence = await _first_round(fetcher, evidence, kind)
    if evidence.is_well:
        return evidence
    evidence = await _second_round(fetcher, evidence)
    evidence = await _third_round(fetcher, evidence)
    if not job.status.has_failed:
        return replace(evidence, unseen=fetcher.unseen)
    from k8s.reasons.failures.log_tails import LogTails  # slow to import

    statuses = {name: pod.status for name, pod in evidence.pods.items()}
    failed = await LogTails(client).read(job, statuses)
    return replace(evidence, logs=failed.logs, unseen=(*fetcher.unseen, *failed.unseen))


def with_life(evidence: Evidence, job: Job, snapshot: ClusterSnapshot) -> Evidence:
    """Return the evidence with the job and the snapshot as its log shows them, which was read meanwhile."""
    silent_s = _silent_s(snapshot, evidence.now)
    return replace(evidence, job=job, jobs=snapshot.jobs, signs=snapshot.signs(job), silent_s=silent_s)


def _silent_s(snapshot: ClusterSnapshot, now: datetime) -> dict[str, float]:
    silences = ((job.ref.name, snapshot.signs(job).silence) for job in snapshot.jobs)
    return {name: seconds_between(each.since, now) for name, each in silences if each is not None}


async def _first_round(fetcher: Fetcher, evidence: Evidence, kind: JobKind) -> Evidence:
    ref, is_well = evidence.job.ref, evidence.is_well
    waits = any(each.status not in _READY_OR_DONE for each in evidence.unfinished)
    own, pods, events, nodes, quotas, limits = await asyncio.gather(
        _fetch_job(fetcher, evidence.job, kind),
        _fetch_if(not (is_well and evidence.pods), lambda: _fetch_pods(fetcher, evidence.job, kind)),
        _fetch_if(not is_well, lambda: _first_events(fetcher, evidence)),
        _fetch_if(waits and not evidence.nodes, lambda: fetcher.list_all(NODES, Node)),
        _fetch_if(evidence.podless, lambda: fetcher.list_all(QUOTAS, Quota, ref.namespace)),
        _fetch_if(evidence.podless, lambda: fetcher.list_all(LIMIT_RANGES, LimitRange, ref.namespace)),
    )
    if isinstance(own, KubeError) and not isinstance(own, (Forbidden, NotFound)):
        try:
            raise own
        finally:
            del own  # its traceback leads to this frame
    manifest: Mapping[str, Any] = own if isinstance(own, dict) else {}
    # An object of that name with another uid is another job.
    is_other = bool(evidence.job.uid) and dig(manifest, "metadata", "uid") not in (None, evidence.job.uid)
    return replace(
        evidence,
        manifest={} if is_other else manifest,
        declared=declared_of(ref, manifest) if manifest and not is_other else None,
        is_gone=is_other or isinstance(own, NotFound),
        pods=evidence.pods if pods is None else pods,
        events=events or (),
        nodes=tuple(nodes) if nodes is not None else evidence.nodes,
        quotas=tuple(quotas or ()),
        limit_ranges=tuple(limits or ()),
    )


async def _fetch_if(is_wanted: object, ask: Any) -> Any:
    return await ask() if is_wanted else None


async def _fetch_job(fetcher: Fetcher, job: Job, kind: JobKind) -> dict[str, Any] | KubeError | None:
    # Of an unknown kind, even the path is a guess.
    found = await fetcher.get(kind.resource, job.ref.name, job.ref.namespace)
    return None if kind not in KINDS and isinstance(found, KubeError) else found


def declared_of(ref: JobRef, manifest: Mapping[str, Any]) -> DeclaredJob | None:
    """Parse a job's object; None if it is malformed."""
    try:
        return kind_of(ref).parse(dict(manifest))
    except (msgspec.ValidationError, AttributeError, TypeError, KeyError, ValueError, RecursionError):
        return None


async def _fetch_pods(fetcher: Fetcher, job: Job, kind: JobKind) -> dict[str, FullPod]:
    # By the labels of its kind; by name those that have other labels.
    wanted = {each.pod for each in job.instances if each.pod}
    if not wanted:
        return {}
    namespace = job.ref.namespace
    found: dict[str, FullPod] = {}
    if selector := kind.pod_selector(job.ref.name):
        for pod in await fetcher.list_all(PODS, FullPod, namespace, label_selector=selector) or ():
            if pod.metadata.name in wanted:
                found[pod.metadata.name] = pod
    interesting = sorted(job.instances, key=lambda each: each.status in _READY_OR_DONE)
    missing = [each.pod for each in interesting if each.pod and each.pod not in found]
    named = await fetcher.get_by_name(PODS, FullPod, missing[:MOST_PODS], namespace)
    return found | {name: pod for name, pod in named.items() if pod is not None}


async def _events(fetcher: Fetcher, job: Job, names: Iterable[str]) -> tuple[Event, ...]:
    wanted = dict.fromkeys(name for name in names if name)
    lists = await asyncio.gather(
        *(
            fetcher.list_all(EVENTS, Event, job.ref.namespace, field_selector=f"involvedObject.name={name}")
            for name in wanted
        )
    )
    began = order(job.created)
    events = {
        event.metadata.uid or f"{event.metadata.name}/{index}": event
        for each in lists
        for index, event in enumerate(each or ())
        if event.involved_object.name in wanted and (event.at is None or order(event.at) >= began)
    }
    return tuple(sorted(events.values(), key=lambda event: order(event.at)))


async def _first_events(fetcher: Fetcher, evidence: Evidence) -> tuple[Event, ...]:
    # Between some jobs and their pods stands another object with a known name: the Jobs of a JobSet, the
    # StatefulSet of an old MPIJob.
    job = evidence.job
    restless = sorted(job.instances, key=lambda each: _RESTLESS.get(each.status, 3))
    pods = [each.pod for each in restless if each.pod][:MOST_PODS_WITH_EVENTS]
    makers = {f"{job.ref.name}-{each.role}{end}" for each in evidence.podless for end in ("", "-0")}
    refused = "reason=FailedCreate"
    own, rejections = await asyncio.gather(
        _events(fetcher, job, [job.ref.name, *pods]),
        _fetch_if(makers, lambda: fetcher.list_all(EVENTS, Event, job.ref.namespace, field_selector=refused)),
    )
    return *own, *(each for each in rejections or () if each.involved_object.name in makers)


async def _second_round(fetcher: Fetcher, evidence: Evidence) -> Evidence:
    job, namespace = evidence.job, evidence.job.ref.namespace
    unfinished, waiting = evidence.unfinished, (*evidence.unscheduled, *evidence.unstarted)
    specs = [evidence.spec(each) for each in _one_of_each_role(waiting)]
    pulls = [
        secret.name
        for each in evidence.unstarted
        if "mage" in each.reason
        for secret in evidence.spec(each).image_pull_secrets or ()
    ]
    is_queued = bool(evidence.queue) or (job.status in (Status.SUSPENDED, Status.QUEUED))
    named_groups = _group_names(evidence) or (
        [job.ref.name] if evidence.podless and not evidence.pods else []
    )
    claims, accounts, secrets, priorities, pod_group, workload = await asyncio.gather(
        fetcher.get_by_name(CLAIMS, Claim, (name for spec in specs for name in spec.claims), namespace),
        fetcher.get_by_name(
            ACCOUNTS,
            ExistingObject,
            (spec.service_account_name for spec in specs if evidence.podless),
            namespace,
        ),
        fetcher.get_by_name(SECRETS, ExistingObject, pulls[:MOST_PODS], namespace),
        fetcher.get_by_name(
            PRIORITIES,
            PriorityClass,
            [*(spec.priority_class_name for spec in specs), job.priority]
            if unfinished and evidence.podless
            else [],
        ),
        _fetch_if(waiting, lambda: _pod_group(fetcher, named_groups, _native_groups(specs), namespace)),
        _fetch_if((is_queued or is_pod_group(job.ref)) and unfinished, lambda: _workload(fetcher, job)),
    )
    return replace(
        evidence,
        claims=claims,
        accounts=accounts,
        secrets=secrets,
        priorities=priorities,
        pod_group=pod_group,
        workload=workload,
    )


_RESTLESS = {Status.FAILED: 0, Status.RESTARTING: 0, Status.PENDING: 1, Status.STARTING: 1, Status.UNKNOWN: 1}


def _one_of_each_role(instances: Iterable[Instance]) -> list[Instance]:
    by_role = {each.role: each for each in instances}
    return list(by_role.values())


def _group_names(evidence: Evidence) -> list[str]:
    metas: list[Meta] = [pod.metadata for pod in evidence.pods.values()]
    found = [meta.annotation(key) or meta.label(key) for meta in metas for key in GROUP_KEYS]
    for instance in _one_of_each_role(evidence.unfinished):
        found += group_names(evidence.template(instance))
    return list(dict.fromkeys(filter(None, found)))[:2]


def _native_groups(specs: Iterable[SchedulingSpec]) -> list[str]:
    return list({(each.scheduling_group or {}).get("podGroupName", "") for each in specs} - {""})


async def _pod_group(
    fetcher: Fetcher, names: list[str], native: list[str], namespace: str
) -> PodGroup | None:
    wanted = [(each, names) for each in POD_GROUPS] + [(each, native) for each in NATIVE_POD_GROUPS]
    found = await asyncio.gather(
        *(fetcher.get_by_name(resource, PodGroup, each, namespace) for resource, each in wanted if each)
    )
    return next((group for each in found for group in each.values() if group is not None), None)


async def _workload(fetcher: Fetcher, job: Job) -> Workload | None:
    for version in KUEUE_VERSIONS:
        resource = Resource(KUEUE, version, "workloads", "Workload")
        if is_pod_group(job.ref):
            of_group = await fetcher.get_by_name(resource, Workload, [job.ref.name], job.ref.namespace)
            if workload := of_group.get(job.ref.name):
                return workload
            continue
        selector = f"{KUEUE}/job-uid={job.uid}"
        found = await fetcher.list_all(resource, Workload, job.ref.namespace, label_selector=selector)
        for each in found or ():
            if each.metadata.label(f"{KUEUE}/job-uid") == job.uid:
                return each
    return None


async def _third_round(fetcher: Fetcher, evidence: Evidence) -> Evidence:
    job, workload = evidence.job, evidence.workload
    also = [each.metadata.name for each in (evidence.pod_group, workload) if each is not None]
    queue = (workload.spec.queue_name if workload is not None else "") or evidence.queue
    classes = [
        claim.spec.storage_class_name
        for claim in evidence.claims.values()
        if claim is not None and claim.status.phase != "Bound"
    ]
    events, requested_by_node, storage_classes, local_queues, positions = await asyncio.gather(
        _events(fetcher, job, [name for name in also if name != job.ref.name]),
        _requested_by_node(fetcher, evidence),
        fetcher.get_by_name(STORAGE_CLASSES, StorageClass, classes),
        _local_queue(fetcher, queue, job.ref.namespace),
        _queue_positions(fetcher, queue, workload),
    )
    return replace(
        evidence,
        events=tuple(sorted((*evidence.events, *events), key=lambda event: order(event.at))),
        requested_by_node=requested_by_node,
        storage_classes=storage_classes,
        local_queues=local_queues,
        queue_positions=positions,
    )


async def _requested_by_node(fetcher: Fetcher, evidence: Evidence) -> dict[str, requests.ResourceList]:
    names = await asyncio.to_thread(_candidate_nodes, evidence)  # see `answer_why`
    lists = await asyncio.gather(
        *(
            fetcher.list_all(
                PODS,
                FullPod,
                field_selector=f"spec.nodeName={name},status.phase!=Succeeded,status.phase!=Failed",
            )
            for name in names
        )
    )
    return {
        name: requests.add(
            requests.of_pod(pod.spec) for pod in pods if pod.spec.node_name == name and not pod.is_finished
        )
        for name, pods in zip(names, lists, strict=True)
        if pods is not None
    }


def _candidate_nodes(evidence: Evidence) -> list[str]:
    if evidence.capacity is None:
        return []
    found: dict[str, None] = {}
    for pod_set in evidence.pod_sets:
        main = main_resource(pod_set.requested)
        fit = [
            each
            for each in evidence.capacity.nodes.values()
            if each.name and infeasible_node(pod_set.spec, pod_set.requested, each) is None
        ]
        fit.sort(key=lambda each: -each.free.get(main, 0))
        found |= dict.fromkeys(each.name for each in fit[:MOST_NODES])
    return list(found)[:MOST_NODES]


async def _local_queue(fetcher: Fetcher, queue: str, namespace: str) -> dict[str, LocalQueue | None]:
    found: dict[str, LocalQueue | None] = {}
    for version in KUEUE_VERSIONS if queue else ():
        resource = Resource(KUEUE, version, "localqueues", "LocalQueue")
        found = await fetcher.get_by_name(resource, LocalQueue, [queue], namespace)
        if found.get(queue) is not None:
            break
    return found


async def _queue_positions(fetcher: Fetcher, queue: str, workload: Workload | None) -> tuple[int, int] | None:
    for version in VISIBILITY_VERSIONS if queue and workload is not None else ():
        resource = Resource(f"visibility.{KUEUE}", version, "localqueues", "LocalQueue")
        assert workload is not None
        path = resource.path(workload.metadata.namespace, queue, "pendingworkloads")
        for each in await fetcher.list_path(path, PendingWorkload):
            if each.metadata.name == workload.metadata.name:
                return each.position_in_local_queue, each.position_in_cluster_queue
    return None
