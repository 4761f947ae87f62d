"""A journal as a recorder would have filled it, in one line for each job and observer."""

from __future__ import annotations

from collections.abc import Iterable

from tui.runs.journal.database import Journal

CONTEXT = "recorded"


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
        (put, context, uid, kind, namespace, name, user), *((change, *each, context, uid) for each in changes)
    )


def record_spans(
    journal: Journal, *spans: tuple[float, float], namespace: str = "", context: str = CONTEXT
) -> None:
    """Write the spans in which a namespace was observed, or all of them."""
    put = "INSERT INTO observed (context, namespace, observer, from_s, to_s) VALUES (?, ?, 'record 1', ?, ?)"
    assert journal.write(*((put, context, namespace, *span) for span in spans))
