"""`submit -f`: manifests from files, what is wrong with them, and what is said before any is created."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import FIXTURES
from tests.scripted.feed import say_kinds
from tests.scripted.server import Answer, Asked, Compute, Reply, ScriptedCluster, refusal
from tests.support.objects import batch_job, pytorch_job
from tests.tui.commands.conftest import BATCH_JOBS, PYTORCH_JOBS, SMALL, CommandLine, echo, job_in
from tui.draft.manifest_yaml import BadManifest, read_manifests

JOB = "apiVersion: batch/v1\nkind: Job\nmetadata: {{name: {}}}\nspec: {{}}\n"
BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40))


async def test_a_printed_manifest_can_be_submitted_as_a_file(run: CommandLine) -> None:
    printed = await run("submit", *SMALL, "true")
    path = run.home / "job.yaml"
    path.write_text(printed.out + printed.out.replace("demo", "demo-2"))
    run.cluster.say(PYTORCH_JOBS, Compute(echo), method="POST")
    ended = await run("submit", "-f", str(path))
    assert ended.out.splitlines() == [
        "PyTorchJob default/demo created.",
        "ConfigMap default/demo-pytorchjob created.",
        "PyTorchJob default/demo-2 created.",
        "ConfigMap default/demo-2-pytorchjob created.",
    ]
    sent = [json.loads(asked.body) for asked in run.cluster.asked(PYTORCH_JOBS, method="POST")]
    assert sent[0]["metadata"]["annotations"].pop("gpuconsole.dev/submission")
    assert sent[0] == job_in(printed.out)


ENV = "kind: Pod\nspec:\n  containers:\n  - env:\n"


async def test_standard_input_may_hold_the_manifest(run: CommandLine) -> None:
    run.cluster.say(BATCH_JOBS, Compute(echo), method="POST")
    manifest = (
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: demo, labels: {since: 2026-01-02}}\nspec: {}\n"
    )
    child = await run.start("submit", "-f", "-")
    out, _ = await child.communicate(manifest.encode())
    assert (child.returncode, out) == (0, b"Job default/demo created.\n")
    (asked,) = run.cluster.asked(BATCH_JOBS, method="POST")
    assert json.loads(asked.body)["metadata"]["labels"] == {"since": "2026-01-02"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: b: c\n", "is not YAML.\nLine 1, column 5: "),
        ("kind: Job\n\tspec: 1\n", "is not YAML.\nLine 2, column 1: "),
        ("kind: [Job\n", "is not YAML.\nLine 2"),
        ("", "There is no manifest in"),
        ("---\n---\n", "There is no manifest in"),
        ("- a\n- b\n", "It must be an object (a mapping)"),
        ("kind: Job\n", "has no apiVersion"),
        ("apiVersion: batch/v1\n", "has no kind"),
        ("apiVersion: batch/v1\nkind: Job\n", "has no metadata.name"),
        (
            "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: x}\n",
            "a StatefulSet apps/v1, which is not",
        ),
        ("apiVersion: batch/v1\nkind: Job\nmetadata: {name: .nan}\n", "Not a valid manifest"),
        ("a: &a [*a]\n", "Not a valid manifest"),
        ("a: !!python/object:os.system {}\n", "is not YAML.\nLine 1"),
        ("a: \x01\n", "is not YAML"),
        (f"{ENV}    - {{name: DEBUG, value: off}}\n", "Line 5, column 28: the value of a variable must be"),
        (f"{ENV}    - name: MASK\n      value: 0x10\n", "Line 6, column 14: the value of a variable must"),
        (f"{ENV}    - name: N\n      value: 8\n", 'quote it, as "8".'),
        (BOMB, "larger than 3 MiB, the most that a cluster accepts"),
        (
            "apiVersion: example.com/v1\nkind: PyTorchJob\nmetadata: {name: x}\n",
            "a PyTorchJob example.com/v1, which is not supported.\nSupported: PyTorchJob kubeflow.org/v1.",
        ),
        (JOB.format("x") + "---\n" + JOB.format("x"), "object 2, is a second Job x."),
        ("apiVersion: v1\nkind: List\nitems: []\n", "There is no manifest in"),
        ("apiVersion: v1\nkind: List\nitems: {}\n", "has no metadata.name"),
        ("apiVersion: v1\nkind: List\nitems: [a]\n", "It must be an object (a mapping)"),
        (
            "apiVersion: v1\nkind: Secret\nmetadata: {name: x}\nstringData: {password: •••}\n",
            "holds ••• where a value was hidden.",
        ),
    ],
)
def test_a_file_that_is_no_manifest_is_refused_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(text)
    with pytest.raises(BadManifest) as error:
        read_manifests(str(path))
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("missing.yaml", "No such file"),
        ("bytes.yaml", "not UTF-8 at byte 6"),
        ("large.yaml", "File too large: more than 3 MiB."),
        (".", "director"),
        ("~nobody-of-this-name/job.yaml", "No such file"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "bytes.yaml").write_bytes(b"kind: \xff")
    (tmp_path / "large.yaml").write_text(f"a: {'x' * 3 * 2**20}\n")
    with pytest.raises(BadManifest) as error:
        read_manifests(name if name.startswith("~") else str(tmp_path / name))
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        ("a: b: c\n", 1, "Line 1, column 5: "),
        (JOB.format("x, namespace: other"), 2, "-n default: the manifest names namespace other."),
    ],
)
async def test_nothing_is_sent_of_a_wrong_file(run: CommandLine, text: str, status: int, said: str) -> None:
    path = run.home / "job.yaml"
    path.write_text(text)
    (await run("submit", "-f", str(path), "-n", "default")).reports(status, said)
    assert run.cluster.requests == []


async def test_a_kubernetes_list_is_submitted_item_by_item(run: CommandLine) -> None:
    run.cluster.say(BATCH_JOBS, Compute(echo), method="POST")
    items = [yaml.safe_load(JOB.format(name)) for name in ("a", "b")]
    path = run.home / "jobs.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=2))
    ended = await run("submit", "-f", str(path))
    assert (ended.status, ended.out) == (0, "Job default/a created.\nJob default/b created.\n"), ended.err


async def test_a_manifest_can_be_read_from_a_shell_pipe(run: CommandLine) -> None:
    run.cluster.say(BATCH_JOBS, Compute(echo), method="POST")
    reader, writer = os.pipe()
    os.write(writer, JOB.format("piped").encode())
    os.close(writer)
    ended = await run("submit", "-f", f"/dev/fd/{reader}")
    os.close(reader)
    assert (ended.status, ended.out) == (0, "Job default/piped created.\n"), ended.err


@pytest.mark.parametrize(
    ("annotations", "user"),
    [
        ("", "li"),
        ("", "admin"),
        (", annotations: null", "li"),
        (", annotations: {a: b}", "li"),
        (", annotations: {gpuconsole.dev/user: wang}", "wang"),
        (", annotations: {arena.kubeflow.org/username: wang}", None),
    ],
)
async def test_a_job_from_a_file_is_annotated_with_the_user_unless_already_annotated(
    run: CommandLine, annotations: str, user: str | None
) -> None:
    if user == "admin":
        review = Answer({"status": {"userInfo": {"username": "admin"}}})
        run.cluster.say("/apis/authentication.k8s.io/v1/selfsubjectreviews", review, method="POST")
    run.cluster.say(BATCH_JOBS, Compute(echo), method="POST")
    path = run.home / "job.yaml"
    path.write_text(JOB.format("demo" + annotations))
    assert (await run("submit", "-f", str(path))).status == 0
    (asked,) = run.cluster.asked(BATCH_JOBS, method="POST")
    assert json.loads(asked.body)["metadata"]["annotations"].get("gpuconsole.dev/user") == user


async def test_redaction_marks_are_not_submitted(run: CommandLine) -> None:
    assert "<redacted" not in (await run("submit", *SMALL, "--trainer", "ddp")).out
    words = (*SMALL, "-e", "MY_TOKEN=s3cr3t-abc", "-e", "EPOCHS=3", "true")
    ended = await run("submit", *words)
    assert ("s3cr3t-abc" in ended.out, "<redacted env MY_TOKEN>" in ended.out) == (False, True)
    path = run.home / "job.yaml"
    path.write_text(ended.out)
    refused = await run("submit", "-f", str(path))
    assert (refused.status, "holds <redacted env MY_TOKEN> where" in refused.err) == (1, True)
    assert "--show-secrets" in refused.err
    path.write_text((await run("submit", "--show-secrets", *words)).out)
    assert "s3cr3t-abc" not in (await run("submit", "-f", str(path), "--dry-run", "client", "-o", "yaml")).out
    run.cluster.say(PYTORCH_JOBS, Compute(echo), method="POST")
    assert (await run("submit", "-f", str(path))).status == 0
    assert all(b"s3cr3t-abc" in asked.body for asked in run.cluster.asked(PYTORCH_JOBS, method="POST"))


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
    path = run.home / "job.yaml"
    path.write_text(yaml.safe_dump_all(objects))
    return str(path)


def created(cluster: ScriptedCluster, path: str) -> list[Any]:
    return [
        json.loads(each.body)
        for each in cluster.asked(path, method="POST")
        if each.query.get("dryRun") != "All"
    ]


def mixed() -> dict[str, Any]:
    """Return a job whose master alone has GPUs."""
    job = job_with(gpus=8, workers=9)
    roles = job["spec"]["pytorchReplicaSpecs"]
    roles["Worker"]["template"] = job_with()["spec"]["pytorchReplicaSpecs"]["Master"]["template"]
    return job


def elastic() -> dict[str, Any]:
    job = job_with(gpus=8, workers=9)
    job["spec"]["elasticPolicy"] = {"minReplicas": 1, "maxReplicas": 9}
    return job


def busy(who: str) -> str:
    found = f"{who} nvidia.com/gpu; none is free (8 in use, 1 node not ready)"
    repair = "an administrator can repair the nodes that do not answer: gpu-node-1"
    return f"would wait for GPUs: {found}; {repair}"


ADVICE = "create it, or name one that exists"
MISSING = f"would wait for volume claim nothing, which does not exist in default; {ADVICE}"
NO_SECRET = f"would wait for Secret nope, which does not exist in default; {ADVICE}"


@pytest.mark.parametrize(
    ("job", "said"),
    [
        (job_with(volumes=on_claim("nothing")), MISSING),
        (job_with(imagePullSecrets=[{"name": "nope"}]), NO_SECRET),
        (job_with(gpus=4, workers=2), busy("each of 2 pods needs 4")),
        (mixed(), busy("master-0 needs 8")),
        (elastic(), busy("master-0 needs 8")),
        (batch_job("demo", 100, gpus=1, indexed=True, parallelism=2), busy("each of 2 pods needs 1")),
        (batch_job("demo", 100, gpus=1), busy("pod-0 needs 1")),
        (job_with(volumes=on_claim("taken")), ""),
    ],
)
async def test_a_jobs_manifest_gets_the_same_preflight_warnings_as_flags(
    run: CommandLine, job: dict[str, Any], said: str
) -> None:
    bound = {"metadata": {"name": "taken"}, "spec": {"accessModes": ["ReadWriteMany"]}}
    run.cluster.say(f"{CLAIMS}/taken", Answer({**bound, "status": {"phase": "Bound"}}))
    for path in (PYTORCH_JOBS, BATCH_JOBS):
        run.cluster.say(path, Compute(echo), method="POST")
    ended = await run("submit", "-f", written(run, job))
    assert (ended.status, ended.out) == (0, f"{job['kind']} default/demo created.\n")
    assert ended.err == (f"Warning: {said}.\n" if said else "")


async def test_the_t9k_tutorial_job_warns_about_its_missing_volume_claim(run: CommandLine) -> None:
    run.cluster.say(
        "/apis/batch.tensorstack.dev/v1beta1/namespaces/default/pytorchtrainingjobs",
        Compute(echo),
        method="POST",
    )
    say_kinds(run.cluster, {"batch.tensorstack.dev/v1beta1": ["pytorchtrainingjobs"]})
    ended = await run("submit", "-f", str(FIXTURES / "t9k" / "job.yaml"))
    assert (ended.status, ended.out) == (0, "PyTorchTrainingJob default/mnist created.\n")
    assert "Warning: would wait for volume claim mnist, which does not exist in default" in ended.err


async def test_a_volume_claim_in_the_same_file_is_not_reported_missing(run: CommandLine) -> None:
    for path in (CLAIMS, PYTORCH_JOBS):
        run.cluster.say(path, Compute(echo), method="POST")
    ended = await run("submit", "-f", written(run, CLAIM, job_with(volumes=on_claim("fresh"))))
    assert (ended.status, ended.err) == (0, "")
    assert ended.out == "PersistentVolumeClaim default/fresh created.\nPyTorchJob default/demo created.\n"
    assert [len(created(run.cluster, path)) for path in (CLAIMS, PYTORCH_JOBS)] == [1, 1]


async def test_missing_objects_of_volumes_are_reported(run: CommandLine) -> None:
    run.cluster.say(PYTORCH_JOBS, Compute(echo), method="POST")
    run.cluster.say("/api/v1/namespaces/default/configmaps", Compute(echo), method="POST")
    volumes = [
        {"name": "a", "secret": {"secretName": "nope"}},
        {"name": "b", "configMap": {"name": "paths"}},
        {"name": "c", "configMap": {"name": "made"}},
        {"name": "d", "configMap": {"name": "perhaps", "optional": True}},
    ]
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "made"}}
    done = await run("submit", "-f", written(run, made, job_with(workers=2, volumes=volumes)))
    assert done.err.count(NO_SECRET) == 1
    assert "ConfigMap paths, which does not exist in default; create it" in done.err
    assert "made" not in done.err and "perhaps" not in done.err


def review(asked: Asked) -> Reply:
    """Allow this user PyTorchJobs alone."""
    allowed = json.loads(asked.body)["spec"]["resourceAttributes"]["resource"] == "pytorchjobs"
    return Answer({"status": {"allowed": allowed, "denied": not allowed}}, 201)


JOB_IS_TAKEN = 'pytorchjobs.kubeflow.org "demo" already exists'
CLAIM_IS_TAKEN = 'persistentvolumeclaims "fresh" already exists'
STALE = {**CLAIM, "metadata": {"name": "stale"}}
CHOOSE = "Choose another name, or delete that job first. Nothing was created."


@pytest.mark.parametrize(
    ("replies", "objects", "said"),
    [
        (
            [
                (f"{PYTORCH_JOBS}/demo", Answer(pytorch_job("demo")), "GET"),
                (PYTORCH_JOBS, refusal(409, JOB_IS_TAKEN, "AlreadyExists"), "POST"),
                (CLAIMS, Compute(echo), "POST"),
            ],
            (CLAIM, job_with()),
            ["Could not create PyTorchJob demo in a dry run.", f"The cluster says: {JOB_IS_TAKEN}", CHOOSE],
        ),
        (
            [(REVIEWS, Compute(review), "POST"), (CLAIMS, refusal(403, "no", "Forbidden"), "POST")],
            (CLAIM, job_with()),
            [
                "Could not create PersistentVolumeClaim fresh in a dry run.",
                "The cluster says: no",
                "Pick another namespace, or ask for a role that allows it. Nothing was created.",
            ],
        ),
        (
            [
                *((f"{CLAIMS}/{name}", Answer(CLAIM), "GET") for name in ("fresh", "stale")),
                (CLAIMS, refusal(409, CLAIM_IS_TAKEN, "AlreadyExists"), "POST"),
            ],
            (CLAIM, STALE),
            [
                "Warning: would be refused: PersistentVolumeClaim stale already exists in default;"
                " choose another name, or delete that one first.",
                "Could not create PersistentVolumeClaim fresh in a dry run.",
                f"The cluster says: {CLAIM_IS_TAKEN}",
                CHOOSE,
            ],
        ),
    ],
    ids=["job", "right", "claim"],
)
async def test_one_rejected_object_prevents_creation_of_all_objects_in_the_file(
    run: CommandLine,
    replies: list[tuple[str, Reply, str]],
    objects: tuple[dict[str, Any], ...],
    said: list[str],
) -> None:
    for path, reply, method in replies:
        run.cluster.say(path, reply, method=method)
    ended = await run("submit", "-f", written(run, *objects))
    assert (ended.status, ended.out) == (1, "")
    assert ended.err.splitlines() == said
    assert created(run.cluster, CLAIMS) == []


async def test_unknown_kinds_and_malformed_specs_are_sent_to_the_server_unchecked(run: CommandLine) -> None:
    say_kinds(run.cluster, {"jobset.x-k8s.io/v1alpha2": ["jobsets"], "kubeflow.org/v1": ["pytorchjobs"]})
    for path in (SETS, PYTORCH_JOBS):
        run.cluster.say(path, Compute(echo), method="POST")
    for obj in (SET, {**job_with(), "spec": "whatever"}, {**job_with(), "spec": {"pytorchReplicaSpecs": []}}):
        ended = await run("submit", "-f", written(run, obj))
        assert (ended.status, ended.err) == (0, "")
    run.cluster.say(f"{SETS}/sweep", Answer(SET))
    ended = await run("submit", "-f", written(run, SET))
    assert "Warning: would be refused: JobSet sweep already exists in default" in ended.err


async def test_an_unserved_version_is_reported(run: CommandLine) -> None:
    say_kinds(run.cluster, {"kubeflow.org/v1": ["pytorchjobs"]})
    run.cluster.say("/apis/kubeflow.org", Answer({"versions": [{"groupVersion": "kubeflow.org/v1"}]}))
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


async def test_an_unknown_but_served_version_is_created(run: CommandLine) -> None:
    say_kinds(run.cluster, {"kubeflow.org/v2": ["pytorchjobs"]})
    run.cluster.say(PYTORCH_JOBS.replace("v1", "v2"), Compute(echo), method="POST")
    ended = await run("submit", "-f", written(run, {**job_with(), "apiVersion": "kubeflow.org/v2"}))
    assert (ended.status, ended.out) == (0, "PyTorchJob default/demo created.\n")


async def test_a_server_dry_run_warns_and_creates_nothing(run: CommandLine) -> None:
    run.cluster.say(PYTORCH_JOBS, Compute(echo), method="POST")
    path = written(run, job_with(gpus=64, volumes=on_claim("nothing")))
    ended = await run("submit", "-f", path, "--dry-run=server")
    assert (ended.status, ended.out) == (0, "PyTorchJob default/demo created (server dry run).\n")
    assert [line.partition(":")[2][:18] for line in ended.err.splitlines()] == [
        " would wait for vo",
        " would never start",
    ]
    assert created(run.cluster, PYTORCH_JOBS) == []
