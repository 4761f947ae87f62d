"""One connection to a cluster, with everything that lives as long as it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from k8s.client.client import Client
from k8s.jobs.permissions import Permissions
from k8s.reasons.job_reasons import JobReasons
from tui.runs.store import RunStore
from tui.session.life import READS_PER_S, Life
from tui.settings.options import ConsoleOptions
from tui.settings.served_kinds import open_mirror
from tui.tables.filters import own_names

if TYPE_CHECKING:
    from k8s.gpus.links import LinkMatrix
    from k8s.logs import LogHub
    from k8s.reasons.failures import FailureCause
    from tui.runs.journal.recorder import JobRecorder
    from tui.runs.run_records import NodesAndPods
    from tui.session.life_feed import LifeFeed
    from tui.session.telemetry_feed import TelemetryFeed


class Session:
    """A connected cluster. It never changes to another one: a switch of the context makes a new session."""

    def __init__(
        self,
        client: Client,
        options: ConsoleOptions,
        runs: RunStore,
        causes: Sequence[FailureCause] | None = None,
        *,
        names: Callable[[str], Container[str]] = own_names,
        is_narrow: bool = False,
    ) -> None:
        """Prepare; no request is sent before `mirror.run`.

        Args:
            client: The cluster; the caller closes it.
            options: Resolved options; they name the sandbox's kubeconfig once it has started.
            runs: Receives the runs that end.
            causes: Known causes of failures; None for the packaged ones.
            names: Returns the names, by the user's, whose jobs' logs are read and kept.
            is_narrow: Read nothing of other namespaces.
        """
        self.client = client
        self.options = options
        self.runs = runs
        self.mirror = open_mirror(options, client, is_narrow=is_narrow)
        self.reasons = JobReasons(self.mirror, names, causes)
        self.permissions = Permissions(client)
        self.life = Life()
        """Filled while the feed of `open_life` runs."""
        self.recorder: JobRecorder | None = None
        """None until `open_recorder`."""
        self.links: dict[str, LinkMatrix] = {}
        """GPU links by node, filled on demand."""

    @property
    def namespace(self) -> str:
        """Namespace for what needs one: the shown one, or the user's own while all are shown."""
        return self.mirror.namespace or self.client.config.namespace

    @property
    def place(self) -> NodesAndPods:
        """Nodes and pods as they are now."""
        from tui.runs.run_records import NodesAndPods

        return NodesAndPods(self.mirror.latest.nodes, self.mirror.pods)

    @cached_property
    def logs(self) -> LogHub:
        """Followed logs, shared by all views; slow to import, so it is made on first use."""
        from k8s.logs import LogHub

        self.reasons.hub = hub = LogHub(self.client)
        return hub

    async def close(self) -> None:
        """End what reads in the background, before the client is closed."""
        if "logs" in self.__dict__:
            await self.logs.close()
        if "telemetry" in self.__dict__:
            await self.telemetry.close()

    @cached_property
    def telemetry(self) -> TelemetryFeed:
        """GPU telemetry of the visible nodes; slow to import, so it is opened on first use."""
        from tui.runs.journal.database import observer_name
        from tui.runs.journal.ledger import IdleMeter
        from tui.session.telemetry_feed import open_telemetry

        mirror, context = self.mirror, self.client.config.context
        meter = IdleMeter(self.runs.journal.reopened(), context, observer_name("console"))
        return open_telemetry(
            self.client, lambda: mirror.all_jobs, lambda: mirror.latest.nodes, self.options.prometheus, meter
        )

    def open_life(self, reads_per_s: float = READS_PER_S) -> LifeFeed:
        """Return the feed that reads signs of life, shown from now on; slow to import."""
        from tui.session.life_feed import LifeFeed

        feed = LifeFeed(
            self.client,
            self.permissions,
            lambda: self.mirror.all_jobs,
            life=self.life,
            hub=self.logs,
            runs=self.runs,
            place=lambda: self.place,
            on_signs=self.mirror.publish_soon,
            rules=self.options.alerts,
            names=self.reasons.own_names,
            per_s=reads_per_s,
        )
        self.mirror.evidence, self.mirror.life = feed.evidence, feed.signs
        return feed

    async def observe(self, observer: str, *, reads_per_s: float = READS_PER_S) -> None:
        """Read signs of life, and record what happens to jobs as `observer`, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.open_life(reads_per_s).run())
            group.create_task(self.open_recorder(observer).run())

    def open_recorder(self, observer: str) -> JobRecorder:
        """Return the recorder of the changes of jobs, as `observer`; slow to import."""
        from tui.runs.journal.recorder import JobRecorder

        def cause_of(uid: str) -> str:
            found = self.reasons.triage_of(uid)
            return found.cause.name if found is not None and found.cause is not None else ""

        journal = self.runs.journal.reopened()
        self.recorder = JobRecorder(journal, self.mirror, observer, own_names=own_names, cause_of=cause_of)
        self.recorder.update(self.mirror.latest)
        return self.recorder
