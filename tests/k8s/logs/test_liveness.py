"""Scripted timelines of jobs: healthy ones raise no alarm, hung ones do, and slow ranks are named."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from cProfile import Profile
from itertools import count

import msgspec
import pytest
from msgspec import structs
from msgspec.structs import replace

from k8s.cluster.job_builder import RankEvidence
from k8s.logs.lines import LogLine, targets_of
from k8s.logs.liveness import JobLiveness
from k8s.logs.prefixes import RankReader
from k8s.snapshot import Job, Silence, Straggler
from k8s.status import Status
from tests.support.evidence import instance, job_of

BEGIN_S = 1_800_000_000.0
POLL_S = 30.0
Lines = Iterable[tuple[float, str]]


def test_processes_that_torchrun_restarts_count_as_restarts_of_their_pod() -> None:
    failed = (
        "E1127 11:22:24.9 7464 torch/elastic/api.py:1002] failed (exitcode: {}) local_rank: 1 (pid: 7) of"
    )
    said = ["[rank2]: step 1", failed.format(-9), "[rank3]: step 1", failed.format(3), "[rank2]: step 2"]
    job = job_of([instance("worker-1", Status.RUNNING, ranks=(2, 3)), instance("worker-0", Status.RUNNING)])
    target = next(each for each in targets_of(job) if each.instance == "worker-1")
    liveness, reader = JobLiveness(), RankReader(target.ranks)
    liveness.begin(job)
    for end, restarts in ((2, 0), (3, 1), (4, 1), (5, 2), (5, 2)):
        lines = [
            LogLine(int((BEGIN_S + at) * 1e9), text.encode(), target, at, reader.owner(text.encode()).rank)
            for at, text in enumerate(said[:end])
        ]
        liveness.add(target, lines, BEGIN_S + end, float(end))
        evidence = RankEvidence({}, {}, liveness.rank_restarts)
        job = replace(job, instances=evidence.apply(job.instances))  # also of a job that has them
        liveness.begin(job)
        assert [(each.restarts, each.rank_restarts) for each in job.instances] == [
            (restarts, restarts),
            (0, 0),
        ]
    assert job.instances[0].reason == "rank 3 exit 3, its launcher restarted the ranks"


class Timeline(msgspec.Struct):
    """The lines of each instance by their time, polled as the feed does."""

    logs: dict[str, list[tuple[float, str]]]
    until_s: float
    from_s: float = 0.0
    """Start of the console."""
    skew_s: float = 0.0
    """Lag of the nodes' clocks."""
    server_clock: Callable[[float], float] = lambda at_s: at_s
    monotonic: Callable[[float], float] = lambda at_s: at_s
    restarts: list[float] = msgspec.field(default_factory=list)
    rotations: list[float] = msgspec.field(default_factory=list)
    tail: int = 200
    ranks: dict[str, tuple[int, ...]] = msgspec.field(default_factory=dict)
    status: Status = Status.RUNNING
    stragglers: tuple[Straggler, ...] = ()

    def job(self, at_s: float) -> Job:
        found = [instance(name, Status.RUNNING, ranks=self.ranks.get(name, ())) for name in self.logs]
        times = sum(each <= at_s for each in self.restarts)
        return job_of([structs.replace(each, restarts=times) for each in found], self.status)

    def alarms(self) -> Iterator[tuple[float, Silence]]:
        """Poll all logs, and yield each moment at which the job is silent."""
        liveness = JobLiveness()
        at_s = self.from_s
        while at_s <= self.until_s:
            job = self.job(at_s)
            liveness.begin(job)
            is_first = at_s == self.from_s
            for target in targets_of(job):
                oldest = max([0.0, *(each for each in (*self.rotations, *self.restarts) if each <= at_s)])
                written = [each for each in self.logs[target.instance] if oldest <= each[0] <= at_s]
                reader, order = RankReader(target.ranks), count()
                lines = [
                    LogLine(
                        int((BEGIN_S + when_s - self.skew_s) * 1e9), text.encode(), target, next(order),
                        (owner := reader.owner(text.encode())).rank, prefix_bytes=owner.prefix_bytes,
                    )
                    for when_s, text in written[-1000 if is_first else -self.tail :]
                ]  # fmt: skip
                liveness.add(target, lines, BEGIN_S + self.server_clock(at_s), 1000 + self.monotonic(at_s))
            if (found := liveness.silence(job)) is not None:
                yield at_s, found
            self.stragglers = liveness.stragglers(job)
            at_s += POLL_S


def steps(
    first_s: float, last_s: float, every_s: float = 2.0, start: int = 0, text: str = "step {} loss 1.5"
) -> Lines:
    """Return step lines at regular times."""
    at_s, number = first_s, start
    while at_s <= last_s:
        yield at_s, text.format(number)
        at_s, number = at_s + every_s, number + 1


def one(*lines: Lines, until_s: float, **more: object) -> Timeline:
    return Timeline({"master-0": sorted(line for each in lines for line in each)}, until_s, **more)  # type: ignore[arg-type]


def epochs(epoch_s: float, quiet_s: float, number: int, before: str = "", every_s: float = 2.0) -> Lines:
    """Return epochs of steps, each followed by a quiet time."""
    of_epoch = int(epoch_s / every_s)
    for epoch in range(number):
        begin_s = epoch * (epoch_s + quiet_s)
        for place in range(of_epoch):
            yield (
                begin_s + place * every_s,
                f"epoch {epoch + 1}/{number} step {epoch * of_epoch + place + 1}/{number * of_epoch} loss 1",
            )
        if before:
            yield begin_s + epoch_s, before


def bars(until_s: float) -> Lines:
    """Return a progress bar redrawn with carriage returns: a line whenever 16 KiB are full."""
    for at_s in range(0, int(until_s), 160):
        parts = (
            f"{step // 40}%|##  | {step}/4000 [00:01<00:10, 1it/s, loss=0.5]"
            for step in range(at_s, at_s + 160)
        )
        yield at_s + 160.0, "\r".join(parts)


def counted(quiet_s: Iterable[float], text: str, every_s: float = 10.0) -> Lines:
    """Return epochs of ten minutes that count their own 600 steps, each followed by a quiet time."""
    begin_s = 0.0
    for epoch, quiet in enumerate(quiet_s):
        for at_s in range(0, 600, int(every_s)):
            yield begin_s + at_s, text.format(epoch=epoch, step=at_s, share=f"{epoch + at_s / 600:.2f}")
        begin_s += 600 + quiet


def each_step(text: str) -> Timeline:
    """Return 150 steps, each with a word that announces a phase, and then nothing."""
    return one(steps(0, 298, text=text), until_s=900)


def ranked(rank: int, lines: Lines) -> list[tuple[float, str]]:
    return [(at_s, f"[rank{rank}]: {text}") for at_s, text in lines]


PREPARE = [(1.0, "downloading corpus"), (9.0, "tokenizing shard 1/40"), (11.0, "tokenizing shard 2/40")]
HEALTHY = {
    "long validation, announced": one(epochs(600, 400, 4, "Validating on 50000 samples"), until_s=3900),
    "long validation after an epoch": one(epochs(600, 500, 4), until_s=4300),
    "validation seen before, then a longer one": one(
        epochs(300, 100, 3), steps(1250, 1500, start=500), until_s=1500
    ),
    "checkpoints every half hour": one(
        (
            line
            for place in range(4)
            for line in [
                *steps(place * 1900, place * 1900 + 1800, start=place * 1000),
                (place * 1900 + 1801.0, f"Saving checkpoint to /ckpt/{place}"),
            ]
        ),
        until_s=7000,
    ),
    "epochs without lines": one(steps(0, 8000, 1200, text="Epoch {}: loss 0.5"), until_s=8000),
    "a clock that stops": one(
        steps(0, 3000), until_s=3000, server_clock=lambda at_s: min(at_s, 900.0) + max(0.0, at_s - 1500)
    ),
    "a clock that is set an hour ahead": one(
        steps(0, 3000, 40), until_s=3000, server_clock=lambda at_s: at_s + 3600 * (at_s > 1000)
    ),
    "a machine that sleeps": one(
        steps(0, 3000, 40),
        until_s=3000,
        server_clock=lambda at_s: at_s + 7200 * (at_s > 1000),
        monotonic=lambda at_s: at_s,
    ),
    "a node whose clock is behind": one(steps(0, 1200), until_s=1200, skew_s=240),
    "a restart": one(
        steps(0, 600),
        [(620.0, "loading model")],
        steps(1500, 2400, start=300),
        until_s=2400,
        restarts=[610.0],
    ),
    "first start and data preparation": one(PREPARE, steps(1800, 2400), until_s=2400),
    "a first step that compiles": one([(5.0, "step 0 loss 9.5")], steps(700, 1500, start=1), until_s=1500),
    "a second step that compiles": one(
        [(5.0, "step 0 loss 9.5"), (60.0, "step 1 loss 9.4")], steps(900, 1500, start=2), until_s=1500
    ),
    "a progress bar without line ends": one(bars(3000), until_s=3000),
    "a line every ten minutes": one(steps(0, 9000, 600), until_s=9000),
    "a rotated log": one(steps(0, 900, 40), until_s=900, rotations=[301.0, 620.0]),
    "a console that starts late": one(steps(0, 4000), until_s=4000, from_s=3000),
    "steps of very different lengths": one(
        steps(0, 3000, 50, text="step {}0 loss 1"), steps(2, 3000, 50, text="step {}1 loss 1"), until_s=3000
    ),
    "a rank that prints at the ends of epochs alone": Timeline(
        {"master-0": [*steps(0, 3000)], "worker-0": [*steps(0, 3000, 900, text="epoch {} done, loss 1")]},
        3000,
    ),
    "rank 0 evaluates while others wait": Timeline(
        {
            "master-0": sorted(
                [
                    *steps(0, 600),
                    *steps(602, 1200, text="eval step {}/300 acc 0.5"),
                    *steps(1201, 1800, start=301),
                ]
            ),
            "worker-0": sorted([*steps(0, 600), *steps(1201, 1800, start=301)]),
        },
        1800,
    ),
    "others never print": Timeline(
        {"master-0": [*steps(0, 900)], "worker-0": [(1.0, "hello")], "worker-1": []}, 900
    ),
    "more ranks in one log than lines are read": Timeline(
        {"launcher-0": sorted(line for rank in range(256) for line in ranked(rank, steps(rank / 999, 400)))},
        400, from_s=120,
    ),
    "a rank that prints much more than the others": Timeline(
        {"launcher-0": sorted([*ranked(0, steps(0, 900, 0.05)), *ranked(1, steps(0, 900, 25))])},
        900, from_s=300,
    ),
    "output in blocks": one(
        (line for at_s in range(0, 3000, 150) for line in steps(at_s, at_s + 1e-4, 1e-6, start=at_s * 9)),
        until_s=2900,
    ),
    "a thousand lines in a second": one(steps(0, 200, 0.005), until_s=200),
    "validation of 20 minutes after epochs that count from 1": one(
        counted([1200, 1200], "epoch {epoch}/3 step {step}/590 loss 1"), until_s=3600
    ),
    "validation of 20 minutes after epochs that count from 0": one(
        counted([1200, 1200], "Epoch: [{epoch}][{step:3}/600]  Loss 1.0 (1.0)  Acc@1 0.5 (0.5)"), until_s=3600
    ),
    "validations that grow": one(
        counted([600, 900, 1200], "epoch {epoch}/3 step {step}/600 loss 1"), until_s=4500
    ),
    "validation after Hugging Face's epochs": one(
        counted([1200, 1200], "{{'loss': 0.5, 'learning_rate': 4.9e-05, 'epoch': {share}}}"), until_s=3600
    ),
    "an announced validation that prints its sizes first": one(
        steps(0, 600), [(602.0, "***** Running Evaluation *****"), (602.1, "  Num examples = 9000")],
        [(602.2, "  Batch size = 8"), (1700.0, "{'eval_loss': 0.5}")], steps(1702, 2000, start=301),
        until_s=2000,
    ),
    "metrics after the bars of a validation": one(
        steps(0, 600), [(602.0 + 5 * place, f"{place}/100 [00:10<00:20, 1it/s]") for place in range(1, 101)],
        steps(1500, 1800, start=301), until_s=1800,
    ),
    "a short sanity check of the validation first": one(
        [(5.0, "step 0 loss 9"), (6.0, "validation check"), (8.0, "step 1 loss 9")], steps(10, 600, start=2),
        [(602.0, "validation")], steps(1200, 1500, start=400), until_s=1500,
    ),
    "a first checkpoint after a long validation": one(
        steps(0, 600), [(601.0, "Running validation")], steps(1200, 1800, start=301),
        [(1801.0, "Saving checkpoint")], steps(2300, 2500, start=700), until_s=2500,
    ),
    "a warm restart within the pod": one(
        steps(0, 600), [(612.0, "worker group failed; restarting 1/3"), (640.0, "loading model")],
        steps(1200, 1800, start=250), until_s=1800,
    ),
    "epochs that grow": one(
        ((20 * (1.5**place - 1) / 0.5, f"Epoch {place}: train_loss 0.5") for place in range(11)), until_s=2300
    ),
    "steps that slow down fourfold": one(
        ((at_s, f"step {place} loss 1") for place, at_s in enumerate(
            [*range(0, 900, 15), *range(900, 1500, 30), *range(1500, 4000, 60)]
        )),
        until_s=3900,
    ),
    "only rank 0 prints after the first lines": Timeline(
        {"master-0": [*steps(0, 1800)], "worker-0": [(1.0, "NCCL comm ready")], "worker-1": [(1.0, "ready")]},
        1800,
    ),
    "numbered preparation": one(
        [(30.0 * place, f"Step {place}/4: shuffle") for place in range(1, 4)], steps(1500, 1800), until_s=1800
    ),
    "never prints": one(until_s=9000),
    "is suspended": one(steps(0, 60), until_s=900, status=Status.SUSPENDED),
    "is being deleted": one(steps(0, 60), until_s=900, status=Status.TERMINATING),
}  # fmt: skip


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_job_raises_no_alarm(name: str) -> None:
    assert list(HEALTHY[name].alarms()) == []


# The timeline, the last moment at which the alarm may come, and the writers that are named.
HUNG: dict[str, tuple[Timeline, float, tuple[str, ...]]] = {
    "all ranks": (
        Timeline({name: [*steps(0, 300)] for name in ("master-0", "worker-0", "worker-1")}, 600), 390, (),
    ),
    "a job of one pod": (one(steps(0, 300), until_s=600), 390, ()),
    "hung before the console starts": (one(steps(0, 300), until_s=3700, from_s=3600), 3660, ()),
    "one rank": (
        Timeline({"master-0": [*steps(0, 900)], "worker-0": [*steps(0, 300)]}, 900), 420, ("worker-0",),
    ),
    "one rank of a pod": (
        Timeline(
            {"master-0": sorted([*ranked(0, steps(0, 900)), *ranked(1, steps(1, 300))])}, 900,
            ranks={"master-0": (0, 1)}, tail=2000,
        ),
        420, ("rank 1",),
    ),
    "after a checkpoint that was seen before": (
        one(
            epochs(200, 20, 2, "saving checkpoint"), steps(440, 500, start=900),
            [(502.0, "saving checkpoint")], until_s=900,
        ),
        670, (),
    ),
    "after a validation as long as before": (one(epochs(300, 100, 3), until_s=2000), 1490, ()),
    "one rank of 64 in one log": (
        Timeline(
            {"launcher-0": sorted(
                line
                for rank in range(64)
                for line in ranked(rank, steps(rank / 999, 100 if rank == 5 else 400))
            )},
            400, tail=256,
        ),
        210, ("rank 5",),
    ),
    "mpirun": (
        Timeline(
            {"launcher-0": sorted(
                (at_s, f"[1,{rank}]<stdout>:{text}")
                for rank in range(4)
                for at_s, text in steps(rank / 9, 300)
            )},
            900, tail=900,
        ),
        390, (),
    ),
    "a script whose steps have no number": (
        one(((at_s * 5.0, "another batch done") for at_s in range(100)), until_s=1400), 1155, (),
    ),
    "a line every minute": (one(steps(0, 1200, 60), until_s=2000), 1530, ()),
    "before the first step": (one(PREPARE, until_s=4200), 3660, ()),
    "right after the first steps": (one(steps(10, 14), until_s=900), 120, ()),
    "among steps after an announced validation": (
        one(steps(0, 600), [(601.0, "Running validation")], steps(1200, 1300, start=301), until_s=2000),
        1390, (),
    ),
    "among steps after the validation of an epoch": (
        one(
            counted([1200], "epoch {epoch}/3 step {step}/600 loss 1"),
            steps(1800, 2100, 10, text="epoch 1/3 step {}0/600 loss 1"), until_s=3000,
        ),
        2190, (),
    ),
    "in a validation that prints its steps": (
        one(
            steps(0, 600), [(602.0, "Validating")], steps(604, 700, text="eval step {}/300 acc 0.5"),
            until_s=4000,
        ),
        850, (),
    ),
    "with a checkpoint in each step line": (each_step("step {} loss 1 checkpoint=none"), 390, ()),
    "with loading in each step line": (each_step("step {} loss 1 data loading 0.1s"), 390, ()),
    "after a warm restart": (
        one(steps(0, 600), steps(1200, 1300, start=250), until_s=2000, restarts=[610.0]), 1390, (),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HUNG)
def test_a_hung_job_is_silent_soon(name: str) -> None:
    timeline, until_s, writers = HUNG[name]
    at_s, found = next(timeline.alarms())
    assert at_s <= until_s and found.writers == writers


def test_an_unannounced_pause_raises_alarms_only_the_first_time() -> None:
    timeline = one(counted([1200, 1200, 1200], "loss 0.5 step {epoch}{step:03}"), until_s=5300)
    assert {int(at_s // 1800) for at_s, _ in timeline.alarms()} == {0}


def test_comparing_ranks_costs_in_proportion_to_their_number() -> None:
    calls = {}
    for ranks in (64, 256):
        lines = sorted(
            (at_s, f"[1,{rank}]<stdout>:{text}")
            for rank in range(ranks)
            for at_s, text in steps(rank / 999, 20)
        )
        timeline, liveness = Timeline({"launcher-0": lines}, 20), JobLiveness()
        job = timeline.job(20)
        (target,), reader = targets_of(job), RankReader(())
        owned = [
            (int((BEGIN_S + at_s) * 1e9), text.encode(), reader.owner(text.encode())) for at_s, text in lines
        ]
        logged = [
            LogLine(stamp_ns, raw, target, 0, owner.rank, prefix_bytes=owner.prefix_bytes)
            for stamp_ns, raw, owner in owned
        ]
        liveness.add(target, logged, BEGIN_S + 20, 1000)
        profile = Profile(builtins=False)
        profile.runcall(liveness.stragglers, job)
        calls[ranks] = sum(each.callcount for each in profile.getstats())
    assert calls[256] <= 6 * calls[64]


def test_a_silence_alarm_has_its_start_and_usual_interval_and_ends_with_the_next_line() -> None:
    timeline = one(steps(0, 300), steps(700, 900, start=200), until_s=900)
    found = list(timeline.alarms())
    assert {(each.since.timestamp() - BEGIN_S, each.usual_s) for _, each in found} == {(300.0, 2.0)}
    assert [at_s for at_s, _ in found] == [float(each) for each in range(390, 691, 30)]


# What each of four ranks prints, and the text about each straggler.
STRAGGLING: dict[str, tuple[dict[int, Lines], list[tuple[str, str]]]] = {
    "none": ({rank: steps(rank / 9, 300) for rank in range(4)}, []),
    "one falls behind": (
        {**{rank: steps(0, 300) for rank in range(3)}, 3: steps(0, 300, 2.2)},
        [("rank 3", "14 steps behind")],
    ),
    "one stopped 12 steps before the others": (
        {**{rank: steps(0, 300) for rank in range(3)}, 3: steps(0, 276)}, [("rank 3", "12 steps behind")],
    ),
    "clocks differ": ({**{rank: steps(0, 300, 0.5) for rank in range(3)}, 3: steps(2, 300, 0.5)}, []),
    "one step is none": ({**{rank: steps(0, 300) for rank in range(3)}, 3: steps(0, 298)}, []),
    "prints every tenth step": (
        {**{rank: steps(0, 300) for rank in range(3)}, 3: steps(0, 281, 20, text="step {}0 loss 1")},
        [],
    ),
    "waits for data": (
        {
            **{rank: steps(0, 300, text="step {} loss 1 wait 1.0ms step 100.0ms") for rank in range(3)},
            3: steps(0, 300, text="step {} loss 1 wait 60.5ms step 100.0ms"),
        },
        [("rank 3", "waits for data 60% of each step")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STRAGGLING)
def test_a_rank_that_holds_the_others_up_is_named(name: str) -> None:
    ranks, expected = STRAGGLING[name]
    logs = {f"worker-{rank}": ranked(rank, lines) for rank, lines in ranks.items()}
    timeline = Timeline(logs, 300)
    assert list(timeline.alarms()) == []
    assert [(each.writer, each.text) for each in timeline.stragglers] == expected


@pytest.mark.parametrize(("sign", "is_silent"), [("none", True), ("status", False), ("metrics", False)])
def test_a_changed_status_and_new_points_are_signs_of_life(sign: str, is_silent: bool) -> None:
    timeline, liveness = one(steps(0, 100), until_s=400), JobLiveness()
    job = timeline.job(0)
    (target,) = targets_of(job)
    for at_s in range(0, 401, 10):
        read = BEGIN_S + at_s, 1000.0 + at_s
        lines = [line for line in timeline.logs["master-0"] if line[0] <= at_s]
        logged = [LogLine(int((BEGIN_S + when_s) * 1e9), text.encode(), target, 0) for when_s, text in lines]
        liveness.add(target, logged, *read)
        if sign == "status":
            liveness.add_status(f"step {at_s}", *read)
        elif sign == "metrics":
            liveness.add_metrics([(at_s, BEGIN_S + at_s)], *read)
    assert (liveness.silence(job) is not None) is is_silent
