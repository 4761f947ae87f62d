"""The rank that failed first, its error and cause, and what the other ranks report."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import IntEnum
from itertools import islice

from k8s.diagnosis.failures.causes import FailureCause, compiled
from k8s.diagnosis.failures.errors import FoundError, Raised, RankedText, find_errors, read_texts
from k8s.diagnosis.failures.reports import RankReport, find_reports
from k8s.diagnosis.failures.triage_result import ContainerLog, Triage
from k8s.text.sanitize import sanitize

# Limits of what is shown.
_ERROR_CHARS = 240
_REASON_CHARS = 300
_OTHERS = 8
_TRACEBACK_LINES = 60
# Lines before and after an error where its cause may be named.
_CONTEXT_BEFORE = 80
_CONTEXT_AFTER = 20
_LAST_LINES = 40
_LATER_NS = 1_000_000_000
_AT_ONCE_NS = 100_000_000
_STEPS_READ = 8

# What ranks print because another one left.
_COLLATERAL = re.compile(
    r"(?i)^c10::DistBackendError\s*$|Watchdog caught collective|remote process exited|ncclRemoteError"
    r"|closed by (?:remote )?peer|reset by (?:remote )?peer"
    r"|Broken pipe|clients? joined|waiting for clients|client socket has timed out|RendezvousTimeout"
    r"|Socket (?:closed|timeout)|socketPoll|recvValue failed|sendBytes failed"
    r"|recvBytes failed|got 0 bytes"
    r"|\bSIGTERM\b|signal:? 15\b|^Terminated\b|KeyboardInterrupt|SignalException|ChildFailedError"
    r"|CalledProcessError: Command .*(?:python|torchrun|accelerate|deepspeed|mpirun|srun)"
    r"|ProcessExitedException"
    r"|terminate called without an active|Fatal Python error: Aborted|^Aborted\b"
    r"|Timed out waiting \d+ ?ms for (?:recv|send)"
    r"|Signal: Aborted|heartbeat ?monitor|missed heartbeat|taking the entire process down"
    r"|communicator was aborted|commAbort"
    r"|pair closure|(?:pass|reached) monitoredBarrier"
    r"|wait timeout after|has been shut down|HorovodInternalError|MPI_ERR_PROC_FAILED|MPI_ABORT"
    r"|RendezvousClosedError"
    r"|RendezvousConnectionError|ActorDiedError|ActorUnavailable|WorkerCrashedError"
    r"|NCCL operations have failed or timed out"
    r"|ConnectionResetError|BrokenPipeError|EOFError\s*$|process group.*(?:abort|destroy)"
    r"|ncclInternalError|(?:mpi\w+|prterun) has exited due"
    r"|application call to abort|connection .*(?:reset|closed)|ncclUnhandledCudaError: .*remote"
    r"|Some NCCL operations"
    r"|DataLoader worker .* killed by signal: (?:Terminated|Aborted|Interrupt)"
)
_NETWORK = re.compile(r"vendor err|NET/|ibv_|No route to host|unreachable|Connection (?:refused|timed out)")
# An answer of a service in the network is no other rank.
_OF_SERVICE = re.compile(
    r"HTTPS?Connection|requests[./]|urllib3|huggingface|wandb|s3fs|boto|aiohttp|httpx|grpc\b"
)
# An abort says less than what led to it.
_VAGUE = re.compile(
    r"^(?:c10::\w+|std::\w+|Aborted|SystemExit|Killed)\b(?!: \S)|unhandled (?:system|cuda) error"
    r"|^RuntimeError\s*$"
)
_DIFFERENT = "different collectives"
_STEP = re.compile(
    r"(?i)\b(?:step|iter\w*|epoch|batch)\b.{0,80}?\b(?:loss|acc)|'loss':|\d(?:it/s|s/it)|\bloss\b ?[:=] ?\d"
)
_AFTERMATH = re.compile(
    r"wandb:|[EWI]\d{4} |\[[EWI]\d{3,4} |NCCL|torch[./]distributed|closing signal|srun|slurmstepd|^\s*$"
    r"|frame #|^\s"
)
_ANY_COMPLAINT = re.compile(
    r"(?i)error|fatal|fail|cannot|can't|denied|not found|unable|invalid|exceeded|refused|abort|killed"
    r"|timed out|timeout"
    r"|no such|unrecognized|assert|NCCL WARN|exception|resolve|bus|root|slots|xid|memory|warn|nan\b"
    r"|caught signal|segmentation|usage:|option"
)
_HEALTHY = re.compile(
    r"(?i)\w[wW]arning: |warnings\.warn|^\s*NOTE|is not set|disabled|fall(?:ing)? back|\b(?:0"
    r"|no) errors?\b|\berrors?[:=] ?0\b|error[_ ]rate|without errors?"
)
_WAITED = re.compile(
    r"(?i)time[d ]{0,2}out|peer|broken pipe|remote (?:process|error)|bytes|watchdog|barrier|socket"
    r"|aborted on|clients"
)
# What a launcher raises when one of its processes has failed.
_SUMMARY = re.compile(r"ChildFailedError|CalledProcessError|SignalException|ProcessExitedException")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_SEQUENCE = re.compile(r"SeqNum=(\d+), OpType=(\w+)")
# Exceptions of libraries that say little themselves; others explain themselves.
_TERSE = re.compile(
    r"(?i)NCCL|CUDA|cuDNN|cuBLAS|gloo|c10d|DataLoader|DistBackend|DistNetwork|SystemExit|MPI|UCX"
    r"|Horovod|ray\."
    r"|CalledProcess|ChildFailed|c10::|std::|Aborted|writing file|serializ|^\w+$"
)


class _Level(IntEnum):
    """How well a suspect explains the failure; the lowest is the culprit."""

    REAL = 0
    PERHAPS_HANDLED = 1
    ACCUSED = 2
    COLLATERAL = 3
    COMPLAINT = 4
    EXIT = 5
    HANDLED = 6


@dataclass(slots=True)
class _Run:
    """One container with what was found in its log."""

    log: ContainerLog
    texts: list[RankedText]
    errors: list[FoundError]
    reports: list[RankReport]
    steps: dict[int | None, list[int]] = field(default_factory=dict)
    """Indexes of lines that show progress, by rank, from the first error on."""
    normal: dict[int | None, list[int]] = field(default_factory=dict)
    """Indexes of other lines that complain of nothing, by rank, from the first error on."""

    def __post_init__(self) -> None:
        start = min((error.last_index for error in self.errors), default=len(self.texts))
        for index, line in enumerate(self.texts[start + 1 :], start + 1):
            if _STEP.search(line.text):
                self.steps.setdefault(line.rank, []).append(index)
            elif not (_AFTERMATH.search(line.text) or _ANY_COMPLAINT.search(line.text)):
                self.normal.setdefault(line.rank, []).append(index)

    def count_steps(self, error: FoundError) -> int:
        """Return the number of steps after an error, of its rank or of any if it has none.

        What a process had buffered appears all at once when it ends, after its traceback.
        """
        ranks = set(self.steps) if error.rank is None else {None, error.rank}
        after_ns = error.stamp_ns + _LATER_NS
        later = [self.texts[i].stamp_ns for rank in ranks for i in self.steps.get(rank, [])[-_STEPS_READ:]]
        later = [stamp_ns for stamp_ns in later if stamp_ns > after_ns]
        return len(later) if later and max(later) - min(later) > _AT_ONCE_NS else 0

    def went_on(self, error: FoundError) -> bool:
        """Return True if the rank of an error wrote of other things a while later."""
        after_ns = error.stamp_ns + _LATER_NS
        lines = (self.texts[index] for rank in (None, error.rank) for index in self.normal.get(rank, [])[-2:])
        return sum(line.stamp_ns > after_ns for line in lines) >= 2


@dataclass(slots=True)
class _Suspect:
    run: _Run
    level: _Level
    rank: int | None
    stamp_ns: int
    error: FoundError | None = None
    report: RankReport | None = None
    state: str = ""
    """The state that proves it; empty if the error does."""
    absent: bool = False
    """The others waited for it; `error` is theirs."""
    is_hung: bool = False

    @property
    def name(self) -> str:
        return self.run.log.instance if self.rank is None else f"rank {self.rank}"


def find_culprit(logs: Sequence[ContainerLog], causes: Sequence[FailureCause]) -> Triage | None:
    """Find the rank that failed first and its cause; None if nothing has failed."""
    known = {state for cause in causes for state in cause.states}
    if not any(log.exit_code or set(log.states) & known or log.exit_code is None for log in logs):
        return None
    runs = [_read(log) for log in logs if log.exit_code != 0]
    suspects = [suspect for run in runs for suspect in _suspects(run, known)]
    if not suspects:
        return None
    first = min(suspects, key=_order)
    if first.level is _Level.COLLATERAL:
        first = _absentee(logs, suspects, first)
    elif first.level is _Level.HANDLED and not first.run.log.exit_code:
        return None
    return _Verdict(first, suspects, causes).result()


def _order(suspect: _Suspect) -> tuple[int, float, int]:
    # A vague abort comes after what explains it, wherever that was printed.
    is_vague = suspect.error is not None and bool(_VAGUE.search(_headline(suspect.error)))
    # A container that never started has no time; all that follows comes later.
    when = suspect.stamp_ns or (0 if suspect.state else float("inf"))
    return suspect.level, when + (2 * _LATER_NS if is_vague else 0), suspect.rank or 0


def _headline(error: FoundError) -> str:
    members = error.members
    return members[0].headline if members else ""


def _said(error: FoundError) -> str:
    return " ".join(text for member in error.members for text in member.texts)


def _read(log: ContainerLog) -> _Run:
    texts = read_texts(log.lines, has_several_ranks=log.is_launcher or len(log.ranks) > 1)
    errors = [each for each in find_errors(texts) if each.chain and not each.is_ignored]
    reports = find_reports(texts, log.ranks)
    exits = {each.rank for each in reports if each.rank is not None and not each.is_absent}
    for error in errors:
        if error.rank is None and error.local_rank is not None:
            ranks = log.ranks or range(error.local_rank + 1)
            error.rank = ranks[error.local_rank] if error.local_rank < len(ranks) else None
        elif error.rank is None and len(log.ranks) == 1 and not log.is_launcher:
            error.rank = log.ranks[0]
        elif error.rank is None and len(exits) == 1 and error.kind in ("exception", "native", "shell"):
            # Only one rank failed by itself, so what nobody signed is probably its.
            (error.rank,) = exits
    return _Run(log, texts, errors, reports)


def _is_collateral(error: FoundError) -> bool:
    # Of a chain, the exception that is shown decides; a victim may wrap what it suffered.
    text = " ".join(each for member in error.members[:1] for each in member.texts)
    return bool(_COLLATERAL.search(text)) and not any(map(_OF_SERVICE.search, error.lines))


def _finished_ns(log: ContainerLog) -> int:
    return int(log.finished.timestamp() * 1e9) if log.finished else 0


def _suspects(run: _Run, known: set[str]) -> list[_Suspect]:
    log = run.log
    ended_ns = _finished_ns(log)
    rank = log.ranks[0] if len(log.ranks) == 1 and not log.is_launcher else None
    found = [_of_error(run, error) for error in run.errors]
    if log.exit_code is None:
        # Of a container that runs, only what certainly failed counts.
        found = [each for each in found if each.level in (_Level.REAL, _Level.COLLATERAL)]
    for report in run.reports:
        if report.is_absent:
            accused = _Suspect(run, _Level.ACCUSED, report.rank, report.stamp_ns, report=report)
            accused.is_hung = True
            found.append(accused)
        elif not any(each.rank == report.rank and each.level <= _Level.COLLATERAL for each in found):
            exited = report.code is not None and 0 < report.code < 128
            level = _Level.ACCUSED if exited else _Level.COLLATERAL
            level = _Level.REAL if report.is_hard else level
            found.append(_Suspect(run, level, report.rank, report.stamp_ns, report=report))
    hard = next((each for each in (log.pod_reason, log.end_reason) if each in known), "")
    if hard:
        return [*found, _Suspect(run, _Level.REAL, rank, ended_ns, _last_error(found), state=hard)]
    if log.exit_code and not any(each.level <= _Level.COLLATERAL for each in found):
        state = next((each for each in log.states[-2:] if each in known), "")
        level = _Level.EXIT if state in ("SIGTERM", "") or log.exit_code in (143, 137) else _Level.REAL
        last = run.texts[-1].stamp_ns if run.texts else 0
        found.append(_Suspect(run, level, rank, ended_ns or last, state=state))
    return found


def _last_error(found: Sequence[_Suspect]) -> FoundError | None:
    return next((each.error for each in reversed(found) if each.level <= _Level.PERHAPS_HANDLED), None)


def _of_error(run: _Run, error: FoundError) -> _Suspect:
    suspect = _Suspect(run, _Level.REAL, error.rank, error.stamp_ns, error)
    if _is_collateral(error):
        suspect.level = _Level.COLLATERAL
        return suspect
    is_shared = error.rank is None and (run.log.is_launcher or len(run.log.ranks) > 1)
    if run.count_steps(error) >= (4 if is_shared else 2):
        suspect.level = _Level.HANDLED
    elif error.kind == "complaint":
        suspect.level = _Level.COMPLAINT
    elif not is_shared and run.went_on(error):
        suspect.level = _Level.PERHAPS_HANDLED
    elif error.kind == "shell" and re.match(r"(?i)error\b|\S+: error", _headline(error)) is None:
        suspect.level = _Level.REAL if run.log.exit_code else _Level.COMPLAINT
    return suspect


def _absentee(logs: Sequence[ContainerLog], suspects: Sequence[_Suspect], first: _Suspect) -> _Suspect:
    """Return the rank that the victims waited for, if it can be told."""
    victims = [each for each in suspects if each.level is _Level.COLLATERAL and each.rank is not None]
    waiting = {each.rank for each in victims if each.error and _WAITED.search(_said(each.error))}
    sequence = _behind(suspects)
    if sequence is not None and sequence.state:
        return sequence
    world = {rank for log in logs for rank in log.ranks}
    missing = world - waiting
    said = _said(first.error) if first.error else ""
    # The launcher stops who still runs at the end: a rank that hangs, not one that left.
    stopped = missing & {each.rank for each in victims if each.error is None}
    is_hung = bool(stopped) and bool(re.search(r"(?i)timed ?out|timeout", said))
    missing = (stopped if is_hung else missing - stopped) or missing
    if _NETWORK.search(said) or not waiting or not 0 < len(missing) <= max(1, len(world) // 2):
        return sequence or first
    owners = sorted(
        (log for log in logs if set(log.ranks) & missing),
        key=lambda log: _finished_ns(log) or float("inf"),
    )
    rank = min(set(owners[0].ranks) & missing)
    run = next((each.run for each in suspects if each.run.log is owners[0]), None)
    run = run or _Run(owners[0], [], [], [])
    return _Suspect(run, _Level.ACCUSED, rank, first.stamp_ns, first.error, absent=True, is_hung=is_hung)


def _behind(suspects: Sequence[_Suspect]) -> _Suspect | None:
    """Return the one rank that waits in an earlier or another collective than all others."""
    at: dict[int, tuple[int, _Suspect]] = {}
    kinds: dict[str, list[_Suspect]] = {}
    for suspect in suspects:
        if suspect.error is None or suspect.rank is None:
            continue
        for number in _SEQUENCE.findall(" ".join(suspect.error.lines[:3])):
            if suspect.rank not in at or int(number[0]) < at[suspect.rank][0]:
                at[suspect.rank] = (int(number[0]), suspect)
                kinds.setdefault(number[1], []).append(suspect)
    lowest = min((number for number, _ in at.values()), default=0)
    behind = [suspect for number, suspect in at.values() if number == lowest]
    if len(kinds) > 1 and len(behind) == len(at):
        odd = min(kinds.values(), key=len)[0]
        odd.state = _DIFFERENT
        return odd
    return behind[0] if len(behind) == 1 and len(at) > 1 else None


class _Verdict:
    """Puts the explanation of the culprit together."""

    def __init__(self, first: _Suspect, suspects: Sequence[_Suspect], causes: Sequence[FailureCause]) -> None:
        self._first = first
        self._suspects = suspects
        self._causes = causes
        self._cause: FailureCause | None = None
        self._saw = ""
        self._saw_line = False
        """A line of the log, not a state."""

    def result(self) -> Triage:
        first, log = self._first, self._first.run.log
        self._find_cause()
        members = first.error.members if first.error and not first.absent else []
        shown = next((each for each in members if self._saw in (text.strip() for text in each.texts)), None)
        shown = shown or (members[0] if members else None)
        error = _cut(self._error_text(shown, members), _ERROR_CHARS) if shown else ""
        ended = self._ended()
        reason = f"{first.name} {ended}".strip() + (f": {error}" if error else "")
        is_told = first.report is not None or first.absent
        if not error and (why := log.message or (self._saw if self._saw_line and not is_told else "")):
            reason += f": {why}"
        if not self._saw:
            last = next((each.text for each in reversed(first.run.texts) if re.search(r"\w", each.text)), "")
            self._saw = error or last
        lines = first.error.lines if first.error and not first.absent else []
        at = first.stamp_ns
        return Triage(
            culprit=_cut(first.name, 80),
            rank=first.rank,
            instance=_cut(log.instance, 80),
            reason=_cut(reason, _REASON_CHARS),
            error=error,
            cause=self._cause,
            sentence=_cut(self._cause.fill(self._groups()), 2 * _REASON_CHARS) if self._cause else "",
            remedy=_cut(self._cause.remedy, 2 * _REASON_CHARS) if self._cause else "",
            saw=_cut(self._saw, _REASON_CHARS),
            traceback=tuple(sanitize(line)[:500] for line in lines[-_TRACEBACK_LINES:]),
            others=tuple(self._others()),
            first_error_at=datetime.fromtimestamp(at / 1e9, UTC) if 0 < at < 4e18 else None,
        )

    def _error_text(self, shown: Raised, members: Sequence[Raised]) -> str:
        # `raise X from Y`: both matter.
        outermost = members[0]
        if outermost.link == "cause" and len(members) > 1:
            root = shown if shown is not outermost else members[1]
            return f"{outermost.headline[: _ERROR_CHARS // 2]} (from {root.headline})"
        text = shown.headline
        message = [line.strip() for line in shown.message]
        if "Last error:" in message[:-1]:
            return f"{text[: _ERROR_CHARS // 2]}: {message[message.index('Last error:') + 1]}"
        return f"{text.rstrip()} {message[0]}" if message and len(text) < 60 else text

    def _ended(self) -> str:
        first, log = self._first, self._first.run.log
        if first.absent or (first.report and first.report.is_absent):
            return "kept the others waiting"
        if first.state == _DIFFERENT:
            return "was in another collective"
        reports = [each for each in first.run.reports if each.rank == first.rank and each.code is not None]
        if report := first.report or next(iter(reports), None):
            if report.signal:
                return f"{report.signal}{', Out Of Memory' if 'Out Of Memory' in report.text else ''}"
            return f"exit {report.code}" if report.code is not None else ""
        if first.state and not first.state.startswith(("exit", "SIG")):
            return first.state
        return f"exit {log.exit_code}" if log.exit_code else ""

    def _find_cause(self) -> None:
        first, log = self._first, self._first.run.log
        states = [first.state] if first.state else []
        if first.report and first.report.signal:
            states.append(first.report.signal)
        hard = [each for each in states if not each.startswith(("exit", "SIG"))]
        if self._by_state(hard):
            return
        is_terse = first.error is None or first.error.kind != "exception" or _TERSE.search(_said(first.error))
        decisive = [cause for cause in self._causes if cause.is_decisive]
        if is_terse and self._by_text(self._context(), decisive):
            return
        if first.error is not None:
            texts = [text for member in first.error.members for text in member.texts]
            # A line that only complains says less than what led to it.
            texts += self._context() if first.error.kind == "complaint" else []
            if self._by_text(texts):
                return
        if log.message and self._by_text([_cut(log.message, 2000)]):
            return
        if first.report and self._by_text([first.report.text]) and not first.report.signal:
            return
        if is_terse and self._by_text(self._context()):
            return
        if first.report is not None and first.report.is_absent:
            states.append("absent")
        if self._by_state(states) or first.error is not None:
            return
        self._by_state(log.states)

    def _by_state(self, states: Iterable[str]) -> bool:
        for state in states:
            for cause in self._causes:
                if state in cause.states:
                    self._cause, self._saw = cause, self._saw or state
                    return True
        return False

    def _by_text(self, texts: Iterable[str], causes: Sequence[FailureCause] = ()) -> bool:
        texts = [text for text in texts if text.strip()]
        for cause in causes or self._causes:
            if not cause.pattern:
                continue
            search = compiled(cause.pattern).search
            for text in texts:
                if search(text):
                    self._cause, self._saw, self._saw_line = cause, text.strip(), True
                    return True
        return False

    def _near(self) -> list[str]:
        """Return the lines around the error that the same rank, or nobody in particular, wrote."""
        run, error = self._first.run, self._first.error
        if error is None:
            near: Sequence[RankedText] = run.texts[-_LAST_LINES:]
            if self._first.report is not None:
                index = self._first.report.index
                near = run.texts[max(0, index - 10) : index + 10]
        else:
            near = run.texts[max(0, error.index - _CONTEXT_BEFORE) : error.last_index + _CONTEXT_AFTER]
        return [line.text for line in near if line.rank in (None, self._first.rank)]

    def _context(self) -> list[str]:
        return [text for text in self._near() if _ANY_COMPLAINT.search(text) and not _HEALTHY.search(text)]

    def _groups(self) -> dict[str, str]:
        cause, first = self._cause, self._first
        assert cause is not None
        texts = [self._saw]
        if first.error is not None:
            texts += [text for member in first.error.members for text in member.texts]
            texts += self._near()
        groups: dict[str, str] = {}
        for pattern in (cause.pattern, *cause.details):
            for text in texts if pattern else ():
                hit = compiled(pattern).search(text)
                named = (
                    {name: value.strip() for name, value in hit.groupdict().items() if value} if hit else {}
                )
                if named:
                    groups = {**{name: _cut(value, 150) for name, value in named.items()}, **groups}
                    break
        if first.run.log.message:
            groups.setdefault("message", _cut(first.run.log.message, 200).rstrip("."))
        if first.absent or (first.report and first.report.is_absent):
            groups.setdefault("absent", str(first.rank))
        return groups

    def _others(self) -> list[str]:
        first = self._first
        best: dict[str, _Suspect] = {}
        for suspect in sorted(self._suspects, key=_order):
            same = suspect.rank == first.rank if suspect.rank is not None else suspect.run is first.run
            is_summary = suspect.rank is None and suspect.error and _SUMMARY.match(_headline(suspect.error))
            is_told = suspect.level in (_Level.REAL, _Level.PERHAPS_HANDLED, _Level.COLLATERAL)
            if is_told and not same and not is_summary:
                best.setdefault(suspect.name, suspect)
        groups: dict[str, list[_Suspect]] = {}
        for suspect in best.values():
            groups.setdefault(_NUMBER.sub("0", self._label(suspect)), []).append(suspect)
        found = []
        for members in sorted(groups.values(), key=len, reverse=True):
            label = self._label(members[0])
            noun = "ranks" if all(each.rank is not None for each in members) else "instances"
            who = members[0].name if len(members) == 1 else f"{len(members)} {noun}"
            found.append(_cut(f"{who}: {label}", _REASON_CHARS))
        rest = len(found) - _OTHERS
        return found if rest <= 0 else [*islice(found, _OTHERS), f"{rest} more"]

    def _label(self, suspect: _Suspect) -> str:
        if suspect.error is None:
            report = suspect.report
            if report is not None:
                return report.signal or f"exit {report.code}"
            return suspect.state or f"exit {suspect.run.log.exit_code}"
        headline = _headline(suspect.error)
        if suspect.level is _Level.COLLATERAL:
            after = f" {'waiting for' if self._first.is_hung else 'after'} {self._first.name}"
            after += "" if self._first.is_hung else " left"
            if re.search(r"(?i)watchdog|NCCL|collective", headline):
                return f"NCCL {'watchdog timeout' if 'atchdog' in headline else 'error'}{after}"
            if "arrier" in headline:
                return f"barrier timeout{after}"
            if "imed out" in headline:
                return f"timeout{after}"
            if re.search(r"(?i)peer|pipe|socket|connection|bytes", headline):
                return f"connection lost{after}"
        return headline[:120]


def _cut(text: str, most: int) -> str:
    one_line = " ".join(sanitize(text).split())
    return one_line if len(one_line) <= most else f"{one_line[: most - 1]}…"
