"""A journal as a recorder would have filled it, in one line for each job and observer."""

from __future__ import annotations

import random
from collections.abc import Iterable

from k8s.status import Status
from tui.runs.journal.database import Journal
from tui.runs.journal.history import DELETED, JobChange

CONTEXT = "recorded"
_LAST = "UPDATE jobs SET last_change = (SELECT ifnull(max(id), 0) FROM changes WHERE job = jobs.id)"
HOSTILE = ("", "preempted", "its node is gone", "'; DROP TABLE jobs; --", "\x1b[2J\0\n", "\u202e\U0001f600,")


def record_job(
    journal: Journal,
    uid: str,
    changes: Iterable[tuple[float, int, int]],
    *,
    name: str = "bert",
    user: str = "li",
    kind: str = "PyTorchJob",
    namespace: str = "default",
    context: str = CONTEXT,
) -> None:
    """Write a job, and for each change its time, the GPUs held and those waited for."""
    put = (
        "INSERT INTO jobs (context, uid, kind, namespace, name, user, api_version, is_mine, last_change)"
        " VALUES (?, ?, ?, ?, ?, ?, 'v1', 1, 0)"
    )
    change = (
        "INSERT INTO changes (job, at_s, status, reason, alerts, restarts, gpus_held, gpus_waiting, nodes)"
        " SELECT id, ?, '', '', '', 0, ?, ?, '' FROM jobs WHERE context = ? AND uid = ?"
    )
    assert journal.write(
        (put, context, uid, kind, namespace, name, user),
        *((change, *each, context, uid) for each in changes),
        (_LAST,),
    )


def record_spans(
    journal: Journal, *spans: tuple[float, float], namespace: str = "", context: str = CONTEXT
) -> None:
    """Write the spans in which a namespace was observed, or all of them."""
    put = "INSERT INTO observed (context, namespace, observer, from_s, to_s) VALUES (?, ?, 'record 1', ?, ?)"
    assert journal.write(*((put, context, namespace, *span) for span in spans))


def random_journal(
    chance: random.Random, *, clock_steps_back: bool = False
) -> tuple[Journal, list[tuple[int, int, JobChange]]]:
    """Return a journal of up to nine jobs, the odd ones the user's; and their changes and GPUs held."""
    journal, changes = Journal(), list[tuple[int, int, JobChange]]()
    jobs = range(1, chance.choice((0, 1, 9)) + 1)
    put = "INSERT INTO jobs VALUES (?, 'lab', ?, 'vision', ?, 'Job', 'v1', ?, NULL, ?, 0)"
    journal.write(*((put, job, f"u{job}", *chance.choices(HOSTILE, k=2), job % 2) for job in jobs))
    ends = [(job, chance.choice((0, 120))) for job in jobs for _ in range(chance.choice((1, 2, 8)))]
    times = [(chance.randrange(-60, end_s), job) for job, end_s in ends]
    columns = f"job, gpus_held, {', '.join(JobChange._fields)}"
    put = f"INSERT INTO changes ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    for at_s, job in times if clock_steps_back else sorted(times):
        status, alerts = chance.choice((*map(str, Status), DELETED)), chance.choice(("", "nan", "silent nan"))
        held, waiting = chance.choices((0, 4), k=2)
        words = *chance.choices(HOSTILE, k=2), alerts, chance.randrange(2), waiting, chance.choice(("", "a"))
        changes.append((job, held, JobChange._make((len(changes) + 1, at_s, None, status, *words))))
    assert journal.write(*((put, job, held, *change) for job, held, change in changes), (_LAST,))
    return journal, changes
