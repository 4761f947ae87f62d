"""`top`, `list`, `get`, `events`, `data list` and `info` on a recorded cluster, number by number."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml

from tests.scripted.server import Answer, Asked, Compute, Reply, page, refusal
from tests.support.objects import pod_of, pytorch_job
from tests.tui.commands.conftest import CommandLine

NODES = {
    # name: status, resource, total, allocated, unhealthy
    "gpu-node-0": ("Ready", "nvidia.com/gpu", 8, 8, 0),
    "gpu-node-1": ("NotReady", "nvidia.com/gpu", 7, 7, 1),
    "gpu-node-2": ("NotReady, cordoned", "nvidia.com/mig-1g.10gb", 14, 0, 0),
}
JOBS = {
    # name: status, requested, allocated
    "done": ("Succeeded", 1, 0),
    "fails": ("Failed", 1, 0),
    "restarts": ("Restarting", 1, 1),
    "running": ("Running", 2, 2),
    "too-big": ("Pending", 16, 0),
    "waits": ("Pending", 12, 8),
    "pytorch-dist": ("Pending", 3, 2),
    "pytorch-dist-git": ("Unknown", 2, 2),
}
LIST_KEYS = (
    "namespace name kind api_version status reason gpus_requested gpus_allocated instances_running "
    "instances_total nodes user priority age_s queued_s duration_s silent silent_s loss created"
)


async def test_list_json_has_the_silence_and_last_loss_of_each_running_job(run: CommandLine) -> None:
    def log(asked: Asked) -> Answer:
        began = datetime.now(UTC) - timedelta(seconds=220)
        at = [(began + timedelta(seconds=2 * step)).isoformat().replace("+00:00", "Z") for step in range(11)]
        return Answer("".join(f"{each} step {step} loss 2.25\n" for step, each in enumerate(at)).encode())

    for name in ("running-master-0", "running-worker-0", "done-master-0", "done"):
        run.cluster.say(f"/api/v1/namespaces/default/pods/{name}/log", Compute(log))
    found = {job["name"]: job for job in (await run("list", "-o", "json")).values["items"]}
    assert 200 <= found["running"]["silent_s"] < 260 and found["running"]["loss"] == 2.25
    assert found["running"]["silent"] and found["running"]["reason"].startswith("no line for 3m")
    assert (
        found["waits"]["silent_s"] is None and not found["waits"]["silent"] and found["waits"]["loss"] is None
    )
    assert found["done"]["silent_s"] is None


async def test_top_nodes_json_has_all_gpu_numbers_of_the_recorded_nodes(run: CommandLine) -> None:
    ended = await run("top", "nodes", "-o", "json")
    assert ended.status == 0
    found = ended.values
    assert (found["gpus_total"], found["gpus_allocated"]) == (29, 15)
    seen = {}
    for node in found["items"]:
        ((resource, share),) = node["resources"].items()
        shares = (share["total"], share["allocated"], share["unhealthy"])
        seen[node["name"]] = (node["status"], resource, *shares)
        assert {"ip", "roles", "gpu_model", "gpus_total", "gpus_allocated", "gpus_unhealthy"} < node.keys()
        assert sum(holder["gpus"] for holder in node["holders"]) == node["gpus_allocated"]
        assert all(holder.keys() >= {"namespace", "pod", "job", "gpus"} for holder in node["holders"])
    assert seen == NODES


async def test_top_nodes_prints_a_row_for_each_node_and_the_line_of_the_cluster(run: CommandLine) -> None:
    ended = await run("top", "nodes")
    assert ended.row("gpu-node-0")[-3:] == ["8", "8", "0"]
    assert ended.row("gpu-node-1")[-3:] == ["7", "7", "1"]
    assert ended.row("gpu-node-2")[-3:] == ["14", "0", "0"]
    assert ended.out.endswith(
        "in cluster: 15/15 (100 %) and 0/14 (0 %) shares of 2 GPUs; none can be had now\n"
    )
    assert ended.err == ""


async def test_top_nodes_wide_shows_the_jobs_that_hold_each_node(run: CommandLine) -> None:
    ended = await run("top", "nodes", "-o", "wide")
    assert "waits 4, running 2" in ended.out
    assert "HELD BY" not in (await run("top", "nodes")).out


async def test_numbers_are_right_aligned_in_tables(run: CommandLine) -> None:
    lines = (await run("top", "jobs")).out.splitlines()
    ends = {line.index("PyTorchJob") for line in lines[1:9]}
    assert len(ends) == 1
    edge = lines[0].index("GPU(Requested)") + len("GPU(Requested)")
    assert [line[:edge].split()[-1] for line in lines[1:4]] == ["16", "12", "3"]


async def test_top_jobs_gpu_total_equals_the_total_of_the_nodes(run: CommandLine) -> None:
    found = (await run("top", "jobs", "-o", "json")).values
    assert "partial" not in found
    assert found["gpus_allocated"] == 15 == sum(job["gpus_allocated"] for job in found["items"])
    assert found["gpus_requested"] == 36
    assert [job["gpus_requested"] for job in found["items"]] == [16, 12, 3, 2, 2, 1, 1, 1]
    ended = await run("top", "jobs")
    assert ended.out.endswith("Allocated/Requested GPUs of unfinished jobs: 15/36 (41 %)\n")


async def test_top_jobs_shows_ages_and_the_gpus_excluded_from_its_total(run: CommandLine) -> None:
    for words in ((), ("-o", "wide")):
        ended = await run("top", "jobs", *words)
        assert "AGE" in ended.titles()
        assert "\nNot in the total: 2 GPUs of finished jobs.\n" in ended.out


async def test_list_json_has_all_numbers_of_the_recorded_jobs(run: CommandLine) -> None:
    found = (await run("list", "-o", "json")).values
    seen = {
        job["name"]: (job["status"], job["gpus_requested"], job["gpus_allocated"]) for job in found["items"]
    }
    assert seen == JOBS
    assert all(set(LIST_KEYS.split()) <= job.keys() for job in found["items"])
    done = next(job for job in found["items"] if job["name"] == "done")
    assert (done["queued_s"], done["duration_s"], done["created"]) == (0, 5, "2026-11-20T18:36:05Z")
    waits = next(job for job in found["items"] if job["name"] == "waits")
    assert (waits["instances_running"], waits["instances_total"]) == (1, 3)
    assert waits["nodes"] == ["gpu-node-0", "gpu-node-1"]


async def test_yaml_and_json_output_are_equivalent(run: CommandLine) -> None:
    as_json = (await run("list", "-o", "json")).values
    as_yaml: Any = yaml.safe_load((await run("list", "-o", "yaml")).out)
    ages = [job.pop("age_s") for job in as_json["items"]] + [job.pop("age_s") for job in as_yaml["items"]]
    items = as_json["items"] + as_yaml["items"]
    spans = [job.pop(key) for job in items for key in ("queued_s", "duration_s")]
    assert ages and spans
    assert as_yaml == as_json


async def test_all_namespaces_have_a_column_of_their_own(run: CommandLine) -> None:
    assert (await run("list", "-A")).titles()[:2] == ["NAMESPACE", "NAME"]
    assert (await run("list")).titles()[0] == "NAME"


async def test_global_flags_are_accepted_before_and_after_the_command(run: CommandLine) -> None:
    before = await run("-n", "vision", "list")
    after = await run("list", "-n", "vision")
    assert before == after
    assert (before.status, before.out, before.err) == (0, "", "No jobs in namespace vision.\n")


async def test_list_json_without_jobs_is_an_empty_items_list(run: CommandLine) -> None:
    ended = await run("list", "-n", "vision", "-o", "json")
    assert ended.values == {"items": []}
    assert ended.err == ""


async def test_get_shows_one_job_with_its_instances(run: CommandLine) -> None:
    run.cluster.forget("/api/v1/namespaces/default/services")
    found = (await run("get", "waits", "-o", "json")).values
    assert set(LIST_KEYS.split()) | {"instances", "conditions", "tensorboard"} <= found.keys()
    keys = "name role index is_chief ranks ranks_proof status reason gpus node restarts age_s"
    assert all(set(keys.split()) <= each.keys() for each in found["instances"])
    seen = [(each["name"], each["status"], each["node"], each["gpus"]) for each in found["instances"]]
    assert seen == [
        ("master-0", "Running", "gpu-node-0", 4),
        ("worker-0", "Unknown", "gpu-node-1", 4),
        ("worker-1", "Pending", "", 4),
    ]
    assert found["tensorboard"] is None
    assert [each["type"] for each in found["conditions"]] == ["Created", "Running"]
    printed = await run("get", "waits")
    assert "12 requested, 8 allocated" in printed.out
    assert printed.row("worker-1")[1] == "Pending"


async def test_get_finds_the_tensorboard_that_arena_started(run: CommandLine) -> None:
    found = (await run("get", "pytorch-dist", "-o", "json")).values
    assert found["tensorboard"] == "http://192.0.2.2:32199"


async def test_events_of_a_job_are_those_of_the_job_and_its_pods(run: CommandLine) -> None:
    found = (await run("events", "restarts", "-o", "json")).values["items"]
    assert {(each["kind"], each["name"]) for each in found} == {
        ("PyTorchJob", "restarts"),
        ("Pod", "restarts-master-0"),
    }
    assert found[0]["reason"] == "SuccessfulCreatePod"
    assert all(found[at]["at"] <= found[at + 1]["at"] for at in range(len(found) - 1))
    printed = await run("events", "restarts")
    assert printed.titles() == ["AGE", "TYPE", "ABOUT", "REASON", "COUNT", "MESSAGE"]
    assert {each["about"] for each in found} == {"job", "master-0"}
    ended = await run("events", "done")
    assert (ended.status, ended.out) == (0, "")
    assert ended.err.startswith("No events for PyTorchJob default/done")


async def test_data_list_shows_the_claims(run: CommandLine) -> None:
    (claim,) = (await run("data", "list", "-o", "json")).values["items"]
    assert (claim["name"], claim["size"], claim["status"]) == ("training-data", "10Gi", "Bound")
    assert claim["access_modes"] == ["ReadWriteMany"]
    assert (claim["owner"], claim["description"]) == ("li", "MNIST and logs")
    assert (await run("data", "list")).row("training-data")[1:4] == ["RWX", "10Gi", "Bound"]


async def test_info_shows_cluster_files_versions_and_the_users_permissions(run: CommandLine) -> None:
    def review(asked: Asked) -> Reply:
        return Answer({"status": {"allowed": b'"delete"' not in asked.body}}, 201)

    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    run.cluster.say(path, Compute(review), method="POST")
    found = (await run("info", "--json")).values
    assert found["cluster"]["context"] == "recorded"
    assert found["cluster"]["server_version"].startswith("v1.36")
    assert found["cluster"]["may"]["pytorchjobs"] == {"list": True, "create": True, "delete": False}
    assert found["files"]["keys"] == str(run.home / "config/gpuconsole/keys.yaml")
    assert found["versions"]["gpuconsole"]
    printed = await run("info")
    assert "may list, may create, may not delete" in printed.out
    assert "secret-token" not in printed.out + printed.err


async def test_info_skips_access_reviews_for_verbs_that_the_users_rules_exclude(run: CommandLine) -> None:
    reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    rules = [{"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]}]
    status = {"resourceRules": rules, "nonResourceRules": [], "incomplete": False}
    run.cluster.say(reviews.replace("access", "rules"), Answer({"status": status}, 201), method="POST")
    run.cluster.say(reviews, Answer({"status": {"allowed": True}}, 201), method="POST")
    may = (await run("info", "-o", "json")).values["cluster"]["may"]
    assert may["pods"] == {"list": True} and may["nodes"] == {"list": False}
    assert may["pytorchjobs"] == {"list": False, "create": False, "delete": False}
    assert len(run.cluster.asked(reviews, method="POST")) == 1


async def test_info_works_without_a_cluster(alone: CommandLine) -> None:
    ended = await alone("info")
    assert ended.status == 0
    assert "There is no kubeconfig" in ended.out


async def test_without_node_permission_jobs_are_complete_and_gpus_are_counted_from_pods(
    run: CommandLine,
) -> None:
    run.cluster.forget("/api/v1/nodes")
    words = 'nodes is forbidden: User "li" cannot list resource "nodes"'
    run.cluster.say("/api/v1/nodes", refusal(403, words, "Forbidden"))
    ended = await run("list")
    assert (ended.status, ended.err) == (0, "")
    assert ended.row("running")[4:6] == ["2", "2"]
    nodes = await run("top", "nodes")
    assert nodes.status == 0
    assert nodes.row("gpu-node-0")[-3:] == ["?", "8", "?"]
    assert "Allocated/Total GPUs on the nodes of pods that this user sees: 15/?" in nodes.out
    assert nodes.err == "Not shown: nodes; you may not list them.\n"
    found = (await run("top", "nodes", "-o", "json")).values
    assert (found["is_partial"], found["partial"]) == (True, ["nodes"])


async def test_a_user_of_one_namespace_without_jobs_gets_an_empty_list(run: CommandLine) -> None:
    for group in ("kubeflow.org/v1/{}pytorchjobs", "batch/v1/{}jobs"):
        run.cluster.forget("/apis/" + group.format(""))
        run.cluster.say("/apis/" + group.format(""), refusal(403, "not at the cluster scope", "Forbidden"))
        run.cluster.say("/apis/" + group.format("namespaces/default/"), page([]))
    run.cluster.forget("/api/v1/pods")
    run.cluster.say("/api/v1/pods", page([]))
    ended = await run("list")
    assert (ended.status, ended.out, ended.err) == (0, "", "No jobs in namespace default.\n")


@pytest.mark.parametrize(("ahead_s", "mark"), [(0.0, ""), (3600.0, "~")])
async def test_ages_are_marked_approximate_if_the_clusters_clock_differs(
    run: CommandLine, ahead_s: float, mark: str
) -> None:
    run.cluster.clock_ahead_s = ahead_s
    created = datetime.now(UTC) + timedelta(seconds=ahead_s - 630)
    meta = {"name": "b", "namespace": "default", "uid": "b"}
    meta["creationTimestamp"] = created.strftime("%Y-%m-%dT%H:%M:%SZ")
    run.cluster.forget("/apis/kubeflow.org/v1/pytorchjobs")
    run.cluster.say("/apis/kubeflow.org/v1/pytorchjobs", page([{"metadata": meta, "spec": {}}]))
    assert set((await run("list", "-o", "wide")).row("b")) & {f"{mark}10m", f"{mark}11m"}


def job_object(name: str, namespace: str, gpus: int, *, is_suspended: bool = False) -> dict[str, Any]:
    made = pytorch_job(name, namespace=namespace, gpus=gpus)
    made["spec"]["runPolicy"] = {"suspend": is_suspended}
    return made


async def test_top_jobs_excludes_suspended_jobs_from_requested_gpus(run: CommandLine) -> None:
    jobs = [job_object("waits", "default", 4), job_object("rests", "default", 2, is_suspended=True)]
    for path, items in (("/apis/kubeflow.org/v1/pytorchjobs", jobs), ("/api/v1/pods", [])):
        run.cluster.forget(path)
        run.cluster.say(path, page(items))
    found = (await run("top", "jobs", "-o", "json")).values
    assert [job["status"] for job in found["items"]] == ["Pending", "Suspended"]
    assert (found["gpus_allocated"], found["gpus_requested"]) == (0, found["items"][0]["gpus_requested"])


async def test_top_jobs_reports_gpus_still_held_by_finished_pods_and_jobs(run: CommandLine) -> None:
    half, failed = pytorch_job("half", workers=2, gpus=4), pytorch_job("failed", workers=2, gpus=1)
    failed["status"] = {"conditions": [{"type": "Failed", "status": "True"}]}
    pods = [
        pod_of(half, "master-0", on="n1", gpus=4),
        pod_of(half, "worker-0", on="n1", gpus=4, phase="Succeeded"),
        pod_of(failed, "worker-0", on="n1", gpus=1),
    ]
    for path, items in {
        "/apis/kubeflow.org/v1/pytorchjobs": [half, failed],
        "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs": [half, failed],
        "/api/v1/pods": pods,
        "/api/v1/namespaces/default/pods": pods,
    }.items():
        run.cluster.forget(path)
        run.cluster.say(path, page(items))
    assert (await run("top", "jobs")).out.endswith(
        "\nNot in the total: 4 GPUs of finished pods and 1 GPU of finished jobs.\n"
        "Allocated/Requested GPUs (1 GPU held by pods of finished jobs): 5/5 (100 %)\n"
    )
    values = (await run("top", "users", "-o", "json")).values
    assert [each["gpus_requested"] for each in values["items"]] == [5]
