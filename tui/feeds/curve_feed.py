"""Scalars of one job, read from wherever they are accessible.

First choice is a local folder behind the job's volume claim, which works even without pods.
Second is `exec` into a running container: the chief's, or a worker's if the chief is only a
launcher. Until event files have points, the chief's log is searched for lines such as
`step 40 loss 1.87`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from itertools import chain

from k8s.client.client import Client
from k8s.errors import KubeError
from k8s.jobs import pod_files
from k8s.jobs.create import resource_of
from k8s.kinds import DeclaredJob, JobRef, Replica, kind_of
from k8s.logs import Follower, LogLine, LogRequest, Target, targets_of
from k8s.snapshot import Job
from trainer.tfevents import EventFiles, EventFolder, ScalarCurve
from tui.feeds.log_points import LogPoints

# Polling intervals of a local folder and of a folder in a pod.
LOCAL_S, REMOTE_S = 1.0, 5.0
# Lines from the end of the log to search; new lines follow.
LOG_LINES = 20_000
LOG_HINT = "Lines such as `step 10 loss 1.5` in its log are drawn too."
# Shortest interval between two reports of points in a log.
LOG_S = 1.0


class CurveFeed:
    """Live scalars of one job."""

    def __init__(self, client: Client, ref: JobRef, job: Callable[[], Job | None]) -> None:
        """Prepare to follow the job `ref`; `job` returns its current state, or None if it is gone."""
        self.events: EventFiles = EventFiles()
        """Contents of the event files so far."""
        self.source = ""
        """Location of the event files, for display."""
        self.problem = ""
        """The reason that nothing can be read; empty if all is well."""
        self._client = client
        self._ref = ref
        self._job = job
        self._log_points = LogPoints()
        self._log_source = ""
        self._log: asyncio.Task[None] | None = None
        self._log_of: Target | None = None
        self._log_ends_ns: dict[tuple[str, str, str], int] = {}
        self._log_grew = asyncio.Event()
        self._has_event_points = False

    def curves(self) -> list[ScalarCurve]:
        """Return the curves of the event files, or those found in the log."""
        if not self.is_from_log:
            return self.events.curves()
        return [
            ScalarCurve(
                ".", tag, self._log_source, each.steps, each.wall_times, each.values, tuple(each.restarts)
            )
            for tag, each in self._log_points.series.items()
        ]

    @property
    def is_from_log(self) -> bool:
        """Return True if the curves come from the job's log."""
        return bool(self._log_points.series)

    @property
    def source_text(self) -> str:
        """The origin of the curves: a folder, or `from log lines of master-0`."""
        return f"from log lines of {self._log_source}" if self.is_from_log else self.source

    async def run(self, on_change: Callable[[], Awaitable[None]]) -> None:
        """Follow until cancelled; `on_change` is awaited when points, source or problem changed."""
        declared: DeclaredJob | None = None
        try:
            while True:
                before = (self.source, self.problem)
                has_news = False
                pause_s = REMOTE_S
                try:
                    declared = declared or await self._declared()
                    if not declared.log_dir:
                        self.problem = _NO_FOLDER
                    else:
                        has_news, pause_s = await self._read(declared)
                        self.problem = "; ".join(self.events.problems.values())
                except KubeError as error:
                    self.problem = error.why or error.what
                self._has_event_points |= has_news
                await self._consider_log()
                if has_news or before != (self.source, self.problem):
                    await on_change()
                await self._report_log(on_change, pause_s)
        finally:
            await self._leave_log()

    async def _report_log(self, on_change: Callable[[], Awaitable[None]], for_s: float) -> None:
        # Reports new points of the log for `for_s` seconds.
        clock = asyncio.get_running_loop().time
        end_s = clock() + for_s
        while (left_s := end_s - clock()) > 0:
            try:
                await asyncio.wait_for(self._log_grew.wait(), left_s)
            except TimeoutError:
                return
            self._log_grew.clear()
            await on_change()
            await asyncio.sleep(LOG_S)

    async def _consider_log(self) -> None:
        # The log is followed only while event files have no points.
        if self._has_event_points:
            await self._leave_log()
            self._log_points = LogPoints()
            return
        job = self._job()
        targets = [each for each in targets_of(job) if each.is_chief] if job is not None else []
        if targets and (self._log_of is None or self._log_of.key != targets[0].key):
            await self._leave_log()
            self._log_of, self._log_source = targets[0], targets[0].name
            self._log = asyncio.create_task(self._follow_log(targets[0]))

    async def _follow_log(self, target: Target) -> None:
        # Lines that an earlier follower of this log has read are skipped.
        after_ns = self._log_ends_ns.get(target.key, -1)
        follower = Follower(self._client, target, LogRequest(tail=LOG_LINES))
        # One that may not be read has no curves either; why there are none is said of the event files.
        with suppress(KubeError):
            async with aclosing(follower.batches()) as batches:
                async for batch in batches:
                    new = [item for item in batch if isinstance(item, LogLine) and item.stamp_ns > after_ns]
                    if new:
                        self._log_ends_ns[target.key] = new[-1].stamp_ns
                    if self._log_points.add(new):
                        self._log_grew.set()
                    await asyncio.sleep(0)

    async def _leave_log(self) -> None:
        if self._log is not None:
            self._log.cancel()
            await asyncio.wait([self._log])
        self._log, self._log_of = None, None

    async def read_once(self) -> None:
        """Read all event files once.

        Raises:
            KubeError: The job or its files cannot be read.
        """
        declared = await self._declared()
        if declared.log_dir:
            await self._read(declared)
        else:
            self.problem = _NO_FOLDER

    async def read_local(self) -> bool:
        """Read new points if the event files are on this machine, and return True if they are.

        Raises:
            KubeError: The job cannot be read.
        """
        if not isinstance(self.events, EventFolder):
            declared = await self._declared()
            if not declared.log_dir or not await self._find_local(declared, _writer(declared)):
                return False
        assert isinstance(self.events, EventFolder)
        await asyncio.to_thread(self.events.read_new)
        return True

    async def _find_local(self, declared: DeclaredJob, writer: Replica | None) -> bool:
        # Returns True if the folder of the event files is on this machine.
        template = writer.template if writer is not None else {}
        folder = await pod_files.local_folder(self._client, template, self._ref.namespace, declared.log_dir)
        if folder is not None:
            self.source = f"{declared.log_dir} on this machine"
            self.events = EventFolder(folder)
        return folder is not None

    async def _declared(self) -> DeclaredJob:
        obj = await self._client.get(resource_of(self._ref), self._ref.name, self._ref.namespace)
        return kind_of(self._ref).parse(obj)

    async def _read(self, declared: DeclaredJob) -> tuple[bool, float]:
        # Returns whether there were new points, and the delay until the next read.
        if isinstance(self.events, EventFolder):
            return bool(await asyncio.to_thread(self.events.read_new)), LOCAL_S
        writer = _writer(declared)
        if await self._find_local(declared, writer) and isinstance(self.events, EventFolder):
            return bool(await asyncio.to_thread(self.events.read_new)), LOCAL_S
        return await self._read_from_pod(writer.instance if writer else "", declared.log_dir), REMOTE_S

    async def _read_from_pod(self, name: str, folder: str) -> bool:
        job = self._job()
        writer = (
            next((each for each in job.instances if each.name == name and each.pod), None) if job else None
        )
        if writer is None:
            raise KubeError("No curves.", "The pod that writes them does not exist.")
        self.source = f"{folder} in {writer.pod}"
        namespace, container = self._ref.namespace, writer.containers[0]
        has_news = False
        for file in await pod_files.list_event_files(
            self._client, writer.pod, namespace, folder, container=container
        ):
            file_name = file.path.removeprefix(folder).lstrip("/")
            offset = self.events.offset(file_name)
            if file.size_bytes > offset:
                chunk = await pod_files.read_from(
                    self._client, writer.pod, namespace, file.path, offset, container=container
                )
                has_news |= bool(self.events.feed(file_name, chunk))
        return has_news


def _writer(declared: DeclaredJob) -> Replica | None:
    # The chief writes event files, unless it does not mount the volume.
    replicas = sorted(declared.replicas, key=lambda each: not each.is_chief)
    on_claim = (each for each in replicas if pod_files.is_on_claim(each.template, declared.log_dir))
    of_ranks = (each for each in replicas if each.role != "launcher")
    return next(chain(on_claim, of_ranks, replicas), None)


_NO_FOLDER = (
    "This job declares no folder for event files.\n"
    "Jobs created here with a packaged trainer do, by the annotation gpuconsole.dev/log-dir."
)
