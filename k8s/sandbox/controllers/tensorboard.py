"""The TensorBoard that a job of TensorStack asks for in `tensorboardSpec`: a Deployment and a Service. Pure.

On T9k a controller of its own makes them from an object of the kind TensorBoard. Here they are labelled
as Arena labels its own, so that whoever looks for a job's TensorBoard finds them.
"""

from __future__ import annotations

from collections.abc import Sequence

from k8s.models.resources import DEPLOYMENTS, SERVICES, Resource
from k8s.sandbox.controller_runtime import Manifest
from k8s.sandbox.controllers.reconcile import owner_reference

PORT = 6006
FILESET = "t9k://pvc/"
_ROOT = "/t9k/logs"


def objects_for(job: Manifest, kind: Resource) -> list[tuple[Resource, Manifest]]:
    """Return the Deployment and the Service that a job's TensorBoard needs; none when it asks for none."""
    asked = (job.get("spec") or {}).get("tensorboardSpec") or {}
    folders = _folders(asked)
    if not folders:
        return []
    labels = {"role": "tensorboard", "release": str(job["metadata"]["name"])}
    claims = list(dict.fromkeys(claim for claim, _ in folders))
    volumes = {claim: f"logs-{number}" for number, claim in enumerate(claims)}
    container = {
        "name": "tensorboard",
        "image": asked.get("image") or "tensorflow/tensorflow",
        "command": ["tensorboard", *_log_dirs(folders), "--host", "0.0.0.0"],
        "ports": [{"containerPort": PORT}],
        "resources": asked.get("resources") or {},
        "volumeMounts": [
            {"name": volume, "mountPath": f"{_ROOT}/{claim}"} for claim, volume in volumes.items()
        ],
    }
    pod_spec = {
        "containers": [container],
        "volumes": [
            {"name": volume, "persistentVolumeClaim": {"claimName": claim}}
            for claim, volume in volumes.items()
        ],
    }
    deployment = {
        "replicas": 1,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod_spec},
    }
    service = {"selector": labels, "ports": [{"name": "tensorboard", "port": PORT}]}
    return [
        (each, _owned(job, kind, each, labels, spec))
        for each, spec in ((DEPLOYMENTS, deployment), (SERVICES, service))
    ]


def status_of(deployments: Sequence[Manifest], wanted: Manifest) -> Manifest:
    """Return what a job's status says of its TensorBoard."""
    name = wanted["metadata"]["name"]
    found = next((each for each in deployments if each["metadata"]["name"] == name), {})
    is_ready = bool((found.get("status") or {}).get("availableReplicas"))
    dependent = {field: wanted[field] for field in ("apiVersion", "kind")}
    dependent |= {field: wanted["metadata"][field] for field in ("name", "namespace")}
    note = "" if is_ready else "its pod is not running"
    return {"action": "NOP", "dependent": dependent, "note": note, "ready": is_ready, "type": "Normal"}


def _folders(asked: Manifest) -> list[tuple[str, str]]:
    """Return claim and path of each folder with event files, in either form of the manuals."""
    found = [
        (str(claim["name"]), str(path))
        for claim in (asked.get("logDir") or {}).get("pvc") or ()
        for path in claim.get("subPath") or ("",)
    ]
    for address in asked.get("trainingLogFilesets") or ():
        claim, _, path = str(address).removeprefix(FILESET).partition("/")
        found.append((claim, path))
    return [(claim, path.removeprefix("./").strip("/")) for claim, path in found if claim]


def _log_dirs(folders: Sequence[tuple[str, str]]) -> list[str]:
    paths = ["/".join(filter(None, (_ROOT, claim, path))) for claim, path in folders]
    if len(paths) == 1:
        return ["--logdir", paths[0]]
    named = [f"{path.removeprefix(_ROOT + '/')}:{path}" for path in paths]
    return ["--logdir_spec", ",".join(named)]


def _owned(job: Manifest, kind: Resource, resource: Resource, labels: Manifest, spec: Manifest) -> Manifest:
    meta = {
        "name": f"{job['metadata']['name']}-tensorboard",
        "namespace": job["metadata"]["namespace"],
        "labels": dict(labels),
        "ownerReferences": [owner_reference(kind, job)],
    }
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta, "spec": spec}
