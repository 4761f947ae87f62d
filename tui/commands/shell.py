"""`shell`: run a shell or another command in one of a job's pods, and return its exit code.

If stdin and stdout are terminals, the command gets a terminal too; otherwise bytes are piped.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import threading
from contextlib import suppress

from k8s.client.client import Client
from k8s.jobs import exec
from k8s.snapshot import Instance
from k8s.text.errors import Unreachable
from tui.commands.support.connect import check_may_change, cluster, read_jobs
from tui.commands.support.job_name import add_job, find_job
from tui.commands.support.output import write_stderr
from tui.settings.options import ConsoleOptions
from tui.terminal import tty_state
from tui.terminal.pod_shell import LEFT, run_shell
from tui.text.instances import INSTANCE_HELP, find_container, find_instance

_READ_BYTES = 32 * 1024


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the job and container arguments."""
    parser.usage = "%(prog)s JOB [-i INSTANCE] [-c CONTAINER] [-- COMMAND …]"
    add_job(parser)
    parser.add_argument("-i", "--instance", default="", metavar="NAME", help=INSTANCE_HELP)
    parser.add_argument("-c", "--container", default="", metavar="NAME", help="container name")


async def run(options: ConsoleOptions, flags: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    check_may_change(options, "open a shell")
    async with cluster(options) as client:
        job = find_job(
            await read_jobs(options, client, is_narrow=True, has_nodes=False), flags.job, flags.job_type
        )
        instance = find_instance(job, flags.instance)
        container = find_container(instance, flags.container)
        command = tuple(flags.rest) or exec.SHELL
        has_terminal = sys.stdin.isatty() and sys.stdout.isatty()
        running = _on_terminal if has_terminal else _through_pipes
        return await running(client, job.ref.namespace, instance, container, command)


async def _on_terminal(
    client: Client, namespace: str, instance: Instance, container: str, command: tuple[str, ...]
) -> int:
    shell = asyncio.create_task(run_shell(client, namespace, instance.pod, container, command))
    loop = asyncio.get_running_loop()
    ended_by: list[int] = []

    def leave(code: int) -> None:
        ended_by.append(code)
        loop.call_soon_threadsafe(shell.cancel)

    tty_state.on_signals(leave)
    try:
        code = await shell
        if code == LEFT:
            write_stderr(f"\n-- disconnected; processes in {instance.pod} may keep running")
        return code
    except asyncio.CancelledError:
        if not ended_by:
            raise
        return ended_by[0]


async def _through_pipes(
    client: Client, namespace: str, instance: Instance, container: str, command: tuple[str, ...]
) -> int:
    has_input = not sys.stdin.isatty()
    running = exec.start(client, instance.pod, namespace, command, container=container, has_input=has_input)
    async with running as remote:
        feeding = asyncio.create_task(_feed(remote)) if has_input else None
        try:
            async for channel, content in remote.output():
                out = (sys.stdout if channel == exec.STDOUT else sys.stderr).buffer
                out.write(content)
                out.flush()
        finally:
            if feeding is not None:
                feeding.cancel()
    return remote.exit_code or 0


async def _feed(remote: exec.ExecSession) -> None:
    pieces: asyncio.Queue[bytes] = asyncio.Queue()
    room = threading.Semaphore(8)
    loop = asyncio.get_running_loop()

    def read() -> None:
        # A thread of its own, which nobody has to wait for: a read from a pipe cannot be called off.
        content = b"-"
        while content:
            room.acquire()
            content = os.read(sys.stdin.fileno(), _READ_BYTES)
            try:
                loop.call_soon_threadsafe(pieces.put_nowait, content)
            except RuntimeError:
                return  # the command has ended, and the loop with it

    threading.Thread(target=read, name="input", daemon=True).start()
    was_sent = False
    with suppress(Unreachable):  # whoever reads the output is told the same
        while content := await pieces.get():
            await remote.write(content)
            room.release()
            was_sent = True
        await remote.end_input()
    if was_sent and not remote.can_end_input:
        write_stderr("-- This cluster cannot signal the end of input; press ctrl+c to end the command.")
