"""All of a job or nothing, each once, on a real API server: refused in the middle, and with answers lost."""

from __future__ import annotations

import asyncio
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from k8s.client.client import Client
from k8s.jobs.create import JobRejected, create_job, job_objects
from k8s.kinds import CreatableKind
from k8s.kinds.job_spec import JobFiles, JobSpec, Mount, NewClaim
from k8s.kinds.kubeflow.pytorch_job import PyTorchJob
from k8s.models.resources import CLAIMS, QUOTAS
from k8s.text.errors import Forbidden
from tests.scripted.server import Answer, Asked, Compute, Drop, Reply, ScriptedCluster
from tests.support.real_cluster import BUSYBOX, SERVED, made_objects, make_quota

pytestmark = pytest.mark.cluster

WAIT_S = 180.0
KIND = PyTorchJob()
FILES = JobFiles(code=b"\x1f\x8btar")


def spec_in(client: Client) -> JobSpec:
    """Return a job with something to create before it and after it."""
    return JobSpec(
        name="bert",
        namespace=client.config.namespace,
        image=BUSYBOX["image"],
        command=("true",),
        workers=2,
        sync_mode="folder",
        sync_source=".",
        mounts=(Mount("events", "/events"),),
        log_dir="/events",
        tensorboard=True,
        new_claims=(NewClaim("scratch", "1Mi"),),
        suspend=True,
    )


def expected(kind: CreatableKind, spec: JobSpec) -> set[str]:
    objects = job_objects(kind, spec, FILES)
    return {f"{resource.plural}/{manifest['metadata']['name']}" for resource, manifest in objects}


async def nothing_is_left(client: Client) -> None:
    """Fail unless all is gone; a claim takes a moment, for a controller looks whether a pod has it."""
    async with asyncio.timeout(WAIT_S):
        while left := await made_objects(client):
            assert left == {"persistentvolumeclaims/scratch"}
            await asyncio.sleep(0.05)


async def refuse(client: Client, what: str) -> None:
    await make_quota(client, "none", {f"count/{what}": "0"})


@pytest.mark.parametrize(
    ("kind", "refused"),
    [
        (KIND, "services"),
        (KIND, "deployments.apps"),
        (KIND, "pytorchjobs.kubeflow.org"),
        (next(kind for kind in SERVED if kind.title == "MPIJob"), "services"),
        (next(kind for kind in SERVED if kind.title == "Job"), "jobs.batch"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.title,
)
async def test_a_rejected_job_can_be_retried(admin: Client, kind: CreatableKind, refused: str) -> None:
    spec = spec_in(admin)
    await refuse(admin, refused)
    with pytest.raises(Forbidden, match="exceeded quota") as caught:
        await create_job(admin, kind, spec, files=FILES)
    assert "left" not in caught.value.hint
    await nothing_is_left(admin)
    await admin.delete(QUOTAS, "none", admin.config.namespace)
    async with asyncio.timeout(WAIT_S):  # admission goes by a cache
        while True:
            try:
                await create_job(admin, kind, spec, files=FILES)
                break
            except Forbidden:
                await nothing_is_left(admin)
    assert await made_objects(admin) == expected(kind, spec)
    with pytest.raises(JobRejected) as taken:
        await create_job(admin, kind, spec, files=FILES)
    assert "name" in taken.value.causes
    assert await made_objects(admin) == expected(kind, spec), "the first one loses nothing by the second"


class Relay:
    """Hands requests on to the real API server, and loses some answers."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster = config["clusters"][0]["cluster"]
        self._server, self._token = cluster["server"], config["users"][0]["user"]["token"]
        self._tls = ssl.create_default_context(cafile=cluster["certificate-authority"])
        # Requests of these, as `POST configmaps`, never reach the server, once
        self.loses_before: set[str] = set()
        # Requests that the server carries out, but whose answer is lost, once
        self.loses_after: set[str] = set()

    def __call__(self, asked: Asked) -> Reply:
        what = f"{asked.method} {asked.path.split('/')[-1 if asked.method == 'POST' else -2]}"
        if what in self.loses_before:
            self.loses_before.remove(what)
            return Drop()
        answer = self._done(asked)
        if what in self.loses_after:
            self.loses_after.remove(what)
            return Drop()
        return answer

    def _done(self, asked: Asked) -> Answer:
        query = f"?{urllib.parse.urlencode(asked.query)}" if asked.query else ""
        headers = {"Authorization": f"Bearer {self._token}", "Accept": "application/json"}
        if kind := asked.headers.get("Content-Type"):
            headers["Content-Type"] = kind
        request = urllib.request.Request(
            f"{self._server}{asked.path}{query}", asked.body or None, headers, method=asked.method
        )
        try:
            with urllib.request.urlopen(request, context=self._tls) as response:
                return Answer(response.read(), response.status, {"Content-Type": "application/json"})
        except urllib.error.HTTPError as error:
            return Answer(error.read(), error.code, {"Content-Type": "application/json"})


@pytest.fixture
async def relayed(kubeconfig: Path) -> AsyncIterator[tuple[Relay, Client]]:
    """A client of the real API server, whose answers may get lost on the way."""
    relay = Relay(kubeconfig)
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say_everywhere(Compute(relay))
        yield relay, client


POSTS = {
    "POST persistentvolumeclaims",
    "POST configmaps",
    "POST pytorchjobs",
    "POST deployments",
    "POST services",
}


async def test_lost_answers_are_safe(admin: Client, relayed: tuple[Relay, Client]) -> None:
    relay, client = relayed
    spec = spec_in(admin)
    for name, lost in (("done", relay.loses_after), ("undone", relay.loses_before)):
        lost |= POSTS | {"PATCH configmaps"}
        await create_job(client, KIND, replace(spec, name=name), files=FILES)
        assert not lost, "each was lost once"
    both = [replace(spec, name=name) for name in ("done", "undone")]
    assert await made_objects(admin) == expected(KIND, both[0]) | expected(KIND, both[1])
    for each in both:
        job = await admin.get(KIND.resource, each.name, each.namespace)
        for resource, manifest in job_objects(KIND, each, FILES):
            held = await admin.get(resource, manifest["metadata"]["name"], each.namespace)
            owners = [owner["uid"] for owner in held["metadata"].get("ownerReferences") or ()]
            assert owners == ([] if resource in (KIND.resource, CLAIMS) else [job["metadata"]["uid"]])


async def test_unacknowledged_objects_are_removed(admin: Client, relayed: tuple[Relay, Client]) -> None:
    relay, client = relayed
    await refuse(admin, "services")
    relay.loses_after |= POSTS - {"POST services"}
    with pytest.raises(Forbidden, match="exceeded quota"):
        await create_job(client, KIND, spec_in(admin), files=FILES)
    await nothing_is_left(admin)
