"""Starts the load server in a process of its own, and says what a picture of its cluster must show."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode

from k8s.client.auth.cluster_config import ClusterConfig
from k8s.client.client import Client
from k8s.kinds import KINDS
from k8s.snapshot import ClusterSnapshot
from tests import ROOT
from tests.load.logs import LINES_A_SECOND

ANSWER_S = 300.0  # longest wait for the truth: that is a storm, on a slow machine
_KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: load
clusters: [{{name: load, cluster: {{server: "{host}"}}}}]
users: [{{name: load, user: {{}}}}]
contexts: [{{name: load, context: {{cluster: load, user: load, namespace: default}}}}]
"""


class LoadServer:
    """A cluster of some size on loopback; use it in `with`. It is ended with the block, or after its time."""

    def __init__(
        self,
        nodes: int = 1000,
        jobs: int = 1000,
        *,
        lifetime_s: float = 600,
        log_lines: int = LINES_A_SECOND,
        whole_log: int = 0,
    ) -> None:
        self._words = ["--nodes", str(nodes), "--jobs", str(jobs), "--lifetime", str(lifetime_s)]
        self._words += ["--log-lines", str(log_lines), "--whole-log", str(whole_log)]
        self.host = ""  # address, with the scheme
        self.kubeconfig = Path()  # for kubectl and the console

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory()
        command = [sys.executable, "-m", "tests.load.server", *self._words]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)
        assert self._process.stdout is not None
        self.host = json.loads(self._process.stdout.readline())["host"]
        self.kubeconfig = Path(self._folder.name) / "kubeconfig"
        self.kubeconfig.write_text(_KUBECONFIG.format(host=self.host))
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._folder.cleanup()

    @property
    def pid(self) -> int:
        return self._process.pid

    def client(self) -> Client:
        """Return a client of this server. Needs a running event loop."""
        return Client(ClusterConfig(host=self.host, context="load", user="load"))

    def storm(
        self, rate: float, events: int, *, drop: Sequence[int] = (), forget: Sequence[int] = ()
    ) -> None:
        """Begin to change pods, so many times a second, until there were so many events.

        After as many of them as `drop` says all watches break; after those in `forget`
        every watch, and every version seen so far, is too old.
        """
        words = [("rate", rate), ("events", events)]
        words += [("drop", at) for at in drop] + [("forget", at) for at in forget]
        self._ask(f"storm?{urlencode(words)}", "POST")

    def count(self) -> dict[str, int]:
        """Return the numbers of open watches, updates of pods, attempted changes and requests."""
        return self._ask("count", "GET")

    def truth(self) -> dict[str, Any]:
        """Wait until the storm is over, and return what is true then."""
        return self._ask("truth", "GET")

    def _ask(self, wish: str, method: str) -> dict[str, Any]:
        request = urllib.request.Request(f"{self.host}/load/{wish}", method=method)
        with urllib.request.urlopen(request, timeout=ANSWER_S) as response:
            found: dict[str, Any] = json.load(response)
            return found


# Nodes by name and jobs by uid, each as what must be right about it
Picture = tuple[dict[str, Any], dict[str, Any]]


def told(truth: Mapping[str, Any]) -> Picture:
    """Return the picture that the truth demands, of the job kinds that the console knows."""
    kinds = {kind.resource.kind for kind in KINDS}
    nodes = {name: (node["total"], node["holders"]) for name, node in truth["nodes"].items()}
    jobs = {
        uid: (job["gpus_requested"], job["gpus_allocated"], job["pods"])
        for uid, job in truth["jobs"].items()
        if job["kind"] in kinds
    }
    return nodes, jobs


def seen(snapshot: ClusterSnapshot) -> Picture:
    """Return the content of a snapshot, in the form of `told`."""
    nodes = {
        node.name: (node.gpus_total, {holder.pod: holder.gpus for holder in node.holders})
        for node in snapshot.nodes
    }
    kinds = {kind.resource.kind for kind in KINDS}
    jobs = {
        job.uid: (
            job.gpus_requested,
            job.gpus_allocated,
            {each.pod: [each.pod_uid, each.node, each.restarts] for each in job.instances},
        )
        for job in snapshot.jobs
        if job.ref.kind in kinds
    }
    return nodes, jobs


def difference(truth: Picture, picture: Picture) -> list[str]:
    """Return the first few things in which a picture is wrong, in words."""
    found = []
    for what, true, shown in zip(("node", "job"), truth, picture, strict=True):
        for key in sorted({*true, *shown}):
            if true.get(key) != shown.get(key):
                found.append(f"{what} {key}: {shown.get(key)} is shown, {true.get(key)} is true")
    return found[:5]
