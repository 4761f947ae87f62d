"""`edit`: kubectl edits the job, on the cluster and in the namespace in use."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.terminal import fake_kubectl
from tests.tui.commands.conftest import CommandLine


async def test_edit_runs_kubectl_on_the_cluster_in_use_and_exits_as_it_does(
    run: CommandLine, tmp_path: Path
) -> None:
    run.set("PATH", fake_kubectl(tmp_path))
    ended = await run.process("--as", "wu", "edit", "running")
    assert (ended.status, ended.err) == (3, "")
    assert ended.out == "--context recorded -n default --as wu edit pytorchjobs.kubeflow.org/running\n"


@pytest.mark.parametrize(
    ("words", "status", "why"),
    [
        (("edit", "running"), 1, "kubectl, which edits it, is not found."),
        (("edit", "nosuch"), 1, "There is no job nosuch"),
        (("--readonly", "edit", "running"), 1, "disabled by --readonly"),
        (
            ("edit", "running", "--yes"),
            2,
            "--yes is gone: kubectl applies the change when",
        ),
    ],
)
async def test_edit_reports_why_it_cannot(
    run: CommandLine, tmp_path: Path, words: tuple[str, ...], status: int, why: str
) -> None:
    run.set("PATH", str(tmp_path))
    (await run(*words)).reports(status, why)


async def test_edit_refuses_a_token_that_kubectl_would_not_get(run: CommandLine, tmp_path: Path) -> None:
    run.set("PATH", fake_kubectl(tmp_path))
    run.set("GPUCONSOLE_TOKEN", "another")
    (await run("edit", "running")).reports(1, "kubectl would act as another user")
