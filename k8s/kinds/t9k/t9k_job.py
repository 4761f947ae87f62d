"""Fields and labels that TensorStack's jobs, `batch.tensorstack.dev/v1beta1`, share.

Source: the T9k user manuals, "PyTorchTrainingJob" and "MPIJob", and their API reference; the CRDs are not
public. Pods are found by their owner: the label `tensorstack.dev/owner-name` is on other pods too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from k8s.kinds.base import DeclaredJob, Manifest, Replica
from k8s.kinds.parse import JobOutcome, count_of, nested, read_job, read_status, text_of
from k8s.models import Pod
from k8s.models.resources import Resource
from k8s.status import Status
from k8s.text.sanitize import parse_integer

OWNER_NAME = "tensorstack.dev/owner-name"
_ENDINGS = {"Succeeded": Status.SUCCEEDED, "Failed": Status.FAILED}
_FILESET = "t9k://pvc/"
# Follows the job's name in a pod's name: a hash in some kinds, the role, and its number if any.
_PLACE = re.compile(r"(?:[a-z0-9]{5}-)?([a-z][a-z0-9-]*?)(?:-([0-9]+))?")


def read_t9k_job(obj: Manifest, resource: Resource, replicas: tuple[Replica, ...]) -> DeclaredJob:
    """Read a job with T9k's phase, run mode and scheduler."""
    spec, status = nested(obj, "spec"), nested(obj, "status")
    outcome = _ENDINGS.get(text_of(status.get("phase")))
    last = {found.type: found for found in read_status(obj).conditions or ()}.get(
        "Failed" if outcome is Status.FAILED else "Completed"
    )
    scheduler = nested(spec, "scheduler", "t9kScheduler")
    priority = count_of(scheduler.get("priority"))
    job = read_job(
        obj,
        resource,
        replicas,
        JobOutcome(outcome, (last.message if last else "") or "", last.last_transition_time if last else None)
        if outcome
        else JobOutcome(),
        is_suspended=_is_on(nested(spec, "runMode", "pause")),
        queue=text_of(scheduler.get("queue")),
        priority="" if priority is None else str(priority),
        log_dir=_log_dir(nested(spec, "tensorboardSpec"), replicas),
    )
    started = {found.type: found.last_transition_time for found in job.conditions}.get("Initialized")
    return replace(
        job,
        started=started,
        restarts=count_of(status.get("backoffCount")) or 0,
        progress="debug mode: its pods wait for you" if _is_on(nested(spec, "runMode", "debug")) else "",
    )


class T9kPods:
    """Mixin of T9k's kinds: their pods are identified by owner and name."""

    resource: Resource

    def pod_selector(self, name: str) -> str:
        """Return the selector of a T9k job's objects."""
        return f"{OWNER_NAME}={name}"

    def job_of(self, pod: Pod) -> str:
        """Return the name of the pod's controller if it is of this kind."""
        owner = pod.metadata.controller
        is_this = owner and (owner.kind, owner.api_version) == (self.resource.kind, self.resource.api_version)
        return owner.name if owner and is_this else ""

    def instance_of(self, pod: Pod) -> tuple[str, int] | None:
        """Return the role and the number at the end of the pod's name."""
        owner = pod.metadata.controller
        job_name = pod.metadata.label(OWNER_NAME) or (owner.name if owner is not None else "")
        name = pod.metadata.name
        if not job_name or not name.startswith(f"{job_name}-"):
            return None
        found = _PLACE.fullmatch(name[len(job_name) + 1 :])
        index = parse_integer(found[2] or "0") if found else None
        return (found[1], index) if found and index is not None else None


def replica_specs(obj: Manifest) -> list[Mapping[str, Any]]:
    """Return the entries of `replicaSpecs` that have a type."""
    return [each for each in nested(obj, "spec").get("replicaSpecs") or () if text_of(each.get("type"))]


def _is_on(mode: Mapping[str, Any]) -> bool:
    # The manuals use two names for the switch.
    return mode.get("enabled") is True or mode.get("enable") is True


def _log_dir(tensorboard: Mapping[str, Any], replicas: Iterable[Replica]) -> str:
    # The folder in the pods that TensorBoard reads from a volume claim.
    folders = [
        (text_of(claim.get("name")), text_of(path))
        for claim in nested(tensorboard, "logDir").get("pvc") or ()
        for path in claim.get("subPath") or ("",)
    ]
    for address in tensorboard.get("trainingLogFilesets") or ():
        claim, _, path = text_of(address).removeprefix(_FILESET).partition("/")
        folders.append((claim, path))
    for replica in replicas:
        pod = nested(replica.template, "spec")
        volumes = {
            text_of(nested(each, "persistentVolumeClaim").get("claimName")): text_of(each.get("name"))
            for each in pod.get("volumes") or ()
        }
        mounts = {
            text_of(mount.get("name")): text_of(mount.get("mountPath"))
            for container in pod.get("containers") or ()
            for mount in container.get("volumeMounts") or ()
        }
        for claim, path in folders:
            if claim and (root := mounts.get(volumes.get(claim) or "")):
                return "/".join(filter(None, [root.rstrip("/"), path.removeprefix("./").strip("/")]))
    return ""
