"""Jobs that are gone, found by name in the journal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import cast

from k8s.client.auth.cluster_config import ClusterConfig
from k8s.client.client import Client
from k8s.logs.tail import read_tail
from k8s.reasons.failures import ContainerLog, FailureCause, Triage, triage
from k8s.reasons.failures.log_tails import LINES
from tui.commands.support.connect import known_causes, with_cluster_flags
from tui.commands.support.job_name import split_name
from tui.runs.journal.kept_logs import KeptLogs
from tui.runs.record import RunRecord
from tui.runs.store import RunStore
from tui.settings.options import ConsoleOptions


def find_past(
    store: RunStore, options: ConsoleOptions, config: ClusterConfig, words: str, job_type: str
) -> Iterator[RunRecord]:
    """Yield the runs that a user names on a cluster, the newest first.

    Args:
        store: Past runs of all clusters.
        options: Tell whether all namespaces are searched.
        config: Names the context and the namespace.
        words: NAME or KIND/NAME.
        job_type: Required kind, as the user typed it; empty for any.
    """
    kind, name = split_name(words)
    kind = (kind or job_type).lower()
    for each in reversed(store.records()):
        is_named = each.name == name and each.kind.lower().startswith(kind)
        is_near = options.is_all_namespaces or each.namespace == config.namespace
        if is_named and is_near and each.context == config.context:
            yield each


def find_kept(options: ConsoleOptions, config: ClusterConfig, words: str, job_type: str) -> KeptLogs | None:
    """Return the logs of the newest such run of which any were kept; None if there is none."""
    store = RunStore(options.state_folder)
    past = find_past(store, options, config, words, job_type)
    return next((kept for each in past if (kept := KeptLogs(store.journal, each)).targets), None)


async def explain_past(options: ConsoleOptions, config: ClusterConfig, words: str, job_type: str) -> str:
    """Explain how a job that is gone ended, from its record and kept logs; empty if there are none."""
    store = RunStore(options.state_folder)
    if (record := next(find_past(store, options, config, words, job_type), None)) is None:
        return ""
    kept = KeptLogs(store.journal, record)
    found = await _triage(kept, known_causes(options)) if record.status != "Succeeded" else None
    lines = [f"{gone_line(record)}.", found.reason if found is not None else record.reason]
    if found is not None and found.cause is not None:
        lines += ["", f"Cause: {found.sentence}", found.remedy]
    if kept.targets:
        lines += ["", with_cluster_flags(options, f"See what it printed: gpuconsole logs {record.name}")]
    return "\n".join(each for number, each in enumerate(lines) if each or number > 1)


async def _triage(kept: KeptLogs, causes: Sequence[FailureCause]) -> Triage | None:
    client = cast("Client", kept)
    logs = [
        ContainerLog(
            each.name,
            each.ranks,
            each.container,
            exit_code={"Succeeded": 0, "Failed": 1}.get(each.status),
            lines=await read_tail(client, each, LINES),
            is_launcher=each.prints_all_ranks,
        )
        for each in kept.targets
    ]
    return triage(logs, causes)


def gone_line(record: RunRecord) -> str:
    """Return `PyTorchJob vision/bert is gone (Failed, 2026-11-20 18:04)`."""
    ended = datetime.fromtimestamp(record.ended_s or record.seen_s).strftime("%Y-%m-%d %H:%M")
    return f"{record.kind} {record.namespace}/{record.name} is gone ({record.status}, {ended})"
