"""What `top nodes --live` and `top jobs --live` print of a cluster that is measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.k8s.telemetry.test_prometheus import BUSY, answering, vector
from tests.scripted.server import Reply, ScriptedCluster, page, refusal
from tests.scripted.telemetry import exporter_pod, gpu_cluster, proxied, say_pods, text
from tests.support.objects import Object, node, pod_of, pytorch_job
from tests.tui.commands.conftest import CommandLine

PODS = "/api/v1/pods"
METRICS = "/apis/metrics.k8s.io/v1beta1"


def bert() -> tuple[Object, Object]:
    """Return a job in namespace vision whose one pod holds GPU 0 of n1, as the fixtures say."""
    job = pytorch_job("bert", gpus=1, namespace="vision")
    return job, pod_of(job, "master-0", on="n1", gpus=1)


def serve(cluster: ScriptedCluster, **exporters: Reply) -> None:
    """Let the cluster have a node of two GPUs for each exporter, and the job bert on n1."""
    for path in (PODS, "/api/v1/services", "/api/v1/nodes", "/version"):
        cluster.forget(path)
    job, pod = bert()
    gpu_cluster(cluster, **exporters)
    cluster.forget(PODS)
    say_pods(cluster, *cluster_pods(exporters), pod)
    cluster.forget("/apis/kubeflow.org/v1/pytorchjobs")
    cluster.say("/apis/kubeflow.org/v1/pytorchjobs", page([job]))
    cluster.say("/api/v1/nodes", page([node(name, gpus=2) for name in exporters]))


def cluster_pods(exporters: dict[str, Reply]) -> list[Object]:
    return [
        {**pod, "metadata": {**pod["metadata"], "uid": pod["metadata"]["name"], "resourceVersion": "1"}}
        for pod in map(exporter_pod, exporters)
    ]


async def test_each_gpu_is_a_line_with_its_numbers_its_source_and_its_age(
    run: CommandLine, cluster: ScriptedCluster
) -> None:
    serve(cluster, n1=text(), n2=refusal(503, "error trying to reach service"))
    usage = {"cpu": "12500m", "memory": "100Gi"}
    cluster.say(f"{METRICS}/nodes", page([{"metadata": {"name": "n1"}, "usage": usage}]))
    printed = await run("top", "nodes", "--live")
    assert printed.err == ""
    lines = [" ".join(line.split()) for line in printed.out.splitlines()]
    assert lines[0] == "NODE GPU UTIL MEMORY POWER TEMP SOURCE AGE HELD BY NOTE"
    assert lines[1].startswith("n1 0 98% 71G/80G 387W 64C DCGM ")
    assert lines[1].endswith("s vision/bert-master-0 –")
    assert lines[2].startswith("n1 1 0% 510M/80G 61W 31C DCGM ")
    assert lines[3] == "n2 – – – – – – – – error trying to reach service"
    assert lines[5] == "NODE CPU MEMORY RECEIVED/s SENT/s READ/s WRITTEN/s SOURCES"
    assert lines[6].startswith("n1 12.5 100G – – – – metrics.k8s.io ")
    assert lines[-1] == "Measured: 2 GPUs of 4; they work 49 % of the time."


async def test_in_json_what_is_measured_stands_beside_what_is_allocated(
    run: CommandLine, cluster: ScriptedCluster
) -> None:
    serve(cluster, n1=text("optional-fields"), n2=text("mig"))
    items = (await run("top", "nodes", "--live", "-o", "json")).values["items"]
    n1, n2 = items
    assert n1["gpus_total"] == 2
    gpu = n1["live"]["gpus"][0]
    assert (gpu["index"], gpu["utilisation_percent"], gpu["memory_used_bytes"]) == (0, 98.0, None)
    assert (gpu["power_limit_w"], gpu["throttles"], gpu["ecc_errors"]) == (400.0, ["power cap", "thermal"], 3)
    assert [each["kind"] for each in gpu["warnings"]] == ["xid", "ecc", "thermal"]
    assert gpu["source"] == "DCGM"
    assert 0 <= gpu["age_s"] < 60
    assert [(each["index"], each["mig_id"], each["mig_profile"]) for each in n2["live"]["gpus"]] == [
        (0, "1", "3g.40gb"),
        (0, "13", "1g.10gb"),
        (1, None, None),
    ]
    assert n1["live"]["missing"] is None
    assert "live" not in (await run("top", "nodes", "-o", "json")).values["items"][0]


async def test_each_rank_of_a_job_is_a_line_with_its_gpu(run: CommandLine, cluster: ScriptedCluster) -> None:
    serve(cluster, n1=text("optional-fields"), n2=text())
    assert "bert" in (await run("top", "jobs", "-A")).out
    printed = await run("top", "jobs", "-A", "--live")
    lines = [" ".join(line.split()) for line in printed.out.splitlines()]
    assert lines[0] == "NAMESPACE JOB RANK INSTANCE NODE GPU UTIL MEMORY POWER TEMP SOURCE AGE NOTE"
    assert lines[1] == "vision bert 0 master-0 n1 – – – – – – – DCGM does not say whose GPUs these are."
    serve(cluster, n1=text(), n2=text())
    printed = await run("top", "jobs", "-A", "--live")
    assert " ".join(printed.row("vision")).startswith(
        "vision bert 0 master-0 n1 0 98% 71G/80G 387W 64C DCGM "
    )
    (item,) = (await run("top", "jobs", "-A", "--live", "-o", "json")).values["items"]
    (rank,) = item["live"]["ranks"]
    assert (rank["rank"], rank["node"], rank["gpu"]["index"], rank["is_assumed"]) == (0, "n1", 0, False)


async def test_who_may_not_proxy_is_told_in_one_line_and_sees_the_rest(
    run: CommandLine, cluster: ScriptedCluster
) -> None:
    refused = refusal(403, "no", "Forbidden")
    serve(cluster, n1=refused, n2=refused, n3=refused)
    printed = await run("top", "nodes", "--live")
    assert printed.status == 0
    assert printed.err == "GPUs are not measured: you may not get pods/proxy in namespace gpu-operator.\n"
    assert len(proxied(cluster)) == 1
    assert len([line for line in printed.out.splitlines() if "You may not get pods/proxy" in line]) == 3


@pytest.mark.parametrize("is_set", [True, False])
async def test_the_prometheus_that_is_set_is_asked(
    run: CommandLine, cluster: ScriptedCluster, is_set: bool
) -> None:
    serve(cluster, n1=refusal(503, "dead"))
    path = "/api/v1/namespaces/obs/services/thanos:9090/proxy/api/v1/query"
    cluster.say(path, answering(read_at=vector(({**BUSY, "Hostname": "n1"}, 55))))
    config = Path(run.home) / "config" / "gpuconsole" / "config.yaml"
    if is_set:
        config.parent.mkdir(parents=True)
        config.write_text("prometheus: obs/thanos:9090\n")
    printed = await run("top", "nodes", "--live")
    assert ("55%" in printed.out and "Prometheus" in printed.out) is is_set
    assert bool(cluster.asked(path)) is is_set


async def test_simulated_gpus_are_never_shown_as_measured(run: CommandLine, cluster: ScriptedCluster) -> None:
    serve(cluster, n1=text())
    cluster.forget("/api/v1/nodes")
    simulated = node("n1", gpus=2)
    simulated["metadata"]["labels"] = {"gpuconsole.dev/simulated": "true"}
    cluster.say("/api/v1/nodes", page([simulated]))
    printed = await run("top", "nodes", "--live")
    assert "Its GPUs are simulated: there is nothing to measure." in printed.out
    assert proxied(cluster) == []


async def test_without_a_job_that_holds_gpus_there_is_nothing_to_measure(
    run: CommandLine, cluster: ScriptedCluster
) -> None:
    serve(cluster, n1=text())
    cluster.forget(PODS)
    say_pods(cluster, *cluster_pods({"n1": text()}))
    printed = await run("top", "jobs", "-A", "--live")
    assert (printed.status, printed.out) == (0, "No running job holds GPUs.\n")
    assert proxied(cluster) == []
