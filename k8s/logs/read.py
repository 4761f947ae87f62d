"""Logs for the command line: read once or followed, of one rank, one instance or all."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable, Iterator, Sequence
from contextlib import aclosing
from itertools import count, groupby

import msgspec

from k8s.client.client import Client
from k8s.cluster.backoff import DEFAULT_BACKOFF, Backoff
from k8s.logs.follow import Follower, LogRequest
from k8s.logs.line_queue import MAX_STREAMS, LogSelection, by_time, ordered
from k8s.logs.lines import (
    LONGEST_LINE_BYTES,
    MAX_LINE_BYTES,
    Item,
    LogBlock,
    LogLine,
    Mark,
    Marker,
    Target,
    in_time_order,
    to_stamp,
    write_stamp,
)
from k8s.logs.prefixes import RankReader, named_start
from k8s.text.errors import NotFound
from k8s.text.sanitize import log_text

_WINDOW_S = 0.25
_WAITING_BATCHES = 64
_TERMINAL_CHARS = 1_000_000
_NOBODY = Target("", "")
# Of a line that is printed before its end.
_PIECE_BYTES = 256 * 1024
_WITHHELD_LINES, _WITHHELD_BYTES = 10_000, 16 * 2**20


class Options(msgspec.Struct, frozen=True):
    """Options of `gpuconsole logs JOB`."""

    follow: bool = False
    tail: int | None = None
    since_s: int | None = None
    since_time: str = ""
    instance: str = ""
    """All lines of an instance, by its short name (`worker-2`) or its pod."""
    rank: int | None = None
    """Global rank: its lines, and those that name no rank unless its pod marks lines with ranks."""
    container: str = ""
    previous: bool = False
    every: bool = False
    raw: bool = False
    """Return `LogBlock`s to be written as they are: of a single log without times, of `every` with names."""
    first_rank: bool = False
    """Read only rank 0 of the chief even if its ranks are not declared, as with a launcher."""


def choose(targets: Sequence[Target], options: Options) -> tuple[list[Target], LogSelection]:
    """Return the logs to read and the lines to select, by default the chief's rank 0.

    Raises:
        NotFound: No instance or rank matches; the message lists those that exist.
    """
    if options.container:
        targets = [msgspec.structs.replace(each, container=options.container) for each in targets]
    if not targets:
        raise NotFound("There is no log to read yet.", "The job has no pods.", "Ask why with: gpuconsole why")
    if options.every:
        return list(targets), LogSelection()
    if options.instance:
        selected = [each for each in targets if options.instance in (each.name, each.pod)]
        if not selected:
            names = ", ".join(dict.fromkeys(each.name for each in targets))
            raise NotFound(f"There is no instance {options.instance}.", f"The job has {names}.")
        return selected, LogSelection(instance=selected[0].name)
    if options.rank is not None:
        selected = [each for each in targets if options.rank in each.ranks or each.prints_all_ranks]
        if not selected and any(each.ranks for each in targets):
            ranks = sorted(rank for each in targets for rank in each.ranks)
            raise NotFound(
                f"There is no rank {options.rank}.", f"The job has ranks {ranks[0]} to {ranks[-1]}."
            )
        # If no pod declares its ranks, only the prefixes of lines show them.
        if not selected or _may_move(targets, options):
            selected = list(targets)
        return selected, LogSelection(rank=options.rank)
    chief = next((each for each in targets if each.is_chief), targets[0])
    rank = min(chief.ranks, default=0 if options.first_rank else None)
    if rank is None:
        return [chief], LogSelection(instance=chief.name)
    return list(targets) if _may_move(targets, options) else [chief], LogSelection(rank=rank)


def _may_move(targets: Sequence[Target], options: Options) -> bool:
    # Pods that have yet to print may turn out to run the rank, so all of them are followed.
    is_assumed = any(each.ranks_proof in ("assumed", "observed") for each in targets)
    is_launched = any(each.prints_all_ranks for each in targets)
    return options.follow and is_assumed and not is_launched and 1 < len(targets) <= MAX_STREAMS


async def read(
    client: Client,
    targets: Sequence[Target] | AsyncIterable[Sequence[Target]],
    options: Options,
    *,
    backoff: Backoff = DEFAULT_BACKOFF,
) -> AsyncGenerator[Sequence[Item], None]:
    """Yield batches of the items that `options` select: lines for stdout, markers for stderr.

    Nothing is dropped; a slow consumer slows reading down. Format lines with a `LinePrinter`. With
    `options.follow`, a stream of targets lets new pods join.

    Raises:
        NotFound: There is no such instance, rank or pod; for a rank that no pod declares, raised at the end.
        KubeError: A log could not be read, without follow.
    """
    updates: AsyncIterator[Sequence[Target]] | None = None
    if isinstance(targets, AsyncIterable):
        updates = aiter(targets)
        targets = await anext(updates)
    selected, selection = choose(targets, options)
    rank = selection.rank
    is_declared = rank is None or any(rank in each.ranks for each in selected)
    # Every job has a rank 0, and the chief runs it.
    chief = next((each for each in selected if each.is_chief), selected[0])
    owner = next((each for each in selected if rank is not None and rank in each.ranks), chief)
    instance = owner.name if rank == 0 or len(selected) == 1 or _may_move(selected, options) else ""
    finder = _RankFinder(rank) if rank and not is_declared else None
    follow = options.follow and not options.previous
    is_from_start = options.tail is None and options.since_s is None and not options.since_time
    is_single = len(selected) == 1 and not options.every
    request = LogRequest(
        tail=options.tail,
        since_s=options.since_s,
        since_time=options.since_time,
        follow=follow,
        previous=options.previous,
        max_line_bytes=LONGEST_LINE_BYTES,
        # Lines of several pods stay whole.
        piece_bytes=_PIECE_BYTES if is_single else 0,
        is_raw=options.raw and is_from_start and is_single and not follow and finder is None,
        is_named=options.raw and options.every and not follow,
    )
    numbers = count()
    own = None
    if is_declared and (options.rank is not None or _may_move(selected, options)):
        own = _OwnLines(selection, instance, withholds=not follow, keeps_unmarked=options.rank is None)
    blocks = _RankBlocks(selected[0], rank, own) if request.is_raw and rank is not None else None
    followers = [Follower(client, each, request, backoff=backoff, numbers=numbers) for each in selected]
    sources = [each.batches() for each in followers]
    batches: AsyncGenerator[Sequence[Item], None] = sources[0]
    if request.is_named:
        batches = _named(sources)
    elif request.follow and (len(followers) > 1 or updates is not None):
        by_key = {each.target.key: each for each in followers}
        merged = _MergedFollowers(client, by_key, request, backoff, numbers)
        batches = merged.batches(updates, options)
    elif len(followers) > 1:
        batches = by_time(sources)
    async with aclosing(batches):
        async for batch in batches:
            chosen: Sequence[Item] = batch
            if blocks is not None:
                chosen = blocks.take(batch)
            elif finder is not None:
                chosen = [ready for item in batch for ready in finder.take(item)]
            elif own is not None:
                chosen = own.take(batch)
            elif not selection.is_merged and not request.is_raw:
                chosen = [item for item in batch if selection.matches(item, instance)]
            if chosen:
                yield chosen
    if finder is not None:
        finder.require_found()
    if own is not None:
        yield own.rest()


class _OwnLines:
    # The lines of one rank of a pod that runs several. Those that name no rank, as torchrun's own, count
    # until a line names one: in a pod that marks no lines, any may be the rank's. A line that proves another
    # pod to run the rank moves it there.
    def __init__(
        self, selection: LogSelection, instance: str, *, withholds: bool, keeps_unmarked: bool = False
    ) -> None:
        self._selection, self._instance, self.withholds = selection, instance, withholds
        self._keeps_unmarked = keeps_unmarked
        self._withheld: list[Item] = []
        self._withheld_bytes = 0
        self.is_marked = False

    def take(self, batch: Sequence[Item], *, has_no_end: bool = False) -> list[Item]:
        # A line without an end is not withheld: it may be of any length.
        chosen: list[Item] = []
        rank = self._selection.rank
        for item in batch:
            if isinstance(item, LogLine):
                if item.rank_is_proven and item.rank == rank and self._instance:
                    self._instance = item.source.name
                is_here = self._instance in ("", item.source.name)
                if is_here and item.rank is not None and not self.is_marked:
                    self.is_marked, self.withholds = not self._keeps_unmarked, False
                    self._withheld.clear()
                if not is_here or (item.rank != rank if self.is_marked else not self._matches(item)):
                    continue
                if self.withholds:
                    self._withheld.append(item)
                    self._withheld_bytes += len(item.raw)
                    is_full = len(self._withheld) >= _WITHHELD_LINES or self._withheld_bytes > _WITHHELD_BYTES
                    if not (is_full or has_no_end):
                        continue
                    self.withholds = False
                    chosen += self.rest()
                    continue
            elif not self._matches(item):
                continue
            chosen.append(item)
        return chosen

    def _matches(self, item: Item) -> bool:
        return self._selection.matches(item, self._instance)

    def rest(self) -> list[Item]:
        found, self._withheld = self._withheld, []
        return found


class _RankBlocks:
    # The lines of one rank in the blocks of its pod; of a rank by default those that name no rank, too.
    def __init__(self, target: Target, rank: int, own: _OwnLines | None) -> None:
        self._target, self._own = target, own
        self._ranks = (rank,) if own is not None else (rank, None)
        self._reader = RankReader(target.ranks, prints_all_ranks=target.prints_all_ranks)
        self._partial = bytearray()
        # Of a line that is passed on or left out in pieces: True if it is passed on.
        self._passes: bool | None = None

    def take(self, batch: Sequence[Item]) -> list[Item]:
        chosen: list[Item] = []
        for item in batch:
            if not isinstance(item, LogBlock):
                chosen.append(item)
                continue
            raw = item.raw
            if self._passes is not None:
                end = raw.find(b"\n") + 1 or len(raw)
                chosen += self._block(raw[:end]) if self._passes else []
                self._passes = None if raw[end - 1 : end] == b"\n" else self._passes
                raw = raw[end:]
            *lines, rest = raw.split(b"\n")
            if lines:
                lines[0] = bytes(self._partial) + lines[0]
                self._partial.clear()
                chosen += self._take_lines(lines)
            self._partial += rest
            is_withheld = self._own is not None and self._own.withholds
            if len(self._partial) > (_WITHHELD_BYTES if is_withheld else MAX_LINE_BYTES):
                chosen += self._begin_long(bytes(self._partial))
                self._partial.clear()
        return chosen

    def _take_lines(self, lines: Sequence[bytes]) -> list[Item]:
        owner_of = self._reader.owner
        if self._own is not None and not self._own.is_marked:
            return self._own.take([LogLine(0, each, self._target, 0, *owner_of(each)) for each in lines])
        return self._block(b"".join([line + b"\n" for line in lines if owner_of(line)[0] in self._ranks]))

    def _begin_long(self, start: bytes) -> list[Item]:
        line = LogLine(0, start, self._target, 0, *self._reader.owner(start))
        if self._own is None or self._own.is_marked:
            self._passes = line.rank in self._ranks
            return self._block(start) if self._passes else []
        found = self._own.take([line], has_no_end=True)
        self._passes = any(each is line for each in found)
        return [*(each for each in found if each is not line), *(self._block(start) if self._passes else ())]

    def _block(self, text: bytes) -> list[Item]:
        return [LogBlock(0, text, self._target, 0)] if text else []


def _rows(batch: list[Item]) -> tuple[list[bytes], list[bytes | Marker]]:
    if len(batch) == 1 and isinstance(batch[0], LogBlock):
        return [*batch[0].stamps], [*batch[0].lines]
    stamps: list[bytes] = []
    rows: list[bytes | Marker] = []
    for item in batch:
        if isinstance(item, LogBlock):
            stamps += item.stamps
            rows += item.lines
            continue
        stamps.append(to_stamp(item.stamp_ns))
        rows.append(
            named_start(item.source.name, item.rank) + item.text if isinstance(item, LogLine) else item
        )
    return ordered(stamps), rows


async def _named(sources: Sequence[AsyncGenerator[list[Item], None]]) -> AsyncGenerator[list[Item], None]:
    # Lines as they are printed, merged by time into one block between two markers.
    async with aclosing(by_time(sources, _rows)) as batches:
        async for rows in batches:
            has_markers = Marker in map(type, rows)
            for kind, group in groupby(rows, type) if has_markers else ((bytes, rows),):
                some = [*group]
                yield some if kind is Marker else [LogBlock(0, b"\n".join([*some, b""]), _NOBODY, 0)]


class _RankFinder:
    def __init__(self, rank: int) -> None:
        self._selection = LogSelection(rank=rank)
        self._instance = ""
        self._seen: set[int] = set()
        self._withheld: dict[str, deque[LogLine]] = {}
        self._left_out = 0

    def take(self, item: Item) -> list[Item]:
        # Lines without a rank wait until it is known that their pod runs the rank.
        if self._instance:
            return [item] if self._selection.matches(item, self._instance) else []
        if not isinstance(item, LogLine):
            return [item]
        name = item.source.name
        if item.rank is None:
            withheld = self._withheld.setdefault(name, deque(maxlen=_WITHHELD_LINES))
            self._left_out += len(withheld) == _WITHHELD_LINES
            withheld.append(item)
            return []
        self._seen.add(item.rank)
        if item.rank != self._selection.rank:
            return []
        self._instance = name
        ready: list[Item] = [*self._withheld.pop(name, ()), item]
        self._withheld.clear()
        if self._left_out:
            text = f"{self._left_out:,} earlier lines that name no rank are not printed"
            ready.insert(0, Marker(Mark.NOTE, text, item.source))
        return ready

    def require_found(self) -> None:
        if self._instance:
            return
        ranks = ", ".join(map(str, sorted(self._seen)[:20])) + (", …" if len(self._seen) > 20 else "")
        why = f"the lines name ranks {ranks}" if ranks else "no line names a rank"
        raise NotFound(
            f"There is no line of rank {self._selection.rank}.",
            f"The job does not declare its ranks, and {why}.",
            "Read an instance with -i NAME, or all with --all.",
        )


class _MergedFollowers(msgspec.Struct):
    client: Client
    followers: dict[tuple[str, str, str], Follower]
    request: LogRequest
    backoff: Backoff
    numbers: Iterator[int]
    queue: asyncio.Queue[Sequence[Item] | None] = msgspec.field(
        default_factory=lambda: asyncio.Queue(_WAITING_BATCHES)
    )
    left: int = 0
    is_watching: bool = True

    async def batches(
        self, updates: AsyncIterator[Sequence[Target]] | None, options: Options
    ) -> AsyncGenerator[list[Item], None]:
        # In its own task: a generator that is closed inside a TaskGroup raises BaseExceptionGroup.
        running = asyncio.create_task(self._run(updates, options))
        try:
            while self.left or self.is_watching or not self.queue.empty():
                items = list(await self.queue.get() or ())
                deadline = asyncio.get_running_loop().time() + _WINDOW_S
                while len(items) < 5_000:
                    try:
                        async with asyncio.timeout_at(deadline):
                            items.extend(await self.queue.get() or ())
                    except TimeoutError:
                        break
                yield in_time_order(items)
        finally:
            running.cancel()
            await asyncio.wait([running])
        if not running.cancelled() and (error := running.exception()) is not None:
            raise error.exceptions[0] if isinstance(error, ExceptionGroup) else error

    async def _run(self, updates: AsyncIterator[Sequence[Target]] | None, options: Options) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for follower in self.followers.values():
                    self._start(group, follower)
                self.is_watching = updates is not None
                if updates is not None:
                    group.create_task(self._watch(group, updates, options))
        except Exception:
            self.left, self.is_watching = 0, False
            await self.queue.put(None)
            raise

    def _start(self, group: asyncio.TaskGroup, follower: Follower) -> None:
        follower.is_streamed = self.left < MAX_STREAMS
        self.left += 1
        group.create_task(self._follow(follower))

    async def _follow(self, follower: Follower) -> None:
        async with aclosing(follower.batches()) as batches:
            async for batch in batches:
                await self.queue.put(batch)
        self.left -= 1
        await self.queue.put(None)

    async def _watch(
        self, group: asyncio.TaskGroup, updates: AsyncIterator[Sequence[Target]], options: Options
    ) -> None:
        async for targets in updates:
            try:
                selected, _ = choose(targets, options)
            except NotFound:
                continue
            for target in selected:
                if target.key in self.followers:
                    self.followers[target.key].retarget(target)
                    continue
                follower = Follower(
                    self.client, target, self.request, backoff=self.backoff, numbers=self.numbers
                )
                self.followers[target.key] = follower
                self._start(group, follower)
        self.is_watching = False
        await self.queue.put(None)


class LinePrinter:
    """Formats lines for output; for a terminal they are sanitized, a pipe or file gets the raw bytes."""

    def __init__(self, *, timestamps: bool = False, name: bool = False, is_terminal: bool = False) -> None:
        self._timestamps, self._name, self._is_terminal = timestamps, name, is_terminal
        self._open: Target | None = None  # the writer of a line whose end is still to come

    def format(self, lines: Iterable[LogLine]) -> bytes:
        """Return lines with their ends, and blocks as they are."""
        if self._timestamps or self._is_terminal:
            return b"".join(map(self._full, lines))
        if self._name:
            return b"".join(
                [
                    named_start(line.source.name, line.rank) + line.text + b"\n"
                    if type(line) is LogLine
                    else line.raw
                    for line in lines
                ]
            )
        return b"".join(
            [line.raw if type(line) is LogBlock else self._ended(line, line.raw) for line in lines]
        )

    def _ended(self, line: LogLine, text: bytes) -> bytes:
        if line.has_end and self._open is None:
            return text + b"\n"
        is_broken = self._open is not None and not (line.offset and self._open.key == line.source.key)
        self._open = None if line.has_end else line.source
        return b"\n" * is_broken + text + b"\n" * line.has_end

    def _full(self, line: LogLine) -> bytes:
        stamp = f"{write_stamp(line.stamp_ns)} ".encode() if self._timestamps and line.is_stamped else b""
        text = line.text if self._name else line.raw
        if self._is_terminal and (line.offset or not line.has_end):  # a bar is drawn as it comes
            text = b"\r".join(log_text(each, cap=_TERMINAL_CHARS).encode() for each in text.split(b"\r"))
        elif self._is_terminal:
            text = log_text(text, cap=_TERMINAL_CHARS, missing_bytes=line.missing_bytes).encode()
        return self._ended(
            line, stamp + (named_start(line.source.name, line.rank) if self._name else b"") + text
        )
