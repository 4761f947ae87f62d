"""What `submit -f` says of the objects of a file before any of them is created."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from tests import FIXTURES
from tests.scripted.feed import say_kinds
from tests.scripted.server import Answer, Asked, Compute, Reply, ScriptedCluster, page, refusal
from tests.support.objects import batch_job, pytorch_job
from tests.tui.commands.conftest import CommandLine
from tests.tui.commands.submitting import BATCH_JOBS, PYTORCH_JOBS, echo

CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
SETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"
CLAIM: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "fresh"},
    "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
}
SET: dict[str, Any] = {
    "apiVersion": "jobset.x-k8s.io/v1alpha2",
    "kind": "JobSet",
    "metadata": {"name": "sweep"},
    "spec": {"replicatedJobs": "whatever this is"},
}


def job_with(gpus: int = 0, workers: int = 1, **pod: Any) -> dict[str, Any]:
    """Return a PyTorchJob as somebody writes it."""
    container: dict[str, Any] = {"name": "pytorch", "image": "x", "command": ["train"]}
    if gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": gpus}}
    if "volumes" in pod:
        container["volumeMounts"] = [{"name": each["name"], "mountPath": "/d"} for each in pod["volumes"]]
    template = {"spec": {"containers": [container], **pod}}
    roles: dict[str, Any] = {"Master": {"replicas": 1, "template": template}}
    if workers > 1:
        roles["Worker"] = {"replicas": workers - 1, "template": template}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "demo"},
        "spec": {"pytorchReplicaSpecs": roles},
    }


def on_claim(name: str) -> list[dict[str, Any]]:
    return [{"name": "d", "persistentVolumeClaim": {"claimName": name}}]


def written(run: CommandLine, *objects: dict[str, Any]) -> str:
    """Write objects into a file and return its path."""
    path = run.home / "job.yaml"
    path.write_text(yaml.safe_dump_all(objects))
    return str(path)


def created(cluster: ScriptedCluster, path: str) -> list[Any]:
    """Return what was created for good."""
    return [
        json.loads(each.body)
        for each in cluster.asked(path, method="POST")
        if each.query.get("dryRun") != "All"
    ]


MISSING = "would wait: volume claim nothing not found in default; choose one that exists, or create it"
NO_SECRET = "would wait: Secret nope not found in default; create it, or name one that exists"


@pytest.mark.parametrize(
    ("job", "said"),
    [
        (job_with(volumes=on_claim("nothing")), MISSING),
        (job_with(imagePullSecrets=[{"name": "nope"}]), NO_SECRET),
        (job_with(gpus=4, workers=2), "would wait: needs 2 × 4 GPUs; 0 of 15 GPUs free"),
        (job_with(volumes=on_claim("taken")), ""),
    ],
)
async def test_a_jobs_manifest_is_checked_as_flags_are(
    run: CommandLine, cluster: ScriptedCluster, job: dict[str, Any], said: str
) -> None:
    bound = {"metadata": {"name": "taken"}, "spec": {"accessModes": ["ReadWriteMany"]}}
    cluster.say(f"{CLAIMS}/taken", Answer({**bound, "status": {"phase": "Bound"}}))
    cluster.say(PYTORCH_JOBS, Compute(echo), method="POST")
    ended = await run("submit", "-f", written(run, job))
    assert (ended.status, ended.out) == (0, "PyTorchJob default/demo created.\n")
    assert ended.err == (f"Warning: {said}.\n" if said else "")


async def test_the_tutorials_file_is_told_of_its_claim(run: CommandLine, cluster: ScriptedCluster) -> None:
    cluster.say(
        "/apis/batch.tensorstack.dev/v1beta1/namespaces/default/pytorchtrainingjobs",
        Compute(echo),
        method="POST",
    )
    say_kinds(cluster, {"batch.tensorstack.dev/v1beta1": ["pytorchtrainingjobs"]})
    ended = await run("submit", "-f", str(FIXTURES / "t9k" / "job.yaml"))
    assert (ended.status, ended.out) == (0, "PyTorchTrainingJob default/mnist created.\n")
    assert "Warning: would wait: volume claim mnist not found in default" in ended.err


async def test_what_fits_no_node_needs_force(run: CommandLine, cluster: ScriptedCluster) -> None:
    cluster.say(PYTORCH_JOBS, Compute(echo), method="POST")
    path = written(run, job_with(gpus=64))
    never = "would never start: needs 1 × 64 GPUs; the cluster has 15, at most 8 per node."
    ended = await run("submit", "-f", path)
    assert (ended.status, ended.out) == (1, "")
    assert ended.err == f"PyTorchJob demo {never}\nNothing was created.\nTo create it all the same: --force\n"
    assert created(cluster, PYTORCH_JOBS) == []
    ended = await run("submit", "-f", path, "--force")
    assert (ended.status, ended.err) == (0, f"Warning: {never}\n")


async def test_different_pods_are_counted_separately(run: CommandLine, cluster: ScriptedCluster) -> None:
    cluster.say(PYTORCH_JOBS, Compute(echo), method="POST")
    job = job_with(gpus=8, workers=9)
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"] = job_with()["spec"]["pytorchReplicaSpecs"][
        "Master"
    ]["template"]
    ended = await run("submit", "-f", written(run, job))
    only_the_master = "Warning: would wait: needs 1 × 8 GPUs; 0 of 15 GPUs free.\n"
    assert (ended.status, ended.err) == (0, only_the_master)


async def test_only_pods_that_run_at_once_are_counted(run: CommandLine, cluster: ScriptedCluster) -> None:
    cluster.say(BATCH_JOBS, Compute(echo), method="POST")
    cluster.say(PYTORCH_JOBS, Compute(echo), method="POST")
    indexed = batch_job("sweep", 100, gpus=1, indexed=True, parallelism=2)
    elastic = job_with(gpus=8, workers=9)
    elastic["spec"]["elasticPolicy"] = {"minReplicas": 1, "maxReplicas": 9}
    for job, needs in (
        (indexed, "2 × 1 GPU"),
        (batch_job("sweep", 100, gpus=1), "1 × 1 GPU"),
        (elastic, "1 × 8 GPUs"),
    ):
        ended = await run("submit", "-f", written(run, job))
        assert (ended.status, ended.err) == (0, f"Warning: would wait: needs {needs}; 0 of 15 GPUs free.\n")


async def test_what_the_file_brings_along_is_not_missed(run: CommandLine, cluster: ScriptedCluster) -> None:
    for path in (CLAIMS, PYTORCH_JOBS):
        cluster.say(path, Compute(echo), method="POST")
    ended = await run("submit", "-f", written(run, CLAIM, job_with(volumes=on_claim("fresh"))))
    assert (ended.status, ended.err) == (0, "")
    assert ended.out == "PersistentVolumeClaim default/fresh created.\nPyTorchJob default/demo created.\n"
    assert [len(created(cluster, path)) for path in (CLAIMS, PYTORCH_JOBS)] == [1, 1]


async def test_missing_objects_of_volumes_are_reported(run: CommandLine, cluster: ScriptedCluster) -> None:
    cluster.say(PYTORCH_JOBS, Compute(echo), method="POST")
    cluster.say("/api/v1/namespaces/default/configmaps", Compute(echo), method="POST")
    volumes = [
        {"name": "a", "secret": {"secretName": "nope"}},
        {"name": "b", "configMap": {"name": "paths"}},
        {"name": "c", "configMap": {"name": "made"}},
        {"name": "d", "configMap": {"name": "perhaps", "optional": True}},
    ]
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "made"}}
    done = await run("submit", "-f", written(run, made, job_with(workers=2, volumes=volumes)))
    assert done.err.count(NO_SECRET) == 1
    assert "ConfigMap paths not found in default; create it" in done.err
    assert "made" not in done.err and "perhaps" not in done.err


async def test_one_refusal_creates_none_of_several(run: CommandLine, cluster: ScriptedCluster) -> None:
    cluster.say(CLAIMS, Compute(echo), method="POST")
    cluster.say(f"{PYTORCH_JOBS}/demo", Answer(pytorch_job("demo")))
    words = 'pytorchjobs.kubeflow.org "demo" already exists'
    cluster.say(PYTORCH_JOBS, refusal(409, words, "AlreadyExists"), method="POST")
    ended = await run("submit", "-f", written(run, CLAIM, job_with()))
    assert (ended.status, ended.out) == (1, "")
    assert ended.err.splitlines() == [
        "Could not create PyTorchJob demo in a dry run.",
        f"The cluster says: {words}",
        "Choose another name, or delete that job first. Nothing was created.",
    ]
    assert created(cluster, CLAIMS) == []


async def test_who_may_not_is_told_of_each_kind(run: CommandLine, cluster: ScriptedCluster) -> None:
    def review(asked: Asked) -> Reply:
        attributes = json.loads(asked.body)["spec"]["resourceAttributes"]
        allowed = attributes["resource"] == "pytorchjobs"
        return Answer({"status": {"allowed": allowed, "denied": not allowed}}, 201)

    cluster.say(REVIEWS, Compute(review), method="POST")
    cluster.say(CLAIMS, refusal(403, "no", "Forbidden"), method="POST")
    ended = await run("submit", "-f", written(run, CLAIM, job_with()))
    assert ended.status == 1
    assert ended.err.splitlines() == [
        "Could not create PersistentVolumeClaim fresh in a dry run.",
        "The cluster says: no",
        "Pick another namespace, or ask for a role that allows it. Nothing was created.",
    ]


async def test_each_refused_object_is_reported_once(run: CommandLine, cluster: ScriptedCluster) -> None:
    for name in ("fresh", "stale"):
        cluster.say(f"{CLAIMS}/{name}", Answer(CLAIM))
    words = 'persistentvolumeclaims "fresh" already exists'
    cluster.say(CLAIMS, refusal(409, words, "AlreadyExists"), method="POST")
    other = {**CLAIM, "metadata": {"name": "stale"}}
    ended = await run("submit", "-f", written(run, CLAIM, other))
    assert ended.err.splitlines() == [
        "Warning: would be refused: PersistentVolumeClaim stale already exists in default;"
        " choose another name, or delete that one first.",
        "Could not create PersistentVolumeClaim fresh in a dry run.",
        f"The cluster says: {words}",
        "Choose another name, or delete that job first. Nothing was created.",
    ]


async def test_a_quota_is_counted_against_all_pods(run: CommandLine, cluster: ScriptedCluster) -> None:
    quota = {
        "metadata": {"name": "team"},
        "spec": {"hard": {"requests.nvidia.com/gpu": "8"}},
        "status": {"hard": {"requests.nvidia.com/gpu": "8"}, "used": {"requests.nvidia.com/gpu": "6"}},
    }
    cluster.say("/api/v1/namespaces/default/resourcequotas", page([quota]))
    cluster.say(PYTORCH_JOBS, Compute(echo), method="POST")
    ended = await run("submit", "-f", written(run, job_with(gpus=4)))
    assert ended.status == 0
    assert "Warning: would wait: all pods need 4 nvidia.com/gpu, quota team has 2 of 8 left" in ended.err


async def test_unknown_objects_are_left_to_the_server(run: CommandLine, cluster: ScriptedCluster) -> None:
    say_kinds(cluster, {"jobset.x-k8s.io/v1alpha2": ["jobsets"], "kubeflow.org/v1": ["pytorchjobs"]})
    for path in (SETS, PYTORCH_JOBS):
        cluster.say(path, Compute(echo), method="POST")
    for obj in (SET, {**job_with(), "spec": "whatever"}, {**job_with(), "spec": {"pytorchReplicaSpecs": []}}):
        ended = await run("submit", "-f", written(run, obj))
        assert (ended.status, ended.err) == (0, "")
    cluster.say(f"{SETS}/sweep", Answer(SET))
    ended = await run("submit", "-f", written(run, SET))
    assert "Warning: would be refused: JobSet sweep already exists in default" in ended.err


async def test_an_unserved_version_is_reported(run: CommandLine, cluster: ScriptedCluster) -> None:
    say_kinds(cluster, {"kubeflow.org/v1": ["pytorchjobs"]})
    cluster.say("/apis/kubeflow.org", Answer({"versions": [{"groupVersion": "kubeflow.org/v1"}]}))
    path = written(run, {**job_with(), "apiVersion": "kubeflow.org/v2"})
    ended = await run("submit", "-f", path)
    assert (ended.status, ended.out) == (1, "")
    assert ended.err.splitlines() == [
        "Warning: PyTorchJob kubeflow.org/v2 is not known here, only kubeflow.org/v1;"
        " it is sent as it stands.",
        "Could not create PyTorchJob demo.",
        "This cluster does not serve PyTorchJob kubeflow.org/v2.",
        "Write apiVersion: kubeflow.org/v1."
        " Choose another kind of job, or ask for its operator to be installed.",
    ]


async def test_an_unknown_but_served_version_is_created(run: CommandLine, cluster: ScriptedCluster) -> None:
    say_kinds(cluster, {"kubeflow.org/v2": ["pytorchjobs"]})
    cluster.say(PYTORCH_JOBS.replace("v1", "v2"), Compute(echo), method="POST")
    ended = await run("submit", "-f", written(run, {**job_with(), "apiVersion": "kubeflow.org/v2"}))
    assert (ended.status, ended.out) == (0, "PyTorchJob default/demo created.\n")


async def test_a_server_dry_run_warns_and_creates_nothing(run: CommandLine, cluster: ScriptedCluster) -> None:
    cluster.say(PYTORCH_JOBS, Compute(echo), method="POST")
    path = written(run, job_with(gpus=64, volumes=on_claim("nothing")))
    ended = await run("submit", "-f", path, "--dry-run=server")
    assert (ended.status, ended.out) == (0, "PyTorchJob default/demo created (server dry run).\n")
    assert [line.partition(":")[2][:18] for line in ended.err.splitlines()] == [
        " would wait: volum",
        " would never start",
    ]
    assert created(cluster, PYTORCH_JOBS) == []
