"""A kind of job is one file and its line in `KINDS`: with no more than that its jobs have rows."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests import ROOT
from tests.support.objects import GPU, Object, node

JOB: Object = {
    "apiVersion": "tune.example.org/v1",
    "kind": "TuneJob",
    "metadata": {"name": "sweep", "namespace": "lab", "uid": "job-sweep"},
    "spec": {
        "trials": 3,
        "template": {"spec": {"containers": [{"name": "trial", "resources": {"limits": {GPU: 2}}}]}},
    },
    "status": {"conditions": []},
}

SHOW = """
import json, sys
import k8s.kinds
from k8s.cluster.discovery import ServedKinds, choose
from tests.support.objects import joined

nodes, pods, jobs = json.load(sys.stdin)
_, rows = joined(nodes, pods, jobs)
served = ServedKinds({"tune.example.org/v1": frozenset({"tunejobs"})})
print(json.dumps({
    "file": k8s.kinds.__file__,
    "mirrored": [kind.title for kind in choose(k8s.kinds.KINDS, served)],
    "titles": [k8s.kinds.kind_of(job.ref).title for job in rows.values()],
    "rows": [
        [job.ref.name, job.status, job.gpus_requested, job.gpus_allocated,
         [(each.name, each.pod, each.node, each.status) for each in job.instances]]
        for job in rows.values()
    ],
}))
"""


def trial(index: int) -> Object:
    """Return a pod of the job that only its labels name: its owner is an object in between."""
    labels = {"tune.example.org/study": "sweep", "tune.example.org/trial": str(index)}
    meta = {"name": f"sweep-{index}", "namespace": "lab", "uid": f"pod-{index}", "labels": labels}
    spec = {"nodeName": "a", **JOB["spec"]["template"]["spec"]}
    return {"metadata": meta, "spec": spec, "status": {"phase": "Running"}}


def shown(folder: Path, *objects: list[Object]) -> dict[str, Any]:
    """Join objects in a process that has `k8s` from `folder`, and return what it makes of them."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", SHOW],
        input=json.dumps(objects),
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(folder), str(ROOT)))},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert Path(found.pop("file")).is_relative_to(folder)
    return found


def test_a_kind_added_by_one_file_and_one_line_is_mirrored_and_its_jobs_have_rows(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "k8s", tmp_path / "k8s", ignore=shutil.ignore_patterns("__pycache__"))
    kinds = tmp_path / "k8s" / "kinds"
    objects = [node("a")], [trial(0), trial(2)], [JOB]

    known = shown(tmp_path, *objects[:2], [])
    assert "TuneJob" not in known["mirrored"]
    assert [name for name, *_ in known["rows"]] == ["sweep-0", "sweep-2"]  # pods without a known job

    shutil.copy(ROOT / "tests" / "k8s" / "kinds" / "tune_job.py", kinds)
    listing = kinds / "__init__.py"
    text = listing.read_text()
    head = "\nKINDS: tuple[JobKind, ...] = (\n"
    assert head in text
    text = text.replace(head, f"{head}    TuneJob(),\n")
    listing.write_text(text.replace("\nCREATABLE:", "\nfrom k8s.kinds.tune_job import TuneJob\n\nCREATABLE:"))

    first, last = (["trial-" + name, "sweep-" + name, "a", "Running"] for name in "02")
    trials = [first, ["trial-1", "", "", "Pending"], last]
    assert shown(tmp_path, *objects) == {
        "mirrored": ["TuneJob"],
        "titles": ["TuneJob"],
        "rows": [["sweep", "Running", 6, 4, trials]],
    }
