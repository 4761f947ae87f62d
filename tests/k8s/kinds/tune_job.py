"""A kind of job unknown to all other modules: the file that `test_new_kind` adds to a copy of `k8s.kinds`."""

from __future__ import annotations

from k8s.kinds.base import DeclaredJob, Manifest, Replica
from k8s.kinds.parse import make_replica, nested, outcome_of_conditions, read_job, read_status, replica_count
from k8s.models import Pod
from k8s.models.resources import Resource
from k8s.text.sanitize import parse_integer

STUDY = "tune.example.org/study"
TRIAL = "tune.example.org/trial"


class TuneJob:
    """Tries many settings at once, a pod for each."""

    title = "TuneJob"
    resource = Resource("tune.example.org", "v1", "tunejobs", "TuneJob")
    container = "trial"
    suspend_field = ""

    def parse(self, obj: Manifest) -> DeclaredJob:
        outcome = outcome_of_conditions(read_status(obj), succeeded="Complete", failed="Failed")
        return read_job(obj, self.resource, self.replicas(obj), outcome)

    def replicas(self, obj: Manifest) -> tuple[Replica, ...]:
        spec = nested(obj, "spec")
        return tuple(
            make_replica("trial", index, nested(spec, "template"), is_chief=index == 0)
            for index in range(replica_count(spec.get("trials")))
        )

    def pod_selector(self, name: str) -> str:
        return f"{STUDY}={name}"

    def job_of(self, pod: Pod) -> str:
        return pod.metadata.label(STUDY)

    def instance_of(self, pod: Pod) -> tuple[str, int | None] | None:
        return ("trial", parse_integer(pod.metadata.label(TRIAL))) if self.job_of(pod) else None
