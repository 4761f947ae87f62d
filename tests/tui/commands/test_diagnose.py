"""`diagnose` of a running job: its ranks are asked in their pods."""

from __future__ import annotations

import json

import pytest

from k8s.jobs import exec
from tests.scripted.server import ScriptedCluster, page, refusal
from tests.scripted.websocket import Speaker, Talk
from tests.support.objects import pod_of, pytorch_job
from tests.tui.commands.conftest import CommandLine

PODS = "/api/v1/namespaces/default/pods"
JOB = pytorch_job("bert", workers=2)
PLACES = ("master-0", "worker-0")
STACK = 'Thread 0x1 (most recent call first):\n  File "/code/train.py", line {} in {}\n'


@pytest.fixture(autouse=True)
def bert(cluster: ScriptedCluster) -> None:
    pods = [pod_of(JOB, place, on="n1", phase="Running") for place in PLACES]
    for path, objects in (("/api/v1/pods", pods), (PODS, pods), ("/apis/kubeflow.org/v1/pytorchjobs", [JOB])):
        cluster.replace(path, page(objects))


def rank(number: int, line: int, function: str) -> Talk:
    """Play the pod of one rank, which reads the program and answers."""

    async def speak(speaker: Speaker) -> None:
        size = int(speaker.query.getall("command")[-1])
        heard = b""
        while len(heard) < size:
            channel, content = await speaker.hear()
            assert channel == exec.STDIN
            heard += content
        assert b"def find_processes" in heard
        process = {"rank": number, "stack": STACK.format(line, function), "source": "faulthandler"}
        process["recorder"] = {"0 default_pg": entries[: 2 - number]}
        answer = json.dumps({"now_ns": 300 * 10**9, "processes": [process]})
        await speaker.say(exec.STDOUT, answer.encode())
        await speaker.end()

    entries = [
        {
            "collective_seq_id": number,
            "profiling_name": "gloo:all_reduce",
            "retired": number == 1,
            "time_created_ns": number * 10**9,
        }
        for number in (1, 2)
    ]
    return Talk(speak)


async def test_each_ranks_place_and_the_missing_one_are_named(
    run: CommandLine, cluster: ScriptedCluster
) -> None:
    for number, (place, function) in enumerate(zip(PLACES, ("step", "load"), strict=True)):
        cluster.say(f"{PODS}/bert-{place}/exec", rank(number, 40 + number, function))
    ended = await run("diagnose", "bert")
    said = (
        "Rank 0 in step (train.py:40), rank 1 in load (train.py:41)."
        " Rank 1 never entered all_reduce #2: rank 0 waits in it for 4 min."
    )
    assert (ended.status, ended.err, said in ended.out) == (0, "", True), ended.out
    assert "rank 1 in load (train.py:41), from faulthandler:" in ended.out.splitlines()
    found = (await run("diagnose", "bert", "-o", "json")).values["stacks"]
    assert found["sentence"] == said
    assert found["sources"] == ["faulthandler", "torch's flight recorder"]
    assert [(each["ranks"], each["number"]) for each in found["collectives"]] == [([1], 2)]


async def test_a_refused_command_says_which_permission_is_missing(
    run: CommandLine, cluster: ScriptedCluster
) -> None:
    why = 'pods "bert-master-0" is forbidden: User "li" cannot create resource "pods/exec"'
    for place in PLACES:
        cluster.say(f"{PODS}/bert-{place}/exec", refusal(403, why))
    ended = await run("diagnose", "bert")
    assert ended.status == 0
    assert ended.out.splitlines()[-1] == (
        "You may not run commands in pods of namespace default, which needs the permission create pods/exec."
        f" The cluster says: {why}"
    )
