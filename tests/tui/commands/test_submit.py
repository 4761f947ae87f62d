"""From the command line to what is sent: flags; and what is refused before it is sent."""

from __future__ import annotations

import argparse
import json
import string
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from k8s.job_spec import JobSpec, problems_of
from tests.scripted.server import Answer, Asked, Compute, Reply, ScriptedCluster, refusal
from tests.tui.commands.conftest import CommandLine
from tests.tui.commands.submitting import BATCH_JOBS, PYTORCH_JOBS, SMALL, echo, manifest_of
from tui.commands.submission.submit_flags import add_spec_arguments, spec_of
from tui.commands.support.output import WrongUsage


async def test_what_the_server_warns_of_goes_to_stderr(run: CommandLine, cluster: ScriptedCluster) -> None:
    def warn(asked: Asked) -> Reply:
        words = "spec.podFailurePolicy: ignored\u202e"
        return Answer(json.loads(asked.body), 201, {"Warning": f'299 - "{words}"'})

    cluster.say(BATCH_JOBS, Compute(warn), method="POST")
    ended = await run("submit", "job", "--name", "demo", "--image", "x", "true")
    assert (ended.status, ended.out) == (0, "Job default/demo created.\n")
    assert ended.err.startswith("Warning: spec.podFailurePolicy: ignored")
    assert "\u202e" not in ended.err


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
        "Warning: would wait: no open node can take 3 pods (1 node not ready); wait for gpu-node-1.",
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


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("--", "python", "a b.py", "--", "-x"), {"command": ["python", "a b.py", "--", "-x"]}),
        (("--shell", "bash", "--", "a && sync"), {"command": ["bash", "-c", "a && sync"]}),
        (("--device", "amd.com/gpu=2", "true"), {"limits": {"amd.com/gpu": "2"}}),
    ],
)
async def test_a_container_is_what_the_flags_say(
    run: CommandLine, words: tuple[str, ...], part: dict[str, Any]
) -> None:
    found = await manifest_of(run, *SMALL, "--show-secrets", "-e", "KEY=one\n\ttwo\n", *words)
    container = found["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]
    assert part.items() <= (container | container.get("resources", {})).items()
    assert {"name": "KEY", "value": "one\n\ttwo\n"} in container["env"]


async def test_a_batch_job_is_called_job(run: CommandLine) -> None:
    found = await manifest_of(run, "job", *SMALL[1:], "--workers", "2", "true")
    assert (found["kind"], found["spec"]["completions"]) == ("Job", 2)


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


async def test_a_claim_is_created(run: CommandLine, alone: CommandLine, cluster: ScriptedCluster) -> None:
    new = ("--create-claim", "tutorial:1Gi", "-d", "tutorial:/t", "true")
    ended = await alone("submit", *SMALL, *new)
    claim, *_ = yaml.safe_load_all(ended.out)
    assert (claim["metadata"]["name"], claim["spec"]["accessModes"]) == ("tutorial", ["ReadWriteOnce"])
    claims = "/api/v1/namespaces/default/persistentvolumeclaims"
    cluster.say(PYTORCH_JOBS, Compute(echo), method="POST")
    taken = refusal(409, "tutorial already exists", "AlreadyExists")
    cluster.say(claims, Compute(echo), taken, method="POST")
    cluster.say(f"{claims}/tutorial", refusal(404, "not found", "NotFound"), Answer(claim))
    words = ("submit", "pytorch", "--name", "demo", "--image", "x", *new)
    ended = await run(*words)
    assert ended.err == ""
    assert ended.out == "PyTorchJob default/demo created.\npersistentvolumeclaim/tutorial created\n"
    ended = await run(*words)
    assert ended.err.startswith("Warning: would use volume claim tutorial, which already exists (1Gi);")
    assert ended.out.endswith("persistentvolumeclaim/tutorial used, it is there already\n")


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
    (await run("submit", "pytorch", "--name", "demo", "--image", "x", *words, "true")).reports(2, said)
    assert cluster.requests == []


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
    (await run("submit", "pytorch", *words)).reports(2, said)
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
    ended.reports(2, f"{flag}: Must not contain control characters; found ")
    assert not set(ended.err) & {"\r", "\x1b", "\x07", "\x9b", "\x00"}
    assert cluster.requests == []


async def test_a_name_in_use_is_told(run: CommandLine, cluster: ScriptedCluster) -> None:
    words = 'pytorchjobs.kubeflow.org "waits" already exists'
    cluster.say(PYTORCH_JOBS, refusal(409, words, "AlreadyExists"), method="POST")
    (await run("submit", "pytorch", "--name", "waits", "--image", "x", "true")).reports(
        1, words, "Choose another name"
    )


async def test_a_server_without_the_operator_is_told(run: CommandLine, cluster: ScriptedCluster) -> None:
    cluster.say("/api/v1/namespaces/default", Answer({"metadata": {"name": "default"}}))
    ended = await run("submit", "pytorch", "--name", "demo", "--image", "x", "true")
    assert ended.status == 1
    assert "does not serve PyTorchJob" in ended.err


async def test_a_server_dry_run_creates_nothing(run: CommandLine, cluster: ScriptedCluster) -> None:
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
        assert problems_of(spec) == {}
