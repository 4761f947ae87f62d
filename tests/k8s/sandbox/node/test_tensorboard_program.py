"""The program `tensorboard` of pods, run alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from k8s.sandbox.node.programs import tensorboard_program
from k8s.sandbox.node.programs.tensorboard_program import NOT_INSTALLED


def run(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    program = str(tensorboard_program.__file__)
    env = {"HOME": str(tmp_path), "GPUCONSOLE_SANDBOX": str(tmp_path), "GPUCONSOLE_POD_UID": "u"}
    command = [sys.executable, *words, program, "--host", "0.0.0.0"]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)


def test_without_tensorboard_it_fails_with_a_sentence(tmp_path: Path) -> None:
    done = run(tmp_path, "-I", "-S")
    assert (done.returncode, done.stderr) == (1, f"{NOT_INSTALLED}\n")


def test_without_a_folder_it_says_what_tensorboard_says(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    done = run(tmp_path, "-P")
    assert done.returncode == 1
    assert "logdir" in done.stderr and "Traceback" not in done.stderr
