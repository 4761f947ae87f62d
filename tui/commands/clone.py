"""`clone`: copy a job under a new name."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence

from k8s.client.client import fetch_username
from k8s.jobs.clone import clone, copied_owned_objects
from k8s.jobs.create import create_manifest
from k8s.jobs.owned_objects import OwnedObject
from k8s.kinds import kind_of
from k8s.kinds.carried_spec import with_spec
from tui.commands.support.connect import check_may_change, cluster, read_jobs
from tui.commands.support.created import add_show_secrets, write_created, write_owned_objects
from tui.commands.support.job_name import add_job, find_job
from tui.commands.support.output import WrongUsage, confirm, is_interactive, write_stderr
from tui.draft.manifest_yaml import ManifestObject
from tui.settings.options import ConsoleOptions, local_user

# The API server's rule for object names; some job kinds are stricter.
_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the job and name arguments."""
    add = parser.add_argument
    add_job(parser)
    add("--name", default="", help="name of the new job (default: the next free one, e.g. bert-2 after bert)")
    add(
        "--dry-run",
        choices=("client", "server"),
        default="",
        help="do not create it: let the server validate it, or only print it",
    )
    add(
        "-o",
        "--output",
        choices=("yaml", "json"),
        default="",
        help="print the manifest; it is created only with --yes",
    )
    add_show_secrets(parser)
    add("-y", "--yes", action="store_true", help="do not ask for confirmation; required in scripts")


async def run(options: ConsoleOptions, flags: argparse.Namespace) -> int:
    """Create the copy, or print it on a dry run."""
    if flags.name and not _NAME.fullmatch(flags.name):
        raise WrongUsage(
            "--name: Use lowercase letters, digits, '-' and '.' only; start and end with a letter or digit."
        )
    if flags.output and not flags.yes:
        flags.dry_run = flags.dry_run or "client"
    if not flags.dry_run:
        check_may_change(options, "clone a job")
        if not flags.yes and not is_interactive():
            raise WrongUsage(
                "Cannot ask for confirmation without a terminal: pass --yes to create it, or --dry-run."
            )
    async with cluster(options) as client:
        snapshot = await read_jobs(options, client)
        ref = find_job(snapshot, flags.job, flags.job_type).ref
        obj = await client.get(kind_of(ref).resource, ref.name, ref.namespace)
        taken = {each.ref.name for each in snapshot.jobs if each.ref.namespace == ref.namespace}
        user = await fetch_username(client) or local_user()
        found = clone(obj, taken, name=flags.name, user=user)
        what = f"{ref.kind} {ref.namespace}/{found.name}"
        if found.mentions_text:
            write_stderr(found.mentions_text)
        if not (flags.dry_run or flags.yes or confirm(f"Create {what} as a copy of {found.source}?")):
            return 1
        along: Sequence[OwnedObject] = ()
        if flags.dry_run != "client":
            is_dry = flags.dry_run == "server"
            along = await copied_owned_objects(client, found.manifest, found.source, ref.namespace)
            manifest = found.manifest if found.spec is None else with_spec(found.manifest, found.spec)
            await create_manifest(
                client, found.resource, manifest, ref.namespace, owned_objects=along, dry_run=is_dry
            )
    words = {"": "created", "server": "created (server dry run)", "client": "created (dry run)"}
    flags.show_secrets = getattr(flags, "show_secrets", False)
    copy = ManifestObject(found.resource, found.manifest)
    write_created([copy], ref.namespace, words[flags.dry_run], flags)
    if not flags.output:
        write_owned_objects(along, words[flags.dry_run])
    return 0
