"""The new-job screen: names in the cluster are suggested, and anything else may be typed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.scripted.server import Answer, ScriptedCluster, page, refusal
from tests.tui.screens.new_job.world import CLAIMS, SNAPSHOT, Form, form
from tui.draft.form_choices import KEYS, fetch_all, fetch_choices, fetch_node_labels, snapshot_choices
from tui.screens.documents.form_requests import kind_choices

PATHS = {
    "namespace": "/api/v1/namespaces",
    "claim": CLAIMS,
    "priority_class": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "queue": "/apis/kueue.x-k8s.io/v1beta1/namespaces/vision/localqueues",
    "pull_secrets": "/api/v1/namespaces/vision/secrets",
    "runtime": "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes",
}
CLAIM: dict[str, Any] = {
    "metadata": {"name": "fast"},
    "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Ti"}}},
    "status": {"phase": "Pending"},
}


def listed(it: Form, key: str) -> list[str]:
    """Return the lines below a field."""
    return [line.strip() for line, _ in it.field(key).suggestions.lines(80)]


def is_listed(it: Form, key: str) -> bool:
    return it.field(key).suggestions.is_open


@pytest.mark.slow
async def test_suggestions_are_filtered_and_applied_only_when_selected(tmp_path: Path) -> None:
    claims = page([CLAIM, {"metadata": {"name": "workspace"}}, {"metadata": {"name": "old-data"}}])
    async with form(tmp_path, claims=claims) as it:
        assert it.field("claim").value == "workspace"
        assert not it.screen.model.is_dirty
        await it.write("claim", "")
        assert "no volume claim" in it.summary
        assert it.text_of("#help").endswith("; space lists what there is")
        await it.pilot.press("f")
        assert listed(it, "claim") == ["fast  RWX  1Ti  Pending"]
        await it.pilot.press("down", "enter")
        assert (it.field("claim").value, it.focused_key) == ("fast", "claim")
        assert not is_listed(it, "claim")
        assert it.screen.model.values["claim"] == "fast"
        await it.pilot.press("enter")
        assert it.focused_key == "mount_path"

        await it.write("claim", "")
        await it.pilot.press("d", "a", "tab")
        assert it.field("claim").value == "da"
        assert it.focused_key == "mount_path" and not is_listed(it, "claim")
        await it.write("claim", "")
        await it.pilot.press("o", "l", "escape")
        assert it.app.screen is it.screen and not is_listed(it, "claim")
        await it.write("claim", "")
        await it.pilot.press("d", "down", "up", "up")
        assert it.field("claim").value == "d"

        await it.write("claim", "")
        await it.pilot.press("space")
        assert listed(it, "claim") == ["workspace", "fast  RWX  1Ti  Pending", "old-data"]
        await it.pilot.press("escape", "down")
        assert it.focused_key != "claim", "the arrows leave a closed list alone"

        await it.unfold("more_volumes")
        await it.pilot.press("f", "a", "down", "enter")
        assert it.screen.model.values["more_volumes"] == "fast:/fast"
        await it.pilot.press("enter", "o", "l", "down", "enter")
        mounts = it.screen.model.result.spec.mounts
        assert [(each.claim, each.path) for each in mounts] == [("fast", "/fast"), ("old-data", "/old-data")]


@pytest.mark.slow
async def test_labels_and_nodes_are_suggested_in_fields_that_open_later(tmp_path: Path) -> None:
    async with form(tmp_path) as it:
        nodes = [{"metadata": {"name": "n", "labels": {"gpu": "a100", "zone": "b"}}}]
        it.cluster.say("/api/v1/nodes", page(nodes))
        await it.unfold("node_selector")
        await it.cluster.until_asked("/api/v1/nodes")
        await it.until(lambda: it.is_idle("labels"))
        await it.pilot.press("z", "o", "down", "enter")
        assert it.screen.model.values["node_selector"] == "zone=b"
        await it.pilot.press("enter", "g", "down", "enter")
        assert it.screen.model.result.spec.node_selector == {"zone": "b", "gpu": "a100"}
        await it.unfold("excluded_nodes")
        await it.pilot.press("space")
        assert listed(it, "excluded_nodes") == ["a100-1  6 free, Ready"]


@pytest.mark.slow
async def test_another_namespace_has_other_claims(tmp_path: Path) -> None:
    async with form(tmp_path) as it:
        await it.until(lambda: it.field("claim").value == "workspace")
        it.cluster.say("/api/v1/namespaces/nlp/persistentvolumeclaims", page([]))
        await it.write("namespace", "nlp")
        await it.go("image")
        await it.until(lambda: it.field("claim").value == "")
        await it.write("namespace", "vision")
        await it.go("image")
        await it.until(lambda: it.field("claim").value == "workspace")

        there = "/api/v1/namespaces/speech/persistentvolumeclaims"
        it.cluster.say(there, page([{"metadata": {"name": "audio"}}]))
        await it.write("claim", "data")
        await it.write("namespace", "speech")
        await it.pilot.press("tab")
        await it.cluster.until_asked(there)
        await it.settled()
        assert "volume claim data, which does not exist in speech" in it.summary
        await it.write("claim", "")
        await it.pilot.press("space", "down", "enter")
        assert it.field("claim").value == "audio"


async def test_runtimes_of_the_cluster_and_of_the_namespace_are_offered() -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        of_torch = {"name": "a", "labels": {"trainer.kubeflow.org/framework": "torch"}}
        refused = refusal(403, "not for li", "Forbidden")
        cluster.say(PATHS["runtime"], page([{"metadata": of_torch}]), refused)
        ours = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/vision/trainingruntimes"
        cluster.say(ours, page([{"metadata": {"name": "b"}}]))
        found = await fetch_choices(client, "runtime", "vision")
        assert found.options == (("a", "torch"), ("trainingruntime/b", ""))
        found = await fetch_choices(client, "runtime", "vision")
        assert found.options == (("trainingruntime/b", ""),) and found.problem == ""


async def test_a_forbidden_list_has_no_options_and_its_error_is_reported() -> None:
    for key in KEYS:
        async with ScriptedCluster() as cluster, cluster.client() as client:
            refused = refusal(403, "li cannot list these", "Forbidden")
            for each, path in PATHS.items():
                cluster.say(path, refused if each == key else page([{"metadata": {"name": "x"}}]))
            found = await fetch_all(client, "vision")
            assert found[key].options == () and "li cannot list these" in found[key].problem
            assert found[key].problem.startswith("Cannot list ")
            assert {name for name, each in found.items() if each.problem} == {key}
            asked = cluster.asked(PATHS["pull_secrets"])[0]
            assert asked.query["fieldSelector"] == "type=kubernetes.io/dockerconfigjson"


async def test_an_unserved_kind_has_no_options_and_reports_no_error() -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        for key, path in PATHS.items():
            missing = refusal(404, "not found", "NotFound")
            cluster.say(path, missing if key == "queue" else Answer({"items": [{}]}))
        found = await fetch_all(client, "vision")
        assert found["queue"].problem == "" and found["claim"].options == (("", ""),)
        cluster.say("/api/v1/nodes", refusal(403, "no nodes for li", "Forbidden"))
        assert "no nodes for li" in (await fetch_node_labels(client)).problem


def test_gpu_and_node_options_show_free_gpus() -> None:
    node = replace(SNAPSHOT.nodes[0], gpu_model="A100")
    found = snapshot_choices(replace(SNAPSHOT, nodes=(node,)))
    assert found["gpu_resource"].options == (("nvidia.com/gpu", "6 of 8 free, A100"),)
    assert found["excluded_nodes"].options == (("a100-1", "A100, 6 free, Ready"),)


def test_kinds_that_the_server_does_not_know_are_marked() -> None:
    choices = dict(kind_choices(replace(SNAPSHOT, kinds=("PyTorchJob", "Job"))))
    assert choices["PyTorchJob"] == "PyTorchJob  kubeflow.org/v1"
    assert choices["MPIJob"].endswith("  not served here")
    assert not any("served" in words for _, words in kind_choices(SNAPSHOT))
