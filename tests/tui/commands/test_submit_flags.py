"""The flags of `submit`: one for every field of a job, with Arena's names; a sentence for what is refused."""

from __future__ import annotations

import argparse
import shlex
import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k8s.kinds import CREATABLE, CreatableKind
from k8s.kinds.job_spec import JOB_FIELDS, JobSpec, Mount, problems_of
from k8s.kinds.job_spec.field_types import (
    Argv,
    Choice,
    Duration,
    FieldType,
    Number,
    OptionalNumber,
    Pairs,
    Quantity,
    Switch,
)
from tests.tui.commands.conftest import CommandLine, manifest_of
from tui.commands.support.output import WrongUsage
from tui.commands.support.parser import CommandParser
from tui.commands.support.submit_flags import add_spec_arguments, draft_of, flag_of, spec_of
from tui.draft.fields import COMMAND, default_values
from tui.draft.job_draft import parse_values

BASE = ("--name=demo", "--image=x")
SMALL = (*BASE, "true")
MPI = next(kind for kind in CREATABLE if kind.title == "MPIJob")


def flags_of(words: list[str], rest: list[str], lacks: dict[str, str]) -> argparse.Namespace:
    parser = CommandParser(prog="gpuconsole submit pytorch")
    add_spec_arguments(parser, lacks)
    flags: argparse.Namespace = parser.parse_args(words)
    flags.rest = rest
    return flags


def job_of(*words: str, kind: CreatableKind = CREATABLE[0], lacks: dict[str, str] | None = None) -> JobSpec:
    """Return the job that the words after `submit KIND` describe."""
    at = words.index("--") if "--" in words else len(words)
    flags = flags_of(list(words[:at]), list(words[at + 1 :]), lacks or {})
    kind = type("Kind", (type(kind),), {"lacks": lacks or {}})()
    return spec_of(draft_of(flags, kind), kind, "20261122-082033-417")


def sample(name: str, field_type: FieldType) -> str:
    """Return a text that has a value other than the default."""
    match field_type:
        case Switch():
            return "true"
        case Choice():
            return field_type.words[-1]
        case Number() | OptionalNumber():
            return "3"
        case Duration():
            return "1h30m"
        case Quantity():
            return "3Gi" if field_type.least else "3"
        case Pairs():
            return "a.b/c=1" if "RESOURCE" in field_type.metavar else "A=1"
        case Argv():
            return "--a b"
    texts = {
        "mounts": "claim:/in",
        "host_mounts": "/host:/in",
        "config_files": "f:/etc/f",
        "env_from": "secret/s",
        "roles": "worker image=train:2 gpus=8",
        "new_claims": "out:2Ti:fast:RWX",
        "tolerations": "a=b:NoSchedule",
        "gpu_resource": "amd.com/gpu",
        "working_dir": "/there",
        "sync_source": "https://git/x",
        "sync_path": "/w/code",
        "elastic": "1-3",
        "host_namespaces": "ipc",
    }
    return texts.get(name, "some-name")


NEEDS = {
    "sync_mode": ("--sync-source=x",),
    "sync_source": ("--sync-mode=git",),
    "tensorboard": ("--logdir=/x",),
    "elastic": ("--workers=3",),
    "sync_path": ("--sync-mode=git", "--sync-source=x", "-d", "c:/w"),
} | dict.fromkeys(("sync_branch", "sync_revision", "git_secret"), ("--sync-mode=git", "--sync-source=x"))
FLAGS = [
    (name, flag)
    for name, field in JOB_FIELDS.items()
    if name not in ("namespace", "command", "trainer", "user")
    for flag in field.flags
]


@pytest.mark.parametrize(("name", "flag"), FLAGS, ids=[flag for _, flag in FLAGS])
def test_every_field_has_its_flags(name: str, flag: str) -> None:
    field = JOB_FIELDS[name]
    text = sample(name, field.type)
    others = tuple(word for word in SMALL if not word.startswith(f"{flag}="))
    spec = job_of(*others, *NEEDS.get(name, ()), f"{flag}={text}")
    assert field.type.to_text(getattr(spec, name)) == text
    assert getattr(spec, name) != field.default


def test_omitted_flags_take_the_declared_defaults() -> None:
    spec = job_of(*SMALL)
    said = {"name", "image", "command", "user"}
    defaults: dict[str, Any] = {name: field.default for name, field in JOB_FIELDS.items() if name not in said}
    assert {name: getattr(spec, name) for name in defaults} == defaults
    assert (spec.name, spec.image, spec.command) == ("demo", "x", ("sh", "-c", "true"))


@pytest.mark.parametrize(
    ("words", "is_on"),
    [
        (("--gputopology",), True),
        (("--gputopology=true",), True),
        (("--gputopology=True",), True),
        (("--gputopology=false",), False),
        (("--gputopology", "--gputopology=false"), False),
    ],
)
def test_switches_are_read_as_pflag_reads_them(words: tuple[str, ...], is_on: bool) -> None:
    spec = job_of(*words, *SMALL)
    assert (spec.gpu_topology, spec.command) == (is_on, ("sh", "-c", "true"))


def test_flag_values_follow_a_space_or_equals_sign_and_the_last_one_wins() -> None:
    spec = job_of(*SMALL, "--workers", "3", "-p", "low", "-p=high", "--gpus=1", "--gpus=2")
    assert (spec.workers, spec.priority_class, spec.gpus) == (3, "high", 2)


def test_repeated_flags_accumulate() -> None:
    spec = job_of(
        *SMALL, *("-e", "A=1"), "-e=B=x=y", "--env=A=2", *("-d", "a:/a"), "--data=b:/b", *("-l", "x=1"),
        *("-a", "y=2"), "--toleration=all", "--selector=gpu=a100", "--data-dir=/h",
    )  # fmt: skip
    assert spec.env == {"A": "2", "B": "x=y"}
    assert [mount.to_text() for mount in spec.mounts] == ["a:/a", "b:/b"]
    assert (spec.labels, spec.annotations, spec.node_selector) == ({"x": "1"}, {"y": "2"}, {"gpu": "a100"})
    assert spec.host_mounts[0].path == "/h"


@pytest.mark.parametrize("value", ['"b"', "1=2", "", "one\n\ttwo\n"])
def test_quotes_in_flag_values_are_kept(value: str) -> None:
    assert job_of(*SMALL, "-e", f"A={value}").env == {"A": value}


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (("a b.py --lr 1",), ("sh", "-c", "a b.py --lr 1")),
        (("--", "python", "a b.py", "--", "-x"), ("python", "a b.py", "--", "-x")),
        (("--shell", "bash", "--", "a && sync"), ("bash", "-c", "a && sync")),
    ],
)
def test_a_command_is_one_shell_line_or_words_after_dashes(
    words: tuple[str, ...], command: tuple[str, ...]
) -> None:
    assert job_of(*BASE, *words).command == command


@pytest.mark.parametrize(
    ("words", "processes"),
    [
        ((), 1),
        (("--gpus=4",), 4),
        (("--gpus=4", "--nproc-per-node=auto"), 4),
        (("--gpus=4", "--nproc-per-node=gpu"), 4),
        (("--cpu=8", "--nproc-per-node=cpu"), 8),
        (("--gpus=4", "--nproc-per-node=2"), 2),
    ],
)
def test_nproc_per_node_accepts_torchruns_auto_gpu_and_cpu(words: tuple[str, ...], processes: int) -> None:
    assert job_of(*SMALL, *words).processes == processes


def test_switches_of_arena_add_a_device_and_namespaces_of_the_node() -> None:
    job = job_of(*SMALL, "--rdma=true", "--hostIPC=true", "--hostNetwork=true", "--hostPID=false")
    assert (job.devices, job.host_namespaces) == ({"rdma/hca": "1"}, ("ipc", "network"))


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("--device=amd.com/gpu=2",), ("amd.com/gpu", 2, {})),
        (("--device=amd.com/gpu=2", "--device=rdma/hca=1"), ("amd.com/gpu", 2, {"rdma/hca": "1"})),
        (("--device=rdma/hca=1",), ("nvidia.com/gpu", 0, {"rdma/hca": "1"})),
        (("--gpus=1", "--device=amd.com/gpu=2"), ("nvidia.com/gpu", 1, {"amd.com/gpu": "2"})),
    ],
)
def test_a_device_flag_sets_the_gpu_resource_if_no_gpus_are_requested(
    words: tuple[str, ...], found: object
) -> None:
    spec = job_of(*SMALL, *words)
    assert (spec.gpu_resource, spec.gpus, dict(spec.devices)) == found


def test_a_job_with_synced_code_works_in_root_by_default_like_arena() -> None:
    synced = ("--sync-mode=git", "--sync-source=https://git/x")
    assert job_of(*SMALL, *synced).working_dir == "/root"
    assert job_of(*SMALL, *synced, "--working-dir=/there").working_dir == "/there"
    assert job_of(*SMALL).working_dir == ""


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--name= true", "--name: Required, e.g. bert-base-1"),
        ("", "COMMAND: Required: a command"),
        ("true -- false", "not both"),
        ("true --workers=three", "--workers: 'three': Must be a whole number"),
        ("true --workers=0", "--workers: Must be at least 1"),
        ("true --gpus=-1", "--gpus: Must be at least 0"),
        ("true -d claim", "'claim' is not CLAIM:/PATH"),
        ("true -e novalue", "'novalue' is not NAME=VALUE"),
        ("true --tensorboard=maybe --logdir=/x", "--tensorboard: 'maybe': Must be true or false."),
        ("true --tensorboard", "--logdir: Required with TensorBoard"),
        ("true --running-timeout=soon", "--running-timeout: 'soon': Must be a duration"),
        ("true --toleration=a:b", "--toleration: 'a:b' is not TAINT; expected all, key"),
        ("true --env-from=x", "--env-from: 'x' is not SOURCE; expected secret/NAME"),
        ("true --data-dir=x", "--data-dir: 'x' is not FOLDER[:/PATH]"),
        ("true --device=nvidia.com/gpu=1", "--device: nvidia.com/gpu is what --gpus requests."),
        ("true --device=a.b/c=x", "--device: a.b/c=x: use RESOURCE=N."),
        ("true --nproc-per-node=gpu", "--nproc-per-node gpu: the job requests no GPUs"),
        ("true --nproc-per-node=cpu", "--nproc-per-node cpu: set the CPUs of a pod"),
        ("true --nproc-per-node=many", "--nproc-per-node: 'many': Must be a whole number"),
        ("true --role='worker gpu=1'", "--role: 'worker gpu=1' is not ROLE key=value"),
        ("--trainer=gan", "--trainer: There is no trainer 'gan'"),
        ("--trainer=ddp true", "COMMAND: not allowed"),
        ("--trainer=ddp --logdir=/tb -- --log-dir=/w/tb", "--logdir: not together with another --log-dir"),
        ("--trainer=ddp -- --resume must", "--resume must: a new job has no checkpoint"),
        ("--trainer=ddp --continue=a -- --resume=never", "--continue cannot"),
        ("--trainer=ddp --continue=a -- --checkpoint-dir=/x", "--continue cannot"),
        ("--continue=a true", "--continue requires --trainer"),
        ("--trainer=mpi --continue=/w/a", "--continue: the trainer mpi writes no checkpoints."),
    ],
)
def test_invalid_flag_values_are_rejected_with_the_flag_name(line: str, said: str) -> None:
    with pytest.raises(WrongUsage) as error:
        job_of(*BASE, *shlex.split(line))
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (("-e", "A=1\rB=2", "true"), "--env"),
        (("--logdir", "/x\r", "true"), "--logdir"),
        (("--working-dir", "/x\r", "true"), "--working-dir"),
        (("echo\r",), "COMMAND"),
    ],
)
def test_control_characters_are_refused_with_their_flag(words: tuple[str, ...], flag: str) -> None:
    with pytest.raises(WrongUsage) as error:
        job_of(*BASE, *words)
    assert str(error.value).startswith(f"{flag}: Must not contain control characters; found ")
    assert str(error.value).isprintable()


RUN = "/workspace/demo-20261122-082033-417"
TORCHRUN = ("python", "-P", "-m", "trainer.launch", "-m")
MPIRUN = ("mpirun", "--allow-run-as-root", "--tag-output", "-np")


@pytest.mark.parametrize(
    ("line", "command"),
    [
        (
            "--trainer=ddp -- --epochs 1",
            f"trainer.train_ddp --epochs 1 --log-dir {RUN}/logs --checkpoint-dir {RUN}/checkpoints",
        ),
        ("--trainer=mpi -- --model vgg16", f"trainer.train_mpi --model vgg16 --log-dir {RUN}/logs"),
        (
            "--trainer=ddp -- --log-dir=/mnt/logs --checkpoint-dir /mnt/saved",
            "trainer.train_ddp --log-dir=/mnt/logs --checkpoint-dir /mnt/saved",
        ),
        (
            "--trainer=ddp -- --logdir=/mnt/logs --checkpoint_dir /mnt/saved --no_cuda",
            "trainer.train_ddp --log-dir=/mnt/logs --checkpoint-dir /mnt/saved --device cpu",
        ),
        ("--trainer=mpi --logdir=/mnt/logs", "trainer.train_mpi --log-dir /mnt/logs"),
        ("--trainer=mpi --logdir=/mnt/logs -- --log-dir=/mnt/logs", "trainer.train_mpi --log-dir=/mnt/logs"),
    ],
)
def test_a_trainer_writes_to_the_workspace_claim_unless_its_folders_are_named(
    line: str, command: str
) -> None:
    spec = job_of(*BASE, "-d", "mine:/mnt", *shlex.split(line))
    assert spec.command == (*TORCHRUN, *command.split())
    assert spec.trainer == command.split()[0].removeprefix("trainer.train_")
    assert spec.log_dir == ("/mnt/logs" if "/mnt/logs" in line else f"{RUN}/logs")
    mine, workspace = Mount("mine", "/mnt"), Mount("workspace", "/workspace")
    assert spec.mounts == ((mine,) if RUN not in command else (mine, workspace))


def test_a_claim_mounted_at_workspace_replaces_the_workspace_claim() -> None:
    assert job_of(*BASE, "-d", "mine:/workspace", "--trainer=ddp").mounts == (Mount("mine", "/workspace"),)


@pytest.mark.parametrize(
    ("line", "command"),
    [
        (
            "--workers=2 --gpus=2 -e NCCL_DEBUG=INFO -e A=1 --trainer=mpi -- --num-iters=1",
            "4 -x A -x NCCL_DEBUG python -P -m trainer.train_mpi --num-iters=1",
        ),
        ("--workers=2 --gpus=2 --trainer=ddp -- --epochs=1", "4 python -P -m trainer.train_ddp --epochs=1"),
        ("--workers=3 --gpus=2 --slots-per-worker=1 --trainer=mpi", "3 python -P -m trainer.train_mpi"),
    ],
)
def test_in_an_mpi_job_mpirun_starts_a_rank_for_each_slot(line: str, command: str) -> None:
    spec = job_of(*BASE, *shlex.split(line), kind=MPI)
    expected = (*MPIRUN, *command.split())
    assert spec.command[: len(expected)] == expected


TEXT = st.text(max_size=12) | st.text(string.ascii_lowercase + string.digits + "-./:=", max_size=12)


@given(
    name=TEXT, image=TEXT, cpu=TEXT, memory=TEXT, folder=TEXT, line=TEXT,
    workers=st.integers(-3, 10**6), gpus=st.integers(-3, 10**6),
    pairs=st.lists(st.tuples(st.text(min_size=1, max_size=5).filter(lambda name: "=" not in name), TEXT)),
    rest=st.lists(TEXT, max_size=3),
)  # fmt: skip
def test_any_flags_produce_a_valid_job_or_a_usage_error(
    name: str, image: str, cpu: str, memory: str, folder: str, line: str, workers: int, gpus: int,
    pairs: list[tuple[str, str]], rest: list[str],
) -> None:  # fmt: skip
    words = [f"--name={name}", f"--image={image}", f"--cpu={cpu}", f"--memory={memory}"]
    words += [f"--working-dir={folder}", f"--workers={workers}", f"--gpus={gpus}"]
    words += [f"--env={key}={value}" for key, value in pairs]
    flags = flags_of(words, rest, {})
    flags.command = [line] if line else []
    try:
        spec = spec_of(draft_of(flags, CREATABLE[0]), CREATABLE[0])
    except WrongUsage as error:
        assert str(error)
    else:
        assert isinstance(spec, JobSpec)
        assert problems_of(spec) == {}


def test_all_invalid_flags_are_reported_together() -> None:
    with pytest.raises(WrongUsage) as error:
        job_of(*SMALL, "--workers=x", "--data=y")
    assert [line.partition(":")[0] for line in str(error.value).splitlines()] == ["--workers", "--data"]


def test_a_flag_unsupported_by_the_kind_is_rejected_and_hidden_from_its_help() -> None:
    lacks = {"ttl_s": "A Job of this kind is kept.", "tensorboard": "It has none."}
    with pytest.raises(WrongUsage) as error:
        job_of(*SMALL, "--ttl-after-finished=1h", "--tensorboard=false", lacks=lacks)
    assert str(error.value) == "--ttl-after-finished: A Job of this kind is kept.", (
        "the other has its default"
    )
    assert job_of(*SMALL, "--gpus=2", lacks={"processes": "It has none."}).processes == 2
    parser = CommandParser(prog="x")
    add_spec_arguments(parser, lacks)
    assert "--ttl-after-finished" not in parser.format_help()
    assert "--running-timeout" in parser.format_help()


def test_roles_determine_the_worker_count_unless_workers_is_given() -> None:
    roles = ("--role", "worker replicas=3 image=train:2", "--role=master gpus=0")
    spec = job_of(*SMALL, *roles)
    assert (spec.workers, [role.name for role in spec.roles]) == (4, ["worker", "master"])
    assert job_of(*SMALL, *roles, "--workers=7").workers == 7
    assert CREATABLE[0].unsupported(spec) == {}


def test_every_job_field_has_a_flag() -> None:
    for name, field in JOB_FIELDS.items():
        assert flag_of(name) in (*field.flags, "COMMAND", "-n")


JOB = ("--name", "demo", "--image", "x", "--dry-run=client", "true")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--loglevel", "info", "submit", "pytorch", *JOB), "Without effect here: --loglevel."),
        (("submit", "pytorch", "--loglevel=info", *JOB), "Without effect here: --loglevel."),
        (
            ("--trace", "submit", "pytorch", *JOB, "--helm-binary=x", "--arena-namespace", "y"),
            "Without effect here: --arena-namespace, --helm-binary, --trace.",
        ),
        (("--pprof=false", "submit", "pytorch", *JOB), "Without effect here: --pprof."),
        (
            ("submit", "pytorch", "--model-name", "m", "--model-source=s", *JOB),
            "--model-name, --model-source: registers nothing; there is no model registry here.",
        ),
    ],
)
async def test_arenas_flags_without_effect_are_ignored_with_a_message(
    run: CommandLine, words: tuple[str, ...], message: str
) -> None:
    ended = await run(*words)
    assert (ended.status, ended.out) == (0, "PyTorchJob default/demo created (dry run).\n")
    assert ended.err == f"{message}\n"


async def test_arenas_config_is_the_kubeconfig(alone: CommandLine) -> None:
    ended = await alone("list", "--config", "/nowhere/config")
    assert ended.status == 1
    assert "/nowhere/config" in ended.err


@pytest.mark.parametrize(
    "words",
    [
        ("--foo", "info", "submit", "pytorch", *JOB),
        ("--foo=info", "submit", "pytorch", *JOB),
        ("submit", "--foo", "v", "pytorch", *JOB),
        ("submit", "pytorch", "--foo", "v", *JOB),
        ("submit", "pytorch", *JOB, "--foo", "v"),
        ("--sandbox", "-n", "x", "--foo", "list"),
        ("-n", "x", "--foo", "v", "list"),
        ("get", "a", "b", "--foo"),
    ],
)
async def test_an_unknown_option_is_reported_without_its_value(
    run: CommandLine, words: tuple[str, ...]
) -> None:
    ended = await run(*words)
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.splitlines()[0] == "Unknown option --foo"
    assert run.cluster.requests == []


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("tfjob", "TFJobs can be shown and deleted, but not created"),
        ("tf", "TFJobs can be shown"),
        ("horovod", "use mpi instead"),
        ("et", "use pytorch with --elastic."),
        ("sparkjob", "not supported"),
        ("rj", "RayJobs can be shown"),
        ("vj", "Volcano jobs can be shown"),
        ("dp", "use mpi instead"),
    ],
)
async def test_arena_kinds_that_cannot_be_created_are_rejected_with_an_explanation(
    run: CommandLine, kind: str, said: str
) -> None:
    ended = await run("submit", kind, "--name=x", "--ps=1", "python train.py")
    ended.reports(2, said)
    assert len(ended.err.splitlines()) == 2


@pytest.mark.parametrize("word", ["pytorch", "pytorchjob", "py"])
async def test_arenas_aliases_for_pytorchjob_are_accepted(run: CommandLine, word: str) -> None:
    assert (await run("submit", word, *JOB)).out == "PyTorchJob default/demo created (dry run).\n"


@pytest.mark.parametrize(
    ("kind", "words", "said"),
    [
        ("trainjob", "--elastic=1-2 true", "--elastic: The number of nodes of a TrainJob is fixed"),
        ("job", "--restart-policy=ExitCode true", "--restart-policy: A Job supports only OnFailure, Never."),
        (
            "pytorch",
            "--gputopology=true true",
            "--gputopology: Alibaba Cloud's scheduler supports GPU topology for MPI jobs",
        ),
        ("t9k", "--ttl-after-finished=1h true", "--ttl-after-finished: A PyTorchTrainingJob is kept until"),
        ("pytorch", "--trainer ddp -- --epochs many", "--epochs: 'many'"),
        ("pytorch", "--trainer mpi -- --resume=must", "unrecognized arguments: --resume=must"),
        ("pytorch", "--config-file nothing.yaml:/etc/x true", "--config-file: Could not read nothing.yaml"),
        ("pytorch", "--sync-mode=folder --sync-source=./nothing true", "--sync-source: "),
    ],
)
async def test_unsupported_and_invalid_flags_are_rejected_before_any_request(
    run: CommandLine, kind: str, words: str, said: str
) -> None:
    (await run("submit", kind, *BASE, *words.split())).reports(2, said)
    assert run.cluster.requests == []


async def test_the_help_of_a_kind_lists_the_form_sections_in_order(alone: CommandLine) -> None:
    ended = await alone("submit", "pytorch", "--help")
    assert ended.out.startswith(
        "usage: gpuconsole submit pytorch --name NAME --image IMAGE [OPTIONS] COMMAND"
    )
    sections = list(dict.fromkeys(field.section for field in JOB_FIELDS.values()))
    places = [ended.out.index(f"\n{section}:\n") for section in sections]
    assert places == sorted(places)
    assert "--workingDir" not in ended.out


@pytest.mark.parametrize(
    "words", [("train.py --lr 1",), ("--", "train.py", "--lr", "1"), ("--", "train.py --lr 1")]
)
async def test_torchrun_starts_a_script_quoted_or_not(run: CommandLine, words: tuple[str, ...]) -> None:
    asked = ("t9k", "--name", "demo", "--image", "x", "--torchrun", "--dry-run", "client", "-o", "yaml")
    job = await manifest_of(run, *asked, *words)
    (role,) = job["spec"]["replicaSpecs"]
    assert role["template"]["spec"]["containers"][0]["args"] == ["train.py", "--lr", "1"]
    assert "--no-python" not in job["spec"]["torchrunConfig"].get("extraOptions", [])


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("memory", "10", "10 without a unit is 10 bytes: write e.g. 10Gi."),
        ("node_selector", "gpu=a 100", "'a 100' is not a valid label value: use at most 63 letters"),
        ("new_claims", "data 100 RWX", "data: 100 without a unit is 100 bytes: write e.g. 100Gi."),
        ("roles", "worker memory=10", "worker: memory: 10 without a unit is 10 bytes: write e.g. 10Gi."),
    ],
)
def test_form_and_flags_reject_the_same_values_with_the_same_message(
    name: str, text: str, sentence: str
) -> None:
    with pytest.raises(WrongUsage) as refused:
        job_of(*SMALL, f"{flag_of(name)}={text}")
    values = {**default_values(), "name": "demo", "run": COMMAND, COMMAND: "true", name: text}
    in_form = parse_values(values).problems[name]
    assert in_form.startswith(sentence)
    assert f"{flag_of(name)}: {in_form}" in str(refused.value)
