"""Scalars of one job, read from wherever they are accessible.

First choice is a local folder behind the job's volume claim, which works even without pods. Second is
`exec` into a running container: the chief's, a worker's if the chief is only a launcher, or that of a
reader pod. Third is the TensorBoard of the job. Until these have points, the chief's log is searched for
lines such as `step 40 loss 1.87`. A TrainJob may report metrics in its status, which is the last resort.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from itertools import chain
from typing import Any
from urllib.parse import unquote

from k8s.client.client import Client
from k8s.client.proxied import fetch_proxied
from k8s.jobs import pod_files, reader_pod
from k8s.jobs.create import resource_of
from k8s.jobs.tensorboard import tensorboard_proxy
from k8s.kinds import DeclaredJob, JobRef, Manifest, Replica, kind_of
from k8s.kinds.parse import nested, text_of
from k8s.logs import JobRanks, LogHub, LogLine, LogRequest, Target, find_ranks, targets_of
from k8s.models.resources import PODS
from k8s.snapshot import Instance, Job
from k8s.text.errors import KubeError, NotFound, TooLarge
from k8s.text.sanitize import sanitize
from trainer.tfevents import Columns, EventFiles, EventFolder, ScalarCurve, ScalarSeries
from tui.runs.formats import NAMES, MetricFiles, MetricFolder
from tui.runs.formats.records import LONGEST_TAG, STEPS, RecordStream, parse_json, to_number
from tui.runs.journal.kept_facts import KeptCurves
from tui.runs.log_points import LogPoints
from tui.text.format import newest_point

# Polling intervals of a local folder, a folder in a pod, and a TensorBoard; and of one that was not found.
LOCAL_S, REMOTE_S, TENSORBOARD_S, ABSENT_S = 1.0, 5.0, 15.0, 60.0
# Bytes of a file to read before it is known whether it holds metrics.
PROBE_BYTES = 65_536
# Curves of one TensorBoard, and requests to it at a time.
MOST_CURVES = 256
_AT_ONCE = 8
_SCALARS = "data/plugin/scalars"
_FILE = "TensorBoard"
# Lines from the end of the log to search; new lines follow.
LOG_LINES = 20_000
LOG_HINT = "Lines such as `step 10 loss 1.5` in its log are drawn too."
# Shortest interval between two reports of points in a log.
LOG_S = 1.0


class CurveFeed:
    """Live scalars of one job."""

    def __init__(
        self,
        client: Client,
        ref: JobRef,
        job: Callable[[], Job | None],
        *,
        folder: str = "",
        searches: bool = False,
        hub: LogHub | None = None,
        kept: KeptCurves | None = None,
    ) -> None:
        """Prepare to follow a job.

        Args:
            client: The connection.
            ref: The job.
            job: Returns its current state, or None if it is gone.
            folder: Folder in its pods with event files or other metrics; empty for the declared one.
            searches: Search the volumes of its pod if no folder is known, which may take long.
            hub: Followed logs of the cluster, to share that of the job.
            kept: Curves in the journal, for a job that has ended and of which nothing else can be read.
        """
        self.events: EventFiles = MetricFiles()
        """Contents of the files and of TensorBoard so far."""
        self.folder = folder
        self.folders: list[str] = []
        """Folders with metrics in its pod, to choose `folder` from, if none is declared."""
        self.reader = ""
        """Reader pod whose files are read; empty for the pods of the job."""
        self.source = ""
        """Location of the files or the TensorBoard, for display."""
        self.problem = ""
        """The reason that nothing can be read; empty if all is well."""
        self._client = client
        self._hub = hub or LogHub(client)
        self._ref = ref
        self._job = job
        self._log_points = LogPoints()
        self._ranks = JobRanks()
        self._log_source = ""
        self._log: asyncio.Task[None] | None = None
        self._log_of: Target | None = None
        self._log_ends_ns: dict[tuple[str, str, str], int] = {}
        self._log_grew = asyncio.Event()
        self._has_event_points = False
        self._has_file_points = False
        self._must_search = searches
        self._is_over = False
        self._tensorboard: TensorBoardReader | None = None
        self._tensorboard_after_s = 0.0
        self._status = StatusPoints()
        self._kept = kept
        self._uses_kept = False

    def curves(self) -> list[ScalarCurve]:
        """Return the curves of the event files, or those found in the log."""
        if not self.is_from_log:
            found = self.events.curves()
            found = found or [
                ScalarCurve(".", tag, "status", each.steps, each.wall_times, each.values, ())
                for tag, each in self._status.series.items()
            ]
            return self._kept.curves() if self._kept is not None and self._uses_kept and not found else found
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

    @property
    def newest_s(self) -> float:
        """Time of the newest point, in seconds since 1970; 0 if unknown."""
        if self.is_from_log:
            return max(each.wall_times[-1] for each in self._log_points.series.values())
        newest_s = self.events.newest_s or self._status.last_wall_time or 0.0
        return self._kept.newest_s if self._kept is not None and self._uses_kept else newest_s

    @property
    def age_text(self) -> str:
        """Age of the newest point, as `, newest point 3m ago`; empty if unknown or below a minute."""
        return newest_point(self.newest_s, time.time() + self._client.server_clock_offset_s)

    def choose_folder(self, folder: str) -> None:
        """Read from another folder of the pods, or search for one if empty; forget what was read."""
        self.folder, self.events = folder, MetricFiles()
        self._must_search = not folder
        self._has_event_points = self._has_file_points = False

    async def run(self, on_change: Callable[[], Awaitable[None]]) -> None:
        """Follow until cancelled; `on_change` is awaited when points, source or problem changed."""
        declared: DeclaredJob | None = None
        reported: tuple[str, str, str] | None = None
        try:
            while True:
                has_news = False
                pause_s = REMOTE_S
                try:
                    declared = declared or await self._declared()
                    has_news, pause_s = await self._read(declared)
                    self.problem = "; ".join(self.events.problems.values())
                except KubeError as error:
                    self.problem = error.why or error.what
                    pause_s = error.retry_after_s if isinstance(error, TooLarge) else REMOTE_S
                self._has_event_points |= has_news
                await self._consider_log()
                has_news |= await self._read_status()
                has_news |= await self._read_kept()
                if has_news or reported != (self.source, self.problem, self.age_text):
                    reported = (self.source, self.problem, self.age_text)
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
        if job is not None and not self.is_from_log:
            job = await find_ranks(self._client, job, ranks=self._ranks, is_urgent=False)
        targets = [each for each in targets_of(self._ranks.apply(job)) if each.is_chief] if job else []
        if targets and (self._log_of is None or self._log_of.key != targets[0].key):
            await self._leave_log()
            self._log_of, self._log_source = targets[0], targets[0].name
            self._log = asyncio.create_task(self._follow_log(targets[0]))

    async def _follow_log(self, target: Target) -> None:
        # Lines that an earlier follower of this log has read are skipped.
        after_ns = self._log_ends_ns.get(target.key, -1)
        log = self._hub.open(target, LogRequest(tail=LOG_LINES))
        async with aclosing(log.batches()) as batches:
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
        try:
            await self._read(await self._declared())
            self.problem = ""
        except KubeError:
            if not await self._read_status() and not await self._read_kept():
                raise
        else:
            if not self.events.curves() and not await self._read_status():
                await self._read_kept()

    async def read_local(self) -> bool:
        """Read new points if the event files are on this machine, and return True if they are.

        Raises:
            KubeError: The job cannot be read.
        """
        if not isinstance(self.events, EventFolder):
            declared = await self._declared()
            folder = self.folder or declared.log_dir
            if not folder or not await self._find_local(folder, _writer(declared, folder)):
                return False
        assert isinstance(self.events, EventFolder)
        await asyncio.to_thread(self.events.read_new)
        return True

    async def read_volume(self, manifest: Manifest) -> None:
        """Read the files of an ended job through a reader pod, once and for all.

        Raises:
            KubeError: The pod cannot be created, or the files cannot be read.
        """
        async with reader_pod.running_reader(self._client, manifest) as self.reader:
            await self.read_once()
        self._is_over = self._has_event_points = self._has_file_points

    async def reader_manifest(self, image: str = "") -> Manifest:
        """Return the pod that would read the job's volume claims, with its own image by default.

        Raises:
            KubeError: The job cannot be read, or mounts no claim.
        """
        declared = await self._declared()
        writer = _writer(declared, self.folder or declared.log_dir)
        template: dict[str, Any] = dict(writer.template) if writer is not None else {}
        container = ""
        if (instance := self._instance(writer)) is not None:
            # A pod that has ended knows volumes that a template may leave to a runtime.
            with suppress(NotFound):
                template = await self._client.get(PODS, instance.pod, self._ref.namespace)
            container = instance.containers[0]
        return reader_pod.reader_manifest(self._ref.name, self._ref.namespace, template, image, container)

    async def _find_local(self, folder: str, writer: Replica | None) -> bool:
        # Returns True if the folder of the event files is on this machine.
        template = writer.template if writer is not None else {}
        found = await pod_files.local_folder(self._client, template, self._ref.namespace, folder)
        if found is not None:
            self.source = f"{folder} on this machine"
            self.events = MetricFolder(found)
        return found is not None

    async def _object(self) -> dict[str, Any]:
        return await self._client.get(resource_of(self._ref), self._ref.name, self._ref.namespace)

    async def _declared(self) -> DeclaredJob:
        return kind_of(self._ref).parse(await self._object())

    async def _read(self, declared: DeclaredJob) -> tuple[bool, float]:
        # Returns whether there were new points, and the delay until the next read.
        folder = self.folder or declared.log_dir
        if self._is_over:
            return False, REMOTE_S
        writer = _writer(declared, folder)
        is_local = isinstance(self.events, EventFolder)
        if is_local or (folder and await self._find_local(folder, writer)):
            assert isinstance(self.events, EventFolder)
            return bool(await asyncio.to_thread(self.events.read_new)), LOCAL_S
        try:
            folder = folder or await self._search(writer)
            has_news = await self._read_from_pod(writer, folder)
            self._has_file_points |= has_news
        except KubeError as error:
            has_tensorboard_news = await self._read_tensorboard()
            if self._tensorboard is None or not self._tensorboard.name:
                raise
            return has_tensorboard_news, error.retry_after_s if isinstance(error, TooLarge) else REMOTE_S
        return has_news or (not self._has_file_points and await self._read_tensorboard()), REMOTE_S

    def _instance(self, writer: Replica | None) -> Instance | None:
        # The pod that writes; None if it does not exist.
        job, name = self._job(), writer.instance if writer else ""
        found = (each for each in job.instances if each.name == name and each.pod) if job else ()
        return next(iter(found), None)

    async def _read_from_pod(self, writer: Replica | None, folder: str) -> bool:
        if self.reader:
            pod, container = self.reader, reader_pod.CONTAINER
        elif (instance := self._instance(writer)) is not None:
            if instance.status.is_final:
                raise KubeError("No curves.", "The pod that writes them has ended.")
            pod, container = instance.pod, instance.containers[0]
        else:
            raise KubeError("No curves.", "The pod that writes them does not exist.")
        self.source = f"{folder} in {pod}"
        namespace, has_news = self._ref.namespace, False
        listed = await pod_files.list_files(self._client, pod, namespace, folder, NAMES, container=container)
        sizes = {file.path.removeprefix(folder).lstrip("/"): file for file in listed}
        for path in self.events.select(sizes):
            file = sizes[path]
            while (at := self.events.next_read(path, file.size_bytes)) is not None:
                limit = pod_files.READ_LIMIT_BYTES if at or "tfevents" in path else PROBE_BYTES
                # Not what was written meanwhile: a file shorter than what was read counts as replaced.
                limit = min(limit, file.size_bytes - at)
                chunk = await pod_files.read_from(
                    self._client, pod, namespace, file.path, at, container=container, limit_bytes=limit
                )
                has_news |= bool(self.events.feed(path, chunk))
                if not chunk or self.events.offset(path) == at:
                    break
        return has_news

    async def _search(self, writer: Replica | None) -> str:
        """Return the only folder with metrics in the pod.

        Raises:
            KubeError: The pod has no such folder, or several: see `folders`.
        """
        instance = self._instance(writer)
        if writer is not None and instance is not None and self._must_search:
            self._must_search = False
            mounts = [
                str(mount.get("mountPath"))
                for container in nested(writer.template, "spec").get("containers") or ()
                for mount in container.get("volumeMounts") or ()
            ]
            with suppress(KubeError):
                self.folders = await pod_files.find_folders(
                    self._client,
                    instance.pod,
                    self._ref.namespace,
                    mounts or _USUAL_FOLDERS,
                    NAMES,
                    container=instance.containers[0],
                )
        if len(self.folders) == 1:
            self.folder = self.folders[0]
            return self.folder
        found = f"\nFolders with metrics: {', '.join(self.folders[:8])}." if self.folders else ""
        raise KubeError("No curves.", _NO_FOLDER + found)

    async def _read_tensorboard(self) -> bool:
        now_s = asyncio.get_running_loop().time()
        job = self._job()
        if job is None or now_s < self._tensorboard_after_s or not isinstance(self.events, MetricFiles):
            return False
        reader = self._tensorboard or TensorBoardReader(self._client, job)
        try:
            has_news = await reader.read(self.events)
        except KubeError:
            self._tensorboard, self._tensorboard_after_s = None, now_s + ABSENT_S
            return False
        self._tensorboard, self._tensorboard_after_s = reader, now_s + TENSORBOARD_S
        self.source = f"TensorBoard at {reader.name}"
        return has_news

    async def _read_kept(self) -> bool:
        # Last of all, and once; returns True if there are any.
        job = self._job()
        if self._kept is None or self.curves() or (job is not None and not job.status.is_final):
            return False
        await asyncio.to_thread(self._kept.curves)
        self._uses_kept, self.source = True, self._kept.source or self.source
        return bool(self.curves())

    async def _read_status(self) -> bool:
        # Only a TrainJob has metrics in its status.
        if self._ref.kind != "TrainJob" or self.is_from_log or self._has_event_points:
            return False
        with suppress(KubeError):
            if self._status.take(await self._object()):
                self.source, self.problem = f"status of TrainJob {self._ref.name}", ""
                return True
        return False


class TensorBoardReader:
    """Reads the scalars that a job's TensorBoard serves, through the API server.

    It serves at most 1,000 points of a curve, chosen at random (`--samples_per_plugin`), so each read
    replaces the points of the previous one.
    """

    def __init__(self, client: Client, job: Job) -> None:
        """Prepare to read the TensorBoard of `job`."""
        self.name = ""
        """Service or pod that serves it; empty before the first read."""
        self._client = client
        self._job = job
        self._path = ""
        self._last: dict[tuple[str, str], tuple[int, float]] = {}

    async def read(self, files: MetricFiles) -> bool:
        """Add its curves to `files`; return True if there are new points.

        Raises:
            NotFound: The job has no TensorBoard.
            KubeError: TensorBoard does not answer, or another program does.
        """
        self._path = self._path or await tensorboard_proxy(self._client, self._job)
        self.name = self._path.rpartition("/proxy")[0].rpartition("/")[2]
        tags = await self._get("tags", {})
        if not isinstance(tags, dict):
            raise KubeError(f"Could not read {self.name}.", "It does not answer as TensorBoard.")
        found = [(run, tag) for run, each in tags.items() if isinstance(each, dict) for tag in each]
        streams: dict[str, RecordStream] = {}
        last = dict(self._last)
        for start in range(0, min(len(found), MOST_CURVES), _AT_ONCE):
            some = found[start : start + _AT_ONCE]
            answers = await asyncio.gather(
                *(self._get("scalars", {"run": run, "tag": tag}) for run, tag in some)
            )
            for (run, tag), points in zip(some, answers, strict=True):
                columns = _columns(tag, points)
                if len(columns):
                    stream = streams.setdefault(run, RecordStream())
                    stream.series.setdefault(columns.tag, ScalarSeries()).extend(columns)
                    stream.last_wall_time = max(stream.last_wall_time or 0.0, *columns.wall_times)
                    self._last[run, tag] = columns.steps[-1], columns.wall_times[-1]
        for run, stream in streams.items():
            files.put(sanitize(unquote(run)) or ".", _FILE, stream)
        return self._last != last

    async def _get(self, what: str, query: Mapping[str, str]) -> object:
        path = f"{self._path}/{_SCALARS}/{what}"
        return parse_json(await fetch_proxied(self._client, path, f"read {self.name}", query=query))


def _columns(tag: str, points: object) -> Columns:
    # Each point is [wall time, step, value].
    columns = Columns.empty(sanitize(tag[:LONGEST_TAG]))
    for point in points if isinstance(points, list) else ():
        if isinstance(point, list) and len(point) == 3:
            wall_time, step, value = map(to_number, point)
            if wall_time is not None and step is not None and value is not None and abs(step) < 2**62:
                columns.append(int(step), wall_time, value)
    return columns


class StatusPoints(RecordStream):
    """Metrics in the status of a TrainJob: the newest alone, so there is a point for each update seen."""

    def __init__(self) -> None:
        super().__init__()
        self._updated = ""

    def take(self, obj: Mapping[str, Any]) -> bool:
        """Add the metrics of a TrainJob; return True if they are new.

        Source: TrainJob v1alpha1, status.trainerStatus of Kubeflow Trainer 2.2.
        """
        try:
            status = nested(obj, "status", "trainerStatus")
        except TypeError:
            return False
        updated = text_of(status.get("lastUpdatedTime"))
        if not updated or updated == self._updated:
            return False
        self._updated = updated
        record: dict[str, object] = {"timestamp": updated}
        metrics = status.get("metrics")
        for metric in metrics if isinstance(metrics, list) else ():
            if isinstance(metric, dict) and isinstance(metric.get("value"), str):
                try:
                    record[text_of(metric.get("name"))] = float(metric["value"])
                except ValueError:
                    continue
        if not record.keys() & {*STEPS}:
            record["step"] = self._records + 1
        self.add(record)
        return bool(self.pop_fresh())


def _writer(declared: DeclaredJob, folder: str) -> Replica | None:
    # The chief writes event files, unless it does not mount the volume.
    replicas = sorted(declared.replicas, key=lambda each: not each.is_chief)
    on_claim = (each for each in replicas if pod_files.is_on_claim(each.template, folder))
    of_ranks = (each for each in replicas if each.role != "launcher")
    return next(chain(on_claim, of_ranks, replicas), None)


_NO_FOLDER = (
    "This job declares no folder for event files.\n"
    "Jobs created here with a packaged trainer do, by the annotation gpuconsole.dev/log-dir."
)
# Searched if the pod mounts nothing, beside its working directory.
_USUAL_FOLDERS = ("/workspace", "/output", "/outputs", "/logs", "/results", "/data", "/root", "/home")
