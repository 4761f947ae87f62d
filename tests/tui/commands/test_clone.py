"""`clone`: a copy of a job under a new name, with its whole specification and without its history."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import yaml

from k8s.jobs.clone import clone
from k8s.kinds import CREATABLE
from k8s.kinds.carried_spec import SPEC_ANNOTATION, with_spec
from k8s.kinds.job_spec import JobSpec
from tests.scripted.server import Answer, ScriptedCluster
from tests.support.objects import Object, recorded
from tests.tui.commands.conftest import CommandLine

JOBS = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"


def serve(cluster: ScriptedCluster, name: str) -> Object:
    job = next(each for each in recorded("pytorchjobs") if each["metadata"]["name"] == name)
    job["apiVersion"] = "kubeflow.org/v1"
    cluster.say(f"{JOBS}/{name}", Answer(job))
    cluster.say(JOBS, Answer({"metadata": {"name": f"{name}-2", "namespace": "default"}}, 201), method="POST")
    return job


ITS_OWN = {
    '"release": "pytorch-dist-git"': '"release": "pytorch-dist-git-2"',
    '"master-pod-name": "pytorch-dist-git-master-0"': '"master-pod-name": "pytorch-dist-git-2-master-0"',
    '"arena.kubeflow.org/username": "admin"': '"arena.kubeflow.org/username": "li"',
    hashlib.md5(b"admin").hexdigest(): hashlib.md5(b"li").hexdigest(),
}
"""Labels and annotations of pods that name the job and its owner, and those of a clone of li's."""


async def test_a_clone_has_everything_of_its_original(run: CommandLine) -> None:
    job = serve(run.cluster, "pytorch-dist-git")
    ended = await run("clone", "pytorch-dist-git", "--yes")
    assert (ended.status, ended.out) == (0, "PyTorchJob default/pytorch-dist-git-2 created.\n")
    assert ended.err == "Still refers to pytorch-dist-git in: name.\n"
    (asked,) = run.cluster.asked(JOBS, method="POST")
    made = json.loads(asked.body)
    roles = json.dumps(job["spec"]["pytorchReplicaSpecs"])
    for was, now in ITS_OWN.items():
        assert was in roles
        roles = roles.replace(was, now)
    assert made["spec"]["pytorchReplicaSpecs"] == json.loads(roles)
    assert made["metadata"]["name"] == "pytorch-dist-git-2"
    assert not {"uid", "resourceVersion", "managedFields"} & set(made["metadata"])
    assert "status" not in made


async def test_a_dry_run_shows_and_sends_nothing(run: CommandLine) -> None:
    serve(run.cluster, "done")
    ended = await run("clone", "done", "--name", "again", "--dry-run", "client", "-o", "yaml", "--readonly")
    assert ended.status == 0
    assert yaml.safe_load(ended.out)["metadata"]["name"] == "again"
    assert run.cluster.asked(JOBS, method="POST") == []
    ended = await run("clone", "done", "--dry-run", "server")
    assert ended.out == "PyTorchJob default/done-2 created (server dry run).\n"
    (asked,) = run.cluster.asked(JOBS, method="POST")
    assert asked.query["dryRun"] == "All"


async def test_a_clone_of_a_job_made_here_carries_its_spec_and_prints_none(run: CommandLine) -> None:
    made = Answer({"metadata": {"name": "done-2", "namespace": "default"}}, 201)
    run.cluster.say(JOBS, made, method="POST")
    env = {"HF_TOKEN": "hf_0123456"}
    spec = JobSpec(name="done", image="i", command=("x",), pull_secrets=("team",), env=env)
    run.cluster.say(f"{JOBS}/done", Answer(with_spec(CREATABLE[0].manifest(spec), spec)))
    shown = (await run("clone", "done", "-o", "yaml")).out
    assert "name: done-2" in shown and "name: team" in shown
    assert SPEC_ANNOTATION not in shown and "hf_0123456" not in shown
    assert (await run("clone", "done", "--yes")).status == 0
    (asked,) = run.cluster.asked(JOBS, method="POST")
    assert clone(json.loads(asked.body)).spec == replace(spec, name="done-3")


async def test_output_needs_no_yes_but_creating_does(run: CommandLine) -> None:
    serve(run.cluster, "done")
    ended = await run.process("clone", "done", "-o", "yaml")
    assert (ended.status, ended.err) == (0, "Still refers to done in: command, hostnames.\n")
    assert yaml.safe_load(ended.out)["metadata"]["name"] == "done-2"
    ended = await run("clone", "done", "-o", "json", "--readonly")
    assert (ended.status, ended.values["metadata"]["name"]) == (0, "done-2")
    assert run.cluster.asked(JOBS, method="POST") == []
    ended = await run("clone", "done", "-o", "json", "--yes")
    assert (ended.status, ended.values["metadata"]["name"]) == (0, "done-2")
    assert len(run.cluster.asked(JOBS, method="POST")) == 1


async def test_an_invalid_name_is_refused_at_once(run: CommandLine) -> None:
    ended = await run("clone", "done", "--name", "B A", "--yes")
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.startswith("--name: Use lowercase letters")
    assert not [each for each in run.cluster.requests if each.method == "POST"]


async def test_secrets_in_variables_are_redacted(run: CommandLine) -> None:
    job = serve(run.cluster, "done")
    for role in job["spec"]["pytorchReplicaSpecs"].values():
        variables = role["template"]["spec"]["containers"][0].setdefault("env", [])
        variables += [
            {"name": "MY_TOKEN", "value": "s3cr3t-abc"},
            {"name": "PGPASSWORD", "value": "pw12345678"},
        ]
    for output in ("yaml", "json"):
        ended = await run("clone", "done", "-o", output)
        assert (ended.status, "s3cr3t-abc" in ended.out, "pw12345678" in ended.out) == (0, False, False)
        assert "<redacted env MY_TOKEN>" in ended.out
        assert "Redacted: env MY_TOKEN, env PGPASSWORD. To print them: --show-secrets" in ended.err
        shown = await run("clone", "done", "-o", output, "--show-secrets")
        assert ("s3cr3t-abc" in shown.out, shown.out.count("<redacted"), "Redacted" in shown.err) == (
            True,
            0,
            False,
        )
    assert (await run("clone", "done", "-o", "yaml", "--yes")).status == 0
    (asked,) = run.cluster.asked(JOBS, method="POST")
    assert b"s3cr3t-abc" in asked.body
