"""`describe node`, `why` and `diagnose`: what they print, for people and for scripts."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from k8s.gpus.ack import config_map
from k8s.gpus.links import MACHINES
from k8s.jobs import exec
from tests.k8s.gpus.texts import DGX_1V, LEGEND
from tests.scripted.server import SUCCESS, Answer, ScriptedCluster, Socket, Speaker, Talk, page, refusal
from tests.support.objects import node, pod_of, pytorch_job, recorded
from tests.tui.commands.conftest import CommandLine

NODES, NODE = "/api/v1/nodes", "/api/v1/nodes/a"
MAPS = "/api/v1/namespaces/kube-system/configmaps"
LABEL = "ack.node.gpu.schedule"


def serve(cluster: ScriptedCluster, **labels: str) -> dict[str, Any]:
    """Serve one node of the name a, whose GPUs are all free."""
    found = node("a")
    found["metadata"]["labels"] = {
        "nvidia.com/gpu.product": "Tesla-V100-SXM2-32GB",
        **{key.replace("__", "/").replace("_", "."): value for key, value in labels.items()},
    }
    for path, items in ((NODES, [found]), ("/api/v1/pods", []), (MAPS, [])):
        cluster.forget(path)
        cluster.say(path, page(items))
    return found


async def test_a_node_is_described_with_its_links(run: CommandLine) -> None:
    serve(run.cluster, topology_kubernetes_io__zone="z")
    exporter = {
        "metadata": {
            "name": "nvidia-dcgm-exporter-x",
            "namespace": "gpu-operator",
            "uid": "u",
            "resourceVersion": "1",
        },
        "spec": {"nodeName": "a", "containers": [{"name": "exporter"}]},
    }
    run.cluster.forget("/api/v1/pods")
    run.cluster.say("/api/v1/pods", page([exporter]))
    path = "/api/v1/namespaces/gpu-operator/pods/nvidia-dcgm-exporter-x/exec"
    run.cluster.say(path, Socket([(1, (DGX_1V + LEGEND).encode()), SUCCESS]))
    ended = await run("describe", "node", "a")
    assert (ended.status, ended.err) == (0, "")
    assert ended.row("GPUs:") == ["GPUs:", "8", "Tesla-V100-SXM2-32GB"]
    assert ended.row("Network:") == ["Network:", "zone", "z"]
    assert "\nby nvidia-smi topo -m in pod gpu-operator/nvidia-dcgm-exporter-x:\n" in ended.out
    assert "  NVLink   0 1 2 3 | 4 5 6 7\n" in ended.out
    values = (await run("describe", "node/a", "-o", "json")).values
    assert values["links"]["matrix"] == [list(line) for line in MACHINES["dgx-1v"].matrix().links]
    assert values["links"]["groups"] == [{"title": "NVLink", "gpus": [[0, 1, 2, 3], [4, 5, 6, 7]]}]
    best = {"gpus": [0, 3], "link": "NV2", "bottleneck_gb_s": 40.0, "total_gb_s": 40.0}
    assert values["links"]["best_sets"][0] == best
    assert (values["network"], values["schedule"], values["links_missing"]) == ({"zone": "z"}, "", "")
    assert values["links"]["free_gpus"] == list(range(8))


async def test_describe_node_without_gpu_links_prints_the_rest_and_the_reason(run: CommandLine) -> None:
    serve(run.cluster)
    ended = await run("describe", "node", "a")
    assert ended.status == 0
    assert ended.row("Allocated:") == ["Allocated:", "0", "of", "8"]
    assert "Could not read how the GPUs of a are linked.\nNo pod on it sees all of its GPUs.\n" in ended.err
    values = (await run("describe", "node", "a", "-o", "json")).values
    assert values["links"] is None
    assert values["links_missing"].startswith("Could not read how")


async def test_describe_node_prints_the_topology_from_alibaba_clouds_configmap(run: CommandLine) -> None:
    serve(run.cluster, ack_node_gpu_schedule="topology")
    run.cluster.forget(MAPS)
    run.cluster.say(MAPS, page([config_map("a", MACHINES["dgx-1v"].matrix())]))
    ended = await run("describe", "node", "a")
    assert ended.row("Schedule:") == ["Schedule:", "ack.node.gpu.schedule=topology"]
    assert "\nby ConfigMap kube-system/a-gpu-topology:\n" in ended.out


@pytest.mark.parametrize("words", [("running",), ("PyTorchJob/running",), ("pytorchjob", "running")])
async def test_describe_job_prints_the_same_status_as_get(words: tuple[str, ...], run: CommandLine) -> None:
    described, got = await run("describe", *words), await run("get", "running")
    assert (described.status, described.row("Status:")) == (0, got.row("Status:"))
    assert "Instances:" in described.out


@pytest.mark.parametrize("words", ["node", "node a b", "node/"])
async def test_describe_node_requires_exactly_one_name(run: CommandLine, words: str) -> None:
    (await run("describe", *words.split())).reports(1, "is not a node.\nUse node NODE or node/NODE.")


async def test_describe_reports_a_missing_node(run: CommandLine) -> None:
    serve(run.cluster)
    ended = await run("describe", "node", "b")
    assert (ended.status, ended.err) == (1, "There is no node b.\nTo list all nodes: gpuconsole top nodes\n")


async def test_describe_node_without_list_permission_does_not_claim_the_node_is_missing(
    run: CommandLine,
) -> None:
    serve(run.cluster)
    run.cluster.forget(NODES)
    run.cluster.say(NODES, refusal(403, 'nodes is forbidden: User "li" cannot list', "Forbidden"))
    ended = await run("describe", "node", "b")
    assert ended.status == 1
    assert ended.err.startswith("Cannot tell whether there is a node b.\nThis user may not list nodes.")


async def test_the_versions_of_a_node_are_printed(run: CommandLine) -> None:
    found = serve(run.cluster)
    driver, cuda = "nvidia.com/cuda.driver", "nvidia.com/cuda.runtime"
    found["metadata"]["labels"] |= {
        f"{driver}.major": "580",
        f"{driver}.minor": "95",
        f"{driver}.rev": "05",
        f"{cuda}-version.full": "13.0",
    }
    found["status"]["nodeInfo"] = {
        "osImage": "Debian GNU/Linux 12 (bookworm)",
        "kernelVersion": "6.8.0-generic",
        "containerRuntimeVersion": "containerd://2.1.9",
        "kubeletVersion": "v1.36.2",
    }
    run.cluster.forget(NODES)
    run.cluster.say(NODES, page([found]))
    ended = await run("describe", "node", "a")
    assert ended.row("Kubelet:") == ["Kubelet:", "v1.36.2"]
    assert ended.row("CUDA:") == ["CUDA:", "13.0"]
    assert (await run("describe", "node", "a", "-o", "json")).values["versions"] == {
        "os": "Debian GNU/Linux 12 (bookworm)",
        "kernel": "6.8.0-generic",
        "container_runtime": "containerd://2.1.9",
        "kubelet": "v1.36.2",
        "gpu_driver": "580.95.05",
        "cuda": "13.0",
    }


JOBS = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
TOO_BIG = "Too big: master-0 needs 16 nvidia.com/gpu; the largest node has 8 (gpu-node-0)."


def serve_each(cluster: ScriptedCluster) -> None:
    """Let the recorded jobs be asked for by name, too."""
    for job in recorded("pytorchjobs"):
        cluster.say(f"{JOBS}/{job['metadata']['name']}", Answer(job))


async def test_the_why_command_prints_the_sentence_then_facts_then_remedies(run: CommandLine) -> None:
    serve_each(run.cluster)
    ended = await run("why", "too-big")
    assert (ended.status, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert lines[:3] == [TOO_BIG, "", "Seen:"]
    assert lines[3].startswith("  nodes: gpu-node-0: 0 of 8 nvidia.com/gpu free")
    assert ended.out.count("master-0 needs 16 nvidia.com/gpu") == 1, "no fact repeats the sentence"
    assert lines[-2:] == [
        "What would help:",
        "  Request 8 nvidia.com/gpu or less per pod; more pods can make up for it.",
    ]


async def test_advised_commands_name_the_cluster(run: CommandLine) -> None:
    ended = await run("why", "nobody", "--context", "recorded")
    assert ended.err.splitlines()[-1] == "To list all jobs: gpuconsole --context recorded list -A"


async def test_json_and_yaml_of_the_why_command_have_the_documented_keys(run: CommandLine) -> None:
    serve_each(run.cluster)
    ended = await run("why", "PyTorchJob/too-big", "-o", "json")
    found = ended.values
    assert list(found) == ["status", "sentence", "facts", "help", "failure"]
    assert (found["status"], found["sentence"]) == ("Pending", TOO_BIG)
    assert all(fact.keys() == {"kind", "text"} for fact in found["facts"])
    assert {"pods", "nodes", "scheduler"} <= {fact["kind"] for fact in found["facts"]}
    as_yaml = yaml.safe_load((await run("why", "too-big", "-o", "yaml")).out)
    assert as_yaml == found


async def test_the_why_command_prints_the_pods_of_a_running_job(run: CommandLine) -> None:
    serve_each(run.cluster)
    ended = await run("why", "running")
    assert (ended.status, ended.out) == (0, "It runs: 1 of 1 pod.\n\nSeen:\n  pods: Running: master-0\n")


async def test_the_why_command_reports_a_missing_job_and_rejects_invalid_usage(run: CommandLine) -> None:
    (await run("why", "nobody")).reports(1, "There is no job nobody in namespace default.")
    assert (await run("why")).status == 2
    assert (await run("why", "too-big", "-o", "wide")).status == 2


async def test_cluster_text_cannot_move_the_terminal(run: CommandLine) -> None:
    serve_each(run.cluster)
    events = "/api/v1/namespaces/default/resourcequotas"
    run.cluster.replace(
        "/api/v1/namespaces/default/events", refusal(403, "no\x1b]0;title\x07 \u202eevents\x9b2J")
    )
    run.cluster.forget(events)
    ended = await run("why", "too-big")
    assert ended.status == 0
    said = next(line for line in ended.out.splitlines() if line.startswith("  unseen: events: "))
    assert said == "  unseen: events: The cluster says: no <U+202E>events"
    assert not set("\x1b\x07\x9b\u202e") & set(ended.out + ended.err)


async def test_list_get_and_top_jobs_show_the_reason_from_why(run: CommandLine) -> None:
    job = pytorch_job("bert", creationTimestamp="2026-11-01T00:00:00Z") | {"status": {"conditions": []}}
    refused = {
        "metadata": {"name": "e", "namespace": "default", "uid": "e"},
        "involvedObject": {"kind": "PyTorchJob", "name": "bert", "namespace": "default"},
        "reason": "FailedCreate",
        "message": "exceeded quota: gpus, requested: pods=1, used: pods=2, limited: pods=2",
    }
    events = "/api/v1/namespaces/default/events"
    for path, items in (("/apis/kubeflow.org/v1/pytorchjobs", [job]), (events, [refused])):
        run.cluster.replace(path, page(items))
    run.cluster.say(f"{JOBS}/bert", Answer(job))
    reason = "Waits for quota: master-0 needs 1 pod; quota gpus has 0 of 2 left"
    assert (await run("why", "bert")).out.startswith(reason)
    for command in (("list",), ("top", "jobs")):
        jobs = (await run(*command, "-o", "json")).values["items"]
        assert next(each["reason"] for each in jobs if each["name"] == "bert") == reason
    assert reason in (await run("list", "-o", "wide")).out
    assert reason in (await run("get", "bert")).out


PODS = "/api/v1/namespaces/default/pods"
JOB = pytorch_job("bert", workers=2)
PLACES = ("master-0", "worker-0")
STACK = 'Thread 0x1 (most recent call first):\n  File "/code/train.py", line {} in {}\n'


@pytest.fixture
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


@pytest.mark.usefixtures("bert")
async def test_diagnose_names_each_ranks_stack_frame_and_the_rank_missing_from_a_collective(
    run: CommandLine,
) -> None:
    for number, (place, function) in enumerate(zip(PLACES, ("step", "load"), strict=True)):
        run.cluster.say(f"{PODS}/bert-{place}/exec", rank(number, 40 + number, function))
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


@pytest.mark.usefixtures("bert")
async def test_diagnose_names_the_missing_pods_exec_permission(run: CommandLine) -> None:
    why = 'pods "bert-master-0" is forbidden: User "li" cannot create resource "pods/exec"'
    for place in PLACES:
        run.cluster.say(f"{PODS}/bert-{place}/exec", refusal(403, why))
    ended = await run("diagnose", "bert")
    assert ended.status == 0
    assert ended.out.splitlines()[-1] == (
        "You may not run commands in pods of namespace default, which needs the permission create pods/exec."
        f" The cluster says: {why}"
    )
