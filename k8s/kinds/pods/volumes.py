"""Volumes of a job's pods: claims, folders of the node, shared memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from k8s import job_spec as job_specs
from k8s.kinds.base import Manifest
from k8s.kinds.parse import ParsedPart, drop_defaults, named, text_of

if TYPE_CHECKING:
    from k8s.job_spec import JobSpec

_SHARED_MEMORY = "/dev/shm"


def add_volumes(pod: Manifest, container: Manifest, spec: JobSpec) -> None:
    """Add the volumes to a pod, and their mounts to its container."""
    # One volume per mount: a TrainJob's patches identify mounts by the volume's name.
    mounts: list[Manifest] = []
    volumes: list[Manifest] = []
    for index, mount in enumerate(spec.mounts):
        name = f"claim-{index}"
        mounts.append({"name": name, "mountPath": mount.path})
        if mount.sub_path:
            mounts[-1]["subPath"] = mount.sub_path
        if mount.is_read_only:
            mounts[-1]["readOnly"] = True
        volumes.append({"name": name, "persistentVolumeClaim": {"claimName": mount.claim}})
    for index, host in enumerate(spec.host_mounts):
        name = f"host-{index}"
        mounts.append({"name": name, "mountPath": host.path})
        volumes.append({"name": name, "hostPath": {"path": host.host_path}})
    if spec.shared_memory:
        mounts.append({"name": "dshm", "mountPath": _SHARED_MEMORY})
        volumes.append({"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": spec.shared_memory}})
    if mounts:
        container["volumeMounts"] = mounts
        pod["volumes"] = volumes


def pop_volumes(pod: Manifest, container: Manifest) -> ParsedPart:
    """Remove the claims, the node's folders, and the shared memory."""
    volumes = {text_of(each.get("name")): each for each in pod.pop("volumes", None) or ()}
    fields: dict[str, Any] = {"mounts": (), "host_mounts": (), "shared_memory": ""}
    taken = set()
    lost = []
    for mount in container.pop("volumeMounts", None) or ():
        name, path = text_of(mount.pop("name", "")), text_of(mount.pop("mountPath", ""))
        volume = dict(volumes.get(name, {}))
        volume.pop("name", None)
        drop_defaults(mount, {"readOnly": False})
        claim, folder, host = (
            volume.get(key) or {} for key in ("persistentVolumeClaim", "emptyDir", "hostPath")
        )
        if claim:
            folder_in_claim = text_of(mount.pop("subPath", ""))
            is_read_only = mount.pop("readOnly", False) is True
            fields["mounts"] += (
                job_specs.Mount(text_of(claim.get("claimName")), path, folder_in_claim, is_read_only),
            )
            extras = named(volume, "persistentVolumeClaim") + named(claim, "claimName")
        elif text_of(host.get("path")) and not host.get("type"):
            fields["host_mounts"] += (job_specs.HostMount(host["path"], path),)
            extras = named(volume, "hostPath") + named(host, "path")
        elif path == _SHARED_MEMORY and folder.get("medium") == "Memory" and folder.get("sizeLimit"):
            fields["shared_memory"] = str(folder["sizeLimit"])
            extras = named(volume, "emptyDir") + named(folder, "medium", "sizeLimit")
        else:
            lost += [] if volume else [f"mount {path}"]
            continue
        taken.add(name)
        lost += [f"{each} of the mount {path}" for each in extras + named(mount)]
    lost += [f"volume {name}" for name in volumes if name not in taken]
    return ParsedPart(fields, lost)
