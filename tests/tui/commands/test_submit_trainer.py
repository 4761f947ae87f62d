"""`submit --trainer`: its command, its folders, and going on from a checkpoint."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from k8s.jobs.pod_files import LOCAL_PATH
from tests.scripted.server import Answer, Compute, ScriptedCluster, page, refusal
from tests.tui.commands.conftest import CommandLine
from tests.tui.commands.submitting import AS_MANIFEST, PYTORCH_JOBS, SMALL, echo, job_in, manifest_of


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


@pytest.mark.parametrize("trainer", ["ddp", "mpi"])
@pytest.mark.parametrize("words", [(), ("--", "--log-dir", "/data/tb")])
async def test_logdir_is_for_the_trainer_too(run: CommandLine, trainer: str, words: tuple[str, ...]) -> None:
    given = ("--data", "data:/data", "--logdir", "/data/tb", "--tensorboard")
    ended = await run("submit", *SMALL, *given, "--trainer", trainer, *words)
    assert ended.status == 0, ended.err
    found = job_in(ended.out)
    assert found["metadata"]["annotations"]["gpuconsole.dev/log-dir"] == "/data/tb"
    command = found["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]["command"]
    assert [command[at + 1] for at, word in enumerate(command) if word == "--log-dir"] == ["/data/tb"]
    assert "- --logdir\n        - /data/tb\n" in ended.out, "TensorBoard reads there"


async def test_two_folders_for_event_files_are_refused(run: CommandLine) -> None:
    words = ("--logdir", "/data/tb", "--trainer", "ddp", "--", "--log-dir=/workspace/tb")
    ended = await run("submit", *SMALL, *words)
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.startswith("--logdir: not together with another --log-dir after --: /workspace/tb.\n")


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


async def test_a_reused_name_starts_anew(run: CommandLine, cluster: ScriptedCluster, tmp_path: Path) -> None:
    with_checkpoint(cluster, tmp_path / "volume", "demo", 200)
    ended = await run(*TRAINER)
    assert (ended.status, ended.out) == (0, WITH_TRAINER)
    said = ended.err.splitlines()[-1]
    assert said.startswith("Starts anew; to go on from step 200 of demo, saved ")
    assert said.endswith(": --continue demo")
    words = sent_command(cluster)
    assert not any(word.startswith("/workspace/demo/") for word in words)
    assert "--resume" not in words


async def test_resuming_is_explicit(run: CommandLine, cluster: ScriptedCluster, tmp_path: Path) -> None:
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


async def test_a_file_may_resume_a_run(run: CommandLine, cluster: ScriptedCluster, tmp_path: Path) -> None:
    printed = await run(*TRAINER, *AS_MANIFEST)
    job = job_in(printed.out)
    folder = job["metadata"]["annotations"]["gpuconsole.dev/log-dir"].split("/")[2]
    path = run.home / "job.yaml"
    path.write_text(json.dumps(job))
    with_checkpoint(cluster, tmp_path / "volume", "demo", 1)
    ended = await run("submit", "-f", str(path))
    missing = "would wait: ConfigMap demo-trainer not found in default; create it, or name one that exists"
    assert (ended.status, ended.err) == (0, f"Warning: {missing}.\n")
    with_checkpoint(cluster, tmp_path / "volume", folder, 200)
    ended = await run("submit", "-f", str(path))
    assert (ended.status, ended.out) == (0, "PyTorchJob default/demo created.\n")
    assert "Continues step 200 of demo, saved " in ended.err
    assert ended.err.endswith(f": its manifest names /workspace/{folder}.\n")


async def test_invalid_manifests_go_to_the_server(run: CommandLine, cluster: ScriptedCluster) -> None:
    printed = await run(*TRAINER, *AS_MANIFEST)
    path = run.home / "job.yaml"
    path.write_text(json.dumps(job_in(printed.out) | {"spec": "x"}))
    cluster.say(PYTORCH_JOBS, refusal(422, "spec: must be an object", "Invalid"), method="POST")
    (await run("submit", "-f", str(path))).reports(1, "spec: must be an object")


async def test_a_missing_run_is_refused(run: CommandLine, cluster: ScriptedCluster, tmp_path: Path) -> None:
    with_checkpoint(cluster, tmp_path / "volume", "old", 520)
    for name, said in (("older", "No earlier run of 'older'"), ("/workspace/x", "There is no checkpoint in")):
        (await run(*TRAINER, "--continue", name)).reports(2, said)
    assert cluster.asked(PYTORCH_JOBS, method="POST") == []


async def test_without_a_cluster_only_a_folder_can_be_continued(run: CommandLine) -> None:
    found = await manifest_of(run, *TRAINER[1:], "--continue", "/workspace/old", *AS_MANIFEST)
    text = json.dumps(found)
    assert '"--checkpoint-dir", "/workspace/old/checkpoints"' in text
    (await run(*TRAINER, "--continue", "old", *AS_MANIFEST)).reports(
        2, "with --dry-run=client name its folder"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--trainer", "ddp", "--", "--resume", "must"), "--resume must: a new job has no checkpoint"),
        (("--trainer", "ddp", "--continue", "a", "--", "--resume=never"), "--continue cannot"),
        (("--trainer", "ddp", "--continue", "a", "--", "--checkpoint-dir=/x"), "--continue cannot"),
        (("--continue", "a", "true"), "--continue requires --trainer"),
        (("--trainer", "mpi", "--continue", "/w/a"), "--continue: the trainer mpi writes no checkpoints."),
        (("--trainer", "mpi", "--", "--resume=must"), "unrecognized arguments: --resume=must"),
    ],
)
async def test_checkpoints_that_cannot_be_meant_are_refused(
    run: CommandLine, cluster: ScriptedCluster, words: tuple[str, ...], said: str
) -> None:
    (await run("submit", "pytorch", "--name", "demo", "--image", "x", *words)).reports(2, said)
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


async def test_the_flags_of_scripts_become_the_trainers_own(run: CommandLine) -> None:
    arguments = ("--logdir=/mnt/logs", "--checkpoint_dir", "/mnt/saved", "--no_cuda")
    found = await manifest_of(run, *SMALL, "-d", "mine:/mnt", "--trainer", "ddp", "--", *arguments)
    assert found["metadata"]["annotations"]["gpuconsole.dev/log-dir"] == "/mnt/logs"
    pod = found["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
    assert pod["containers"][0]["command"][6:] == [
        *("--log-dir=/mnt/logs", "--checkpoint-dir", "/mnt/saved", "--device", "cpu")
    ]
