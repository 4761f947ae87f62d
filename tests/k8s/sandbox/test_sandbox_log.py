"""The sandbox's log: bounded in size and rate, with a count of dropped records."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

from k8s.sandbox.__main__ import LOG_BYTES, RECORDS_PER_MINUTE, RateLimit
from tests import ROOT


def record(line: int, words: str = "x") -> logging.LogRecord:
    return logging.LogRecord("a", logging.ERROR, "file.py", line, words, (), None)


def test_one_line_of_the_program_cannot_flood_the_log() -> None:
    now = [0.0]
    limit = RateLimit(lambda: now[0])
    passed = [limit.filter(record(1, f"connection {number}")) for number in range(1000)]
    assert sum(passed) == RECORDS_PER_MINUTE
    assert limit.filter(record(2)), "another line is another matter"
    now[0] = 61.0
    later = record(1, "again")
    assert limit.filter(later)
    assert later.getMessage() == f"again (and {1000 - RECORDS_PER_MINUTE} more that are not written)"
    following = record(1, "once more")
    assert limit.filter(following) and following.getMessage() == "once more"


def test_a_full_log_is_set_aside_and_the_output_follows(tmp_path: Path) -> None:
    path = tmp_path / "sandbox.log"
    program = (
        "import logging, os, sys, pathlib\n"
        "from k8s.sandbox import __main__ as program\n"
        f"program.begin_log(pathlib.Path({str(path)!r}))\n"
        "for line in range(4000):\n"
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
