"""One-shot reads of the end of a log, with the rank of each line, and the ranks that the lines prove."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from msgspec.structs import replace

from k8s.client.client import REQUEST_S, Client
from k8s.client.transport import translated
from k8s.cluster.job_builder import RankEvidence, has_assumed_ranks
from k8s.logs.lines import LogLine, Splitter, Target, targets_of
from k8s.logs.prefixes import RankReader
from k8s.snapshot import Job
from k8s.text.errors import KubeError, ServerFailed

# Limit for logs with very long lines: bytes returned, and times as many that are received.
MAX_BYTES, MAX_READ_TIMES = 1024 * 1024, 16
# The end of a log is recognised by so many bytes.
END_BYTES = 512
# Pods that are read to find a job's ranks, at once and in all, and lines and bytes of each.
PROBES, MAX_PROBED, PROBE_LINES, PROBE_BYTES = 16, 64, 100, 256 * 1024
# Seconds until a pod is probed again that has sent more.
FLOODED_S = 60.0


async def read_tail(
    client: Client,
    target: Target,
    lines: int,
    *,
    previous: bool = False,
    since_time: str = "",
    max_bytes: int = MAX_BYTES,
    idle_s: float = REQUEST_S,
    is_urgent: bool = True,
    is_whole: bool = False,
) -> tuple[LogLine, ...]:
    """Return the last lines of a container's log, or of its run before the last restart.

    `since_time` is RFC 3339 in whole seconds; older lines are excluded. Of a single line that is longer
    than `max_bytes`, the start is returned. `is_whole` makes sure that a log that is over is read to its end.

    Raises:
        Forbidden: The user may not read logs.
        KubeError: There is no such log, or it could not be read.
    """
    body, read_bytes = bytearray(), 0
    async with client.log(
        target.pod,
        target.namespace,
        container=target.container,
        tail=lines,
        timestamps=True,
        previous=previous,
        since_time=since_time,
        idle_s=idle_s,
        open_s=REQUEST_S,
        is_urgent=is_urgent,
    ) as stream:
        with translated(f"read the log of {target.pod}"):
            async for chunk in stream.iter_any():
                read_bytes += len(chunk)
                body += chunk
                if len(body) > 2 * max_bytes:
                    del body[:-max_bytes]
                if read_bytes > max_bytes * (MAX_READ_TIMES if lines > 1 else 1):
                    break
            else:
                if is_whole and body and not await reaches_end(client, target, body, previous=previous):
                    raise ServerFailed(f"Could not read the log of {target.pod}.", "The answer was cut.")
    if lines == 1:
        del body[max_bytes:]
    elif read_bytes > max_bytes:
        del body[:-max_bytes]
        del body[: body.find(b"\n") + 1]  # the rest of a line whose timestamp was cut off
    splitter, reader = Splitter(), RankReader(target.ranks, prints_all_ranks=target.prints_all_ranks)
    pieces = [*splitter.feed(bytes(body)), *splitter.finish()]
    return tuple(
        LogLine(p.stamp_ns, p.raw, target, seq, *reader.owner(p.raw), p.missing_bytes, bool(p.stamp_ns))
        for seq, p in enumerate(pieces)
    )


async def reaches_end(
    client: Client,
    target: Target,
    last_bytes: bytes | bytearray,
    *,
    timestamps: bool = True,
    previous: bool = False,
) -> bool:
    """Return True if an answer ends as the log does; False also if the log has grown.

    If the kubelet dies, the API server ends its answer after some line, as if it were whole.

    Raises:
        KubeError: The log cannot be read, so that the kubelet may have died.
    """
    end = b""
    async with client.log(
        target.pod,
        target.namespace,
        container=target.container,
        tail=1,
        timestamps=timestamps,
        previous=previous,
        idle_s=REQUEST_S,
        open_s=REQUEST_S,
    ) as stream:
        with translated(f"read the log of {target.pod}"):
            async for chunk in stream.iter_any():
                end = (end + chunk)[-END_BYTES:]
    return last_bytes.endswith(end)


class JobRanks:
    """The ranks of a job's pods, as their lines prove them where the job does not declare them."""

    def __init__(self) -> None:
        # By pod UID: time of the newest proof, and the ranks.
        self._proven: dict[str, tuple[int, tuple[int, ...]]] = {}
        self._has_lines: dict[str, bool] = {}
        self._sizes: dict[str, int] = {}
        self.probe_after_s: dict[str, float] = {}
        """Monotonic time before which a pod that floods is not read for its ranks, by pod UID."""

    def add(self, target: Target, lines: Sequence[LogLine]) -> None:
        """Learn from the last lines of a pod."""
        uid = target.pod_uid
        self._has_lines[uid] = bool(lines) or self._has_lines.get(uid, False)
        size = self._sizes.setdefault(uid, len(target.ranks) if target.ranks_proof == "assumed" else 0)
        if proofs := [line for line in lines if line.rank is not None and line.rank_is_proven]:
            seen = [line.rank for line in proofs if line.rank is not None]
            first = seen[-1] // max(size, 1) * size
            # A launcher numbers the ranks of a pod in succession.
            ranks = (
                range(first, first + size)
                if size
                else sorted({*(self._ranks_of(uid) or target.ranks), *seen})
            )
            self._proven[uid] = proofs[-1].stamp_ns, tuple(ranks)

    def _ranks_of(self, uid: str) -> tuple[int, ...]:
        return self._proven.get(uid, (0, ()))[1]

    def is_known(self, job: Job, rank: int = 0) -> bool:
        """Return True if a line proves the pod of a rank, or if there is nothing to find out."""
        return not has_assumed_ranks(job.instances) or any(
            rank in self._ranks_of(each.pod_uid) or (rank in each.ranks and each.ranks_proof == "observed")
            for each in job.instances
        )

    def evidence(self, job: Job, restarts: Mapping[str, Sequence[str]]) -> RankEvidence | None:
        """Return the proven ranks of a job's pods, by the newest lines; None if there are none."""
        if not restarts and not (self._has_lines and has_assumed_ranks(job.instances)):
            return None
        owners: dict[int, str] = {}
        for each in sorted(job.instances, key=lambda each: self._proven.get(each.pod_uid, (0, ()))):
            owners |= dict.fromkeys(self._ranks_of(each.pod_uid), each.pod_uid)
        ranks = {uid: tuple(rank for rank in owners if owners[rank] == uid) for uid in owners.values()}
        return RankEvidence(ranks, dict(self._has_lines), restarts)

    def apply(self, job: Job) -> Job:
        """Return the job with these ranks, to choose from its pods."""
        evidence = self.evidence(job, {})
        return job if evidence is None else replace(job, instances=evidence.apply(job.instances))


async def find_ranks(
    client: Client,
    job: Job,
    rank: int = 0,
    *,
    ranks: JobRanks | None = None,
    previous: bool = False,
    is_urgent: bool = True,
) -> Job:
    """Return the job with the ranks that its pods' last lines prove; see `JobRanks.apply`.

    Reads the pod that is assumed to run `rank`, and the others only if that does not prove it. Pods that
    cannot be read prove nothing.
    """
    ranks = ranks or JobRanks()

    async def read(target: Target) -> None:
        if time.monotonic() < ranks.probe_after_s.get(target.pod_uid, 0.0):
            return
        with suppress(KubeError):
            found = await read_tail(
                client, target, PROBE_LINES, previous=previous, max_bytes=PROBE_BYTES, is_urgent=is_urgent
            )
            if sum(len(line.raw) + line.missing_bytes for line in found) > PROBE_BYTES // 2:
                ranks.probe_after_s[target.pod_uid] = time.monotonic() + FLOODED_S
            ranks.add(target, found)

    if not has_assumed_ranks(job.instances):
        return job
    targets = sorted(targets_of(job), key=lambda each: rank not in each.ranks)
    starts = (0, *range(1, min(len(targets), MAX_PROBED), PROBES))
    for start in starts:
        if not ranks.is_known(job, rank):
            await asyncio.gather(*map(read, targets[start : start + PROBES if start else 1]))
    return ranks.apply(job)
