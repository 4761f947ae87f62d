"""Signs of life and losses for commands, read once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Sequence
from contextlib import suppress

from msgspec.structs import replace

from k8s.cluster.cluster_mirror import ClusterMirror
from k8s.logs.lines import Target, targets_of
from k8s.logs.liveness import JobLiveness
from k8s.logs.tail import JobRanks, find_ranks, read_tail
from k8s.snapshot import ClusterSnapshot, CurveAlert, Job, LifeSigns
from k8s.status import Status
from k8s.text.errors import KubeError
from tui.commands.support.connect import server_clock
from tui.runs.alerts import curve_alerts, shown_alerts, signs_at_end
from tui.runs.log_points import log_curves
from tui.runs.record import loss_tag
from tui.runs.store import RunStore
from tui.session.life import FIRST_LINES, LINES, few_of
from tui.tables.jobs import JobsNow

# Limits of one command: logs to read, and seconds for all of them.
MAX_ONCE, ONCE_S = 64, 5.0


async def read_life(
    mirror: ClusterMirror, jobs: Collection[Job], runs: RunStore, *, lines: int = LINES
) -> tuple[ClusterSnapshot, JobsNow]:
    """Read the last lines of running jobs, and of ended ones whose last loss is not stored.

    Reads at most `MAX_ONCE` logs in `ONCE_S` seconds, chiefs first, and skips unreadable ones.

    Returns:
        The snapshot with what these show, and the time with the losses.
    """
    client = mirror.client
    ended = [job for job in jobs if job.status.is_final and job.uid not in runs]
    life = {
        job.uid: (job, JobLiveness(needs_confirmation=False)) for job in jobs if job.status is Status.RUNNING
    }
    by_job = [(job, targets_of(job)) for job in (*(job for job, _ in life.values()), *ended)]
    chiefs = [(job, targets[0]) for job, targets in by_job if targets]
    others = [(job, each) for job, targets in by_job if job.uid in life for each in targets[1:]]
    found: dict[str, Sequence[float]] = {}
    ranks = {job.uid: JobRanks() for job, _ in by_job}
    alerts: dict[str, tuple[CurveAlert, ...]] = {}

    async def read(job: Job, target: Target) -> None:
        with suppress(KubeError):
            if job.uid not in life:
                target = targets_of(await find_ranks(client, job, ranks=ranks[job.uid]))[0]
            sent_s, now_s = time.time(), asyncio.get_running_loop().time()
            # The tracebacks of many ranks may follow the last loss.
            most = lines if job.uid in life else FIRST_LINES
            tail = await read_tail(client, target, most, idle_s=ONCE_S)
            ranks[job.uid].add(target, tail)
            is_first = target.is_chief or job.uid not in found or any(line.rank == 0 for line in tail)
            curves = {each.tag: each for each in log_curves(tail)} if is_first else {}
            if tag := loss_tag(curves):
                found[job.uid] = few_of(curves[tag].values)
                alerts[job.uid] = shown_alerts(curve_alerts(curves, tag))
            if job.uid in life:
                life[job.uid][1].add(target, tail, sent_s + client.server_clock_offset_s, now_s)
            else:
                from tui.runs.journal.kept_facts import keep_curves
                from tui.runs.run_records import describe_run, with_log  # slow to import

                runs.add(with_log(await describe_run(client, job), tuple(curves.values()), tail))
                keep_curves(runs.journal, job.uid, curves.values(), is_log=True)

    with suppress(TimeoutError):
        async with asyncio.timeout(ONCE_S):
            await asyncio.gather(*(read(*each) for each in (*chiefs, *others)[:MAX_ONCE]))
    signs = {job.uid: signs_at_end(job, runs.get(job.uid)) for job in jobs if job.uid not in life}
    restarts = {uid: each.rank_restarts for uid, (_, each) in life.items()}
    for uid, (job, each) in life.items():
        signs[uid] = LifeSigns(each.silence(job), each.stragglers(job), alerts.get(uid, ()))
    proven = ((job.uid, ranks[job.uid].evidence(job, restarts.get(job.uid, {}))) for job, _ in by_job)
    mirror.evidence = {uid: each for uid, each in proven if each is not None}
    snapshot = mirror.snapshot() if mirror.evidence else mirror.latest
    snapshot = replace(snapshot, life=signs, is_synced=True)
    return snapshot, JobsNow(server_clock(client), found, runs.get, snapshot.signs)
