"""A job whose event files are on this machine."""

from __future__ import annotations

from pathlib import Path

from k8s.job_spec import LOG_DIR_ANNOTATION
from k8s.jobs.pod_files import LOCAL_PATH
from tests.scripted.server import Answer, ScriptedCluster
from tests.support.objects import Object, pytorch_job
from trainer.tfevents import EventWriter

JOBS = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
CLAIM = "/api/v1/namespaces/default/persistentvolumeclaims/workspace"


def job_with_event_files(name: str) -> Object:
    """Return a job that writes event files to /w/logs, on the volume claim `workspace`."""
    job = pytorch_job(name, gpus=1, annotations={LOG_DIR_ANNOTATION: "/w/logs"})
    pod = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
    pod["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "workspace"}}]
    pod["containers"][0]["volumeMounts"] = [{"name": "v", "mountPath": "/w"}]
    return job


def serve_event_files(cluster: ScriptedCluster, job: Object, folder: Path) -> None:
    """Serve a job and the claim `workspace`, which is `folder` on this machine."""
    claim = {"metadata": {"name": "workspace", "annotations": {LOCAL_PATH: str(folder)}}}
    cluster.say(f"{JOBS}/{job['metadata']['name']}", Answer(job))
    cluster.say(CLAIM, Answer(claim))


def write_losses(folder: Path, steps: int) -> None:
    """Write so many values of train/loss, which fall from 1000."""
    with EventWriter(folder, flush_s=0) as writer:
        for step in range(steps):
            writer.write_scalar("train/loss", step, 1000.0 - step)
