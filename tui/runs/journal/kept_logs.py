"""Logs that outlive their pods: the last lines of each container of a job, compressed in the journal.

The cluster's own store, if it has one, is read for the others.
"""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from k8s.kinds import KINDS, pod_pattern
from k8s.logs import LogLine, Target, targets_of
from k8s.logs.lines import read_stamp, write_stamp
from k8s.models.resources import Resource
from k8s.snapshot import Job
from k8s.text.errors import KubeError, NotFound
from k8s.text.sanitize import log_text, sanitize
from tui.runs.journal.database import Journal
from tui.runs.journal.history import OVER
from tui.runs.record import RunRecord

if TYPE_CHECKING:
    from k8s.client.client import Client
    from k8s.logs.stores import LogStore, StoredLog

# Kept of each container, and containers of one job.
KEPT_LINES, KEPT_LOGS = 2_000, 64
# Pods of which a view shows stored lines, and seconds before and after a run in which it may have printed.
SHOWN_LOGS, AROUND_S = 8, 60.0
_CHIEFS = ("launcher", "master", "chief", "head")
# Lines that were only streamed do not take the place of a log that was read.
_PUT = "INTO logs (uid, pod, container, target, kept_s, is_partial, body) VALUES (?, ?, ?, ?, ?, ?, ?)"
_PUT_READ, _PUT_STREAMED = f"INSERT OR REPLACE {_PUT}", f"INSERT OR IGNORE {_PUT}"

ReadTail = Callable[[Target, int], Awaitable[Sequence[LogLine]]]
"""Reads the last lines of a container's log."""
Streamed = Callable[[Target, int], Sequence[LogLine]]
"""Returns the last lines that were streamed of it."""


async def keep_logs(journal: Journal, job: Job, read_tail: ReadTail | None, streamed: Streamed) -> None:
    """Keep the last lines of a job's containers; of those that cannot be read, what was streamed."""
    targets, nothing = targets_of(job)[:KEPT_LOGS], list[Target]()
    for target in targets:
        lines: Sequence[LogLine] | None = None
        if read_tail is not None:
            with suppress(KubeError):
                lines = await read_tail(target, KEPT_LINES)
        is_partial = lines is None or not {job.status, target.status} & {*OVER}  # it may print more
        put = _PUT_STREAMED if lines is None else _PUT_READ
        lines = streamed(target, KEPT_LINES) if lines is None else lines
        if lines:
            await asyncio.to_thread(_keep, journal, put, job.uid, target, lines, is_partial)
        elif is_partial:
            nothing.append(target)
    # Beside the logs of others, one of which nothing is known is a gap too.
    for target in nothing if len(nothing) < len(targets) else ():
        await asyncio.to_thread(_keep, journal, _PUT_STREAMED, job.uid, target, (), True)
    await asyncio.to_thread(journal.prune)


def _keep(
    journal: Journal, put: str, uid: str, target: Target, lines: Sequence[LogLine], is_partial: bool
) -> None:
    body = b"".join(b"%s %s\n" % (write_stamp(each.stamp_ns).encode(), each.raw) for each in lines)
    about = msgspec.json.encode(target)
    values = target.pod, target.container, about, time.time(), is_partial, zlib.compress(body)
    journal.keep((put, uid, *values))


class KeptLogs:
    """The kept logs of one job. It answers what readers of logs ask a client of the cluster."""

    server_clock_offset_s = 0.0

    def __init__(self, journal: Journal, record: RunRecord) -> None:
        """Read what was kept of a run."""
        found = journal.rows("SELECT target, is_partial, body FROM logs WHERE uid = ?", record.uid)
        self.record = record
        self.is_partial = any(is_partial for _, is_partial, _ in found)
        """True if its pods were gone before they were read to their end."""
        self.is_kept = bool(found)
        self.source = self.problem = ""
        """The store that has others, and until when; the reason that there is none. Empty until searched."""
        self._lines: dict[Target, list[bytes]] = {}
        self._partial = set[Target]()
        self._ends: dict[Target, list[bytes]] = {}
        self._store: LogStore | None = None
        self._stored: dict[Target, StoredLog] = {}
        for about, is_partial, body in found:
            with suppress(msgspec.MsgspecError, zlib.error):  # a damaged one is left out
                target = msgspec.json.decode(about, type=Target)
                self._lines[target] = zlib.decompress(body).split(b"\n")[:-1]
                self._partial |= {target} if is_partial else set()
        self.targets = tuple(sorted(self._lines, key=lambda each: not each.is_chief))

    def lacks_lines(self, tail: int | None = None) -> bool:
        """Return True if some of the last `tail` lines, None for all, may not have been kept."""
        return not self.targets or not all(self._has(each, tail) for each in self.targets)

    def _has(self, target: Target, tail: int | None) -> bool:
        kept = len(self._lines.get(target, ()))
        return target not in self._partial and (0 < kept < KEPT_LINES or (tail is not None and tail <= kept))

    async def add_stored(self, client: Client, log_store: str = "") -> None:
        """Find the containers in the cluster's store, that of config.yaml if one is named there.

        Lines are read when they are requested.
        """
        from k8s.logs.stores import MAX_RANGE_NS, find_logs

        record, known = self.record, {(each.pod, each.container): each for each in self._lines}
        until_s = record.ended_s if record.ended_s is not None else time.time()
        end_ns = int((until_s + AROUND_S) * 1e9)
        start_ns = int(((record.created_s or record.started_s or 0.0) - AROUND_S) * 1e9)
        self._span = start_ns, end_ns = max(start_ns, end_ns - MAX_RANGE_NS), end_ns
        if not (pods := pod_pattern(record.name, record.kind)):
            return
        try:
            self._store, logs = await find_logs(client, log_store, record.namespace, pods, start_ns, end_ns)
            names = {each: each.pod.removeprefix(f"{record.name}-") for each in logs}
            mains = {kind.container for kind in KINDS}
            # Chiefs first, then by number; of each pod first the training container, which stands for it.
            logs.sort(key=lambda each: (len(each.pod), each.pod, each.container not in mains))
            logs.sort(key=lambda each: not names[each].startswith(_CHIEFS))
            for log in logs:
                is_launcher = names[log].startswith("launcher")
                target = Target(*log[:3], instance=names[log], prints_all_ranks=is_launcher)
                target = known.get((log.pod, log.container), target)
                self._stored[target] = log
                if log.pod not in {each.pod for each in self.targets}:
                    self.targets = (*self.targets, target)
            newest = await self._store.tail(logs[0], start_ns, end_ns, 1)
        except KubeError as error:
            self.problem = sanitize(f"{error.what} {error.why}".strip())
            return
        until = datetime.fromtimestamp(read_stamp(newest[-1])[0] / 1e9) if newest else None
        self.source = f"{self._store.name}, until {until:%Y-%m-%d %H:%M:%S}" if until else self._store.name

    def in_container(self, name: str) -> tuple[Target, ...]:
        """Return the containers of a name, sidecars too."""
        return tuple(each for each in dict.fromkeys((*self._lines, *self._stored)) if each.container == name)

    async def load(self) -> None:
        """Read the last stored lines of the first containers, to show them as `texts`."""
        for target in self.targets[:SHOWN_LOGS]:
            self._lines[target] = await self._read(target, KEPT_LINES, 0.0)
            if target in self._stored and not self.problem:
                self._partial.discard(target)

    async def _read(self, target: Target, tail: int | None, first_s: float) -> list[bytes]:
        from k8s.logs.stores import MAX_ENTRIES

        lines = self._lines.get(target, [])
        if self._store is None or target not in self._stored or self._has(target, tail):
            return lines
        if tail == 1 and target in self._ends:  # whether the log was read to its end
            return self._ends[target]
        newer = [] if target in self._partial else lines
        start_ns, end_ns = max(self._span[0], int(first_s * 1e9)), self._span[1]
        end_ns = read_stamp(newer[0])[0] if newer else end_ns
        most = MAX_ENTRIES if tail is None else tail - len(newer)
        try:
            older = await self._store.tail(self._stored[target], start_ns, end_ns, most)
        except KubeError as error:
            self.problem = sanitize(f"{error.what} {error.why}")
            if not lines:
                raise NotFound(error.what, error.why) from error
            return lines
        self.problem = self._store.gaps
        self._ends[target] = (newer or older or lines)[-1:]
        return [*older, *newer] or lines

    def texts(self, most: int = KEPT_LINES) -> Iterator[str]:
        """Yield at most so many lines of the log of each container under its name; only for display."""
        for target in self.targets:
            lines = self.last_lines(target, most)
            which = f"its last {len(lines):,} lines"
            if target in self._partial:
                which = f"{len(lines):,} lines that were read in time; others may be missing"
            yield "\n".join((f"─ {target.name}, {which} ─", *lines, ""))

    def last_lines(self, target: Target, most: int) -> list[str]:
        """Return the last lines of a container, for display."""
        return [log_text(each[read_stamp(each)[1] :]) for each in self._lines.get(target, [])[-most:]]

    async def get(self, resource: Resource, name: str, namespace: str = "") -> dict[str, Any]:
        """Return a pod as far as its log needs it."""
        own = [each for each in dict.fromkeys((*self._lines, *self._stored)) if each.pod == name]
        names, uid = [each.container for each in own], own[0].pod_uid if own else ""
        statuses = [{"name": each, "state": {"terminated": {"exitCode": 0}}} for each in names]
        return {
            "metadata": {"name": name, "namespace": namespace, "uid": uid},
            "spec": {"containers": [{"name": each} for each in names]},
            "status": {"phase": "Succeeded", "containerStatuses": statuses},
        }

    @asynccontextmanager
    async def log(
        self,
        pod: str,
        namespace: str,
        *,
        container: str = "",
        tail: int | None = None,
        since_time: str = "",
        since_s: int | None = None,
        timestamps: bool = False,
        previous: bool = False,
        **_further: object,
    ) -> AsyncIterator[_Body]:
        """Open a kept log, as `Client.log` does.

        Raises:
            NotFound: Nothing was kept of this container, or its previous run was asked for.
        """
        found = [each for each in self.in_container(container) if each.pod == pod]
        if not found or previous:
            raise NotFound(f"Could not read the log of {pod}.", "Only its last run was kept.")
        first_s = time.time() - since_s if since_s else 0.0
        first_s = datetime.fromisoformat(since_time).timestamp() if since_time else first_s
        lines = [each + b"\n" for each in await self._read(found[0], tail, first_s)]
        if first_s:
            lines = [each for each in lines if read_stamp(each)[0] >= first_s * 1e9]
        if tail is not None:
            lines = lines[-tail:] if tail else []
        yield _Body(b"".join(lines if timestamps else [each[read_stamp(each)[1] :] for each in lines]))


class _Body:
    def __init__(self, text: bytes) -> None:
        self._text = text

    async def iter_any(self) -> AsyncIterator[bytes]:
        if self._text:
            yield self._text
