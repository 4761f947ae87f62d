"""Sparse loss readings of visible running jobs, for a column of the list.

Jobs are read one at a time, each at most every half minute, with background priority: from
local event files if possible, else from the last lines of the chief's log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from math import inf

from k8s.client.client import Client
from k8s.client.rate_limiter import background_requests
from k8s.client.transport import translated
from k8s.errors import KubeError
from k8s.jobs.permissions import Permissions
from k8s.logs import LogLine, Target, targets_of
from k8s.logs.lines import Splitter
from k8s.logs.prefixes import RankReader
from k8s.snapshot import Job
from k8s.status import Status
from trainer.tfevents import ScalarCurve
from tui.feeds.curve_feed import CurveFeed
from tui.feeds.log_points import LogPoints
from tui.text.natural_order import tag_key

# Shortest interval between two reads of one job.
READ_S = 30.0
# Interval between two looks at the visible jobs, so that an event or scrolling only repaints.
POLL_S = 0.5
# Lines to read from the end of a log.
LINES = 200
# Limit per log, for logs with very long lines.
MAX_BYTES = 256 * 1024
# The least recently read jobs are dropped beyond this number: the console runs for days.
MAX_JOBS = 256
# Values to keep per job, evenly spaced.
MAX_VALUES = 64
IDLE_S = 10.0
LOG_PERMISSION = "get pods/log"


class LossFeed:
    """Loss of the visible running jobs.

    Views only paint `values`: the feed's own task asks for the visible jobs and sends the requests.
    """

    def __init__(
        self,
        client: Client,
        permissions: Permissions | None,
        visible: Callable[[], Iterable[Job]],
        on_change: Callable[[Job], None],
        *,
        read_s: float = READ_S,
    ) -> None:
        """Prepare; no request is sent before `run`.

        Args:
            client: The cluster.
            permissions: Permissions of the user there; None to skip the check.
            visible: Returns the visible jobs; those that run are read.
            on_change: Called with each job that has new values.
            read_s: Shortest interval between two reads of one job.
        """
        self.values: dict[str, Sequence[float]] = {}
        """Loss by job UID, the newest value last."""
        self.curves: dict[str, ScalarCurve] = {}
        """Full curves by job UID, for jobs with local event files."""
        self.client = client
        self._permissions = permissions
        self._visible = visible
        self._on_change = on_change
        self._read_s = read_s
        self._read_at_s: dict[str, float] = {}
        self._files: dict[str, CurveFeed] = {}
        self._is_reading = False

    @property
    def is_idle(self) -> bool:
        """Return True if every visible running job was read once."""
        return not self._is_reading and self._running().keys() <= self._read_at_s.keys()

    async def run(self) -> None:
        """Read until cancelled."""
        clock = asyncio.get_running_loop().time
        with background_requests():
            while True:
                running = self._running()
                last_read_s, uid = min(
                    ((self._read_at_s.get(uid, -inf), uid) for uid in running), default=(inf, "")
                )
                wait_s = last_read_s + self._read_s - clock()
                if wait_s > 0:
                    await asyncio.sleep(min(wait_s, POLL_S))
                    continue
                self._record_read(uid, clock(), running)
                self._is_reading = True
                try:
                    await self._read(running[uid])
                finally:
                    self._is_reading = False

    def _running(self) -> dict[str, Job]:
        return {job.uid: job for job in self._visible() if job.status is Status.RUNNING}

    def _record_read(self, uid: str, at_s: float, running: Collection[str]) -> None:
        # Drops hidden jobs that were read longest ago.
        self._read_at_s.pop(uid, None)
        self._read_at_s[uid] = at_s
        hidden = [each for each in self._read_at_s if each not in running]
        for old in hidden[: max(0, len(self._read_at_s) - MAX_JOBS)]:
            for by_uid in (self._read_at_s, self.values, self.curves, self._files):
                by_uid.pop(old, None)

    async def _read(self, job: Job) -> None:
        # Unreadable jobs have no loss; the job's own views show the reason.
        try:
            values = await self._from_files(job) or await self._from_log(job)
        except KubeError:
            return
        if values and values != self.values.get(job.uid):
            self.values[job.uid] = values
            self._on_change(job)

    async def _from_files(self, job: Job) -> Sequence[float]:
        if not job.log_dir:
            return ()
        files = self._files.setdefault(job.uid, CurveFeed(self.client, job.ref, lambda: job))
        if not await files.read_local():
            return ()
        curves = {each.tag: each for each in files.curves() if len(each)}
        if tag := _loss_tag(curves):
            self.curves[job.uid] = _copied(curves[tag])
        return _few(curves[tag].values) if tag else ()

    async def _from_log(self, job: Job) -> Sequence[float]:
        target = next(iter(targets_of(job)), None)
        if target is None:
            return ()
        if self._permissions is not None:
            found = await self._permissions.fetch(LOG_PERMISSION, job.ref.namespace)
            if found.is_allowed is False:
                return ()
        points = LogPoints()
        points.add(await self._last_lines(target))
        tag = _loss_tag(points.series)
        return _few(points.series[tag].values) if tag else ()

    async def _last_lines(self, target: Target) -> list[LogLine]:
        splitter, reader = Splitter(), RankReader(target.ranks, prints_all_ranks=target.prints_all_ranks)
        body = bytearray()
        async with self.client.log(
            target.pod,
            target.namespace,
            container=target.container,
            tail=LINES,
            timestamps=True,
            idle_s=IDLE_S,
            is_urgent=False,
        ) as stream:
            with translated(f"read the log of {target.pod}"):
                async for chunk in stream.iter_any():
                    body += chunk
                    if len(body) > MAX_BYTES:
                        break
        pieces = [*splitter.feed(bytes(body)), *splitter.finish()]
        owned = ((piece, reader.owner(piece.raw)) for piece in pieces)
        return [
            LogLine(piece.stamp_ns, piece.raw, target, 0, owner.rank, prefix_bytes=owner.prefix_bytes)
            for piece, owner in owned
        ]


def _loss_tag(tags: Iterable[str]) -> str:
    return min((tag for tag in tags if "loss" in tag.lower()), key=tag_key, default="")


def _copied(curve: ScalarCurve) -> ScalarCurve:
    # A copy, because a thread keeps appending to the original.
    return replace(curve, steps=curve.steps[:], wall_times=curve.wall_times[:], values=curve.values[:])


def _few(values: Sequence[float]) -> Sequence[float]:
    # Evenly spaced.
    if len(values) <= MAX_VALUES:
        return tuple(values)
    step = (len(values) - 1) / (MAX_VALUES - 1)
    return tuple(values[round(place * step)] for place in range(MAX_VALUES))
