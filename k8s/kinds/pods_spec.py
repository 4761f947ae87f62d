"""Facts about a job's pods, from a manifest that anybody wrote, as far as checks need them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from k8s.kinds.base import CreatableKind, Manifest, Replica
from k8s.kinds.job_spec import LAUNCHER, EnvSource, HostMount, JobSpec, Mount
from k8s.kinds.parse import nested, text_of
from k8s.kinds.pod_labels import POD_GROUP, QUEUE_LABEL, without_arena
from k8s.models.accelerators import is_accelerator

_REFERENCES = {"secretKeyRef": True, "secretRef": True, "configMapKeyRef": False, "configMapRef": False}
Part = Mapping[str, Any]


def spec_of_pods(kind: CreatableKind, obj: Manifest) -> JobSpec:
    """Return a spec with the command of the first pod that a manifest requests, and what the last one needs.

    Raises:
        AttributeError, IndexError, KeyError, TypeError, ValueError: The manifest has fields of wrong types.
    """
    job = kind.parse(obj)
    pods = [each for each in job.replicas if each.role != LAUNCHER]
    chief, last = job.replicas[0], (pods or job.replicas)[-1]
    pod, main = nested(last.template, "spec"), _container(kind, last)
    limits, requests = (nested(main, "resources", part) for part in ("limits", "requests"))
    devices = [*filter(is_accelerator, {**requests, **limits})]
    resource = devices[0] if devices else "nvidia.com/gpu"
    first = _container(kind, chief)
    policy = nested(obj, "spec", "runPolicy", "schedulingPolicy")
    volumes = {text_of(each.get("name")): each for each in pod.get("volumes") or ()}
    mounts = [*_mounts(main, volumes)]
    return JobSpec(
        name=job.ref.name,
        namespace=job.ref.namespace,
        labels=without_arena(dict(nested(obj, "metadata", "labels")), job.ref.name),
        user=job.user,
        trainer=job.trainer,
        log_dir=job.log_dir,
        suspend=job.is_suspended,
        queue=job.meta.label(QUEUE_LABEL),
        gang=bool(policy.get("minAvailable") or nested(last.template, "metadata", "labels").get(POD_GROUP)),
        workers=max(1, len(pods)),
        processes=max(1, len(last.ranks)),
        elastic=None if job.min_instances is None else (job.min_instances, max(1, len(pods))),
        image=text_of(first.get("image")),
        worker_image=text_of(main.get("image")),
        command=tuple(str(word) for key in ("command", "args") for word in first.get(key) or ()),
        gpus=max(_amount(_container(kind, each), resource) for each in job.replicas),
        gpu_resource=resource,
        cpu=_request_and_limit(main, "cpu"),
        memory=_request_and_limit(main, "memory"),
        mounts=tuple(each for each in mounts if isinstance(each, Mount)),
        host_mounts=tuple(each for each in mounts if isinstance(each, HostMount)),
        env_from=tuple(_sources(first)),
        pull_secrets=tuple(text_of(each.get("name")) for each in pod.get("imagePullSecrets") or ()),
        priority_class=text_of(pod.get("priorityClassName")),
        scheduler=text_of(pod.get("schedulerName")),
        host_namespaces=("network",) if pod.get("hostNetwork") is True else (),
    )


def _container(kind: CreatableKind, replica: Replica) -> Part:
    found: list[Part] = nested(replica.template, "spec").get("containers") or [{}]
    return next((each for each in found if each.get("name") == kind.container), found[0])


def _amount(container: Part, resource: str) -> int:
    amounts = {**nested(container, "resources", "requests"), **nested(container, "resources", "limits")}
    text = str(amounts.get(resource, ""))
    return int(text) if text.isdecimal() else 0


def _request_and_limit(container: Part, resource: str) -> str:
    request, limit = (
        str(nested(container, "resources", part).get(resource) or "") for part in ("requests", "limits")
    )
    return f"{request}-{limit}" if request and request != limit else limit


def _mounts(container: Part, volumes: Mapping[str, Part]) -> Iterator[Mount | HostMount]:
    for each in container.get("volumeMounts") or ():
        volume, path = volumes.get(text_of(each.get("name")), {}), text_of(each.get("mountPath"))
        if claim := text_of(nested(volume, "persistentVolumeClaim").get("claimName")):
            yield Mount(claim, path, text_of(each.get("subPath")), each.get("readOnly") is True)
        elif folder := text_of(nested(volume, "hostPath").get("path")):
            yield HostMount(folder, path)


def _sources(container: Part) -> Iterator[EnvSource]:
    for variable, origin in [
        *((text_of(each.get("name")), each.get("valueFrom") or {}) for each in container.get("env") or ()),
        *(("", each) for each in container.get("envFrom") or ()),
    ]:
        for field, is_secret in _REFERENCES.items():
            source = nested(origin, field)
            if source.get("name") and source.get("optional") is not True:
                yield EnvSource(is_secret, str(source["name"]), text_of(source.get("key")), variable)
