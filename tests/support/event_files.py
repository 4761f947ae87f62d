"""Files of runs: event files of a job on this machine, and W&B's protobuf records in a LevelDB log."""

from __future__ import annotations

import json
import struct
import zlib
from array import array
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from k8s.jobs.pod_files import LOCAL_PATH
from k8s.kinds.job_spec import LOG_DIR_ANNOTATION
from tests.scripted.server import Answer, ScriptedCluster
from tests.support.objects import Object, pytorch_job
from trainer.tfevents import EventWriter, ScalarCurve
from trainer.tfevents.writer import message, varint

JOBS = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
CLAIM = "/api/v1/namespaces/default/persistentvolumeclaims/workspace"
T0 = 1.79e9


def curve(
    tag: str, values: Sequence[float], *, first: int = 0, run: str = ".", at: float = T0
) -> ScalarCurve:
    """Return a curve of one point a second."""
    steps = array("q", range(first, first + len(values)))
    times = array("d", [at + step for step in steps])
    return ScalarCurve(run, tag, "w", steps, times, array("d", values), ())


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


_BLOCK, _HEADER = 32_768, 7


def wandb_file(records: Iterable[bytes]) -> bytes:
    written = bytearray(b":W&B\xe1\xbe\x00")
    for record in records:
        left, is_first = record, True
        while left or is_first:
            room = _BLOCK - len(written) % _BLOCK
            if room < _HEADER:
                written += bytes(room)
                continue
            piece, left = left[: room - _HEADER], left[room - _HEADER :]
            kind = bytes([(1 if is_first else 4) if not left else (2 if is_first else 3)])
            written += struct.pack("<IH", zlib.crc32(kind + piece), len(piece)) + kind + piece
            is_first = False
    return bytes(written)


def history(values: Mapping[str, object], step: int | None = None) -> bytes:
    """Encode what one call of `log` wrote; a name with dots is a nested one."""
    content = b"".join(message(1, _item(name, value)) for name, value in values.items())
    if step is not None:
        content += message(2, b"\x08" + varint(step))
    return b"\x08\x07" + message(2, content)


def config(values: Mapping[str, object]) -> bytes:
    return message(5, b"".join(message(1, _item(name, value)) for name, value in values.items()))


def _item(name: str, value: object) -> bytes:
    parts = name.split(".")
    named = message(1, name.encode()) if len(parts) == 1 else b"".join(message(2, x.encode()) for x in parts)
    text = json.dumps(value).encode()
    return named + b"\x82\x01" + varint(len(text)) + text
