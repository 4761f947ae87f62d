"""Arena's commands: those of the guides work as they were written, the others work or say why not."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest
import yaml

from k8s.kinds import CREATABLE, KINDS
from k8s.kinds.job_spec import JOB_FIELDS, JobSpec, Mount
from tests import FIXTURES
from tests.scripted.feed import say_kinds
from tests.scripted.server import Answer, Compute, ScriptedCluster, Stream, page
from tests.support.objects import node, pod_of, pytorch_job
from tests.tui.commands.conftest import CommandLine, echo
from tui.commands import NOT_HERE
from tui.commands.support.parser import CommandParser
from tui.commands.support.submit_flags import add_spec_arguments, draft_of

GUIDES = sorted((FIXTURES / "guides").glob("*.sh"))
BENCHMARK = (
    "mpirun --allow-run-as-root -np 4 -bind-to none -map-by slot -x NCCL_DEBUG=INFO -x"
    " NCCL_SOCKET_IFNAME=eth0 -x LD_LIBRARY_PATH -x PATH --mca pml ob1 --mca btl_tcp_if_include eth0"
    " --mca oob_tcp_if_include eth0"
    " --mca orte_keep_fqdn_hostnames t --mca btl ^openib python /examples/pytorch_synthetic_benchmark.py"
    " --model={} --batch-size=64"
)
DIST = (
    "python /root/code/mnist-pytorch/mnist.py --epochs 10 --backend nccl --dir /mnist_data/pytorch_data/logs"
    " --data /mnist_data/pytorch_data/"
)
CODE = "https://code.aliyun.com/370272561/mnist-pytorch.git"


def shell(line: str, **fields: Any) -> dict[str, Any]:
    return {"command": ("sh", "-c", line), **fields}


def with_code(line: str, **fields: Any) -> dict[str, Any]:
    return shell(line, sync_mode="git", sync_source=CODE, working_dir="/root", **fields)


GLOO = "python /root/code/mnist-pytorch/mnist.py --backend gloo"
LOGS = "/mnist_data/pytorch_data/logs"
DATA = (Mount("training-data", "/mnist_data"),)
JOBS: dict[str, dict[str, Any]] = {
    "pytorch-dist": with_code(DIST, gpus=1, workers=3, mounts=DATA, tensorboard=True, log_dir=LOGS),
    "pytorch-dist-git": with_code(GLOO, gpus=1, workers=2),
    "pytorch-private": with_code(GLOO, env={"GIT_SYNC_USERNAME": "yourname", "GIT_SYNC_PASSWORD": "yourpwd"}),
    **{
        f"pytorch-{topo}4-{model}": shell(BENCHMARK.format(model), gpus=1, workers=4, gpu_topology=bool(topo))
        for topo in ("topo-", "")
        for model in ("vgg16", "resnet50")
    },
}
"""Fields of each job that differ from their defaults, besides name and image."""


def words_of(name: str) -> list[str]:
    """Return the words that the shell makes of a guide's command; `...` stands for a name and an image."""
    text = (FIXTURES / "guides" / f"{name}.sh").read_text().replace("\\\n", " ")
    arena, *words = shlex.split(text.replace("...", f"--name={name} --image=x"))
    assert arena == "arena"
    return words


def job_of(name: str) -> JobSpec:
    """Return the job that the flags of a guide's command describe."""
    words = words_of(name)
    parser = CommandParser(prog="gpuconsole")
    add_spec_arguments(parser)
    flags = parser.parse_args(words[words.index("submit") + 2 :])
    flags.rest = []
    return draft_of(flags, CREATABLE[0]).spec(CREATABLE[0])


def test_every_submit_command_of_the_guides_has_an_expected_job() -> None:
    assert {path.stem for path in GUIDES} == set(JOBS)
    assert len(GUIDES) == 7


@pytest.mark.parametrize("name", JOBS)
def test_a_guide_command_parses_to_the_expected_job_spec(name: str) -> None:
    spec = job_of(name)
    assert spec.name == name
    always = {"namespace", "user", "name", "image"}
    said = {
        field: getattr(spec, field)
        for field in JOB_FIELDS
        if field not in always and getattr(spec, field) != JOB_FIELDS[field].default
    }
    expected = {field: value for field, value in JOBS[name].items() if value != JOB_FIELDS[field].default}
    assert said == expected


@pytest.mark.parametrize("name", JOBS)
async def test_a_guide_command_creates_a_job_in_a_client_dry_run(alone: CommandLine, name: str) -> None:
    kind = "PyTorchJob" if words_of(name)[-1].startswith("python ") else "MPIJob"
    ended = await alone(*words_of(name), "--dry-run=client")
    lines = [f"{kind} default/{name} created (dry run).", *BESIDE.get(name, ())]
    assert (ended.status, ended.out.splitlines()) == (0, lines)
    assert "yourpwd" not in (await alone(*words_of(name), "--dry-run=client", "-o", "yaml")).out
    assert ended.err in ("", "Without effect here: --loglevel.\n")


BESIDE = {
    "pytorch-dist": (
        "deployment.apps/pytorch-dist-tensorboard created (dry run)",
        "service/pytorch-dist-tensorboard created (dry run)",
    ),
    "pytorch-private": ("secret/pytorch-private-git created (dry run)",),
}
"""Lines about objects created beside the job."""
RECORDED_AS = {
    "pytorch-dist": "arena-pytorch-dist",
    "pytorch-dist-git": "arena-pytorch-dist-git",
    "pytorch-4-vgg16": "arena-mpi",
    "pytorch-topo-4-vgg16": "arena-mpi-topology",
}
"""Objects that Arena created from the command on a real cluster, with image and git host replaced."""
MPI_JOBS = "/apis/kubeflow.org/v1alpha1/namespaces/default/mpijobs"


def essence_of(job: Any) -> dict[str, Any]:
    """Return the parts that both must have in common: pods, commands, devices, mounts, and labels."""
    spec = job["spec"]
    roles = spec.get("pytorchReplicaSpecs") or {"": spec}
    found: dict[str, Any] = {"labels": {key: job["metadata"]["labels"][key] for key in ("app", "release")}}
    found["gpus"] = job["metadata"]["annotations"]["requestGPUsOfJobOwner"]
    for role, part in roles.items():
        pod = part["template"]["spec"]
        (container,) = pod["containers"]
        labels = part["template"]["metadata"]["labels"]
        found[role] = {
            "replicas": part["replicas"],
            "name": container["name"],
            # For the recording the inner quotes were kept from the shell.
            "command": [word.replace('-np "4"', "-np 4") for word in container["command"]],
            "limits": container["resources"]["limits"],
            "mounts": {each["mountPath"] for each in container.get("volumeMounts", ())} - {"/root/code"},
            "claims": [
                each["persistentVolumeClaim"]["claimName"]
                for each in pod.get("volumes", ())
                if "persistentVolumeClaim" in each
            ],
            "host network": pod.get("hostNetwork", False),
            "topology": {key: labels[key] for key in labels if key.startswith("gpu-topology")},
        }
    return found


@pytest.mark.parametrize("name", RECORDED_AS)
async def test_the_submitted_manifest_matches_the_one_recorded_from_arena(
    run: CommandLine, name: str
) -> None:
    say_kinds(run.cluster, {"kubeflow.org/v1": ["pytorchjobs"], "kubeflow.org/v1alpha1": ["mpijobs"]})
    beside = ("/apis/apps/v1/namespaces/default/deployments", "/api/v1/namespaces/default/services")
    for path in (MPI_JOBS, "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs", *beside):
        run.cluster.say(path, Compute(echo), method="POST")
    ended = await run(*words_of(name), "--dry-run=server", "-o", "json")
    assert ended.status == 0, ended.err
    recorded = json.loads((FIXTURES / "objects" / f"{RECORDED_AS[name]}.json").read_text())
    posted = [each for each in run.cluster.requests if each.method == "POST"]
    (asked,) = [each for each in posted if each.path.endswith(("torchjobs", "mpijobs"))]
    sent = json.loads(asked.body)
    assert (sent["kind"], sent["apiVersion"]) == (recorded["kind"], recorded["apiVersion"])
    assert essence_of(sent) == essence_of(recorded)


MPI_JOBS_V2 = "/apis/kubeflow.org/v2beta1/mpijobs"
TORCH_JOBS = "/apis/kubeflow.org/v1/pytorchjobs"
SUCCEEDED = {"conditions": [{"type": "Succeeded", "status": "True"}]}
ENDED = {"exitCode": 0, "finishedAt": "2026-11-20T18:37:00Z"}
TORCH = ("pytorch-dist", "pytorch-dist-git", "pytorch-local-git")
MPI_NAMES = tuple(f"pytorch-{topo}4-{model}" for topo in ("topo-", "") for model in ("vgg16", "resnet50"))
LOG = b"".join(b"2026-11-20T18:36:1%d.000000001Z line %d\n" % (n, n) for n in range(8))

READING: dict[str, str] = {
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
    **{f"arena get {name} --type mpijob": "launcher-0" for name in MPI_NAMES},
    **{f"arena logs -f {name}": "line 7" for name in MPI_NAMES},
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
"""Incomplete commands of the guides, and the messages about them."""
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
    for name in MPI_NAMES:
        job, _, *its_pods = mpi_objects(name)
        mpi_jobs.append({**job, "status": SUCCEEDED})
        pods += map(ended, its_pods)
    claim = {"metadata": {"name": "training-data", "namespace": "default"}, "status": {"phase": "Bound"}}
    lists = {kind.resource.path(): [] for kind in KINDS} | {
        "/api/v1/nodes": [node("n1")],
        "/api/v1/pods": pods,
        "/api/v1/persistentvolumeclaims": [claim],
        TORCH_JOBS: torch_jobs,
        MPI_JOBS_V2: mpi_jobs,
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
    statuses = [
        {"name": each["name"], "restartCount": 0, "state": {"terminated": ENDED}}
        for each in pod["spec"]["containers"]
    ]
    return {**pod, "status": {"phase": "Succeeded", "containerStatuses": statuses}}


def typed_words(line: str) -> list[str]:
    arena, *words = line.split()
    assert arena == "arena"
    return words


@pytest.mark.parametrize("line", READING)
async def test_a_guide_command_succeeds_unchanged(guided: CommandLine, line: str) -> None:
    ended = await guided(*typed_words(line))
    assert ended.status == 0, ended.err
    assert READING[line] in ended.out
    if " -t 5" in line:
        assert "line" in ended.out


@pytest.mark.parametrize("line", PLACEHOLDERS)
async def test_an_incomplete_guide_command_names_the_missing_part(alone: CommandLine, line: str) -> None:
    (await alone(*typed_words(line))).reports(2, PLACEHOLDERS[line])


@pytest.mark.parametrize("line", OTHERS)
async def test_other_arena_commands_succeed_or_explain_why_they_cannot(
    guided: CommandLine, line: str
) -> None:
    ended = await guided(*typed_words(line))
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
    asked = cluster.asked("/api/v1/namespaces/default/pods/pytorch-dist-worker-0/log")
    assert [each.query["tailLines"] for each in asked] == ["5", "1"]
    listed = json.loads((await guided("list", "-T", "mpijob", "-o", "json")).out)
    assert {job["name"] for job in listed["items"]} == set(MPI_NAMES)
