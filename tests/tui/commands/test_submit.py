"""From the command line to what is sent: flags, trainers, files; and what is refused before it is sent."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import string
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from k8s.job_spec import JobSpec
from k8s.jobs.pod_files import LOCAL_PATH
from tests import ROOT
from tests.scripted.server import Answer, Asked, Compute, Reply, ScriptedCluster, page, refusal
from tests.support.terminal import Terminal
from tests.tui.commands.conftest import CommandLine
from tui.commands.support.output import WrongUsage
from tui.commands.support.submit_flags import add_spec_arguments, spec_of

PYTORCH_JOBS = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
BATCH_JOBS = "/apis/batch/v1/namespaces/default/jobs"


def echo(asked: Asked) -> Reply:
    return Answer(json.loads(asked.body), 201)


async def test_what_the_server_warns_of_goes_to_stderr(run: CommandLine, cluster: ScriptedCluster) -> None:
    def warn(asked: Asked) -> Reply:
        words = "spec.podFailurePolicy: ignored\u202e"
        return Answer(json.loads(asked.body), 201, {"Warning": f'299 - "{words}"'})

    cluster.say(BATCH_JOBS, Compute(warn), method="POST")
    ended = await run("submit", "job", "--name", "demo", "--image", "x", "true")
    assert (ended.status, ended.out) == (0, "Job default/demo created.\n")
    assert ended.err.startswith("Warning: spec.podFailurePolicy: ignored")
    assert "\u202e" not in ended.err


async def manifest_of(run: CommandLine, *words: str) -> Any:
    """Return the manifest of the job that a command line would send."""
    ended = await run("submit", *words)
    assert ended.status == 0, ended.err
    return job_in(ended.out)


def job_in(text: str) -> Any:
    """Return the job among the objects that were printed."""
    (job,) = [each for each in yaml.safe_load_all(text) if each["kind"].endswith("Job")]
    return job


AS_MANIFEST = ("--dry-run", "client", "-o", "yaml")
SMALL = ("pytorch", "--name", "demo", "--image", "x", *AS_MANIFEST)


async def test_a_job_is_created_from_flags(run: CommandLine, cluster: ScriptedCluster) -> None:
    cluster.say(PYTORCH_JOBS, Compute(echo), method="POST")
    ended = await run(
        "submit", "pytorch", "--name", "demo", "--image", "train:1", "--workers", "3", "--gpus", "2",
        "--cpu", "4", "--memory", "8Gi", "--share-memory", "1Gi", "--retry", "2",
        "--clean-task-policy", "All",
        "--working-dir", "/root", "-e", "A=1=2", "--env", "B=", "-d", "training-data:/mnt", "-p", "high",
        "--label", "team=vision", "python train.py --epochs 3",
    )  # fmt: skip
    assert (ended.status, ended.out) == (0, "PyTorchJob default/demo created.\n")
    assert ended.err.splitlines() == [
        "Warning: would wait: volume claim training-data not found in default; choose one that exists,"
        " or create it.",
        "Warning: would wait: needs 3 × 2 GPUs; 0 of 15 GPUs free.",
    ]
    (asked,) = cluster.asked(PYTORCH_JOBS, method="POST")
    sent = json.loads(asked.body)
    assert asked.query["fieldManager"] == "gpuconsole"
    assert sent["metadata"]["annotations"].pop("gpuconsole.dev/submission")
    user = {"gpuconsole.dev/user": "li", "arena.kubeflow.org/username": "li"}
    assert sent["metadata"]["annotations"] == {**user, "requestGPUsOfJobOwner": "6"}
    labels = sent["metadata"]["labels"]
    assert (labels["team"], labels["app"], labels["release"]) == ("vision", "pytorchjob", "demo")
    roles = sent["spec"]["pytorchReplicaSpecs"]
    assert {role: part["replicas"] for role, part in roles.items()} == {"Master": 1, "Worker": 2}
    assert sent["spec"]["nprocPerNode"] == "2"
    assert sent["spec"]["runPolicy"] == {"cleanPodPolicy": "All", "backoffLimit": 2}
    pod = roles["Worker"]["template"]["spec"]
    container = pod["containers"][0]
    assert container["command"] == ["sh", "-c", "python train.py --epochs 3"]
    assert (container["image"], container["workingDir"]) == ("train:1", "/root")
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "2", "cpu": "4", "memory": "8Gi"}
    env = {each["name"]: each["value"] for each in container["env"]}
    assert (env["A"], env["B"]) == ("1=2", "")
    assert pod["priorityClassName"] == "high"
    assert {"name": "claim-0", "mountPath": "/mnt"} in container["volumeMounts"]


async def test_words_after_dashes_are_run_as_they_are(run: CommandLine) -> None:
    found = await manifest_of(run, *SMALL, "--", "python", "a b.py", "--", "-x")
    container = found["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]
    assert container["command"] == ["python", "a b.py", "--", "-x"]


async def test_one_line_after_dashes_is_a_line_for_the_shell(run: CommandLine) -> None:
    found = await manifest_of(run, *SMALL, "--shell", "bash", "--", "python a.py && sync")
    container = found["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]
    assert container["command"] == ["bash", "-c", "python a.py && sync"]


async def test_a_batch_job_is_called_job(run: CommandLine) -> None:
    found = await manifest_of(run, "job", *SMALL[1:], "--workers", "2", "true")
    assert (found["kind"], found["spec"]["completions"]) == ("Job", 2)


async def test_a_trainer_writes_to_the_workspace_claim_unless_told_otherwise(run: CommandLine) -> None:
    found = await manifest_of(run, *SMALL, "--gpus", "2", "--trainer", "ddp", "--", "--epochs", "1")
    log_dir = found["metadata"]["annotations"]["gpuconsole.dev/log-dir"]
    assert re.fullmatch(r"/workspace/demo-\d{8}-\d{6}-\d{3}/logs", log_dir)
    assert found["metadata"]["annotations"] == {
        "gpuconsole.dev/trainer": "ddp",
        "gpuconsole.dev/log-dir": log_dir,
        "gpuconsole.dev/user": "li",
        "arena.kubeflow.org/username": "li",
        "requestGPUsOfJobOwner": "2",
    }
    assert found["spec"]["nprocPerNode"] == "2"
    pod = found["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
    words = pod["containers"][0]["command"]
    assert words[:6] == ["python", "-P", "-m", "trainer.launch", "-m", "trainer.train_ddp"]
    assert words[6:] == [
        *("--epochs", "1"),
        *("--log-dir", log_dir),
        *("--checkpoint-dir", f"{log_dir.removesuffix('/logs')}/checkpoints"),
    ]
    assert pod["volumes"][0]["persistentVolumeClaim"] == {"claimName": "workspace"}
    assert pod["containers"][0]["volumeMounts"][0]["mountPath"] == "/workspace"


async def test_the_benchmark_runs_under_torchrun_and_has_curves_but_no_checkpoints(run: CommandLine) -> None:
    found = await manifest_of(run, *SMALL, "--workers", "2", "--trainer", "mpi", "--", "--model", "vgg16")
    log_dir = found["metadata"]["annotations"]["gpuconsole.dev/log-dir"]
    assert re.fullmatch(r"/workspace/demo-\d{8}-\d{6}-\d{3}/logs", log_dir)
    for role in ("Master", "Worker"):
        pod = found["spec"]["pytorchReplicaSpecs"][role]["template"]["spec"]
        assert pod["containers"][0]["command"] == [
            *("python", "-P", "-m", "trainer.launch", "-m", "trainer.train_mpi"),
            *("--model", "vgg16"),
            *("--log-dir", log_dir),
        ]


@pytest.mark.parametrize("trainer", ["mpi", "ddp"])
async def test_in_an_mpi_job_mpirun_starts_a_rank_for_each_slot(run: CommandLine, trainer: str) -> None:
    words = ("--workers", "2", "--gpus", "2", "-e", "NCCL_DEBUG=INFO", "-e", "A=1", "--trainer", trainer)
    found = await manifest_of(
        run, "mpi", *SMALL[1:], *words, "--", "--master-port=1" if trainer == "mpi" else "--epochs=1"
    )
    launcher = found["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]
    assert launcher["command"][:14] == [
        *("mpirun", "--allow-run-as-root", "--tag-output", "-np", "4", "-x", "A", "-x", "NCCL_DEBUG"),
        *("python", "-P", "-m", f"trainer.train_{trainer}"),
        "--master-port=1" if trainer == "mpi" else "--epochs=1",
    ]
    assert found["metadata"]["annotations"]["gpuconsole.dev/trainer"] == trainer


async def test_slots_that_are_said_are_the_ranks_of_a_worker(run: CommandLine) -> None:
    words = ("--workers", "3", "--gpus", "2", "--slots-per-worker", "1", "--trainer", "mpi")
    found = await manifest_of(run, "mpi", *SMALL[1:], *words)
    launcher = found["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]
    assert launcher["command"][3:5] == ["-np", "3"]


async def test_a_trainer_told_where_to_write_gets_no_volume_of_its_own(run: CommandLine) -> None:
    arguments = ("--log-dir=/mnt/logs", "--checkpoint-dir", "/mnt/saved")
    found = await manifest_of(run, *SMALL, "-d", "mine:/mnt", "--trainer", "ddp", "--", *arguments)
    assert found["metadata"]["annotations"]["gpuconsole.dev/log-dir"] == "/mnt/logs"
    pod = found["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
    assert pod["containers"][0]["command"][6:] == list(arguments)
    claims = [
        each["persistentVolumeClaim"]["claimName"]
        for each in pod["volumes"]
        if "persistentVolumeClaim" in each
    ]
    assert claims == ["mine"]


CLAIM = "/api/v1/namespaces/default/persistentvolumeclaims/workspace"
WITH_TRAINER = "PyTorchJob default/demo created.\nconfigmap/demo-trainer created\n"
TRAINER = ("submit", "pytorch", "--name", "demo", "--image", "x", "--trainer", "ddp")


def with_checkpoint(cluster: ScriptedCluster, volume: Path, run: str, step: int) -> None:
    """Put a checkpoint of an earlier run on the workspace claim."""
    folder = volume / run / "checkpoints"
    folder.mkdir(parents=True)
    (folder / f"step-{step:08d}.pt").touch()
    claim = {
        "metadata": {"name": "workspace", "annotations": {LOCAL_PATH: str(volume)}},
        "spec": {"accessModes": ["ReadWriteMany"]},
        "status": {"phase": "Bound"},
    }
    cluster.say(CLAIM, Answer(claim))
    cluster.say("/api/v1/namespaces/default/persistentvolumeclaims", page([claim]))
    cluster.say(PYTORCH_JOBS, Compute(echo), method="POST")


def sent_command(cluster: ScriptedCluster) -> list[str]:
    (asked,) = cluster.asked(PYTORCH_JOBS, method="POST")
    pod = json.loads(asked.body)["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
    return list(pod["containers"][0]["command"])


async def test_a_job_of_a_name_used_before_does_not_go_on_from_its_checkpoint(
    run: CommandLine, cluster: ScriptedCluster, tmp_path: Path
) -> None:
    with_checkpoint(cluster, tmp_path / "volume", "demo", 200)
    ended = await run(*TRAINER)
    assert (ended.status, ended.out) == (0, WITH_TRAINER)
    said = ended.err.splitlines()[-1]
    assert said.startswith("Starts anew; to go on from step 200 of demo, saved ")
    assert said.endswith(": --continue demo")
    words = sent_command(cluster)
    assert not any(word.startswith("/workspace/demo/") for word in words)
    assert "--resume" not in words


async def test_going_on_from_an_earlier_job_is_asked_for_and_said(
    run: CommandLine, cluster: ScriptedCluster, tmp_path: Path
) -> None:
    with_checkpoint(cluster, tmp_path / "volume", "old-20261122-082033-417", 520)
    ended = await run(*TRAINER, "--continue", "old", "--", "--epochs", "9")
    assert (ended.status, ended.out) == (0, WITH_TRAINER)
    assert ended.err.splitlines()[-1].startswith("Continues step 520 of old (deleted), saved ")
    words = sent_command(cluster)
    at = words.index("--checkpoint-dir")
    assert words[at + 1] == "/workspace/old-20261122-082033-417/checkpoints"
    assert words[-2:] == ["--resume", "must"]
    log_dir = words[words.index("--log-dir") + 1]
    assert re.fullmatch(r"/workspace/old-20261122-082033-417/logs-demo-\d{8}-\d{6}-\d{3}", log_dir)


async def test_a_file_that_names_the_folder_of_an_earlier_run_says_what_it_goes_on_from(
    run: CommandLine, cluster: ScriptedCluster, tmp_path: Path
) -> None:
    printed = await run(*TRAINER, *AS_MANIFEST)
    job = job_in(printed.out)
    folder = job["metadata"]["annotations"]["gpuconsole.dev/log-dir"].split("/")[2]
    path = run.home / "job.yaml"
    path.write_text(json.dumps(job))
    with_checkpoint(cluster, tmp_path / "volume", "demo", 1)
    ended = await run("submit", "-f", str(path))
    assert (ended.status, ended.err) == (0, "")
    with_checkpoint(cluster, tmp_path / "volume", folder, 200)
    ended = await run("submit", "-f", str(path))
    assert (ended.status, ended.out) == (0, "PyTorchJob default/demo created.\n")
    assert ended.err.startswith("Continues step 200 of demo, saved ")
    assert ended.err.endswith(f": its manifest names /workspace/{folder}.\n")


async def test_what_is_wrong_with_a_trainers_manifest_is_left_to_the_server(
    run: CommandLine, cluster: ScriptedCluster
) -> None:
    printed = await run(*TRAINER, *AS_MANIFEST)
    path = run.home / "job.yaml"
    path.write_text(json.dumps(job_in(printed.out) | {"spec": "x"}))
    cluster.say(PYTORCH_JOBS, refusal(422, "spec: must be an object", "Invalid"), method="POST")
    ended = await run("submit", "-f", str(path))
    assert (ended.status, ended.out) == (1, "")
    assert "spec: must be an object" in ended.err


async def test_a_run_that_is_not_there_cannot_be_continued(
    run: CommandLine, cluster: ScriptedCluster, tmp_path: Path
) -> None:
    with_checkpoint(cluster, tmp_path / "volume", "old", 520)
    for name, said in (("older", "No earlier run of 'older'"), ("/workspace/x", "There is no checkpoint in")):
        ended = await run(*TRAINER, "--continue", name)
        assert (ended.status, ended.out) == (2, "")
        assert said in ended.err
    assert cluster.asked(PYTORCH_JOBS, method="POST") == []


async def test_without_a_cluster_only_a_folder_can_be_continued(run: CommandLine) -> None:
    found = await manifest_of(run, *TRAINER[1:], "--continue", "/workspace/old", *AS_MANIFEST)
    text = json.dumps(found)
    assert '"--checkpoint-dir", "/workspace/old/checkpoints"' in text
    ended = await run(*TRAINER, "--continue", "old", *AS_MANIFEST)
    assert (ended.status, ended.out) == (2, "")
    assert "with --dry-run=client name its folder" in ended.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--trainer", "ddp", "--", "--resume", "must"), "--resume must: a new job has no checkpoint"),
        (("--trainer", "ddp", "--continue", "a", "--", "--resume=never"), "--continue: not together with"),
        (("--trainer", "ddp", "--continue", "a", "--", "--checkpoint-dir=/x"), "--continue: not together"),
        (("--continue", "a", "true"), "--continue: only with --trainer"),
        (("--trainer", "mpi", "--continue", "/w/a"), "--continue: the trainer mpi writes no checkpoints."),
        (("--trainer", "mpi", "--", "--resume=must"), "unrecognized arguments: --resume=must"),
    ],
)
async def test_checkpoints_that_cannot_be_meant_are_refused(
    run: CommandLine, cluster: ScriptedCluster, words: tuple[str, ...], said: str
) -> None:
    ended = await run("submit", "pytorch", "--name", "demo", "--image", "x", *words)
    assert (ended.status, ended.out) == (2, "")
    assert said in ended.err
    assert cluster.requests == []


async def test_a_claim_mounted_as_the_workspace_takes_its_place(run: CommandLine) -> None:
    found = await manifest_of(run, *SMALL, "-d", "mine:/workspace", "--trainer", "ddp")
    pod = found["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
    claims = [each["persistentVolumeClaim"] for each in pod["volumes"] if "persistentVolumeClaim" in each]
    assert claims == [{"claimName": "mine"}]


async def test_a_claim_that_is_not_there_is_told_of(run: CommandLine, cluster: ScriptedCluster) -> None:
    cluster.say(PYTORCH_JOBS, Compute(echo), method="POST")
    ended = await run("submit", "pytorch", "--name", "demo", "--image", "x", "--trainer", "ddp")
    assert (ended.status, ended.out) == (0, WITH_TRAINER)
    assert ended.err == (
        "Warning: would wait: volume claim workspace not found in default;"
        " choose one that exists, or create it.\n"
    )


async def test_a_dry_run_prints_all_that_would_be_created_and_no_secret(alone: CommandLine) -> None:
    words = (
        *("--sync-mode=git", "--sync-source=https://git/x.git", "-e", "GIT_SYNC_USERNAME=li"),
        *("-e", "GIT_SYNC_PASSWORD=geheim", "--tensorboard", "--logdir=/in/logs", "-d", "claim:/in", "true"),
    )
    ended = await alone("submit", *SMALL, *words)
    kinds = [each["kind"] for each in yaml.safe_load_all(ended.out)]
    assert kinds == ["Secret", "PyTorchJob", "ConfigMap", "Deployment", "Service"]
    assert "•••" in json.dumps(list(yaml.safe_load_all(ended.out)), ensure_ascii=False)
    assert "geheim" not in ended.out
    ended = await alone("submit", *SMALL[:-1], "json", *words)
    assert [each["kind"] for each in ended.values["items"]] == kinds
    assert "geheim" not in ended.out
    ended = await alone("submit", *SMALL[:-2], *words)
    assert ended.out.splitlines() == [
        "PyTorchJob default/demo created (dry run).",
        "secret/demo-git created (dry run)",
        "deployment.apps/demo-tensorboard created (dry run)",
        "service/demo-tensorboard created (dry run)",
    ]


async def test_what_is_created_beside_a_job_is_said(run: CommandLine, cluster: ScriptedCluster) -> None:
    services = "/api/v1/namespaces/default/services"
    for path in (BATCH_JOBS, services):
        cluster.say(path, Compute(echo), method="POST")
    cluster.say(f"{services}/demo", Answer({}), method="PATCH")
    ended = await run("submit", "job", "--name", "demo", "--image", "x", "--workers", "2", "true")
    assert ended.err == ""
    assert ended.out == "Job default/demo created.\nservice/demo created\n"
    (asked,) = cluster.asked(services, method="POST")
    assert json.loads(asked.body)["spec"]["clusterIP"] == "None"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--config-file", "nothing.yaml:/etc/x"), "--config-file: Could not read nothing.yaml"),
        (("--sync-mode=folder", "--sync-source=./nothing"), "--sync-source: "),
    ],
)
async def test_files_that_are_not_here_are_refused_with_their_flag(
    run: CommandLine, cluster: ScriptedCluster, words: tuple[str, ...], said: str
) -> None:
    ended = await run("submit", "pytorch", "--name", "demo", "--image", "x", *words, "true")
    assert (ended.status, ended.out) == (2, "")
    assert said in ended.err
    assert cluster.requests == []


HUGE = ("submit", "pytorch", "--name", "demo", "--image", "x", "--gpus", "64")
NEVER = "would never start: needs 1 × 64 GPUs; the cluster has 15, at most 8 per node."


async def test_a_job_that_no_node_is_large_enough_for_is_not_created(
    run: CommandLine, cluster: ScriptedCluster
) -> None:
    ended = await run(*HUGE, "true")
    assert (ended.status, ended.out) == (1, "")
    assert ended.err == (
        f"PyTorchJob demo {NEVER}\nNothing was created.\nTo create it all the same: --force\n"
    )
    assert cluster.asked(PYTORCH_JOBS, method="POST") == []


async def test_it_is_created_by_force(run: CommandLine, cluster: ScriptedCluster) -> None:
    cluster.say(PYTORCH_JOBS, Compute(echo), method="POST")
    ended = await run(*HUGE, "--force", "true")
    assert (ended.status, ended.out) == (0, "PyTorchJob default/demo created.\n")
    assert ended.err == f"Warning: {NEVER}\n"


async def test_a_dry_run_tells_that_it_would_never_start(run: CommandLine, cluster: ScriptedCluster) -> None:
    cluster.say(PYTORCH_JOBS, Compute(echo), method="POST")
    ended = await run(*HUGE, "--dry-run=server", "true")
    assert (ended.status, ended.err) == (0, f"Warning: {NEVER}\n")


@pytest.mark.parametrize(("answer", "status"), [("y\n", 0), ("n\n", 1)])
async def test_somebody_at_a_terminal_is_asked_whether_to_create_what_never_fits(
    run: CommandLine, cluster: ScriptedCluster, answer: str, status: int
) -> None:
    cluster.say(PYTORCH_JOBS, Compute(echo), method="POST")
    words = (sys.executable, "-P", "-m", "tui", *HUGE, "true")

    def end() -> int | None:
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        with Terminal(words, columns=160, env=env, folder=run.home) as terminal:
            terminal.wait_for("Create it all the same? [y/N]")
            terminal.send(answer)
            return terminal.wait_for_end()

    assert await asyncio.to_thread(end) == status
    assert len(cluster.asked(PYTORCH_JOBS, method="POST")) == (1 if status == 0 else 0)


async def test_what_cannot_be_known_of_the_nodes_keeps_no_job_from_being_created(
    run: CommandLine, cluster: ScriptedCluster
) -> None:
    for path in ("/api/v1/nodes", "/api/v1/pods", "/api/v1/namespaces/default/pods"):
        cluster.forget(path)
        cluster.say(path, refusal(403, "no", "Forbidden"))
    cluster.say(PYTORCH_JOBS, Compute(echo), method="POST")
    ended = await run(*HUGE, "true")
    assert (ended.status, ended.out) == (0, "PyTorchJob default/demo created.\n")


async def test_other_accelerators_are_asked_for_by_their_names(run: CommandLine) -> None:
    found = await manifest_of(run, *SMALL, "--device", "amd.com/gpu=2", "true")
    container = found["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]
    assert container["resources"]["limits"] == {"amd.com/gpu": "2"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--image", "x", "true"), "--name: Required, e.g. bert-base-1"),
        (("--name", "Demo_", "--image", "x", "true"), "--name: Use lowercase letters"),
        (("--name", "demo", "true"), "--image: Required, e.g. pytorch"),
        (("--name", "demo", "--image", "x"), "COMMAND: Required: a command"),
        (("--name", "demo", "--image", "x", "--workers", "0", "true"), "--workers: Must be at least 1"),
        (("--name", "demo", "--image", "x", "--gpus", "-1", "true"), "--gpus: Must be at least 0"),
        (("--name", "demo", "--image", "x", "--cpu", "much", "true"), "--cpu: 'much' is not a quantity"),
        (("--name", "demo", "--image", "x", "-d", "claim:/", "true"), "--data: '/'"),
        (("--name", "demo", "--image", "x", "-d", "claim", "true"), "'claim' is not CLAIM:/PATH"),
        (("--name", "demo", "--image", "x", "-e", "novalue", "true"), "'novalue' is not NAME=VALUE"),
        (("--name", "demo", "--image", "x", "-e", "1A=2", "true"), "--env: '1A' is not a valid variable"),
        (("--name", "demo", "--image", "x", "--trainer", "gan"), "--trainer: There is no trainer 'gan'"),
        (("--name", "demo", "--image", "x", "--trainer", "ddp", "true"), "COMMAND: not allowed"),
        (
            ("--name", "demo", "--image", "x", "--trainer", "mpi", "--", "--master-addr", "a"),
            "--master-addr: for ranks that mpirun starts; this job's are torchrun's.",
        ),
        (("--name", "demo", "--image", "x", "true", "--", "false"), "not both"),
        (
            ("--name", "demo", "--image", "x", "--trainer", "ddp", "--", "--epochs", "many"),
            "--epochs: 'many'",
        ),
        (
            ("--name", "demo", "--image", "x", "--gpus", "1", "--device", "nvidia.com/gpu=1", "true"),
            "--device:",
        ),
    ],
)
async def test_flags_that_make_no_sense_are_refused_before_anything_is_sent(
    run: CommandLine, cluster: ScriptedCluster, words: tuple[str, ...], said: str
) -> None:
    ended = await run("submit", "pytorch", *words)
    assert (ended.status, ended.out) == (2, "")
    assert said in ended.err
    assert cluster.requests == []


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (("-e", "A=1\rB=2", "true"), "--env"),
        (("-e", "A=\x1b[2J", "true"), "--env"),
        (("-e", "A=\x9b2J", "true"), "--env"),
        (("-l", "a=b\x00", "true"), "--label"),
        (("-p", "high\x7f", "true"), "--priority"),
        (("--logdir", "/x\r", "true"), "--logdir"),
        (("--working-dir", "/x\r", "true"), "--working-dir"),
        (("-d", "claim:/x\x07", "true"), "--data"),
        (("echo\r",), "COMMAND"),
    ],
)
async def test_control_characters_are_refused_before_anything_is_sent(
    run: CommandLine, cluster: ScriptedCluster, words: tuple[str, ...], flag: str
) -> None:
    ended = await run("submit", "pytorch", "--name", "demo", "--image", "x", *words)
    assert (ended.status, ended.out) == (2, "")
    assert f"{flag}: Must not hold control characters; there is " in ended.err
    assert not set(ended.err) & {"\r", "\x1b", "\x07", "\x9b", "\x00"}
    assert cluster.requests == []


async def test_a_variable_may_hold_several_lines(run: CommandLine) -> None:
    found = await manifest_of(run, *SMALL, "-e", "KEY=one\n\ttwo\n", "true")
    env = found["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]["env"]
    assert {"name": "KEY", "value": "one\n\ttwo\n"} in env


async def test_a_name_in_use_is_told(run: CommandLine, cluster: ScriptedCluster) -> None:
    words = 'pytorchjobs.kubeflow.org "waits" already exists'
    cluster.say(PYTORCH_JOBS, refusal(409, words, "AlreadyExists"), method="POST")
    ended = await run("submit", "pytorch", "--name", "waits", "--image", "x", "true")
    assert (ended.status, ended.out) == (1, "")
    assert words in ended.err
    assert "Choose another name" in ended.err


async def test_a_server_without_the_operator_is_told(run: CommandLine, cluster: ScriptedCluster) -> None:
    cluster.say("/api/v1/namespaces/default", Answer({"metadata": {"name": "default"}}))
    ended = await run("submit", "pytorch", "--name", "demo", "--image", "x", "true")
    assert ended.status == 1
    assert "does not serve PyTorchJob" in ended.err


async def test_a_dry_run_asks_the_server_and_creates_nothing(
    run: CommandLine, cluster: ScriptedCluster
) -> None:
    cluster.say(BATCH_JOBS, Compute(echo), method="POST")
    ended = await run("submit", "job", "--name", "demo", "--image", "x", "--dry-run=server", "true")
    assert (ended.status, ended.out) == (0, "Job default/demo created (server dry run).\n")
    (asked,) = cluster.asked(BATCH_JOBS, method="POST")
    assert asked.query["dryRun"] == "All"


async def test_a_dry_run_by_the_client_needs_no_cluster(alone: CommandLine) -> None:
    ended = await alone("submit", "--dry-run=client", "job", "--name", "demo", "--image", "x", "true")
    assert (ended.status, ended.out) == (0, "Job default/demo created (dry run).\n")
    found = await manifest_of(alone, *SMALL, "-n", "vision", "true")
    assert found["metadata"]["namespace"] == "vision"


async def test_nothing_is_created_with_readonly(run: CommandLine, cluster: ScriptedCluster) -> None:
    ended = await run("--readonly", "submit", "job", "--name", "demo", "--image", "x", "true")
    assert ended.status == 1
    assert "--readonly" in ended.err
    assert cluster.requests == []


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
    ended = await run.process("submit", "-f", "-", stdin=manifest)
    assert (ended.status, ended.out) == (0, "Job default/demo created.\n")
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
        ("- a\n- b\n", "It is a list, not an object"),
        ("kind: Job\n", "has no apiVersion"),
        ("apiVersion: batch/v1\n", "has no kind"),
        ("apiVersion: batch/v1\nkind: Job\n", "has no metadata.name"),
        (
            "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: x}\n",
            "a StatefulSet apps/v1, which is not",
        ),
        ("apiVersion: batch/v1\nkind: Job\nmetadata: {name: .nan}\n", "holds a value that a manifest cannot"),
        (
            "apiVersion: batch/v1\nkind: Job\nmetadata: {name: x, namespace: other}\n",
            "names namespace other",
        ),
        ("a: &a [*a]\n", "holds a value that a manifest cannot"),
        ("a: !!python/object:os.system {}\n", "is not YAML at line 1"),
        ("a: \x01\n", "is not YAML"),
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
    ):
        ended = await run("submit", "-f", str(run.home / name))
        assert ended.status == 1
        assert said in ended.err


def flags_of(words: list[str], rest: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_spec_arguments(parser)
    flags = parser.parse_args(words)
    flags.rest = rest
    return flags


TEXT = st.text(max_size=12) | st.text(string.ascii_lowercase + string.digits + "-./:=", max_size=12)


@given(
    name=TEXT, image=TEXT, cpu=TEXT, memory=TEXT, folder=TEXT, line=TEXT,
    workers=st.integers(-3, 10**6), gpus=st.integers(-3, 10**6),
    pairs=st.lists(st.tuples(st.text(min_size=1, max_size=5).filter(lambda name: "=" not in name), TEXT)),
    rest=st.lists(TEXT, max_size=3),
)  # fmt: skip
def test_any_flags_make_a_job_or_wrong_usage(
    name: str, image: str, cpu: str, memory: str, folder: str, line: str, workers: int, gpus: int,
    pairs: list[tuple[str, str]], rest: list[str],
) -> None:  # fmt: skip
    words = [f"--name={name}", f"--image={image}", f"--cpu={cpu}", f"--memory={memory}"]
    words += [f"--working-dir={folder}", f"--workers={workers}", f"--gpus={gpus}"]
    words += [f"--env={key}={value}" for key, value in pairs]
    flags = flags_of(words, rest)
    flags.command = [line] if line else []
    try:
        spec = spec_of(flags, "default")
    except WrongUsage as error:
        assert str(error)
    else:
        assert isinstance(spec, JobSpec)
        assert spec.problems() == {}
