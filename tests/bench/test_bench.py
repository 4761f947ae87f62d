"""Each row of the comparisons measures in a tiny size, and a broken one does not hide the next."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping

import pytest

from tests import ROOT
from tests.bench.__main__ import ROWS, main
from tests.bench.figures import Figure, spent

# Beginnings of the lines that each row prints
FIGURES: Mapping[str, tuple[str, ...]] = {
    "start": ("start to the first frame", "start to data shown"),
    "commands": ("list", "get", "top nodes", "why", "--version"),
    "pods": ("read 400 pods", "the console, 400 pods painted", "first screenful", "resident memory"),
    "limit": ("the console, 400 pods painted", "first screenful", "peak memory", "first screenful of one"),
    "growth": ("the console, 400 pods painted", "time for each", "CPU time for each", "memory for each"),
    "storm": ("storm of 1,000 updates", "painted rows that are wrong", "key-press to paint, p99"),
    "logs": ("a log of 2,000 lines to a pipe", "its lines of one rank", "as many of two pods by time"),
    "view": ("20,000 lines into the view, one stream", "20,000 lines of 512 ranks", "filter what is held"),
    "form": ("the form, first opened", "opened again", "each key typed in it"),
    "events": ("read 3,000 scalars", "beside", "again after one more"),
    "json": ("3,000 scalars to JSON",),
    "draw": ("draw 3,000 points",),
    "step": ("step of smoke", "our defaults"),
    "idle": ("idle console over SSH", "share of a core", "requests to the API"),
    "record": ("record 200 running jobs", "requests to the API", "resident memory"),
    "link": ("round trips to rows over 300 ms", "on the first start", "key-press to paint, p99"),
}
AMOUNT = re.compile(r" {2,}[\d,.]+ ?[\w/%]*( |$)")


@pytest.mark.slow
@pytest.mark.parametrize("name", ROWS)
def test_each_row_prints_its_figures_in_a_tiny_size(name: str) -> None:
    command = [sys.executable, "-m", "tests.bench", "--smoke", name]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.strip() for line in done.stdout.splitlines()]
    for work in FIGURES[name]:
        found = [line for line in lines if line.startswith(work)]
        assert found and all(AMOUNT.search(line) for line in found), f"{work} in:\n{done.stdout}"


def broken(_is_smoke: bool) -> Iterator[Figure]:
    yield Figure("before it broke", 1.0)
    raise OSError("disk on fire")


def measured(is_smoke: bool) -> Iterator[Figure]:
    yield Figure("small" if is_smoke else "large", 0.5, "kubectl get", 1.0, "<= 1x")


def test_a_broken_row_is_reported_and_the_next_one_runs(capfd: pytest.CaptureFixture[str]) -> None:
    rows = {"first": "test_bench.broken", "absent": "test_bench.absent", "last": "test_bench.measured"}
    assert main([], rows) == 1
    printed = capfd.readouterr().out
    assert "before it broke" in printed
    assert "first: OSError: disk on fire" in printed
    assert "absent: AttributeError: " in printed
    assert re.search(r"^large +500\.0 ms +kubectl get +1\.00 s +2\.00x +<= 1x$", printed, re.M)
    assert printed.endswith("\nFailed: first, absent\n")
    assert main(["--smoke", "last"], rows) == 0
    assert "small" in capfd.readouterr().out


def test_an_unknown_row_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["logs", "lgos"])
    assert ended.value.code == 2
    assert "no such row: lgos" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("figure", "words"),
    [
        (Figure("list", 0.2, "kubectl get", None), "list 200.0 ms kubectl get not installed"),
        (Figure("  memory", 12.4, unit="MiB", promised="< 100 MiB"), "memory 12 MiB < 100 MiB"),
        (Figure("lines", 300, "kubectl", 100, unit="lines/s"), "lines 300 lines/s kubectl 100 lines/s 3.00x"),
        (Figure("wrong", 0, "", 2.0, unit=""), "wrong 0.00 2.00 infx"),
    ],
)
def test_a_figure_is_one_line_and_names_a_peer_that_is_not_installed(figure: Figure, words: str) -> None:
    assert str(figure).split() == words.split()


def test_a_program_that_fails_is_no_figure() -> None:
    command = [sys.executable, "-c", "import sys; print('x' * 100_000); sys.exit('no such thing')"]
    with pytest.raises(AssertionError, match="ended with 1:\nno such thing"):
        spent(command, {})
