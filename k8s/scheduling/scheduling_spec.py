"""The fields of a pod's spec that decide where and whether it can start, which the mirror leaves out.

Names are the API's, in snake case. Source: Kubernetes API reference v1.
"""

from __future__ import annotations

from typing import Any

import msgspec

from k8s import models
from k8s.models import PodSpec, Resources, Value


class Toleration(Value, frozen=True):
    """A taint that a pod puts up with."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class NodeSelectorRequirement(Value, frozen=True):
    """One claim about a label or a field of a node."""

    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class NodeSelectorTerm(Value, frozen=True):
    """Requirements that must all hold."""

    match_expressions: list[NodeSelectorRequirement] | None = None
    match_fields: list[NodeSelectorRequirement] | None = None


class NodeSelector(Value, frozen=True):
    """Terms of which one must hold."""

    node_selector_terms: list[NodeSelectorTerm] | None = None


class NodeAffinity(Value, frozen=True):
    """Which nodes a pod can be on."""

    required: NodeSelector | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )


class PodAffinity(Value, frozen=True):
    """Which pods a pod must be, or must not be, beside."""

    required: list[dict[str, Any]] | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )


class Affinity(Value, frozen=True):
    """What a pod is drawn to and kept from."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class ClaimVolumeSource(Value, frozen=True):
    """A volume that is a claim."""

    claim_name: str = ""


class Volume(Value, frozen=True):
    """A volume of a pod, if it is a claim."""

    name: str = ""
    persistent_volume_claim: ClaimVolumeSource | None = None


class LocalReference(Value, frozen=True):
    """Something that is referred to by its name alone."""

    name: str = ""


class TopologySpreadConstraint(Value, frozen=True):
    """How evenly pods must be spread."""

    topology_key: str = ""
    when_unsatisfiable: str = ""


class SchedulingSpec(PodSpec, frozen=True):
    """All of a pod's spec that decides where and whether it can start."""

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
    """What the pod as a whole asks for (1.34 and newer)."""

    @property
    def claims(self) -> list[str]:
        """Return the names of the claims it mounts."""
        sources = (volume.persistent_volume_claim for volume in self.volumes or ())
        return [source.claim_name for source in sources if source is not None and source.claim_name]


def spec_from_template(template: object) -> SchedulingSpec:
    """Read a pod template's spec, which can be anything: one that makes no sense requests nothing."""
    spec = template.get("spec") if isinstance(template, dict) else None
    try:
        found: SchedulingSpec = models.convert(spec or {}, SchedulingSpec, strict=False)
    except (msgspec.ValidationError, RecursionError):
        return SchedulingSpec()
    return found
