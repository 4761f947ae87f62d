"""A journal of many days, as consoles and recorders write it."""

from __future__ import annotations

import os
from collections.abc import Iterator

from tui.runs.journal.database import Journal

DAY_S, HOUR_S = 86_400.0, 3_600
# The first day of a script.
BEGAN_S = 1_700_000_000.0 // DAY_S * DAY_S
# Time of the rows of each table.
TIMES = {
    "logs": "kept_s",
    "curves": "kept_s",
    "events": "last_s",
    "notices": "at_s",
    "idle": "hour_s",
    "changes": "at_s",
    "observed": "to_s",
    "runs": "kept_s",
}


def write_day(journal: Journal, day: int, jobs: int, log_bytes: int) -> None:
    """Write one day of jobs that start, restart and end, each with what is kept of it."""
    began_s = BEGAN_S + day * DAY_S
    observed = (
        "INSERT INTO observed (context, namespace, observer, from_s, to_s) VALUES ('lab', '', 'record', ?, ?)"
    )
    assert journal.write(
        *((observed, began_s + hour * HOUR_S, began_s + (hour + 1) * HOUR_S) for hour in range(24)),
        *(statement for job in range(jobs) for statement in _job(day * jobs + job, began_s, log_bytes)),
    )


def write_change(journal: Journal, job: int, at_s: float, status: str) -> None:
    assert journal.write(_change(job, at_s, status))


def new_job(number: int, created_s: float) -> tuple[object, ...]:
    """Return the statement that adds a job, and its values."""
    values = "?, 'lab', ?, 'vision', ?, 'PyTorchJob', 'kubeflow.org/v1', 'li', ?, 1, 0"
    return f"INSERT INTO jobs VALUES ({values})", number, f"{number:032x}", f"job-{number}", created_s


def _change(job: int, at_s: float, status: str) -> tuple[object, ...]:
    columns = "job, at_s, status, reason, alerts, restarts, gpus_held, gpus_waiting, nodes"
    values = job, at_s, status, "rank 2 exit 1: ValueError: bad shard 7", "", 0, 8, 0, "gpu-a-07"
    return f"INSERT INTO changes ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", *values


def _job(number: int, began_s: float, log_bytes: int) -> Iterator[tuple[object, ...]]:
    uid, hour_s = f"{number:032x}", int(began_s) + number % 16 * HOUR_S
    yield new_job(number, began_s)
    for step, status in enumerate(("Pending", "Starting", "Running", "Restarting", "Running", "Failed")):
        yield _change(number, hour_s + step * 600.0, status)
    for hour in range(8):
        yield "INSERT INTO idle VALUES (?, ?, 'record', 28800, 60)", number, hour_s + hour * HOUR_S
    for event in range(5):
        yield "INSERT INTO events VALUES (?, ?, ?, ?)", f"{uid}{event}", uid, hour_s, os.urandom(400)
    for tag in ("train/loss", "train/lr"):
        yield "INSERT INTO curves VALUES (?, ?, ?, ?)", uid, tag, hour_s, os.urandom(log_bytes // 4)
    for pod in range(2):
        log = "INSERT INTO logs VALUES (?, ?, 'main', '{}', ?, 0, ?)"
        yield log, uid, f"worker-{pod}", hour_s, os.urandom(log_bytes)
    yield "INSERT INTO notices VALUES ('lab', ?, ?, ?)", f"{uid} failed", hour_s, os.urandom(300)
    run = "INSERT INTO runs (uid, record, kept_s) VALUES (?, ?, ?)"
    yield run, uid, os.urandom(900), hour_s
