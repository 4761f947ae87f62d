"""Reads the ends of the logs of a job's failed containers, each with how its run ended."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from k8s.client.client import Client
from k8s.logs.hub import LogHub
from k8s.logs.lines import LogLine, Target, targets_of
from k8s.models import ContainerStatus, PodStatus, Terminated
from k8s.reasons.failures import ContainerLog, FailureCause, Triage, triage
from k8s.reasons.phrases import cut, names, order
from k8s.snapshot import Instance, Job
from k8s.status import Status
from k8s.text.errors import Forbidden, KubeError

# Lines read from the end of each log.
LINES = 1_000
# Logs read for one job, and at once.
MAX_LOGS = 64
AT_ONCE = 6
# The kubelet answers with this line, and status 200, when the runtime has removed the log.
_NO_LOG = b"unable to retrieve container logs for "


class LastRun(msgspec.Struct, frozen=True):
    """One run of a container: the last that ended, or the one that goes on."""

    instance: Instance
    status: ContainerStatus
    ended: Terminated | None
    """None while it runs."""
    is_previous: bool = False
    """A later run has begun or will begin."""
    is_init: bool = False

    @property
    def has_failed(self) -> bool:
        """Return True if it ended, and not well."""
        return self.ended is not None and (self.ended.exit_code != 0 or self.ended.reason == "OOMKilled")


class FailedLogs(msgspec.Struct, frozen=True):
    """Logs of a failed job, as far as they could be read."""

    logs: tuple[ContainerLog, ...] = ()
    """Of every failed run, without lines where its log could not be read."""
    unseen: tuple[str, ...] = ()
    """Descriptions of the logs that could not be read."""


def runs_of(job: Job, pods: Mapping[str, PodStatus]) -> list[LastRun]:
    """Return the runs that failed, the first to end first, then those that go on; a launcher comes first.

    `pods` has the status of pods by name. Runs that go on may hold the error of a rank whose process
    has died inside the container.
    """
    found = [
        run
        for instance in job.instances
        if instance.status is not Status.SUCCEEDED and (status := pods.get(instance.pod)) is not None
        for run in _runs(instance, status)
    ]

    def key(run: LastRun) -> tuple[bool, bool, float]:
        at = order(run.ended.finished_at) if run.ended is not None else 0.0
        return not run.has_failed, run.instance.role != "launcher", at

    return sorted(found, key=key)


def _runs(instance: Instance, pod: PodStatus) -> Iterator[LastRun]:
    main = pod.container_statuses or ()
    for status in (*(pod.init_container_statuses or ()), *main):
        is_init = not any(status is each for each in main)
        ended, last = status.state.terminated, status.last_state.terminated
        run = LastRun(instance, status, ended or last, ended is None, is_init)
        if run.has_failed:
            yield run
        elif status.state.running is not None and not is_init:
            yield LastRun(instance, status, None)


def _evicted(job: Job, pods: Mapping[str, PodStatus]) -> list[ContainerLog]:
    # Such a pod may have failed without a container that did.
    return [
        ContainerLog(each.name, each.ranks, pod_reason=pod.reason, message=pod.message)
        for each in job.instances
        if (pod := pods.get(each.pod)) is not None and pod.phase == "Failed" and pod.reason
        if not any(run.has_failed for run in _runs(each, pod))
    ]


def _container_log(run: LastRun, pods: Mapping[str, PodStatus], lines: tuple[LogLine, ...]) -> ContainerLog:
    pod, ended, waiting = pods[run.instance.pod], run.ended, run.status.state.waiting
    disruptions = (
        each.reason or ""
        for each in pod.conditions or ()
        if (each.type, each.status) == ("DisruptionTarget", "True")
    )
    disruption = next(disruptions, "")
    return ContainerLog(
        run.instance.name,
        run.instance.ranks,
        run.status.name,
        exit_code=ended.exit_code if ended is not None else None,
        end_reason=ended.reason if ended is not None else waiting.reason if waiting is not None else "",
        finished=ended.finished_at if ended is not None else None,
        lines=lines,
        message=(ended.message if ended is not None else "") or pod.message,
        signal=ended.signal if ended is not None else 0,
        pod_reason=pod.reason or disruption,
        restarts=run.status.restart_count,
        is_init=run.is_init,
        is_launcher=run.instance.role == "launcher",
    )


class LogTails:
    """Reads the logs of failed jobs, six at once; asks no more where logs may not be read."""

    def __init__(self, client: Client, hub: LogHub | None = None) -> None:
        self._hub = hub or LogHub(client)
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._refusals: dict[str, str] = {}

    async def read(self, job: Job, pods: Mapping[str, PodStatus]) -> FailedLogs:
        """Read the ends of the logs of a job's failed containers; what cannot be read is described."""
        runs, evicted = runs_of(job, pods), _evicted(job, pods)
        if not evicted and not any(run.has_failed for run in runs):
            gone = [each.name for each in job.instances if not each.pod]
            of = f"logs of {names(gone)}: {'its pod is' if len(gone) == 1 else 'their pods are'} gone"
            return FailedLogs((), (of,) if gone else ())
        targets = {(each.pod, each.container): each for each in targets_of(job, all_containers=True)}
        keys = [(run.instance.pod, run.status.name) for run in runs[:MAX_LOGS]]
        read = await asyncio.gather(
            *(self._read(targets.get(key), run) for key, run in zip(keys, runs, strict=False))
        )
        unseen = list(dict.fromkeys(problem for _, problem in read if problem))
        if len(runs) > MAX_LOGS:
            unseen.append(f"logs: only {MAX_LOGS} of {len(runs)} were read")
        lines = [*(found for found, _ in read), *((),) * (len(runs) - len(read))]
        logs = [_container_log(run, pods, each) for run, each in zip(runs, lines, strict=True)]
        return FailedLogs((*evicted, *logs), tuple(unseen))

    async def triage(
        self, job: Job, pods: Mapping[str, PodStatus], causes: Sequence[FailureCause]
    ) -> Triage | None:
        """Return the failure that the logs and the states of containers show; None if none has failed."""
        return await asyncio.to_thread(triage, (await self.read(job, pods)).logs, causes)

    async def _read(self, target: Target | None, run: LastRun) -> tuple[tuple[LogLine, ...], str]:
        if target is None:
            return (), ""
        is_main = target.container == run.instance.containers[0]
        name = f"log of {target.name}" if is_main else f"log of {target.name}, {target.container}"
        async with self._turns:
            if refusal := self._refusals.get(target.namespace):
                return (), refusal
            try:
                lines = await self._hub.read_tail(target, LINES, previous=run.is_previous)
            except Forbidden as error:
                refusal = self._refusals[target.namespace] = f"logs: {cut(error.why or error.what)}"
                return (), refusal
            except KubeError as error:
                return (), f"{name}: {cut(error.why or error.what)}"
        if lines and lines[0].raw.startswith(_NO_LOG):
            return (), f"{name}: its node has removed it"
        return lines, ""
