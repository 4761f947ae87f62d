"""Large clusters: reading them, painting them, and keeping up with a storm of updates."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

from tests import ROOT
from tests.bench.figures import Figure, console_env, spent
from tests.load.cluster import SMALL
from tests.load.running import LoadServer
from tests.load.screen import (
    COLUMNS,
    LINES,
    PAINTED_S,
    Cost,
    TimedTerminal,
    press_down,
    under_cursor,
    until_painted,
    wrong_rows,
)

# Nodes and jobs; there are ten times as many pods as jobs.
SMOKE, TEN_THOUSAND, LIMIT = (20, 40), (1000, 1000), (5000, 15_000)
SIZES = ((100, 100), TEN_THOUSAND, (2000, 5000), LIMIT)
RATE, STORM_S = 2000, 60
KEY_EVERY_S, UNCOUNTED_PRESSES = 0.4, 12  # the first presses of a storm are not counted
LIFETIME_S = 1800.0
_OURS = """
import asyncio, gc
import k8s.client.session  # else imported by the first request
from k8s.client.client import Client
from k8s.cluster.cluster_mirror import ClusterMirror
from k8s.reasons.job_reasons import JobReasons
from tui.__main__ import GARBAGE
from tui.tables.filters import own_names

gc.set_threshold(*GARBAGE)  # as in the console

async def read(kubeconfig):
    async with await Client.connect(kubeconfig) as client:
        began()
        mirror = ClusterMirror(client)
        JobReasons(mirror, own_names)
        picture = await mirror.read_once()
        return sum(len(job.instances) for job in picture.jobs)

def run(kubeconfig):
    return asyncio.run(read(kubeconfig))
"""
_MODELS = """
from kubernetes import client, config

def run(kubeconfig):
    config.load_kube_config(kubeconfig)
    core = client.CoreV1Api()
    began()
    pods, token = [], None
    while True:
        page = core.list_pod_for_all_namespaces(limit=500, _continue=token)
        pods += page.items
        token = page.metadata._continue
        if not token:
            return len(pods) if core.list_node().items else 0
"""
_AROUND = """
import json, resource, sys, time
began_at = []
def began():
    began_at[:] = [time.perf_counter(), time.process_time()]
{work}
found = run(sys.argv[1])
wall_s, cpu_s = time.perf_counter() - began_at[0], time.process_time() - began_at[1]
peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps([wall_s, cpu_s, peak_mib, found]))
"""


def pods(is_smoke: bool) -> Iterator[Figure]:
    """Read and paint 10,000 pods, beside the official client's models and kubectl."""
    nodes, jobs = SMOKE if is_smoke else TEN_THOUSAND
    with LoadServer(nodes, jobs, lifetime_s=LIFETIME_S) as server, console_env() as env:
        env["KUBECONFIG"] = str(server.kubeconfig)
        ours = _in_process(_OURS, env, jobs)
        has_models = importlib.util.find_spec("kubernetes") is not None
        models = _in_process(_MODELS, env, jobs) if has_models else (None, None, None)
        yield Figure(f"read {10 * jobs:,} pods", ours[0], "the official client's models", models[0], ">= 30x")
        yield Figure("  CPU time", ours[1], "", models[1])
        yield Figure("  peak memory", ours[2], "", models[2], unit="MiB")
        yield from _painted(server, env, jobs, 1 if is_smoke else 3, "<= 1.2x", "", "< 150 MiB")


def limit(is_smoke: bool) -> Iterator[Figure]:
    nodes, jobs = SMOKE if is_smoke else LIMIT
    with LoadServer(nodes, jobs, lifetime_s=LIFETIME_S) as server, console_env() as env:
        env["KUBECONFIG"] = str(server.kubeconfig)
        yield from _painted(server, env, jobs, 1, "<= 12 s", "<= 8 s", "<= 450 MiB")
        began_s = time.monotonic()
        with _console(env, "-n", "vision" if is_smoke else SMALL) as terminal:
            terminal.wait_for(under_cursor, PAINTED_S)
        first_s = time.monotonic() - began_s
        yield Figure("  first screenful of one namespace of 200 pods", first_s, promised="<= 0.8 s")


def growth(is_smoke: bool) -> Iterator[Figure]:
    """Paint clusters of four sizes: a cost for each pod that falls is better than linear."""
    for nodes, jobs in (SMOKE,) if is_smoke else SIZES:
        with LoadServer(nodes, jobs, lifetime_s=LIFETIME_S) as server, console_env() as env:
            env["KUBECONFIG"] = str(server.kubeconfig)
            pods = 10 * jobs
            _, cost = _open(env, server.truth())
        yield Figure(f"the console, {pods:,} pods painted", cost.at_s)
        yield Figure("  time for each pod", cost.at_s / pods * 1e6, unit="µs")
        yield Figure("  CPU time for each pod", cost.cpu_s / pods * 1e6, unit="µs")
        yield Figure("  memory for each pod", cost.resident_mib * 1024 / pods, unit="KiB")


def _painted(
    server: LoadServer, env: Mapping[str, str], jobs: int, rounds: int, wall: str, cpu: str, memory: str
) -> Iterator[Figure]:
    """Open the console until all is painted, beside a list by kubectl."""
    truth = server.truth()
    first_s, ours = min((_open(env, truth) for _ in range(rounds)), key=lambda each: each[1].at_s)
    wall_s = cpu_s = peak_mib = None
    if shutil.which("kubectl"):
        spent(["kubectl", "get", "nodes"], env)  # fills its cache of discovery
        runs = [spent(["kubectl", "get", "pods", "-A"], env) for _ in range(rounds)]
        wall_s, cpu_s, peak_mib = min(runs)
    yield Figure(f"the console, {10 * jobs:,} pods painted", ours.at_s, "kubectl get pods -A", wall_s, wall)
    yield Figure("  first screenful", first_s, promised="<= 2 s")
    yield Figure("  CPU time", ours.cpu_s, "", cpu_s, cpu)
    yield Figure("  peak memory", ours.peak_mib, "", peak_mib, unit="MiB")
    yield Figure("  resident memory, console open", ours.resident_mib, promised=memory, unit="MiB")


def storm(is_smoke: bool) -> Iterator[Figure]:
    """Press a key now and then while pods change, then hold the painted rows against the truth."""
    nodes, jobs = SMOKE if is_smoke else TEN_THOUSAND
    rate, events = (500, 1000) if is_smoke else (RATE, RATE * STORM_S)
    presses: list[float] = []
    with LoadServer(nodes, jobs, lifetime_s=LIFETIME_S) as server, console_env() as env:
        env["KUBECONFIG"] = str(server.kubeconfig)
        with _console(env) as terminal:
            until_painted(terminal, server.truth())
            server.storm(rate, events)
            for _ in range(1 if is_smoke else UNCOUNTED_PRESSES):
                _press(terminal)
            before, first = Cost.of(terminal.pid), server.count()["events"]
            done = first
            while done < events or not presses:
                presses.append(_press(terminal))
                done = server.count()["events"]
            after = Cost.of(terminal.pid)
            truth = server.truth()
            until_painted(terminal, truth)
            terminal.send("o")  # jobs that finished long ago too
            wrong = len(wrong_rows(terminal, truth))
    presses.sort()
    took_s = after.at_s - before.at_s
    came = (done - first) / took_s
    yield Figure(f"storm of {events:,} updates, at most {rate:,}/s: came", came, unit="/s")
    yield Figure("  painted rows that are wrong afterwards", wrong, promised="0", unit="")
    yield Figure("  key-press to paint, median", presses[len(presses) // 2])
    yield Figure("  key-press to paint, p99", presses[int(len(presses) * 0.99)], promised="< 80 ms")
    yield Figure("  share of a core", (after.cpu_s - before.cpu_s) / took_s, promised="< 1", unit="")
    yield Figure("  growth of resident memory", after.resident_mib - before.resident_mib, unit="MiB")


def _in_process(work: str, env: Mapping[str, str], jobs: int) -> tuple[float, float, float]:
    """Run some reading in a fresh process; return its seconds, CPU seconds and peak MiB, imports aside."""
    command = [sys.executable, "-c", _AROUND.format(work=work), env["KUBECONFIG"]]
    done = subprocess.run(command, env=env, cwd=ROOT, check=True, capture_output=True, text=True)
    wall_s, cpu_s, peak_mib, found = json.loads(done.stdout)
    if found < 9 * jobs:
        raise AssertionError(f"read {found} pods of {10 * jobs}")
    return wall_s, cpu_s, peak_mib


def _console(env: Mapping[str, str], *words: str) -> TimedTerminal:
    command = [sys.executable, "-P", "-m", "tui", *(words or ("-A",)), "--kubeconfig", env["KUBECONFIG"]]
    return TimedTerminal(command, columns=COLUMNS, lines=LINES, env=env)


def _open(env: Mapping[str, str], truth: dict[str, Any]) -> tuple[float, Cost]:
    """Open the console until all is painted; return the seconds to the first rows, and the cost of all."""
    began_s = time.monotonic()
    with _console(env) as terminal:
        terminal.wait_for(under_cursor, PAINTED_S)
        first_s = time.monotonic() - began_s
        until_painted(terminal, truth)
        cost = Cost.of(terminal.pid)
        return first_s, cost._replace(at_s=cost.at_s - began_s)


def _press(terminal: TimedTerminal) -> float:
    """Move the cursor down, then wait a little; return the seconds until it was painted."""
    began_s, took_s = time.perf_counter(), press_down(terminal)
    while (left_s := began_s + KEY_EVERY_S - time.perf_counter()) > 0:
        terminal.read_some(left_s)
    return took_s
