"""Logs that outlive their pods: the last lines of each container of a job, compressed in the journal."""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from typing import Any

import msgspec

from k8s.logs import LogLine, Target, targets_of
from k8s.logs.lines import read_stamp, write_stamp
from k8s.models.resources import Resource
from k8s.snapshot import Job
from k8s.text.errors import KubeError, NotFound
from k8s.text.sanitize import log_text
from tui.runs.journal.database import Journal
from tui.runs.record import RunRecord

# Kept of each container, and containers of one job.
KEPT_LINES, KEPT_LOGS = 2_000, 64
# Lines that were only streamed do not take the place of a log that was read.
_PUT = "INTO logs (uid, pod, container, target, kept_s, is_partial, body) VALUES (?, ?, ?, ?, ?, ?, ?)"
_PUT_WHOLE, _PUT_PARTIAL = f"INSERT OR REPLACE {_PUT}", f"INSERT OR IGNORE {_PUT}"

ReadTail = Callable[[Target, int], Awaitable[Sequence[LogLine]]]
"""Reads the last lines of a container's log."""
Streamed = Callable[[Target, int], Sequence[LogLine]]
"""Returns the last lines that were streamed of it."""


async def keep_logs(journal: Journal, job: Job, read_tail: ReadTail | None, streamed: Streamed) -> None:
    """Keep the last lines of a job's containers; of those that cannot be read, what was streamed."""
    for target in targets_of(job)[:KEPT_LOGS]:
        lines: Sequence[LogLine] | None = None
        if read_tail is not None:
            with suppress(KubeError):
                lines = await read_tail(target, KEPT_LINES)
        if is_partial := lines is None:
            lines = streamed(target, KEPT_LINES)
        if lines:
            await asyncio.to_thread(_keep, journal, job.uid, target, lines, is_partial)
    await asyncio.to_thread(journal.prune)


def _keep(journal: Journal, uid: str, target: Target, lines: Sequence[LogLine], is_partial: bool) -> None:
    body = b"".join(b"%s %s\n" % (write_stamp(each.stamp_ns).encode(), each.raw) for each in lines)
    about = msgspec.json.encode(target)
    put = _PUT_PARTIAL if is_partial else _PUT_WHOLE
    values = target.pod, target.container, about, time.time(), is_partial, zlib.compress(body)
    journal.write((put, uid, *values))


class KeptLogs:
    """The kept logs of one job. It answers what readers of logs ask a client of the cluster."""

    server_clock_offset_s = 0.0

    def __init__(self, journal: Journal, record: RunRecord) -> None:
        """Read what was kept of a run."""
        found = journal.rows("SELECT target, is_partial, body FROM logs WHERE uid = ?", record.uid)
        self.record = record
        self.is_partial = any(is_partial for _, is_partial, _ in found)
        """True if its pods were gone before they were read to their end."""
        self._lines: dict[Target, list[bytes]] = {}
        for about, _, body in found:
            with suppress(msgspec.MsgspecError, zlib.error):  # a damaged one is left out
                target = msgspec.json.decode(about, type=Target)
                self._lines[target] = zlib.decompress(body).split(b"\n")[:-1]
        self.targets = tuple(sorted(self._lines, key=lambda each: not each.is_chief))

    def texts(self) -> Iterator[str]:
        """Yield the log of each container under its name; only for display."""
        for target in self.targets:
            lines = self._lines[target]
            shown = (log_text(each[read_stamp(each)[1] :]) for each in lines)
            yield "\n".join((f"─ {target.name}, its last {len(lines):,} lines ─", *shown, ""))

    async def get(self, resource: Resource, name: str, namespace: str = "") -> dict[str, Any]:
        """Return a pod as far as its log needs it."""
        own = [each for each in self.targets if each.pod == name]
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
        found = [each for each in self.targets if (each.pod, each.container) == (pod, container)]
        if not found or previous:
            raise NotFound(f"Could not read the log of {pod}.", "Only its last run was kept.")
        lines = [each + b"\n" for each in self._lines[found[0]]]
        first_s = time.time() - since_s if since_s else 0.0
        first_s = datetime.fromisoformat(since_time).timestamp() if since_time else first_s
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
