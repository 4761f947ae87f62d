"""A log of 2,000,000 lines to a pipe: as it is, of one rank, and of all instances by time."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence

from tests import ROOT
from tests.bench.figures import Figure
from tests.load.running import LoadServer

LINES, ROUNDS = 2_000_000, 3
# Jobs of the load server's cluster: one pod with eight ranks; two pods, read for half of the lines each.
ONE_POD, TWO_PODS = ("biology", "whisper-0001"), ("vision", "bert-large-0002")
_Cost = tuple[float, float, float]


def measure() -> Iterator[Figure]:
    """Compare with `kubectl logs` of the same log on one server, in turn."""
    with tempfile.TemporaryDirectory() as home:
        env = {**os.environ, **{f"XDG_{kind}_HOME": home for kind in ("DATA", "STATE", "CONFIG", "CACHE")}}
        env |= {"HOME": home, "PYTHONPATH": str(ROOT)}
        with LoadServer(20, 40, whole_log=LINES) as server:
            env["KUBECONFIG"] = str(server.kubeconfig)
            whole, rank, *peers = _fastest(
                env,
                _ours(ONE_POD, "-i", "master-0"),
                _ours(ONE_POD, "-r", "3"),
                ["kubectl", "-n", ONE_POD[0], "logs", f"{ONE_POD[1]}-master-0"],
            )
        with LoadServer(20, 40, whole_log=LINES // 2) as server:
            env["KUBECONFIG"] = str(server.kubeconfig)
            (merged,) = _fastest(env, _ours(TWO_PODS, "--all"))
    peer = peers[0] if peers else None
    yield from _figures("a log of 2,000,000 lines to a pipe", whole, peer, ">= 1x")
    yield from _figures("  its lines of one rank (-r)", rank, peer, ">= 0.5x")
    yield from _figures("  as many of two pods by time (--all)", merged, peer, ">= 0.5x")


def _figures(work: str, ours: _Cost, peer: _Cost | None, promised: str) -> Iterator[Figure]:
    wall_s, cpu_s, peak_mib = peer or (None, None, None)
    yield Figure(work, ours[0], "kubectl logs", wall_s, promised)
    yield Figure("    CPU time", ours[1], "", cpu_s, "<= 1.5x of kubectl's" if promised == ">= 1x" else "")
    yield Figure("    peak memory", ours[2], "", peak_mib, "< 100 MiB", unit="MiB")


def _ours(job: tuple[str, str], *flags: str) -> list[str]:
    return [sys.executable, "-P", "-m", "tui", "-n", job[0], "logs", job[1], *flags]


def _fastest(env: Mapping[str, str], *commands: Sequence[str]) -> list[_Cost]:
    """Return wall and CPU seconds and peak MiB of the fastest run of each command; those that exist."""
    found = [command for command in commands if shutil.which(command[0])]
    rounds = [[_cost(command, env) for command in found] for _ in range(ROUNDS)]
    return [min(costs) for costs in zip(*rounds, strict=True)]


def _cost(command: Sequence[str], env: Mapping[str, str]) -> _Cost:
    began_s = time.perf_counter()
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE)
    assert process.stdout is not None
    while os.read(process.stdout.fileno(), 1 << 20):
        pass
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise AssertionError(f"{command} ended with {process.returncode}")
    return time.perf_counter() - began_s, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
