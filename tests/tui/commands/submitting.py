"""Words for `submit` in tests of the command line, and what they make."""

from __future__ import annotations

import json
from typing import Any

import yaml

from tests.scripted.server import Answer, Asked, Reply
from tests.tui.commands.conftest import CommandLine

PYTORCH_JOBS = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
BATCH_JOBS = "/apis/batch/v1/namespaces/default/jobs"


def echo(asked: Asked) -> Reply:
    return Answer(json.loads(asked.body), 201)


async def manifest_of(run: CommandLine, *words: str) -> Any:
    ended = await run("submit", *words)
    assert ended.status == 0, ended.err
    return job_in(ended.out)


def job_in(text: str) -> Any:
    """Return the job among the objects that were printed."""
    (job,) = [each for each in yaml.safe_load_all(text) if each["kind"].endswith("Job")]
    return job


AS_MANIFEST = ("--dry-run", "client", "-o", "yaml")
SMALL = ("pytorch", "--name", "demo", "--image", "x", *AS_MANIFEST)
