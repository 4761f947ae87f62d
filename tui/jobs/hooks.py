"""The user's own commands, run with facts about a job in their environment.

`notify.exec` of config.yaml and `wait --exec` run them. A command is a list of words: no shell sees it,
and facts that come from the cluster are never part of it.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from k8s.text.redact import Redactor
from k8s.text.sanitize import sanitize, sanitize_lines
from tui.files.bug_log import append_to_log

HOOK_S = 30.0
# Hooks of a console that run at once, and that wait for their turn; more are left out.
MAX_RUNNING, MAX_WAITING = 4, 100
# Of one fact, and of a hook's output that goes to the log.
MAX_FACT_CHARACTERS, MAX_OUTPUT_BYTES = 2000, 8192
# Exit statuses that shells and `timeout` use.
TIMED_OUT, NOT_EXECUTABLE, NOT_FOUND = 124, 126, 127


def hook_environment(facts: Mapping[str, object]) -> dict[str, str]:
    """Return the environment of a hook: ours, and the facts as `GPUCONSOLE_…` variables on one line each.

    Args:
        facts: Values by name, as `{"job": "bert", "exit_code": 3}`; None is an empty text.
    """
    named = {
        f"GPUCONSOLE_{name.upper()}": sanitize("" if value is None else str(value))[:MAX_FACT_CHARACTERS]
        for name, value in facts.items()
    }
    return {**os.environ, **named}


def parse_command(command: str | Sequence[str]) -> list[str]:
    """Split a command into words, as a shell does; a list stays.

    Raises:
        ValueError: A quote is not closed, a word cannot be passed on, or there is no word.
    """
    words = shlex.split(command) if isinstance(command, str) else list(command)
    if not words or not words[0]:
        raise ValueError("no command")
    if any("\0" in word for word in words):
        raise ValueError("a NUL character")
    return words


async def run_hook(
    argv: Sequence[str],
    facts: Mapping[str, object],
    *,
    timeout_s: float = HOOK_S,
    log_file: Path | None = None,
) -> int:
    """Run a command and return its exit status: 124 after the timeout, 126 or 127 if it cannot start.

    It has no standard input and no terminal. On a timeout or cancellation its process group is killed.

    Args:
        argv: The command and its arguments.
        facts: See `hook_environment`.
        timeout_s: Time after which it is killed.
        log_file: Our log, for the start of its output; None passes the output on to ours.
    """
    if log_file is None:
        return await _run(argv, facts, timeout_s, None)
    # A file instead of a pipe: a child that it leaves behind would keep the pipe open.
    with tempfile.TemporaryFile() as output:
        status = await _run(argv, facts, timeout_s, output)
        output.seek(0)
        text = sanitize_lines(Redactor().text(output.read(MAX_OUTPUT_BYTES).decode("utf-8", "replace")))
    if status or text:
        append_to_log(log_file, f"notify.exec {sanitize(argv[0])}: exit {status}\n{text}".rstrip())
    return status


async def _run(
    argv: Sequence[str], facts: Mapping[str, object], timeout_s: float, output: IO[bytes] | None
) -> int:
    try:
        # In a new session it cannot open the terminal that the console draws on.
        process = await asyncio.create_subprocess_exec(
            *argv,
            env=hook_environment(facts),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=None if output is None else asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    except (FileNotFoundError, NotADirectoryError):
        return NOT_FOUND
    except (OSError, ValueError):
        return NOT_EXECUTABLE
    try:
        async with asyncio.timeout(timeout_s):
            status = await process.wait()
    except TimeoutError:
        return TIMED_OUT
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    return status if status >= 0 else 128 - status


def hook_problem(argv: Sequence[str], status: int, timeout_s: float = HOOK_S) -> str:
    """Return the reason why a hook failed; empty if it did not."""
    words = {
        0: "",
        TIMED_OUT: f"it did not finish in {timeout_s:.0f} s",
        NOT_EXECUTABLE: "it is not executable",
        NOT_FOUND: "there is no such command",
    }
    why = words.get(status, f"exit {status}")
    return f"{sanitize(argv[0])}: {why}." if why else ""


class HookRunner:
    """Runs a command for each of many facts, a few at once; the first failure is reported."""

    def __init__(self, argv: Sequence[str], log_file: Path, report: Callable[[str], None]) -> None:
        """Prepare to run `argv`; `report` receives the reason of the first failure."""
        self._argv = argv
        self._log_file = log_file
        self._report = report
        self._has_reported = False
        self._waiting = 0
        self._free = asyncio.Semaphore(MAX_RUNNING)

    async def run(self, facts: Mapping[str, object]) -> None:
        """Run the command when it is its turn; leave it out if too many wait."""
        if self._waiting >= MAX_WAITING:
            self._fail(f"more than {MAX_WAITING} runs of {sanitize(self._argv[0])} wait; some are left out.")
            return
        self._waiting += 1
        try:
            await self._free.acquire()
        finally:
            self._waiting -= 1
        try:
            status = await run_hook(self._argv, facts, log_file=self._log_file)
        finally:
            self._free.release()
        if problem := hook_problem(self._argv, status):
            self._fail(problem)

    def _fail(self, problem: str) -> None:
        if not self._has_reported:
            self._has_reported = True
            self._report(problem)
