"""From a job's object back to the spec that makes one like it; what a spec cannot say is named.

The inverse of `k8s.kinds.to_manifest`. What is understood is taken out of a copy of the object, so
that whatever is left, known here or not, is found and gets a name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from k8s.job_spec import JobSpec
from k8s.kinds.base import Manifest
from k8s.kinds.code_from_manifest import take_code
from k8s.kinds.parse import text_of
from k8s.kinds.pods.command import fields_of_command
from k8s.kinds.pods.env import Env, take_env
from k8s.kinds.pods.labels import take_pod_metadata
from k8s.kinds.pods.placement import take_placement
from k8s.kinds.pods.resources import take_resources
from k8s.kinds.pods.understood import Understood, drop_defaults, named
from k8s.kinds.pods.volumes import take_volumes
from k8s.kinds.to_manifest import TOPOLOGY_RESOURCE

_POD_DEFAULTS: Manifest = {
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "securityContext": {},
    "terminationGracePeriodSeconds": 30,
}
_CONTAINER_DEFAULTS: Manifest = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
"""What servers fill in, here and in pods. Source: kubernetes `pkg/apis/core/v1/defaults.go`."""
_RESOURCE_FIELDS = ("gpus", "devices", "device_claim")


def take_template(template: Manifest, container: str, job: Mapping[str, Any], *, env: Env = ()) -> Understood:
    """Take out of a pod template what a spec can say.

    Args:
        template: It is taken apart.
        container: How the kind calls the training container; where none is called so the first is meant.
        job: What the metadata of the job says.
        env: Variables of the kind's own.
    """
    meta, pod = template.pop("metadata", None) or {}, template.pop("spec", None) or {}
    containers = pod.pop("containers", None) or [{}]
    main = next((each for each in containers if each.get("name") == container), containers[0])
    sidecars = len(containers) - 1
    drop_defaults(pod, _POD_DEFAULTS)
    drop_defaults(main, _CONTAINER_DEFAULTS)
    code = take_code(pod, main, str(job["name"]), str(job["trainer"]))
    parts = [
        take_pod_metadata(meta, job),
        take_resources(pod, main),
        take_volumes(pod, main),
        take_placement(pod),
        _take_container(main, container),
    ]
    fields = {name: value for part in parts for name, value in part.fields.items()}
    known = JobSpec(trainer=str(job["trainer"]), **{name: fields[name] for name in _RESOURCE_FIELDS})
    parts.append(take_env(main, known, env))
    fields |= parts[-1].fields
    fields |= {**code, "env": {**code.get("env", {}), **fields["env"]}}
    if fields["gpu_topology"]:
        fields |= _of_topology(fields)
    lost = named(template) + [name for part in parts for name in part.lost]
    if sidecars:
        lost.append(f"{sidecars} sidecar{'s' if sidecars > 1 else ''}")
    return Understood(fields, lost + named(pod) + named(main))


def unique(lost: Iterable[str]) -> tuple[str, ...]:
    """Return each name once."""
    return tuple(dict.fromkeys(lost))


def _take_container(main: Manifest, container: str) -> Understood:
    image = text_of(main.pop("image", ""))
    is_floating = ":" not in image.rpartition("/")[2] or image.endswith(":latest")
    drop_defaults(main, {"imagePullPolicy": "Always" if is_floating else "IfNotPresent"})
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
    return Understood(fields, lost)


def _of_topology(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that a job with GPU topology says by that alone."""
    found: dict[str, Any] = {"host_network": False}
    if fields["gpu_resource"] == TOPOLOGY_RESOURCE:
        found["gpu_resource"] = "nvidia.com/gpu"
    if not fields["shared_memory"]:
        found["shared_memory"] = "2Gi"
    return found
