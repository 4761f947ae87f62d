"""Rules about the curves of running jobs, on scripted series."""

from __future__ import annotations

import math
import random
from array import array
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k8s.snapshot import CurveAlert
from k8s.status import Status
from trainer.tfevents import ScalarCurve
from tui.runs.alerts import (
    RunHistory,
    curve_alerts,
    has_balanced_losses,
    is_throughput,
    loss_alerts,
    run_alerts,
    shown_alerts,
    slow_alert,
    throughput_alert,
)
from tui.settings.options import AlertRule

Series = Callable[[random.Random], list[float]]
ALL = tuple(AlertRule)


def falling(length: int, *, first: float = 10.0, last: float = 2.0, noise: float = 0.05) -> Series:
    """Return a loss that falls as in most runs."""

    def values(dice: random.Random) -> list[float]:
        fall = length / 6
        return [
            (last + (first - last) * math.exp(-index / fall)) * (1 + dice.gauss(0, noise))
            for index in range(length)
        ]

    return values


def then(start: Series, *more: Callable[[int], float], times: int, noise: float = 0.05) -> Series:
    """Return a loss that goes on by formulas."""

    def values(dice: random.Random) -> list[float]:
        found = start(dice)
        for formula in more:
            found += [formula(index) * (1 + dice.gauss(0, noise)) for index in range(times)]
        return found

    return values


def cycles(dice: random.Random) -> list[float]:
    """Return the loss of a rate schedule that restarts every 200 values."""
    level = [2 + 6 * math.exp(-index / 150) for index in range(1600)]
    return [
        value * (1 + 0.9 * math.exp(-(index % 200) / 25) * (index >= 200)) * (1 + dice.gauss(0, 0.04))
        for index, value in enumerate(level)
    ]


def heavy_tailed(dice: random.Random) -> list[float]:
    """Return a loss of small batches, some of which cost ten times as much."""
    return [
        (0.05 + 2 * math.exp(-index / 100))
        * dice.lognormvariate(0, 0.8)
        * (10 if dice.random() < 0.05 else 1)
        for index in range(2000)
    ]


FINE: dict[str, Series] = {
    "falls": falling(3000),
    "falls and is short": falling(30),
    "is as noisy as it is high": falling(2000, noise=0.5),
    "ends near zero": falling(2000, first=5, last=0.01, noise=0.3),
    "is negative": lambda dice: [-index / 100 + dice.gauss(0, 0.2) for index in range(1000)],
    "is constant": lambda _: [0.693] * 500,
    "is zero": lambda _: [0.0] * 500,
    "warms up": lambda dice: (
        [2.3 + 0.02 * index + dice.gauss(0, 0.05) for index in range(50)]
        + [3.3 * math.exp(-index / 300) + dice.gauss(0, 0.05) for index in range(900)]
    ),
    "starts again with each epoch": cycles,
    "has heavy tails": heavy_tailed,
    "has spikes": then(falling(1000), lambda index: 2 + 40 * (index % 97 == 0), times=1000),
    "rises a little when it overfits": then(
        falling(1000, last=1), lambda index: 1 + 0.2 * index / 500, times=500
    ),
    "never fell": lambda dice: [0.01 + index / 500 + dice.gauss(0, 0.01) for index in range(1000)],
    "falls again after a spike": then(falling(1000), lambda index: 2 + 8 * math.exp(-index / 60), times=100),
    "is noise": lambda dice: [dice.lognormvariate(0, 1) for _ in range(1500)],
    "walks at random": lambda dice: [1 + dice.gauss(0, 0.1) for _ in range(1500)],
}


@pytest.mark.parametrize("name", FINE)
@pytest.mark.parametrize("seed", range(5))
def test_a_loss_that_is_fine_causes_no_alert_at_any_time(name: str, seed: int) -> None:
    values = FINE[name](random.Random(f"{name}{seed}"))
    steps = range(0, 10 * len(values), 10)
    for end in [*range(1, len(values), 37), len(values)]:
        assert loss_alerts(steps[:end], values[:end]) == ()


BROKEN: dict[str, Series] = {
    "jumps": then(falling(1000), lambda _: 9.0, times=60),
    "jumps early": then(falling(120), lambda _: 9.0, times=60),
    "settles at twice its minimum": then(falling(1000), lambda _: 4.6, times=80),
    "grows without end": then(falling(1000), lambda index: 2 * 1.05**index, times=150),
    "grows for most of the run": then(falling(80, noise=0), lambda index: 2 * 1.08**index, times=320),
    "jumps after a long run": then(falling(50_000), lambda _: 9.0, times=80),
    "spikes and then stays high": then(falling(1000), lambda index: 6 + 30 * math.exp(-index / 5), times=150),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_loss_that_rose_and_stays_high_diverges(name: str) -> None:
    values = BROKEN[name](random.Random(name))
    (alert,) = loss_alerts(range(len(values)), values)
    assert alert.rule is AlertRule.DIVERGED
    length = {"jumps early": 120, "grows for most of the run": 80, "jumps after a long run": 50_000}.get(
        name, 1000
    )
    assert length - 12 <= alert.place <= length + 40
    assert alert.text.startswith("its loss is far above its minimum of ")
    assert alert.text.endswith(f" since step {alert.place:,}")


def test_an_alert_ends_when_the_loss_is_low_again() -> None:
    values = BROKEN["jumps"](random.Random(1))
    assert loss_alerts(range(len(values)), values)
    values += [2.0] * 30
    assert not loss_alerts(range(len(values)), values)


@pytest.mark.parametrize(
    "tags",
    [["loss/d_loss", "g_loss"], ["D", "G"], ["policy_loss", "loss"], ["critic/q", "loss"], ["ep_return"]],
)
def test_balanced_losses_such_as_those_of_gans_raise_only_nan_alerts(tags: Sequence[str]) -> None:
    values = BROKEN["jumps"](random.Random(1))
    assert has_balanced_losses(tags)
    assert not loss_alerts(range(len(values)), values, tags=tags, rules=ALL)
    assert loss_alerts(range(2), [1.0, math.nan], tags=tags)


@pytest.mark.parametrize(
    "tag",
    [
        "loss",
        "train/loss",
        "cross_entropy",
        "grad_norm",
        "lr",
        "val_loss",
        "loss_cls",
        "train_f1",
        "dfl_loss",
    ],
)
def test_common_loss_names_are_not_classified_as_gan_losses(tag: str) -> None:
    assert not has_balanced_losses([tag])


def test_a_loss_that_is_not_finite_is_reported_with_its_first_value() -> None:
    steps, values = range(0, 60, 10), [1.0, math.nan, 0.5, math.inf, math.nan, math.nan]
    assert loss_alerts(steps, values) == (
        CurveAlert(AlertRule.NAN, "its newest loss is not a finite number", 3),
    )
    assert loss_alerts(steps[:3], values[:3]) == ()
    assert loss_alerts(steps, values, rules=[AlertRule.DIVERGED]) == ()
    assert loss_alerts([], []) == ()


def test_a_plateau_is_reported_only_when_its_rule_is_enabled() -> None:
    values = then(falling(1000), lambda _: 2.0, times=3000, noise=0.01)(random.Random(1))
    steps = range(len(values))
    assert not loss_alerts(steps, values)
    (alert,) = loss_alerts(steps, values, rules=ALL)
    assert alert.rule is AlertRule.PLATEAU
    assert alert.text == f"its loss has not improved since step {alert.place:,}"
    assert not loss_alerts(steps[:1100], values[:1100], rules=ALL)


def clock(*parts: tuple[int, float], pause_every: int = 0, pause_s: float = 0.0) -> list[float]:
    """Return times of numbers of intervals, with a pause after each `pause_every`."""
    found = [0.0]
    for number, interval_s in parts:
        for _ in range(number):
            is_pause = pause_every and len(found) % pause_every == 0
            found.append(found[-1] + interval_s + (pause_s if is_pause else 0.0))
    return found


@pytest.mark.parametrize(
    ("name", "times"),
    [
        ("steady", clock((500, 4.0))),
        ("compiles at first", clock((3, 300.0), (200, 4.0))),
        ("evaluates", clock((500, 4.0), pause_every=20, pause_s=600.0)),
        ("evaluates often", clock((500, 4.0), pause_every=3, pause_s=60.0)),
        ("was restarted", clock((200, 4.0), (1, 9000.0), (3, 4.0))),
        ("becomes faster", clock((200, 8.0), (200, 1.0))),
        ("is twice as slow", clock((200, 4.0), (50, 8.0))),
        ("is slow for a moment", clock((200, 0.01), (10, 0.5))),
        ("is short", clock((20, 1.0), (10, 60.0))),
        ("prints in bursts", clock((400, 0.0), pause_every=50, pause_s=100.0)),
        ("goes back in time", clock((100, 4.0))[::-1]),
        ("slows for four steps", clock((200, 4.0), (4, 100.0))),
    ],
)
def test_the_time_of_a_step_may_vary(name: str, times: list[float]) -> None:
    for end in range(1, len(times) + 1):
        assert slow_alert(range(end), times[:end]) is None, name


def test_steps_that_take_much_longer_are_reported() -> None:
    times = clock((200, 4.0), (10, 20.0), pause_every=50, pause_s=300.0)
    assert slow_alert(range(0, 2110, 10), times) == CurveAlert(
        AlertRule.SLOW, "a step takes 2s, usually 400ms", 201
    )
    assert slow_alert([0] * len(times), times) is None
    # Lines that come more often than every 6 s: the newest 60 s are compared with all before.
    often = clock((400, 0.5), (40, 2.0))
    assert slow_alert(range(len(often)), often) == CurveAlert(
        AlertRule.SLOW, "a step takes 2s, usually 500ms", 411
    )
    assert slow_alert(range(421), often[:421]) is None


def test_a_rate_that_collapses_is_reported() -> None:
    rates = [1000.0] * 100 + [math.nan] + [200.0] * 10
    alert = throughput_alert("tokens_per_s", rates)
    assert alert == CurveAlert(AlertRule.SLOW, "tokens_per_s is 200, usually 1e+03", 101)
    assert throughput_alert("tokens_per_s", [0.0] * 100) is None
    assert throughput_alert("tokens_per_s", rates[:-6]) is None
    assert [is_throughput(tag) for tag in ("perf/tokens_per_second", "throughput", "train/mfu", "loss")] == [
        True, True, True, False,
    ]  # fmt: skip


def test_a_run_is_checked_by_all_alert_rules() -> None:
    values = BROKEN["jumps"](random.Random(1))
    steps, times = range(len(values)), clock((len(values) - 1, 1.0))
    rates = [("samples_per_sec", [10.0] * 100 + [1.0] * 10), ("loss", [10.0] * 100 + [1.0] * 10)]
    found = run_alerts((steps, times, values), tags=["loss"], rates=rates)
    assert [each.rule for each in found] == [AlertRule.DIVERGED, AlertRule.SLOW]
    assert [each.rule for each in shown_alerts(found)] == ["diverged", "slow"]
    assert run_alerts((steps, times, values), rates=rates, rules=()) == ()
    assert [each.rule for each in shown_alerts(found, Status.FAILED)] == ["diverged"]
    (nan,) = shown_alerts(loss_alerts(range(1), [math.nan]), Status.SUCCEEDED)
    assert nan == CurveAlert("nan", "its last loss is not a finite number")


NUMBERS = st.floats(allow_nan=True, allow_infinity=True)


@given(
    st.lists(st.tuples(st.integers(0, 10**9), NUMBERS, NUMBERS), max_size=200), st.lists(NUMBERS, max_size=99)
)
def test_any_series_can_be_checked_for_alerts(
    points: list[tuple[int, float, float]], rates: list[float]
) -> None:
    steps = [step for step, _, _ in points]
    times, values = [time for _, time, _ in points], [value for _, _, value in points]
    for alert in run_alerts((steps, times, values), rates=[("fps", rates)], rules=ALL):
        assert 0 <= alert.place < max(len(points), len(rates))


def curve(tag: str, values: Sequence[float], first: int = 0) -> ScalarCurve:
    steps = range(first, first + len(values))
    return ScalarCurve(".", tag, "", array("q", steps), array("d", steps), array("d", values), ())


def test_a_growing_log_is_checked_for_alerts_while_old_points_are_thinned() -> None:
    values = then(falling(9000), lambda _: 9.0, times=100)(random.Random(1))
    history = RunHistory()
    assert history.alerts() == ()
    for start in range(0, len(values), 50):
        assert history.alerts() == () or start > 9000
        new = {"loss": curve("loss", values[start : start + 50], start), "fps": curve("fps", [10.0] * 5)}
        history.add(new, "loss")
    (alert,) = history.alerts()
    assert alert.rule is AlertRule.DIVERGED
    assert int(alert.text.rsplit(" ", 1)[1].replace(",", "")) in range(8990, 9040)
    history.add({"fps": curve("fps", [1.0] * 10)}, "")
    assert [each.rule for each in history.alerts()] == [AlertRule.DIVERGED, AlertRule.SLOW]
    assert history.alerts([AlertRule.NAN]) == ()
    history.add({"g_loss": curve("g_loss", [1.0])}, "")
    assert [each.rule for each in history.alerts()] == [AlertRule.SLOW]


def test_full_curves_are_checked_for_alerts_with_their_throughput() -> None:
    values = BROKEN["jumps"](random.Random(1))
    curves = {"loss": curve("loss", values), "tokens/s": curve("tokens/s", [9.0] * 50 + [1.0] * 10)}
    found = curve_alerts(curves, "loss")
    assert [each.rule for each in found] == [AlertRule.DIVERGED, AlertRule.SLOW]
    assert found == loss_alerts(range(len(values)), values) + found[1:]
    values = BROKEN["jumps after a long run"](random.Random(2))
    (alert,) = curve_alerts({"loss": curve("loss", values)}, "loss")
    assert alert.place in range(49_990, 50_040) and alert.text.endswith(f" since step {alert.place:,}")
