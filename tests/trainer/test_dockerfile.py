"""The image that brings the packaged trainers is built from what is there, on the image the form suggests."""

from __future__ import annotations

from tests import ROOT
from tui.jobs.new_job.fields import DEFAULT_IMAGE


def test_it_copies_what_is_there_to_where_python_finds_it() -> None:
    lines = (ROOT / "trainer" / "Dockerfile").read_text().splitlines()
    assert f"FROM {DEFAULT_IMAGE}" in lines
    (copied,) = [line.split()[1:] for line in lines if line.startswith("COPY ")]
    assert (ROOT / copied[0] / "train_ddp.py").exists()
    (environment,) = [line for line in lines if line.startswith("ENV ")]
    assert f"PYTHONPATH={copied[1].removesuffix('/trainer')}" in environment.split()
