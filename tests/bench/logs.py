"""A long log to a pipe: unfiltered, of one rank, and of all instances by time."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence

from tests.bench.figures import Figure, Spent, console_env, spent
from tests.load.running import LoadServer

LINES, ROUNDS = 2_000_000, 3
SMOKE_LINES = 2_000
# Jobs of the load server's cluster: one pod with eight ranks; two pods, read for half of the lines each.
ONE_POD, TWO_PODS = ("biology", "whisper-0001"), ("vision", "bert-large-0002")


def pipe(is_smoke: bool) -> Iterator[Figure]:
    """Compare with `kubectl logs` of the same log on one server, in turn."""
    lines, rounds = (SMOKE_LINES, 1) if is_smoke else (LINES, ROUNDS)
    with console_env() as env:
        with LoadServer(20, 40, whole_log=lines) as server:
            env["KUBECONFIG"] = str(server.kubeconfig)
            whole, rank, *peers = _fastest(
                rounds,
                env,
                _ours(ONE_POD, "-i", "master-0"),
                _ours(ONE_POD, "-r", "3"),
                ["kubectl", "-n", ONE_POD[0], "logs", f"{ONE_POD[1]}-master-0"],
            )
        with LoadServer(20, 40, whole_log=lines // 2) as server:
            env["KUBECONFIG"] = str(server.kubeconfig)
            (merged,) = _fastest(rounds, env, _ours(TWO_PODS, "--all"))
    peer = peers[0] if peers else None
    yield from _figures(f"a log of {lines:,} lines to a pipe", whole, peer, ">= 1x", "<= 1.5x of kubectl's")
    yield from _figures("  its lines of one rank (-r)", rank, peer, ">= 0.5x")
    yield from _figures("  as many of two pods by time (--all)", merged, peer, ">= 1x")


def _figures(work: str, ours: Spent, peer: Spent | None, rate: str, cpu: str = "") -> Iterator[Figure]:
    wall_s, cpu_s, peak_mib = peer or (None, None, None)
    yield Figure(work, ours.wall_s, "kubectl logs", wall_s, rate)
    yield Figure("    CPU time", ours.cpu_s, "", cpu_s, cpu)
    yield Figure("    peak memory", ours.peak_mib, "", peak_mib, "< 100 MiB", "MiB")


def _ours(job: tuple[str, str], *flags: str) -> list[str]:
    return [sys.executable, "-P", "-m", "tui", "-n", job[0], "logs", job[1], *flags]


def _fastest(rounds: int, env: Mapping[str, str], *commands: Sequence[str]) -> list[Spent]:
    """Return the cost of the fastest run of each command that is installed."""
    found = [command for command in commands if shutil.which(command[0])]
    runs = [[spent(command, env) for command in found] for _ in range(rounds)]
    return [min(costs) for costs in zip(*runs, strict=True)]
