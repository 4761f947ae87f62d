"""Signs of life of a job: the normal interval between its lines, silence, and stragglers.

Pure functions of lines and times. A rank is compared with its own lines, a job with the rank that
prints steps most often. Ages use this machine's monotonic clock, so neither a clock change nor a machine
that sleeps makes a job look silent.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections import deque
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import islice, pairwise
from math import inf
from statistics import median

import msgspec

from k8s.logs.lines import LogLine, Target
from k8s.logs.training_lines import TrainingLineReader, step_in
from k8s.snapshot import Job, Silence, Straggler
from k8s.status import Status
from k8s.text.lazy_pattern import lazy_pattern

# A writer is silent after LEAST_S, after so many normal intervals, and after so many times the longest gap
# that was followed by more steps.
LEAST_S, INTERVALS, LONGEST_GAPS = 60.0, 5.0, 1.5
# Limit before the first steps: data preparation and compilation are quiet.
START_S = 3600.0
# Limit during a validation or checkpoint whose duration is not known yet.
UNKNOWN_PHASE_S = 1800.0
# Limit for scripts without recognised steps.
LINES_S = 600.0
# Added for event files, which are seen only once their writer flushes.
FLUSH_S = 180.0
# Possible difference between clocks; matters only for lines older than the first read.
SKEW_S = 300.0
# Gaps and steps to remember per writer.
MAX_GAPS, MAX_STEPS = 64, 64
# Gaps between steps, or else between any lines, that establish a normal interval.
MIN_STEP_GAPS, MIN_LINE_GAPS = 2, 12
# Writers of one job to follow; with more ranks, the others are ignored.
MAX_WRITERS = 1024
# Other ranks to compare a rank with, and seconds it must be behind them.
MAX_PEERS, MIN_LAG_S = 16, 5.0
# Faster steps were written in blocks, so their interval means nothing.
BLOCK_GAP_S = 5e-5
_MAX_LINE_BYTES = 2000
# Phases in which a script may print nothing for long.
_PHASE = lazy_pattern(
    rb"\b(eval(?!_)|valid(?:at\w*)?\b|testing|test set|checkpoint|sav(?:e|ing)|compil|load(?:ing)?\b"
    rb"|download|generat|export|upload|merg|gather|tokeniz|prepar|restart|restor|resum|warm-?up|profil"
    rb"|epoch \d+ (?:done|end))",
    re.IGNORECASE,
)
_EPOCH_END = b"epoch end"
# torchrun, about a process of its pod; lines of ranks after it show that it started all of them again.
_RANK_FAILED = lazy_pattern(rb"\] failed \(exitcode: (-?\d+)\) local_rank: (\d+) \(pid")
_EVALUATION_STEP = lazy_pattern(rb"\b(?:eval|valid|test)\w*\W{0,3}(?:step|iter|batch)", re.IGNORECASE)
_COUNTER = lazy_pattern(rb"(epochs?\W{0,3})?\b(\d{1,12})\s?(?:/|of)\s?(\d{1,12})\b", re.IGNORECASE)
_EPOCHS = lazy_pattern(rb"\bepochs?\W{0,3}(\d{1,9})\s?/\s?(\d{1,9})\b", re.IGNORECASE)
# Hugging Face's Trainer counts epochs in fractions of two decimals.
_EPOCH_FRACTION = lazy_pattern(rb"'epoch': '?(\d{1,6}\.\d{1,6})\b")
_WAIT_TIMES = lazy_pattern(rb"\bwait (\d+(?:\.\d+)?)\s?ms step (\d+(?:\.\d+)?)\s?ms\b")


class Rhythm(msgspec.Struct, eq=False):
    """Intervals between the lines and steps of one writer."""

    instance: str  # empty for event files and the job's status
    name: str
    newest_s: float = 0.0  # server time of its newest line
    quiet_since_s: float = 0.0  # monotonic time of its newest line, at the latest
    read_s: float = 0.0  # monotonic time of the last read
    quiet_reads: int = 0  # in succession, without a new line
    # Server time and number of its last steps.
    steps: deque[tuple[float, int]] = msgspec.field(default_factory=lambda: deque(maxlen=MAX_STEPS))
    wait_share: float | None = None  # of a step, waiting for samples; None if not printed
    longest_s: float = 0.0  # among gaps that were followed by more steps, outside of phases
    has_gap: bool = True  # lines may be missing before the next one
    _step_gaps: deque[float] = msgspec.field(default_factory=lambda: deque(maxlen=MAX_GAPS))
    _line_gaps: deque[float] = msgspec.field(default_factory=lambda: deque(maxlen=MAX_GAPS))
    _step_count: int = 0
    _longest_since_step_s: float = 0.0
    _phases_since_step: list[bytes] = msgspec.field(default_factory=list)
    _phases: dict[bytes, tuple[int, float]] = msgspec.field(
        default_factory=dict
    )  # number of times, longest gap
    _progress: deque[float] = msgspec.field(
        default_factory=lambda: deque(maxlen=MAX_GAPS)
    )  # lines of a phase
    _epoch: float = inf
    _reader: TrainingLineReader = msgspec.field(default_factory=TrainingLineReader)

    def add(self, at_s: float, text: bytes, step: int | None = None) -> None:
        """Learn from a line, or from a `step` found elsewhere."""
        text = text[:_MAX_LINE_BYTES]
        if not self.has_gap:
            self._line_gaps.append(at_s - self.newest_s)
            self._longest_since_step_s = max(self._longest_since_step_s, at_s - self.newest_s)
        is_evaluation = bool(_EVALUATION_STEP.search(text))
        if step is None and not is_evaluation:
            step = step_in(text)  # much faster than the reader
            if step is None and (points := self._reader.read(text)):
                step = points[-1].step
        if step is None:
            self._add_progress(at_s, text, is_evaluation)
        elif not self.steps or step != self.steps[-1][1]:
            self._add_step(at_s, step, text)
        if found := _PHASE.search(text):
            phase = found[1][:4].lower()
            self._phases_since_step = [*(each for each in self._phases_since_step if each != phase), phase]
        self.newest_s, self.has_gap = at_s, False

    def _add_progress(self, at_s: float, text: bytes, is_evaluation: bool) -> None:
        places = _places(text)
        if any(place > 0.9 * total for place, total in places):
            # What follows the last batches may take longer than one of them.
            if len(self._progress) > MIN_STEP_GAPS:
                self._phases_since_step = [_EPOCH_END]
            self._progress.clear()
        elif is_evaluation or places:
            self._progress.append(at_s)

    def _add_step(self, at_s: float, step: int, text: bytes) -> None:
        if times := _WAIT_TIMES.search(text):
            self.wait_share = float(times[1]) / max(float(times[2]), 1e-9)
        is_end = self._is_epoch_end(step, text)
        if self.steps and not self.has_gap:
            self._step_gaps.append(at_s - self.steps[-1][0])
        if len(self.steps) > 1:  # the first step compiles and warms up
            self._step_count += 1
            if not self.phase:
                self.longest_s = max(self.longest_s, self._longest_since_step_s)
            for phase in self._phases_since_step:
                if is_end and phase == _EPOCH_END:
                    continue  # the step before looked like the last one
                times_seen, longest_s = self._phases.get(phase, (0, 0.0))
                self._phases[phase] = times_seen + 1, max(longest_s, self._longest_since_step_s)
        self._longest_since_step_s = 0.0
        self._phases_since_step = [_EPOCH_END] if is_end else []
        self._progress.clear()
        self.steps.append((at_s, step))

    def _is_epoch_end(self, step: int, text: bytes) -> bool:
        if b"'epoch': " in text and (found := _EPOCH_FRACTION.search(text)):
            before, self._epoch = self._epoch, float(found[1])
            return int(2 * self._epoch - min(before, self._epoch) + 0.02) > int(self._epoch - 0.01)
        if places := _places(text):
            epoch, epochs = map(int, found.groups()) if (found := _EPOCHS.search(text)) else (1, 1)
            # Counters start at 0 or 1, and may run over all epochs.
            return any(
                place + self.stride >= total or place * epochs in (total * epoch, total * epoch + total)
                for place, total in places
            )
        return bool(self.steps) and 0 < step - self.steps[-1][1] < self.stride

    @property
    def stride(self) -> int:
        """Return the steps from one printed step to the next; 1 if unknown."""
        latest = islice(reversed(self.steps), 9)
        rises = [after - before for (_, after), (_, before) in pairwise(latest) if after > before]
        return int(median(rises)) if rises else 1

    def finish_read(
        self, at_s: float, read_s: float, *, has_news: bool, skew_s: float = 0.0, covered_s: float = inf
    ) -> None:
        """Record a read of its log at `at_s`, server time, and `read_s`, monotonic time.

        `covered_s` is the time that the lines cover; infinite if none is missing since the last read.
        """
        if has_news:
            # No older than the last read, whatever the clocks say.
            age_s = max(0.0, at_s - self.newest_s)
            age_s = min(age_s, read_s - self.read_s) if self.read_s else max(0.0, age_s - skew_s)
            self.quiet_since_s, self.quiet_reads = read_s - age_s, 0
        elif covered_s < inf and covered_s < 2 * (self.usual_s or inf):
            # Other ranks print so much that its lines may be missing.
            self.quiet_since_s = max(self.quiet_since_s, read_s - covered_s)
        elif self.newest_s:
            self.quiet_reads += 1
            self._longest_since_step_s = max(self._longest_since_step_s, read_s - self.quiet_since_s)
        self.read_s = read_s

    @property
    def has_steps(self) -> bool:
        """Return True if the interval between its steps is known."""
        return len(self._step_gaps) >= MIN_STEP_GAPS

    @property
    def usual_s(self) -> float | None:
        """Return the normal interval between its steps, or between its lines if they are regular."""
        if self.has_steps:
            return median(self._step_gaps)
        last = list(self._line_gaps)[-MIN_LINE_GAPS:]
        usual_s = median(last) if len(last) == MIN_LINE_GAPS and not self.steps else 0.0
        is_regular = usual_s > 0 and all(usual_s / 3 < each < 3 * usual_s for each in last)
        return usual_s if is_regular else None

    @property
    def phase(self) -> bytes:
        """Return the phase entered since the last step; empty if none, or if most steps have it."""
        for phase in reversed(self._phases_since_step):
            times_seen, _ = self._phases.get(phase, (0, 0.0))
            if times_seen < 3 or 2 * times_seen <= self._step_count:
                return phase
        return b""

    def limit_s(self, least_s: float, phase: bytes = b"") -> float:
        """Return the seconds without a line after which it is silent, in its own phase or another's."""
        usual_s = self.usual_s
        if usual_s is None:
            limit_s = UNKNOWN_PHASE_S if self._step_gaps else START_S
            return max(limit_s, 10 * max(self._line_gaps, default=0.0))
        limit_s = max(least_s, INTERVALS * usual_s, LONGEST_GAPS * self.longest_s)
        if not self.has_steps or usual_s < BLOCK_GAP_S:
            limit_s = max(limit_s, LINES_S)
        if phase := phase or self.phase:
            times_seen, longest_s = self._phases.get(phase, (0, 0.0))
            gaps_s = [after - before for before, after in pairwise(self._progress)]
            is_known = times_seen > 2 or longest_s > 3 * usual_s or len(gaps_s) >= MIN_STEP_GAPS
            phase_s = 2 * max(longest_s, least_s, *gaps_s)
            limit_s = max(limit_s, phase_s if is_known else UNKNOWN_PHASE_S)
        return limit_s if self.instance else limit_s + FLUSH_S


class JobLiveness:
    """Signs of life in the logs of one job."""

    def __init__(self, least_s: float = LEAST_S, *, needs_confirmation: bool = True) -> None:
        """Require `least_s` without a line for silence, seen in two reads if `needs_confirmation`."""
        self._least_s = least_s
        self._min_quiet_reads = int(needs_confirmation)
        self._skew_s = SKEW_S if needs_confirmation else 0.0
        self._writers: dict[tuple[str, str], Rhythm] = {}
        self._newest: dict[tuple[str, str, str], float] = {}
        self._pods: object = None
        self._rank_failures: dict[str, str] = {}  # by pod, the newest one
        self.rank_restarts: dict[str, tuple[str, ...]] = {}  # by pod, the failure before each
        self._progress = ""

    def begin(self, job: Job) -> None:
        """Start over if a pod of the job was replaced or restarted, because a start takes its time."""
        pods = frozenset(
            (each.pod_uid, each.restarts - each.rank_restarts) for each in job.instances if each.pod
        )
        if self._pods is not None and pods != self._pods:
            for each in (self._writers, self._newest, self._rank_failures, self.rank_restarts):
                each.clear()
        self._pods = pods

    def add(self, target: Target, lines: Sequence[LogLine], at_s: float, read_s: float) -> Sequence[LogLine]:
        """Learn from the last lines of a log, read at `at_s` (server) and `read_s` (monotonic).

        Returns the lines that are new and were learnt from.
        """
        newest_s = self._newest.get(target.key)
        new = [line for line in lines if line.stamp_ns / 1e9 > (newest_s or 0.0)]
        self._find_rank_restarts(target, new)
        is_whole = newest_s is None or len(new) < len(lines)
        own = {key: each for key, each in self._writers.items() if key[0] == target.pod}
        covered_s = inf
        if new and not is_whole:
            new = new[-max(MAX_GAPS, 4 * len(own)) :]  # a sample of a log that grows fast
            covered_s = (new[-1].stamp_ns - new[0].stamp_ns) / 1e9
            for each in own.values():
                each.has_gap = True
        heard = set()
        for line in new:
            key = (target.pod, line.writer)
            rhythm = self._writers.get(key)
            if rhythm is None:
                if len(self._writers) >= MAX_WRITERS:
                    continue
                rhythm = self._writers[key] = own[key] = Rhythm(target.name, line.writer)
            heard.add(key)
            rhythm.add(line.stamp_ns / 1e9, line.text)
        for key, each in own.items():
            each.finish_read(at_s, read_s, has_news=key in heard, skew_s=self._skew_s, covered_s=covered_s)
        if new:
            self._newest[target.key] = max(line.stamp_ns for line in new) / 1e9
        return new

    def _find_rank_restarts(self, target: Target, lines: Sequence[LogLine]) -> None:
        for line in lines:
            if found := _RANK_FAILED.search(line.raw[:_MAX_LINE_BYTES]):
                local = int(found[2])
                rank = target.ranks[local] if local < len(target.ranks) else f"of the pod {local}"
                self._rank_failures[target.pod] = f"rank {rank} exit {int(found[1])}"
            elif line.rank is not None and (failure := self._rank_failures.pop(target.pod, "")):
                self.rank_restarts[target.pod] = (*self.rank_restarts.get(target.pod, ()), failure)

    @property
    def writer_count(self) -> int:
        """Return the number of ranks and other writers found so far."""
        return len(self._writers)

    def newest_of(self, target: Target) -> float | None:
        """Return the time of the newest line that was read of a log."""
        return self._newest.get(target.key)

    def add_metrics(self, points: Iterable[tuple[int, float]], at_s: float, read_s: float) -> None:
        """Learn from steps and times of points in event files, oldest first."""
        rhythm = self._writers.setdefault(("", "metrics"), Rhythm("", "metrics"))
        new = [each for each in points if each[1] > rhythm.newest_s]
        for step, when_s in new:
            rhythm.add(when_s, b"", step)
        rhythm.finish_read(at_s, read_s, has_news=bool(new), skew_s=self._skew_s)

    def add_status(self, progress: str, at_s: float, read_s: float) -> None:
        """Count each change of the progress in the job's status as a sign of life."""
        if not progress:
            return
        rhythm = self._writers.setdefault(("", "status"), Rhythm("", "status"))
        has_news, self._progress = progress != self._progress, progress
        if has_news:
            rhythm.add(at_s, b"")
        rhythm.finish_read(at_s, read_s, has_news=has_news)

    @property
    def newest_s(self) -> float | None:
        """Return the server time of the newest sign of life; None if there was none."""
        return max((each.newest_s for each in self._writers.values()), default=None) or None

    def needs_others(self, job: Job) -> bool:
        """Return True if the ranks read so far are silent, so that the others must be read."""
        return self._judge_job(self._alive(job)) is not None

    def silence(self, job: Job) -> Silence | None:
        """Return the silence of the job or of some ranks; None if there is none, or if it is not known."""
        if job.status is not Status.RUNNING:
            return None
        writers = self._alive(job)
        return self._judge_job(writers) or self._judge_each(writers)

    def _alive(self, job: Job) -> list[Rhythm]:
        running = {each.name for each in job.instances if each.status is Status.RUNNING}
        return [each for each in self._writers.values() if each.newest_s and each.instance in running | {""}]

    def _judge_job(self, writers: Sequence[Rhythm]) -> Silence | None:
        if not writers:
            return None
        last = max(writers, key=lambda each: each.quiet_since_s)
        by_steps = [each for each in writers if each.has_steps]
        usual_s = {
            each: each.usual_s or inf
            for each in [each for each in by_steps if each.instance] or by_steps or writers
        }
        shortest_s = min(usual_s.values())
        frequent = (each for each, interval_s in usual_s.items() if interval_s <= 3 * shortest_s)
        first = max(frequent, key=lambda each: each.read_s)
        limit_s = first.limit_s(self._least_s)
        if last is not first and last.phase:
            limit_s = max(limit_s, last.limit_s(self._least_s))
        # Measured at the newest read of a frequent writer: older reads could not have seen the silence.
        if first.read_s - last.quiet_since_s <= limit_s or first.quiet_reads < self._min_quiet_reads:
            return None
        return _silence(max(each.newest_s for each in writers), first)

    def _judge_each(self, writers: Sequence[Rhythm]) -> Silence | None:
        # A rank is silent only while others take steps: during a validation, one may print alone.
        ranks = [each for each in writers if each.has_steps and each.instance]
        last_steps = sorted((each.steps[-1][0] for each in ranks), reverse=True)[:2]
        silent, phases = [], {each.phase for each in writers}
        for each in ranks if len(last_steps) > 1 else ():
            quiet_s = each.read_s - each.quiet_since_s
            if quiet_s <= self._least_s or each.quiet_reads < self._min_quiet_reads:
                continue
            limit_s = max(each.limit_s(self._least_s, phase) for phase in phases)
            others_s = last_steps[each.steps[-1][0] == last_steps[0]]
            if quiet_s > limit_s and others_s > each.newest_s + limit_s:
                silent.append(each)
        if not silent or len(silent) == len(writers):
            return None
        names = tuple(sorted((each.name for each in silent), key=_order))
        return _silence(max(each.newest_s for each in silent), silent[0], names)

    def stragglers(self, job: Job) -> tuple[Straggler, ...]:
        """Return the ranks that are steps behind the others, or that wait for samples unlike the others."""
        writers = [each for each in self._alive(job) if each.has_steps and job.status is Status.RUNNING]
        # Ranks that print every tenth step are not compared with one that prints each.
        peers_by: dict[tuple[int, bool], list[Rhythm]] = {}
        for each in writers:
            peers_by.setdefault((each.stride, each.instance == ""), []).append(each)
        found = []
        for (stride, _), group in peers_by.items():
            for each in group if len(group) > 1 else ():
                peers = [other for other in group[: MAX_PEERS + 1] if other is not each]
                behind, share = _steps_behind(each, peers, stride), _excess_wait(each, peers)
                if behind or share:
                    found.append(Straggler(each.name, each.instance, behind, share))
        found.sort(key=lambda each: _order(each.writer))
        return tuple(found) if len(found) < len(writers) else ()


def _places(text: bytes) -> list[tuple[int, int]]:
    # Counters such as 12/100, but not those of epochs.
    counters = ((int(place), int(total)) for epochs, place, total in _COUNTER.findall(text)[:4] if not epochs)
    return [(place, total) for place, total in counters if 0 < place <= total]


def _silence(since_s: float, rhythm: Rhythm, writers: tuple[str, ...] = ()) -> Silence:
    return Silence(datetime.fromtimestamp(since_s, UTC), rhythm.usual_s or 0.0, writers)


def _order(name: str) -> tuple[str, int]:
    word, _, number = name.replace("-", " ").rpartition(" ")
    return (word, int(number)) if number.isdecimal() else (name, 0)


def _steps_behind(one: Rhythm, peers: Sequence[Rhythm], stride: int) -> int:
    # Where the peers were, by the time of their lines, when this rank's log was last read.
    own_s, own_step = one.steps[-1]
    if own_step + stride >= max(peer.steps[-1][1] for peer in peers):
        return 0
    until_s = own_s + max(0.0, one.read_s - one.quiet_since_s)
    reached, passed_s = [], []
    for peer in peers:
        if place := bisect(peer.steps, (until_s, inf)):
            reached.append(peer.steps[place - 1][1])
        beyond = bisect(peer.steps, own_step, key=lambda each: each[1])
        if beyond < place:
            passed_s.append(peer.steps[beyond][0])
    # Clocks that differ a little and buffered output do not make a rank slow.
    least_s = max(one.usual_s or 0.0, MIN_LAG_S, one.longest_s)
    if not passed_s or until_s - min(passed_s) <= least_s:
        return 0
    behind = int(median(reached)) - own_step
    return behind if behind > stride else 0


def _excess_wait(one: Rhythm, peers: Sequence[Rhythm]) -> float:
    # At least a fifth of each step more than the others.
    shares = [peer.wait_share for peer in peers if peer.wait_share is not None]
    if one.wait_share is None or not shares or one.wait_share < median(shares) + 0.2:
        return 0.0
    return one.wait_share
