"""Facts about the pods of a manifest, of jobs made here and by others."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from k8s.job_spec import EnvSource, HostMount, Mount, Role
from k8s.kinds import CREATABLE, CreatableKind
from k8s.kinds.pods_spec import spec_of_pods
from tests.k8s.kinds.example_fields import BASE
from tests.k8s.kinds.operator_objects import SITUATIONS, kind_named, objects

FULL = replace(
    BASE,
    workers=3,
    cpu="8",
    cpu_request="4",
    memory="16Gi",
    mounts=(Mount("data", "/data", "imagenet", True),),
    host_mounts=(HostMount("/nvme", "/cache"),),
    env_from=(EnvSource(True, "wandb", "key", "WANDB_API_KEY"), EnvSource(False, "settings")),
    pull_secrets=("registry",),
    priority_class="high",
    scheduler="volcano",
    host_network=True,
    gang=True,
    labels={"team": "vision"},
    user="li",
    log_dir="/data/logs",
)
SAME = (
    *("name", "namespace", "image", "workers", "gpus", "gpu_resource", "mounts", "host_mounts", "env_from"),
    *("pull_secrets", "priority_class", "scheduler", "host_network", "gang"),
    *("cpu", "cpu_request", "memory", "labels", "user", "log_dir", "queue", "suspend"),
)


@pytest.mark.parametrize("kind", CREATABLE, ids=lambda kind: kind.title)
def test_the_spec_of_pods_has_the_fields_that_checks_need(kind: CreatableKind) -> None:
    spec = kind.supported(replace(FULL, mounts_on_launcher=True))
    if kind.word == "trainjob":  # which has single keys only
        spec = replace(spec, env_from=spec.env_from[:1])
    found = spec_of_pods(kind, json.loads(json.dumps(kind.manifest(spec))))
    assert {name: getattr(found, name) for name in SAME} == {name: getattr(spec, name) for name in SAME}


def test_gpus_are_those_of_the_largest_pod() -> None:
    for role in ("master", "worker"):
        spec = replace(BASE, gpus=0, roles=(Role(role, gpus=8),))
        assert spec_of_pods(CREATABLE[0], CREATABLE[0].manifest(spec)).gpus == 8


def test_the_pods_of_other_peoples_jobs_are_read() -> None:
    read = 0
    for situation in SITUATIONS:
        obj = objects(situation)[0]
        kind = next((each for each in CREATABLE if each is kind_named(obj)), None)
        if kind is not None:
            read += spec_of_pods(kind, obj).workers
    assert read > 5
