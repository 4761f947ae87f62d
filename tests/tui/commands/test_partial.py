"""Requests of commands: no more than their output needs, and what a user may not list is named."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from k8s.snapshot import Missing
from tests.scripted.server import WAIT_S, Answer, Asked, ScriptedCluster, page, refusal
from tests.support.objects import GPU, pytorch_job
from tests.tui.commands.conftest import CommandLine, write_kubeconfig
from tui.commands.support.output import missing_line, resources_of

JOBS = ("kubeflow.org/v1/{}pytorchjobs", "batch/v1/{}jobs")


def pod(name: str, *owners: dict[str, Any]) -> dict[str, Any]:
    """Return a running pod of one GPU in alice's namespace."""
    references = [{**owner, "controller": True} for owner in owners]
    return {
        "metadata": {"name": name, "namespace": "alice", "uid": name, "ownerReferences": references},
        "spec": {"nodeName": "n1", "containers": [{"name": "main", "resources": {"limits": {GPU: 1}}}]},
        "status": {"phase": "Running"},
    }


def refuse(cluster: ScriptedCluster, path: str) -> None:
    """Refuse the list of a collection, both of all namespaces and of alice's."""
    for place in (path.format(""), path.format("namespaces/alice/")):
        cluster.replace(place, refusal(403, f'User "alice" cannot list {place}', "Forbidden"))


@pytest.fixture
def alice(alone: CommandLine, cluster: ScriptedCluster) -> CommandLine:
    """Return the command line of a user who may list pods of one namespace, and no job of any kind."""
    for path in JOBS:
        refuse(cluster, f"/apis/{path}")
    refuse(cluster, "/api/v1/{}nodes")
    refuse(cluster, "/api/v1/{}pods")
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "bert", "uid": "bert"}
    cluster.say("/api/v1/namespaces/alice", Answer({"metadata": {"name": "alice"}}))
    cluster.replace("/api/v1/namespaces/alice/pods", page([pod("bert-master-0", owner), pod("notebook")]))
    alone.set("KUBECONFIG", write_kubeconfig(alone.home, cluster.host, "alice"))
    return alone


async def test_jobs_of_unlistable_kinds_are_listed_from_their_pods(alice: CommandLine) -> None:
    ended = await alice("list")
    assert ended.err == "Not shown: pytorchjobs, jobs; you may not list them in namespace alice.\n"
    assert ended.status == 0
    assert ended.row("bert")[1:6] == ["PyTorchJob", "Running", "1/1", "1", "1"]
    assert ended.row("notebook")[1:6] == ["Pod", "Running", "1/1", "1", "1"]


@pytest.mark.parametrize("words", [("list",), ("top", "jobs"), ("prune", "--older-than", "7d", "--dry-run")])
async def test_json_lists_unreadable_resources_as_partial(alice: CommandLine, words: tuple[str, ...]) -> None:
    ended = await alice(*words, "-o", "json")
    assert ended.values["partial"] == ["pytorchjobs", "jobs"]
    assert ended.status == 0
    assert len(ended.err.splitlines()) == 1


async def test_an_empty_partial_list_succeeds(alice: CommandLine, cluster: ScriptedCluster) -> None:
    cluster.replace("/api/v1/namespaces/alice/pods", page([]))
    ended = await alice("top", "jobs")
    assert (ended.status, ended.out) == (0, "")
    assert ended.err.splitlines() == [
        "Not shown: pytorchjobs, jobs; you may not list them in namespace alice.",
        "No jobs in namespace alice.",
    ]


async def test_a_list_fails_if_nothing_is_readable(alice: CommandLine, cluster: ScriptedCluster) -> None:
    refuse(cluster, "/api/v1/{}pods")
    for words in (("list",), ("top", "jobs"), ("get", "bert")):
        ended = await alice(*words)
        assert (ended.status, ended.out) == (1, "")
        assert ended.err.splitlines()[:-1] == [
            "Could not list jobs in namespace alice.",
            'The cluster says: User "alice" cannot list /api/v1/namespaces/alice/pods',
        ]


async def test_lists_that_the_server_does_not_serve_are_not_called_refused(
    alice: CommandLine, cluster: ScriptedCluster
) -> None:
    for path in ("/api/v1/{}pods", *(f"/apis/{each}" for each in JOBS)):
        for place in (path.format(""), path.format("namespaces/alice/")):
            cluster.replace(
                place, refusal(404, "the server could not find the requested resource", "NotFound")
            )
    for words in (("list",), ("top", "jobs"), ("get", "bert")):
        ended = await alice(*words)
        assert (ended.status, ended.out) == (1, "")
        assert ended.err.splitlines() == [
            "Could not list jobs in namespace alice.",
            "The server serves neither pods nor jobs there.",
        ]


async def test_all_namespaces_falls_back_to_the_only_readable_namespace(alice: CommandLine) -> None:
    ended = await alice("list", "-A")
    assert ended.status == 0
    assert ended.row("alice")[1] == "bert"
    assert ended.err == (
        "Not shown: pytorchjobs, jobs; you may not list them in namespace alice. "
        "Only in namespace alice: pods; you may not list them elsewhere.\n"
    )


async def test_get_of_a_missing_job_names_the_resources_that_cannot_be_listed(alice: CommandLine) -> None:
    found = await alice("get", "bert", "-o", "json")
    assert (found.status, found.err, found.values["kind"]) == (0, "", "PyTorchJob")
    ended = await alice("get", "gpt")
    assert ended.status == 1
    assert ended.err.splitlines()[:2] == [
        "There is no job gpt in namespace alice.",
        "Not shown: pytorchjobs, jobs; you may not list them in namespace alice.",
    ]


async def test_top_nodes_without_node_permission_counts_gpus_from_readable_pods(alice: CommandLine) -> None:
    ended = await alice("top", "nodes", "-o", "json")
    assert ended.status == 0
    assert ended.values["partial"] == ["nodes", "pods"]
    assert [node["gpus_allocated"] for node in ended.values["items"]] == [2]
    assert ended.err.startswith("Not shown: nodes; you may not list them. Only in namespace alice: pods;")


async def test_claims_fall_back_to_one_namespace(alice: CommandLine, cluster: ScriptedCluster) -> None:
    refuse(cluster, "/api/v1/{}persistentvolumeclaims")
    claim = {"metadata": {"name": "workspace", "namespace": "alice", "uid": "c"}, "spec": {}}
    refused = await alice("data", "list", "-A")
    assert refused.status == 1
    assert refused.err.startswith("Could not list persistentvolumeclaims.\n")
    cluster.replace("/api/v1/namespaces/alice/persistentvolumeclaims", page([claim]))
    ended = await alice("data", "list", "-A")
    assert ended.status == 0
    assert ended.row("alice")[1] == "workspace"
    assert ended.err == "Only in namespace alice: persistentvolumeclaims; you may not list them elsewhere.\n"
    assert (await alice("data", "list", "-A", "-o", "json")).values["partial"] == ["persistentvolumeclaims"]


async def test_every_listed_row_is_found_by_kind_and_name(
    alice: CommandLine, cluster: ScriptedCluster
) -> None:
    web = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "web", "controller": True}
    meta = {"name": "web-5d9", "namespace": "alice", "uid": "web-5d9", "ownerReferences": [web]}
    serves = {"kind": "APIResourceList", "groupVersion": "apps/v1"}
    names = [{"name": "replicasets", "kind": "ReplicaSet", "namespaced": True, "verbs": ["get"]}]
    cluster.say("/apis/apps/v1", Answer({**serves, "resources": names}))
    cluster.say("/apis/apps/v1/namespaces/alice/replicasets/web-5d9", Answer({"metadata": meta}))
    replica_set = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d9", "uid": "web-5d9"}
    cluster.replace("/api/v1/namespaces/alice/pods", page([pod("web-5d9-x", replica_set), pod("notebook")]))
    cluster.say("/api/v1/namespaces/alice/events", page([]))
    rows = (await alice("list", "-o", "json")).values["items"]
    assert {(row["kind"], row["name"]) for row in rows} == {("Deployment", "web"), ("Pod", "notebook")}
    for row in rows:
        for command in ("get", "why", "events"):
            ended = await alice(command, f"{row['kind']}/{row['name']}", "-o", "json")
            assert ended.status == 0, ended.err


@pytest.mark.parametrize("kind", ["Pod", "pods", "Deployment", "deployments.apps", "StatefulSet"])
async def test_a_known_kind_without_the_row_is_not_found(run: CommandLine, kind: str) -> None:
    ended = await run("get", f"{kind}/x")
    assert (ended.status, ended.out) == (1, "")
    assert ended.err.startswith("There is no ")


def test_missing_resources_with_the_same_plural_are_qualified_by_api_group() -> None:
    missing = [
        Missing("list", f"mpijobs.{group}", "li") for group in ("kubeflow.org", "batch.tensorstack.dev")
    ]
    assert resources_of([*missing, Missing("list", "jobs.batch", "li")]) == [
        "mpijobs.kubeflow.org",
        "mpijobs.batch.tensorstack.dev",
        "jobs",
    ]
    assert missing_line(missing[:1]) == "Not shown: mpijobs; you may not list them in namespace li."


async def test_an_unreadable_job_is_listed_with_the_cause(run: CommandLine) -> None:
    broken = pytorch_job("bert") | {"status": {"startTime": "garbage"}}
    jobs = "/apis/kubeflow.org/v1/{}pytorchjobs"
    for path in (jobs.format(""), jobs.format("namespaces/default/"), "/api/v1/pods"):
        run.cluster.replace(path, page([broken] if "kubeflow" in path else []))
    run.cluster.say(f"{jobs.format('namespaces/default/')}/bert", Answer(broken))
    wrong = "Invalid RFC3339 encoded datetime - at `$.status.startTime`"
    ended = await run("list")
    assert (ended.status, ended.row("bert")[1:3]) == (0, ["PyTorchJob", "Unknown"])
    assert ended.err == f"Of pytorchjobs some cannot be read in full: bert ({wrong}).\n"
    values = (await run("list", "-o", "json")).values
    assert values["partial"] == ["pytorchjobs"]
    assert values["items"][0]["reason"] == f"its object cannot be read: {wrong}"
    assert (await run("why", "bert")).out.startswith(f"Cannot tell: its object cannot be read: {wrong}.\n")
    ended = await run("get", "bert")
    assert (ended.status, wrong in ended.out) == (0, True)


OWN = "/api/v1/namespaces/default/pods"
GROUPS = "/apis"
TORCH = "/apis/kubeflow.org/v1"


def announce(cluster: ScriptedCluster, *versions: str) -> None:
    """Let the server announce these groups, each with PyTorchJobs."""
    groups = [{"name": each.partition("/")[0], "versions": [{"groupVersion": each}]} for each in versions]
    cluster.replace(GROUPS, Answer({"groups": groups}))
    for each in versions:
        served = {"name": "pytorchjobs", "kind": "PyTorchJob", "namespaced": True, "verbs": ["list"]}
        cluster.replace(f"/apis/{each}", Answer({"groupVersion": each, "resources": [served]}))


@pytest.mark.parametrize(
    ("words", "asked", "nodes"),
    [
        (("list",), OWN, 1),
        (("list", "-o", "wide"), "/api/v1/pods", 1),  # why a job waits follows from all pods and nodes
        (("list", "-A"), "/api/v1/pods", 1),
        (("logs", "running"), OWN, 0),
        (("events", "running"), OWN, 0),
        (("top", "nodes"), "/api/v1/pods", 1),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
async def test_a_command_reads_no_more_than_it_needs(
    run: CommandLine, words: tuple[str, ...], asked: str, nodes: int
) -> None:
    run.cluster.say(f"{OWN}/running-master-0/log", Answer(b"step 1\n"))
    await run(*words)
    pods = [each.path for each in run.cluster.requests if each.path.endswith("/pods")]
    assert pods == [asked]
    assert len(run.cluster.asked("/api/v1/nodes")) == nodes


JOBS_READ = ("nodes pods apis selfsubjectrulesreviews", "pytorchjobs")
PROMETHEUS = "services=app.kubernetes.io/name services=app services=true services=prometheus-service"


def _short(asked: Asked) -> str:
    """Return the last part of a path, and the last value of a selector."""
    selector = asked.query.get("labelSelector") or asked.query.get("fieldSelector") or ""
    end = f"={selector.split()[0].rpartition('=')[2]}" if selector else ""
    return f"{asked.path.rpartition('/')[2]}{end}"


class Rounds:
    """Gate of a server that answers no request before all of its round have come."""

    def __init__(self, *rounds: str) -> None:
        self._rounds = [set(each.split()) for each in rounds]
        self._came = asyncio.Condition()
        self.asked: list[str] = []

    async def __call__(self, asked: Asked) -> None:
        name = _short(asked)
        self.asked.append(name)
        together = next((each for each in self._rounds if name in each), {name})
        async with asyncio.timeout(WAIT_S), self._came:
            self._came.notify_all()
            await self._came.wait_for(lambda: together <= set(self.asked))


@pytest.mark.parametrize(
    ("words", "rounds"),
    [
        ("top nodes", ["nodes pods apis"]),
        ("top nodes -o wide", JOBS_READ),
        ("get running", [*JOBS_READ, "services running-master-0 log"]),
        ("get running -o json", [*JOBS_READ, "services log"]),
        ("why running", [*JOBS_READ, "running log pods=gpu-node-0", PROMETHEUS]),
        ("why done", [*JOBS_READ, "done log"]),
        (
            "why waits",
            [
                *JOBS_READ,
                "waits pods=pytorchjob-controller"
                " events=waits events=waits-master-0 events=waits-worker-0 events=waits-worker-1",
            ],
        ),
    ],
)
async def test_a_command_makes_few_rounds_of_requests_and_none_twice(
    run: CommandLine, words: str, rounds: Sequence[str]
) -> None:
    announce(run.cluster, "kubeflow.org/v1")
    run.cluster.say(f"{OWN}/running-master-0/log", Answer(b"step 1\n"))
    run.cluster.replace("/api/v1/services", page([]))
    await run("list")  # stores the served kinds
    run.cluster.gate = gate = Rounds(*rounds)
    await run(*words.split())
    assert sorted(gate.asked) == sorted(" ".join(rounds).split())


async def test_served_kinds_are_cached_between_commands(run: CommandLine) -> None:
    announce(run.cluster, "kubeflow.org/v1")
    first = await run("list")
    assert len(run.cluster.asked(TORCH)) == 1
    second = await run("list")
    assert (second.out, second.status) == (first.out, 0)
    assert len(run.cluster.asked(TORCH)) == 1, "known from the first run"
    assert len(run.cluster.asked(GROUPS)) == 2, "whether there are new groups is asked each time"


async def test_an_api_group_installed_after_caching_is_discovered(run: CommandLine) -> None:
    run.cluster.replace(
        GROUPS, Answer({"groups": [{"name": "apps", "versions": [{"groupVersion": "apps/v1"}]}]})
    )
    listed = f"{TORCH}/namespaces/default/pytorchjobs"
    await run("list")
    assert not run.cluster.asked(listed)
    announce(run.cluster, "apps/v1", "kubeflow.org/v1")
    await run("list")
    assert len(run.cluster.asked(listed)) == 1


async def test_a_cached_kind_that_the_server_no_longer_serves_causes_no_error(run: CommandLine) -> None:
    announce(run.cluster, "kubeflow.org/v1")
    await run("list")
    run.cluster.forget(f"{TORCH}/pytorchjobs")
    ended = await run("list")
    assert (ended.status, "Traceback" in ended.err) == (0, False)


async def test_each_request_is_logged_on_request(run: CommandLine) -> None:
    log = Path(run.home, "state", "gpuconsole", "gpuconsole.log")
    assert (await run("list")).err == ""
    assert not log.exists()
    ended = await run("list", "-v")
    assert f"GET {OWN}?limit=500: 200 in " in ended.err
    assert f"GET {OWN}?limit=500: 200 in " in log.read_text()
    run.set("GPUCONSOLE_VERBOSE", "1")
    assert f"GET {OWN}" in (await run("list")).err


async def test_a_server_error_is_logged_without_verbose(run: CommandLine) -> None:
    run.cluster.replace("/api/v1/nodes", Answer({"kind": "Status", "message": "etcd is away"}, status=500))
    await run("top", "nodes")
    log = Path(run.home, "state", "gpuconsole", "gpuconsole.log").read_text()
    assert "WARNING k8s.client.connection: GET /api/v1/nodes?limit=500: 500 in " in log


async def test_a_server_that_cannot_be_reached_is_logged(run: CommandLine) -> None:
    await run("list", "--server", "http://127.0.0.1:1")
    log = Path(run.home, "state", "gpuconsole", "gpuconsole.log").read_text()
    # The first of the requests that run side by side ends the command.
    assert re.search(r"WARNING k8s\.client\.connection: GET /api/v1/\S+\?limit=500: Cannot connect", log)


async def test_the_log_omits_passed_arguments_and_the_token(run: CommandLine) -> None:
    await run("shell", "running", "-v", "--", "login", "--password", "hunter2")
    log = Path(run.home, "state", "gpuconsole", "gpuconsole.log").read_text()
    assert "/exec" in log or "/pods" in log
    assert "hunter2" not in log
    assert "secret-token" not in log
