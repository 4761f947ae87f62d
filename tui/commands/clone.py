"""`clone`: a job once more, under a new name, with everything that its object says."""

from __future__ import annotations

import argparse

from k8s.jobs.clone import Clone, clone
from k8s.jobs.create import create_manifest
from k8s.kinds import kind_of
from k8s.text.yaml_writer import to_yaml
from tui.commands.support.connect import check_may_change, cluster, read_jobs
from tui.commands.support.job_name import NAME_HELP, find_job
from tui.commands.support.output import WrongUsage, confirm, is_interactive, say, write, write_object
from tui.options import ConsoleOptions, login_name


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Let the command take a job and a name."""
    add = parser.add_argument
    add("job", metavar="JOB", help=NAME_HELP)
    add("--name", default="", help="the new job's name (the next that is free, as bert-2 after bert)")
    add(
        "--dry-run",
        choices=("client", "server"),
        default="",
        help="create nothing: let the server check it, or show it",
    )
    add(
        "-o",
        "--output",
        choices=("yaml", "json"),
        default="",
        help="print the manifest instead of a sentence",
    )
    add("-y", "--yes", action="store_true", help="do not ask; needed in scripts")


async def run(options: ConsoleOptions, flags: argparse.Namespace) -> int:
    """Create a job like another, or show what would be created."""
    if not flags.dry_run:
        check_may_change(options, "clone a job")
        if not flags.yes and not is_interactive():
            raise WrongUsage("There is nobody to ask here: say --yes to create it, or --dry-run.")
    async with cluster(options) as client:
        snapshot = await read_jobs(options, client)
        ref = find_job(snapshot, flags.job).ref
        obj = await client.get(kind_of(ref).resource, ref.name, ref.namespace)
        taken = {each.ref.name for each in snapshot.jobs if each.ref.namespace == ref.namespace}
        found = clone(obj, taken, name=flags.name, user=login_name())
        what = f"{ref.kind} {ref.namespace}/{found.name}"
        if found.names_left:
            say(found.names_left)
        if not (flags.dry_run or flags.yes or confirm(f"Create {what}, like {found.like}?")):
            return 1
        if flags.dry_run != "client":
            is_dry = flags.dry_run == "server"
            await create_manifest(client, found.resource, found.manifest, ref.namespace, dry_run=is_dry)
    words = {"": "is created", "server": "would be created", "client": "looks right; it was not sent"}
    _print(found, f"{what} {words[flags.dry_run]}.", flags.output)
    return 0


def _print(found: Clone, sentence: str, output: str) -> None:
    if output == "yaml":
        write(to_yaml(found.manifest).rstrip())
    elif output == "json":
        write_object(found.manifest, output)
    else:
        write(sentence)
