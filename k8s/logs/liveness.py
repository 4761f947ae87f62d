"""Signs of life of a job: its normal rhythm, as its lines show it, and the test for silence.

Pure functions of lines and times. A rank is judged by its own lines, a job by the rank
that prints its steps most often. Ages grow by the monotonic clock of this machine, so that neither a clock
that is set nor a machine that sleeps lets a job look silent.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from math import inf
from statistics import median

from k8s.logs.lines import LogLine, Target
from k8s.logs.training_lines import TrainingLineReader, step_in
from k8s.snapshot import Job, Silence, Straggler
from k8s.status import Status

# Gaps that are remembered of each writer, and steps, to compare ranks.
MOST_GAPS, MOST_STEPS = 64, 64
# Gaps between steps from which a rhythm is known, and gaps between any lines.
LEAST_STEPS, LEAST_LINES = 2, 12
# Writers of one job; with more, the others are not judged one by one.
MOST_WRITERS = 1024
# Other ranks that a rank is compared with.
MOST_PEERS = 32
# Seconds that a rank has to be behind the others.
LEAST_LAG_S = 5.0
# Steps that come faster were written by the block: their rhythm says nothing.
BLOCK_GAP_S = 5e-5
_LONGEST_LINE = 2000
# Lines after which a script may be quiet for long.
_ANNOUNCED = re.compile(
    rb"\b(eval(?!_)|valid(?:at\w*)?\b|testing|test set|checkpoint|sav(?:e|ing)|compil|load(?:ing)?\b"
    rb"|download|generat|export|upload|merg|gather|tokeniz|prepar|restart|restor|resum|warm-?up|profil"
    rb"|epoch \d+ (?:done|end))",
    re.IGNORECASE,
)
_EVALUATION_STEP = re.compile(rb"\b(?:eval|valid|test)\w*\W{0,3}(?:step|iter|batch)", re.IGNORECASE)
_COUNTER = re.compile(rb"(epochs?\W{0,3})?\b(\d{1,12})\s?(?:/|of)\s?(\d{1,12})\b", re.IGNORECASE)
_EPOCHS = re.compile(rb"\bepochs?\W{0,3}\d{1,9}\s?/\s?(\d{1,9})\b", re.IGNORECASE)
_TIMES = re.compile(rb"\bwait (\d+(?:\.\d+)?)\s?ms step (\d+(?:\.\d+)?)\s?ms\b")
_EPOCH_END = "epoch end"


@dataclass(frozen=True, slots=True)
class SilenceLimits:
    """Thresholds of silence, in seconds."""

    least_s: float = 60.0
    """At least, whatever the rhythm."""
    intervals: float = 5.0
    """As many normal intervals."""
    longest_gaps: float = 1.5
    """As many times the longest gap that was followed by more steps."""
    start_s: float = 3600.0
    """Before the first steps: data are prepared, kernels compiled."""
    unseen_s: float = 1800.0
    """After a line that announces a validation or a checkpoint whose duration is not known."""
    lines_s: float = 600.0
    """At least, for a script whose steps are not recognised."""
    flush_s: float = 180.0
    """In addition, for event files."""
    skew_s: float = 300.0
    """By how much the clocks of nodes may differ; counts only for lines older than the first reading."""

    def scaled(self, by: float) -> SilenceLimits:
        """Return limits so many times as long, for tests."""
        ratios = ("intervals", "longest_gaps")
        values = asdict(self).items()
        return SilenceLimits(**{name: each * (1 if name in ratios else by) for name, each in values})


@dataclass(slots=True, eq=False)
class Rhythm:
    """Rhythm of one writer: the gaps between its steps, and the long ones that were normal."""

    instance: str
    name: str
    newest_s: float = 0.0
    """Time of its newest line."""
    quiet_since_s: float = 0.0
    """Monotonic time of its newest line, at the latest."""
    read_s: float = 0.0
    """Monotonic time of the newest reading."""
    quiet_reads: int = 0
    """Readings in a row without a new line."""
    announced: str = ""
    """Activity that a line since the last step announced."""
    steps: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=MOST_STEPS))
    """Time and number of its newest steps."""
    wait_share: float | None = None
    """Share of a step for which it waits for samples, as it printed."""
    has_gap: bool = True
    """Lines may be missing before the next one."""
    longest_s: float = 0.0
    """Longest time without a line that was followed by more steps."""
    _step_gaps: deque[float] = field(default_factory=lambda: deque(maxlen=MOST_GAPS))
    _line_gaps: deque[float] = field(default_factory=lambda: deque(maxlen=MOST_GAPS))
    _longest_since_step_s: float = 0.0
    _longest_by_announced: dict[str, float] = field(default_factory=dict)
    _reader: TrainingLineReader = field(default_factory=TrainingLineReader)

    def add(self, at_s: float, text: bytes, step: int | None = None) -> None:
        """Learn from a line, or from a `step` read elsewhere."""
        text = text[:_LONGEST_LINE]
        found = _ANNOUNCED.search(text)
        if not self.has_gap:
            self._learn_gap(at_s - self.newest_s)
            self._line_gaps.append(at_s - self.newest_s)
        if step is None and not _EVALUATION_STEP.search(text):
            step = self._step_of(text)
        if step is not None and (not self.steps or step != self.steps[-1][1]):
            self._add_step(at_s, step, text)
        if found:
            self.announced = found[1].lower().decode()
        self.newest_s, self.has_gap = at_s, False

    def _step_of(self, text: bytes) -> int | None:
        if (step := step_in(text)) is not None:  # much faster than the reader
            return step
        points = self._reader.read(text)
        return points[-1].step if points else None

    def _add_step(self, at_s: float, step: int, text: bytes) -> None:
        if times := _TIMES.search(text):
            self.wait_share = float(times[1]) / max(float(times[2]), 1e-9)
        is_end = self._is_epoch_end(step, text)
        if self.steps and not self.has_gap:
            self._step_gaps.append(at_s - self.steps[-1][0])
        if len(self.steps) > 1:  # the first step compiles and warms up
            self.longest_s = max(self.longest_s, self._longest_since_step_s)
        self._longest_since_step_s = 0.0
        self.announced = _EPOCH_END if is_end else ""
        self.steps.append((at_s, step))

    def _is_epoch_end(self, step: int, text: bytes) -> bool:
        # The next step would be beyond what is counted to, or this one came earlier than the others.
        stride = self.stride
        epochs = int(found[1]) if (found := _EPOCHS.search(text)) else 1
        for of_epochs, at, end in _COUNTER.findall(text)[:4]:
            place, total = int(at), int(end)
            if not of_epochs and 0 < place <= total:
                return place + stride > total or place * epochs % total == 0
        return bool(self.steps) and 0 < step - self.steps[-1][1] < stride

    @property
    def stride(self) -> int:
        """Return the steps from one printed step to the next; 1 if unknown."""
        numbers = [step for _, step in self.steps][-9:]
        rises = [after - before for before, after in pairwise(numbers) if after > before]
        return int(median(rises)) if rises else 1

    def _learn_gap(self, gap_s: float) -> None:
        self._longest_since_step_s = max(self._longest_since_step_s, gap_s)
        if self.announced:
            longest_s = self._longest_by_announced.get(self.announced, 0.0)
            self._longest_by_announced[self.announced] = max(longest_s, gap_s)

    def finish_read(self, at_s: float, read_s: float, *, has_news: bool, skew_s: float) -> None:
        """Record a reading of its log at `at_s`, server time, and `read_s`, monotonic time."""
        if has_news:
            # Not older than the reading before, whatever the clocks say.
            age_s = max(0.0, at_s - self.newest_s)
            age_s = min(age_s, read_s - self.read_s) if self.read_s else max(0.0, age_s - skew_s)
            self.quiet_since_s, self.quiet_reads = read_s - age_s, 0
        elif self.newest_s:
            self.quiet_reads += 1
            self._longest_since_step_s = max(self._longest_since_step_s, self.quiet_s)
        self.read_s = read_s

    @property
    def quiet_s(self) -> float:
        """Return the seconds without a line, as far as they were observed."""
        return self.read_s - self.quiet_since_s

    @property
    def has_steps(self) -> bool:
        """Return True if the rhythm of its steps is known."""
        return len(self._step_gaps) >= LEAST_STEPS

    @property
    def usual_s(self) -> float | None:
        """Return the normal interval between two steps, or between its lines if they are regular."""
        if self.has_steps:
            return median(self._step_gaps)
        last = list(self._line_gaps)[-LEAST_LINES:]
        usual_s = median(last) if len(last) == LEAST_LINES and not self.steps else 0.0
        is_regular = usual_s > 0 and all(usual_s / 3 < each < 3 * usual_s for each in last)
        return usual_s if is_regular else None

    def limit_s(self, limits: SilenceLimits, announced: str = "") -> float:
        """Return the seconds without a line from which it is silent."""
        usual_s = self.usual_s
        if usual_s is None:
            seen_s = 10 * max(self._line_gaps, default=0.0)
            return max(limits.start_s if not self._step_gaps else limits.unseen_s, seen_s)
        limit_s = max(
            limits.least_s if self.has_steps else limits.lines_s,
            limits.intervals * usual_s,
            limits.longest_gaps * self.longest_s,
        )
        if usual_s < BLOCK_GAP_S:
            limit_s = max(limit_s, limits.lines_s)
        if announced := announced or self.announced:
            longest_s = self._longest_by_announced.get(announced)
            unseen_s = limits.unseen_s if longest_s is None else 2 * max(longest_s, limits.least_s)
            limit_s = max(limit_s, unseen_s)
        # What is written to a file is seen only when its buffer is flushed.
        return limit_s if self.instance else limit_s + limits.flush_s


class JobLiveness:
    """Signs of life in the logs of one job."""

    def __init__(self, limits: SilenceLimits | None = None, *, needs_confirmation: bool = True) -> None:
        """Know nothing yet.

        Args:
            limits: From when on something is silent.
            needs_confirmation: A single reading is not enough; False for commands, which read once.
        """
        self.limits = limits or SilenceLimits()
        self._least_reads = int(needs_confirmation)
        self._skew_s = self.limits.skew_s if needs_confirmation else 0.0
        self._writers: dict[tuple[str, str], Rhythm] = {}
        self._read: dict[tuple[str, str, str], float] = {}
        self._incarnation: object = None
        self._status = ""

    def begin(self, job: Job) -> None:
        """Forget the rhythm if a pod of the job was replaced or restarted: a start takes its time."""
        pods = frozenset((each.pod_uid, each.restarts) for each in job.instances if each.pod)
        if self._incarnation is not None and pods != self._incarnation:
            self._writers.clear()
            self._read.clear()
        self._incarnation = pods

    def add(self, target: Target, lines: Sequence[LogLine], at_s: float, read_s: float) -> Sequence[LogLine]:
        """Learn from the last lines of a log, read at `at_s` (server) and `read_s` (monotonic).

        Lines that were read before count once. Returns the new ones that were learnt from.
        """
        newest_s = self._read.get(target.key)
        new = [line for line in lines if line.stamp_ns / 1e9 > (newest_s or 0.0)]
        is_whole = newest_s is None or len(new) < len(lines)
        own = {key: each for key, each in self._writers.items() if key[0] == target.pod}
        if new and not is_whole:
            new = new[-max(MOST_GAPS, 4 * len(own)) :]  # of a log that grows fast, a sample will do
            for each in own.values():
                each.has_gap = True
        heard = set()
        for line in new:
            key = (target.pod, line.writer)
            rhythm = self._writers.get(key)
            if rhythm is None:
                if len(self._writers) >= MOST_WRITERS:
                    continue
                rhythm = self._writers[key] = own[key] = Rhythm(target.name, line.writer)
            heard.add(key)
            rhythm.add(line.stamp_ns / 1e9, line.text)
        for key, each in own.items():
            each.finish_read(at_s, read_s, has_news=key in heard, skew_s=self._skew_s)
        if new:
            self._read[target.key] = max(line.stamp_ns for line in new) / 1e9
        return new

    def newest_of(self, target: Target) -> float | None:
        """Return the time of the newest line that was read of a log."""
        return self._read.get(target.key)

    def add_metrics(self, points: Iterable[tuple[int, float]], at_s: float, read_s: float) -> None:
        """Learn from steps and times of points in event files, oldest first."""
        rhythm = self._writers.setdefault(("", "metrics"), Rhythm("", "metrics"))
        new = [each for each in points if each[1] > rhythm.newest_s]
        for step, when_s in new:
            rhythm.add(when_s, b"", step)
        rhythm.finish_read(at_s, read_s, has_news=bool(new), skew_s=self._skew_s)

    def add_status(self, progress: str, at_s: float, read_s: float) -> None:
        """Learn from the progress that the job's object reports; each change is a sign of life."""
        if not progress:
            return
        rhythm = self._writers.setdefault(("", "status"), Rhythm("", "status"))
        has_news, self._status = progress != self._status, progress
        if has_news:
            rhythm.add(at_s, b"")
        rhythm.finish_read(at_s, read_s, has_news=has_news, skew_s=0.0)

    @property
    def newest_s(self) -> float | None:
        """Return the server time of the newest sign of life; None if there was none."""
        return max((each.newest_s for each in self._writers.values()), default=None) or None

    def needs_others(self, job: Job) -> bool:
        """Return True if the ranks read so far are silent, so that the others have to be read."""
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
        rhythmic = [each for each in by_steps if each.instance] or by_steps or writers
        usual_s = min(each.usual_s or inf for each in rhythmic)
        frequent = [each for each in rhythmic if (each.usual_s or inf) <= 3 * usual_s]
        first = max(frequent, key=lambda each: each.read_s)
        limit_s = first.limit_s(self.limits)
        if last is not first and last.announced:
            limit_s = max(limit_s, last.limit_s(self.limits), first.limit_s(self.limits, last.announced))
        # Those that were read before the silence could have been noticed do not count.
        quiet_s = first.read_s - last.quiet_since_s
        if quiet_s <= limit_s or first.quiet_reads < self._least_reads:
            return None
        return _silence(max(each.newest_s for each in writers), first)

    def _judge_each(self, writers: Sequence[Rhythm]) -> Silence | None:
        # A rank is silent only while others take steps: in a validation, one may print alone.
        silent, announced = [], {each.announced for each in writers}
        for each in writers:
            if not each.has_steps or not each.instance or each.quiet_reads < self._least_reads:
                continue
            limit_s = max(each.limit_s(self.limits, activity) for activity in announced)
            others = (other for other in writers if other.has_steps and other.instance and other is not each)
            stepped = (other.steps[-1][0] for other in others)
            if each.quiet_s > limit_s and max(stepped, default=0.0) > each.newest_s + limit_s:
                silent.append(each)
        if not silent or len(silent) == len(writers):
            return None
        names = tuple(each.name for each in sorted(silent, key=lambda each: _order(each.name)))
        return _silence(max(each.newest_s for each in silent), silent[0], names)

    def stragglers(self, job: Job) -> tuple[Straggler, ...]:
        """Return the ranks that are steps behind the others, or that wait for samples unlike the others."""
        writers = (
            [each for each in self._alive(job) if each.has_steps] if job.status is Status.RUNNING else []
        )
        found = []
        for each in writers:
            peers = [other for other in writers if other is not each and _is_peer(each, other)][:MOST_PEERS]
            behind, share = (_steps_behind(each, peers), _waits_more(each, peers)) if peers else (0, 0.0)
            if behind or share:
                found.append(Straggler(each.name, each.instance, behind, share))
        found.sort(key=lambda each: _order(each.writer))
        return tuple(found) if len(found) < len(writers) else ()


def _silence(since_s: float, rhythm: Rhythm, writers: tuple[str, ...] = ()) -> Silence:
    return Silence(datetime.fromtimestamp(since_s, UTC), rhythm.usual_s or 0.0, writers)


def _order(name: str) -> tuple[str, int]:
    word, _, number = name.replace("-", " ").rpartition(" ")
    return (word, int(number)) if number.isdecimal() else (name, 0)


def _is_peer(one: Rhythm, other: Rhythm) -> bool:
    # Ranks that print every tenth step are not compared with one that prints each.
    return one.stride == other.stride and (one.instance == "") == (other.instance == "")


def _steps_behind(one: Rhythm, peers: Sequence[Rhythm]) -> int:
    # By the time of the lines: where the peers were when this rank's log was read last.
    usual_s, (own_s, own_step) = one.usual_s or 0.0, one.steps[-1]
    until_s = own_s + max(0.0, one.quiet_s)
    # Neither clocks of nodes that differ a little nor buffered output make a rank slow.
    least_s = max(usual_s, LEAST_LAG_S, one.longest_s)
    reached = [
        max(before) for peer in peers if (before := [step for at_s, step in peer.steps if at_s <= until_s])
    ]
    passed = [at_s for peer in peers for at_s, step in peer.steps if own_step < step and at_s <= until_s]
    if not reached or not passed or until_s - min(passed) <= least_s:
        return 0
    behind = int(median(reached)) - own_step
    return behind if behind > one.stride else 0


def _waits_more(one: Rhythm, peers: Sequence[Rhythm]) -> float:
    # A fifth of each step more than the others.
    shares = [peer.wait_share for peer in peers if peer.wait_share is not None]
    if one.wait_share is None or not shares or one.wait_share < median(shares) + 0.2:
        return 0.0
    return one.wait_share
