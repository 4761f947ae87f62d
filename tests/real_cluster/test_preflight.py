"""Findings of the preflight on a real API server, with its own RBAC, quota controller and admission.

One namespace for all tests, in which nothing may be created.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import uuid4

import pytest

from k8s.client.client import Client
from k8s.cluster.node_rows import node_row
from k8s.jobs.create import create_job, job_objects
from k8s.kinds import CREATABLE, CreatableKind
from k8s.kinds.job_spec import EnvSource, JobSpec, Mount
from k8s.kinds.kubeflow.pytorch_job import PyTorchJob
from k8s.models import Node, convert
from k8s.models.resources import CLAIMS, JOBS, NAMESPACES, NODES, PODS, QUOTAS, SECRETS, Resource
from k8s.reasons.cause import Cause
from k8s.reasons.cluster_checks import check_against_cluster
from k8s.snapshot import ClusterSnapshot
from tests.real_cluster import operator_objects
from tests.real_cluster.conftest import shared_namespace
from tests.support.real_cluster import BUSYBOX, NODE, SERVED, console, made_objects, make_quota
from tui.draft.manifest_yaml import ManifestObject
from tui.draft.preflight import check_manifests

pytestmark = pytest.mark.cluster

WAIT_S = 180.0
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
        (LIMIT_RANGES, "small", {"spec": {"limits": [{"type": "Container", "max": {"cpu": "1"}}]}}),
    ):
        await client.create(resource, {"metadata": {"name": name}, **content}, namespace)
    await create_job(client, KIND, spec_in(namespace, name="taken"))
    await make_quota(client, "team", {GPU: "4", "count/services": "0"})
    holder = operator_objects.pod_spec("main", 2) | {"nodeSelector": {"lab.io/is": "nowhere"}}
    await operator_objects.make(client, PODS, "holder", holder)
    async with asyncio.timeout(WAIT_S):
        while (await client.get(QUOTAS, "team", namespace))["status"].get("used", {}).get(GPU) != "2":
            await asyncio.sleep(0.1)


@pytest.fixture(scope="module")
def namespace(kubeconfig: Path) -> Iterator[str]:
    """The one namespace of these tests, in which something is wrong with everything."""
    yield from shared_namespace(kubeconfig, "preflight", prepare)


@pytest.fixture
async def client(kubeconfig: Path, namespace: str) -> AsyncIterator[Client]:
    async with await Client.connect(str(kubeconfig), namespace=namespace) as found:
        yield found


@pytest.fixture
async def alice(kubeconfig: Path, namespace: str) -> AsyncIterator[Client]:
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


async def findings(client: Client, kind: CreatableKind, spec: JobSpec) -> list[Cause]:
    objects = job_objects(kind, spec, is_optional_too=False)
    return await check_against_cluster(client, kind, spec, objects)


@pytest.mark.parametrize(
    ("title", "change", "expected"),
    [
        ("PyTorchJob", {"name": "taken"},
         "error name: would be refused: PyTorchJob taken already exists in HERE; "
         "choose another name, or delete that one first"),
        ("PyTorchJob", {"mounts": (Mount("unbound", "/data"),)},
         "error mounts: would wait for volume claim unbound: there is no storage class none; "
         "create the claim again, with a storage class that exists"),
        ("PyTorchJob", {"mounts": (Mount("nowhere", "/data"),)},
         "error mounts: would wait for volume claim nowhere, which does not exist in HERE; "
         "create it, or name one that exists"),
        ("Job", {"pull_secrets": ("registry",)},
         "error pull_secrets: would wait for Secret registry, which does not exist in HERE; "
         "create it, or name one that exists"),
        ("PyTorchJob", {"env_from": (EnvSource(True, "wandb", "key", "KEY"),)},
         "error env_from: would wait for key key of Secret wandb, which has no such key; "
         "name one of its keys: token"),
        ("PyTorchJob", {"cpu": "1500m"},
         "error cpu: would never start: master-0 needs 1.5 cpu; LimitRange small allows at most "
         "1 a container; request an amount within the limits"),
        ("PyTorchJob", {"priority_class": "urgent"},
         "error priority_class: would never start: there is no PriorityClass urgent; "
         "choose one of system-cluster-critical, system-node-critical"),
        ("MPIJob", {"workers": 3, "gpus": 1},
         "warning gpus: would wait for quota: 3 pods together need 3 nvidia.com/gpu; quota team has "
         "2 of 4 left; request less, end other jobs in HERE, or ask for more quota in HERE"),
        ("PyTorchJob", {"workers": 3, "gpus": 2},
         "error gpus: would never start: 3 pods together need 6 nvidia.com/gpu; quota team allows 4; "
         "request less, or ask for more quota in HERE"),
        ("PyTorchTrainingJob", {},
         "error kind: would be refused: this cluster does not serve PyTorchTrainingJob "
         "batch.tensorstack.dev/v1beta1; "
         "choose another kind of job, or ask for its operator to be installed"),
        ("TrainJob", {},
         "error runtime: would fail: there is no ClusterTrainingRuntime torch-distributed; "
         "ask for it to be installed"),
        ("PyTorchJob", {"queue": "team"},
         "error queue: would wait in queue team: there is no such LocalQueue in namespace HERE; "
         "name a queue that exists, or ask an administrator for one"),
    ],
    ids=lambda value: value.partition(":")[0] if isinstance(value, str) else "",
)  # fmt: skip
async def test_each_problem_is_reported_at_its_field(
    client: Client, title: str, change: dict[str, Any], expected: str
) -> None:
    namespace = client.config.namespace
    found = await findings(client, TITLES[title], spec_in(namespace, **change))
    said = [f"{each.severity} {each.field}: {each.warning}" for each in found]
    assert said == [expected.replace("HERE", namespace)]


async def test_a_correct_job_has_no_findings_on_a_real_server(client: Client) -> None:
    namespace = client.config.namespace
    spec = spec_in(namespace, gpus=1, cpu="1", env_from=(EnvSource(True, "wandb", "token", "KEY"),))
    for kind in SERVED:
        if kind.title != "TrainJob":  # whose runtime this cluster has not
            assert await findings(client, kind, spec) == []


async def test_a_missing_namespace_is_the_only_finding(client: Client) -> None:
    (found,) = await findings(client, KIND, spec_in("nowhere", priority_class="urgent"))
    assert found.warning == "would be refused: there is no namespace nowhere; choose one that exists"


async def test_each_kind_that_the_user_may_not_create_is_a_finding(alice: Client) -> None:
    namespace = alice.config.namespace
    spec = replace(spec_in(namespace), tensorboard=True, mounts=(Mount("unbound", "/d"),), log_dir="/d")
    found = await findings(alice, KIND, spec)
    assert {each.field for each in found} == {"namespace"}, "of what she may not read nothing is known"
    assert [each.warning for each in found] == [
        f'would be refused: user "alice" may not create {what} in namespace "{namespace}"; '
        "pick another namespace, or ask for that role"
        for what in ("pytorchjobs", "deployments", "services")
    ]


async def submit(kubeconfig: str, namespace: str, *words: str) -> tuple[int, str]:
    code, out, err = await console(kubeconfig, "submit", "-n", namespace, *words)
    return code, out + err


async def test_a_refusal_is_reported_once_and_creates_nothing(kubeconfig: Path, client: Client) -> None:
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
        "Warning: would never start: master-0 needs 64 nvidia.com/gpu; quota team allows 4; "
        f"request less, or ask for more quota in {namespace}.\n"
        "PyTorchJob huge would never start: master-0 needs 64 nvidia.com/gpu; the largest node has 8 "
        f"({NODE}); request 8 nvidia.com/gpu or less per pod; more pods can make up for it.\n"
        "Nothing was created.\n"
        "To create it all the same: --force\n",
    )


class Case(NamedTuple):
    """A pod, the one node that it may be put on, and what comes of it."""

    verdict: str
    # Changes of its spec; `requests` and `init` are those of its containers
    pod: Mapping[str, Any] = MappingProxyType({})
    node: Mapping[str, Any] = MappingProxyType({})  # `labels`, `allocatable`, and changes of the node's spec


AMD = "amd.com/gpu"
FPGA = "example.com/fpga"
SIZE = {"cpu": "4", "memory": "8Gi", "pods": "10", "ephemeral-storage": "10Gi", "hugepages-2Mi": "64Mi"}
SIZE |= {FPGA: "2", AMD: "2"}
TEAM = {"key": "team", "value": "nlp", "effect": "NoSchedule"}
CORDON = "node.kubernetes.io/unschedulable"


def expressions(*said: str, fields: bool = False) -> dict[str, Any]:
    """Return the terms of a node affinity: each `key operator value`, of which one must hold."""
    terms = []
    for each in said:
        key, operator, *values = each.split()
        requirement = {"key": key, "operator": operator} | ({"values": values} if values else {})
        terms.append({"matchFields" if fields else "matchExpressions": [requirement]})
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}}


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
CASES = {
    "all of its cpu": Case("fits", {"requests": [{"cpu": "4"}]}),
    "a millicore more": Case("never", {"requests": [{"cpu": "4001m"}]}),
    "memory in an exponent": Case("fits", {"requests": [{"memory": "8e9"}]}),
    "memory and a byte more": Case("never", {"requests": [{"memory": str(8 * 2**30 + 1)}]}),
    "containers together": Case("never", {"requests": [{"cpu": "3"}, {"cpu": "1500m"}]}),
    "no pod more": Case("never", {}, {"allocatable": {"pods": "0"}}),
    "a large init container": Case("never", {"requests": [{"cpu": "1"}], "init": [{"cpu": "5"}]}),
    "init containers in turn": Case(
        "fits", {"requests": [{"cpu": "3"}], "init": [{"cpu": "4"}, {"cpu": "4"}]}
    ),
    "ephemeral storage": Case("never", {"requests": [{"ephemeral-storage": "11Gi"}]}),
    "huge pages": Case("fits", {"requests": [{"cpu": "1", "hugepages-2Mi": "64Mi"}]}),
    "too many huge pages": Case("never", {"requests": [{"cpu": "1", "hugepages-2Mi": "66Mi"}]}),
    "extended resources": Case("fits", {"requests": [{FPGA: "2"}]}),
    "too many extended resources": Case("never", {"requests": [{FPGA: "3"}]}),
    "a resource nobody has": Case("never", {"requests": [{"example.com/none": "1"}]}),
    "gpus": Case("fits", {"requests": [{AMD: "2"}]}),
    "too many gpus": Case("never", {"requests": [{AMD: "3"}]}),
    "gpus and an affinity": Case(
        "never",
        {"requests": [{AMD: "3"}], **expressions("lab.io/gen Exists")},
        {"labels": {"lab.io/gen": "7"}},
    ),
    "a label": Case("fits", {"selector": {"lab.io/gpu": "a100"}}, {"labels": {"lab.io/gpu": "a100"}}),
    "another value": Case("never", {"selector": {"lab.io/gpu": "h100"}}, {"labels": {"lab.io/gpu": "a100"}}),
    "in": Case("fits", expressions("lab.io/gen In 6 7"), {"labels": {"lab.io/gen": "7"}}),
    "not in": Case("never", expressions("lab.io/gen NotIn 6 7"), {"labels": {"lab.io/gen": "7"}}),
    "not in without the label": Case("fits", expressions("lab.io/gen NotIn 6 7")),
    "exists": Case("never", expressions("lab.io/gen Exists")),
    "does not exist": Case("fits", expressions("lab.io/gen DoesNotExist")),
    "greater": Case("fits", expressions("lab.io/gen Gt 6"), {"labels": {"lab.io/gen": "7"}}),
    "greater than words": Case("never", expressions("lab.io/gen Gt 6"), {"labels": {"lab.io/gen": "vii"}}),
    "less": Case("never", expressions("lab.io/gen Lt 7"), {"labels": {"lab.io/gen": "7"}}),
    "one of two terms": Case("fits", expressions("lab.io/gen Exists", "lab.io/old DoesNotExist")),
    "its name": Case("fits", expressions("metadata.name In NODE", fields=True)),
    "not its name": Case("never", expressions("metadata.name NotIn NODE", fields=True)),
    "a taint": Case("never", {}, {"taints": [TEAM]}),
    "a taint that is only disliked": Case("fits", {}, {"taints": [TEAM | {"effect": "PreferNoSchedule"}]}),
    "a taint tolerated": Case("fits", {"tolerations": [{"key": "team", "value": "nlp"}]}, {"taints": [TEAM]}),
    "another effect tolerated": Case(
        "never", {"tolerations": [{"key": "team", "value": "nlp", "effect": "NoExecute"}]}, {"taints": [TEAM]}
    ),
    "another value tolerated": Case(
        "never", {"tolerations": [{"key": "team", "value": "cv"}]}, {"taints": [TEAM]}
    ),
    "everything tolerated": Case(
        "fits", {"tolerations": [{"operator": "Exists"}]}, {"taints": [TEAM], "unschedulable": True}
    ),
    "a cordon": Case("waits", {}, {"unschedulable": True}),
    "a cordon tolerated": Case(
        "fits", {"tolerations": [{"key": CORDON, "operator": "Exists"}]}, {"unschedulable": True}
    ),
}


class Lab:
    """Nodes without a kubelet, one for each case, that no other pod is put on; for half a minute."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client, self._namespace = client, namespace
        self._names = {case: f"{namespace}-{number}" for number, case in enumerate(CASES)}

    async def run(self) -> dict[str, tuple[str, str]]:
        """Return of each case the verdict of the preflight, and what the scheduler does."""
        await self._client.create(NAMESPACES, {"metadata": {"name": self._namespace}})
        try:
            await asyncio.gather(*map(self._make_node, CASES))
            nodes = await self._ready_nodes()
            await asyncio.gather(*map(self._make_pod, CASES))
            rows = tuple(node_row(convert(each, Node), ()) for each in nodes)
            snapshot = ClusterSnapshot(nodes=rows, is_synced=True)
            found = {case: await self._preflight(case, snapshot) for case in CASES}
            scheduled = await self._scheduled()
            return {case: (found[case], scheduled[self._names[case]]) for case in CASES}
        finally:
            await self._remove()

    async def _make_node(self, case: str) -> None:
        name, change = self._names[case], dict(CASES[case].node)
        labels = {"lab.io/case": name, **change.pop("labels", {})}
        size = SIZE | change.pop("allocatable", {})
        own = {"key": "lab.io/case", "value": name, "effect": "NoSchedule"}
        spec = {**change, "taints": [own, *change.get("taints", ())]}
        await self._client.create(NODES, {"metadata": {"name": name, "labels": labels}, "spec": spec})
        ready = [{"type": "Ready", "status": "True", "reason": "Lab"}]
        status = {"capacity": size, "allocatable": size, "conditions": ready}
        await self._client.patch(NODES, name, {"status": status}, subresource="status")

    async def _make_pod(self, case: str) -> None:
        pod = {"metadata": {"name": self._names[case]}, "spec": self._pod(case)}
        await self._client.create(PODS, pod, self._namespace)

    async def _ready_nodes(self) -> list[dict[str, Any]]:
        """Wait until no node has the taint with which the API server starts them."""
        async with asyncio.timeout(WAIT_S):
            while True:
                nodes = await self._client.list(NODES)
                taints = [taint for node in nodes for taint in node["spec"].get("taints", ())]
                cordoned = [each for each in taints if each["key"] == CORDON]
                expected = sum(case.node.get("unschedulable", False) for case in CASES.values())
                if len(cordoned) >= expected and all("not-ready" not in each["key"] for each in taints):
                    return nodes
                await asyncio.sleep(0.2)

    def _pod(self, case: str) -> dict[str, Any]:
        name, text = self._names[case], json.dumps(dict(CASES[case].pod))
        change = json.loads(text.replace("NODE", name))
        containers = [
            _container(f"main{place}", each) for place, each in enumerate(change.pop("requests", [{}]))
        ]
        init = [_container(f"init{place}", each) for place, each in enumerate(change.pop("init", []))]
        own = {"key": "lab.io/case", "operator": "Exists"}
        return {
            "restartPolicy": "Never",
            "containers": containers,
            "initContainers": init,
            "nodeSelector": {"lab.io/case": name, **change.pop("selector", {})},
            **change,
            "tolerations": [own, *change.get("tolerations", ())],
        }

    async def _preflight(self, case: str, snapshot: ClusterSnapshot) -> str:
        async def nodes() -> ClusterSnapshot:
            return snapshot

        template = {"spec": self._pod(case)}
        meta = {"name": self._names[case], "namespace": self._namespace}
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"template": template}}
        (found,) = await check_manifests(self._client, [ManifestObject(JOBS, job)], self._namespace, nodes)
        if any(each.is_never for each in found.causes):
            return "never"
        return "waits" if any(each.text.startswith("would wait") for each in found.causes) else "fits"

    async def _scheduled(self) -> dict[str, str]:
        """Return of each pod whether the scheduler put it on its node, once it has decided of all."""
        async with asyncio.timeout(WAIT_S):
            while True:
                found = {}
                for pod in await self._client.list(PODS, self._namespace):
                    conditions = pod["status"].get("conditions") or ()
                    decided = [each["status"] for each in conditions if each["type"] == "PodScheduled"]
                    found[pod["metadata"]["name"]] = {"True": "fits", "False": "never"}.get("".join(decided))
                if len(found) == len(CASES) and None not in found.values():
                    return {name: verdict for name, verdict in found.items() if verdict is not None}
                await asyncio.sleep(0.2)

    async def _remove(self) -> None:
        names = self._names.values()
        # No kubelet would confirm that a pod has ended.
        pods = (self._client.delete(PODS, name, self._namespace, grace_period_s=0) for name in names)
        await asyncio.gather(*pods, return_exceptions=True)
        await asyncio.gather(*(self._client.delete(NODES, name) for name in names), return_exceptions=True)
        await self._client.delete(NAMESPACES, self._namespace)


def _container(name: str, requests: dict[str, str]) -> dict[str, Any]:
    limits = {key: amount for key, amount in requests.items() if "/" in key or key.startswith("hugepages")}
    return {"name": name, **BUSYBOX, "resources": {"requests": requests, "limits": limits}}


@pytest.fixture(scope="module")
def verdicts(kubeconfig: Path) -> dict[str, tuple[str, str]]:
    """Each case tried once, all at the same time: without a kubelet a node is lost after 40 s."""

    async def run() -> dict[str, tuple[str, str]]:
        async with await Client.connect(str(kubeconfig)) as client:
            return await Lab(client, f"lab-{uuid4().hex[:8]}").run()

    return asyncio.run(run())


@pytest.mark.parametrize("case", CASES)
def test_the_preflight_decides_as_the_scheduler_does(verdicts: dict[str, tuple[str, str]], case: str) -> None:
    expected = CASES[case].verdict
    scheduled = "fits" if expected == "fits" else "never"
    assert verdicts[case] == (expected, scheduled)
