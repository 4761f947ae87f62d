"""The GPUs of a sandbox: this machine's if a driver finds any, else simulated ones."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from k8s.sandbox.node.nodes import Shape, cores, manifest, shape_of, status
from tests import ROOT

DRIVER = """
#include <string.h>
int nvmlInitWithFlags(unsigned f){return 0;} int nvmlInit_v2(void){return 0;}
int nvmlShutdown(void){return 0;}
int nvmlDeviceGetCount_v2(unsigned *n){*n=3;return 0;}
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **h){*h=(void*)(long)(i+1);return 0;}
int nvmlDeviceGetName(void *h, char *b, unsigned n){strncpy(b,"NVIDIA Test 80GB",n);return 0;}
"""
SHAPE = (
    "import json; from k8s.sandbox.node.nodes import shape_of; s = shape_of();"
    "print(json.dumps([s.names, s.gpus, s.model, s.is_simulated]))"
)


@pytest.mark.usefixtures("every_gpu")
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler for a stand-in of the driver")
def test_real_gpus_are_offered_on_one_node(tmp_path: Path) -> None:
    (tmp_path / "driver.c").write_text(DRIVER)
    library = tmp_path / "libnvidia-ml.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, tmp_path / "driver.c"], check=True)
    env = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    said = subprocess.run(
        [sys.executable, "-c", SHAPE], env=env, cwd=ROOT, check=True, stdout=subprocess.PIPE
    )
    assert json.loads(said.stdout) == [["sandbox-0"], 3, "NVIDIA-Test-80GB", False]
    for lent, gpus in (("2,0", 2), ("GPU-7", 0), ("", 0), ("-1", 0), ("1,-1,2", 1)):
        env["CUDA_VISIBLE_DEVICES"] = lent
        said = subprocess.run(
            [sys.executable, "-c", SHAPE], env=env, cwd=ROOT, check=True, stdout=subprocess.PIPE
        )
        _, count, _, is_simulated = json.loads(said.stdout)
        assert (count, is_simulated) == ((gpus, False) if gpus else (4, True)), lent


def test_asking_for_a_shape_gives_simulated_gpus() -> None:
    assert shape_of(3, 8) == Shape(("sandbox-0", "sandbox-1", "sandbox-2"), 8, "simulated", is_simulated=True)


def test_a_simulated_gpu_is_never_shown_as_real() -> None:
    labels = manifest("n", shape_of(1, 1))["metadata"]["labels"]
    assert labels["gpuconsole.dev/simulated"] == "true"
    assert labels["nvidia.com/gpu.product"] == "simulated"
    real = manifest("n", Shape(("n",), 1, "NVIDIA-H100", is_simulated=False))["metadata"]["labels"]
    assert "gpuconsole.dev/simulated" not in real


def test_a_node_with_simulated_gpus_takes_jobs_written_for_a_node_with_real_ones() -> None:
    machine = status(Shape(("n",), 4, "A100", is_simulated=False), "")["capacity"]
    assert machine["cpu"] == str(cores())
    simulated = status(Shape(("n",), 64, "simulated", is_simulated=True), "")["capacity"]
    assert (simulated["cpu"], simulated["memory"]) == (str(64 * 8), f"{64 * 32 * 2**20}Ki")
    assert status(Shape(("n",), 0, "", is_simulated=True), "")["capacity"]["cpu"] == str(cores())
