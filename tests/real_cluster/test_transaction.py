"""All of a job and its objects or nothing, each once, on a real API server that refuses or loses answers."""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
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
from k8s.kinds.job_spec import ConfigFile, JobFiles, JobSpec, Mount, NewClaim
from k8s.kinds.kubeflow.pytorch_job import PyTorchJob
from k8s.models.resources import CLAIMS, CONFIG_MAPS, QUOTAS
from k8s.text.errors import Forbidden, NotFound
from tests import ROOT
from tests.k8s.sandbox.live.running import goes
from tests.scripted.server import Answer, Asked, Compute, Drop, Reply, ScriptedCluster
from tests.support.real_cluster import BUSYBOX, SERVED, made_objects, make_quota
from tui.settings.local_folder import pack_folder

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


OWNED_WAIT_S = 120.0
# Commands of `arena delete`. Source: kubeflow/arena v0.15.2, `pkg/workflow/workflow.go`, DeleteJob.
ARENA_DELETE = """
made=$(kubectl get configmap {name}-pytorchjob {of_namespace} -o=jsonpath='{{.data.app}}') &&
for each in $made; do kubectl delete $each {of_namespace} || exit; done
kubectl delete configmap {name}-pytorchjob {of_namespace} --ignore-not-found
"""


async def run(command: str, kubeconfig: Path) -> None:
    child = await asyncio.create_subprocess_shell(
        command,
        env={**os.environ, "PYTHONPATH": str(ROOT), "KUBECONFIG": str(kubeconfig)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await child.communicate()
    assert child.returncode == 0, said.decode()


@pytest.mark.slow
async def test_owned_objects_are_deleted_too(admin: Client, kubeconfig: Path, tmp_path: Path) -> None:
    namespace = admin.config.namespace
    (tmp_path / "train.sh").write_text("cat /etc/conf/c.yaml\n")
    spec = JobSpec(
        name="along",
        namespace=namespace,
        image=BUSYBOX["image"],
        pull_policy="Never",
        sync_mode="folder",
        sync_source=str(tmp_path),
        config_files=(ConfigFile("c.yaml", "/etc/conf/c.yaml"),),
        command=("sh", "/root/code/train.sh"),
        mounts=(Mount("events", "/events"),),
        new_claims=(NewClaim("events", "1Mi"),),  # which is there already the second time
        log_dir="/events/logs",
        tensorboard=True,
    )
    files = JobFiles(code=pack_folder(tmp_path).archive, config_files={"c.yaml": b"lr: 1\n"})
    await create_job(admin, KIND, spec, files=files, dry_run=True)
    with pytest.raises(NotFound):
        await admin.get(CONFIG_MAPS, "along-code", namespace)
    of_namespace = f"-n {namespace}"
    for command in (  # each but the first finds the name used before
        f"{sys.executable} -P -m tui delete along --yes {of_namespace}",
        f"kubectl delete pytorchjobs.kubeflow.org along {of_namespace}",
        ARENA_DELETE.format(name="along", of_namespace=of_namespace),
    ):
        await create_job(admin, KIND, spec, files=files)
        job = await admin.get(KIND.resource, "along", namespace)
        claim = await admin.get(CLAIMS, "events", namespace)
        assert not claim["metadata"].get("ownerReferences")
        objects = [each for each in job_objects(KIND, spec, files) if each[0] != CLAIMS]
        for resource, manifest in objects:
            held = await admin.get(resource, manifest["metadata"]["name"], namespace)
            owners = [each["uid"] for each in held["metadata"].get("ownerReferences") or ()]
            assert resource == KIND.resource or owners == [job["metadata"]["uid"]], manifest
        await run(command, kubeconfig)
        for resource, manifest in objects:
            await goes(admin, resource, manifest["metadata"]["name"], namespace, OWNED_WAIT_S)
        assert (await admin.get(CLAIMS, "events", namespace))["metadata"]["uid"] == claim["metadata"]["uid"]


@pytest.mark.slow
async def test_a_git_login_is_accepted_as_a_secret(admin: Client) -> None:
    spec = JobSpec(
        name="git",
        namespace=admin.config.namespace,
        image=BUSYBOX["image"],
        command=("true",),
        sync_mode="git",
        sync_source="https://li:pw@host.example/a/b.git",
    )
    await create_job(admin, KIND, spec, dry_run=True)
    ssh = replace(spec, sync_source="git@host.example:a/b.git")
    await create_job(admin, KIND, ssh, files=JobFiles(git_login={"ssh-privatekey": "KEY"}), dry_run=True)
