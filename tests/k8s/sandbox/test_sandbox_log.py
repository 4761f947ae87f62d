"""The sandbox's log: bounded in size."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from k8s.sandbox.__main__ import LOG_BYTES
from tests import ROOT


def test_a_full_log_is_set_aside_and_the_output_follows(tmp_path: Path) -> None:
    path = tmp_path / "sandbox.log"
    program = (
        "import logging, os, sys, pathlib\n"
        "from k8s.sandbox import __main__ as program\n"
        f"program.begin_log(pathlib.Path({str(path)!r}))\n"
        "for line in range(1500):\n"
        "    record = logging.makeLogRecord({'msg': 'x' * 1000, 'levelno': 40, 'lineno': line})\n"
        "    logging.getLogger().handle(record)\n"
        "os.write(2, b'last words\\n')\n"
    )
    with path.open("ab") as output:
        subprocess.run(
            [sys.executable, "-c", program],
            stdout=output,
            stderr=output,
            cwd=ROOT,
            check=True,
            env=os.environ,
        )
    sizes = {each.name: each.stat().st_size for each in tmp_path.iterdir()}
    assert sizes.keys() == {"sandbox.log", "sandbox.log.1"}
    assert max(sizes.values()) <= LOG_BYTES + 100
    assert path.read_text().endswith("last words\n")
