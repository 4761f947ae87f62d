"""The new-job screen: filled in like a job that is there."""

from __future__ import annotations

import json
from pathlib import Path

from k8s.job_spec import JobSpec, Mount
from k8s.jobs.clone import clone
from k8s.kinds import CREATABLE
from tests.tui.screens.new_job.world import (
    ECHO,
    JOBS,
    form,
    sandbox,
)


async def test_a_clone_in_the_sandbox_keeps_its_number_of_workers(tmp_path: Path) -> None:
    like = JobSpec(name="a", namespace="vision", image="i", command=("true",), workers=3)
    async with form(tmp_path, clone=clone(CREATABLE[0].manifest(like))) as it:
        it.app.snapshot = sandbox(0)
        await it.pilot.pause()
        assert it.field("workers").value == "3"


async def test_a_job_is_cloned_under_a_new_name(tmp_path: Path) -> None:
    like = JobSpec(
        name="bert-4",
        namespace="vision",
        image="mine:9",
        workers=3,
        command=("python", "x.py"),
        env={"A": "1"},
        mounts=(Mount("data", "/data"), Mount("scratch", "/scratch")),
        labels={"team": "x"},
    )
    obj = CREATABLE[0].manifest(like)
    obj["metadata"]["annotations"] = {"note": "x"}
    for role in obj["spec"]["pytorchReplicaSpecs"].values():
        role["template"]["spec"]["terminationGracePeriodSeconds"] = 60
    async with form(tmp_path, ECHO, clone=clone(obj)) as it:
        assert it.field("name").value == "bert-5"
        assert it.said("Notice") == "Not carried over: terminationGracePeriodSeconds."
        assert it.field("env").value == "A=1"
        await it.create()
        made = json.loads(it.cluster.asked(JOBS, method="POST")[0].body)
        roles = made["spec"]["pytorchReplicaSpecs"]
        assert roles["Worker"]["replicas"] == 2
        container = roles["Master"]["template"]["spec"]["containers"][0]
        assert container["command"] == ["python", "x.py"]
        assert "workingDir" not in container, "where its claim is mounted says nothing of where it ran"
        assert [each["mountPath"] for each in container["volumeMounts"]][:2] == ["/data", "/scratch"]
        labels, annotations = made["metadata"]["labels"], made["metadata"]["annotations"]
        assert (labels["team"], labels["release"], annotations["note"]) == ("x", "bert-5", "x")
