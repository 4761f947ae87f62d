"""`top`: GPUs that are shared, sliced, claimed or measured, and the users who hold them."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from k8s.snapshot import ClusterSnapshot
from tests.k8s.cluster.test_discovery import holds, say_groups
from tests.k8s.gpus.test_prometheus import BUSY, answering, vector
from tests.scripted.server import Answer, Reply, ScriptedCluster, page, refusal
from tests.scripted.telemetry import (
    PLAIN,
    SERVICES,
    exporter_pod,
    gpu_cluster,
    proxied,
    proxy_path,
    say_pods,
    text,
)
from tests.support.journal import record_job, record_spans
from tests.support.objects import Object, joined, node, pod_of, pytorch_job
from tests.tui.commands.conftest import CommandLine
from tui.runs.journal.database import JOURNAL_FILE
from tui.runs.store import RunStore
from tui.screens.lists.jobs import format_totals
from tui.tables.namespace_usage import namespace_usages, total_usage

PODS = "/api/v1/pods"
METRICS = "/apis/metrics.k8s.io/v1beta1"
BERT = pytorch_job("bert", 1, 2, annotations={"gpuconsole.dev/user": "li"})
WAITS = pytorch_job("waits", 1, 4, annotations={"gpuconsole.dev/user": "maria"})
XID = 'DCGM_FI_DEV_XID_ERRORS{gpu="0",UUID="GPU-0",Hostname="a",pod="bert-master-0",namespace="default"} 79\n'


def offering(name: str, labels: dict[str, str] | None = None, **resources: str) -> dict[str, Any]:
    """Return a node that offers resources, whose names have `__` for `.com/`."""
    found = node(name, gpus=0)
    offered = {key.replace("__", ".com/").replace("_", "-"): value for key, value in resources.items()}
    found["metadata"]["labels"] = labels or {}
    found["status"]["allocatable"] = found["status"]["capacity"] = offered
    return found


def has_pod(name: str, on: str, **resources: str) -> dict[str, Any]:
    limits = {key.replace("__", ".com/").replace("_", "-"): value for key, value in resources.items()}
    return {
        "metadata": {"name": name, "namespace": "default", "uid": name, "resourceVersion": "1"},
        "spec": {"nodeName": on, "containers": [{"name": "a", "resources": {"limits": limits}}]},
        "status": {"phase": "Running"},
    }


def serve(cluster: ScriptedCluster, nodes: list[dict[str, Any]], pods: list[dict[str, Any]]) -> None:
    for name, items in (("nodes", nodes), ("pods", pods)):
        cluster.forget(f"/api/v1/{name}")
        cluster.say(f"/api/v1/{name}", page(items))


async def test_shared_gpu_memory_is_shown_in_gib_and_not_counted_as_gpus(run: CommandLine) -> None:
    share = offering("s1", aliyun__gpu_mem="160", aliyun__gpu_count="2")
    pod = has_pod("a", "s1", aliyun__gpu_mem="40")
    pod["metadata"]["annotations"] = {"ALIYUN_COM_GPU_MEM_IDX": "1"}
    serve(run.cluster, [share, offering("n1", nvidia__gpu="8")], [pod, has_pod("b", "n1", nvidia__gpu="3")])
    found = (await run("top", "nodes", "-o", "json")).values
    assert (found["gpus_total"], found["gpus_allocated"]) == (8, 3)
    assert (found["gpus_free"], found["largest_free"]) == (5, 5)
    by_name = {each["name"]: each for each in found["items"]}
    assert by_name["n1"]["shared_memory"] is None
    assert (by_name["s1"]["mode"], by_name["s1"]["gpus_total"]) == ("share", 0)
    assert by_name["s1"]["shared_memory"] == {
        "total_gib": 160,
        "allocated_gib": 40,
        "devices": 2,
        "devices_allocated": 0.5,
        "allocated_gib_by_device": {"1": 40},
    }
    printed = await run("top", "nodes", "-o", "wide")
    assert printed.row("s1")[-7:] == ["40G", "0", "share", "80G", "0", "a", "40G"]
    assert printed.out.endswith(
        "in cluster: 3/8 (37 %), 40/160G of shared GPUs' memory; 5 can be had now, at most 5 on one node\n"
    )


async def test_parts_of_gpus_faults_and_uncounted_resources_of_nodes_are_printed(run: CommandLine) -> None:
    sliced = offering("v1", {"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.count": "2"}, nvidia__gpu="8")
    odd = offering("o1", {"accelerator": "acme", "lab.io/cordoned-by": "mai"}, acme__npu="8")
    odd["status"]["conditions"] = [{"type": "KernelDeadlock", "status": "True", "message": "task hung"}]
    odd["spec"]["unschedulable"] = True
    whole = offering("n1", nvidia__gpu="8")
    serve(run.cluster, [sliced, odd, whole], [has_pod("a", "v1", nvidia__gpu="3")])
    printed = await run("top", "nodes")
    assert "in cluster: 0/8 (0 %) and 3/8 (37 %) shares of 2 GPUs; 13 can be had now" in printed.out
    assert "NotReady, cordoned, KernelDeadlock" in printed.out
    assert printed.err == "acme.com/npu of o1 is not counted; accelerators in config.yaml can name it.\n"
    assert (await run("top", "jobs")).out.endswith("3/39 (7 %), 3 of them shares of GPUs\n")
    found = (await run("top", "nodes", "-o", "json")).values
    assert (found["gpus_total"], found["shares_total"], found["shares_allocated"]) == (16, 8, 3)
    by_name = {each["name"]: each for each in found["items"]}
    assert by_name["v1"]["resources"]["nvidia.com/gpu"]["cards"] == 2
    assert (by_name["o1"]["cordon"], by_name["o1"]["faults"][0]["message"]) == ("by mai", "task hung")
    described = (await run("describe", "node", "o1")).out
    assert "Trouble:      KernelDeadlock (task hung); cordoned by mai" in described
    assert "Not counted:  acme.com/npu" in described
    described = (await run("describe", "node", "v1")).out
    assert "GPUs:       8 shares of 2 GPUs\n" in described and "3 of 8 shares of 2 GPUs" in described


async def test_users_and_namespaces_count_shares_apart_from_gpus(run: CommandLine) -> None:
    marks = {"nvidia.com/gpu.replicas": "5", "nvidia.com/gpu.count": "2"}
    nodes = [offering("s1", marks, nvidia__gpu="10"), offering("w1", nvidia__gpu="8")]
    pods = [has_pod("eval", "s1", nvidia__gpu="4"), has_pod("fit", "w1", nvidia__gpu="2")]
    serve(run.cluster, nodes, pods)
    ended = await run("top", "users")
    lines = [" ".join(line.split()) for line in ended.out.splitlines()]
    assert "default 6 jobs – 2 + 4 shares 33 + 4 shares –" in lines
    assert "default eval default 4 shares 4 shares –" in lines
    assert "default fit default 2 2 –" in lines
    users = (await run("top", "users", "-o", "json")).values["items"]
    user = next(each for each in users if each["user"] == "default")
    assert (user["gpus_held"], user["gpus_requested"], user["shares_held"]) == (6, 37, 4)
    assert user["message"].startswith("Hi default, your 2 jobs (eval, fit) hold 2 GPUs and 4 shares; ")
    assert [each["shares_held"] for each in user["jobs"][:2]] == [4, 0]
    node_rows, jobs = joined(nodes, pods, [])
    (place,) = namespace_usages([], jobs.values(), node_rows.values(), [])
    assert (place.gpus_held, place.shares_held) == (6, 4)
    assert total_usage([place]).shares_held == 4
    totals = format_totals(ClusterSnapshot(jobs=tuple(jobs.values()), nodes=tuple(node_rows.values())))
    assert totals == "Σ 2 jobs · 2 GPUs and 4 shares held · 0 requested and waiting"


async def test_gpus_on_tainted_or_cordoned_nodes_are_not_counted_as_available(run: CommandLine) -> None:
    tainted, of_gpus, cordoned = (offering(name, nvidia__gpu="3") for name in ("n1", "n2", "n3"))
    tainted["spec"]["taints"] = [{"key": "team", "value": "nlp", "effect": "NoSchedule"}]
    serve(run.cluster, [tainted], [])
    out = (await run("top", "nodes")).out
    assert "Ready, tainted" in out
    assert "0/3 (0 %); none can be had now, 3 more by tolerating a taint" in out
    of_gpus["spec"]["taints"] = [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]
    cordoned["spec"]["unschedulable"] = True
    serve(run.cluster, [tainted, of_gpus, cordoned], [])
    out = (await run("top", "nodes")).out
    assert "0/9 (0 %); 3 can be had now, at most 3 on one node, 3 more by tolerating a taint" in out


async def test_gpu_model_and_memory_are_read_from_node_labels(run: CommandLine) -> None:
    labels = {"amd.com/gpu.product-name": "MI300X", "amd.com/gpu.vram": "192G"}
    serve(run.cluster, [offering("a1", labels, amd__gpu="8")], [])
    ended = await run("top", "nodes", "-o", "wide")
    assert {"MI300X", "192G", "exclusive"} < set(ended.row("a1"))


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
@pytest.mark.parametrize("may_read_slices", [True, False])
async def test_devices_allocated_by_resource_claims_are_counted_on_servers_with_dra(
    run: CommandLine, version: str, may_read_slices: bool
) -> None:
    serve(run.cluster, [offering("n1")], [has_pod("a", "n1")])
    offered = {"driver": "gpu.nvidia.com", "nodeName": "n1", "devices": [{"name": "g0"}, {"name": "g1"}]}
    given = {"results": [{"driver": "gpu.nvidia.com", "pool": "n1", "device": "g1"}]}
    used = {"allocation": {"devices": given}, "reservedFor": [{"resource": "pods", "uid": "a"}]}
    api = f"resource.k8s.io/{version}"
    say_groups(run.cluster, resource_k8s_io=[version])
    run.cluster.say(f"/apis/{api}", holds("resourceclaims", "resourceslices"))
    claim = {"metadata": {"name": "c", "namespace": "default", "uid": "c"}, "status": used}
    run.cluster.say(f"/apis/{api}/resourceclaims", page([claim]))
    slices = page([{"metadata": {"name": "s", "uid": "s"}, "spec": offered}])
    run.cluster.say(
        f"/apis/{api}/resourceslices", slices if may_read_slices else refusal(403, "no", "Forbidden")
    )
    found = (await run("top", "nodes", "-o", "json")).values
    (row,) = found["items"]
    total = 2 if may_read_slices else 1
    assert row["resources"] == {"gpu.nvidia.com": {"total": total, "allocated": 1, "unhealthy": 0}}
    assert row["mode"] == "dra"
    jobs = (await run("top", "jobs", "-o", "json")).values
    assert jobs["gpus_allocated"] == 1


async def test_a_resource_named_in_the_settings_counts_as_an_accelerator(run: CommandLine) -> None:
    serve(run.cluster, [offering("n1", example__npu_v2="4")], [has_pod("a", "n1", example__npu_v2="1")])
    assert (await run("top", "nodes", "-o", "json")).values["gpus_total"] == 0
    folder = run.home / "config/gpuconsole"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("accelerators:\n- example.com/npu-*\ncolour: red\n")
    ended = await run("top", "nodes", "-o", "json")
    assert (ended.values["gpus_total"], ended.values["gpus_allocated"]) == (4, 1)
    assert ended.err == f"{folder / 'config.yaml'}: unknown setting colour (line 3)\n"
    assert (await run("info", "-o", "json")).values["files"]["settings"] == str(folder / "config.yaml")


async def test_a_command_warns_of_invalid_settings_and_goes_on(run: CommandLine) -> None:
    folder = run.home / "config/gpuconsole"
    folder.mkdir(parents=True)
    path = folder / "config.yaml"
    path.write_text("\naccelerators: all\ncolumns:\n  jobs: [name, colour, status]\n  pod: [name]\n")
    ended = await run("list", "-o", "wide")
    assert ended.status == 0 and ended.titles() == ["NAME", "STATUS"]
    starts = (
        "2, accelerators: a list of",
        "4, columns: there is no column colour",
        "5, columns: there is no list pod",
    )
    for line, start in zip(ended.err.splitlines(), starts, strict=True):
        assert line.startswith(f"{path}, line {start}")
    assert (await run("wait", "running", "--for=running")).status == 0


def bert() -> tuple[Object, Object]:
    """Return a job in namespace vision whose one pod holds GPU 0 of n1, as the fixtures say."""
    job = pytorch_job("bert", gpus=1, namespace="vision")
    return job, pod_of(job, "master-0", on="n1", gpus=1)


def serve_exporters(cluster: ScriptedCluster, **exporters: Reply) -> None:
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


async def test_top_nodes_live_prints_each_gpus_metrics_source_and_age(run: CommandLine) -> None:
    serve_exporters(run.cluster, n1=text(), n2=refusal(503, "error trying to reach service"))
    usage = {"cpu": "12500m", "memory": "100Gi"}
    run.cluster.say(f"{METRICS}/nodes", page([{"metadata": {"name": "n1"}, "usage": usage}]))
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


async def test_json_has_live_measurements_next_to_allocations(run: CommandLine) -> None:
    serve_exporters(run.cluster, n1=text("optional-fields"), n2=text("mig"))
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


async def test_top_jobs_live_prints_each_rank_with_its_gpu(run: CommandLine) -> None:
    serve_exporters(run.cluster, n1=text("optional-fields"), n2=text())
    assert "bert" in (await run("top", "jobs", "-A")).out
    printed = await run("top", "jobs", "-A", "--live")
    lines = [" ".join(line.split()) for line in printed.out.splitlines()]
    assert lines[0] == "NAMESPACE JOB RANK INSTANCE NODE GPU UTIL MEMORY POWER TEMP SOURCE AGE NOTE"
    assert lines[1] == "vision bert 0 master-0 n1 – – – – – – – DCGM does not say whose GPUs these are."
    serve_exporters(run.cluster, n1=text(), n2=text())
    printed = await run("top", "jobs", "-A", "--live")
    assert " ".join(printed.row("vision")).startswith(
        "vision bert 0 master-0 n1 0 98% 71G/80G 387W 64C DCGM "
    )
    (item,) = (await run("top", "jobs", "-A", "--live", "-o", "json")).values["items"]
    (rank,) = item["live"]["ranks"]
    assert (rank["rank"], rank["node"], rank["gpu"]["index"], rank["is_assumed"]) == (0, "n1", 0, False)


@pytest.mark.parametrize("is_set", [True, False])
async def test_the_configured_prometheus_is_queried(run: CommandLine, is_set: bool) -> None:
    serve_exporters(run.cluster, n1=refusal(503, "dead"))
    path = "/api/v1/namespaces/obs/services/thanos:9090/proxy/api/v1/query"
    run.cluster.say(path, answering(read_at=vector(({**BUSY, "Hostname": "n1"}, 55))))
    config = Path(run.home) / "config" / "gpuconsole" / "config.yaml"
    if is_set:
        config.parent.mkdir(parents=True)
        config.write_text("prometheus: obs/thanos:9090\n")
    printed = await run("top", "nodes", "--live")
    assert ("55%" in printed.out and "Prometheus" in printed.out) is is_set
    assert bool(run.cluster.asked(path)) is is_set


async def test_without_a_job_that_holds_gpus_there_is_nothing_to_measure(run: CommandLine) -> None:
    serve_exporters(run.cluster, n1=text())
    run.cluster.forget(PODS)
    say_pods(run.cluster, *cluster_pods({"n1": text()}))
    printed = await run("top", "jobs", "-A", "--live")
    assert (printed.status, printed.out) == (0, "No running job holds GPUs.\n")
    assert proxied(run.cluster) == []


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


async def test_top_users_prints_jobs_and_currently_idle_gpus_of_each_user(run: CommandLine) -> None:
    lab(run.cluster, told(1, 97))
    ended = await run("top", "users")
    assert ended.status == 0 and ended.err == ""
    assert ended.row("li") == ["li", "1", "job", "–", "2", "2", "1", "of", "2"]
    assert ended.row("maria") == ["maria", "1", "job", "–", "0", "4", "–"]
    assert any(line.split()[:3] == ["li", "bert", "default"] for line in ended.out.splitlines())
    said = "Hi li, your 1 job (bert) holds 2 GPUs; 1 of 2 seen are idle now (below 5 % utilisation). "
    assert ended.out.splitlines()[-1] == f"{said}Do they still need them?"


async def test_top_users_gives_sources_and_a_message_in_json(run: CommandLine) -> None:
    lab(run.cluster, told(1, 97))
    ended = await run("top", "users", "-o", "json")
    li, maria = ended.values["items"]
    assert (li["user"], li["gpus_held"], li["gpus_requested"], li["gpus_idle"]) == ("li", 2, 2, 1)
    assert ended.values["sources"] == ["DCGM"] and [each["name"] for each in li["jobs"]] == ["bert"]
    assert maria["gpus_idle"] is None
    assert li["message"].startswith("Hi li, your 1 job (bert) holds 2 GPUs; 1 of 2 seen are idle now")
    (await run("top", "users", "--observe", "1s")).reports(2, "--observe is gone: use top users --since 7d,")


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
async def test_without_telemetry_idle_gpus_are_unknown_and_stderr_gives_the_reason(
    run: CommandLine, exporter: Reply | None, words: str
) -> None:
    lab(run.cluster, exporter)
    ended = await run("top", "users")
    assert ended.status == 0 and words in ended.err and len(ended.err.splitlines()) == 1
    assert ended.row("li") == ["li", "1", "job", "–", "2", "2", "–"]
    assert "Hi li" not in ended.out
    values = (await run("top", "users", "-o", "json")).values
    assert values["items"][0]["gpus_idle"] is None
    assert words in values["notices"][0]


NOW_S = 1_800_003_600.0


@pytest.fixture
def ledger(run: CommandLine, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """Return the command line of a user in whose journal half of the last two hours was observed."""
    monkeypatch.setattr("tui.commands.top_users.time.time", lambda: NOW_S)
    journal = RunStore(run.home / "state" / "gpuconsole").journal
    record_spans(journal, (NOW_S - 5400, NOW_S - 1800))
    ran, waited = [(NOW_S - 6000, 8, 0)], [(NOW_S - 5400, 0, 2), (NOW_S - 1850, 0, 0)]
    for uid, name, more in (("u1", "bert", {}), ("u2", "bert", {}), ("u3", "vit\x1b[2J", {"kind": "Job"})):
        record_job(journal, uid, ran if uid != "u2" else waited, name=name, **more)
    record_job(journal, "u4", [(NOW_S - 2160, 1, 0)], user="=maria", namespace="vision")
    record_job(journal, "u5", ran, context="other")
    journal.write(("INSERT INTO idle VALUES (1, ?, 'console 1', 7200, 1800)", NOW_S - 3600))
    journal.close()
    return run


async def test_top_users_since_prints_the_ledger_without_a_cluster(ledger: CommandLine) -> None:
    ledger.cluster.forget("/version")
    ended = await ledger("top", "users", "-A", "--since", "2h")
    assert (ended.status, ended.err, ledger.cluster.requests) == (0, "", [])
    titles = ["USER", "JOB", "NAMESPACE", "KIND", "GPU-HOURS", "WAITED", "IDLE", "OBSERVED"]
    rows = [line.split() for line in ended.out.splitlines()]
    assert rows[0] == titles
    assert [" ".join(row[:-1]) for row in rows[1:5]] == [
        "li 3 jobs – – 16.00 59m 0.50 of 2.00 50",
        "li bert default PyTorchJob 8.00 0s 0.50 of 2.00 50",
        "li vit default Job 8.00 0s – 50",
        "li bert default PyTorchJob 0.00 59m – 50",
    ]
    assert ended.out.splitlines()[-1].startswith(
        "2 users, 4 jobs: 16.10 GPU-hours (PyTorchJob 8.10, Job 8.00), 59m waited; 50 % of the time since "
    )


async def test_the_ledger_has_hours_in_json_and_a_row_for_each_job_in_csv(ledger: CommandLine) -> None:
    found = (await ledger("top", "users", "-A", "--since", "2h", "-o", "json")).values
    li, maria = found["items"]
    assert found["since"] == "2027-01-15T07:00:00Z" and found["until"] == "2027-01-15T09:00:00Z"
    assert found["kinds"] == {"PyTorchJob": 8.1, "Job": 8.0}
    assert (li["gpu_hours"], li["kinds"], li["gpu_hours_idle"]) == (16, {"Job": 8, "PyTorchJob": 8}, 0.5)
    assert "uid" not in li and maria["gpu_hours"] == 0.1 and maria["gpu_hours_idle"] is None
    assert li["jobs"][2] == {
        "user": "li",
        "namespace": "default",
        "name": "bert",
        "kind": "PyTorchJob",
        "uid": "u2",
        "gpu_hours": 0.0,
        "hours_waited": 0.9861,
        "gpu_hours_waited": 1.9722,
        "observed_share": 0.5,
        "gpu_hours_with_telemetry": 0.0,
        "gpu_hours_idle": None,
    }
    first, *rows = (await ledger("top", "users", "-A", "--since", "2h", "-o", "csv")).out.splitlines()
    assert first.startswith("user,namespace,name,kind,gpu_hours,hours_waited,gpu_hours_waited,")
    assert rows[0] == "li,default,bert,PyTorchJob,8.0,0.0,0.0,2.0,0.5,0.5,u1" and len(rows) == 4
    assert rows[3].startswith("'=maria,vision,bert,PyTorchJob,0.1,")


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["--since", "20m"], 0, "Nothing was recorded of recorded in namespace default since 20"),
        (["--since", "20m", "-A"], 0, "To record: gpuconsole record, or leave the console open."),
        (["--since", "2h", "-n", "audio"], 0, "No job held a GPU or waited for one in namespace audio while"),
        (
            ["--since", "2h", "--sandbox"],
            0,
            "To record: gpuconsole --sandbox record, or leave the console open.",
        ),
        (["--since", "0s"], 2, "--since must be longer than 0s, e.g. 7d."),
        (["--since", "week"], 2, "'week' is not a duration such as 90s, 10m, 1h30m"),
        (["--since", "2h", "--context", "no"], 1, "There is no context no."),
    ],
)
async def test_an_empty_ledger_gives_the_reason(
    ledger: CommandLine, words: list[str], status: int, said: str
) -> None:
    (await ledger("top", "users", *words)).reports(status, said)


async def test_the_ledger_of_all_time_begins_in_1970(ledger: CommandLine) -> None:
    found = (await ledger("top", "users", "--since", "999999999d", "-o", "json")).values
    assert (found["since"], found["items"][0]["gpu_hours"]) == ("1970-01-01T00:00:00Z", 16)


async def test_a_journal_that_cannot_be_read_is_an_error_of_the_ledger(ledger: CommandLine) -> None:
    with sqlite3.connect(ledger.home / "state" / "gpuconsole" / JOURNAL_FILE) as other:
        other.execute("PRAGMA user_version = 99")
    other.close()
    ended = await ledger("top", "users", "--since", "2h")
    ended.reports(1, "Could not read the journal.", "newer gpuconsole")


async def test_jobs_of_users_are_also_printed_as_csv(run: CommandLine) -> None:
    lab(run.cluster, told(1, 97))
    lines = (await run("top", "users", "-o", "csv")).out.splitlines()
    assert lines[0].startswith("user,namespace,name,kind,gpus_held,") and len(lines) == 3
    assert lines[1].startswith("li,default,bert,PyTorchJob,2,")


async def test_the_why_command_reports_gpu_warnings_of_a_running_job(run: CommandLine) -> None:
    lab(run.cluster, Answer(XID.encode(), headers=PLAIN))
    run.cluster.say("/apis/kubeflow.org/v1/namespaces/default/pytorchjobs/bert", Answer(BERT))
    run.cluster.say(
        "/api/v1/namespaces/default/pods/bert-master-0", Answer(pod_of(BERT, "master-0", on="a", gpus=2))
    )
    ended = await run("why", "bert")
    assert "It runs: 1 of 1 pod; 1 GPU warning, see below." in ended.out
    assert "gpu: GPU 0 of a: Last XID 79: the GPU has fallen off the bus." in ended.out
    assert "have the node drained" in ended.out
