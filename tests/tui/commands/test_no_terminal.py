"""`gpuconsole` alone where there is no terminal: the jobs as `list` prints them, and why."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

from tests import ROOT
from tests.support.terminal import Terminal
from tests.tui.commands.conftest import CommandLine


async def test_in_a_pipe_it_prints_the_jobs_and_says_that_it_needs_a_terminal(run: CommandLine) -> None:
    listed = await run("list")
    alone = await run()
    assert (alone.status, alone.out) == (2, listed.out)
    assert alone.out.splitlines()[0].split()[0] == "NAME"
    assert alone.err.splitlines()[0] == "The console needs a terminal."
    assert gc.isenabled()


async def test_where_nothing_can_be_listed_it_says_why_besides(alone: CommandLine) -> None:
    ended = await alone()
    assert (ended.status, ended.out) == (2, "")
    assert "No cluster" in ended.err or "kubeconfig" in ended.err
    assert "The console needs a terminal" in ended.err


def test_a_terminal_that_cannot_move_its_cursor_is_none(tmp_path: Path) -> None:
    env = {**os.environ, "TERM": "dumb", "HOME": str(tmp_path), "KUBECONFIG": str(tmp_path / "none")}
    with Terminal([sys.executable, "-P", "-m", "tui"], env=env, folder=ROOT) as terminal:
        assert terminal.wait_for_end() == 2
        assert "The console needs a terminal" in terminal.text
        assert b"\x1b" not in terminal.output
