"""`top users`: what users hold, what of it is idle, and for how long that was observed."""

from __future__ import annotations

import pytest

from tests.scripted.server import Answer, Reply, ScriptedCluster, page, refusal
from tests.scripted.telemetry import PLAIN, SERVICES, exporter_pod, proxy_path, say_pods
from tests.support.objects import node, pod_of, pytorch_job
from tests.tui.commands.conftest import CommandLine

BERT = pytorch_job("bert", 1, 2, annotations={"gpuconsole.dev/user": "li"})
WAITS = pytorch_job("waits", 1, 4, annotations={"gpuconsole.dev/user": "maria"})
XID = 'DCGM_FI_DEV_XID_ERRORS{gpu="0",UUID="GPU-0",Hostname="a",pod="bert-master-0",namespace="default"} 79\n'


def told(*utilisations: int) -> Answer:
    """Answer as an exporter that tells of so many GPUs of bert's only pod."""
    labels = 'UUID="GPU-{0}",Hostname="a",container="pytorch",namespace="default",pod="bert-master-0"'
    lines = (
        f'DCGM_FI_DEV_GPU_UTIL{{gpu="{index}",{labels.format(index)}}} {percent}\n'
        for index, percent in enumerate(utilisations)
    )
    return Answer("".join(lines).encode(), headers=PLAIN)


def lab(cluster: ScriptedCluster, exporter: Reply | None) -> None:
    """Let one user's job hold two GPUs and another's wait; `exporter` tells what they do."""
    for path, objects in (
        ("/api/v1/nodes", [node("a", 8)]),
        ("/apis/kubeflow.org/v1/pytorchjobs", [BERT, WAITS]),
        (SERVICES, []),
    ):
        cluster.forget(path)
        cluster.say(path, page(objects))
    cluster.say("/apis/kubeflow.org/v1/namespaces/default/pytorchjobs", page([BERT, WAITS]))
    cluster.forget("/api/v1/pods")
    job_pod = pod_of(BERT, "master-0", on="a", gpus=2)
    say_pods(cluster, job_pod, *([exporter_pod("a")] if exporter is not None else []))
    if exporter is not None:
        cluster.say(proxy_path("a"), exporter)


async def test_users_are_printed_with_their_jobs_and_what_is_idle_now(
    run: CommandLine, cluster: ScriptedCluster
) -> None:
    lab(cluster, told(1, 97))
    ended = await run("top", "users")
    assert ended.status == 0 and ended.err == ""
    assert ended.row("li") == ["li", "1", "job", "–", "2", "2", "1", "of", "2", "–", "–"]
    assert ended.row("maria") == ["maria", "1", "job", "–", "0", "4", "–", "–", "–"]
    assert any(line.split()[:3] == ["li", "bert", "default"] for line in ended.out.splitlines())
    assert "Observed: one reading, so idle GPU-hours are not known; --observe 30m tells." in ended.out
    said = "Hi li, your 1 job (bert) holds 2 GPUs; 1 of 2 seen now are idle. Do they still need them?"
    assert ended.out.splitlines()[-1] == said


async def test_idle_hours_are_those_that_were_observed(run: CommandLine, cluster: ScriptedCluster) -> None:
    lab(cluster, told(1, 97))
    ended = await run("top", "users", "--observe", "1s", "-o", "json")
    li, maria = ended.values["items"]
    assert (li["user"], li["gpus_held"], li["gpus_requested"], li["gpus_idle"]) == ("li", 2, 2, 1)
    assert ended.values["observed_s"] >= 1 and ended.values["sources"] == ["DCGM"]
    assert 0 < li["idle_gpu_hours"] == pytest.approx(li["observed_gpu_hours"] / 2, abs=1e-4)
    assert [each["name"] for each in li["jobs"]] == ["bert"]
    assert (maria["gpus_idle"], maria["idle_gpu_hours"]) == (None, None)
    assert li["message"].startswith(
        "Hi li, your 1 job (bert) holds 2 GPUs; 1 of 2 seen now are idle, and over 1s"
    )


@pytest.mark.parametrize(
    ("exporter", "words"),
    [
        (None, "Idle is not known for 1 of 1 node: No DCGM exporter runs on it."),
        (
            refusal(403, 'User "li" cannot get resource "pods/proxy"', "Forbidden"),
            "You may not get pods/proxy in namespace gpu-operator. Ask for permission",
        ),
    ],
)
async def test_without_telemetry_idle_is_unknown_and_stderr_says_why(
    run: CommandLine, cluster: ScriptedCluster, exporter: Reply | None, words: str
) -> None:
    lab(cluster, exporter)
    ended = await run("top", "users")
    assert ended.status == 0 and words in ended.err and len(ended.err.splitlines()) == 1
    assert ended.row("li") == ["li", "1", "job", "–", "2", "2", "–", "–", "–"]
    assert "Hi li" not in ended.out
    values = (await run("top", "users", "-o", "json")).values
    assert values["items"][0]["gpus_idle"] is None and values["items"][0]["idle_gpu_hours"] is None
    assert values["observed_from"] is None and words in values["notices"][0]


async def test_why_says_what_is_wrong_with_the_gpus_of_a_running_job(
    run: CommandLine, cluster: ScriptedCluster
) -> None:
    lab(cluster, Answer(XID.encode(), headers=PLAIN))
    cluster.say("/apis/kubeflow.org/v1/namespaces/default/pytorchjobs/bert", Answer(BERT))
    cluster.say(
        "/api/v1/namespaces/default/pods/bert-master-0", Answer(pod_of(BERT, "master-0", on="a", gpus=2))
    )
    ended = await run("why", "bert")
    assert "It runs: 1 of 1 pod; 1 GPU warning, see below." in ended.out
    assert "gpu: GPU 0 of a: Last XID 79: the GPU has fallen off the bus." in ended.out
    assert "have the node drained" in ended.out
