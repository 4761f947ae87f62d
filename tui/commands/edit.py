"""`edit`: change a job in an editor, as `kubectl edit` does; the change is shown before it is applied."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from tui.commands.support.confirm import add_yes, check_can_confirm
from tui.commands.support.connect import check_may_change, cluster, read_jobs
from tui.commands.support.job_name import add_job, find_job
from tui.commands.support.output import confirm, write, write_stderr
from tui.jobs.edit_job import edit_job, editor_argv
from tui.options import ConsoleOptions
from tui.terminal.pod_shell import exit_text, signals_left_to_program


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the job argument."""
    add_job(parser)
    add_yes(parser)


async def run(options: ConsoleOptions, flags: argparse.Namespace) -> int:
    """Open the editor, and apply the change after confirmation."""
    check_may_change(options, "edit a job")
    check_can_confirm(flags, "edit")
    argv = editor_argv(os.environ)

    async def run_editor(path: Path) -> str:
        with signals_left_to_program():
            process = await asyncio.create_subprocess_exec(*argv, str(path))
            status = await process.wait()
        return f"{argv[0]}: {exit_text(status)}." if status else ""

    async def ask(question: str, details: str, answers: Sequence[tuple[str, str]]) -> str:
        is_plan = answers[-1][0] == "do"
        write_stderr(details if is_plan else f"{question}\n{details}")
        if flags.yes:
            return "do" if is_plan else "cancel"
        if is_plan and confirm(question):
            return "do"
        return "again" if confirm("Edit again?") else "cancel"

    async with cluster(options) as client:
        ref = find_job(await read_jobs(options, client), flags.job, flags.job_type).ref
        end = await edit_job(client, ref, run_editor, ask)
    (write if end.is_ok else write_stderr)(end.words)
    return 0 if end.is_ok else 1
