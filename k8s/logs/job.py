"""All logs of a job: followed, split into ranks, and fed to views."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing
from itertools import count

import msgspec

from k8s.client.client import Client
from k8s.cluster.backoff import DEFAULT_BACKOFF, Backoff
from k8s.logs.follow import Follower, LogRequest
from k8s.logs.hub import LogHub, Subscription
from k8s.logs.line_queue import EVERYTHING, MAX_STREAMS, LineQueue, LogSelection, by_time
from k8s.logs.lines import LONGEST_LINE_BYTES, Item, LogLine, Mark, Marker, Target, in_time_order
from k8s.text.errors import KubeError

# Start of a view.
LAST_LINES = LogRequest(tail=2_000)

_Key = tuple[str, int | None]


class _LinesRead(msgspec.Struct):
    lines: int = 0
    last_line_ns: int = 0


class RankRow(msgspec.Struct, frozen=True):
    """A rank of the job, or an instance without known ranks, and the lines read of it."""

    rank: int | None
    """None for an instance whose ranks are unknown, or that has none."""
    instance: str
    proof: str
    """`declared`, `assumed`, `observed` or `none`."""
    status: str
    lines: int
    """Lines of this rank; for None, lines that belong to no rank."""
    last_line_ns: int
    """Time of its newest line, in ns; 0 if none. If lines carry no rank, that of its pod."""
    is_split: bool
    """Its lines can be told from those of other ranks in its pod."""

    @property
    def selection(self) -> LogSelection:
        """Return the selection to `open` it with."""
        return LogSelection(rank=self.rank) if self.rank is not None else LogSelection(instance=self.instance)


class JobLogs:
    """Follower of all logs of a job. `run` it in a worker; `open` queues for views."""

    def __init__(
        self,
        hub: LogHub,
        targets: Sequence[Target] = (),
        *,
        request: LogRequest = LAST_LINES,
        max_streams: int = MAX_STREAMS,
    ) -> None:
        self.gaps = 0
        """Number of places where lines may be missing; each has a marker."""
        self._hub = hub
        self._request = request
        self._max_streams = max_streams
        self._logs: dict[tuple[str, str, str], Subscription] = {}
        self._tasks: dict[tuple[str, str, str], asyncio.Task[None]] = {}
        self._focus: frozenset[str] = frozenset()
        self._read: dict[_Key, _LinesRead] = {}
        self._instance_by_rank: dict[int, str] = {}
        self._queues: list[LineQueue] = []
        self._changed = asyncio.Event()
        self.set_targets(targets)

    @property
    def targets(self) -> tuple[Target, ...]:
        """Return all containers followed so far, deleted ones included."""
        return tuple(log.target for log in self._logs.values())

    def set_targets(self, targets: Iterable[Target]) -> None:
        """Update the job's containers: follow new ones; read removed ones to their end."""
        for target in targets:
            log = self._logs.get(target.key)
            if log is None:
                self._logs[target.key] = self._hub.open(target, self._request)
                self._changed.set()
            elif log.target != target:
                log.retarget(target)

    def wake(self) -> None:
        """End all waits and retry now."""
        for log in self._logs.values():
            log.wake()

    def focus(self, selections: Iterable[LogSelection]) -> None:
        """Prefer the logs of these selections for streaming; poll the rest if there are too many."""
        names = {
            each.instance or self.instance_of_rank(each.rank) for each in selections if not each.is_merged
        }
        if names != self._focus:
            self._focus = frozenset(names)
            self._changed.set()

    def open(self, selection: LogSelection = EVERYTHING) -> LineQueue:
        """Return a queue with the held items of a selection, which also gets new ones."""
        dropped_lines: Counter[str] = Counter()
        queue = LineQueue(selection, self.instance_of_rank, dropped_lines=dropped_lines)
        stored: list[Item] = []
        for log in self._logs.values():
            held = queue.matching(log.target, log.held_items())
            stored += held
            amounts = Counter(each.rank for each in held if isinstance(each, LogLine))
            for rank, amount in amounts.items():
                writer = log.target.name if rank is None else f"rank {rank}"
                # A log that was read again may hold lines older than those read at first.
                read = self._read.get((log.target.name, rank), _LinesRead())
                if read.lines > amount:
                    dropped_lines[writer] += read.lines - amount
        if stored:
            queue.fill(in_time_order(stored), is_history=True)
        for log in self._logs.values():
            if log.is_behind and not log.is_over:
                queue.expect(log.target, log.reached_ns)
        self._queues.append(queue)
        return queue

    def close(self, queue: LineQueue) -> None:
        """Stop filling a queue."""
        if queue in self._queues:
            self._queues.remove(queue)
            queue.close()

    def instance_of_rank(self, rank: int | None) -> str:
        """Return the instance that runs a rank: as observed, else as declared; empty if unknown."""
        if rank is None:
            return ""
        if rank in self._instance_by_rank:
            return self._instance_by_rank[rank]
        for target in self.targets:
            if rank in target.ranks:
                return target.name
        return next((target.name for target in self.targets if target.prints_all_ranks), "")

    async def read_full(
        self, selection: LogSelection, held: Sequence[Item] = (), gone: Mapping[str, int] | None = None
    ) -> AsyncIterator[Item]:
        """Read the whole log of a selection again from the server; yield lines, and markers for gaps.

        `held` are the view's items, to fill in what the server no longer has, and `gone` counts the lines
        that the view has dropped before those, by writer.
        """
        instance = self.instance_of_rank(selection.rank)
        names = {selection.instance or instance} - {""}
        logs = [each for each in self._logs.values() if not names or each.target.name in names]
        unreported = dict(gone or {})
        sources = [
            full_log(
                self._hub.client,
                each.target,
                is_previous=self._request.previous,
                has_restarted=each.has_restarted,
                held=[item for item in held if item.source.key == each.target.key],
                gone=unreported,
                backoff=self._hub.backoff,
                turn=self._hub.turn,
            )
            for each in logs
        ]
        async with aclosing(by_time(sources)) as batches:
            async for batch in batches:
                for item in batch:
                    if isinstance(item, Marker) or selection.matches(item, instance):
                        yield item

    def rows(self) -> list[RankRow]:
        """Return the job's ranks in order, then the instances without known ranks."""
        newest = {target.name: target for target in self.targets}
        ranks = {
            rank: name for name, target in newest.items() for rank in target.ranks
        } | self._instance_by_rank
        rows = [self._row(rank, newest[ranks[rank]]) for rank in sorted(ranks)]
        with_ranks = set(ranks.values())
        rows.extend(self._row(None, target) for name, target in newest.items() if name not in with_ranks)
        return rows

    def _row(self, rank: int | None, target: Target) -> RankRow:
        own, pods = self._read.get((target.name, rank)), self._read.get((target.name, None))
        read = own or pods
        is_alone = rank is None or target.ranks == (rank,)
        return RankRow(
            rank=rank,
            instance=target.name,
            proof="observed" if rank in self._instance_by_rank else target.ranks_proof,
            status=target.status,
            lines=own.lines if own else 0,
            last_line_ns=read.last_line_ns if read else 0,
            is_split=own is not None or is_alone,
        )

    async def run(self) -> None:
        """Follow all logs until cancelled; then close every connection."""
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    self._changed.clear()
                    self._assign(group)
                    await self._changed.wait()
        finally:
            self._tasks.clear()

    def _assign(self, group: asyncio.TaskGroup) -> None:
        alive = [each for each in self._logs.values() if not each.is_over]
        alive.sort(key=lambda each: (each.target.name not in self._focus, not each.target.is_chief))
        for position, log in enumerate(alive):
            log.is_streamed = position < self._max_streams
            if log.target.key not in self._tasks:
                self._tasks[log.target.key] = group.create_task(self._follow(log))

    async def _follow(self, log: Subscription) -> None:
        async with aclosing(log.batches()) as batches:
            async for batch in batches:
                self._store(log.target, batch, is_history=log.is_behind)
                if log.is_behind:
                    for queue in tuple(self._queues):
                        await queue.until_writable(log.target)
        self._changed.set()

    def _store(self, source: Target, batch: Sequence[Item], *, is_history: bool = False) -> None:
        name, instance_by_rank = source.name, self._instance_by_rank
        amounts, newest_ns = Counter[int | None](), dict[int | None, int]()
        for item in batch:
            if isinstance(item, LogLine):
                rank = item.rank
                if item.rank_is_proven and rank is not None and instance_by_rank.get(rank) != name:
                    instance_by_rank[rank] = name
                amounts[rank] += 1
                newest_ns[rank] = item.stamp_ns
            elif item.may_lack_lines:
                self.gaps += 1
        for rank, amount in amounts.items():
            read = self._read.setdefault((name, rank), _LinesRead())
            read.lines += amount
            read.last_line_ns = newest_ns[rank]
        for queue in self._queues:
            queue.put(source, batch, is_history=is_history)


async def full_log(
    client: Client,
    target: Target,
    *,
    is_previous: bool = False,
    has_restarted: bool = False,
    held: Sequence[Item] = (),
    gone: dict[str, int] | None = None,
    backoff: Backoff = DEFAULT_BACKOFF,
    turn: asyncio.Lock | None = None,
) -> AsyncGenerator[list[Item], None]:
    """Read the log of a container again from its start, with markers where lines are missing.

    With `has_restarted` the previous run is read first. `held` are items read before, to fill in what
    the server no longer has; `gone` counts older lines by writer, and loses those that are reported.
    """
    lines = [item for item in held if isinstance(item, LogLine)]
    writers = {target.name, *(f"rank {rank}" for rank in target.ranks), *(line.writer for line in lines)}
    numbers = count()
    reached_ns = 0
    is_cut = False

    def marker(text: str) -> Marker:
        return Marker(Mark.GAP, text, target, reached_ns, next(numbers))

    def held_lines(until_ns: float) -> list[Item]:
        missing = [line for line in lines if reached_ns < line.stamp_ns < until_ns]
        if not missing:
            return []
        lost = [writer for writer in writers if gone and writer in gone] if not reached_ns else []
        notices = [
            f"{writer}: {(gone or {}).pop(writer):,} earlier lines cannot be read again" for writer in lost
        ]
        notices.append(f"{len(missing):,} lines that the server no longer has, as they were held here")
        return [*map(marker, notices), *missing, marker("from here on as the server has them")]

    for run in (True, False) if has_restarted and not is_previous else (is_previous,):
        request = LogRequest(follow=False, previous=run, max_line_bytes=LONGEST_LINE_BYTES)
        follower = Follower(client, target, request, backoff=backoff, numbers=numbers, turn=turn)
        is_begun = False
        try:
            async with aclosing(follower.batches()) as batches:
                async for batch in batches:
                    # Without follow, this marker means that another pod has the name.
                    is_cut |= any(isinstance(item, Marker) and item.mark is Mark.ENDED for item in batch)
                    if not is_begun and any(isinstance(item, LogLine) for item in batch):
                        is_begun = True
                        if older := held_lines(batch[0].stamp_ns):
                            yield older
                    yield batch
                    reached_ns = max(reached_ns, follower.reached_ns)
        except KubeError as error:
            is_cut = True
            yield [marker(f"cannot be read to its end. {error.why or error.what}")]
    if is_cut and (newer := held_lines(float("inf"))):
        yield newer[:-1]
