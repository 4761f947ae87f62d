"""Curves and events in the journal: few points, bounded, and continued or replaced by later reads."""

from __future__ import annotations

import math
from array import array
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from k8s.models import convert
from k8s.models.event import Event
from tests.support.event_files import T0, curve
from trainer.tfevents import Restart
from tui.runs.journal.database import Journal
from tui.runs.journal.kept_facts import (
    KEPT_CURVES,
    KEPT_EVENTS,
    KEPT_POINTS,
    KeptCurves,
    add_curves,
    keep_curves,
    keep_events,
    kept_events,
)
from tui.runs.series import few_points


def told(name: str, count: int, minute: int, message: str = "said") -> tuple[str, Event]:
    last = f"2026-11-20T18:{minute:02}:00Z"
    meta = {"name": name, "namespace": "vision", "uid": name, "labels": {"a": "b"}}
    more = {"count": count, "lastTimestamp": last, "message": message}
    return name, convert({"metadata": meta, "involvedObject": {"name": f"bert-{name}"}, **more}, Event)


def test_events_are_kept_once_with_their_newest_counts_and_no_secrets(tmp_path: Path) -> None:
    journal, secret = Journal(tmp_path), "password=hunter2hunter2"
    keep_events(journal, "u", [told("a", 1, 1), told("b", 1, 2, secret)])
    keep_events(journal, "u", [told("a", 7, 9), told("b", 1, 1, "older")])
    keep_events(journal, "other", [told("c", 1, 1)])
    found = kept_events(journal, "u")
    assert [(about, each.count, each.at) for about, each in found] == [
        (about, count, told("", 1, minute)[1].at) for about, count, minute in (("b", 1, 2), ("a", 7, 9))
    ]
    assert "hunter2" not in (found[0][1].message or "") and found[0][1].metadata.labels is None
    journal.write(("UPDATE events SET body = 'x' WHERE event_uid = 'a'",))
    assert [about for about, _ in kept_events(journal, "u")] == ["b"], "a damaged one is left out"
    keep_events(journal, "many", [told(f"e{at}", 1, at % 60) for at in range(KEPT_EVENTS + 60)])
    assert len(kept_events(journal, "many")) == KEPT_EVENTS


def points_of(journal: Journal, uid: str = "u") -> dict[str, list[tuple[int, float]]]:
    curves = KeptCurves(journal, uid).curves()
    return {each.tag: [*zip(each.steps, each.values, strict=True)] for each in curves}


def test_a_long_curve_keeps_its_ends_extremes_and_gaps_in_few_points() -> None:
    values = [2 + math.sin(step / 300) for step in range(50_000)]
    values[17_123], values[30_001], values[30_002] = 99.123456789, math.nan, -math.inf
    long = replace(curve("loss", values), restarts=(Restart(40_000, T0),))
    journal = Journal()
    keep_curves(journal, "u", [long], is_log=False)
    (kept,) = KeptCurves(journal, "u").curves()
    found = dict(zip(kept.steps, kept.values, strict=True))
    assert 900 < len(found) <= KEPT_POINTS and {0, 17_123, 30_001, 49_999} <= found.keys()
    assert found[17_123] == 99.12346 and math.isnan(found[30_001])
    assert kept.wall_times[-1] == T0 + 49_999 and kept.restarts == (Restart(40_000, T0),)
    ((size,),) = journal.rows("SELECT length(body) FROM curves")
    assert size < 10_000
    all_broken = curve("x", [math.nan if step % 3 else step for step in range(9_000)])
    keep_curves(journal, "v", [all_broken], is_log=False)
    assert len(points_of(journal, "v")["x"]) <= KEPT_POINTS


@given(st.lists(st.floats(), min_size=2, max_size=300), st.integers(2, 50))
def test_few_points_hold_the_extremes_of_any_curve(values: list[float], columns: int) -> None:
    chosen = few_points(array("q", range(len(values))), array("d", values), columns)
    assert (
        chosen == sorted(set(chosen)) and {0, len(values) - 1} <= {*chosen} and len(chosen) <= 3 * columns + 2
    )
    finite = [each for each in values if math.isfinite(each)]
    if finite:
        assert {min(finite), max(finite)} <= {values[at] for at in chosen}
    assert (len(finite) < len(values)) == any(not math.isfinite(values[at]) for at in chosen)


def test_the_end_of_a_log_continues_its_curves_and_files_replace_them(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    keep_curves(journal, "u", [curve("loss", [5.0, 4.0, 3.0])], is_log=True)
    keep_curves(journal, "u", [curve("loss", [3.5, 2.0], first=2), curve("lr", [1.0])], is_log=True)
    assert points_of(journal) == {"loss": [(0, 5.0), (1, 4.0), (2, 3.5), (3, 2.0)], "lr": [(0, 1.0)]}
    assert all(each.restarts == () for each in KeptCurves(journal, "u").curves()), "they were read again"
    keep_curves(journal, "u", [curve("loss", [4.5], first=1, at=T0 + 99)], is_log=True)
    (restarted, _) = KeptCurves(journal, "u").curves()
    assert list(restarted.steps) == [0, 1] and restarted.restarts == (Restart(1, T0 + 100),)
    places = {"train": [9.0, 8.0], "val": [1.0]}
    files = [curve("loss", each, run=run) for run, each in places.items()]
    files.insert(0, curve("loss", [7.0, 6.0], run="val"))
    keep_curves(journal, "u", files, is_log=False)
    keep_curves(journal, "u", [], is_log=False)
    keep_curves(journal, "u", [curve("loss", [0.0])], is_log=True)
    kept = {(each.run, each.tag): list(each.values) for each in KeptCurves(journal, "u").curves()}
    assert kept == {("train", "loss"): [9.0, 8.0], ("val", "loss"): [7.0, 6.0]}
    journal.write(("UPDATE curves SET body = x'00' WHERE tag LIKE 'val%'",))
    assert [each.run for each in KeptCurves(journal, "u").curves()] == ["train"], "a damaged one is left out"
    gone = KeptCurves(journal, "other")
    assert (gone.curves(), gone.source) == ([], "") and "no curves" in gone.problem


def test_the_losses_come_first_among_more_curves_than_are_kept() -> None:
    journal, many = Journal(), [curve(f"layer/{number}", [1.0]) for number in range(99)]
    keep_curves(journal, "u", [*many, curve("val/loss", [1.0]), curve("train/loss", [1.0])], is_log=False)
    found = points_of(journal)
    assert len(found) == KEPT_CURVES and {"train/loss", "val/loss", "layer/0"} <= found.keys()
    points: dict[tuple[str, str], object] = {}
    for start in range(0, 9_000, 100):
        add_curves(points, [curve("loss", [float(start)] * 100, first=start)])  # type: ignore[arg-type]
    assert len(points[".", "loss"]) <= 2 * KEPT_POINTS  # type: ignore[arg-type]
