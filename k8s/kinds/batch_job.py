"""Job, `batch/v1`: Kubernetes' own, plain or indexed.

Labels: kubernetes `pkg/apis/batch/types.go` (`batch.kubernetes.io/job-name` since 1.27, `job-name` before).
"""

from __future__ import annotations

from k8s.kinds.base import MOST_REPLICAS, DeclaredJob, Manifest, Replica
from k8s.kinds.reading import by_conditions, declared, status_of
from k8s.kinds.templates import metadata, pod_template
from k8s.models import Pod
from k8s.resources import JOBS
from k8s.spec import JobSpec

INDEX = "batch.kubernetes.io/job-completion-index"


class BatchJob:
    """Kubernetes' own job: some pods that must each succeed."""

    title = "Job"
    resource = JOBS
    container = "main"

    def manifest(self, spec: JobSpec) -> Manifest:
        """Return the Job that asks for `spec`: indexed, so that each pod knows its number."""
        template = pod_template(spec, self.container)
        template["spec"]["restartPolicy"] = "Never"
        return {
            "apiVersion": self.resource.api_version,
            "kind": self.resource.kind,
            "metadata": metadata(spec),
            "spec": {
                "completions": spec.workers,
                "parallelism": spec.workers,
                "completionMode": "Indexed",
                "backoffLimit": spec.retries,
                "template": template,
            },
        }

    def parse(self, obj: Manifest) -> DeclaredJob:
        """Read a Job."""
        spec = obj.get("spec") or {}
        return declared(
            obj,
            self.resource,
            self.replicas(obj),
            by_conditions(status_of(obj), succeeded="Complete", failed="Failed"),
            is_suspended=bool(spec.get("suspend")),
        )

    def replicas(self, obj: Manifest) -> tuple[Replica, ...]:
        """Return as many pods as may run at once; their names are made up by the cluster."""
        spec = obj.get("spec") or {}
        name = str((obj.get("metadata") or {}).get("name", ""))
        template = spec.get("template") or {}
        parallelism = spec.get("parallelism")
        completions = spec.get("completions")
        count = parallelism if isinstance(parallelism, int) else 1
        if isinstance(completions, int):
            count = min(count, completions)
        is_indexed = spec.get("completionMode") == "Indexed"
        return tuple(
            Replica(
                name="",
                role="pod",
                index=index,
                is_chief=index == 0,
                ranks=(),
                ranks_proof="none",
                template=template,
                restart_policy=str((template.get("spec") or {}).get("restartPolicy") or "Never"),
                env=(("JOB_COMPLETION_INDEX", str(index)),) if is_indexed else (),
                labels=(
                    ("batch.kubernetes.io/job-name", name),
                    ("job-name", name),
                    *(((INDEX, str(index)),) if is_indexed else ()),
                ),
            )
            for index in range(min(max(count, 0), MOST_REPLICAS))
        )

    def pod_selector(self, name: str) -> str:
        """Return the selector that servers of any age understand."""
        return f"job-name={name}"

    def job_of(self, pod: Pod) -> str:
        """Return the Job's name: that of the pod's controller."""
        owner = pod.metadata.controller
        return owner.name if owner is not None and owner.kind == "Job" else ""

    def instance_of(self, pod: Pod) -> tuple[str, int] | None:
        """Return the completion index; None for a Job that is not indexed."""
        index = pod.metadata.label(INDEX) or pod.metadata.annotation(INDEX)
        return ("pod", int(index)) if index.isdecimal() else None
