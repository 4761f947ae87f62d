"""One measured comparison as a line of text, and helpers that measure."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import msgspec

from tests import ROOT


class Figure(msgspec.Struct, frozen=True):
    """Cost of some work, that of a peer, and the promise."""

    work: str
    ours: float
    peer: str = ""  # name of the peer; empty on a further line about it, and if there is none
    peers: float | None = None  # None if there is no peer, or if it is not installed
    promised: str = ""
    unit: str = "s"  # unit of both numbers. Rates are better when larger, all else when smaller.

    def __str__(self) -> str:
        peers, ratio = "not installed" if self.peer else "", ""
        if self.peers is not None:
            peers = _words(self.peers, self.unit)
            more, less = (self.ours, self.peers) if self.unit.endswith("/s") else (self.peers, self.ours)
            ratio = f"{more / less if less else float('inf'):.2f}x"
        ours = _words(self.ours, self.unit)
        compared = f"{ours:>12}   {self.peer:<28} {peers:>13}   {ratio:>8}"
        return f"{self.work:<50} {compared}   {self.promised}".rstrip()


class Spent(NamedTuple):
    wall_s: float
    cpu_s: float
    peak_mib: float


def best_of(times: int, work: Callable[[], object]) -> float:
    """Return the seconds of the fastest of several runs: the one least disturbed by others."""
    return min(seconds(work) for _ in range(times))


def seconds(work: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    work()
    return time.perf_counter() - began_s


def spent(command: Sequence[str], env: Mapping[str, str]) -> Spent:
    """Run a program whose output is read and dropped, and return its cost.

    Raises:
        AssertionError: The program fails.
    """
    began_s = time.perf_counter()
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, env=env, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors)
        assert process.stdout is not None
        with process.stdout as output:
            while os.read(output.fileno(), 1 << 20):
                pass
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            errors.seek(0)
            why = errors.read().decode(errors="replace")[-2000:]
            raise AssertionError(f"{' '.join(command)} ended with {process.returncode}:\n{why}")
    return Spent(time.perf_counter() - began_s, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def measure(name: str, place: str, is_smoke: bool) -> None:
    """Print the figures of the row `module.function`, or why it failed and exit 1."""
    module, _, function = place.rpartition(".")
    try:
        figures: Iterable[Figure] = getattr(importlib.import_module(f"tests.bench.{module}"), function)(
            is_smoke
        )
        for figure in figures:
            print(figure, flush=True)
    except Exception as error:  # whatever it is, the next row is measured
        traceback.print_exc()
        said = error.stderr if isinstance(error, subprocess.CalledProcessError) else ""
        print(f"{name}: {type(error).__name__}: {error}\n{said or ''}".rstrip(), flush=True)
        sys.exit(1)


@contextmanager
def console_env(**more: str) -> Iterator[dict[str, str]]:
    """Yield the environment of a console in a local terminal, with empty folders of its own."""
    with tempfile.TemporaryDirectory() as home:
        env = {name: value for name, value in os.environ.items() if name != "SSH_CONNECTION"}
        env.pop("PYTHONDONTWRITEBYTECODE", None)  # both sides compiled, as they are once installed
        env |= {f"XDG_{kind}_HOME": home for kind in ("DATA", "STATE", "CONFIG", "CACHE")}
        env |= {"HOME": home, "TERM": "xterm-256color", "PYTHONPATH": str(ROOT)}
        yield env | more


def _words(number: float, unit: str) -> str:
    if unit == "s":
        return f"{number:.2f} s" if number >= 1 else f"{number * 1000:.1f} ms"
    return f"{number:,.0f} {unit}" if number >= 10 else f"{number:.2f} {unit}".rstrip()
