"""Arena's other commands: those of the guides work as they were written, the rest work or say why not."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from k8s.kinds import KINDS
from tests import FIXTURES
from tests.scripted.feed import say_kinds
from tests.scripted.server import Answer, ScriptedCluster, Stream, page
from tests.support.objects import node, pod_of, pytorch_job
from tests.tui.commands.conftest import CommandLine
from tui.commands import NOT_HERE

MPI_JOBS = "/apis/kubeflow.org/v2beta1/mpijobs"
TORCH_JOBS = "/apis/kubeflow.org/v1/pytorchjobs"
SUCCEEDED = {"conditions": [{"type": "Succeeded", "status": "True"}]}
ENDED = {"exitCode": 0, "finishedAt": "2026-11-20T18:37:00Z"}
TORCH = ("pytorch-dist", "pytorch-dist-git", "pytorch-local-git")
MPI = tuple(f"pytorch-{topo}4-{model}" for topo in ("topo-", "") for model in ("vgg16", "resnet50"))
LOG = b"".join(b"2026-11-20T18:36:1%d.000000001Z line %d\n" % (n, n) for n in range(8))

GUIDES: dict[str, str] = {
    "arena top node": "GPU(Total)",
    "arena list": "pytorch-dist-git",
    "arena top job": "pytorch-dist",
    "arena data list": "training-data",
    "arena get pytorch-dist": "master-0",
    "arena get pytorch-dist --type pytorchjob": "Succeeded",
    "arena get pytorch-dist-git --type pytorchjob": "Succeeded",
    "arena get pytorch-local-git": "worker-1",
    "arena logs pytorch-dist": "line 7",
    "arena logs pytorch-dist -i pytorch-dist-worker-0": "line 7",
    "arena logs pytorch-dist -f": "line 7",
    "arena logs pytorch-dist -t 5": "line 7",
    "arena logs --help": "--since",
    "arena logs pytorch-dist-git": "line 7",
    "arena logs pytorch-dist-git -i pytorch-dist-git-worker-0": "line 7",
    "arena logs pytorch-dist-git -i pytorch-dist-git-worker-0 -t 5": "line 7",
    **{f"arena get {name} --type mpijob": "launcher-0" for name in MPI},
    **{f"arena logs -f {name}": "line 7" for name in MPI},
}
"""Every command of the guides that submits nothing, and what is in what it prints.

`$job_name`, `$instance_name` and `N` stand for names and numbers that are here.
"""
PLACEHOLDERS: dict[str, str] = {
    "arena logs -- help": "required: JOB\nSee gpuconsole logs --help",
    "arena submit tfjob --name x python": "TFJobs can be shown and deleted, but not created",
    "arena submit tf --name x python": "TFJobs can be shown and deleted, but not created",
    "arena submit mpi --gputopology=true ***": "--name: Required",
}
"""What the guides write that is no whole command, and what is said of it."""
OTHERS: dict[str, str] = {
    "arena ls": "",
    "arena list -A -T pytorchjob -o wide": "",
    "arena log pytorch-dist --since 1h": "",
    "arena delete pytorch-dist --type pytorchjob": "pass --yes",
    "arena del pytorch-dist": "pass --yes",
    "arena attach": "",
    "arena attach pytorch-dist -i nothing -- ls": "There is no instance nothing",
    "arena prune --since 7d": "--older-than",
    "arena scalein etjob --name=pytorch-dist --count=1 --timeout=1m --retry=2 --yes": "It has ended.",
    "arena serve tensorflow --name x": "not served",
    "arena model list": "not served",
    "arena cron list": "CronJob",
    "arena whoami": "Use info",
}
"""Commands of Arena that no guide has, and what is said where they cannot work."""


@pytest.fixture
def guided(run: CommandLine, cluster: ScriptedCluster) -> CommandLine:
    """Return the command line of a user whose cluster has the guides' jobs, which have ended."""
    torch_jobs = [{**pytorch_job(name, workers=3), "status": SUCCEEDED} for name in TORCH]
    pods = [ended(pod_of(job, place)) for job in torch_jobs for place in ("master-0", "worker-0", "worker-1")]
    mpi_jobs = []
    for name in MPI:
        job, _, *its_pods = mpi_objects(name)
        mpi_jobs.append({**job, "status": SUCCEEDED})
        pods += map(ended, its_pods)
    claim = {"metadata": {"name": "training-data", "namespace": "default"}, "status": {"phase": "Bound"}}
    lists = {kind.resource.path(): [] for kind in KINDS} | {
        "/api/v1/nodes": [node("n1")],
        "/api/v1/pods": pods,
        "/api/v1/persistentvolumeclaims": [claim],
        TORCH_JOBS: torch_jobs,
        MPI_JOBS: mpi_jobs,
    }
    for path, items in lists.items():
        cluster.replace(path, page(items, "5"))
        cluster.say(path, Stream(), watch=True)
    for pod in pods:
        path = f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}"
        cluster.say(path, Answer(pod))
        cluster.say(f"{path}/log", Answer(LOG))
    for job in torch_jobs:
        cluster.say(
            f"/apis/kubeflow.org/v1/namespaces/default/pytorchjobs/{job['metadata']['name']}", Answer(job)
        )
    say_kinds(cluster, {"kubeflow.org/v1": ["pytorchjobs"], "kubeflow.org/v2beta1": ["mpijobs"]})
    return run


def mpi_objects(name: str) -> list[Any]:
    """Return an MPIJob, its launcher's Job and its pods, as the operator makes them."""
    text = (FIXTURES / "objects" / "mpijob-v2beta1-running.yaml").read_text()
    return list(yaml.safe_load_all(text.replace("bert", name).replace("vision", "default")))


def ended(pod: Any) -> Any:
    """Return a pod that has ended."""
    statuses = [
        {"name": each["name"], "restartCount": 0, "state": {"terminated": ENDED}}
        for each in pod["spec"]["containers"]
    ]
    return {**pod, "status": {"phase": "Succeeded", "containerStatuses": statuses}}


def words_of(line: str) -> list[str]:
    arena, *words = line.split()
    assert arena == "arena"
    return words


@pytest.mark.parametrize("line", GUIDES)
async def test_a_command_of_the_guides_works_as_it_is_written(guided: CommandLine, line: str) -> None:
    ended = await guided(*words_of(line))
    assert ended.status == 0, ended.err
    assert GUIDES[line] in ended.out
    if " -t 5" in line:
        assert "line" in ended.out


@pytest.mark.parametrize("line", PLACEHOLDERS)
async def test_what_is_no_whole_command_says_what_is_missing(alone: CommandLine, line: str) -> None:
    (await alone(*words_of(line))).reports(2, PLACEHOLDERS[line])


@pytest.mark.parametrize("line", OTHERS)
async def test_arenas_other_commands_work_or_say_why_not(guided: CommandLine, line: str) -> None:
    ended = await guided(*words_of(line))
    assert OTHERS[line] in ended.err
    assert "Traceback" not in ended.err
    assert (ended.status == 0) == (line.split()[1] in ("ls", "list", "log")), ended.err


@pytest.mark.parametrize("word", NOT_HERE)
async def test_arenas_missing_commands_are_explained(alone: CommandLine, word: str) -> None:
    ended = await alone(word, "anything", "--at", "all")
    assert (ended.status, ended.err.splitlines()[0]) == (2, NOT_HERE[word])
    overview = (await alone("--help")).out
    assert word not in {line.split()[0] for line in overview.splitlines() if line.strip()}


async def test_an_instance_is_resolved_to_its_pod(guided: CommandLine, cluster: ScriptedCluster) -> None:
    await guided(*["logs", "pytorch-dist", "-i", "pytorch-dist-worker-0", "-t", "5"])
    (asked,) = cluster.asked("/api/v1/namespaces/default/pods/pytorch-dist-worker-0/log")
    assert asked.query["tailLines"] == "5"
    listed = json.loads((await guided("list", "-T", "mpijob", "-o", "json")).out)
    assert {job["name"] for job in listed["items"]} == set(MPI)
