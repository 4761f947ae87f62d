"""What is asked before jobs are deleted: which they are, and what goes with them."""

from __future__ import annotations

from collections.abc import Sequence

from k8s.snapshot import Job
from k8s.text import sanitize
from tui.format import plural

_MOST_NAMED = 10


def delete_question(jobs: Sequence[Job]) -> tuple[str, str]:
    """Return the question, and the details to read before answering it."""
    pods = sum(bool(each.pod) for job in jobs for each in job.instances)
    gpus = sum(job.gpus_allocated for job in jobs)
    lines = [sanitize(f"{job.ref.kind} {job.ref.namespace}/{job.ref.name}") for job in jobs[:_MOST_NAMED]]
    if len(jobs) > _MOST_NAMED:
        lines.append(f"and {len(jobs) - _MOST_NAMED} more")
    goes = f"{plural(pods, 'pod')} will be ended and {plural(gpus, 'GPU')} freed; their logs go too."
    return f"Delete {plural(len(jobs), 'job')}?", "\n".join([*lines, "", goes])
