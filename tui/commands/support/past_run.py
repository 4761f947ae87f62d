"""Jobs that are gone, found by name in the journal, and what it has of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, cast

from k8s.text.errors import KubeError, NotFound, Unreachable, join_sentences
from tui.commands.support.connect import known_causes, with_cluster_flags
from tui.commands.support.job_name import split_name, titles
from tui.commands.support.output import write_list, write_object, write_stderr
from tui.runs.journal.kept_facts import SOURCE, KeptCurves, kept_events
from tui.runs.journal.kept_logs import KEPT_LINES, KeptLogs
from tui.runs.record import RunRecord
from tui.runs.store import RunStore
from tui.settings.options import ConsoleOptions
from tui.tables.column import Values, output_columns, values_of
from tui.tables.runs import COLUMNS, moment
from tui.text.format import Clock, timestamp
from tui.text.kind_words import find_kind

if TYPE_CHECKING:
    from k8s.client.client import Client
    from k8s.models.event import Event
    from k8s.reasons.cause import Cause
    from k8s.reasons.failures import FailureCause, Triage
    from k8s.snapshot import Job
    from trainer.tfevents import ScalarCurve
    from tui.runs.journal.database import Journal


class PastRun:
    """A job that is gone: its record, and what was kept of it."""

    def __init__(self, journal: Journal, record: RunRecord) -> None:
        self.record = record
        self._journal = journal

    @cached_property
    def logs(self) -> KeptLogs:
        """Its logs, read at the first use; so is the rest."""
        return KeptLogs(self._journal, self.record)

    @cached_property
    def curves(self) -> Sequence[ScalarCurve]:
        """Its curves, with few points each."""
        return KeptCurves(self._journal, self.record.uid).curves()

    @cached_property
    def events(self) -> list[tuple[str, Event]]:
        """Its events, each after the name of its object."""
        return kept_events(self._journal, self.record.uid)

    def has(self, what: str) -> bool:
        """Return True if there are any `logs`, `curves` or `events`; empty needs none."""
        return not what or bool(self.logs.targets if what == "logs" else getattr(self, what))

    def reach(self, what: str) -> str:
        """Describe what the journal has of it."""
        if what != "logs":
            return f"{SOURCE} has it until {_minute(self.record.seen_s)}"
        found = f"the last {KEPT_LINES:,} lines of each pod were kept"
        if self.logs.is_partial:
            found = "what was read of its logs in time was kept, and lines may be missing"
        if source := self.logs.source:
            return f"{found}; others are from {source}" if self.logs.is_kept else f"from {source}"
        return found


async def find_past(
    options: ConsoleOptions,
    client: Client,
    words: str,
    job_type: str,
    error: KubeError,
    what: str = "",
    *,
    tail: int | None = 0,
    job: Job | None = None,
) -> PastRun | None:
    """Return the newest run of a name that the journal has, and say so on stderr; None if there is none.

    Missing logs, also those of a job without a record, are searched in the cluster's own store.

    Args:
        options: Tell whether all namespaces are searched, and name the store.
        client: The cluster; names the context and the namespace.
        words: NAME, KIND/NAME or a UID.
        job_type: Required kind, as the user typed it; empty for any.
        error: The cluster's answer that led here.
        what: Facts that the run needs, as an attribute of `PastRun`; empty for none.
        tail: Number of last lines that are needed of its logs; None for all, 0 for none.
        job: The job, if only its pods are gone.

    Raises:
        NotFound: There are such runs, but the journal has no `what` of them.
    """
    kind, name = split_name(words)
    kind = kind or job_type
    kind = (find_kind(kind) if kind else "") or kind
    store = RunStore(options.state_folder, options.history)
    config, is_away = client.config, isinstance(error, Unreachable)
    found = [
        PastRun(store.journal, each)
        for each in reversed(store.records())
        if name in (each.name, each.uid) and each.kind.lower().startswith(kind.lower())
        if options.is_all_namespaces or each.namespace == config.namespace
        if each.context == config.context
    ]
    error.why = "\n".join(filter(None, (error.why, *store.problems)))
    if job is not None:
        created_s = job.created.timestamp() if job.created else None
        found = [
            PastRun(
                store.journal, RunRecord(job.uid, name, job.ref.namespace, job.ref.kind, created_s=created_s)
            )
        ]
    namespace = "" if options.is_all_namespaces else config.namespace
    runs = found or [PastRun(store.journal, RunRecord("", name, namespace, kind))]
    past = next((each for each in runs if each.has(what)), runs[0])
    if tail != 0 and not is_away and past.logs.lacks_lines(tail):
        await past.logs.add_stored(client, options.log_store)
        error.why = "\n".join(filter(None, (error.why, past.logs.problem)))
    if not (found and past.has(what)) and not past.logs.source:
        if not found or job is not None:
            return None
        hint = with_cluster_flags(options, f"To see its record: gpuconsole get {name}")
        why = f"Of its {what}, nothing is in {SOURCE}."
        raise NotFound(f"{gone_line(found[0].record)}.", join_sentences(why, past.logs.problem), hint)
    record = past.record
    gone = gone_line(record) if job is None else f"the pods of {titles([job.ref])} are gone"
    state = f"{error.what} {record.name} was last {_state(record)}" if is_away else gone
    count = f", the newest of {len(found)} runs of this name" if len(found) > 1 else ""
    write_stderr(f"-- {state}{count}; {past.reach(what if found else 'logs')}:")
    return past


async def explain_past(options: ConsoleOptions, past: PastRun) -> Cause:
    """Explain how a job that is gone ended, from its record and kept logs."""
    from k8s.reasons.cause import Cause, Fact  # slow to import

    record, facts, advice = past.record, list[Fact](), list[str]()
    found = await _triage(past.logs, known_causes(options)) if record.status != "Succeeded" else None
    if found is not None and found.cause is not None:
        facts, advice = [Fact("cause", found.sentence)], [found.remedy]
    if past.logs.targets:
        facts += [Fact("log", f"from {past.logs.source}")] if past.logs.source else []
        advice.append(f"See what it printed: gpuconsole logs {record.name}")
    reason = found.reason if found is not None else record.reason
    sentence = ": ".join(filter(None, (gone_line(record), reason.removesuffix("."))))
    return Cause(f"{sentence}.", tuple(facts), tuple(advice), triage=found)


def past_values(past: PastRun) -> Values:
    """Return the record of a run as JSON, with the keys of `list` as far as they are known."""
    record = past.record
    return {
        **values_of(record, Clock.ahead(0), COLUMNS),
        "reason": record.reason,
        "gpus_requested": record.gpus,
        "created": timestamp(moment(record.created_s)),
        "labels": record.labels,
        "is_gone": True,
        "seen": timestamp(moment(record.seen_s)),
    }


def print_past(past: PastRun, form: str) -> None:
    """Print the record of a run, or its line of the list of past runs."""
    if form in ("json", "yaml"):
        write_object(past_values(past), form)
    else:
        write_list(output_columns(COLUMNS), [past.record], Clock.ahead(0), is_wide=form == "wide")


async def _triage(kept: KeptLogs, causes: Sequence[FailureCause]) -> Triage | None:
    from k8s.logs.tail import read_tail
    from k8s.reasons.failures import ContainerLog, triage
    from k8s.reasons.failures.log_tails import LINES

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
    if not record.uid:
        return f"{record.name} is not in the cluster"
    return f"{record.kind} {record.namespace}/{record.name} is gone ({_state(record)})"


def _state(record: RunRecord) -> str:
    return f"{record.status}, {_minute(record.ended_s or record.seen_s)}"


def _minute(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")
