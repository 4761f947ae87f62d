"""`suspend`: end the pods of jobs to free their GPUs, but keep the jobs; `resume`: start them again."""

from __future__ import annotations

import argparse

from tui.commands.support.confirm import PromptUi
from tui.commands.support.connect import check_may_change, cluster, read_jobs
from tui.commands.support.job_name import add_jobs, find_jobs
from tui.commands.support.output import add_yes, check_can_confirm
from tui.settings.options import ConsoleOptions
from tui.text.change_plans import suspend_plan
from tui.verbs.changes import suspend


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the job arguments."""
    add_jobs(parser)
    add_yes(parser)


async def run(options: ConsoleOptions, flags: argparse.Namespace) -> int:
    """Suspend or resume jobs; a failure does not stop the others."""
    verb = flags.chosen
    check_may_change(options, f"{verb} jobs")
    check_can_confirm(flags, verb)
    async with cluster(options) as client:
        jobs, are_found = find_jobs(options, await read_jobs(options, client), flags.jobs, flags.job_type)
        plan = suspend_plan(jobs, is_suspended=verb == "suspend")
        ui = PromptUi(flags)
        changed = await suspend(client, plan, ui)
    return 1 if changed is None or not are_found or ui.has_failed else 0
