"""Report earlier runs on the volume, and resolve the run that `--continue` names."""

from __future__ import annotations

import argparse
import asyncio
import posixpath
import time

from k8s.client.client import Client
from k8s.jobs.pod_files import local_folder
from k8s.jobs.run_folders import list_runs
from k8s.kinds import KINDS, Manifest
from k8s.kinds.job_spec import LOG_DIR_ANNOTATION, TRAINER_ANNOTATION, JobSpec
from k8s.models.resources import Resource
from k8s.text.errors import KubeError
from tui.commands.submission.submit_flags import WORKSPACE
from tui.commands.support.connect import read_jobs
from tui.commands.support.output import WrongUsage, write_stderr
from tui.draft.volume import EarlierRun, EarlierRuns, earlier_runs, inspect_volume
from tui.settings.options import ConsoleOptions


def folder_without_cluster(flags: argparse.Namespace) -> str:
    """Return the folder that `--continue` names, for a dry run without a cluster.

    Raises:
        WrongUsage: It names a job, which only a cluster can resolve.
    """
    text = str(flags.continue_from)
    if text and not text.startswith("/"):
        raise WrongUsage(
            f"--continue {text}: with --dry-run=client name its folder, e.g. /workspace/{text}-2026…"
        )
    return EarlierRuns().find(text).folder if text else ""


async def continued_folder(
    options: ConsoleOptions, client: Client, flags: argparse.Namespace, spec: JobSpec
) -> str:
    """Return the folder of the run that `--continue` names, and describe the run on stderr.

    Raises:
        WrongUsage: The run does not exist or cannot be continued.
    """
    volume = await inspect_volume(client, spec.namespace, _workspace_claim(spec), WORKSPACE.path, "")
    runs = volume.runs if volume.is_visible else None
    if not flags.continue_from:
        found = earlier_runs((), runs, WORKSPACE.path).by_job.get(spec.name)
        if found is not None and WORKSPACE.path in spec.log_dir:
            words = found.words(time.time())
            write_stderr(f"Starts anew; to go on from {words}: --continue {spec.name}")
        return ""
    snapshot = await read_jobs(options, client)
    jobs = [job for job in snapshot.jobs if job.ref.namespace == spec.namespace]
    earlier = earlier_runs(jobs, runs, WORKSPACE.path, knows_all_jobs=not snapshot.missing_jobs)
    try:
        run = earlier.find(flags.continue_from)
    except LookupError as error:
        raise WrongUsage(f"--continue: {error.args[0]}") from error
    write_stderr(f"Continues {run.words(time.time())}.")
    return run.folder


async def report_checkpoints(client: Client, resource: Resource, manifest: Manifest, namespace: str) -> None:
    """Report on stderr the checkpoint from which a manifest's trainer will resume."""
    meta = manifest["metadata"]
    annotations = meta.get("annotations")
    kind = next((each for each in KINDS if each.resource == resource), None)
    if kind is None or not isinstance(annotations, dict) or not annotations.get(TRAINER_ANNOTATION):
        return
    folder = posixpath.dirname(str(annotations.get(LOG_DIR_ANNOTATION) or ""))
    try:
        replicas = kind.replicas(manifest)
        root = await local_folder(client, replicas[0].template, namespace, folder) if replicas else None
    except (KubeError, AttributeError, TypeError, ValueError):
        return  # what is wrong with it, the server says
    runs = await asyncio.to_thread(list_runs, root.parent) if root is not None else []
    for run in (run for run in runs if root is not None and run.name == root.name):
        found = EarlierRun(run.job, folder, "", run.step, run.saved_s)
        write_stderr(f"Continues {found.words(time.time())}: its manifest names {folder}.")


def _workspace_claim(spec: JobSpec) -> str:
    return next((mount.claim for mount in spec.mounts if mount.path == WORKSPACE.path), "")
