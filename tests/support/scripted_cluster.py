"""A cluster whose jobs change as a test says, by a clock of its own, beside the observers that record it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from msgspec.structs import replace

from k8s.cluster.cluster_mirror import ClusterMirror
from k8s.kinds import JobRef
from k8s.snapshot import ClusterSnapshot, Job, LifeSigns
from k8s.status import Status
from tui.runs.journal.database import Journal
from tui.runs.journal.recorder import JobRecorder

START_S = 1_780_000_000.0
CONTEXT, USER = "lab", "li"


def at(seconds: float) -> datetime:
    """Return the time so many seconds after the start."""
    return datetime.fromtimestamp(START_S + seconds, UTC)


class ScriptedCluster:
    """Jobs by name; `now_s` counts from the start."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now_s = 0.0
        self.jobs: dict[str, Job] = {}
        self.life: dict[str, LifeSigns] = {}
        self.stale_since_s: float | None = None
        self.covered, self.unreadable = "", set[str]()
        self.causes: dict[str, str] = {}
        self.recorders: list[JobRecorder] = []

    def observer(self, name: str = "console") -> JobRecorder:
        """Return a recorder of its own connection, which `tick` runs until it is removed from the list."""
        config = SimpleNamespace(config=SimpleNamespace(context=CONTEXT))
        cluster = self

        class Mirror:
            client = config

            @property
            def covered_namespace(self) -> str:
                return cluster.covered

            @property
            def all_jobs(self) -> tuple[Job, ...]:
                return cluster.seen_jobs

            def is_current(self, ref: JobRef) -> bool:
                return ref.kind not in cluster.unreadable

        recorder = JobRecorder(
            Journal(self.folder),
            cast("ClusterMirror", Mirror()),
            name,
            own_names=lambda user: (user,),
            cause_of=lambda uid: self.causes.get(uid, ""),
            clock=lambda: START_S + self.now_s,
        )
        self.recorders.append(recorder)
        return recorder

    @property
    def seen_jobs(self) -> tuple[Job, ...]:
        """The jobs that a server in reach lists."""
        names = ("", self.covered) if self.covered else ()
        return tuple(job for job in self.jobs.values() if not names or job.ref.namespace in names)

    def put(self, name: str, status: Status, **fields: Any) -> Job:
        """Add a job, or change one."""
        old = self.jobs.get(name)
        if old is None:
            ref = JobRef(fields.pop("namespace", "vision"), name, "PyTorchJob", "kubeflow.org/v1")
            none = None, None, (), "", ""
            old = Job(ref, f"uid-{name}", status, "", 4, 0, (), 0, USER, "", at(self.now_s), *none)
        if status is Status.RUNNING:
            fields = {"started": old.started or at(self.now_s), "gpus_allocated": 4, **fields}
        elif status.is_final:
            fields = {"finished": at(self.now_s), "gpus_allocated": 0, **fields}
        self.jobs[name] = replace(old, status=status, **fields)
        return self.jobs[name]

    async def tick(self, *observers: JobRecorder, to_s: float | None = None, every_s: float = 30.0) -> None:
        """Let observers compare, all by default; up to `to_s` once in each interval."""
        if to_s is not None:
            while self.now_s < to_s:
                await self.tick(*observers)
                self.now_s = min(to_s, self.now_s + every_s)
        loop_s = asyncio.get_running_loop().time()
        away = self.stale_since_s is not None
        since_s = loop_s - (self.now_s - (self.stale_since_s or 0.0)) if away else 0.0
        for each in observers or self.recorders:
            found = ClusterSnapshot(
                CONTEXT,
                USER,
                is_synced=True,
                life=dict(self.life),
                stale="away" * away,
                stale_since_s=since_s,
            )
            each.update(found)
            await each.record()

    def changes(self, columns: str = "name, at_s, status") -> list[tuple[Any, ...]]:
        """Return the recorded changes in order of time; times count from the start."""
        with_times = columns.replace("_s", f"_s - {START_S:.0f}")
        query = f"SELECT {with_times} FROM changes JOIN jobs ON jobs.id = job ORDER BY at_s, changes.id"
        return Journal(self.folder).rows(query)

    def observed(self) -> list[tuple[float, float]]:
        """Return the recorded times of observation."""
        query = f"SELECT from_s - {START_S:.0f}, to_s - {START_S:.0f} FROM observed ORDER BY from_s, to_s"
        return Journal(self.folder).rows(query)


def names_of(changes: Iterable[tuple[Any, ...]]) -> set[str]:
    """Return the first column."""
    return {each[0] for each in changes}
