"""Requests of one-shot commands: no more than their output needs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.scripted.server import Answer, ScriptedCluster
from tests.tui.commands.conftest import CommandLine

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
