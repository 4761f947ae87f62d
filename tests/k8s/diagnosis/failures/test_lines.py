"""Single lines, each the last of a failed container: the cause that they name, or none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from k8s.diagnosis.failures import triage
from tests.support.failures import container_log

TRACEBACK = 'Traceback (most recent call last):\n  File "/src/run.py", line 5, in <module>\n    main()\n'
LINES = yaml.safe_load(Path(__file__).with_name("lines.yaml").read_text())


@pytest.mark.parametrize(
    ("cause", "line"),
    [(cause, line) for cause, lines in LINES.items() for line in lines],
    ids=lambda each: each[:40],
)
def test_the_last_line_of_a_failed_rank_names_the_cause(cause: str, line: str) -> None:
    is_exception = re.match(r"[\w.]+(?:Error|Exception|Pool)\b", line) is not None
    for text in (line, f"{TRACEBACK}{line}") if is_exception else (line,):
        found = triage([container_log(f"step 1 loss 0.5\n{text}", ranks=(3,), exit=1, finished=9)])
        assert found is not None
        assert (found.cause.name if found.cause else "") == cause, found
        assert found.rank == 3
        # What was recognised is shown, whichever part of a long line it was.
        assert set(re.findall(r"\w+", f"{found.error} {found.saw}")) & set(re.findall(r"\w+", line))
