"""Cost of the recorder: CPU, requests to the API and memory, while jobs run."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

from tests import ROOT
from tests.bench.figures import Figure, console_env
from tests.load.running import LoadServer
from tests.load.screen import Cost

# About 200 of the jobs run, on 2,000 pods; a pod changes every second.
NODES, JOBS, CHANGES_A_SECOND = 1000, 330, 1
SETTLED_S, RECORDED_S = 60.0, 45.0


def record(is_smoke: bool) -> Iterator[Figure]:
    """Record everybody's jobs, with their logs, after the first read of each."""
    sizes = (20, 20) if is_smoke else (NODES, JOBS)
    with LoadServer(*sizes) as server, console_env() as env:
        words = ["record", "--all-users", "--kubeconfig", str(server.kubeconfig)]
        command = [sys.executable, "-P", "-m", "tui", *words]
        with subprocess.Popen(command, env=env, cwd=ROOT, stderr=subprocess.PIPE, text=True) as recorder:
            try:
                assert recorder.stderr is not None and "Recording" in recorder.stderr.readline()
                server.storm(CHANGES_A_SECOND, 10_000)
                time.sleep(1 if is_smoke else SETTLED_S)
                before, asked = Cost.of(recorder.pid), server.count()["requests"]
                time.sleep(2 if is_smoke else RECORDED_S)
                after, asked = Cost.of(recorder.pid), server.count()["requests"] - asked
            finally:
                recorder.terminate()
    took_s = after.at_s - before.at_s
    cpu = (after.cpu_s - before.cpu_s) / took_s
    yield Figure("record 200 running jobs, share of a core in percent", cpu * 100, promised="< 2", unit="%")
    yield Figure("  requests to the API", asked / took_s, promised="< 2", unit="1/s")
    yield Figure("  resident memory", after.resident_mib, unit="MiB")
