"""All logs of a job at once: followed, split into ranks, kept in bounded memory, given to views."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import count

from k8s.client.client import Client
from k8s.errors import KubeError
from k8s.logs.feed import EVERYTHING, Feed, LogSelection
from k8s.logs.follow import Follower, LogRequest
from k8s.logs.lines import Item, LogLine, Mark, Marker, Target, in_time_order
from k8s.logs.merge import MAX_STREAMS, by_time
from k8s.logs.whole import whole_log
from k8s.watch.backoff import DEFAULT_BACKOFF, Backoff

RANK_LINES = 20_000
"""Lines kept of one rank."""
TOTAL_BYTES = 32 * 1024 * 1024
"""Memory for the lines of all ranks, their own bookkeeping counted in."""
LAST_LINES = LogRequest(tail=2_000)
"""What a view begins with."""

_LINE_OVERHEAD_BYTES = 200
_Key = tuple[str, int | None]


class _Ring:
    """The newest items of one rank, or of a pod itself."""

    __slots__ = ("dropped", "items", "last_line_ns", "lines", "size_bytes")

    def __init__(self) -> None:
        self.items: deque[Item] = deque()
        self.lines = 0
        self.dropped: Counter[str] = Counter()
        self.size_bytes = 0
        self.last_line_ns = 0

    def extend(self, items: Sequence[Item]) -> int:
        """Keep more items; return the bytes that they take."""
        size_bytes = sum(map(_size_of, items))
        self.items.extend(items)
        self.size_bytes += size_bytes
        lines = [item for item in items if isinstance(item, LogLine)]
        self.lines += len(lines)
        if lines:
            self.last_line_ns = lines[-1].stamp_ns
        return size_bytes

    def drop(self, amount: int) -> int:
        """Forget the oldest items; return the bytes that are free then."""
        freed = 0
        for _ in range(min(amount, len(self.items))):
            item = self.items.popleft()
            freed += _size_of(item)
            if isinstance(item, LogLine):
                self.dropped[item.writer] += 1
        self.size_bytes -= freed
        return freed


@dataclass(frozen=True, slots=True)
class RankRow:
    """A rank of the job and what was read of it; or an instance of which no rank is known."""

    rank: int | None
    """None: an instance whose ranks nobody knows, or that has none."""
    instance: str
    proof: str
    """`declared`, `assumed`, `observed` or `none`."""
    status: str
    lines: int
    """Lines read so far that this rank wrote; for None, those no rank claims."""
    last_line_ns: int
    """When it wrote the last of them; 0 for never. Where lines bear no mark: when its pod did."""
    is_split: bool
    """Its lines can be told from those of its pod's other ranks."""

    @property
    def selection(self) -> LogSelection:
        """Return the selection that `open` shows it by."""
        return LogSelection(rank=self.rank) if self.rank is not None else LogSelection(instance=self.instance)


class JobLogs:
    """Follows every log of a job; `run` it in a worker, and `open` feeds for views."""

    def __init__(
        self,
        client: Client,
        targets: Sequence[Target] = (),
        *,
        request: LogRequest = LAST_LINES,
        max_streams: int = MAX_STREAMS,
        rank_lines: int = RANK_LINES,
        total_bytes: int = TOTAL_BYTES,
        backoff: Backoff = DEFAULT_BACKOFF,
    ) -> None:
        """Prepare; nothing is asked until `run`.

        Args:
            client: The cluster.
            targets: The job's containers, as far as they exist; see `k8s.logs.targets_of`.
            request: Which part of each log.
            max_streams: How many logs are streamed at once.
            rank_lines: How many lines are kept of each rank.
            total_bytes: Memory for all of them together.
            backoff: How long to wait for what.
        """
        self.gaps = 0
        """How often lines may be missing; each gap has a marker."""
        self._client = client
        self._request = request
        self._max_streams = max_streams
        self._rank_lines = rank_lines
        self._total_bytes = total_bytes
        self._backoff = backoff
        self._numbers = count()
        self._followers: dict[tuple[str, str, str], Follower] = {}
        self._tasks: dict[tuple[str, str, str], asyncio.Task[None]] = {}
        self._focus: frozenset[str] = frozenset()
        self._rings: dict[_Key, _Ring] = {}
        self._instance_by_rank: dict[int, str] = {}
        self._size_bytes = 0
        self._feeds: list[Feed] = []
        self._changed = asyncio.Event()
        self._turn = asyncio.Lock()
        self.set_targets(targets)

    @property
    def targets(self) -> tuple[Target, ...]:
        """Return every container whose log was ever followed here, those that are gone too."""
        return tuple(follower.target for follower in self._followers.values())

    @property
    def size_bytes(self) -> int:
        """Return the memory that the kept lines take, roughly."""
        return self._size_bytes

    def set_targets(self, targets: Iterable[Target]) -> None:
        """Take over which containers the job has now: new ones join, those gone are read to their end."""
        for target in targets:
            follower = self._followers.get(target.key)
            if follower is None:
                self._followers[target.key] = Follower(
                    self._client,
                    target,
                    self._request,
                    backoff=self._backoff,
                    numbers=self._numbers,
                    turn=self._turn,
                )
                self._changed.set()
            elif follower.target != target:
                follower.retarget(target)

    def wake(self) -> None:
        """Try again now whatever waits."""
        for follower in self._followers.values():
            follower.wake()

    def focus(self, selections: Iterable[LogSelection]) -> None:
        """Stream what is looked at; where not all logs can be streamed, the others are polled."""
        names = {
            each.instance or self.instance_of_rank(each.rank) for each in selections if not each.is_merged
        }
        if names != self._focus:
            self._focus = frozenset(names)
            self._changed.set()

    def open(self, selection: LogSelection = EVERYTHING) -> Feed:
        """Return a feed that holds what is kept of a selection, and gets what will come."""
        not_kept: Counter[str] = Counter()
        feed = Feed(selection, self.instance_of_rank, not_kept=not_kept)
        kept: list[Item] = []
        by_name = {target.name: target for target in self.targets}
        for (name, _), ring in self._rings.items():
            if matching := feed.matching(by_name[name], list(ring.items)):
                kept.extend(matching)
                not_kept.update(ring.dropped)
        if kept:
            feed.fill(in_time_order(kept), is_history=True)
        for follower in self._followers.values():
            if follower.is_behind and not follower.is_over:
                feed.expect(follower.target, follower.reached_ns)
        self._feeds.append(feed)
        return feed

    def close(self, feed: Feed) -> None:
        """Stop filling a feed."""
        if feed in self._feeds:
            self._feeds.remove(feed)
            feed.close()

    def instance_of_rank(self, rank: int | None) -> str:
        """Return the instance in which a rank runs: where it was seen, else where it is declared."""
        if rank is None:
            return ""
        if rank in self._instance_by_rank:
            return self._instance_by_rank[rank]
        for target in self.targets:
            if rank in target.ranks:
                return target.name
        return next((target.name for target in self.targets if target.prints_all_ranks), "")

    async def read_whole(
        self, selection: LogSelection, held: Sequence[Item] = (), gone: Mapping[str, int] | None = None
    ) -> AsyncIterator[Item]:
        """Read all of a selection once more from the server; yield its lines, and markers for what it lacks.

        Args:
            selection: Which lines.
            held: What a view has of it, for what the server does not have any more.
            gone: Lines before those that the view does not have either, by who wrote them.
        """
        instance = self.instance_of_rank(selection.rank)
        names = {selection.instance or instance} - {""}
        followers = [each for each in self._followers.values() if not names or each.target.name in names]
        left = dict(gone or {})
        sources = [
            whole_log(
                self._client,
                each.target,
                is_previous=self._request.previous,
                has_restarted=each.has_restarted,
                held=[item for item in held if item.source.key == each.target.key],
                gone=left,
                backoff=self._backoff,
                turn=self._turn,
            )
            for each in followers
        ]
        async with aclosing(by_time(sources)) as batches:
            async for batch in batches:
                for item in batch:
                    if isinstance(item, Marker) or selection.takes(item, instance):
                        yield item

    def rows(self) -> list[RankRow]:
        """Return the job's ranks in order, and the instances of which no rank is known."""
        newest = {target.name: target for target in self.targets}
        ranks = {
            rank: name for name, target in newest.items() for rank in target.ranks
        } | self._instance_by_rank
        rows = [self._row(rank, newest[ranks[rank]]) for rank in sorted(ranks)]
        with_ranks = set(ranks.values())
        rows.extend(self._row(None, target) for name, target in newest.items() if name not in with_ranks)
        return rows

    def _row(self, rank: int | None, target: Target) -> RankRow:
        own, pods = self._rings.get((target.name, rank)), self._rings.get((target.name, None))
        ring = own or pods
        is_alone = rank is None or target.ranks == (rank,)
        return RankRow(
            rank=rank,
            instance=target.name,
            proof="observed" if rank in self._instance_by_rank else target.ranks_proof,
            status=target.status,
            lines=own.lines if own else 0,
            last_line_ns=ring.last_line_ns if ring else 0,
            is_split=own is not None or is_alone,
        )

    async def run(self) -> None:
        """Follow all logs until cancelled; then every connection is closed."""
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    self._changed.clear()
                    self._assign(group)
                    await self._changed.wait()
        finally:
            self._tasks.clear()

    def _assign(self, group: asyncio.TaskGroup) -> None:
        """Stream as many logs as may be, those looked at first, and poll the others."""
        alive = [each for each in self._followers.values() if not each.is_over]
        alive.sort(key=lambda each: (each.target.name not in self._focus, not each.target.is_chief))
        for position, follower in enumerate(alive):
            key, is_streamed = follower.target.key, position < self._max_streams
            task = self._tasks.get(key)
            if task is not None and not task.done() and follower.is_streamed == is_streamed:
                continue
            follower.is_streamed = is_streamed
            if task is not None:
                task.cancel()
            self._tasks[key] = group.create_task(self._follow(follower, task))

    async def _follow(self, follower: Follower, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        try:
            async with aclosing(follower.batches()) as batches:
                async for batch in batches:
                    self._take(follower.target, batch, is_history=follower.is_behind)
                    if follower.is_behind:
                        for feed in tuple(self._feeds):
                            await feed.until_room(follower.target)
        except KubeError as error:
            follower.is_over = True
            words = f"cannot be read. {error.details or error.what}"
            if "previous terminated container" in error.why:  # as kubelets word it, and pass it on as a 400
                words = "there was no run before this one, or its log is gone"
            self._take(follower.target, [Marker(Mark.NOTE, words, follower.target, 0, next(self._numbers))])
        self._changed.set()

    def _take(self, source: Target, batch: Sequence[Item], *, is_history: bool = False) -> None:
        """Keep what was read, and hand it to the feeds."""
        name, instance_by_rank = source.name, self._instance_by_rank
        by_rank: dict[int | None, list[Item]] = {}
        for item in batch:
            rank = None
            if isinstance(item, LogLine):
                rank = item.rank
                if item.rank_is_proven and rank is not None and instance_by_rank.get(rank) != name:
                    instance_by_rank[rank] = name
            elif item.may_lack_lines:
                self.gaps += 1
            if (items := by_rank.get(rank)) is None:
                items = by_rank[rank] = []
            items.append(item)
        for rank, items in by_rank.items():
            ring = self._rings.get((name, rank))
            if ring is None:
                ring = self._rings[name, rank] = _Ring()
            self._size_bytes += ring.extend(items)
            if (excess := len(ring.items) - self._rank_lines) > 0:
                self._size_bytes -= ring.drop(excess + self._rank_lines // 16)
        while self._size_bytes > self._total_bytes:
            ring = max(self._rings.values(), key=lambda each: each.size_bytes)
            self._size_bytes -= ring.drop(max(1, len(ring.items) // 8))
        for feed in self._feeds:
            feed.put(source, batch, is_history=is_history)


def _size_of(item: Item) -> int:
    return _LINE_OVERHEAD_BYTES + (len(item.raw) if isinstance(item, LogLine) else len(item.text))
