"""What a step costs beside its arithmetic."""

import importlib.util
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT

needs_torchvision = pytest.mark.skipif(
    importlib.util.find_spec("torchvision") is None,
    reason="needs torchvision, which gpuconsole[trainer] brings",
)


def page_faults(folder: Path, steps: int) -> int:
    """Train for so many steps; returns how often the kernel had to bring a page of memory."""
    images = ["--train-images", str(8 * steps), "--val-images", "8", "--batch-size", "8", "--epochs", "1"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt
    subprocess.run(
        [sys.executable, "-P", "-m", "trainer.train_ddp", "--model", "resnet18", *images],
        check=True, cwd=folder, capture_output=True, env={"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt - before


@needs_torchvision
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="counts page faults as Linux does")
def test_a_step_reuses_the_memory_of_the_one_before(tmp_path: Path) -> None:
    (tmp_path / "few").mkdir()
    (tmp_path / "many").mkdir()
    few, many = page_faults(tmp_path / "few", 5), page_faults(tmp_path / "many", 15)
    assert (many - few) / 10 < 500
