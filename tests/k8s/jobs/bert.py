"""A job with everything that may come along with one, and what is then created."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from k8s.kinds.job_spec import ConfigFile, JobFiles, JobSpec, Mount
from k8s.kinds.kubeflow.pytorch_job import PyTorchJob
from tests import ROOT

KIND = PyTorchJob()
SPEC = JobSpec(
    name="bert",
    namespace="vision",
    image="pytorch:1",
    command=("python", "train.py"),
    sync_mode="folder",
    sync_source="/home/li/bert",
    config_files=(ConfigFile("a.yaml", "/etc/a/conf.yaml"), ConfigFile("b.yaml", "/etc/b/conf.yaml")),
    trainer="ddp",
    mounts=(Mount("data", "/data"), Mount("logs", "/data/logs", "team"), Mount("more", "/database")),
    log_dir="/data/logs/bert",
    tensorboard=True,
)
FILES = JobFiles(
    code=b"\x1f\x8btar",
    config_files={"a.yaml": b"a: 1\n", "b.yaml": b"\xff\xfe"},
    trainer={"trainer/__init__.py": b"", "trainer/ranks.py": b"x = 1\n"},
)
FIRST = ["configmaps/bert-code", "configmaps/bert-files", "configmaps/bert-trainer"]
JOB = "pytorchjobs/bert"
AFTER = ["configmaps/bert-pytorchjob", "deployments/bert-tensorboard", "services/bert-tensorboard"]
ALL = [*FIRST, JOB, *AFTER]
CODE_PATH = "/api/v1/namespaces/vision/configmaps/bert-code"
GIT = replace(
    SPEC,
    sync_mode="git",
    sync_source="https://host.example/team/code.git",
    config_files=(),
    trainer="",
    tensorboard=False,
    env={"GIT_SYNC_USERNAME": "li", "GIT_SYNC_PASSWORD": "s3cr3t-pw", "LR": "1"},
)


def arena_object(name: str) -> Any:
    """Return an object that Arena 0.15.2 created on a real cluster."""
    return json.loads((ROOT / "tests" / "fixtures" / "arena" / f"{name}.json").read_text())
