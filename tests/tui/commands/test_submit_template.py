"""`submit --template`: what a template says unless flags say otherwise; and `templates`, which lists them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from k8s.kinds import CREATABLE
from tests.scripted.server import Compute, ScriptedCluster
from tests.tui.commands.conftest import CommandLine
from tests.tui.commands.submitting import AS_MANIFEST, PYTORCH_JOBS, echo, manifest_of
from tui.jobs.new_job.job_templates import packaged_templates

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
    """Return the command line of somebody who has a template `ours`."""
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


async def test_a_template_is_a_job(own: CommandLine) -> None:
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


async def test_flags_override_it(own: CommandLine) -> None:
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


async def test_words_after_dashes_take_the_place_of_its_command(own: CommandLine) -> None:
    job = await manifest_of(own, "--template", "ours", "--name", "demo", *AS_MANIFEST, "--", "train", "-x")
    assert container_of(job)["command"] == ["train", "-x"]


@pytest.mark.parametrize("template", PACKAGED, ids=lambda template: template.name)
async def test_every_packaged_template_makes_a_job(alone: CommandLine, template: Any) -> None:
    job = await manifest_of(alone, "--template", template.name, "--name=demo", "--image=x", *AS_MANIFEST)
    (kind,) = {each.resource.kind for each in CREATABLE if each.title == template.kind}
    assert job["kind"] == kind


async def test_the_arguments_of_its_trainer_come_before_those_that_are_typed(alone: CommandLine) -> None:
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


async def test_a_typed_kind_counts_more_than_the_templates(own: CommandLine) -> None:
    job = await manifest_of(own, "t9k", "--template", "ours", "--name", "demo", *AS_MANIFEST)
    assert job["kind"] == "PyTorchTrainingJob"
    ended = await own("submit", "trainjob", "--template", "torchrun-t9k", "--image=x", "--dry-run=client")
    assert ended.status == 2
    assert "--restart-policy: " in ended.err


async def test_one_of_your_own_hides_a_packaged_one_of_its_name(alone: CommandLine) -> None:
    run = with_template(alone, "git-gloo", OURS)
    job = await manifest_of(run, "--template", "git-gloo", "--name", "demo", *AS_MANIFEST)
    assert container_of(job)["image"] == "train:1"
    ended = await run("templates")
    assert ended.row("git-gloo") == ["git-gloo", "PyTorchJob", "you", "Ours"]
    assert ended.out.count("git-gloo ") == 1


async def test_its_namespace_counts_unless_another_is_named(alone: CommandLine) -> None:
    run = with_template(alone, "there", f"{OURS}namespace: vision\n")
    words = ("--template", "there", "--name", "demo", *AS_MANIFEST)
    assert (await manifest_of(run, *words))["metadata"]["namespace"] == "vision"
    assert (await manifest_of(run, *words, "-n", "here"))["metadata"]["namespace"] == "here"


async def test_it_is_sent_to_the_cluster_as_any_job_is(run: CommandLine, cluster: ScriptedCluster) -> None:
    cluster.say(PYTORCH_JOBS, Compute(echo), method="POST")
    with_template(run, "small", "kind: PyTorchJob\nimage: x\ncommand: train\n")
    ended = await run("submit", "--template", "small", "--name", "demo")
    assert (ended.status, ended.out) == (0, "PyTorchJob default/demo created.\n"), ended.err
    (asked,) = cluster.asked(PYTORCH_JOBS, method="POST")
    assert container_of(json.loads(asked.body))["command"] == ["sh", "-c", "train"]


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
        (("--template", "ours"), "--name: Required"),
        (("--template", "open"), "Template open names no kind of job: say submit KIND --template open"),
        (("--template", "tf"), "Template tf: no TFJob is made here"),
        (("pytorch", "--template", "odd"), "template odd: "),
    ],
)
async def test_what_cannot_be_meant_is_refused(own: CommandLine, words: tuple[str, ...], said: str) -> None:
    if "nothing" not in words and words[-1] != "--template":
        with_template(own, "open", "workers: 2\n")
        with_template(own, "tf", "kind: TFJob\n")
        with_template(own, "odd", "trainer: ddp\narguments: {nothing: 1}\n")
    (await own("submit", *words)).reports(2, said)


async def test_a_file_that_is_no_template_is_named_and_the_others_work(own: CommandLine) -> None:
    with_template(own, "bad", "gpu: 2\n")
    ended = await own("templates")
    assert ended.status == 1
    assert "bad.yaml: there is no field gpu." in ended.err
    assert ended.row("ours")[:3] == ["ours", "PyTorchJob", "you"]
    listed = json.loads((await own("templates", "-o", "json")).out)
    assert {each["name"] for each in listed} == {"ours", *(template.name for template in PACKAGED)}
    await manifest_of(own, "--template", "ours", "--name", "demo", *AS_MANIFEST)


async def test_faults_of_other_files_are_not_told_where_a_template_is_not_found(own: CommandLine) -> None:
    with_template(own, "bad", "gpu: 2\n")
    for name, is_told in (("nothing", False), ("bad", True)):
        ended = await own("submit", "pytorch", "--template", name)
        assert ended.status == 2
        assert ("bad.yaml: there is no field gpu." in ended.err) is is_told
