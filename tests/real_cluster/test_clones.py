"""Clones on a real API server: what it stores is read back, and it takes what is made of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from k8s.client.client import Client
from k8s.jobs.clone import clone
from k8s.jobs.create import create_job, create_manifest
from k8s.kinds import CreatableKind
from k8s.kinds.job_spec import JobSpec
from tests.real_cluster.test_assumptions import every_served_kind

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


@every_served_kind
async def test_a_stored_job_is_read_back_and_cloned(admin: Client, kind: CreatableKind) -> None:
    namespace = admin.config.namespace
    spec = JobSpec(
        name="bert",
        namespace=namespace,
        image="busybox:1",
        gpus=1,
        workers=2,
        command=("sh", "-c", "sleep 1"),
        env={"LR": "1e-4"},
        cpu="100m",
        labels={"team": "x"},
        retries=2,
        clean_pods="Running",  # of an MPIJob no more is kept
        user="li",
    )
    stored = await create_job(admin, kind, kind.supported(spec))
    obj = await admin.get(kind.resource, stored.name, namespace)
    found = clone(obj, {"bert"}, user="li")
    if kind.title == "Job" and "completionMode" not in obj["spec"]:  # an old server drops it in silence
        assert "spec.completionMode differ" in found.why_yaml
    else:
        assert (found.spec, found.lost) == (replace(kind.supported(spec), name="bert-2"), ())
    again = await create_manifest(admin, found.resource, found.manifest, namespace)
    assert again.name == "bert-2"
