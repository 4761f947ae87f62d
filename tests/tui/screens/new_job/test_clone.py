"""The new-job screen: filled in from an existing job."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from k8s.jobs.clone import clone
from k8s.kinds import CREATABLE
from k8s.kinds.carried_spec import with_spec
from k8s.kinds.job_spec import JobSpec, Mount
from tests.tui.screens.new_job.world import ECHO, form, sandbox


@pytest.mark.slow
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
        cpu="lots",
    )
    obj = with_spec(CREATABLE[0].manifest(like), like)
    obj["metadata"]["annotations"]["note"] = "x"
    async with form(tmp_path, ECHO, clone=clone(obj)) as it:
        assert it.field("name").value == "bert-5"
        assert it.notice == "Not carried over: annotation note."
        assert it.field("env").value == "A=1"
        await it.press("ctrl+o")
        assert it.focused_key == "cpu", "a wrong field that is folded away is unfolded"
        assert "lots" in it.field("cpu").error
        await it.write("cpu", "")
        await it.set_snapshot(sandbox(0))
        assert it.field("workers").value == "3", "a clone keeps its number, also in the sandbox"
        await it.create()
        made = it.posted[0]
        assert made["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] == 2
        assert it.master["command"] == ["python", "x.py"]
        assert "workingDir" not in it.master, "where its claim is mounted says nothing of where it ran"
        assert [each["mountPath"] for each in it.master["volumeMounts"]][:2] == ["/data", "/scratch"]
        labels = made["metadata"]["labels"]
        assert (labels["team"], labels["release"]) == ("x", "bert-5")
        assert clone(made).spec == replace(like, name="bert-6", cpu=""), "it carries its spec too"
