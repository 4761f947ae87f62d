"""The ledger: GPU time held, waited for and idle, of scripts whose sums are known."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from k8s.gpus.readings import GpuReading, PodContainer
from tests.support.journal import random_journal, record_job, record_spans
from tests.support.objects import joined, node, pod_of, pytorch_job
from tests.support.telemetry import NOON, gpu
from tui.runs.journal.database import Journal
from tui.runs.journal.ledger import Coverage, GpuTime, IdleMeter, LedgerEntry, read_ledger, time_of

RUNS = [(100, 0, 8), (200, 8, 0), (700, 0, 0)]


@pytest.mark.parametrize(
    ("changes", "spans", "held", "waited", "waited_gpus", "share"),
    [
        pytest.param(RUNS, [(0, 1000)], 4000, 100, 800, 1.0, id="all observed"),
        pytest.param(RUNS, [(-50, 2000)], 4000, 100, 800, 1.0, id="beyond the window"),
        pytest.param(RUNS, [(150, 300), (600, 1000)], 1600, 50, 400, 0.55, id="a gap between GPUs held"),
        pytest.param(RUNS, [(250, 260), (200, 400), (0, 300), (400, 500)], 2400, 100, 800, 0.5, id="overlap"),
        pytest.param(RUNS, [(700, 900)], 0, 0, 0, 0.2, id="observed after the end"),
        pytest.param(RUNS, [], 0, 0, 0, 0.0, id="never observed"),
        pytest.param([(-500, 4, 0), (100, 0, 0)], [(-900, 1000)], 400, 0, 0, 1.0, id="began before"),
        pytest.param([(900, 2, 0)], [(0, 5000)], 200, 0, 0, 1.0, id="goes on"),
        pytest.param([(900, 2, 0), (1100, 9, 0)], [(0, 5000)], 200, 0, 0, 1.0, id="ahead of this clock"),
        pytest.param([(0, 4, 2), (500, 4, 4)], [(0, 1000)], 4000, 1000, 3000, 1.0, id="holds and waits"),
        pytest.param([(100, 8, 0), (500, 1, 0), (300, 2, 0)], [(0, 1000)], 3000, 0, 0, 1.0, id="clock back"),
        pytest.param([(100, 8, 0), (100, 1, 0)], [(0, 1000)], 900, 0, 0, 1.0, id="in one second"),
        pytest.param([], [(0, 1000)], 0, 0, 0, 1.0, id="no change"),
    ],
)
def test_time_is_the_integral_over_the_observed_seconds(
    changes: list[tuple[float, int, int]],
    spans: list[tuple[float, float]],
    held: float,
    waited: float,
    waited_gpus: float,
    share: float,
) -> None:
    found = time_of([(*each, 1) for each in reversed(changes)], Coverage(spans, 0, 1000))
    assert found == GpuTime(held, waited, waited_gpus, 0, 0, share)


def test_an_empty_window_has_no_share() -> None:
    assert Coverage([(0, 10)], 5, 5).share == 0.0


START = 1_800_000_000.0  # a full hour
END = START + 3 * 3600


def entries(journal: Journal, namespace: str = "", from_s: float = START) -> dict[str, LedgerEntry]:
    return {each.uid: each for each in read_ledger(journal, "recorded", namespace, from_s, END) or ()}


def test_a_job_counts_while_its_namespace_is_observed() -> None:
    journal = Journal()
    for uid, namespace in (("u1", "vision"), ("u2", "audio"), ("u3", "audio"), ("u4", "text")):
        record_job(journal, uid, [(START - 50, 1, 1), (START, 4, 0)], namespace=namespace)
    record_job(journal, "u5", [(START, 8, 0)], context="other")
    record_job(journal, "u6", [(START, 0, 0)], kind="Job", user="")
    record_job(journal, "u7", [(START, 2, 0)], kind="Job", user="")
    record_spans(journal, (START + 900, START + 1000))
    record_spans(journal, (START, START + 950), namespace="audio")
    record_spans(journal, (START, END), namespace="vision")
    record_spans(journal, (START, END), context="other")
    found = entries(journal)
    held = {uid: each.time.held_gpu_s for uid, each in found.items()}
    assert held == {"u1": 4 * 3 * 3600, "u2": 4000, "u3": 4000, "u4": 400, "u7": 200}
    assert found["u2"].time.observed_share == 1000 / (3 * 3600)
    assert found["u7"] == LedgerEntry(
        "u7", "default", "default", "bert", "Job", GpuTime(200, observed_share=100 / 10800)
    )
    assert entries(journal, "audio").keys() == {"u2", "u3"}
    assert GpuTime.total(each.time for each in found.values())[::5] == (4 * 3 * 3600 + 8600, 100 / 10800)


@pytest.mark.parametrize("seed", range(60))
def test_the_ledger_equals_the_state_of_each_job_in_each_observed_second(seed: int) -> None:
    chance = random.Random(seed)
    journal, changes = random_journal(chance, clock_steps_back=seed % 2 == 0)
    spans = [(at_s, at_s + 20) for at_s in chance.choices(range(-60, 120), k=chance.choice((1, 5)))]
    record_spans(journal, *spans, context="lab")
    from_s, to_s = chance.choice(((0, 60), (-60, 120), (30, 90)))
    expected: dict[str, tuple[int, int, int]] = {}
    for second in range(from_s, to_s):
        if any(start_s <= second < end_s for start_s, end_s in spans):
            states = {job: (held, new.gpus_waiting) for job, held, new in changes if new.at_s <= second}
            for job, (held, waiting) in states.items():
                sums = expected.get(f"u{job}", (0, 0, 0))
                expected[f"u{job}"] = sums[0] + held, sums[1] + (waiting > 0), sums[2] + waiting
    found = read_ledger(journal, "lab", "", from_s, to_s) or ()
    assert {each.uid: each.time[:3] for each in found} == {
        uid: each for uid, each in expected.items() if any(each)
    }


def test_a_window_that_was_not_observed_has_no_ledger() -> None:
    journal = Journal()
    record_job(journal, "u1", [(START, 8, 0)])
    record_spans(journal, (START - 100, START), (END, END + 5))
    record_spans(journal, (START, END), namespace="vision")
    assert read_ledger(journal, "recorded", "default", START, END) is None
    assert read_ledger(journal, "recorded", "", START, END) == []


def test_idle_hours_are_those_of_the_console_that_saw_most_of_each() -> None:
    journal = Journal()
    record_job(journal, "u1", [(START, 8, 0)])
    record_spans(journal, (START, END))
    for hour, observer, seen, idle in (
        (-1, "a", 800, 800),
        (0, "a", 100, 90),
        (0, "b", 300, 10),
        (1, "a", 50, 50),
        (3, "a", 7, 7),
    ):
        journal.write(("INSERT INTO idle VALUES (1, ?, ?, ?, ?)", START + hour * 3600, observer, seen, idle))
    assert entries(journal)["u1"].time[3:5] == (350, 60)
    assert entries(journal, from_s=START + 1)["u1"].time[3:5] == (50, 50)


BERT, VIT = pytorch_job("bert"), pytorch_job("vit")
PODS = [pod_of(each, "master-0", on="a100-1") for each in (BERT, VIT)]
JOBS = tuple(joined([node("a100-1")], PODS, [BERT, VIT])[1].values())
BOTH = (PodContainer("default", "bert-master-0"), PodContainer("default", "vit-master-0"))


def reading(at_s: float, utilisation: float | None, index: int = 0, pod: str = "bert") -> GpuReading:
    holders = {"holders": BOTH} if pod == "both" else {"pod": f"{pod}-master-0"}
    return gpu(index, at_s=at_s, utilisation=utilisation, **holders)


@pytest.mark.parametrize(
    ("readings", "counted"),
    [
        pytest.param([(0, 1), (30, 1), (60, 4.9)], {("bert", 0): (60, 60)}, id="idle"),
        pytest.param([(0, 1), (30, 90), (60, 5), (90, 0)], {("bert", 0): (90, 0)}, id="busy at an end"),
        pytest.param([(0, 1), (90, 1), (181, 1)], {("bert", 0): (90, 90)}, id="a gap"),
        pytest.param([(0, 1), (30, None), (60, 1)], {("bert", 0): (60, 60)}, id="not known once"),
        pytest.param([(0, 1)], {}, id="once"),
        pytest.param([(0, 1), (0, 1), (30, 1)], {("bert", 0): (30, 30)}, id="the same reading"),
        pytest.param([(60, 1), (30, 1), (70, 1)], {("bert", 0): (40, 40)}, id="clock back"),
        pytest.param(
            [(-10, 1), (-10, 1, 1), (20, 1), (20, 9, 1)],
            {("bert", -3600): (20, 10), ("bert", 0): (40, 20)},
            id="two GPUs over an hour",
        ),
        pytest.param(
            [(0, 1, 0, "both"), (30, 1, 0, "vit"), (60, 1)], {("vit", 0): (30, 30)}, id="other holders"
        ),
        pytest.param(
            [(0, 1, 0, "both"), (9, 1, 0, "both")], {("bert", 0): (9, 9), ("vit", 0): (9, 9)}, id="shared"
        ),
        pytest.param([(0, 1, 0, "gone"), (30, 1, 0, "gone")], {}, id="no job"),
    ],
)
def test_gpu_time_counts_between_readings_that_are_close(
    tmp_path: Path, readings: list[tuple[float, float]], counted: dict[tuple[str, int], tuple[float, float]]
) -> None:
    journal = recorded(tmp_path)
    meter = IdleMeter(journal.reopened(), "recorded", "console 1")
    for each in readings:
        meter.add([reading(*each)], JOBS)
    meter.close()
    assert idle_in(journal) == counted


def test_idle_time_is_written_once_a_minute_or_after_a_lock_is_released(tmp_path: Path) -> None:
    journal = recorded(tmp_path)
    meter = IdleMeter(journal.reopened(), "recorded", "console 1")
    written = []
    for at_s in range(0, 200, 20):
        if at_s == 120:
            journal.rows("BEGIN IMMEDIATE")
        meter.add([reading(at_s, 1)], JOBS)
        if at_s == 140:
            journal.rows("ROLLBACK")
        written.append(idle_in(journal).get(("bert", 0), (0, 0))[0])
    assert written == [0, 0, 0, 60, 60, 60, 60, 60, 60, 180]


def recorded(folder: Path) -> Journal:
    journal = Journal(folder)
    for name in ("bert", "vit"):
        record_job(journal, f"job-{name}", [], name=name)
    return journal


def idle_in(journal: Journal) -> dict[tuple[str, int], tuple[float, float]]:
    query = "SELECT name, hour_s - ?, seen_gpu_s, idle_gpu_s FROM idle JOIN jobs ON job = jobs.id"
    return {(name, hour): (seen, idle) for name, hour, seen, idle in journal.rows(query, NOON.timestamp())}
