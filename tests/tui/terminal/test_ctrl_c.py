"""The end of a command: Ctrl+C, with status 130 and no message, or a reader that goes away."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests import ROOT
from tui.terminal.closed_pipe import ended_by_closed_pipe

WAIT_S = 120.0
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
    work = "\n".join(f"    {line}" for line in lines)
    return start("-c", PROGRAM.format(work=work, before=before))


def press(child: subprocess.Popen[str], after: str = "ready\n") -> None:
    """Press ctrl+c once the command has come that far."""
    assert child.stdout is not None
    assert child.stdout.readline() == after
    child.send_signal(signal.SIGINT)


def end_of(child: subprocess.Popen[str], *, is_read: bool = True) -> tuple[int, str, str]:
    """Return the exit status and the output, that on stdout since it was last read."""
    with child:
        try:
            if not is_read:
                child.wait(WAIT_S)
            out, err = child.communicate(timeout=WAIT_S)
        finally:
            child.kill()
    return child.returncode, out, err


WAITS = ("try:", "    ready()", f"    await asyncio.sleep({LONG_S})")


@pytest.mark.parametrize(
    ("lines", "presses", "printed"),
    [
        (("ready()", f"await asyncio.sleep({LONG_S})"), 1, ""),
        (("ready()", f"time.sleep({LONG_S})"), 1, ""),
        (("ready()", f"await asyncio.to_thread(time.sleep, {LONG_S})"), 1, ""),
        (
            (
                *WAITS,
                "finally:",
                "    for _ in range(6): await asyncio.sleep(STUCK_S / 4)",
                "    print('done')",
            ),
            1,
            "done\n",
        ),
        ((*WAITS, "finally:", "    ready()", f"    await asyncio.sleep({LONG_S})"), 2, ""),
        ((*WAITS, "except asyncio.CancelledError:", "    return 0"), 1, ""),
    ],
    ids=[
        *("waits in the loop", "waits beside the loop", "waits for a thread"),
        *("cleans up slowly", "cleans up until pressed again", "swallows the cancellation"),
    ],
)
def test_ctrl_c_ends_a_command_with_130_after_its_cleanup(
    lines: tuple[str, ...], presses: int, printed: str
) -> None:
    child = command(*lines)
    for _ in range(presses):
        press(child)
    assert end_of(child) == (130, printed, "")


def test_ctrl_c_ends_a_write_to_a_blocked_reader_immediately() -> None:
    child = command("ready()", "sys.stdout.write('x' * 10_000_000)")
    press(child)
    status, _, err = end_of(child, is_read=False)
    assert (status, err) == (130, "")


def test_ctrl_c_does_not_wait_for_buffered_output() -> None:
    write = "sys.stdout = open(1, 'w', 10_000_000, closefd=False); sys.stdout.write('x' * 9_000_000)"
    child = command("ready()", write, "sys.stderr.write('written\\n')", f"await asyncio.sleep({LONG_S})")
    assert child.stderr is not None
    assert child.stderr.readline() == "written\n"
    child.send_signal(signal.SIGINT)
    status, _, err = end_of(child, is_read=False)
    assert (status, err) == (130, "")


def test_ctrl_c_before_the_event_loop_starts_runs_nothing() -> None:
    press_early = "class Early(asyncio.Runner):\n"
    press_early += "    def run(self, work):\n        signal.raise_signal(signal.SIGINT)\n"
    press_early += "        return super().run(work)\nasyncio.Runner = Early\n"
    assert end_of(command("print('begun')", "return 0", before=press_early)) == (130, "", "")


def test_ctrl_c_in_the_last_step_still_exits_with_130() -> None:
    child = command("signal.raise_signal(signal.SIGINT)", "return 0")
    assert end_of(child) == (130, "", "")


def test_an_ignored_sigint_stays_ignored() -> None:
    ignored = "signal.signal(signal.SIGINT, signal.SIG_IGN)"
    child = command(
        "signal.raise_signal(signal.SIGINT)", "await asyncio.sleep(0)", "return 7", before=ignored
    )
    assert end_of(child) == (7, "", "")


def test_a_command_without_ctrl_c_returns_its_own_exit_code() -> None:
    assert end_of(command("await asyncio.to_thread(print, 'done')", "return 3")) == (3, "done\n", "")


@pytest.mark.parametrize("module", ["k8s.text.errors", "tui.commands.support.parser", "asyncio"])
def test_ctrl_c_during_imports_ends_without_a_traceback(module: str, tmp_path: Path) -> None:
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


def test_ctrl_c_during_a_dns_lookup_ends_immediately(tmp_path: Path) -> None:
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


@pytest.fixture
def make_pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], int]]:
    """Yield a function that makes stdout a pipe and returns its reading end: pytest sets stdout late."""
    with ExitStack() as opened:

        def make() -> int:
            reading, writing = os.pipe()
            monkeypatch.setattr("sys.stdout", opened.enter_context(open(writing, "w")))
            return reading

        yield make


async def wait_in_block(entered: asyncio.Event, go_on: asyncio.Event) -> str:
    with ended_by_closed_pipe():
        entered.set()
        async with asyncio.timeout(120):
            await go_on.wait()
    await asyncio.sleep(0)
    return "went on"


@pytest.mark.parametrize(
    ("is_closed", "error"),
    [(True, BrokenPipeError), (False, asyncio.CancelledError)],
    ids=["closed", "cancelled"],
)
async def test_a_waiting_block_ends_with_broken_pipe_only_when_the_reader_closes(
    make_pipe: Callable[[], int], is_closed: bool, error: type[BaseException]
) -> None:
    pipe = make_pipe()
    entered = asyncio.Event()
    waiting = asyncio.create_task(wait_in_block(entered, asyncio.Event()))
    await entered.wait()
    if is_closed:
        os.close(pipe)
    else:
        waiting.cancel()
    with pytest.raises(error):
        await waiting
    if not is_closed:
        os.close(pipe)
    assert waiting.cancelled() is not is_closed


async def test_a_pipe_closed_before_the_block_raises_broken_pipe(make_pipe: Callable[[], int]) -> None:
    pipe = make_pipe()
    os.close(pipe)
    with pytest.raises(BrokenPipeError):
        await wait_in_block(asyncio.Event(), asyncio.Event())


async def test_the_pipe_is_not_watched_after_the_block(make_pipe: Callable[[], int]) -> None:
    pipe = make_pipe()
    go_on = asyncio.Event()
    go_on.set()
    assert await wait_in_block(asyncio.Event(), go_on) == "went on"
    os.close(pipe)
    await asyncio.sleep(0)


async def test_the_block_runs_normally_when_stdout_is_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = asyncio.Event()
    go_on.set()
    with open(tmp_path / "out", "w") as out:
        monkeypatch.setattr("sys.stdout", out)
        assert await wait_in_block(asyncio.Event(), go_on) == "went on"


async def test_input_on_a_socket_as_stdout_does_not_end_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    entered, go_on = asyncio.Event(), asyncio.Event()
    with ours, theirs, ours.makefile("w") as out:
        monkeypatch.setattr("sys.stdout", out)
        waiting = asyncio.create_task(wait_in_block(entered, go_on))
        await entered.wait()
        theirs.send(b"words")
        for _ in range(20):
            await asyncio.sleep(0)
        go_on.set()
        assert await waiting == "went on"
