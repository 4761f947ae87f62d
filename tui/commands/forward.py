"""`forward`: forward a local port to one of a job's pods, or to its TensorBoard, until ctrl+c."""

from __future__ import annotations

import argparse
import sys

from k8s.client.client import Client
from k8s.jobs.port_forward import Forward, forward
from k8s.jobs.tensorboard import PodPort, find_tensorboard
from k8s.snapshot import Job
from tui.commands.support.connect import cluster, read_jobs
from tui.commands.support.job_name import add_job, find_job
from tui.commands.support.output import WrongUsage, write, write_stderr
from tui.settings.options import ConsoleOptions
from tui.terminal.tty_state import caught_signal
from tui.text.instances import INSTANCE_HELP, find_instance

HIGHEST_PORT = 65535


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the job and port arguments."""
    add = parser.add_argument
    add_job(parser)
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "port", metavar="PORT", nargs="?", type=port, help="port of the pod (default: TensorBoard's)"
    )
    which.add_argument("--tensorboard", action="store_true", help="forward to the job's TensorBoard")
    add("-i", "--instance", default="", metavar="NAME", help=INSTANCE_HELP)
    add("--local", type=port, default=0, metavar="PORT", help="local port (default: a free one)")


def port(text: str) -> int:
    """Parse a port number."""
    number = int(text) if text.isascii() and text.isdecimal() else 0
    if not 0 < number <= HIGHEST_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port number from 1 to {HIGHEST_PORT}")
    return number


async def run(options: ConsoleOptions, flags: argparse.Namespace) -> int:
    """Print the local address and forward until ctrl+c or another signal."""
    if flags.port is None and flags.instance:
        raise WrongUsage("--instance needs a PORT.")
    async with cluster(options) as client:
        job = find_job(
            await read_jobs(options, client, is_narrow=True, has_nodes=False), flags.job, flags.job_type
        )
        target = await _target(client, job, flags)
        opening = forward(
            client,
            target.pod,
            target.namespace,
            target.port,
            local_port=flags.local,
            on_change=_Errors().tell,
        )
        async with opening as opened:
            caught = caught_signal()
            write(opened.address if flags.port else f"http://{opened.address}")
            sys.stdout.flush()
            write_stderr(f"-- forwarding to port {target.port} of {target.pod}; ctrl+c to stop")
            return await caught


async def _target(client: Client, job: Job, flags: argparse.Namespace) -> PodPort:
    if flags.port is None:
        return await find_tensorboard(client, job)
    return PodPort(job.ref.namespace, find_instance(job, flags.instance).pod, flags.port)


class _Errors:
    """Reports each error once, however many connections run into it."""

    def __init__(self) -> None:
        self._said = ""

    def tell(self, forwarded: Forward) -> None:
        """Print the current error unless it was reported before."""
        if forwarded.last_error and forwarded.last_error != self._said:
            write_stderr(forwarded.last_error)
        self._said = forwarded.last_error
