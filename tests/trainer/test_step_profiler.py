"""A trace of a few steps that other tools open, and words where there is none."""

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="training needs torch, which gpuconsole[trainer] brings")

from trainer.distributed.step_profiler import StepProfiler


def profile(folder: Path, steps: int) -> StepProfiler:
    with StepProfiler(folder, 0, torch.device("cpu")) as profiler:
        network = torch.nn.Linear(3, 3)
        for _ in range(steps):
            network(torch.ones(2, 3)).sum().backward()
            profiler.step()
    return profiler


@pytest.mark.parametrize(("steps", "last"), [(30, 9), (7, 7)])
def test_some_steps_are_recorded_and_where_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], steps: int, last: int
) -> None:
    path = profile(tmp_path / "profile", steps).path
    assert (
        f"profile of steps 5 to {last} in {path} (open it at https://ui.perfetto.dev"
        in capsys.readouterr().out
    )
    events = json.loads(path.read_text())["traceEvents"]
    names = {event.get("name") for event in events}
    assert "aten::linear" in names
    marks = {name for name in names if str(name).startswith("ProfilerStep#")}
    assert {f"ProfilerStep#{step - 1}" for step in range(5, last + 1)} <= marks
    assert "ProfilerStep#3" not in marks


def test_a_run_that_is_too_short_says_so_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profile(tmp_path, 4)
    assert list(tmp_path.iterdir()) == []
    assert (
        "No profile was written: it begins with step 5 of a run, and this one took 4."
        in capsys.readouterr().err
    )


def test_a_profile_that_finds_no_place_ends_no_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "taken").touch()
    profile(tmp_path / "taken", 10)
    assert "warning: The profile could not be written to" in capsys.readouterr().err
