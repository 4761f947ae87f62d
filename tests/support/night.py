"""A journal with one night on a cluster: what happened, and when it was observed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tui.runs.journal.database import Journal

HOUR = 3600.0
NOW_S = 1_790_000_000.0
_JOB = (
    "INSERT INTO jobs (id, context, uid, namespace, name, kind, api_version, user, is_mine, last_change)"
    " VALUES (?, ?, ?, ?, ?, 'PyTorchJob', 'kubeflow.org/v1', ?, ?, 0)"
)
CHANGE = (
    "INSERT INTO changes (job, at_s, after_s, status, reason, cause, alerts, restarts, gpus_held,"
    " gpus_waiting, nodes) VALUES (?, ?, ?, ?, ?, ?, ?, 0, 0, ?, ?)"
)
_LAST = "UPDATE jobs SET last_change = (SELECT max(id) FROM changes WHERE job = jobs.id)"
OBSERVED = "INSERT INTO observed (context, namespace, observer, from_s, to_s) VALUES (?, ?, ?, ?, ?)"
JOBS = (("bert", "vision", "li"), ("sweep", "vision", "li"), ("vit", "vision", "li"), ("llm", "speech", "li"))
OTHERS = (("notebook", "vision", "chen"),)
NIGHT: tuple[tuple[str, float, str, dict[str, Any]], ...] = (
    # Job, hours ago, status, and more.
    ("bert", 20, "Running", {"nodes": "a,b"}),
    ("vit", 19, "Running", {}),
    ("sweep", 10, "Failed", {"reason": "exit 1"}),
    ("sweep", 9.5, "Suspended", {}),
    ("notebook", 9.4, "Running", {}),
    ("bert", 8, "Running", {"nodes": "a", "gpus_waiting": 4, "reason": "worker-0 waits"}),
    ("llm", 7.5, "Queued", {"reason": "waits in queue research"}),
    ("notebook", 7.2, "Pending", {"cause": "preempted"}),
    ("vit", 3.9, "Running", {"alerts": "nan", "reason": "loss is NaN"}),
    ("sweep", 3.8, "Failed", {"after": 7, "reason": "rank 2: ValueError", "cause": "bad input"}),
    ("bert", 1, "Deleted", {}),
)


def journal_of(folder: Path | None = None, *, context: str = "lab", now_s: float = NOW_S) -> Journal:
    """Return a journal with the night before `now_s`; without a folder, it is in memory."""
    journal = Journal(folder)
    uids = {name: number for number, (name, _, _) in enumerate((*JOBS, *OTHERS), 1)}
    journal.write(
        *(
            (_JOB, uids[each[0]], context, f"uid-{each[0]}", each[1], each[0], each[2], each in JOBS)
            for each in (*JOBS, *OTHERS)
        ),
        *(
            (
                CHANGE,
                *(uids[name], now_s - ago * HOUR, now_s - more["after"] * HOUR if "after" in more else None),
                *(status, *(more.get(key, "") for key in ("reason", "cause", "alerts"))),
                *(more.get("gpus_waiting", 0), more.get("nodes", "")),
            )
            for name, ago, status, more in NIGHT
        ),
        (_LAST,),
        (OBSERVED, context, "", "console 5@h", now_s - 20 * HOUR, now_s - 7 * HOUR),
        (OBSERVED, context, "", "record 7@h", now_s - 4 * HOUR, now_s),
    )
    return journal
