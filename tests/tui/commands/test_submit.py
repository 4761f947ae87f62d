"""`submit` with flags, trainers and templates: what is sent, what is said of it, and what is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from k8s.jobs.pod_files import LOCAL_PATH
from k8s.kinds import CREATABLE
from tests.scripted.feed import say_kinds
from tests.scripted.server import Answer, Asked, Compute, Reply, ScriptedCluster, page, refusal
from tests.support.objects import pytorch_job
from tests.tui.commands.conftest import (
    AS_MANIFEST,
    BATCH_JOBS,
    PYTORCH_JOBS,
    SMALL,
    CommandLine,
    echo,
    job_in,
    manifest_of,
)
from tui.draft.job_templates import packaged_templates

DEMO = ("submit", "pytorch", "--name", "demo", "--image", "x")
HUGE = (*DEMO, "--gpus", "64")
REPAIR = "an administrator can repair the nodes that do not answer: gpu-node-1"
NEVER = (
    "would never start: master-0 needs 64 nvidia.com/gpu; the largest node has 8 (gpu-node-0); "
    "request 8 nvidia.com/gpu or less per pod; more pods can make up for it."
)


async def test_server_warning_headers_are_printed_to_stderr_sanitized(run: CommandLine) -> None:
    def warn(asked: Asked) -> Reply:
        words = "spec.podFailurePolicy: ignored\u202e"
        return Answer(json.loads(asked.body), 201, {"Warning": f'299 - "{words}"'})

    run.cluster.say(BATCH_JOBS, Compute(warn), method="POST")
    ended = await run("submit", "job", "--name", "demo", "--image", "x", "true")
    assert (ended.status, ended.out) == (0, "Job default/demo created.\n")
    assert ended.err.startswith("Warning: spec.podFailurePolicy: ignored")
    assert "\u202e" not in ended.err


async def test_a_job_is_created_from_flags(run: CommandLine) -> None:
    run.cluster.say(PYTORCH_JOBS, Compute(echo), method="POST")
    ended = await run(
        "submit", "pytorch", "--name", "demo", "--image", "train:1", "--workers", "3", "--gpus", "2",
        "--cpu", "4", "--memory", "8Gi", "--share-memory", "1Gi", "--retry", "2",
        "--clean-task-policy", "All",
        "--working-dir", "/root", "-e", "A=1=2", "--env", "B=", "-d", "training-data:/mnt", "-p", "high",
        "--label", "team=vision", "python train.py --epochs 3",
    )  # fmt: skip
    assert (ended.status, ended.out) == (0, "PyTorchJob default/demo created.\n")
    assert ended.err.splitlines() == [
        "Warning: would wait for a node: each of 3 pods needs 2 nvidia.com/gpu; no node that is large enough "
        f"accepts it (1 node not ready); {REPAIR}.",
        "Warning: would wait for volume claim training-data, which does not exist in default; "
        "create it, or name one that exists.",
    ]
    (asked,) = run.cluster.asked(PYTORCH_JOBS, method="POST")
    sent = json.loads(asked.body)
    assert asked.query["fieldManager"] == "gpuconsole"
    assert sent["metadata"]["annotations"].pop("gpuconsole.dev/submission")
    assert '"workers":3' in sent["metadata"]["annotations"].pop("gpuconsole.dev/spec")
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


async def test_a_client_dry_run_prints_all_objects_and_masks_secrets(alone: CommandLine) -> None:
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


async def test_submit_reports_the_service_created_for_a_multi_worker_job(run: CommandLine) -> None:
    services = "/api/v1/namespaces/default/services"
    for path in (BATCH_JOBS, services):
        run.cluster.say(path, Compute(echo), method="POST")
    run.cluster.say(f"{services}/demo", Answer({}), method="PATCH")
    ended = await run("submit", "job", "--name", "demo", "--image", "x", "--workers", "2", "true")
    assert ended.err == ""
    assert ended.out == "Job default/demo created.\nservice/demo created\n"
    (asked,) = run.cluster.asked(services, method="POST")
    assert json.loads(asked.body)["spec"]["clusterIP"] == "None"


async def test_a_claim_is_created(run: CommandLine, alone: CommandLine) -> None:
    new = ("--create-claim", "tutorial:1Gi", "-d", "tutorial:/t", "true")
    ended = await alone("submit", *SMALL, *new)
    claim, *_ = yaml.safe_load_all(ended.out)
    assert (claim["metadata"]["name"], claim["spec"]["accessModes"]) == ("tutorial", ["ReadWriteOnce"])
    claims = "/api/v1/namespaces/default/persistentvolumeclaims"
    run.cluster.say(PYTORCH_JOBS, Compute(echo), method="POST")
    taken = refusal(409, "tutorial already exists", "AlreadyExists")
    run.cluster.say(claims, Compute(echo), taken, method="POST")
    run.cluster.say(f"{claims}/tutorial", refusal(404, "not found", "NotFound"), Answer(claim))
    words = ("submit", "pytorch", "--name", "demo", "--image", "x", *new)
    ended = await run(*words)
    assert ended.err == ""
    assert ended.out == "PyTorchJob default/demo created.\npersistentvolumeclaim/tutorial created\n"
    ended = await run(*words)
    assert ended.err.startswith("Warning: would use volume claim tutorial, which already exists (1Gi);")
    assert ended.out.endswith("persistentvolumeclaim/tutorial used, it is there already\n")


async def test_a_server_dry_run_creates_nothing(run: CommandLine) -> None:
    run.cluster.say(BATCH_JOBS, Compute(echo), method="POST")
    ended = await run("submit", "job", "--name", "demo", "--image", "x", "--dry-run=server", "true")
    assert (ended.status, ended.out) == (0, "Job default/demo created (server dry run).\n")
    (asked,) = run.cluster.asked(BATCH_JOBS, method="POST")
    assert asked.query["dryRun"] == "All"


async def test_a_dry_run_by_the_client_needs_no_cluster(alone: CommandLine) -> None:
    ended = await alone("submit", "--dry-run=client", "job", "--name", "demo", "--image", "x", "true")
    assert (ended.status, ended.out) == (0, "Job default/demo created (dry run).\n")
    found = await manifest_of(alone, *SMALL, "-n", "vision", "true")
    assert found["metadata"]["namespace"] == "vision"


async def test_a_job_that_fits_no_node_needs_force(run: CommandLine) -> None:
    run.cluster.say(PYTORCH_JOBS, Compute(echo), method="POST")
    ended = await run(*HUGE, "true")
    assert (ended.status, ended.out) == (1, "")
    assert ended.err == (
        f"PyTorchJob demo {NEVER}\nNothing was created.\nTo create it all the same: --force\n"
    )
    assert run.cluster.asked(PYTORCH_JOBS, method="POST") == []
    for flag, dry_run in (("--force", ""), ("--dry-run=server", " (server dry run)")):
        ended = await run(*HUGE, flag, "true")
        assert (ended.status, ended.out) == (0, f"PyTorchJob default/demo created{dry_run}.\n")
        assert ended.err == f"Warning: {NEVER}\n"


@pytest.mark.parametrize(("answer", "status"), [("y\n", 0), ("n\n", 1)])
async def test_submit_on_a_terminal_confirms_a_job_that_fits_no_node(
    run: CommandLine, answer: str, status: int
) -> None:
    run.cluster.say(PYTORCH_JOBS, Compute(echo), method="POST")
    ended, screen = await run.on_terminal(*HUGE, "true", typed=answer)
    assert (ended, "Create it all the same? [y/N]" in screen) == (status, True), screen
    assert len(run.cluster.asked(PYTORCH_JOBS, method="POST")) == (1 if status == 0 else 0)


async def test_a_job_is_created_without_a_fit_check_if_nodes_are_unreadable(run: CommandLine) -> None:
    for path in ("/api/v1/nodes", "/api/v1/pods", "/api/v1/namespaces/default/pods"):
        run.cluster.replace(path, refusal(403, "no", "Forbidden"))
    run.cluster.say(PYTORCH_JOBS, Compute(echo), method="POST")
    ended = await run(*HUGE, "true")
    assert (ended.status, ended.out) == (0, "PyTorchJob default/demo created.\n")


TAKEN = 'pytorchjobs.kubeflow.org "demo" already exists'
TAKEN_WARNING = (
    "Warning: would be refused: PyTorchJob demo already exists in default;"
    " choose another name, or delete that one first."
)
OVER_LIMIT = ("--cpu=2-1",)
OVER_LIMIT_WARNING = (
    "Warning: would be refused: the request of 2 is more than the limit of 1; request at most 1."
)
NAME_IS_TAKEN = (
    (f"{PYTORCH_JOBS}/demo", Answer(pytorch_job("demo")), "GET"),
    (PYTORCH_JOBS, refusal(409, TAKEN, "AlreadyExists"), "POST"),
)
NOWHERE = refusal(404, 'namespaces "nowhere" not found', "NotFound")
DENIED = Answer({"status": {"allowed": False, "denied": True}}, 201)
REQUESTS = "spec.template.spec.containers[0].resources.requests"
LESS = 'Invalid value: "2": must be less than or equal to cpu limit of 1'
NOT_CREATED = "Could not create PyTorchJob demo."
CHOOSE = f"The cluster says: {TAKEN}\nChoose another name, or delete that job first."
REFUSALS: dict[str, tuple[Iterable[tuple[str, Reply, str]], tuple[str, ...], str]] = {
    "name": (NAME_IS_TAKEN, DEMO, f"{NOT_CREATED}\n{CHOOSE}"),
    "dry run": (
        NAME_IS_TAKEN,
        (*DEMO, "--dry-run=server"),
        f"Could not create PyTorchJob demo in a dry run.\n{CHOOSE}",
    ),
    "limit too": (NAME_IS_TAKEN, (*DEMO, *OVER_LIMIT), f"{OVER_LIMIT_WARNING}\n{NOT_CREATED}\n{CHOOSE}"),
    "size too": (
        NAME_IS_TAKEN,
        HUGE,
        f"{TAKEN_WARNING}\nPyTorchJob demo {NEVER}\nNothing was created.\nTo create it all the same: --force",
    ),
    "limit": (
        [(BATCH_JOBS, refusal(422, f"{REQUESTS}: {LESS}", "Invalid", causes={REQUESTS: LESS}), "POST")],
        ("submit", "job", *DEMO[2:], *OVER_LIMIT),
        f"Could not create Job demo.\nThe cluster says: {REQUESTS}: {LESS}\nRequest at most 1.",
    ),
    "namespace": (
        [
            ("/api/v1/namespaces/nowhere", NOWHERE, "GET"),
            (PYTORCH_JOBS.replace("default", "nowhere"), NOWHERE, "POST"),
        ],
        ("-n", "nowhere", *DEMO),
        f"{NOT_CREATED}\nThere is no namespace nowhere.\nChoose one that exists.",
    ),
    "right": (
        [
            ("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", DENIED, "POST"),
            (PYTORCH_JOBS, refusal(403, "you may not", "Forbidden"), "POST"),
        ],
        DEMO,
        f"{NOT_CREATED}\nThe cluster says: you may not\n"
        "Pick another namespace, or ask for a role that allows it.",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
async def test_each_refusal_is_reported_once(run: CommandLine, name: str) -> None:
    replies, words, message = REFUSALS[name]
    for path, reply, method in replies:
        run.cluster.say(path, reply, method=method)
    ended = await run(*words, "true")
    assert (ended.status, ended.out, ended.err) == (1, "", f"{message}\n")


async def test_a_wrongly_accepted_job_is_warned_about(run: CommandLine) -> None:
    run.cluster.say(PYTORCH_JOBS, Compute(echo), method="POST")
    ended = await run(*DEMO, *OVER_LIMIT, "true")
    assert (ended.status, ended.out) == (0, "PyTorchJob default/demo created.\n")
    assert ended.err == f"{OVER_LIMIT_WARNING}\n"


async def test_an_unserved_kind_is_reported_once(run: CommandLine) -> None:
    say_kinds(run.cluster, {"batch/v1": ["jobs"], "kubeflow.org/v1": []})
    ended = await run(*DEMO, "true")
    assert ended.err.splitlines() == [
        "Could not create PyTorchJob demo.",
        "This cluster does not serve PyTorchJob kubeflow.org/v1.",
        "Choose another kind of job, or ask for its operator to be installed.",
    ]


async def test_a_manifest_names_its_trainer_and_where_that_writes(run: CommandLine) -> None:
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
    pod = found["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
    assert pod["containers"][0]["command"][:6] == [
        *("python", "-P", "-m", "trainer.launch", "-m", "trainer.train_ddp")
    ]
    assert pod["volumes"][0]["persistentVolumeClaim"] == {"claimName": "workspace"}


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


async def test_a_reused_job_name_starts_from_scratch_and_suggests_continue(
    run: CommandLine, tmp_path: Path
) -> None:
    with_checkpoint(run.cluster, tmp_path / "volume", "demo", 200)
    ended = await run(*TRAINER)
    assert (ended.status, ended.out) == (0, WITH_TRAINER)
    said = ended.err.splitlines()[-1]
    assert said.startswith("Starts anew; to go on from step 200 of demo, saved ")
    assert said.endswith(": --continue demo")
    words = sent_command(run.cluster)
    assert not any(word.startswith("/workspace/demo/") for word in words)
    assert "--resume" not in words


async def test_resuming_is_explicit(run: CommandLine, tmp_path: Path) -> None:
    with_checkpoint(run.cluster, tmp_path / "volume", "old-20261122-082033-417", 520)
    ended = await run(*TRAINER, "--continue", "old", "--", "--epochs", "9")
    assert (ended.status, ended.out) == (0, WITH_TRAINER)
    assert ended.err.splitlines()[-1].startswith("Continues step 520 of old (deleted), saved ")
    words = sent_command(run.cluster)
    at = words.index("--checkpoint-dir")
    assert words[at + 1] == "/workspace/old-20261122-082033-417/checkpoints"
    assert words[-2:] == ["--resume", "must"]
    log_dir = words[words.index("--log-dir") + 1]
    assert re.fullmatch(r"/workspace/old-20261122-082033-417/logs-demo-\d{8}-\d{6}-\d{3}", log_dir)


async def test_a_file_may_resume_a_run(run: CommandLine, tmp_path: Path) -> None:
    printed = await run(*TRAINER, *AS_MANIFEST)
    job = job_in(printed.out)
    folder = job["metadata"]["annotations"]["gpuconsole.dev/log-dir"].split("/")[2]
    path = run.home / "job.yaml"
    path.write_text(json.dumps(job))
    with_checkpoint(run.cluster, tmp_path / "volume", "demo", 1)
    ended = await run("submit", "-f", str(path))
    missing = "would wait for ConfigMap demo-trainer, which does not exist in default"
    advice = "create it, or name one that exists"
    assert (ended.status, ended.err) == (0, f"Warning: {missing}; {advice}.\n")
    with_checkpoint(run.cluster, tmp_path / "volume", folder, 200)
    ended = await run("submit", "-f", str(path))
    assert (ended.status, ended.out) == (0, "PyTorchJob default/demo created.\n")
    assert "Continues step 200 of demo, saved " in ended.err
    assert ended.err.endswith(f": its manifest names /workspace/{folder}.\n")


async def test_a_missing_run_is_refused(run: CommandLine, tmp_path: Path) -> None:
    with_checkpoint(run.cluster, tmp_path / "volume", "old", 520)
    for name, said in (("older", "No earlier run of 'older'"), ("/workspace/x", "There is no checkpoint in")):
        (await run(*TRAINER, "--continue", name)).reports(2, said)
    assert run.cluster.asked(PYTORCH_JOBS, method="POST") == []


async def test_a_client_dry_run_can_continue_only_from_a_folder(run: CommandLine) -> None:
    found = await manifest_of(run, *TRAINER[1:], "--continue", "/workspace/old", *AS_MANIFEST)
    text = json.dumps(found)
    assert '"--checkpoint-dir", "/workspace/old/checkpoints"' in text
    (await run(*TRAINER, "--continue", "old", *AS_MANIFEST)).reports(
        2, "with --dry-run=client name its folder"
    )


PACKAGED = packaged_templates()
OURS = """
description: Ours
kind: PyTorchJob
image: train:1
gpus: 2
workers: 3
cpu: 8
env: {A: '1', B: two words}
mounts: ['data:/in', 'out:/out']
tolerations: ['team=vision:NoSchedule']
tensorboard: true
log_dir: /out/logs
running_timeout_s: 90m
command: python train.py --epochs 3
"""


@pytest.fixture
def own(alone: CommandLine) -> CommandLine:
    """Return the command line of a user who has a template `ours`."""
    return with_template(alone, "ours", OURS)


def with_template(run: CommandLine, name: str, text: str) -> CommandLine:
    folder = run.home / "config" / "gpuconsole" / "templates"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.yaml").write_text(text)
    return run


def container_of(job: Any, role: str = "Master") -> Any:
    return job["spec"]["pytorchReplicaSpecs"][role]["template"]["spec"]["containers"][0]


def env_of(job: Any) -> dict[str, str]:
    return {each["name"]: each["value"] for each in container_of(job)["env"] if len(each["name"]) == 1}


async def test_a_template_fills_the_jobs_manifest(own: CommandLine) -> None:
    job = await manifest_of(own, "--template", "ours", "--name", "demo", *AS_MANIFEST)
    assert (job["kind"], job["metadata"]["name"]) == ("PyTorchJob", "demo")
    assert job["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] == 2
    assert job["spec"]["runPolicy"]["activeDeadlineSeconds"] == 5400
    container = container_of(job)
    assert container["image"] == "train:1"
    assert container["command"] == ["sh", "-c", "python train.py --epochs 3"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "2", "cpu": "8"}
    assert env_of(job) == {"A": "1", "B": "two words"}
    pod = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    tolerated = {"key": "team", "operator": "Equal", "value": "vision", "effect": "NoSchedule"}
    assert tolerated in pod["tolerations"]


async def test_flags_override_the_templates_fields(own: CommandLine) -> None:
    words = (
        *("--template=ours", "--name=demo", "--image=other:2", "--workers", "1", "--gpus=1", "-e", "A=9"),
        *("-e", "C=3", "-d", "mine:/mnt", "--tensorboard=false", "--logdir=/mnt/l", "python other.py"),
    )
    job = await manifest_of(own, *AS_MANIFEST, *words)
    assert list(job["spec"]["pytorchReplicaSpecs"]) == ["Master"]
    container = container_of(job)
    assert (container["image"], container["command"][-1]) == ("other:2", "python other.py")
    assert env_of(job) == {"A": "9", "B": "two words", "C": "3"}
    mounted = {each["mountPath"] for each in container["volumeMounts"]}
    assert mounted & {"/in", "/out", "/mnt"} == {"/mnt"}
    job = await manifest_of(own, "--template", "ours", "--name", "demo", *AS_MANIFEST, "--", "train", "-x")
    assert container_of(job)["command"] == ["train", "-x"]


@pytest.mark.parametrize("template", PACKAGED, ids=lambda template: template.name)
async def test_every_packaged_template_makes_a_job(alone: CommandLine, template: Any) -> None:
    job = await manifest_of(alone, "--template", template.name, "--name=demo", "--image=x", *AS_MANIFEST)
    (kind,) = {each.resource.kind for each in CREATABLE if each.title == template.kind}
    assert job["kind"] == kind


async def test_the_templates_trainer_arguments_precede_those_on_the_command_line(alone: CommandLine) -> None:
    text = "kind: PyTorchJob\nimage: x\ntrainer: ddp\narguments: {epochs: 5, batch-size: 32}\n"
    run = with_template(alone, "digits", text)
    words = ("--template", "digits", "--name", "demo", *AS_MANIFEST)
    command = container_of(await manifest_of(run, *words))["command"]
    assert command[6:10] == ["--epochs", "5", "--batch-size", "32"]
    command = container_of(await manifest_of(run, *words, "--", "--epochs", "9"))["command"]
    assert command[6:12] == ["--epochs", "5", "--batch-size", "32", "--epochs", "9"]
    command = container_of(await manifest_of(run, *words, "--trainer", "mpi"))["command"]
    assert "trainer.train_mpi" in command
    assert "--epochs" not in command
    assert container_of(await manifest_of(run, *words, "python a.py"))["command"][-1] == "python a.py"


async def test_a_kind_on_the_command_line_overrides_the_templates_kind(own: CommandLine) -> None:
    job = await manifest_of(own, "t9k", "--template", "ours", "--name", "demo", *AS_MANIFEST)
    assert job["kind"] == "PyTorchTrainingJob"
    ended = await own("submit", "trainjob", "--template", "torchrun-t9k", "--image=x", "--dry-run=client")
    assert ended.status == 2
    assert "--restart-policy: " in ended.err


async def test_a_users_template_overrides_a_packaged_template_with_the_same_name(alone: CommandLine) -> None:
    run = with_template(alone, "git-gloo", OURS)
    job = await manifest_of(run, "--template", "git-gloo", "--name", "demo", *AS_MANIFEST)
    assert container_of(job)["image"] == "train:1"
    ended = await run("templates")
    assert ended.row("git-gloo") == ["git-gloo", "PyTorchJob", "you", "Ours"]
    assert ended.out.count("git-gloo ") == 1


async def test_the_templates_namespace_is_used_unless_a_flag_overrides_it(alone: CommandLine) -> None:
    run = with_template(alone, "there", f"{OURS}namespace: vision\n")
    words = ("--template", "there", "--name", "demo", *AS_MANIFEST)
    assert (await manifest_of(run, *words))["metadata"]["namespace"] == "vision"
    assert (await manifest_of(run, *words, "-n", "here"))["metadata"]["namespace"] == "here"


KNOWN = ", ".join(["ours", *(template.name for template in PACKAGED)])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--template", "nothing"), f"--template: There is no template 'nothing': {KNOWN}."),
        (("--name", "x", "--template"), f"--template: Name a template: {KNOWN}."),
        (("pytorch", "--template", "nothing"), f"--template: There is no template 'nothing': {KNOWN}."),
        (("-f", "job.yaml", "--template", "ours"), "--template cannot be combined with -f"),
        (("--template", "ours", "pytroch", "--name", "x"), "invalid choice: 'pytroch'"),
        (("--template", "ours", "--nmae", "x"), "Unknown option --nmae"),
        (("--name=x", "python", "a.py"), "--name needs a KIND before it, e.g. pytorch --name"),
        (("--template", "ours"), "--name: Required"),
        (("--template", "open"), "Template open names no kind of job: say submit KIND --template open"),
        (("--template", "tf"), "Template tf: no TFJob is made here"),
        (("pytorch", "--template", "odd"), "odd.yaml: The trainer ddp has no argument 'nothing'."),
    ],
)
async def test_an_unknown_or_unusable_template_is_rejected(
    own: CommandLine, words: tuple[str, ...], said: str
) -> None:
    if "nothing" not in words and words[-1] != "--template":
        with_template(own, "open", "workers: 2\n")
        with_template(own, "tf", "kind: TFJob\n")
        with_template(own, "odd", "trainer: ddp\narguments: {nothing: 1}\n")
    (await own("submit", *words)).reports(2, said)


async def test_an_invalid_template_file_is_reported_and_the_others_still_work(own: CommandLine) -> None:
    with_template(own, "bad", "gpu: 2\n")
    ended = await own("templates")
    assert ended.status == 1
    assert "bad.yaml: there is no field gpu." in ended.err
    assert ended.row("ours")[:3] == ["ours", "PyTorchJob", "you"]
    listed = json.loads((await own("templates", "-o", "json")).out)
    assert {each["name"] for each in listed} == {"ours", *(template.name for template in PACKAGED)}
    await manifest_of(own, "--template", "ours", "--name", "demo", *AS_MANIFEST)
    assert "bad.yaml" not in (await own("submit", "pytorch", "--template", "nothing")).err
    (await own("submit", "pytorch", "--template", "bad")).reports(2, "bad.yaml: there is no field gpu.")
