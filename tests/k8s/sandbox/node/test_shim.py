"""The shim: a run's log is complete and exact, its end is reported, and nothing of it survives."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from k8s.sandbox.node.processes import Ended, Process, ProcessStat, trees
from k8s.sandbox.node.shim import Log
from k8s.sandbox.paths import Launch, LogLimits, log_of, log_parts
from tests import ROOT
from tests.k8s.sandbox.live.running import marked

RECORD = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z) (stdout|stderr) ([FP]) (.*)\n", re.DOTALL)


def launch(tmp_path: Path, *argv: str, **env: str) -> Launch:
    return Launch(argv, {"PATH": os.environ["PATH"], **env}, str(tmp_path), ())


async def run(tmp_path: Path, *argv: str) -> tuple[Ended, bytes]:
    """Run a command to its end; return how it ended and its raw log."""
    process = await Process.start(launch(tmp_path, *argv), tmp_path / "c", 0)
    if why := await process.started():
        await process.ended()
        return Ended(128, start_error=why), b""
    ended = await process.ended()
    return ended, (tmp_path / "c" / "0.log").read_bytes()


def text_of(log: bytes, stream: bytes = b"stdout") -> bytes:
    """Put records together to what the process wrote, as a kubelet does."""
    found = b""
    for line in log.splitlines(keepends=True) if b"\r" not in log else log.split(b"\n"):
        match = RECORD.fullmatch(line if line.endswith(b"\n") else line + b"\n")
        if match and match[2] == stream:
            found += match[4] + (b"\n" if match[3] == b"F" else b"")
    return found


async def until(claim: Callable[[], object], within_s: float = 10.0) -> None:
    deadline = asyncio.get_running_loop().time() + within_s
    while not claim():
        assert asyncio.get_running_loop().time() < deadline, "it did not come true in time"
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM])
async def test_a_process_takes_signals_that_the_starter_of_the_sandbox_ignores(
    tmp_path: Path, number: signal.Signals
) -> None:
    # A shell starts what runs in its background, and nohup what it is given, with some of them ignored.
    before = signal.signal(number, signal.SIG_IGN)
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGUSR1,))
    try:
        ended, log = await run(
            tmp_path, "sh", "-c", f"grep SigBlk /proc/self/status; kill -{number} $$; echo on"
        )
    finally:
        signal.signal(number, before)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    assert ended.signal == number
    assert text_of(log).split() == [b"SigBlk:", b"0" * 16]


@pytest.mark.parametrize(
    ("command", "exit_code", "signal_number"),
    [("exit 0", 0, 0), ("exit 7", 7, 0), ("kill -9 $$", 137, 9), ("kill -TERM $$", 143, 15)],
)
async def test_the_exit_code_and_signal_of_a_process_are_reported(
    tmp_path: Path, command: str, exit_code: int, signal_number: int
) -> None:
    ended, _ = await run(tmp_path, "sh", "-c", command)
    assert (ended.exit_code, ended.signal, ended.is_oom) == (exit_code, signal_number, False)


async def test_a_missing_command_is_reported(tmp_path: Path) -> None:
    ended, _ = await run(tmp_path, "no-such-program", "x")
    assert ended.exit_code == 128
    assert ended.start_error == 'exec: "no-such-program": executable file not found in $PATH'


async def test_a_missing_working_directory_is_reported(tmp_path: Path) -> None:
    process = await Process.start(Launch(("true",), {}, "/no/such/folder", ()), tmp_path / "c", 0)
    assert "/no/such/folder" in await process.started()
    await process.ended()


async def test_lines_are_written_with_their_time_and_stream(tmp_path: Path) -> None:
    _, log = await run(tmp_path, "sh", "-c", "echo one; echo two; echo bad >&2")
    records = [RECORD.fullmatch(line + b"\n") for line in log.strip().split(b"\n")]
    assert all(records)
    assert text_of(log) == b"one\ntwo\n"
    assert text_of(log, b"stderr") == b"bad\n"
    stamps = [record[1] for record in records if record]
    assert len(set(stamps)) == 3


@pytest.mark.parametrize(
    "script",
    [
        "import sys; sys.stdout.write('x' * 1_000_000 + '\\n')",
        "import sys; sys.stdout.buffer.write(bytes(range(256)) * 400 + b'\\n')",
        "print('10%\\r20%\\r30%\\x1b[31mred\\x1b[0m')",
        "import sys; sys.stdout.write('no end')",
        "import sys; sys.stdout.write('a' * 16384); sys.stdout.write('\\nb\\n')",
    ],
    ids=["1 MB line", "binary", "returns and colours", "no newline at the end", "exactly one record"],
)
async def test_every_byte_passes_unharmed(tmp_path: Path, script: str) -> None:
    _, log = await run(tmp_path, sys.executable, "-c", script)
    expected = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, check=True).stdout
    assert text_of(log) == expected
    assert all(len(line) <= 16 * 1024 + 64 for line in log.split(b"\n"))


async def test_a_line_is_in_the_log_at_once(tmp_path: Path) -> None:
    process = await Process.start(launch(tmp_path, "sh", "-c", "echo hello; sleep 60"), tmp_path / "c", 0)
    assert not await process.started()
    await until(lambda: b"hello" in (tmp_path / "c" / "0.log").read_bytes())
    process.end()
    assert (await process.ended()).signal == signal.SIGKILL


async def test_a_daemon_that_left_its_session_ends_with_the_process(tmp_path: Path) -> None:
    mark = f"GPUCONSOLE_TEST_MARK=daemon-{os.getpid()}"
    name, _, value = mark.partition("=")
    script = "(setsid sh -c 'trap \"\" TERM HUP; sleep 300 & sleep 300' &) ; sleep 0.3"
    process = await Process.start(launch(tmp_path, "sh", "-c", script, **{name: value}), tmp_path / "c", 0)
    assert not await process.started()
    await until(lambda: len(marked(mark)) >= 4)
    assert (await process.ended()).exit_code == 0
    assert marked(mark) == []


async def test_a_stop_request_reaches_every_descendant(tmp_path: Path) -> None:
    child = 'trap "echo child; exit 0" TERM; echo up; sleep 60 & wait'
    script = f"trap 'echo parent; wait; exit 3' TERM; sh -c '{child}' & wait"
    process = await Process.start(launch(tmp_path, "sh", "-c", script), tmp_path / "c", 0)
    assert not await process.started()
    log = tmp_path / "c" / "0.log"
    await until(lambda: b"up" in log.read_bytes())
    process.request_stop()
    ended = await process.ended()
    assert ended.exit_code == 3
    assert {b"parent", b"child"} <= set(text_of(log.read_bytes()).split())


async def test_nothing_survives_the_death_of_the_sandbox(tmp_path: Path) -> None:
    mark = f"GPUCONSOLE_TEST_MARK=orphan-{os.getpid()}"
    name, _, value = mark.partition("=")
    keeper = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from k8s.sandbox.paths import Launch\n"
        "from k8s.sandbox.node.processes import Process\n"
        "async def main():\n"
        f"    env = {{'PATH': '/usr/bin:/bin', {name!r}: {value!r}}}\n"
        "    argv = ('sh', '-c', 'trap \"\" TERM; (setsid sleep 300 &); sleep 300 & sleep 300')\n"
        f"    p = await Process.start(Launch(argv, env, '/', ()), Path({str(tmp_path)!r}) / 'c', 0)\n"
        "    await p.started(); print('up', flush=True); await p.ended()\n"
        "asyncio.run(main())\n"
    )
    sandbox = subprocess.Popen(
        [sys.executable, "-c", keeper], stdout=subprocess.PIPE, start_new_session=True, cwd=ROOT
    )
    assert sandbox.stdout is not None
    assert sandbox.stdout.readline() == b"up\n"
    await until(lambda: len(marked(mark)) >= 4)
    os.killpg(sandbox.pid, signal.SIGKILL)
    sandbox.wait()
    sandbox.stdout.close()
    await until(lambda: not marked(mark))


async def test_a_full_disk_costs_lines_but_not_the_run(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    folder.mkdir()
    (folder / "0.log").symlink_to("/dev/full")
    process = await Process.start(launch(tmp_path, "sh", "-c", "echo lost; exit 5"), folder, 0)
    assert not await process.started()
    assert (await process.ended()).exit_code == 5
    assert process.log_error == "The log could not be written: No space left on device."


class FullDisk:
    """`os.write` to a disk with so many bytes left."""

    def __init__(self) -> None:
        self.left = 0
        self.kept = bytearray()

    def write(self, _: int, content: bytes | memoryview) -> int:
        if not self.left:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = bytes(content[: self.left])
        self.kept += taken
        self.left -= len(taken)
        return len(taken)


@pytest.mark.parametrize("room", [0, 20, 45, 100, 160, 1000])
def test_lost_bytes_of_a_log_are_those_of_the_output(
    room: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FullDisk()
    log = Log(str(tmp_path / "0.log"), 10**6, 3)
    monkeypatch.setattr("os.write", disk.write)
    sent = 0
    for room_now in (room, 0, room, 10**6):
        disk.left = room_now
        chunk = b"step 1 loss 0.5\n" * 10 + b"x\n"
        log.write(b"stdout", chunk)
        sent += len(chunk)
    records = bytes(disk.kept).split(b"\n")[:-1]
    notices = [re.search(rb"gpuconsole: (\d+) bytes of this log were lost", each) for each in records]
    lost = sum(int(each[1]) for each in notices if each)
    texts = [each[40:] for each in records if not each[40:].startswith(b"gpuc")]
    whole = [each for each in texts if each in (b"step 1 loss 0.5", b"x")]
    torn = sum(map(len, texts)) - sum(map(len, whole))
    assert lost + torn + sum(len(each) + 1 for each in whole) == sent
    assert lost


async def test_a_full_log_is_rotated_and_the_newest_files_are_kept(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    script = "for number in range(40_000): print(number)"
    limits = LogLimits(max_bytes=500_000, max_files=3)
    process = await Process.start(launch(tmp_path, sys.executable, "-c", script), folder, 0, limits)
    assert not await process.started()
    assert (await process.ended()).exit_code == 0
    parts = log_parts(folder, 0)
    assert len(parts) == 3 and parts[0] > 0
    assert parts == list(range(parts[0], parts[0] + 3))
    texts = [log_of(folder, 0, part).read_bytes() for part in parts]
    # Records are written in one go for what was read in one go, 64 KiB of lines.
    assert all(len(text) <= 1_500_000 for text in texts)
    numbers = [int(line) for line in text_of(b"".join(texts)).split()]
    assert numbers == list(range(numbers[0], 40_000))


async def test_only_the_log_of_the_last_earlier_run_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    for number in range(12):
        process = await Process.start(launch(tmp_path, "echo", str(number)), folder, number)
        assert not await process.started()
        await process.ended()
    log_of(folder, 10, 1).touch()
    process = await Process.start(launch(tmp_path, "echo", "12"), folder, 12)
    assert not await process.started()
    await process.ended()
    assert {run: log_parts(folder, run) for run in range(13) if log_parts(folder, run)} == {11: [0], 12: [0]}


@pytest.mark.parametrize(
    ("parents", "roots", "found"),
    [
        ({10: 1, 11: 10, 12: 11, 20: 1, 21: 20}, [10, 20], {10: {10, 11, 12}, 20: {20, 21}}),
        ({10: 1, 11: 10, 12: 11}, [10, 11], {10: {10}, 11: {11, 12}}),
        ({11: 10, 12: 1}, [10], {10: {11}}),
        ({10: 1, 11: 12, 12: 11}, [10], {10: {10}}),
        ({10: 1}, [], {}),
    ],
    ids=["apart", "nested", "gone", "ring of reused ids", "none"],
)
def test_each_process_belongs_to_the_nearest_root_above_it(
    parents: dict[int, int], roots: list[int], found: dict[int, set[int]]
) -> None:
    processes = {pid: ProcessStat(parent, 0.0) for pid, parent in parents.items()}
    assert trees(roots, processes) == found
