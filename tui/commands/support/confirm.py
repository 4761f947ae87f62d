"""Shared parts of the commands that delete or suspend jobs: confirm, report, wait until they are gone."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress

from k8s.client.client import REQUEST_S, Client
from k8s.cluster.cluster_mirror import ClusterMirror
from k8s.snapshot import ClusterSnapshot, Job
from k8s.text.errors import KubeError
from tui.commands.support.job_name import titles
from tui.commands.support.output import is_confirmed, write, write_stderr
from tui.text.change_plans import ChangePlan
from tui.verbs.changes import LONGEST_S, Leftover, find_leftovers, is_over


class PromptUi:
    """Asks on the terminal, unless `--yes` was given, and writes a line for each job."""

    def __init__(self, flags: argparse.Namespace, *, is_listed: bool = False) -> None:
        """Ask as the flags say; if the jobs are listed on stdout, ask without names and report on stderr."""
        self._flags, self._is_listed = flags, is_listed
        self.has_failed = False

    async def confirm(self, plan: ChangePlan) -> ChangePlan | None:
        """Write why jobs cannot be changed, and ask; return the plan, or None."""
        for error in plan.problems:
            self.fail(error)
        question = plan.question if self._is_listed else plan.sentence
        return plan if plan.jobs and is_confirmed(self._flags, question, plan.word) else None

    def report(self, jobs: Iterable[Job], words: str) -> None:
        """Write a line for each job."""
        for job in jobs:
            (write_stderr if self._is_listed else write)(f"{titles([job.ref])} {words}")

    def fail(self, error: KubeError) -> None:
        """Write an error."""
        self.has_failed = True
        write_stderr(str(error))


async def wait_until_gone(
    client: Client, namespace: str, plan: ChangePlan, longest_s: float = LONGEST_S
) -> Sequence[Leftover]:
    """Wait until deleted objects are gone, for `longest_s` at most; return what is left.

    The time counts from the first read of the cluster, which may take as long as a response.
    """
    live = ClusterMirror(client, namespace)
    left: Sequence[Leftover] = find_leftovers(plan, ClusterSnapshot(plan.context), {})
    is_read, is_gone = asyncio.Event(), asyncio.Event()

    def look(snapshot: ClusterSnapshot) -> None:
        nonlocal left
        left = find_leftovers(plan, snapshot, live.pods)
        if snapshot.is_synced:
            is_read.set()
        if is_over(left, 0.0):
            is_gone.set()

    async with asyncio.TaskGroup() as group:
        watching = group.create_task(live.run(look))
        for event, for_s in ((is_read, REQUEST_S), (is_gone, longest_s)):
            with suppress(TimeoutError):
                async with asyncio.timeout(for_s):
                    await event.wait()
        watching.cancel()
    return left
