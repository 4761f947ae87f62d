"""Which containers' logs belong to a job, from what the console knows of the job."""

from __future__ import annotations

from k8s.logs.lines import Target
from k8s.snapshot import Instance, Job


def targets_of(job: Job, *, container: str = "", all_containers: bool = False) -> tuple[Target, ...]:
    """Return the logs of a job, its chief's first; instances without a pod have none yet.

    Args:
        job: The job.
        container: Its name; empty for the training container.
        all_containers: Every container of each pod, the init containers too.
    """
    found = [
        _target(job, instance, name)
        for instance in job.instances
        if instance.pod
        for name in _containers(instance, container, all_containers)
    ]
    return tuple(sorted(found, key=lambda each: not each.is_chief))


def _containers(instance: Instance, container: str, all_containers: bool) -> tuple[str, ...]:
    if container:
        return (container,) if container in instance.containers else ()
    return instance.containers if all_containers else instance.containers[:1]


def _target(job: Job, instance: Instance, container: str) -> Target:
    return Target(
        namespace=job.ref.namespace,
        pod=instance.pod,
        container=container,
        pod_uid=instance.pod_uid,
        instance=instance.name,
        ranks=instance.ranks,
        ranks_proof=instance.ranks_proof,
        is_chief=instance.is_chief,
        speaks_for_all=instance.role == "launcher",
        status=instance.status.value,
    )
