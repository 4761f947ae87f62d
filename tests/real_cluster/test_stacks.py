"""Stacks of a hung job's processes, read through a real kubelet."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from k8s.client.client import Client
from k8s.cluster.cluster_mirror import ClusterMirror
from k8s.models.resources import JOBS
from k8s.reasons.stacks import StackReport, inspect_ranks
from tests import ROOT
from tests.real_cluster.feed import LONGEST_S, job_called
from tests.real_cluster.test_diagnosis import job
from tests.support.real_cluster import ROLE_BINDINGS, acting_as

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
SCRIPT = """
from trainer import debuggable
import time
debuggable.arm()
def load_batch():
    time.sleep(600)
load_batch()
"""


async def report_of(client: Client, name: str, is_so: Callable[[StackReport], object]) -> StackReport:
    report = StackReport()
    async with asyncio.timeout(LONGEST_S):
        while not is_so(report):
            snapshot = await ClusterMirror(client, client.config.namespace).read_once()
            found = job_called(snapshot, "Job", name)
            if found is not None and found.status == "Running":
                report = await inspect_ranks(client, found)
            await asyncio.sleep(0.2)
    return report


async def test_a_non_python_process_is_diagnosed_from_proc(admin: Client) -> None:
    shell = {"command": ["sh", "-c", "sleep 600; true"]}
    await admin.create(JOBS, job("hang", container=shell), admin.config.namespace)
    report = await report_of(admin, "hang", lambda found: "(sleeping)" in found.sentence)
    assert [(each.source, each.code) for each in report.groups] == [("/proc", "sleep 600")]
    assert "this program is not Python" in report.problems[0]


async def test_a_python_process_that_is_armed_gives_its_stack(admin: Client) -> None:
    folders = dict.fromkeys((sys.base_prefix, "/lib", "/lib64", "/usr/lib", str(ROOT)))
    mounts = [{"name": f"v{at}", "mountPath": path} for at, path in enumerate(folders)]
    volumes = [{"name": f"v{at}", "hostPath": {"path": path}} for at, path in enumerate(folders)]
    env = {"PATH": f"{sys.base_prefix}/bin:/bin", "PYTHONPATH": str(ROOT), "RANK": "3", "LOCAL_RANK": "1"}
    container: dict[str, Any] = {
        "command": ["python3", "-c", SCRIPT],
        "env": [{"name": name, "value": value} for name, value in env.items()],
        "volumeMounts": mounts,
    }
    await admin.create(JOBS, job("armed", container=container, volumes=volumes), admin.config.namespace)
    report = await report_of(admin, "armed", lambda found: found.sources == ("faulthandler",))
    assert report.sentence == "Rank 3 in load_batch (<string>:6)."


async def test_a_missing_exec_permission_is_named_in_the_stack_report(
    admin: Client, kubeconfig: Path, tmp_path: Path
) -> None:
    namespace, user = str(admin.config.namespace), f"reader-{uuid4().hex[:6]}"
    binding = {
        "metadata": {"name": user},
        "roleRef": {"apiGroup": ROLE_BINDINGS.group, "kind": "ClusterRole", "name": "view"},
        "subjects": [{"apiGroup": ROLE_BINDINGS.group, "kind": "User", "name": user}],
    }
    await admin.create(ROLE_BINDINGS, binding, namespace)
    await admin.create(JOBS, job("hang"), namespace)
    await report_of(admin, "hang", lambda found: found.groups)
    path = acting_as(kubeconfig, tmp_path, **{"as": user})
    async with await Client.connect(path, namespace=namespace) as reader:
        report = await report_of(reader, "hang", lambda found: found.problems)
    assert report.groups == ()
    assert f"in pods of namespace {namespace}, which needs the permission create" in report.problems[0]
