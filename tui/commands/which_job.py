"""Which job is meant by NAME, or by KIND/NAME where several kinds have one of that name."""

from __future__ import annotations

from collections.abc import Iterable

from k8s.errors import KubeError, NotFound
from k8s.kinds import KINDS, JobRef
from k8s.snapshot import ClusterSnapshot, Job
from tui.commands.errors import WrongUsage

NAME_HELP = "name of the job, or KIND/NAME"
"""For arguments that name a job."""


class Ambiguous(KubeError):
    """Several jobs have the name."""


def split_name(words: str) -> tuple[str, str]:
    """Return the kind, in the words of manifests or empty, and the name.

    Raises:
        WrongUsage: There is no such kind, or no name.
    """
    kind_words, slash, name = words.rpartition("/")
    if not name or (slash and not kind_words):
        raise WrongUsage(f"{words!r} names no job: write NAME or KIND/NAME.")
    if not slash:
        return "", name
    for kind in KINDS:
        resource = kind.resource
        known = (kind.title, resource.kind, resource.plural, f"{resource.plural}.{resource.group}")
        if kind_words.lower() in map(str.lower, known):
            return resource.kind, name
    kinds = ", ".join(kind.resource.kind for kind in KINDS)
    raise WrongUsage(f"There is no kind of job called {kind_words!r}. There is: {kinds}.")


def find_job(snapshot: ClusterSnapshot, words: str) -> Job:
    """Return the job that is meant.

    Raises:
        NotFound: There is none.
        Ambiguous: There are several; the error lists them.
        WrongUsage: The words are no name.
    """
    kind, name = split_name(words)
    found = [job for job in snapshot.jobs if job.ref.name == name and kind in ("", job.ref.kind)]
    where = f"namespace {snapshot.namespace}" if snapshot.namespace else "any namespace"
    if not found:
        raise NotFound(
            f"There is no {kind or 'job'} {name} in {where}.", hint="See what there is: gpuconsole list -A"
        )
    if len(found) > 1:
        raise Ambiguous(
            f"{len(found)} jobs are called {name}.",
            "\n".join(_flags(job.ref, has_namespace=bool(snapshot.namespace)) for job in found),
            "Say which one, as above.",
        )
    return found[0]


def titles(refs: Iterable[JobRef]) -> str:
    """Return jobs as people read them: `PyTorchJob vision/bert`."""
    return ", ".join(f"{ref.kind} {ref.namespace}/{ref.name}" for ref in refs)


def _flags(ref: JobRef, *, has_namespace: bool) -> str:
    words = f"{ref.kind}/{ref.name}"
    return words if has_namespace else f"-n {ref.namespace} {words}"
