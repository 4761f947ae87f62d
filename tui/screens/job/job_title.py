"""The line above the view of one job; what matters least goes first where cells are short."""

from __future__ import annotations

from k8s.kinds import JobRef
from k8s.snapshot import Job
from k8s.status import Status
from k8s.text.sanitize import sanitize
from tui.text.cells import cell_len, elide_end, elide_middle
from tui.text.format import Clock

_RAN = (Status.RUNNING, Status.RESTARTING, Status.SUCCEEDED, Status.FAILED)


def job_title(
    ref: JobRef, job: Job | None, clock: Clock, width: int, *, progress: str = "", is_gone: bool = False
) -> str:
    """Return `Jobs › bert   PyTorchJob kubeflow.org/v1 · Running 2h13m · 4/4 pods · epoch 2/3`.

    Args:
        ref: The job.
        job: How it is, or was when it was last seen; None where nobody knows.
        clock: Tells the time.
        width: The cells that there are.
        progress: How far it says it is.
        is_gone: It is there no more.
    """
    kind, name, version = sanitize(ref.kind), sanitize(ref.name), sanitize(ref.api_version)
    trainer = ""
    if is_gone or job is None:
        words = "gone: it was deleted; this is its last state" if job else "gone: there is no such job"
        state, progress = [words] if is_gone else [], ""
    else:
        state = [f"{job.status}{_time(job, clock)}", f"{job.instances_running}/{len(job.instances)} pods"]
        trainer = f"trainer {sanitize(job.trainer)}" if job.trainer else ""
    tails = (
        [f"{kind} {version}", *state, progress, trainer],
        [f"{kind} {version}", *state, progress],
        [kind, *state, progress],
        [*state, progress],
        [f"{kind} {version}", *state],
        [kind, *state],
        state or [kind],
    )
    texts = [f"Jobs › {name}   {' · '.join(filter(None, each))}" for each in tails]
    fitting = next((text for text in texts if cell_len(text) <= width), None)
    if fitting is not None:
        return fitting
    tail = " · ".join(filter(None, tails[-1]))
    room = max(12, width - cell_len(f"Jobs ›    {tail}"))
    return elide_end(f"Jobs › {elide_middle(name, room)}   {tail}", max(width, 1))


def _time(job: Job, clock: Clock) -> str:
    """Return how long it runs, or ran."""
    if job.status not in _RAN or job.started is None:
        return ""
    return f" {clock.age(job.started, job.finished)}"
