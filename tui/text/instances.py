"""Select an instance of a job: the named one, the chief, or else a running one."""

from __future__ import annotations

from collections.abc import Sequence

from k8s.snapshot import Instance, Job, LifeSigns
from k8s.status import Status
from k8s.text.errors import NotFound
from tui.text.format import NOTHING

INSTANCE_HELP = "instance name, e.g. worker-2 (default: the chief)"


def find_instance(job: Job, name: str = "") -> Instance:
    """Return the requested instance; it has a pod.

    Raises:
        NotFound: No instance matches.
    """
    title = f"{job.ref.kind} {job.ref.namespace}/{job.ref.name}"
    with_pods = [each for each in job.instances if each.pod]
    if not with_pods:
        raise NotFound(f"{title} has no pods.", job.reason)
    if not name:
        return min(with_pods, key=lambda each: (each.status is not Status.RUNNING, not each.is_chief))
    for instance in with_pods:
        if name in (instance.name, instance.pod):
            return instance
    names = ", ".join(each.name for each in with_pods)
    raise NotFound(f"There is no instance {name} in {title}.", f"Its instances: {names}.")


def format_ranks(ranks: Sequence[int], proof: str) -> str:
    """Format ranks with their proof: `0-3` declared, `~0-3` assumed, `=0-3` observed."""
    if not ranks:
        return NOTHING
    first, last = min(ranks), max(ranks)
    words = str(first) if first == last else f"{first}-{last}"
    return {"assumed": f"~{words}", "observed": f"={words}"}.get(proof, words)


def find_container(instance: Instance, name: str = "") -> str:
    """Return the requested container; by default the training container.

    Raises:
        NotFound: The pod has no container of that name.
    """
    if name and instance.containers and name not in instance.containers:
        names = ", ".join(instance.containers)
        raise NotFound(f"There is no container {name} in {instance.name}.", f"Its containers: {names}.")
    return name or next(iter(instance.containers), "")


def is_silent(signs: LifeSigns, instance: Instance, rank: int | None = None) -> bool:
    """Return True if an instance, or one rank of it, is silent: alone, or with all of the job."""
    if signs.silence is None or instance.status is not Status.RUNNING:
        return False
    names, ranks = signs.silence.writers, instance.ranks if rank is None else (rank,)
    return not names or instance.name in names or any(f"rank {each}" in names for each in ranks)
