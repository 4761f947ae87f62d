"""Losses of jobs as far as they were read, and the views that show them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from k8s.snapshot import Job

if TYPE_CHECKING:
    from trainer.tfevents import ScalarCurve

# Lines to read from the end of a chief's log at first, and later.
FIRST_LINES, LINES = 1000, 200
# Sustained rate of reads for all jobs together, a fifth of the rate limit.
READS_PER_S = 2.0
# Values per job, evenly spaced.
MAX_VALUES = 64


class Life:
    """Losses for views to show; a `LifeFeed` reads them for the jobs that are visible.

    Light to import, unlike the feed, so that views may register before it runs.
    """

    def __init__(self) -> None:
        self.losses: dict[str, Sequence[float]] = {}
        """By job UID, the newest value last."""
        self.curves: dict[str, ScalarCurve] = {}
        """Full loss curves by job UID, for jobs with local event files."""
        self.is_idle: Callable[[], bool] = lambda: False
        """Returns True if every visible job was read once; set by the feed."""
        self._views: dict[object, tuple[Callable[[], Iterable[Job]], Callable[[Job], None]]] = {}

    def watch(
        self,
        view: object,
        visible: Callable[[], Iterable[Job]],
        on_loss: Callable[[Job], None] = lambda _job: None,
    ) -> None:
        """Read the jobs that a view shows until `leave`, and report new losses to it."""
        self._views[view] = visible, on_loss

    def leave(self, view: object) -> None:
        """Stop reading for a view."""
        self._views.pop(view, None)

    @property
    def visible_jobs(self) -> list[Job]:
        """The jobs that views show now."""
        return [job for visible, _ in list(self._views.values()) for job in visible()]

    def set_loss(self, job: Job, values: Sequence[float]) -> None:
        """Store the loss of a job, or forget it if there is none, and report it to all views."""
        self.losses.pop(job.uid, None)
        if values:
            self.losses[job.uid] = values
        for _, on_loss in list(self._views.values()):
            on_loss(job)


def few_of(values: Sequence[float]) -> Sequence[float]:
    """Return at most `MAX_VALUES` of the values, evenly spaced."""
    if len(values) <= MAX_VALUES:
        return tuple(values)
    step = (len(values) - 1) / (MAX_VALUES - 1)
    return tuple(values[round(place * step)] for place in range(MAX_VALUES))
