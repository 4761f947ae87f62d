"""`suspend`: end the pods of jobs to free their GPUs, but keep the jobs; `resume`: start them again."""

from __future__ import annotations

import argparse

from k8s.jobs.modify import suspend_job
from k8s.snapshot import Job
from tui.commands.support.confirm import add_jobs, add_yes, check_can_confirm, each, find_jobs, is_confirmed
from tui.commands.support.connect import check_may_change, cluster, read_jobs
from tui.commands.support.output import write_stderr
from tui.jobs.suspend_plan import suspend_plan
from tui.options import ConsoleOptions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the job arguments."""
    add_jobs(parser)
    add_yes(parser)


async def run(options: ConsoleOptions, flags: argparse.Namespace) -> int:
    """Suspend or resume jobs; a failure does not stop the others."""
    verb = flags.chosen
    is_suspended = verb == "suspend"
    check_may_change(options, f"{verb} jobs")
    check_can_confirm(flags, verb)
    async with cluster(options) as client:
        jobs, are_found = find_jobs(options, await read_jobs(options, client), flags.jobs, flags.job_type)
        plan = suspend_plan(jobs, is_suspended=is_suspended)
        for job, why in plan.refused:
            write_stderr(f"Could not {verb} {job.ref.kind} {job.ref.name}.\n{why}")
        if not plan.jobs or not is_confirmed(flags, plan.sentence):
            return 1

        async def do(job: Job) -> None:
            await suspend_job(client, job.ref, job.uid, is_suspended=is_suspended)

        failed = await each(plan.jobs, do, f"is being {verb}{'ed' if is_suspended else 'd'}.")
    return 0 if are_found and not failed and not plan.refused else 1
