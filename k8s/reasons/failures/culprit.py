"""The rank that failed first, its error and cause, and what the other ranks report."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from enum import IntEnum

import msgspec

from k8s.reasons.failures.causes import NEVER_STARTED, ContainerLog, FailureCause, Triage, compiled
from k8s.reasons.failures.errors import (
    NATIVE_COMPLAINT,
    FoundError,
    Raised,
    RankedText,
    any_of,
    find_errors,
    read_texts,
)
from k8s.reasons.failures.reports import RankReport, find_reports
from k8s.text.runtime_message import runtime_message, shorten
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

# Errors of launchers and wrappers that only report that a process has failed.
_SUMMARY = any_of(
    r"ChildFailedError|SignalException",  # torchelastic
    r"ProcessExitedException",  # torch.multiprocessing.spawn
    r"CalledProcessError: Command .*(?:python|torchrun|accelerate|deepspeed|mpirun|srun)",
    r"one or more processes exited|TrainingFailedError",  # horovodrun, Ray Train
    r"MPI_ABORT|application call to abort|^(?:mpi\w+|prterun) has exited due",  # Open MPI, MPICH
    r"^c10::DistBackendError\s*$|^Error: exit status \d+$",
)
# Errors that other ranks get when one left, apart from those of the causes marked as collateral.
_COLLATERAL = any_of(
    r"(?i)ncclInternalError|ncclUnhandledCudaError: .*remote|EOFError\s*$",
    r"connection .*(?:reset|closed)|ConnectionResetError|BrokenPipeError|process group.*(?:abort|destroy)",
    r"DataLoader worker .* killed by signal: (?:Terminated|Interrupt)",
)
# A service answers, not another rank.
_OF_SERVICE = any_of(r"HTTPS?Conn|requests[./]|urllib3|huggingface|wandb|s3fs|boto|aiohttp|httpx|grpc\b")
_NETWORK = any_of(r"vendor err|NET/|ibv_|No route to host|unreachable|Connection (?:refused|timed out)")
# Exceptions that say less than the lines around them.
_TERSE = any_of(
    r"(?i)NCCL|CUDA|cuDNN|cuBLAS|gloo|c10d|c10::|DistBackend|DistNetwork|std::|Aborted",  # native code
    r"DataLoader|Horovod|\bMPI|UCX|\bray\b|CalledProcess|ChildFailed|SystemExit|SyntaxError",
    r"HCCL|\bACL\b|acl api|\bsyn[A-Z]|Habana|(?:Worker|Actor)\w*Error\b|KilledWorker|cquantize|Machine list",
    r"writing file|serializ|exited unexpectedly|(?:previous|above) error|error messages|^\w+$",
    r"INTERNAL:|root (?:cause|error)|inconsistent between",
)
_VAGUE = any_of(
    r"^(?:c10::\w+|std::\w+|Aborted|SystemExit|Killed)\b(?!: \S)",
    r"errors? above|root cause above|root error\(s\)",
    r"unhandled (?:system|cuda) error|, invalid usage|, internal error|^RuntimeError\s*$",
)
# Lists of what may have happened: no evidence, whichever cause they name.
_GUESSES = any_of(
    r"(?i)\b(?:potential|possible|probable|common|likely) (?:root )?(?:causes?|reasons?)\b(?P<list>.*)",
    r"\bmay have exceeded\b[^.]*",
)
_LISTED = re.compile(r"\s*(?:\(?\d{1,2}[).]|[-*\u2022])\s")
# The rank for which the rank that prints it waited, or which ended first.
_BLAMED = any_of(
    r"(?i)remote ?(?:user ?)?rank(?: id)?[ =:\[]{1,3}(\d{1,6})|\bfrom rank: (\d{1,6})\b",
    r"ncclUniqueId from \[(\d{1,6})\]|due to .{0,40}\b(?:from|on) rank (\d{1,6})\b",
    r"Connecting to rank (\d{1,6}) failed",
)
# A child was killed; the state of the container may tell why.
_KILLED = any_of(r"killed by signal: Killed|exited unexpectedly|BrokenProcessPool|\bSIGKILL\b")
# The error of a rank that waited for another, rather than was stopped.
_WAITED = any_of(
    r"(?i)time[ds ]{0,2}out|NCCLABORTEDCOMM|peer|broken pipe|remote (?:process|error)|bytes|watchdog|barrier",
    r"aborted on|clients|socket",
)
_STEP = any_of(
    r"(?i)\b(?:step|iter\w*|epoch|batch)\b.{0,80}?\b(?:loss|acc)|'loss':|\bloss\b ?[:=] ?\d|\d(?:it/s|s/it)"
)
# Lines that may follow the error of a process that ends.
_AFTERMATH = any_of(
    r"wandb:|[EWI]\d{4} |\[[EWI]\d{3,4} |NCCL|torch[./]distributed|closing signal|srun|slurmstepd",
    r"frame #|^\s",
)
_HEALTHY = any_of(
    r"(?i)\wwarning: |warnings\.warn|^\s*NOTE|is not set|disabled|fall(?:ing)? back|using defaults?",
    # Launchers stop the ranks that are left.
    r"closing signal|killing subprocess|zombies|\*\*\* STEP \S+ ON \S+ CANCELLED AT [^ ]+ \*",
    r"\bretrying\b(?! \(Retry\(total=0)|(?:entering|will) retry|\bretry \d|thrown while requesting",
    r"(?<!NCCL )\b(?:INFO|WARN)\b|socket has failed to connect .*refused|Driver was not detected",
    r"\b(?:0|no) (?:errors?|nan)\b|\berrors?[:=] ?0\b|error[_ ]rate|without errors?",
)
# What a victim of another rank reports, in short.
_SYMPTOMS = tuple(
    (re.compile(pattern, re.IGNORECASE), label)
    for pattern, label in (
        ("watchdog", "NCCL watchdog timeout"),
        ("NCCL|collective", "NCCL error"),
        ("barrier", "barrier timeout"),
        ("timed out", "timeout"),
        ("peer|pipe|socket|connection|bytes", "connection lost"),
    )
)
_DIFFERENT = "different collectives"
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_FILE = re.compile(r'^ +File "(?:[^"\n]*/)?([^"/\n]+)"', re.MULTILINE)
_SEQUENCE = re.compile(r"SeqNum=(\d+), OpType=(\w+)")


class _Level(IntEnum):
    """Kinds of suspects, the most convincing first."""

    REAL = 0
    PERHAPS_HANDLED = 1
    ACCUSED = 2
    COLLATERAL = 3
    COMPLAINT = 4
    EXIT = 5
    HANDLED = 6


class _Run(msgspec.Struct):
    """One container with what was found in its log."""

    log: ContainerLog
    texts: list[RankedText]
    errors: list[FoundError]
    reports: list[RankReport]
    steps: dict[int | None, list[int]] = msgspec.field(default_factory=dict)
    """Stamps of the lines that show progress after the first error, by rank."""
    normal: dict[int | None, list[int]] = msgspec.field(default_factory=dict)
    """Stamps of other lines after the first error that report no problem, by rank."""

    def __post_init__(self) -> None:
        ends = [each.last_index for each in self.errors] + [each.index for each in self.reports]
        start = min(ends, default=len(self.texts))
        for line in self.texts[start + 1 :]:
            if _STEP.search(line.text):
                self.steps.setdefault(line.rank, []).append(line.stamp_ns)
            elif not line.is_notable and line.text.strip() and not _AFTERMATH.search(line.text):
                self.normal.setdefault(line.rank, []).append(line.stamp_ns)

    def count_steps(self, error: FoundError | RankReport) -> int:
        """Return the number of steps after an error or a report, of its rank or of any if it has none."""
        ranks = set(self.steps) if error.rank is None else {None, error.rank}
        after_ns = error.stamp_ns + _LATER_NS
        stamps = (stamp_ns for rank in ranks for stamp_ns in self.steps.get(rank, [])[-_STEPS_READ:])
        later = [stamp_ns for stamp_ns in stamps if stamp_ns > after_ns]
        # A process that ends flushes its buffer: those steps appear all at once after its traceback.
        return len(later) if later and max(later) - min(later) > _AT_ONCE_NS else 0

    def went_on(self, error: FoundError) -> bool:
        """Return True if the rank of an error still wrote ordinary lines a second later."""
        after_ns = error.stamp_ns + _LATER_NS
        stamps = (stamp_ns for rank in (None, error.rank) for stamp_ns in self.normal.get(rank, [])[-2:])
        return sum(stamp_ns > after_ns for stamp_ns in stamps) >= 2


class _Suspect(msgspec.Struct):
    run: _Run
    level: _Level
    rank: int | None
    stamp_ns: int
    error: FoundError | None = None
    report: RankReport | None = None
    state: str = ""
    """The state that proves the failure; empty if the error does."""
    is_absent: bool = False
    """The others waited for this rank; `error` is theirs."""
    is_hung: bool = False

    @property
    def name(self) -> str:
        return self.run.log.instance if self.rank is None else f"rank {self.rank}"


def find_culprit(logs: Sequence[ContainerLog], causes: Sequence[FailureCause]) -> Triage | None:
    """Find the rank that failed first and its cause; None if nothing has failed."""
    known = {state for cause in causes for state in cause.states}
    collateral = [compiled(cause.pattern) for cause in causes if cause.is_collateral]
    runs = [_read(log) for log in logs if log.exit_code != 0]
    suspects = [suspect for run in runs for suspect in _suspects(run, known, collateral)]
    if not suspects:
        return None
    first = min(suspects, key=_order)
    if first.level is _Level.COLLATERAL:
        first = _absentee(logs, suspects, first)
    return _Verdict(first, suspects, causes).result()


def _order(suspect: _Suspect) -> tuple[int, float, int]:
    error = suspect.error
    # An abort or a log line comes after the exception that explains it, even if that was printed later.
    is_vague = error is not None and bool(
        error.kind == "complaint"
        or _VAGUE.search(error.headline)
        or (error.headline.endswith(":") and not error.texts[1:])
        or (error.kind == "native" and error.rank is None and len(suspect.run.log.ranks) > 1)
    )
    # A container that never started has no time, and everything else follows from that.
    when = suspect.stamp_ns or (0 if suspect.state else float("inf"))
    return suspect.level, when + (2 * _LATER_NS if is_vague else 0), suspect.rank or 0


def _read(log: ContainerLog) -> _Run:
    texts = read_texts(log.lines, has_several_ranks=log.is_launcher or len(log.ranks) != 1)
    errors = [each for each in find_errors(texts) if each.chain and not each.is_ignored]
    reports = find_reports(texts, log.ranks)
    exits = {each.rank for each in reports if each.rank is not None and not each.is_absent}
    for error in errors:
        is_device = error.kind == "complaint" and len(log.ranks) < 2
        if error.rank is None and error.local_rank is not None and not is_device:
            ranks = log.ranks or range(error.local_rank + 1)
            error.rank = ranks[error.local_rank] if error.local_rank < len(ranks) else None
        elif error.rank is None and len(log.ranks) == 1 and not log.is_launcher:
            error.rank = log.ranks[0]
        elif error.rank is None and len(exits) == 1 and error.kind in ("exception", "native", "shell"):
            # Only one rank failed by itself, so an error without a rank is probably its.
            (error.rank,) = exits
    return _Run(log, texts, errors, reports)


def _finished_ns(log: ContainerLog) -> int:
    return int(log.finished.timestamp() * 1e9) if log.finished else 0


def _suspects(run: _Run, known: set[str], collateral: Sequence[re.Pattern[str]]) -> list[_Suspect]:
    log = run.log
    ended_ns = _finished_ns(log)
    rank = log.ranks[0] if len(log.ranks) == 1 and not log.is_launcher else None
    found = [
        _Suspect(run, _level(run, each, collateral), each.rank, each.stamp_ns, each) for each in run.errors
    ]
    real = [each for each in found if each.level is _Level.REAL and each.rank is not None and each.error]
    for suspect in real:
        # The last exception ends a process; it survived the earlier ones.
        after_ns = suspect.stamp_ns + 2 * _LATER_NS
        if any(each.rank == suspect.rank and each.stamp_ns > after_ns for each in real):
            suspect.level = _Level.PERHAPS_HANDLED
    last_ns = max([ended_ns, *(each.stamp_ns for each in found), *(each.stamp_ns for each in run.reports)])
    for suspect in found:
        is_told = suspect.error is not None and suspect.error.kind in ("shell", "complaint")
        if is_told and last_ns > suspect.stamp_ns + 30 * _LATER_NS:
            suspect.level = _Level.HANDLED  # what stops a process stops it sooner
    if log.exit_code is None:
        # A running container may have handled its other errors.
        found = [each for each in found if each.level in (_Level.REAL, _Level.COLLATERAL)]
    root = next((each for each in run.reports if each.is_root), None)
    for report in run.reports:
        # A hard end needs an error of the rank's own; the launcher's summary may have been given its rank.
        worst = _Level.ACCUSED if report.is_hard else _Level.COLLATERAL
        is_explained = any(each.rank == report.rank and each.level <= worst for each in found)
        if run.count_steps(report) >= 2 or (is_explained and not report.is_absent):
            continue  # the rank was restarted, or its own error says more
        level = _Level.COLLATERAL
        if report.is_absent or 0 < (report.code or 0) < 128:
            level = _Level.ACCUSED
        if report.is_hard:
            # The launcher saw another rank fail before.
            level = _Level.ACCUSED if root and root.rank != report.rank and not root.signal else _Level.REAL
        suspect = _Suspect(run, level, report.rank, report.stamp_ns)
        if report.is_root:
            suspect.stamp_ns = min(each.stamp_ns for each in run.reports) - 1
        suspect.report, suspect.is_absent, suspect.is_hung = report, report.is_absent, report.is_absent
        found.append(suspect)
    hard = next((each for each in (log.pod_reason, log.end_reason) if each in known), "")
    if hard:
        errors = (each.error for each in reversed(found) if each.level <= _Level.PERHAPS_HANDLED)
        return [*found, _Suspect(run, _Level.REAL, rank, ended_ns, next(errors, None), state=hard)]
    if log.exit_code and not any(each.level <= _Level.COLLATERAL for each in found):
        state = next((each for each in log.states[-2:] if each in known), "")
        level = _Level.EXIT if state in ("SIGTERM", "") or log.exit_code in (143, 137) else _Level.REAL
        ended_ns = ended_ns or (run.texts[-1].stamp_ns if run.texts else 0)
        found.append(_Suspect(run, level, rank, ended_ns, state=state))
    return found


def _level(run: _Run, error: FoundError, collateral: Sequence[re.Pattern[str]]) -> _Level:
    # Only the exception that is shown decides; a victim may wrap others.
    texts, headline = error.members[0].texts, error.headline
    is_collateral = any(each.search(text) for each in (_SUMMARY, _COLLATERAL, *collateral) for text in texts)
    if is_collateral and not any(map(_OF_SERVICE.search, error.lines)):
        return _Level.COLLATERAL
    is_shared = error.rank is None and (run.log.is_launcher or len(run.log.ranks) > 1)
    if run.count_steps(error) >= (4 if is_shared else 2):
        return _Level.HANDLED
    if error.kind == "complaint":
        is_network = "NCCL WARN" in headline and _NETWORK.search(headline)
        return _Level.ACCUSED if is_network else _Level.COMPLAINT
    if not is_shared and run.went_on(error):
        return _Level.PERHAPS_HANDLED
    if error.kind == "shell" and not run.log.exit_code and not re.match(r"(?i)error\b|\S+: error", headline):
        return _Level.COMPLAINT
    return _Level.REAL


def _absentee(logs: Sequence[ContainerLog], suspects: Sequence[_Suspect], first: _Suspect) -> _Suspect:
    victims = [each for each in suspects if each.level is _Level.COLLATERAL and each.rank is not None]
    waiting = {each.rank for each in victims if each.error and _WAITED.search(" ".join(each.error.texts))}
    sequence = _behind(suspects)
    if sequence is not None and sequence.state:
        return sequence
    world = {rank for log in logs for rank in log.ranks}
    missing = world - waiting
    said = " ".join(first.error.texts) if first.error else ""
    # The launcher stops who still runs at the end: a rank that hangs, not one that left.
    stopped = missing & {each.rank for each in victims if each.error is None}
    is_hung = bool(stopped) and bool(re.search(r"(?i)timed ?out|timeout", said))
    blamed = (_blamed(victims) & world) - waiting
    missing = (stopped if is_hung else missing - stopped) or missing
    if len(blamed) == 1:
        missing = blamed
    elif sequence and all(set(log.ranks) & waiting for log in logs):
        return sequence
    elif _NETWORK.search(said) or not waiting or not 0 < len(missing) <= max(1, len(world) // 2):
        return sequence or first
    owners = sorted(
        (log for log in logs if set(log.ranks) & missing), key=lambda log: _finished_ns(log) or float("inf")
    )
    rank = min(set(owners[0].ranks) & missing)
    own = next((each for each in suspects if each.run.log is owners[0]), None)
    is_killed = own and own.level is _Level.EXIT and own.state
    if own and is_killed and own.stamp_ns < first.stamp_ns:
        return own
    run = own.run if own else _Run(owners[0], [], [], [])
    return _Suspect(run, _Level.ACCUSED, rank, first.stamp_ns, first.error, is_absent=True, is_hung=is_hung)


def _blamed(victims: Iterable[_Suspect]) -> set[int]:
    texts = (text for each in victims if each.error for text in each.error.lines)
    return {int(next(filter(None, found.groups()))) for text in texts for found in _BLAMED.finditer(text)}


def _behind(suspects: Sequence[_Suspect]) -> _Suspect | None:
    """Return the one rank that waits in an earlier or another collective than all others; None if unknown."""
    waits: dict[int, tuple[int, str, _Suspect]] = {}
    for suspect in suspects:
        if suspect.error is not None and suspect.rank is not None:
            for number, kind in _SEQUENCE.findall(" ".join(suspect.error.lines[:3])):
                known = waits.setdefault(suspect.rank, (int(number), kind, suspect))
                waits[suspect.rank] = min(known, (int(number), kind, suspect), key=lambda wait: wait[0])
    lowest = min((number for number, _, _ in waits.values()), default=0)
    behind = [(kind, suspect) for number, kind, suspect in waits.values() if number == lowest]
    kinds = Counter(kind for kind, _ in behind)
    if len(kinds) > 1 and len(behind) == len(waits):
        odd = next(suspect for kind, suspect in behind if kind == kinds.most_common()[-1][0])
        odd.state = _DIFFERENT
        return odd
    return behind[0][1] if len(behind) == 1 and len(waits) > 1 else None


class _Verdict:
    """Cause and description of the culprit's failure."""

    def __init__(self, first: _Suspect, suspects: Sequence[_Suspect], causes: Sequence[FailureCause]) -> None:
        self._first = first
        self._suspects = suspects
        self._causes = causes
        self._cause: FailureCause | None = None
        self._saw = ""
        self._is_line = False
        """True if `_saw` is a line of the log, not a state."""
        self._message = runtime_message(first.run.log.message)

    def result(self) -> Triage:
        first, log = self._first, self._first.run.log
        self._find_cause()
        members = first.error.members if first.error and not first.is_absent else []
        shown = next((each for each in members if self._saw in (text.strip() for text in each.texts)), None)
        shown = shown or (members[0] if members else None)
        error = _cut(self._error_text(shown, members), _ERROR_CHARS) if shown else ""
        ended = self._ended()
        who = f"init container {log.container} of {log.instance}" if log.is_init else first.name
        reason = f"{who} {ended}".strip() + (f": {error}" if error else "")
        is_told = first.report is not None or first.is_absent
        if not error and (why := self._message or (self._saw if self._is_line and not is_told else "")):
            reason += f": {shorten(' '.join(why.split()), _REASON_CHARS - len(reason) - 2)}"
        if not self._saw:
            last = next((each.text for each in reversed(first.run.texts) if re.search(r"\w", each.text)), "")
            self._saw = error or last
        lines = first.error.lines if first.error and not first.is_absent else []
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
        outermost = members[0]
        root = shown if shown is not outermost else members[1] if len(members) > 1 else shown
        # `raise X from Y` and a cause that the innermost exception names: both matter.
        if root is not outermost and (outermost.link == "cause" or root is shown):
            return f"{outermost.headline[: _ERROR_CHARS // 2]} (from {root.headline})"
        text = shown.headline
        message = [line.strip() for line in shown.message]
        if "Last error:" in message[:-1]:
            summary = text.partition(" (run with NCCL_DEBUG")[0]
            return f"{summary[: _ERROR_CHARS // 2]}: {message[message.index('Last error:') + 1]}"
        is_one = message and (text.endswith(":") or (len(text) < 60 and shown.is_open(shown.message[0])))
        return f"{text.rstrip()} {message[0]}" if is_one else text

    def _ended(self) -> str:
        first, log = self._first, self._first.run.log
        if first.is_absent:
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
        signal = next((each for each in log.states if each.startswith("SIG")), "")
        return f"exit {log.exit_code}{f' ({signal})' if signal else ''}" if log.exit_code else ""

    def _find_cause(self) -> None:
        first, log = self._first, self._first.run.log
        error, report = first.error, first.report
        states = [each for each in (first.state, report.signal if report else "") if each]
        if first.error and _KILLED.search(first.error.headline):
            states += (log.pod_reason, log.end_reason)
        # The runtime's message says more than the state.
        if first.state in NEVER_STARTED and self._by_text([self._message, log.message]):
            return
        if self._by_state(each for each in states if not each.startswith(("exit", "SIG"))):
            return
        own = error.texts if error else []
        if error and (frames := _FILE.findall("\n".join(error.lines))):
            # Of some exceptions only the place of the last frame tells the cause.
            own.append(f"{frames[-1]}: {error.headline}")
        is_terse = error is None or error.kind != "exception" or bool(_TERSE.search(" ".join(own)))
        context = self._context()
        # How a process ended explains less than any other line.
        specific = [each for each in self._causes if each.is_decisive or not each.is_ending]
        of_own = [each for each in specific if not each.is_collateral]
        is_vague = error is not None and (error.kind == "complaint" or _VAGUE.search(error.headline))
        is_summary = error is None or error.kind != "exception" or _SUMMARY.search(error.headline)
        found = (
            (is_terse and self._by_text(context, [each for each in self._causes if each.is_decisive]))
            or self._by_text(own + context if is_vague else own, specific)
            or self._by_text([_cut(self._message, 2000), _cut(log.message, 2000)])
            or self._by_text(context if is_terse else filter(NATIVE_COMPLAINT.search, context), of_own)
            or (report and report.is_absent and self._by_state(["absent"]))
            or self._by_text(own)
            or (is_summary and self._by_text(context))
            or self._by_state(states)
        )
        if found and self._cause and self._cause.is_collateral and (host := self._groups().get("host")):
            # Why it did not answer may be known.
            self._by_text((text for text in context if host in text), of_own)

    def _by_state(self, states: Iterable[str]) -> bool:
        found = ((cause, state) for state in states for cause in self._causes if state in cause.states)
        self._cause, self._saw = next(found, (None, ""))
        return self._cause is not None

    def _by_text(self, texts: Iterable[str], causes: Sequence[FailureCause] | None = None) -> bool:
        known = {proof: text for proof, text in _without_guesses(texts) if proof.strip()}
        for cause in self._causes if causes is None else causes:
            if cause.pattern and (proof := next(filter(compiled(cause.pattern).search, known), "")):
                self._cause, self._saw, self._is_line = cause, known[proof].strip(), True
                return True
        return False

    def _near(self) -> list[RankedText]:
        first, texts = self._first, self._first.run.texts
        near = range(len(texts))[-_LAST_LINES:]
        if first.error is not None:
            near = range(first.error.index - _CONTEXT_BEFORE, first.error.last_index + _CONTEXT_AFTER)
        elif first.report is not None:
            near = range(first.report.index - 10, first.report.index + 10)
        foreign: set[int] = set()
        for each in self._suspects:
            error = each.error if each.run is first.run and each.level is _Level.COLLATERAL else None
            if error and error is not first.error and first.level < _Level.COLLATERAL:
                foreign.update(range(error.index, error.last_index + 1))
        lines = (texts[index] for index in near if 0 <= index < len(texts) and index not in foreign)
        return [line for line in lines if line.rank in (None, first.rank)]

    def _context(self) -> list[str]:
        near = self._near()
        # Without an error the last lines may be the reason, whatever their words.
        last = near[-5:] if self._first.error is None and self._first.report is None else []
        lines = [line for line in near if line.is_notable or line in last]
        return [line.text for line in lines if not _HEALTHY.search(line.text)]

    def _groups(self) -> dict[str, str]:
        cause, first = self._cause, self._first
        assert cause is not None
        texts = [self._saw]
        if first.error is not None:
            texts += [*first.error.texts, *(line.text for line in self._near())]
        groups: dict[str, str] = {}
        for pattern in (cause.pattern, *cause.details):
            for text in texts if pattern else ():
                hit = compiled(pattern).search(text)
                if named := {name: value for name, value in hit.groupdict().items() if value} if hit else {}:
                    groups = {name: _cut(value, 150) for name, value in named.items()} | groups
                    break
        if first.run.log.message:
            message = shorten(" ".join(self._message.split()), 200)
            groups.setdefault("message", sanitize(message).rstrip("."))
        if first.is_absent:
            groups.setdefault("absent", str(first.rank))
        elif first.error and cause.is_collateral and len(blamed := _blamed([first]) - {first.rank}) == 1:
            groups.setdefault("absent", str(blamed.pop()))
        return groups

    def _others(self) -> list[str]:
        first = self._first
        best: dict[str, _Suspect] = {}
        for suspect in sorted(self._suspects, key=_order):
            same = suspect.rank == first.rank if suspect.rank is not None else suspect.run is first.run
            is_summary = suspect.rank is None and suspect.error and _SUMMARY.match(suspect.error.headline)
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
        rest = found[_OTHERS:]
        return [*found[:_OTHERS], f"{len(rest)} more"] if rest else found

    def _label(self, suspect: _Suspect) -> str:
        if suspect.error is None:
            if report := suspect.report:
                return report.signal or f"exit {report.code}"
            return suspect.state or f"exit {suspect.run.log.exit_code}"
        headline = suspect.error.headline
        if suspect.level is _Level.COLLATERAL:
            name = self._first.name
            for pattern, label in _SYMPTOMS:
                if pattern.search(headline):
                    return (
                        f"{label} waiting for {name}" if self._first.is_hung else f"{label} after {name} left"
                    )
        return headline[:120]


def _without_guesses(texts: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each text without what it only supposes, and the text itself."""
    is_list = False
    for text in texts:
        if is_list and _LISTED.match(text):
            continue
        guess = _GUESSES.search(text)
        is_list = guess is not None and not (guess["list"] or "").strip(" :.")
        yield (_GUESSES.sub("", text) if guess else text), text


def _cut(text: str, most: int) -> str:
    one_line = " ".join(sanitize(text).split())
    return one_line if len(one_line) <= most else f"{one_line[: most - 1]}…"
