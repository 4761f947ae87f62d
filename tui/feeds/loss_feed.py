"""The loss of the running jobs in sight, read sparsely: for the column of the list.

One job is read after the other, each at most every half minute, behind whatever the user waits for: from
its event files where they are on this machine, else from the last lines of its chief's log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

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

READ_S = 30.0
"""How long a job is not read again."""
LINES = 200
"""How many of the last lines of a log are read."""
MOST_BYTES = 256 * 1024
"""Of a log no more is read, however long its lines are."""
MOST_JOBS = 256
"""Jobs that are remembered, those read last; the console is open for days."""
MOST_VALUES = 64
"""Values that are kept of each job, evenly spread over what was read."""
IDLE_S = 10.0
"""Longest silence of a log that is being read."""
LOG_PERMISSION = "get pods/log"
"""What the user must be allowed to do, else no log is asked for."""


class LossFeed:
    """Reads the loss of some jobs, again and again while it runs."""

    def __init__(
        self,
        client: Client,
        permissions: Permissions | None,
        on_change: Callable[[Job], None],
        *,
        read_s: float = READ_S,
    ) -> None:
        """Prepare; nothing is asked until `run`.

        Args:
            client: The cluster.
            permissions: What the user may do there.
            on_change: Called with a job of which something new was read.
            read_s: How long a job is not read again.
        """
        self.values: dict[str, Sequence[float]] = {}
        """The loss of each job by its uid, the newest value last."""
        self.curves: dict[str, ScalarCurve] = {}
        """The same with all points, by the jobs' uids, of those whose event files are on this machine."""
        self.client = client
        """The cluster."""
        self._permissions = permissions
        self._on_change = on_change
        self._read_s = read_s
        self._wanted: dict[str, Job] = {}
        self._read_at_s: dict[str, float] = {}
        self._files: dict[str, CurveFeed] = {}
        self._changed = asyncio.Event()
        self._reads = ""

    @property
    def is_settled(self) -> bool:
        """Whether all that is wanted was read once."""
        return not self._reads and self._wanted.keys() <= self._read_at_s.keys()

    def want(self, jobs: Sequence[Job]) -> None:
        """Read these jobs from now on, as far as they run, and no others."""
        wanted = {job.uid: job for job in jobs if job.status is Status.RUNNING}
        if wanted.keys() - self._wanted.keys():
            self._changed.set()
        self._wanted = wanted

    async def run(self) -> None:
        """Read until cancelled."""
        clock = asyncio.get_running_loop().time
        with background_requests():
            while True:
                self._changed.clear()
                uid, due_s = self._next()
                wait_s = due_s - clock()
                if wait_s > 0:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._changed.wait(), wait_s if uid else None)
                    continue
                job = self._wanted[uid]
                self._note_read(uid, clock())
                self._reads = uid
                try:
                    await self._read(job)
                finally:
                    self._reads = ""

    def _note_read(self, uid: str, at_s: float) -> None:
        """Note when a job was read, and forget those that were read longest ago and are out of sight."""
        self._read_at_s.pop(uid, None)
        self._read_at_s[uid] = at_s
        known = [each for each in self._read_at_s if each not in self._wanted]
        for old in known[: max(0, len(self._read_at_s) - MOST_JOBS)]:
            for kept in (self._read_at_s, self.values, self.curves, self._files):
                kept.pop(old, None)

    def _next(self) -> tuple[str, float]:
        """Return the job that is to be read next, and when; no job where none is wanted."""
        due = [(self._read_at_s.get(uid, -self._read_s) + self._read_s, uid) for uid in self._wanted]
        due_s, uid = min(due, default=(float("inf"), ""))
        return uid, due_s

    async def _read(self, job: Job) -> None:
        """Read one job; what cannot be read has no loss, and why is said where it is looked at."""
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
        """Return the last lines of a container, each with the rank that wrote it."""
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
                    if len(body) > MOST_BYTES:
                        break
        pieces = [*splitter.feed(bytes(body)), *splitter.finish()]
        owned = ((piece, reader.owner(piece.raw)) for piece in pieces)
        return [
            LogLine(piece.stamp_ns, piece.raw, target, 0, owner.rank, prefix_bytes=owner.prefix_bytes)
            for piece, owner in owned
        ]


def _loss_tag(tags: Iterable[str]) -> str:
    """Return the tag of the loss among these; empty where none is a loss."""
    return min((tag for tag in tags if "loss" in tag.lower()), key=tag_key, default="")


def _copied(curve: ScalarCurve) -> ScalarCurve:
    """Return the points that there are now: the reader's grow in a thread."""
    return replace(curve, steps=curve.steps[:], wall_times=curve.wall_times[:], values=curve.values[:])


def _few(values: Sequence[float]) -> Sequence[float]:
    """Return so few of these values that they can be kept of many jobs, evenly spread."""
    if len(values) <= MOST_VALUES:
        return tuple(values)
    step = (len(values) - 1) / (MOST_VALUES - 1)
    return tuple(values[round(place * step)] for place in range(MOST_VALUES))
