"""`sandbox`: start and stop the single-machine cluster."""

from __future__ import annotations

import argparse
import shlex
from datetime import UTC, datetime

from k8s import sandbox
from k8s.gpus.links import MACHINES
from k8s.models import quantity
from tui.commands.support.connect import check_may_change
from tui.commands.support.output import (
    WrongUsage,
    add_format,
    confirm,
    is_interactive,
    write,
    write_fields,
    write_object,
    write_stderr,
)
from tui.settings.options import ConsoleOptions
from tui.text.format import local_time, timestamp


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the subcommands."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    usual = sandbox.SandboxOptions()
    start = actions.add_parser("start", help="start it in the background")
    start.add_argument("--nodes", type=int, default=0, metavar="N", help="number of nodes")
    start.add_argument("--gpus-per-node", type=int, default=-1, metavar="N", help="simulated GPUs per node")
    start.add_argument(
        "--links",
        choices=tuple(MACHINES),
        default="",
        help="link the simulated GPUs as in a machine of this kind",
    )
    start.add_argument(
        "--container-log-max-size",
        type=_log_bytes,
        default=usual.log_max_bytes,
        metavar="SIZE",
        help="rotate a container's log file at this size (default 64Mi)",
    )
    start.add_argument(
        "--container-log-max-files",
        type=_log_files,
        default=usual.log_max_files,
        metavar="N",
        help=f"keep this many log files of a container (default {usual.log_max_files})",
    )
    actions.add_parser("stop", help="stop it and its pods; keep objects and volumes")
    add_format(
        actions.add_parser("status", help="show whether it runs, and where"), ("table", "json", "yaml")
    )
    reset = actions.add_parser("reset", help="stop it and delete its objects, volumes and logs")
    reset.add_argument(
        "-y", "--yes", action="store_true", help="do not ask for confirmation; required in scripts"
    )
    actions.add_parser("kubeconfig", help="print the path of its kubeconfig")


def _log_bytes(text: str) -> int:
    try:
        size = int(quantity.parse(text))
    except ValueError:
        size = 0
    if not 2**20 <= size <= 2**40:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size from 1Mi to 1Ti, as in 64Mi.")
    return size


def _log_files(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 6 and int(text) > 1):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 2 to 99999.")
    return int(text)


async def run(options: ConsoleOptions, flags: argparse.Namespace) -> int:
    """Run the requested subcommand."""
    match flags.action:
        case "start":
            return await _start(options, flags)
        case "stop":
            check_may_change(options, "stop the sandbox")
            write("Stopped the sandbox." if await sandbox.stop() else "The sandbox is not running.")
            return 0
        case "status":
            return await _status(flags.output)
        case "reset":
            return await _reset(options, is_sure=flags.yes)
    path = sandbox.kubeconfig_path()
    if not path.exists():
        write_stderr("The sandbox has never been started. To start it: gpuconsole sandbox start")
        return 1
    write(str(path))
    return 0


async def _start(options: ConsoleOptions, flags: argparse.Namespace) -> int:
    check_may_change(options, "start the sandbox")
    if flags.nodes < 0 or flags.gpus_per_node < -1:
        raise WrongUsage("--nodes and --gpus-per-node: must be 0 or more.")
    if flags.links and flags.gpus_per_node > MACHINES[flags.links].gpus:
        raise WrongUsage(
            f"--gpus-per-node: a machine with --links {flags.links} has at most {MACHINES[flags.links].gpus}."
        )
    asked = sandbox.SandboxOptions(
        nodes=flags.nodes,
        gpus_per_node=flags.gpus_per_node,
        links=flags.links,
        log_max_bytes=flags.container_log_max_size,
        log_max_files=flags.container_log_max_files,
    )
    address = await sandbox.start(asked)
    if address.was_running and asked != sandbox.SandboxOptions():
        write_stderr("It was already running; to change its options, first: gpuconsole sandbox stop")
    if address.notice:
        write_stderr(address.notice)
    write(f"The sandbox is running at {address.url} (process {address.pid}).")
    write(f"For kubectl: export KUBECONFIG={shlex.quote(str(address.kubeconfig))}")
    return 0


async def _status(form: str) -> int:
    found = await sandbox.status()
    started = datetime.fromtimestamp(found.started_s, UTC) if found.started_s else None
    words = {
        "is_running": found.is_running,
        "answers": found.answers,
        "pid": found.pid,
        "url": found.url,
        "folder": str(found.folder),
        "kubeconfig": str(found.kubeconfig),
        "log": str(found.log),
        "started": timestamp(started),
    }
    if form in ("json", "yaml"):
        write_object(words, form)
        return 0
    state = (
        "is not running"
        if not found.is_running
        else "is running"
        if found.answers
        else "is running but does not respond"
    )
    write(f"The sandbox {state}.")
    write_fields(
        (
            ("Process", str(found.pid) if found.pid else ""),
            ("Address", found.url),
            ("Started", local_time(started)),
            ("Folder", str(found.folder)),
            ("Kubeconfig", str(found.kubeconfig)),
            ("Log", str(found.log)),
        )
    )
    return 0


async def _reset(options: ConsoleOptions, *, is_sure: bool) -> int:
    check_may_change(options, "reset the sandbox")
    if not is_sure:
        if not is_interactive():
            raise WrongUsage(
                "Cannot ask for confirmation without a terminal: pass --yes to reset the sandbox."
            )
        folder = (await sandbox.status()).folder
        if not confirm(f"Delete all jobs, volumes and logs of the sandbox in {folder}?"):
            return 1
    await sandbox.reset()
    write("Stopped and emptied the sandbox.")
    return 0
