"""`submit -f`: manifests from files, and what is wrong with them."""

from __future__ import annotations

import json
import os

import pytest
import yaml

from tests.scripted.server import Answer, Compute, ScriptedCluster
from tests.tui.commands.conftest import CommandLine
from tests.tui.commands.submitting import BATCH_JOBS, PYTORCH_JOBS, SMALL, echo, job_in

JOB = "apiVersion: batch/v1\nkind: Job\nmetadata: {{name: {}}}\nspec: {{}}\n"
BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40))


async def test_what_was_printed_can_be_submitted(run: CommandLine, cluster: ScriptedCluster) -> None:
    printed = await run("submit", *SMALL, "true")
    path = run.home / "job.yaml"
    path.write_text(printed.out + printed.out.replace("demo", "demo-2"))
    cluster.say(PYTORCH_JOBS, Compute(echo), method="POST")
    ended = await run("submit", "-f", str(path))
    assert ended.out.splitlines() == [
        "PyTorchJob default/demo created.",
        "ConfigMap default/demo-pytorchjob created.",
        "PyTorchJob default/demo-2 created.",
        "ConfigMap default/demo-2-pytorchjob created.",
    ]
    sent = [json.loads(asked.body) for asked in cluster.asked(PYTORCH_JOBS, method="POST")]
    assert sent[0]["metadata"]["annotations"].pop("gpuconsole.dev/submission")
    assert sent[0] == job_in(printed.out)


async def test_standard_input_may_hold_the_manifest(run: CommandLine, cluster: ScriptedCluster) -> None:
    cluster.say(BATCH_JOBS, Compute(echo), method="POST")
    manifest = (
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: demo, labels: {since: 2026-01-02}}\nspec: {}\n"
    )
    child = await run.start("submit", "-f", "-")
    out, _ = await child.communicate(manifest.encode())
    assert (child.returncode, out) == (0, b"Job default/demo created.\n")
    (asked,) = cluster.asked(BATCH_JOBS, method="POST")
    assert json.loads(asked.body)["metadata"]["labels"] == {"since": "2026-01-02"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: b: c\n", "is not YAML at line 1, column 5."),
        ("kind: Job\n\tspec: 1\n", "is not YAML at line 2, column 1."),
        ("kind: [Job\n", "is not YAML at line 2"),
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
        ("apiVersion: batch/v1\nkind: Job\nmetadata: {name: .nan}\n", "holds a value that a manifest cannot"),
        ("apiVersion: batch/v1\nkind: Job\nmetadata: {name: x, namespace: other}\n", "names namespace other"),
        ("a: &a [*a]\n", "holds a value that a manifest cannot"),
        ("a: !!python/object:os.system {}\n", "is not YAML at line 1"),
        ("a: \x01\n", "is not YAML"),
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
async def test_a_file_that_is_no_manifest_is_told_where(
    run: CommandLine, cluster: ScriptedCluster, text: str, said: str
) -> None:
    path = run.home / "job.yaml"
    path.write_text(text)
    ended = await run("submit", "-f", str(path), "-n", "default")
    assert ended.status in (1, 2)
    assert ended.out == ""
    assert said in ended.err
    assert cluster.requests == []


async def test_a_file_that_cannot_be_read_is_named(run: CommandLine) -> None:
    (run.home / "bytes.yaml").write_bytes(b"kind: \xff")
    for name, said in (
        ("missing.yaml", "No such file"),
        ("bytes.yaml", "not UTF-8 at byte 6"),
        (".", "director"),
        ("~nobody-of-this-name/job.yaml", "No such file"),
    ):
        ended = await run("submit", "-f", name if name.startswith("~") else str(run.home / name))
        assert ended.status == 1
        assert said in ended.err


async def test_a_list_of_kubectl_is_its_items(run: CommandLine, cluster: ScriptedCluster) -> None:
    cluster.say(BATCH_JOBS, Compute(echo), method="POST")
    items = [yaml.safe_load(JOB.format(name)) for name in ("a", "b")]
    path = run.home / "jobs.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=2))
    ended = await run("submit", "-f", str(path))
    assert (ended.status, ended.out) == (0, "Job default/a created.\nJob default/b created.\n"), ended.err


async def test_a_file_that_is_too_large_is_refused(run: CommandLine, cluster: ScriptedCluster) -> None:
    path = run.home / "job.yaml"
    path.write_text(f"a: {'x' * 3 * 2**20}\n")
    (await run("submit", "-f", str(path))).reports(1, "File too large: more than 3 MiB.")
    assert cluster.requests == []


async def test_a_pipe_of_the_shell_may_hold_the_manifest(run: CommandLine, cluster: ScriptedCluster) -> None:
    cluster.say(BATCH_JOBS, Compute(echo), method="POST")
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
        (", annotations: null", "li"),
        (", annotations: {a: b}", "li"),
        (", annotations: {gpuconsole.dev/user: wang}", "wang"),
        (", annotations: {arena.kubeflow.org/username: wang}", None),
    ],
)
async def test_a_job_of_a_file_is_annotated_with_its_user_as_one_of_flags_is(
    run: CommandLine, cluster: ScriptedCluster, annotations: str, user: str | None
) -> None:
    cluster.say(BATCH_JOBS, Compute(echo), method="POST")
    path = run.home / "job.yaml"
    path.write_text(JOB.format("demo" + annotations))
    assert (await run("submit", "-f", str(path))).status == 0
    (asked,) = cluster.asked(BATCH_JOBS, method="POST")
    assert json.loads(asked.body)["metadata"]["annotations"].get("gpuconsole.dev/user") == user


async def test_a_file_job_has_the_user_of_the_api(run: CommandLine, cluster: ScriptedCluster) -> None:
    cluster.say(BATCH_JOBS, Compute(echo), method="POST")
    review = Answer({"status": {"userInfo": {"username": "admin"}}})
    cluster.say("/apis/authentication.k8s.io/v1/selfsubjectreviews", review, method="POST")
    path = run.home / "job.yaml"
    path.write_text(JOB.format("demo"))
    assert (await run("submit", "-f", str(path))).status == 0
    (asked,) = cluster.asked(BATCH_JOBS, method="POST")
    assert json.loads(asked.body)["metadata"]["annotations"]["gpuconsole.dev/user"] == "admin"


async def test_redaction_marks_are_not_submitted(run: CommandLine, cluster: ScriptedCluster) -> None:
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
    cluster.say(PYTORCH_JOBS, Compute(echo), method="POST")
    assert (await run("submit", "-f", str(path))).status == 0
    assert all(b"s3cr3t-abc" in asked.body for asked in cluster.asked(PYTORCH_JOBS, method="POST"))


async def test_a_packaged_trainer_is_printed_whole(run: CommandLine) -> None:
    words = (word for word in SMALL if word != "true")
    ended = await run("submit", *words, "--trainer", "ddp")
    assert (ended.status, "<redacted" in ended.out) == (0, False)
