"""Ctrl+c ends a command at once with 130 and without a word, wherever it is pressed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT

WAIT_S = 30.0
"""Far longer than anything here takes; what hangs would take longer still."""
LONG_S = 600
PROGRAM = """
import asyncio, signal, sys, time
from tui.terminal.ctrl_c import STUCK_S, leave, run_until_ctrl_c

def ready():
    sys.stdout.write("ready\\n")
    sys.stdout.flush()

async def work():
{work}

{before}
try:
    sys.exit(run_until_ctrl_c(work()))
except KeyboardInterrupt:
    leave()
    sys.exit(130)
"""


def start(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd="/",
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def command(*lines: str, before: str = "") -> subprocess.Popen[str]:
    """Start a command that does this."""
    work = "\n".join(f"    {line}" for line in lines)
    return start("-c", PROGRAM.format(work=work, before=before))


def press(child: subprocess.Popen[str], after: str = "ready\n") -> None:
    """Press ctrl+c once the command has come that far."""
    assert child.stdout is not None
    assert child.stdout.readline() == after
    child.send_signal(signal.SIGINT)


def end_of(child: subprocess.Popen[str], *, is_read: bool = True) -> tuple[int, str, str]:
    """Return how it ended and what it printed, on stdout since it was last read."""
    with child:
        try:
            if not is_read:
                child.wait(WAIT_S)
            out, err = child.communicate(timeout=WAIT_S)
        finally:
            child.kill()
    return child.returncode, out, err


@pytest.mark.parametrize(
    "waiting",
    [
        f"await asyncio.sleep({LONG_S})",
        f"time.sleep({LONG_S})",
        f"await asyncio.to_thread(time.sleep, {LONG_S})",
    ],
    ids=["in the loop", "beside the loop", "for a thread"],
)
def test_what_waits_ends_at_once(waiting: str) -> None:
    child = command("ready()", waiting)
    press(child)
    assert end_of(child) == (130, "", "")


def test_what_is_written_to_a_reader_that_sleeps_ends_at_once() -> None:
    child = command("ready()", "sys.stdout.write('x' * 10_000_000)")
    press(child)
    status, _, err = end_of(child, is_read=False)
    assert (status, err) == (130, "")


def test_what_is_left_to_print_keeps_nobody_waiting_after_the_end() -> None:
    write = "sys.stdout = open(1, 'w', 10_000_000, closefd=False); sys.stdout.write('x' * 9_000_000)"
    child = command("ready()", write, "sys.stderr.write('written\\n')", f"await asyncio.sleep({LONG_S})")
    assert child.stderr is not None
    assert child.stderr.readline() == "written\n"
    child.send_signal(signal.SIGINT)
    status, _, err = end_of(child, is_read=False)
    assert (status, err) == (130, "")


def test_what_is_cleared_up_may_take_its_time() -> None:
    child = command(
        "try:",
        "    ready()",
        f"    await asyncio.sleep({LONG_S})",
        "finally:",
        "    for _ in range(6): await asyncio.sleep(STUCK_S / 4)",
        "    print('cleared up')",
    )
    press(child)
    assert end_of(child) == (130, "cleared up\n", "")


def test_once_more_ends_also_what_clears_up() -> None:
    child = command(
        "try:",
        "    ready()",
        f"    await asyncio.sleep({LONG_S})",
        "finally:",
        "    ready()",
        f"    await asyncio.sleep({LONG_S})",
    )
    press(child)
    press(child)
    assert end_of(child) == (130, "", "")


def test_before_the_first_step_nothing_is_begun() -> None:
    press_early = "class Early(asyncio.Runner):\n"
    press_early += "    def run(self, work):\n        signal.raise_signal(signal.SIGINT)\n"
    press_early += "        return super().run(work)\nasyncio.Runner = Early\n"
    assert end_of(command("print('begun')", "return 0", before=press_early)) == (130, "", "")


def test_in_the_last_step_it_is_not_forgotten() -> None:
    child = command("signal.raise_signal(signal.SIGINT)", "return 0")
    assert end_of(child) == (130, "", "")


def test_what_swallows_it_does_not_end_as_if_all_were_done() -> None:
    child = command(
        "try:",
        "    ready()",
        f"    await asyncio.sleep({LONG_S})",
        "except asyncio.CancelledError:",
        "    return 0",
    )
    press(child)
    assert end_of(child) == (130, "", "")


def test_where_it_is_ignored_it_stays_so() -> None:
    ignored = "signal.signal(signal.SIGINT, signal.SIG_IGN)"
    child = command(
        "signal.raise_signal(signal.SIGINT)", "await asyncio.sleep(0)", "return 7", before=ignored
    )
    assert end_of(child) == (7, "", "")


def test_a_command_that_is_not_pressed_ends_as_it_says() -> None:
    assert end_of(command("await asyncio.to_thread(print, 'done')", "return 3")) == (3, "done\n", "")


@pytest.mark.parametrize("module", ["k8s.errors", "tui.commands.support.parser", "asyncio"])
def test_while_modules_are_imported_it_ends_without_a_traceback(module: str, tmp_path: Path) -> None:
    program = f"""
import builtins, signal, sys
real = builtins.__import__
def imported(name, *rest, **more):
    if name == {module!r}:
        builtins.__import__ = real
        signal.raise_signal(signal.SIGINT)
    return real(name, *rest, **more)
builtins.__import__ = imported
from tui.__main__ import main
print("ready", flush=True)
sys.exit(main(["info"]))
"""
    assert end_of(start("-c", program)) == (130, "ready\n", "")


def test_while_a_name_is_looked_up_it_ends_at_once(tmp_path: Path) -> None:
    config = tmp_path / "kubeconfig"
    config.write_text(
        "{apiVersion: v1, kind: Config, current-context: c, users: [{name: u, user: {token: x}}], "
        "clusters: [{name: c, cluster: {server: 'https://nowhere.example'}}], "
        "contexts: [{name: c, context: {cluster: c, user: u}}]}"
    )
    program = f"""
import socket, sys, time
first = ["ready"]  # several requests may look it up at once
def look_up(*_, **__):
    if first:
        print(first.pop(), flush=True)
    time.sleep({LONG_S})
socket.getaddrinfo = look_up
from tui.__main__ import main
sys.exit(main(["--kubeconfig", {str(config)!r}, "list"]))
"""
    child = start("-c", program)
    press(child)
    assert end_of(child) == (130, "", "")
