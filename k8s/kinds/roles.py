"""From the pods of a job's roles back to one spec, and to what each role has of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

from k8s.job_spec import JOB_FIELDS, Role
from k8s.kinds.pods.understood import Understood

ROLE_FIELDS = frozenset(each.name for each in fields(Role)) - {"name", "replicas"}
"""Fields of a spec that a role may say otherwise."""


class TakenRole(NamedTuple):
    """A role as it was read."""

    name: str
    replicas: int | None
    """None where the kind knows how many there are."""
    fields: dict[str, Any]
    """Of its pods, as those of a spec."""


def fields_of_roles(taken: Sequence[TakenRole], *, is_elastic: bool = False) -> Understood:
    """Return the fields of the first role, and as `roles` all of them, each with what it has otherwise.

    Args:
        taken: In their order, at least one.
        is_elastic: The job is elastic, so that what they have otherwise cannot be said.
    """
    first = dict(taken[0].fields)
    devices = [each.fields["gpu_resource"] for each in taken if each.fields["gpus"]]
    first["gpu_resource"] = devices[0] if devices else first["gpu_resource"]
    roles, lost = [], []
    first = _whole(first, taken)
    for name, replicas, said in taken:
        of_role = _whole(said, taken)
        other = {key for key, value in of_role.items() if value != first[key]}
        if not of_role["gpus"]:
            other.discard("gpu_resource")
        own = set() if is_elastic else other & ROLE_FIELDS
        roles.append(Role(name, replicas, **{key: of_role[key] for key in own}))
        lost += [f"{name}'s own {key.replace('_', ' ')}" for key in of_role if key in other - own]
    first |= {"worker_image": "", "roles": () if is_elastic else tuple(roles)}
    return Understood(first, lost)


def _whole(said: Mapping[str, Any], taken: Sequence[TakenRole]) -> dict[str, Any]:
    """Return the fields of a role, with the defaults of those that only other roles say."""
    return {key: JOB_FIELDS[key].default for each in taken for key in each.fields} | dict(said)


def with_worker_image(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields in which workers that have an image of their own, and nothing else, are no role."""
    last = fields["roles"][-1] if fields["roles"] else None
    if last is None or last.image is None or last != Role("worker", last.replicas, image=last.image):
        return fields
    others = tuple(role for role in fields["roles"][:-1] if role != Role(role.name, role.replicas))
    return {**fields, "roles": others, "worker_image": last.image}
