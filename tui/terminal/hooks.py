"""Notifications outside the console: the command of `notify.exec`, and escape sequences of the desktop.

Hooks run with facts about a job in their environment. No shell is involved, and text from the cluster never
becomes part of the command. The sequences are OSC 9, 99 or 777, also through tmux.
"""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from k8s.text.redact import Redactor
from k8s.text.sanitize import sanitize, sanitize_lines
from tui.settings.console_log import append_to_log

HOOK_S = 30.0
# Hooks of a console that run at once, and that are queued; more are dropped.
MAX_RUNNING, MAX_WAITING = 4, 100
# Limits per fact, and of the output copied to the log.
MAX_FACT_CHARACTERS, MAX_OUTPUT_BYTES = 2000, 8192
# Exit statuses of shells and timeout(1).
TIMED_OUT, NOT_EXECUTABLE, NOT_FOUND = 124, 126, 127


def hook_environment(facts: Mapping[str, object]) -> dict[str, str]:
    """Return our environment, with a fact named `exit_code` as `GPUCONSOLE_EXIT_CODE`; None becomes empty."""
    return {**os.environ} | {
        f"GPUCONSOLE_{name.upper()}": sanitize("" if value is None else str(value))[:MAX_FACT_CHARACTERS]
        for name, value in facts.items()
    }


async def run_hook(
    argv: Sequence[str], facts: Mapping[str, object], *, log_file: Path, timeout_s: float = HOOK_S
) -> int:
    """Run a command and return its exit status: 124 after the timeout, 126 or 127 if it cannot start.

    It has no standard input and no terminal. On a timeout or cancellation its process group is killed.
    The start of its output goes to `log_file`.
    """
    with tempfile.TemporaryFile() as output:  # a pipe would be kept open by the hook's background processes
        status = await _run(argv, facts, timeout_s, output)
        output.seek(0)
        text = sanitize_lines(Redactor().text(output.read(MAX_OUTPUT_BYTES).decode("utf-8", "replace")))
    if status or text:
        append_to_log(log_file, f"notify.exec {sanitize(argv[0])}: exit {status}\n{text}".rstrip())
    return status


async def _run(argv: Sequence[str], facts: Mapping[str, object], timeout_s: float, output: IO[bytes]) -> int:
    try:
        # A new session, so that it cannot open the console's terminal.
        process = await asyncio.create_subprocess_exec(
            *argv,
            env=hook_environment(facts),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=asyncio.subprocess.STDOUT,
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
    if not status:
        return ""
    # A shell exits like this, too, if it cannot run what it was given.
    reason = {NOT_EXECUTABLE: "exit 126: not executable", NOT_FOUND: "exit 127: command not found"}.get(
        status
    )
    if status == TIMED_OUT:
        reason = f"it did not finish in {timeout_s:.0f} s"
    return f"{sanitize(argv[0])}: {reason or f'exit {status}'}."


class HookRunner:
    """Runs one command for many events, a few at once, and reports its first failure."""

    def __init__(self, argv: Sequence[str], log_file: Path, report: Callable[[str], None]) -> None:
        self._argv = argv
        self._log_file = log_file
        self._report = report
        self._has_reported = False
        self._waiting = 0
        self._slots = asyncio.Semaphore(MAX_RUNNING)

    async def run(self, facts: Mapping[str, object]) -> None:
        """Run the command once a slot is free; drop it if the queue is full."""
        if self._waiting >= MAX_WAITING:
            self._fail(
                f"{sanitize(self._argv[0])}: more than {MAX_WAITING} runs are queued; some are dropped."
            )
            return
        self._waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self._waiting -= 1
        try:
            status = await run_hook(self._argv, facts, log_file=self._log_file)
        finally:
            self._slots.release()
        if problem := hook_problem(self._argv, status):
            self._fail(problem)

    def _fail(self, problem: str) -> None:
        if not self._has_reported:
            self._has_reported = True
            self._report(problem)


MAX_TITLE, MAX_BODY = 80, 200


def notification(title: str, body: str, env: Mapping[str, str]) -> str:
    """Return the escape sequence of a notification; empty if the terminal would print it as text.

    The texts need not be sanitised. tmux passes it on only with `set -g allow-passthrough on`.
    """
    term, is_in_tmux = env.get("TERM", ""), bool(env.get("TMUX"))
    is_in_screen = bool(env.get("STY")) or (term.startswith("screen") and not is_in_tmux)
    if term in ("", "dumb", "linux") or term.startswith("vt") or is_in_screen:
        return ""
    plain = _sequence(_protocol(term, env), _plain(title, MAX_TITLE), _plain(body, MAX_BODY))
    if is_in_tmux:
        # Source: tmux(1), allow-passthrough.
        doubled = plain.replace("\x1b", "\x1b\x1b")
        return f"\x1bPtmux;{doubled}\x1b\\"
    return plain


def _protocol(term: str, env: Mapping[str, str]) -> str:
    program = env.get("TERM_PROGRAM", "")
    if "kitty" in term or env.get("KITTY_WINDOW_ID"):
        return "99"
    if program in ("WezTerm", "ghostty") or env.get("VTE_VERSION") or env.get("WEZTERM_PANE"):
        return "777"
    if term.startswith(("foot", "rxvt", "xterm-ghostty", "wezterm")):
        return "777"
    return "9"  # iTerm2's; others ignore it


def _sequence(protocol: str, title: str, body: str) -> str:
    # Sources: kitty's desktop-notifications, urxvt's notify extension, iTerm2's escape codes.
    if protocol == "99":
        more = f"\x1b]99;i=gpuconsole:p=body;{body}\x1b\\" if body else ""
        return f"\x1b]99;i=gpuconsole:d={0 if body else 1};{title}\x1b\\{more}"
    if protocol == "777":
        return f"\x1b]777;notify;{title};{body}\x1b\\"
    return f"\x1b]9;{': '.join(filter(None, (title, body)))}\x1b\\"


def _plain(text: str, most: int) -> str:
    # Semicolons separate fields; ConEmu takes a number before the first one for a command.
    text = sanitize(" ".join(text.split())).replace(";", ",")
    return text if len(text) <= most else f"{text[: most - 1]}…"
