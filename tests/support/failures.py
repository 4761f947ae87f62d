"""Scripted failures: the ends of containers' logs, written in YAML."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from k8s.logs.lines import LogLine, Target
from k8s.logs.prefixes import RankReader
from k8s.reasons.failures import ContainerLog

START = datetime(2026, 11, 23, 10, 0, tzinfo=UTC)
_AT = re.compile(r"@([\d.]+) ")


def read_cases(folder: Path) -> list[dict[str, Any]]:
    return [
        case | {"file": path.stem}
        for path in sorted(folder.glob("*.yaml"))
        for case in yaml.safe_load(path.read_text())
    ]


def container_log(
    text: str = "",
    *,
    instance: str = "worker-0",
    ranks: tuple[int, ...] = (),
    exit: int | None = None,
    finished: float | None = None,
    launcher: bool = False,
    reason: str = "",
    **further: Any,
) -> ContainerLog:
    """Return the end of a container's log; `@12.5` before a line sets its time in seconds."""
    return ContainerLog(
        instance,
        tuple(ranks),
        exit_code=exit,
        finished=None if finished is None else START + timedelta(seconds=finished),
        lines=tuple(log_lines(text, instance, tuple(ranks), launcher)),
        is_launcher=launcher,
        end_reason=reason,
        **further,
    )


def log_lines(text: str, instance: str, ranks: tuple[int, ...], is_launcher: bool) -> Iterator[LogLine]:
    """Yield the lines as they are read from a pod, with the ranks that their prefixes prove."""
    reader = RankReader(ranks, prints_all_ranks=is_launcher)
    target = Target("vision", f"job-{instance}", instance=instance, ranks=ranks)
    now_ns = int(START.timestamp()) * 10**9
    for seq, line in enumerate(text.split("\n") if text else ()):
        if at := _AT.match(line):
            now_ns = int((START.timestamp() + float(at[1])) * 10**6) * 1000
            line = line[at.end() :]
        now_ns += 1_000_000
        raw = line.encode(errors="surrogateescape")
        yield LogLine(now_ns, raw, target, seq, *reader.owner(raw))
