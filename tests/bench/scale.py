"""Ten thousand pods: reading them, painting them, and keeping up with a storm of updates."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from tests import ROOT
from tests.bench.figures import Figure
from tests.load.running import LoadServer
from tests.load.screen import (
    COLUMNS,
    LINES,
    PAINTED_S,
    Cost,
    TimedTerminal,
    demanded,
    held,
    press_down,
    wrong_rows,
)
from tests.support.terminal import Terminal

RATE, STORM_S = 2000, int(os.environ.get("STORM_S", "60"))
KEY_EVERY_S = 0.4
_OURS = """
import asyncio
from k8s.client.client import Client
from tui.feeds.cluster_feed import ClusterFeed

async def read(kubeconfig):
    async with await Client.connect(kubeconfig) as client:
        began()
        picture = await ClusterFeed(client).read_once()
        return len(picture.nodes), sum(len(job.instances) for job in picture.jobs)

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
            return len(core.list_node().items), len(pods)
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


def measure() -> Iterator[Figure]:
    """Compare with the official client's models and with kubectl, on one server; then let it storm."""
    with LoadServer(lifetime_s=900 + STORM_S) as server, tempfile.TemporaryDirectory() as home:
        env = {
            **os.environ,
            **{f"XDG_{kind}_HOME": home for kind in ("DATA", "STATE", "CONFIG", "CACHE")},
            "HOME": home,
            "TERM": "xterm-256color",
            "KUBECONFIG": str(server.kubeconfig),
        }
        ours, models = _in_process(_OURS, env), _in_process(_MODELS, env)
        work = "read 10,000 pods and what is around them"
        yield Figure(work, ours[0], "the official client's models", models[0], ">= 30x")
        yield Figure("  CPU time of it", ours[1], "", models[1], "")
        yield Figure("  peak memory of it", ours[2], "", models[2], "", unit="MiB")
        truth = server.truth()
        opened = min((_open(env, truth) for _ in range(3)), key=lambda each: each[0])
        if shutil.which("kubectl"):
            runs = [_kubectl(env) for _ in range(4)][1:]  # the first one fills its cache of discovery
            kubectl = min(runs, key=lambda each: each[0])
            work = "the console, until all of it is painted"
            yield Figure(work, opened[0], "kubectl get pods -A", kubectl[0], "<= 1.2x of kubectl's time")
            yield Figure("  CPU time of it", opened[1], "", kubectl[1], "")
            yield Figure("  peak memory of it", opened[2], "", kubectl[2], "", unit="MiB")
        yield Figure("  resident memory, console open", opened[3], "", None, "< 150 MiB", unit="MiB")
        yield from storm(server, env)


def _in_process(work: str, env: dict[str, str]) -> tuple[float, float, float]:
    """Run some reading in a fresh process; return its seconds, CPU seconds and peak MiB, imports aside."""
    command = [sys.executable, "-c", _AROUND.format(work=work), env["KUBECONFIG"]]
    done = subprocess.run(command, env=env, cwd=ROOT, check=True, capture_output=True, text=True)
    wall_s, cpu_s, peak_mib, found = json.loads(done.stdout)
    if found[0] != 1000 or found[1] < 9000:
        raise AssertionError(f"read {found[0]} nodes and {found[1]} pods")
    return wall_s, cpu_s, peak_mib


def _kubectl(env: dict[str, str]) -> tuple[float, float, float]:
    began_s = time.perf_counter()
    process = subprocess.Popen(["kubectl", "get", "pods", "-A"], env=env, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise AssertionError(f"kubectl ended with {process.returncode}")
    return time.perf_counter() - began_s, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def _console(env: dict[str, str], size: tuple[int, int] = (COLUMNS, LINES)) -> TimedTerminal:
    command = [sys.executable, "-P", "-m", "tui", "-A", "--kubeconfig", env["KUBECONFIG"]]
    return TimedTerminal(command, columns=size[0], lines=size[1], env=env)


def _open(env: dict[str, str], truth: dict[str, Any]) -> tuple[float, float, float, float]:
    """Open the console until all is painted; return seconds, CPU seconds, peak and resident MiB."""
    began_s = time.perf_counter()
    with _console(env) as terminal:
        _until_painted(terminal, truth)
        took_s, cost = time.perf_counter() - began_s, Cost.of(terminal.pid)
        return took_s, cost.cpu_s, cost.peak_mib, cost.resident_mib


def _until_painted(terminal: Terminal, truth: dict[str, Any]) -> None:
    total = sum(sum(node["holders"].values()) for node in truth["nodes"].values())
    terminal.wait_for(lambda screen: "─ live" in screen and held(screen) == total, PAINTED_S)


def storm(
    server: LoadServer, env: dict[str, str], size: tuple[int, int] = (COLUMNS, LINES)
) -> Iterator[Figure]:
    """Press a key now and then while pods change, then hold what is painted against the truth."""
    with _console(env, size) as terminal:
        _until_painted(terminal, server.truth())
        events = RATE * STORM_S
        server.storm(RATE, events)
        presses = [_press(terminal) for _ in range(int(5 / KEY_EVERY_S))]
        before = Cost.of(terminal.pid)
        first = server.count()["events"]
        presses.clear()
        while (done := server.count()["events"]) < events:
            presses.append(_press(terminal))
        after = Cost.of(terminal.pid)
        rate = (done - first) / (after.at_s - before.at_s)
        truth = server.truth()
        _until_painted(terminal, truth)
        wrong = _wrong(terminal, truth)
    if not presses:
        raise AssertionError("the storm was over before a key was pressed")
    presses.sort()
    yield Figure(f"storm of {events:,} updates, at most {RATE:,}/s: came", rate, "", None, "", unit="/s")
    yield Figure("  painted rows that are wrong afterwards", wrong, "", None, "0", unit="")
    yield Figure("  key-press to paint, median", presses[len(presses) // 2], "", None, "")
    yield Figure("  key-press to paint, p99", presses[int(len(presses) * 0.99)], "", None, "< 100 ms")
    cpu = (after.cpu_s - before.cpu_s) / (after.at_s - before.at_s)
    yield Figure("  share of a core", cpu, "", None, "< 1", unit="")
    grown_mib = after.resident_mib - before.resident_mib
    yield Figure("  growth of resident memory", grown_mib, "", None, "", unit="MiB")


def _press(terminal: TimedTerminal) -> float:
    """Move the cursor down; return how long it took until it was seen there, then wait a little."""
    began_s, took_s = time.perf_counter(), press_down(terminal)
    until_s = began_s + KEY_EVERY_S
    terminal.wait_for(lambda _: time.perf_counter() >= until_s)
    return took_s


def _wrong(terminal: Terminal, truth: dict[str, Any]) -> int:
    """Return how many rows of the two tables are not as they must be."""
    nodes, jobs = demanded(truth)
    terminal.send("o")  # jobs that finished long ago too
    wrong = len(wrong_rows(terminal, jobs))
    terminal.send(":nodes\r")
    terminal.wait_for("Nodes (", PAINTED_S)
    return wrong + len(wrong_rows(terminal, nodes))
