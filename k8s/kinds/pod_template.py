"""Pod templates of jobs: built from a spec, and parsed back into its fields.

Parsing removes whatever it understands from a copy of the object, so that everything left, known or
not, can be reported by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from k8s import job_spec as job_specs
from k8s.kinds.base import Manifest
from k8s.kinds.parse import ParsedPart, drop_defaults, named, text_of
from k8s.kinds.pod_code import add_code, default_pull_policy, parse_code
from k8s.kinds.pods.command import command_of, fields_of_command
from k8s.kinds.pods.env import Env, env_entries, env_sources, pop_env
from k8s.kinds.pods.labels import ArenaChart, pod_metadata, pop_job_metadata, pop_pod_metadata
from k8s.kinds.pods.placement import add_placement, pop_placement
from k8s.kinds.pods.resources import add_resources, pop_resources
from k8s.kinds.pods.volumes import add_volumes, pop_volumes
from k8s.models.resources import Resource

if TYPE_CHECKING:
    from k8s.job_spec import JobSpec

# Resource of pods that are placed by the links between GPUs.
TOPOLOGY_RESOURCE = "aliyun.com/gpu"
_POD_DEFAULTS: Manifest = {
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "securityContext": {},
    "terminationGracePeriodSeconds": 30,
}
# Filled in by servers. Source: kubernetes `pkg/apis/core/v1/defaults.go`.
_CONTAINER_DEFAULTS: Manifest = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
_RESOURCE_FIELDS = ("gpus", "devices", "device_claim")


@dataclass(frozen=True, slots=True, kw_only=True)
class PodShape:
    """Properties that all pods of a kind have."""

    container: str
    app: str
    chart: ArenaChart | None = None
    """None for a kind that Arena does not have."""


def pod_template(spec: JobSpec, shape: PodShape, *, env: Env = (), job: JobSpec | None = None) -> Manifest:
    """Return the template of a pod that runs `spec`, with the kind's variables `env`.

    `job` is the full job if this pod runs only a part of it, such as a launcher.
    """
    pod_spec = placed_by_topology(spec) if spec.gpu_topology else spec
    container: Manifest = {"name": shape.container, "image": spec.image}
    if spec.pull_policy:
        container["imagePullPolicy"] = spec.pull_policy
    if command := command_of(spec):
        container["command"] = command
    if spec.working_dir:
        container["workingDir"] = spec.working_dir
    container["env"] = env_entries(pod_spec, env)
    if sources := env_sources(spec):
        container["envFrom"] = sources
    pod: Manifest = {"containers": [container]}
    add_resources(pod, container, pod_spec)
    add_volumes(pod, container, pod_spec)
    add_placement(pod, pod_spec)
    add_code(pod, container, pod_spec)
    meta = pod_metadata(job or spec, shape.app, shape.chart)
    return {"metadata": meta, "spec": pod} if meta else {"spec": pod}


def job_object(resource: Resource, metadata: Manifest, body: Manifest) -> Manifest:
    """Return a job's object."""
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": body}


def placed_by_topology(spec: JobSpec) -> JobSpec:
    """Return the spec of pods with GPU topology: as in Arena, without a memory volume."""
    return replace(spec, gpu_resource=TOPOLOGY_RESOURCE, host_network=True, shared_memory="")


def restarts(spec: JobSpec) -> str:
    """Return the restart policy of a role."""
    return spec.restart_policy or ("OnFailure" if spec.retries else "Never")


def pop_template(template: Manifest, container: str, job: Mapping[str, Any], *, env: Env = ()) -> ParsedPart:
    """Remove from a pod template what a spec can express, and return it.

    Args:
        template: Modified.
        container: Name of the kind's training container; the first container if none has it.
        job: Fields read from the job's metadata.
        env: Variables that the kind adds.
    """
    meta, pod = template.pop("metadata", None) or {}, template.pop("spec", None) or {}
    containers = pod.pop("containers", None) or [{}]
    main = next((each for each in containers if each.get("name") == container), containers[0])
    sidecars = len(containers) - 1
    drop_defaults(pod, _POD_DEFAULTS)
    drop_defaults(main, _CONTAINER_DEFAULTS)
    code = parse_code(pod, main, str(job["name"]), str(job["trainer"]))
    parts = [
        pop_pod_metadata(meta, job),
        pop_resources(pod, main),
        pop_volumes(pod, main),
        pop_placement(pod),
        _parse_container(main, container),
    ]
    fields = {name: value for part in parts for name, value in part.fields.items()}
    known = job_specs.JobSpec(
        trainer=str(job["trainer"]),
        debuggable=code["debuggable"],
        **{name: fields[name] for name in _RESOURCE_FIELDS},
    )
    parts.append(pop_env(main, known, env))
    fields |= parts[-1].fields
    fields |= {**code, "env": {**code.get("env", {}), **fields["env"]}}
    if fields["gpu_topology"]:
        fields |= _of_topology(fields)
    lost = named(template) + [name for part in parts for name in part.lost]
    if sidecars:
        lost.append(f"{sidecars} sidecar{'s' if sidecars > 1 else ''}")
    return ParsedPart(fields, lost + named(pod) + named(main))


def pop_job(obj: Manifest) -> tuple[ParsedPart, Manifest]:
    """Return the fields of a job's metadata, and a copy of its `spec`."""
    obj = deepcopy(obj)
    meta = pop_job_metadata(obj.pop("metadata", None) or {})
    spec = obj.pop("spec", None) or {}
    return ParsedPart(meta.fields, named(obj, "apiVersion", "kind", "status") + meta.lost), spec


def unique(lost: Iterable[str]) -> tuple[str, ...]:
    """Return the names without duplicates."""
    return tuple(dict.fromkeys(lost))


def _parse_container(main: Manifest, container: str) -> ParsedPart:
    image = text_of(main.pop("image", ""))
    drop_defaults(main, {"imagePullPolicy": default_pull_policy(image)})
    lost = []
    if main.pop("name", container) != container:
        lost.append("name of the container")
    command = [str(word) for word in main.pop("command", None) or ()]
    if command:
        command += [str(word) for word in main.pop("args", None) or ()]
    elif not main.get("args"):
        lost.append("command of the image")
    fields = {
        "image": image,
        "pull_policy": text_of(main.pop("imagePullPolicy", "")),
        "working_dir": text_of(main.pop("workingDir", "")),
        **fields_of_command(command),
    }
    return ParsedPart(fields, lost)


def _of_topology(fields: Mapping[str, Any]) -> dict[str, Any]:
    # GPU topology implies these fields.
    found: dict[str, Any] = {"host_network": False}
    if fields["gpu_resource"] == TOPOLOGY_RESOURCE:
        found["gpu_resource"] = "nvidia.com/gpu"
    if not fields["shared_memory"]:
        found["shared_memory"] = "2Gi"
    return found


class ParsedRole(NamedTuple):
    """Role as read from an object."""

    name: str
    replicas: int | None
    """None if the kind implies the number."""
    fields: dict[str, Any]


def fields_of_roles(parsed: Sequence[ParsedRole], *, is_elastic: bool = False) -> ParsedPart:
    """Return the fields of the first role, with all roles and their differences as `roles`.

    Elastic jobs have no roles: there differences are lost.
    """
    first = dict(parsed[0].fields)
    devices = [each.fields["gpu_resource"] for each in parsed if each.fields["gpus"]]
    first["gpu_resource"] = devices[0] if devices else first["gpu_resource"]
    roles, lost = [], []
    # Fields of a spec that a role may override.
    differing = {each.name for each in fields(job_specs.Role)} - {"name", "replicas"}
    first = _with_defaults(first, parsed)
    for name, replicas, own_fields in parsed:
        of_role = _with_defaults(own_fields, parsed)
        other = {key for key, value in of_role.items() if value != first[key]}
        if not of_role["gpus"]:
            other.discard("gpu_resource")
        own = set() if is_elastic else other & differing
        roles.append(job_specs.Role(name, replicas, **{key: of_role[key] for key in own}))
        lost += [f"{name}'s own {key.replace('_', ' ')}" for key in of_role if key in other - own]
    first |= {"worker_image": "", "roles": () if is_elastic else tuple(roles)}
    return ParsedPart(first, lost)


def _with_defaults(role_fields: Mapping[str, Any], parsed: Sequence[ParsedRole]) -> dict[str, Any]:
    # Roles may have different fields: the others get their defaults.
    return {key: job_specs.JOB_FIELDS[key].default for each in parsed for key in each.fields} | dict(
        role_fields
    )


def with_worker_image(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields; a worker role that only has an image of its own becomes `worker_image`."""
    last = fields["roles"][-1] if fields["roles"] else None
    if (
        last is None
        or last.image is None
        or last != job_specs.Role("worker", last.replicas, image=last.image)
    ):
        return fields
    others = tuple(role for role in fields["roles"][:-1] if role != job_specs.Role(role.name, role.replicas))
    return {**fields, "roles": others, "worker_image": last.image}
