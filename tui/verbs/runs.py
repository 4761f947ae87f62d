"""Actions on past runs, and comparisons of them with jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from k8s.snapshot import Job
from k8s.text.sanitize import sanitize
from tui.runs.record import RunRecord, with_past
from tui.screens.base.console import BaseConsole, Functions
from tui.screens.base.request import ActionRequest, Route

# Concurrent reads of jobs.
MOST_AT_ONCE = 4


def runs(console: BaseConsole, request: ActionRequest) -> None:
    """Show the past runs."""
    from tui.screens.lists.compare import runs_view

    console.views.show(Route("runs"), runs_view(console.context.runs))
    if request.argument and (view := console.views.current) is not None:
        view.filter_text = request.argument.removeprefix("/")


def open_run(console: BaseConsole, request: ActionRequest) -> None:
    """Show everything in the record of a run, and what was kept of its logs."""
    from tui.runs.journal.kept_logs import KeptLogs
    from tui.screens.documents.text import TextView
    from tui.tables.runs import run_text

    uid = request.argument or request.selected
    if (found := console.context.runs.get(uid)) is not None:

        async def fetch() -> str:
            record = console.context.runs.get(uid) or found
            kept = await asyncio.to_thread(KeptLogs, console.context.runs.journal, record)
            client = console.session.client if console.session else None
            if client is not None and client.config.context == record.context and kept.lacks_lines(0):
                await kept.add_stored(client, console.options.log_store)
                await kept.load()
            notes = (f"─ from {kept.source} ─" if kept.source else "", *kept.texts(), kept.problem)
            return "\n".join((run_text(record), *filter(None, notes)))

        console.views.show(Route("open_run", uid), TextView(f"Past runs › {found.name}", fetch))


def past_runs(console: BaseConsole) -> dict[str, RunRecord]:
    """Return the past runs by UID, and the newest of each name by name."""
    found = {each.uid: each for each in console.context.runs.records()}
    return found | {each.name: each for each in found.values() if each.name}


def compare(console: BaseConsole, request: ActionRequest) -> None:
    """Compare jobs and past runs, by name or UID: the settings that differ, and values."""
    from tui.screens.lists.compare import CompareView

    words = request.argument.split()
    past = past_runs(console)
    jobs = {job.ref.name: job for job in reversed(console.snapshot.jobs)}
    jobs |= {job.uid: job for job in console.snapshot.jobs}
    chosen: list[Job | RunRecord] = [job for ref in request.targets if (job := console.snapshot.job(ref))]
    missing = [word for word in dict.fromkeys(words) if word not in jobs and word not in past]
    chosen += [jobs.get(word) or past[word] for word in dict.fromkeys(words) if word not in missing]
    if missing:
        console.notify(
            "Past runs: :runs",
            title=f"No job or past run {sanitize(', '.join(missing))}.",
            severity="warning",
        )
    elif len(chosen) < 2:
        console.notify("Mark them with space.", title="Two or more are compared.", severity="warning")
    else:
        names = " ".join(each.uid for each in chosen)
        view = CompareView(len(chosen), partial(_read, console, chosen))
        console.views.show(Route("compare", names), view)


async def _read(console: BaseConsole, chosen: Sequence[Job | RunRecord]) -> list[RunRecord]:
    from tui.runs.run_records import read_run

    session, store = console.session, console.context.runs
    slots = asyncio.Semaphore(MOST_AT_ONCE)

    async def read(each: Job | RunRecord) -> RunRecord:
        if isinstance(each, RunRecord):
            return each
        if session is None:
            return store.get(each.uid) or RunRecord(each.uid, each.ref.name)
        async with slots:
            journal = store.journal if each.status.is_final else None
            record = await read_run(session.client, each, session.place, session.logs, journal)
        return with_past(record, store.get(each.uid))

    return list(await asyncio.gather(*map(read, chosen)))


FUNCTIONS: Functions = {"compare": compare, "open_run": open_run, "runs": runs}
