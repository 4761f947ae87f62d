"""`record`: record what happens to jobs, without a screen, until ctrl+c or another signal."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import time
from collections.abc import Coroutine
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from k8s.client.client import Client
from k8s.client.rate_limiter import background_requests
from k8s.snapshot import ClusterSnapshot
from k8s.text.errors import KubeError, Throttled, Unreachable
from k8s.text.home import file_problem
from tui.commands.support.connect import cluster, known_causes, read_mirror
from tui.commands.support.output import missing_line, write_stderr
from tui.runs.journal.database import Journal
from tui.runs.journal.recorder_lock import BEAT_S, RecorderLock
from tui.runs.store import RunStore
from tui.session.session import Session
from tui.settings.options import ConsoleOptions
from tui.tables.filters import everyone, own_names
from tui.terminal.tty_state import caught_signal
from tui.text.format import age, in_namespace, local_time

# Logs to read in a second, a quarter of the console's: nobody looks at the losses.
READS_PER_S = 0.5
# Snapshots take at most half a percent of the time.
IDLE_FACTOR = 200
# Newest failures whose logs are read for their causes.
MAX_FAILURES = 50
# Needs the user, unlike any other trouble.
LOGIN_EXPIRED = "login expired"
COULD_NOT, FOLDER_HINT = "Nothing can be recorded.", "Set XDG_STATE_HOME to a folder that you can write."
_STARTED = b"\0"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add whose logs to keep, and whether to stay."""
    add = parser.add_argument
    add("--all-users", action="store_true", help="read and keep the logs of other users' jobs, too")
    add("--stay", action="store_true", help="go on in the background, also after the terminal is closed")


def run(options: ConsoleOptions, flags: argparse.Namespace) -> Coroutine[Any, Any, int]:
    """Record until a signal; with `--stay`, in a process of its own."""
    if flags.stay:
        _fork()  # while there is no event loop
    return _record(options, flags.all_users, Report(options, is_detached=flags.stay))


class Report:
    """Reports each change of the connection in one line, and each problem of the journal."""

    def __init__(self, options: ConsoleOptions, *, is_detached: bool = False) -> None:
        self._log_file = options.log_file
        self._is_detached = is_detached
        self._state: str | None = None
        self._lost_s = 0.0
        self._problems: set[str] = set()

    def take(self, snapshot: ClusterSnapshot) -> None:
        """Report whether the cluster answers, if that has changed."""
        trouble = snapshot.trouble
        state = trouble if trouble in ("", LOGIN_EXPIRED) else "lost"
        if state == self._state or not (trouble or snapshot.is_synced):
            return
        was, self._state = self._state, state
        if trouble:
            self._lost_s = self._lost_s if was else time.monotonic()
            self.say(f"{'No answer from' if was is None else 'Lost'} the cluster ({trouble}).")
        elif was:
            self.say(f"The cluster is back after {age(time.monotonic() - self._lost_s)}.")
        elif missing := snapshot.missing_jobs:
            self.say(missing_line(missing))

    def add_problems(self, *journals: Journal) -> None:
        """Report what could not be written, once."""
        for problem in [each for journal in journals for each in journal.problems]:
            if problem not in self._problems:
                self._problems.add(problem)
                self.say(problem)

    def say(self, text: str) -> None:
        """Write a line with the time; an error is ignored, because the reader may be gone."""
        with suppress(OSError, ValueError):
            write_stderr(f"{local_time(datetime.now(UTC))} {text}")

    def start(self, text: str) -> None:
        """Report that it records; a process of its own leaves the terminal for our log then."""
        self.say(text)
        if self._is_detached:
            with suppress(OSError):  # the other process may have been killed
                os.write(2, _STARTED)
            with open(self._log_file, "ab", opener=lambda path, how: os.open(path, how, 0o600)) as log:
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)


async def _record(options: ConsoleOptions, is_for_all_users: bool, report: Report) -> int:
    caught = caught_signal()
    async with cluster(options) as client:
        working: asyncio.Future[Any] = asyncio.create_task(_work(options, client, is_for_all_users, report))
        await asyncio.wait([working, caught], return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            await working  # raises
        working.cancel()
        await asyncio.wait([working])
        return caught.result()


async def _work(options: ConsoleOptions, client: Client, is_for_all_users: bool, report: Report) -> None:
    namespace = "" if options.is_all_namespaces else options.namespace
    options = replace(options, is_all_namespaces=not namespace)
    context = client.config.context
    runs = RunStore(options.state_folder, options.history)
    lock = _locked(options, context, namespace, is_for_all_users, runs.journal)
    causes = known_causes(options) if options.causes_file.exists() else None
    names = everyone if is_for_all_users else own_names
    session = Session(client, options, runs, causes, is_narrow=bool(namespace), names=names)
    session.reasons.max_hidden, session.mirror.idle_factor = MAX_FAILURES, IDLE_FACTOR

    def take(snapshot: ClusterSnapshot) -> None:
        report.take(snapshot)
        if session.recorder is not None:
            session.recorder.update(snapshot)

    try:
        with background_requests():
            with suppress(Unreachable, Throttled):  # it will answer
                await read_mirror(session.mirror)
            whose = "everybody's jobs" if is_for_all_users else "your jobs"
            where = in_namespace(namespace) or " in all namespaces"
            report.start(f"Recording {whose}{where} of {context} as process {os.getpid()}.")
            async with asyncio.TaskGroup() as group:
                group.create_task(session.observe("record", reads_per_s=READS_PER_S))
                group.create_task(_beat(session, lock, report))
                await session.mirror.run(take)
    finally:
        try:
            await session.close()
        finally:
            lock.release()


def _locked(
    options: ConsoleOptions, context: str, namespace: str, is_for_all_users: bool, journal: Journal
) -> RecorderLock:
    """Take the lock of a context; check the journal, too: without it the recorder is useless.

    Raises:
        KubeError: Another process holds it, the state folder cannot be written, or the history is off.
    """
    if options.history.is_off:
        raise KubeError(COULD_NOT, f"{options.config_file} says history: off.", "Remove it to record.")
    lock = RecorderLock(options.state_folder, context)
    try:
        holder = lock.acquire(namespace, is_for_all_users=is_for_all_users)
    except OSError as error:
        raise KubeError(COULD_NOT, f"{lock.path}: {file_problem(error)}.", FOLDER_HINT) from error
    if holder is not None:
        hint = f"On {holder.host}, kill {holder.pid} ends it." if holder.pid else ""
        raise KubeError(f"{context} is being recorded already.", f"By {holder.words}; see {lock.path}.", hint)
    is_kept = journal.write(("DELETE FROM runs WHERE 0",)) and journal.is_on_disk
    journal.close()
    if not is_kept:
        lock.release()
        raise KubeError(COULD_NOT, f"{journal.problems[-1]}.", FOLDER_HINT)
    return lock


async def _beat(session: Session, lock: RecorderLock, report: Report) -> None:
    while True:
        lock.beat()
        recorders = [session.recorder.journal] if session.recorder is not None else []
        report.add_problems(session.runs.journal, *recorders)
        await asyncio.sleep(BEAT_S)


def _fork() -> None:
    """Go on in a process of a new session; this one prints what that reports until it records, and ends."""
    reading, writing = os.pipe()
    if not (pid := os.fork()):
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(writing, 1)
        os.dup2(writing, 2)
        os.close(reading)
        os.close(writing)
        return
    os.close(writing)
    try:
        with open(reading, "rb") as reports:
            said = reports.read()
    except KeyboardInterrupt:
        os.kill(pid, signal.SIGTERM)
        raise
    sys.stderr.write(said.removesuffix(_STARTED).decode(errors="replace"))
    if not said.endswith(_STARTED):
        raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    write_stderr(f"It goes on in the background. To end it: kill {pid}")
    raise SystemExit(0)
