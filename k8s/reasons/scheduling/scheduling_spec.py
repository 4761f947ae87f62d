"""Pod spec fields that decide where and whether a pod can start; the mirror omits them.

Names are the API's, in snake case. Source: Kubernetes API reference v1.
"""

from __future__ import annotations

from typing import Any

import msgspec

from k8s import models
from k8s.models import PodSpec, Resources, Value


class Toleration(Value, frozen=True):
    """Toleration of a taint."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class NodeSelectorRequirement(Value, frozen=True):
    """Requirement on a node's label or field."""

    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class NodeSelectorTerm(Value, frozen=True):
    """Requirements that must all match."""

    match_expressions: list[NodeSelectorRequirement] | None = None
    match_fields: list[NodeSelectorRequirement] | None = None


class NodeSelector(Value, frozen=True):
    """Terms of which one must match."""

    node_selector_terms: list[NodeSelectorTerm] | None = None


class NodeAffinity(Value, frozen=True):
    """Node affinity of a pod."""

    required: NodeSelector | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )


class PodAffinity(Value, frozen=True):
    """Affinity or anti-affinity to other pods."""

    required: list[dict[str, Any]] | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )


class Affinity(Value, frozen=True):
    """Affinities of a pod."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class ClaimVolumeSource(Value, frozen=True):
    """Volume source that is a volume claim."""

    claim_name: str = ""


class ObjectVolumeSource(Value, frozen=True):
    """Volume source that is a ConfigMap or, with `secret_name`, a Secret."""

    name: str = ""
    secret_name: str = ""
    optional: bool = False


class Volume(Value, frozen=True):
    """Volume backed by a claim, a ConfigMap or a Secret."""

    name: str = ""
    persistent_volume_claim: ClaimVolumeSource | None = None
    config_map: ObjectVolumeSource | None = None
    secret: ObjectVolumeSource | None = None


class LocalReference(Value, frozen=True):
    """Reference by name alone."""

    name: str = ""


class TopologySpreadConstraint(Value, frozen=True):
    """Constraint on how evenly pods are spread."""

    topology_key: str = ""
    when_unsatisfiable: str = ""


class SchedulingSpec(PodSpec, frozen=True):
    """Pod spec with all fields that affect scheduling."""

    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: list[Toleration] | None = None
    scheduler_name: str = ""
    service_account_name: str = ""
    image_pull_secrets: list[LocalReference] | None = None
    volumes: list[Volume] | None = None
    scheduling_gates: list[LocalReference] | None = None
    topology_spread_constraints: list[TopologySpreadConstraint] | None = None
    resources: Resources | None = None
    """Pod-level resources (Kubernetes 1.34 and newer)."""

    @property
    def claims(self) -> list[str]:
        """Names of the volume claims it mounts."""
        sources = (volume.persistent_volume_claim for volume in self.volumes or ())
        return [source.claim_name for source in sources if source is not None and source.claim_name]


def spec_from_template(template: object) -> SchedulingSpec:
    """Read a pod template's spec; an invalid one requests nothing."""
    spec = template.get("spec") if isinstance(template, dict) else None
    try:
        found: SchedulingSpec = models.convert(spec or {}, SchedulingSpec, strict=False)
    except (msgspec.ValidationError, RecursionError):
        return SchedulingSpec()
    return found
