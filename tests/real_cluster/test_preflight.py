"""What the preflight finds on a real API server, with its own RBAC, quota controller and admission.

One namespace for all: nothing here may come to be in it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from k8s.client.client import Client
from k8s.job_spec import EnvSource, JobSpec, Mount
from k8s.jobs.create import create_job, job_objects
from k8s.kinds import CREATABLE, CreatableKind
from k8s.kinds.kubeflow.pytorch_job import PyTorchJob
from k8s.models.resources import (
    CLAIMS,
    NAMESPACES,
    PODS,
    QUOTAS,
    SECRETS,
    Resource,
)
from k8s.preflight import Finding, check_against_cluster
from tests import ROOT
from tests.real_cluster import operator_objects
from tests.real_cluster.made_objects import SERVED, made_objects
from tests.support.real_cluster import BUSYBOX

pytestmark = pytest.mark.cluster

WAIT_S = 60.0
LIMIT_RANGES = Resource("", "v1", "limitranges", "LimitRange")
KIND = PyTorchJob()
TITLES = {kind.title: kind for kind in CREATABLE}
GPU = "requests.nvidia.com/gpu"


async def prepare(client: Client) -> None:
    """Make what the checks are to find, and wait for the quota controller to have counted it."""
    namespace = client.config.namespace
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
    for resource, name, content in (
        (SECRETS, "wandb", {"stringData": {"token": "x"}}),
        (CLAIMS, "unbound", {"spec": claim | {"storageClassName": "none"}}),
        (LIMIT_RANGES, "small", {"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}}]}}),
        (QUOTAS, "team", {"spec": {"hard": {GPU: "4", "count/services": "0"}}}),
    ):
        await client.create(resource, {"metadata": {"name": name}, **content}, namespace)
    await create_job(client, KIND, spec_in(namespace, name="taken"))
    async with asyncio.timeout(WAIT_S):  # a quota that is not counted yet refuses every pod
        while "hard" not in (await client.get(QUOTAS, "team", namespace)).get("status", {}):
            await asyncio.sleep(0.1)
    holder = operator_objects.pod_spec("main", 2) | {"nodeSelector": {"lab.io/is": "nowhere"}}
    await operator_objects.make(client, PODS, "holder", holder)
    async with asyncio.timeout(WAIT_S):
        while (await client.get(QUOTAS, "team", namespace))["status"].get("used", {}).get(GPU) != "2":
            await asyncio.sleep(0.1)


@pytest.fixture(scope="module")
def namespace(kubeconfig: Path) -> Iterator[str]:
    """The one namespace of these tests, in which something is wrong with everything."""
    name = f"preflight-{uuid4().hex[:8]}"

    async def make() -> None:
        async with await Client.connect(str(kubeconfig), namespace=name) as client:
            await client.create(NAMESPACES, {"metadata": {"name": name}})
            await prepare(client)

    async def remove() -> None:
        async with await Client.connect(str(kubeconfig)) as client:
            await client.delete(NAMESPACES, name)

    asyncio.run(make())
    yield name
    asyncio.run(remove())


@pytest.fixture
async def client(kubeconfig: Path, namespace: str) -> AsyncIterator[Client]:
    async with await Client.connect(str(kubeconfig), namespace=namespace) as found:
        yield found


@pytest.fixture
async def alice(kubeconfig: Path, namespace: str) -> AsyncIterator[Client]:
    """A client of a user who may do nothing in that namespace."""
    async with await Client.connect(f"{kubeconfig}-alice", namespace=namespace) as found:
        yield found


@pytest.fixture(autouse=True)
async def nothing_comes_to_be(client: Client) -> AsyncIterator[None]:
    """Fail a test after which there is more than before."""
    before = await made_objects(client)
    yield
    assert await made_objects(client) == before


def spec_in(namespace: str, **change: Any) -> JobSpec:
    fields = {"name": "bert", "image": BUSYBOX["image"], "command": ("true",), **change}
    return JobSpec(namespace=namespace, **fields)


async def findings(client: Client, kind: CreatableKind, spec: JobSpec) -> list[Finding]:
    objects = job_objects(kind, spec, is_optional_too=False)
    return await check_against_cluster(client, kind, spec, objects)


@pytest.mark.parametrize(
    ("title", "change", "severity", "field", "sentence"),
    [
        (
            "PyTorchJob",
            {"name": "taken"},
            "error",
            "name",
            "would be refused: PyTorchJob taken already exists in HERE; "
            "choose another name, or delete that one first",
        ),
        (
            "PyTorchJob",
            {"mounts": (Mount("unbound", "/data"),)},
            "warning",
            "mounts",
            "would wait: volume claim unbound is not bound; "
            "see events of the claim: its volume cannot be provided yet",
        ),
        (
            "PyTorchJob",
            {"mounts": (Mount("nowhere", "/data"),)},
            "error",
            "mounts",
            "would wait: volume claim nowhere not found in HERE; choose one that exists, or create it",
        ),
        (
            "Job",
            {"pull_secrets": ("registry",)},
            "error",
            "pull_secrets",
            "would wait: Secret registry not found in HERE; create it, or name one that exists",
        ),
        (
            "PyTorchJob",
            {"env_from": (EnvSource(True, "wandb", "key", "KEY"),)},
            "error",
            "env_from",
            "would wait: Secret wandb has no key key; its keys: token",
        ),
        (
            "PyTorchJob",
            {"cpu": "3"},
            "error",
            "cpu",
            "would be refused: master wants 3 cpu, LimitRange small allows at most 2 a container; "
            "ask for an amount within the limits",
        ),
        (
            "PyTorchJob",
            {"priority_class": "urgent"},
            "error",
            "priority_class",
            "would be refused: there is no PriorityClass urgent; "
            "choose one of system-cluster-critical, system-node-critical",
        ),
        (
            "MPIJob",
            {"workers": 3, "gpus": 1},
            "warning",
            "gpus",
            "would wait: all pods want 3 nvidia.com/gpu, quota team has 2 of 4 left; "
            "ask for less, or end other jobs in HERE",
        ),
        (
            "PyTorchJob",
            {"workers": 3, "gpus": 2},
            "error",
            "gpus",
            "would never start: all pods want 6 nvidia.com/gpu, quota team allows 4; "
            "ask for less, or for more quota in HERE",
        ),
        (
            "PyTorchTrainingJob",
            {},
            "error",
            "kind",
            "would be refused: this cluster does not serve PyTorchTrainingJob batch.tensorstack.dev/v1beta1; "
            "choose another kind of job, or ask for its operator to be installed",
        ),
        (
            "TrainJob",
            {},
            "error",
            "runtime",
            "would fail: there is no ClusterTrainingRuntime torch-distributed; ask for it to be installed",
        ),
        (
            "PyTorchJob",
            {"queue": "team"},
            "error",
            "queue",
            "would wait: there is no LocalQueue team in HERE; choose one that exists, or leave it empty",
        ),
    ],
    ids=lambda value: str(value) if isinstance(value, str) and " " not in value else "",
)
async def test_what_is_wrong_is_found_at_its_field(
    client: Client, title: str, change: dict[str, Any], severity: str, field: str, sentence: str
) -> None:
    namespace = client.config.namespace
    found = await findings(client, TITLES[title], spec_in(namespace, **change))
    assert [(each.severity, each.field, each.sentence) for each in found] == [
        (severity, field, sentence.replace("HERE", namespace))
    ]


async def test_where_nothing_is_wrong_nothing_is_found(client: Client) -> None:
    namespace = client.config.namespace
    spec = spec_in(namespace, gpus=1, cpu="1", env_from=(EnvSource(True, "wandb", "token", "KEY"),))
    for kind in SERVED:
        if kind.title != "TrainJob":  # whose runtime this cluster has not
            assert await findings(client, kind, spec) == []


async def test_a_namespace_that_is_not_there_is_the_one_finding(client: Client) -> None:
    (found,) = await findings(client, KIND, spec_in("nowhere", priority_class="urgent"))
    assert found.sentence == "would be refused: there is no namespace nowhere; choose one that exists"


async def test_alice_is_told_of_each_kind_that_she_may_not_create(alice: Client) -> None:
    namespace = alice.config.namespace
    spec = replace(spec_in(namespace), tensorboard=True, mounts=(Mount("unbound", "/d"),), log_dir="/d")
    found = await findings(alice, KIND, spec)
    assert {each.field for each in found} == {"namespace"}, "of what she may not read nothing is known"
    assert [each.sentence for each in found] == [
        f'would be refused: user "alice" may not create {what} in namespace "{namespace}"; '
        "pick another namespace, or ask for that role"
        for what in ("pytorchjobs", "deployments", "services")
    ]


async def submit(kubeconfig: str, namespace: str, *words: str) -> tuple[int, str]:
    """Run `gpuconsole submit` as a user would, and return its exit status and what it said."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "tui", "submit", "--kubeconfig", kubeconfig, "-n", namespace),
        *words,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await child.communicate()
    return child.returncode or 0, said.decode()


async def test_the_command_line_says_a_refusal_once_and_creates_nothing(
    kubeconfig: Path, client: Client
) -> None:
    namespace, job = client.config.namespace, ("pytorch", "--image=busybox", "--name")
    hers, taken, huge = await asyncio.gather(
        submit(f"{kubeconfig}-alice", namespace, *job, "hers", "true"),
        submit(str(kubeconfig), namespace, *job, "taken", "true"),
        submit(str(kubeconfig), namespace, *job, "huge", "--gpus=64", "true"),
    )
    assert hers == (
        1,
        "Could not create PyTorchJob hers.\n"
        'The cluster says: pytorchjobs.kubeflow.org is forbidden: User "alice" cannot create resource '
        f'"pytorchjobs" in API group "kubeflow.org" in the namespace "{namespace}"\n'
        "Pick another namespace, or ask for a role that allows it.\n",
    )
    assert taken == (
        1,
        "Could not create PyTorchJob taken.\n"
        'The cluster says: pytorchjobs.kubeflow.org "taken" already exists\n'
        "Choose another name, or delete that job first.\n",
    )
    assert huge == (
        1,
        "Warning: would never start: all pods want 64 nvidia.com/gpu, quota team allows 4; "
        f"ask for less, or for more quota in {namespace}.\n"
        "PyTorchJob huge would never start: needs 1 × 64 GPUs; the cluster has 8, at most 8 per node.\n"
        "Nothing was created.\n"
        "To create it all the same: --force\n",
    )
