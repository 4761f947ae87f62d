"""Look up a job by NAME, or by KIND/NAME where several kinds have one of that name."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable

from msgspec.structs import replace

from k8s.kinds import KINDS, AnyOwner, JobRef, kind_of
from k8s.snapshot import ClusterSnapshot, Job
from k8s.text.errors import KubeError, NotFound
from tui.commands.support.connect import with_cluster_flags
from tui.commands.support.output import WrongUsage, missing_line, write_stderr
from tui.settings.options import ConsoleOptions

NAME_HELP = "job name, or KIND/NAME"

# Owners that a job list may show in any cluster, even if it shows none now.
OWNERS = (
    AnyOwner("Pod", "v1"),
    *(AnyOwner(kind, "apps/v1") for kind in ("DaemonSet", "Deployment", "ReplicaSet", "StatefulSet")),
)


class Ambiguous(KubeError):
    """Several jobs have the name."""


def split_name(words: str) -> tuple[str, str]:
    """Return the kind as typed, empty for any, and the name.

    Raises:
        WrongUsage: The name is missing.
    """
    kind_words, slash, name = words.rpartition("/")
    if not name or (slash and not kind_words):
        raise WrongUsage(f"{words!r} is not a job name: use NAME or KIND/NAME.")
    return kind_words, name


def add_job(parser: argparse.ArgumentParser) -> None:
    """Add the job argument and `--type`."""
    parser.add_argument("job", metavar="JOB", help=NAME_HELP)
    add_type(parser)


def add_jobs(parser: argparse.ArgumentParser) -> None:
    """Add the job arguments."""
    parser.add_argument("jobs", metavar="JOB", nargs="+", help=NAME_HELP)
    add_type(parser)


def add_type(parser: argparse.ArgumentParser) -> None:
    """Add `--type`."""
    parser.add_argument(
        "-T",
        "--type",
        dest="job_type",
        default="",
        metavar="KIND",
        help="only jobs of this kind, e.g. pytorchjob, mpijob, tfjob",
    )


def jobs_of_type(snapshot: ClusterSnapshot, words: str) -> ClusterSnapshot:
    """Return the snapshot with the jobs of one kind; unchanged if no kind is given.

    Raises:
        WrongUsage: The kind does not exist.
    """
    if not words:
        return snapshot
    from tui.text.kind_words import matches_kind

    _kind_named(words, snapshot)
    return replace(
        snapshot, jobs=tuple(job for job in snapshot.jobs if matches_kind(kind_of(job.ref), words))
    )


def find_job(snapshot: ClusterSnapshot, words: str, job_type: str = "") -> Job:
    """Return the named job.

    Args:
        snapshot: The cluster.
        words: NAME or KIND/NAME.
        job_type: Required kind, as the user typed it; empty for any.

    Raises:
        NotFound: The job does not exist.
        Ambiguous: Several jobs match; the error lists them.
        WrongUsage: The name is invalid.
    """
    from tui.text.kind_words import matches_kind

    kind_words, name = split_name(words)
    kind_words = kind_words or job_type
    found = [
        job
        for job in jobs_of_type(snapshot, job_type).jobs
        if job.ref.name == name and (not kind_words or matches_kind(kind_of(job.ref), kind_words))
    ]
    if not found:
        where = f"namespace {snapshot.namespace}" if snapshot.namespace else "any namespace"
        kind = _kind_named(kind_words, snapshot) if kind_words else "job"
        raise NotFound(
            f"There is no {kind} {name} in {where}.",
            missing_line(snapshot.missing_jobs),
            "To list all jobs: gpuconsole list -A",
        )
    if len(found) > 1:
        has_namespace = bool(snapshot.namespace)
        kinds = Counter((job.ref.kind, job.ref.namespace) for job in found)
        raise Ambiguous(
            f"{len(found)} jobs are named {name}.",
            "\n".join(
                _flags(
                    job.ref, has_namespace=has_namespace, has_group=kinds[job.ref.kind, job.ref.namespace] > 1
                )
                for job in found
            ),
            "Name one of these.",
        )
    return found[0]


def find_jobs(
    options: ConsoleOptions, snapshot: ClusterSnapshot, names: Iterable[str], job_type: str = ""
) -> tuple[list[Job], bool]:
    """Return the named jobs, and True if all were found; missing ones are reported on stderr."""
    jobs: list[Job] = []
    are_found = True
    for words in dict.fromkeys(names):
        try:
            jobs.append(find_job(snapshot, words, job_type))
        except KubeError as error:
            write_stderr(with_cluster_flags(options, str(error)))
            are_found = False
    return jobs, are_found


def titles(refs: Iterable[JobRef]) -> str:
    """Return jobs in the form `PyTorchJob vision/bert`."""
    return ", ".join(f"{ref.kind} {ref.namespace}/{ref.name}" for ref in refs)


def _kind_named(words: str, snapshot: ClusterSnapshot) -> str:
    """Return a kind's name as in manifests.

    Raises:
        WrongUsage: The kind does not exist.
    """
    from tui.text.kind_words import KINDS_OF_OTHERS, matches_kind

    known = [*KINDS, *OWNERS, *(kind_of(job.ref) for job in snapshot.jobs)]
    for kind in known:
        if matches_kind(kind, words):
            return kind.resource.kind
    if words.lower() in KINDS_OF_OTHERS:
        return words
    names = ", ".join(dict.fromkeys(kind.resource.kind for kind in known))
    raise WrongUsage(f"Unknown kind {words!r}. Known kinds: {names}.")


def _flags(ref: JobRef, *, has_namespace: bool, has_group: bool) -> str:
    kind = kind_of(ref).resource.full_name if has_group else ref.kind
    return f"{kind}/{ref.name}" if has_namespace else f"-n {ref.namespace} {kind}/{ref.name}"
