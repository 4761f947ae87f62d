"""From the flags of `submit` to a `JobSpec`; Arena's names where Arena has the flag."""

from __future__ import annotations

import argparse
import posixpath
from collections.abc import Mapping, Sequence

from k8s.job_spec import JobSpec, Mount
from k8s.jobs.run_folders import CHECKPOINTS, LOGS, run_name
from trainer.catalogue import TRAINERS, Trainer, find
from tui.commands.support.output import WrongUsage
from tui.options import login_name

WORKSPACE = Mount("workspace", "/workspace")
"""Where a packaged trainer writes unless told otherwise."""

_FLAGS: Mapping[str, str] = {
    "command": "COMMAND",
    "labels": "--label",
    "log_dir": "--logdir",
    "mounts": "--data",
    "priority_class": "--priority",
    "processes": "--nproc-per-node",
    "retries": "--retry",
    "shared_memory": "--share-memory",
    "working_dir": "--working-dir",
}
"""Field of `JobSpec` to the flag that fills it, where the names differ."""


def add_spec_arguments(parser: argparse.ArgumentParser) -> None:
    """Let a parser take a job."""
    add = parser.add_argument
    add(
        "command",
        metavar="COMMAND",
        nargs="*",
        help="command to run: one quoted line for the shell, or words after --",
    )
    add("--name", default="", help="job name")
    add("--image", default="", help="container image")
    add("--workers", type=int, default=1, metavar="N", help="number of pods, master included (default 1)")
    add("--gpus", type=int, default=0, metavar="N", help="GPUs per pod (default 0)")
    add("--device", type=_pair, metavar="RESOURCE=N", help="other accelerators per pod, e.g. amd.com/gpu=2")
    add("--nproc-per-node", type=int, metavar="N", help="processes per pod (default: one per GPU)")
    add("--cpu", default="", metavar="QUANTITY", help="CPU per pod, e.g. 4 or 500m")
    add("--memory", default="", metavar="QUANTITY", help="memory per pod, e.g. 32Gi")
    add("--share-memory", default="2Gi", metavar="QUANTITY", help="size of /dev/shm (default 2Gi)")
    add("--retry", type=int, default=0, metavar="N", help="retries after a failure (default 0)")
    add(
        "--clean-task-policy",
        choices=("None", "Running", "All"),
        default="None",
        help="pods to delete when the job ends (default None)",
    )
    add("--working-dir", default="", metavar="FOLDER", help="working directory of the command")
    add("--shell", default="sh", help="shell that runs COMMAND (default sh)")
    add(
        "-e",
        "--env",
        type=_pair,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="environment variable; may be repeated",
    )
    add(
        "-l",
        "--label",
        type=_pair,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="label; may be repeated",
    )
    add(
        "-d",
        "--data",
        type=_mount,
        action="append",
        default=[],
        metavar="CLAIM:/PATH",
        help="volume claim to mount; may be repeated",
    )
    add("-p", "--priority", default="", metavar="CLASS", help="priority class")
    names = ", ".join(trainer.name for trainer in TRAINERS)
    add(
        "--trainer",
        default="",
        metavar="NAME",
        help=f"run a packaged trainer ({names}) with the arguments after --",
    )
    add(
        "--continue",
        dest="continue_from",
        default="",
        metavar="JOB|FOLDER",
        help="with --trainer: go on from the checkpoint of an earlier job, or of its folder in the pods",
    )
    add(
        "--logdir", default="", metavar="FOLDER", help="folder that COMMAND writes event files to, for curves"
    )


def spec_of(flags: argparse.Namespace, namespace: str, *, stamp: str = "", continued: str = "") -> JobSpec:
    """Return the job that the flags describe; what follows `--` is in `flags.rest`.

    Args:
        flags: As parsed.
        namespace: Where to create it.
        stamp: What tells the folder of a trainer from those of earlier jobs of its name.
        continued: Folder of the run that `--continue` names.

    Raises:
        WrongUsage: Something is wrong with a flag.
    """
    gpus, resource = flags.gpus, "nvidia.com/gpu"
    if flags.device:
        resource, amount = flags.device
        if gpus or not amount.isdecimal():
            raise WrongUsage("--device: use RESOURCE=N, without --gpus.")
        gpus = int(amount)
    command, log_dir, mounts = _command(flags, run_name(flags.name, stamp), continued)
    spec = JobSpec(
        name=flags.name,
        namespace=namespace,
        image=flags.image,
        workers=flags.workers,
        gpus=gpus,
        gpu_resource=resource,
        processes=max(1, gpus) if flags.nproc_per_node is None else flags.nproc_per_node,
        command=command,
        working_dir=flags.working_dir,
        env=dict(flags.env),
        mounts=mounts,
        cpu=flags.cpu,
        memory=flags.memory,
        shared_memory=flags.share_memory,
        priority_class=flags.priority,
        retries=flags.retry,
        clean_pods=flags.clean_task_policy,
        trainer=flags.trainer,
        log_dir=log_dir,
        user=login_name(),
        labels=dict(flags.label),
    )
    if problems := spec.problems():
        lines = (f"{_FLAGS.get(name, f'--{name}')}: {words}" for name, words in problems.items())
        raise WrongUsage("\n".join(lines))
    return spec


def _command(
    flags: argparse.Namespace, run: str, continued: str
) -> tuple[tuple[str, ...], str, tuple[Mount, ...]]:
    """Return the words to run, where event files will be, and the volumes."""
    mounts = tuple(flags.data)
    if flags.continue_from and not flags.trainer:
        raise WrongUsage("--continue: only with --trainer; your own command finds its checkpoints itself.")
    if flags.trainer:
        if flags.command:
            raise WrongUsage("COMMAND: not allowed with --trainer; put the trainer's arguments after --")
        trainer = _find(flags.trainer)
        trainer.parser().parse_args(flags.rest)
        folders = _folders(flags.rest, run, continued, is_continued=bool(flags.continue_from))
        return _trainer_command(trainer, folders, flags, mounts)
    if flags.command and flags.rest:
        raise WrongUsage("COMMAND: use one quoted line or words after --, not both.")
    words = tuple(flags.rest)
    line = words[0] if len(words) == 1 and " " in words[0] else " ".join(flags.command)
    return (flags.shell, "-c", line) if line else words, flags.logdir, mounts


def _find(name: str) -> Trainer:
    try:
        return find(name)
    except LookupError as error:
        raise WrongUsage(f"--trainer: {error.args[0]}") from error


def _folders(words: Sequence[str], run: str, continued: str, *, is_continued: bool) -> list[str]:
    """Return the flags for the folders that the words of a trainer leave open.

    Raises:
        WrongUsage: The words ask for a checkpoint where there can be none.
    """
    has_checkpoints = bool(_flag_value("checkpoint-dir", words))
    must_resume = _flag_value("resume", words) == "must"
    if is_continued and (has_checkpoints or _flag_value("resume", words)):
        raise WrongUsage("--continue: not together with --checkpoint-dir or --resume.")
    if must_resume and not has_checkpoints:
        raise WrongUsage(
            "--resume must: a new job has no checkpoint; name an earlier job with --continue,"
            " or a folder with --checkpoint-dir."
        )
    own = f"{WORKSPACE.path}/{run}"
    folders = {"log-dir": f"{own}/{LOGS}", "checkpoint-dir": f"{own}/{CHECKPOINTS}"}
    if is_continued:
        folders = {"log-dir": f"{continued}/{LOGS}-{run}", "checkpoint-dir": f"{continued}/{CHECKPOINTS}"}
    found = [f"--{name}={folder}" for name, folder in folders.items() if not _flag_value(name, words)]
    return [*found, *(("--resume=must",) if is_continued else ())]


def _trainer_command(
    trainer: Trainer, folders: Sequence[str], flags: argparse.Namespace, mounts: tuple[Mount, ...]
) -> tuple[tuple[str, ...], str, tuple[Mount, ...]]:
    """Return the words that run a trainer; what it writes to the workspace needs its claim."""
    words = [*flags.rest, *(part for each in folders for part in each.split("=", 1))]
    if folders and all(mount.path != WORKSPACE.path for mount in mounts):
        mounts = (*mounts, WORKSPACE)
    log_dir = _flag_value("log-dir", words)
    return tuple(trainer.command(words)), posixpath.join(flags.working_dir, log_dir), mounts


def _flag_value(name: str, words: Sequence[str]) -> str:
    """Return the value of a flag among words, the last one; empty when it is not there."""
    value = ""
    for index, word in enumerate(words):
        flag, equals, text = word.partition("=")
        if flag == f"--{name}":
            value = text if equals else next(iter(words[index + 1 :]), "")
    return value


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def _mount(text: str) -> Mount:
    claim, colon, path = text.partition(":")
    if not colon or not claim:
        raise argparse.ArgumentTypeError(f"{text!r} is not CLAIM:/PATH")
    return Mount(claim, path)
