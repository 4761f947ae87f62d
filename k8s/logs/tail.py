"""One-shot reads of the end of a log, with the rank of each line."""

from __future__ import annotations

from k8s.client.client import REQUEST_S, Client
from k8s.client.transport import translated
from k8s.logs.lines import LogLine, Splitter, Target
from k8s.logs.prefixes import RankReader

# Limits for logs with very long lines: bytes returned, and bytes received.
MAX_BYTES = 1024 * 1024
MAX_READ_BYTES = 16 * 1024 * 1024


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
) -> tuple[LogLine, ...]:
    """Return the last lines of a container's log, or of its run before the last restart.

    `since_time` is RFC 3339 in whole seconds; older lines are excluded.

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
                if read_bytes > MAX_READ_BYTES:
                    break
    if read_bytes > max_bytes:
        del body[:-max_bytes]
        del body[: body.find(b"\n") + 1]  # the rest of a line whose timestamp was cut off
    splitter, reader = Splitter(), RankReader(target.ranks, prints_all_ranks=target.prints_all_ranks)
    pieces = [*splitter.feed(bytes(body)), *splitter.finish()]
    owned = [(piece, reader.owner(piece.raw)) for piece in pieces]
    return tuple(
        LogLine(
            piece.stamp_ns,
            piece.raw,
            target,
            seq,
            owner.rank,
            rank_is_proven=owner.is_proven,
            prefix_bytes=owner.prefix_bytes,
            missing_bytes=piece.missing_bytes,
            is_stamped=bool(piece.stamp_ns),
        )
        for seq, (piece, owner) in enumerate(owned)
    )
