"""Programs of another user of this machine: the same Python under another account."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

NOBODY = 65534  # the account that owns nothing
PYTHON = shutil.which("python3", path="/usr/bin:/bin") or sys.executable

only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a second account")


def start(program: str, *words: str) -> subprocess.Popen[str]:
    """Start a Python program under the second account, without our environment and packages."""
    return subprocess.Popen(
        [PYTHON, "-I", "-S", "-c", program, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd="/",
        env={},
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
    )


def said(program: str, *words: str) -> str:
    with start(program, *words) as process:
        text, _ = process.communicate(timeout=60)
    assert process.returncode == 0, text
    return text
