"""Change several jobs one after the other, for the console and the commands."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from k8s.errors import KubeError, NotFound
from k8s.snapshot import Job


async def change_each(
    jobs: Iterable[Job],
    change: Callable[[Job], Awaitable[None]],
    done: str,
    *,
    tell: Callable[[Job, str], None],
    fail: Callable[[Job, KubeError], None],
) -> list[Job]:
    """Change jobs and return those that were changed; a failure does not stop the others.

    Args:
        jobs: The jobs.
        change: Requests the change of one job.
        done: Message for a changed job, as `is being deleted.`
        tell: Called with each job that was changed or is gone, and the message.
        fail: Called with each job that could not be changed, and the error.
    """
    changed = []
    for job in jobs:
        try:
            await change(job)
        except NotFound:
            tell(job, "is already gone.")
        except KubeError as error:
            fail(job, error)
        else:
            changed.append(job)
            tell(job, done)
    return changed
