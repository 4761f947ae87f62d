"""Bundles and clones on a real API server: what it stores is read back, and it takes what is made of it."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
import yaml

from k8s.client.client import Client
from k8s.job_spec import JobSpec
from k8s.jobs.clone import clone
from k8s.jobs.create import create_manifest
from k8s.kinds import CreatableKind
from k8s.models.resources import JOBS
from tests.real_cluster import operator_objects
from tests.real_cluster.feed import feed_of, job_called
from tests.real_cluster.test_assumptions import every_served_kind
from tui.files.support_bundle import make_bundle

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
KEY = "hunter2-0123456789"


async def test_a_jobs_bundle_holds_its_log_and_not_its_secret(admin: Client, tmp_path: Path) -> None:
    namespace = admin.config.namespace
    template = operator_objects.template("main", 1)
    container = template["spec"]["containers"][0]
    container["env"] = [{"name": "DB_PASSWORD", "value": KEY}]
    container["command"] = ["sh", "-c", "echo login with $DB_PASSWORD; echo loss=0.5"]
    await operator_objects.make(admin, JOBS, "train", {"template": template, "backoffLimit": 0})
    async with feed_of(admin, namespace) as feed:
        snapshot = await feed.until(
            lambda now: (job := job_called(now, "Job", "train")) is not None and job.status.is_final
        )
        job = job_called(snapshot, "Job", "train")
        assert job is not None
        bundle = await make_bundle(admin, snapshot, job, tmp_path / "train.tar.gz", tail=10)
    with tarfile.open(bundle.path) as tar:
        files = {each.name.partition("/")[2]: tar.extractfile(each) for each in tar}
        texts = {name: file.read().decode() for name, file in files.items() if file is not None}
    assert KEY not in "".join(texts.values())
    (log,) = (text for name, text in texts.items() if name.startswith("logs/"))
    assert log.count("login with <redacted env DB_PASSWORD>") == 1
    assert "loss=0.5" in log
    assert yaml.safe_load(texts["job.yaml"])["metadata"]["name"] == "train"
    kinds = {
        each["kind"] for name in ("pods", "events") for each in yaml.safe_load_all(texts[f"{name}.yaml"])
    }
    assert kinds == {"Pod", "Event"}
    assert "real-node-0" in texts["nodes.json"]
    assert "server: v1.20" in texts["versions.txt"]
    assert bundle.problems == ()


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
    stored = await create_manifest(admin, kind.resource, kind.manifest(spec), namespace)
    obj = await admin.get(kind.resource, stored.name, namespace)
    found = clone(obj, {"bert"}, user="li")
    assert found.spec is not None
    # Servers as old as this one know no completion modes, and drop them in silence.
    assert set(found.lost) <= {"completionMode"}
    assert found.spec.name == "bert-2"
    assert kind.spec_from_manifest(obj)[0] == kind.supported(spec)
    again = await create_manifest(admin, found.resource, found.manifest, namespace)
    assert again.name == "bert-2"
