"""Supervisor of one container's process: writes its log, reports its end, leaves no process behind.

A separate process for each run, so that log lines do not pass through the sandbox and no process outlives it:
the shim is the subreaper of all descendants, and kills them when the sandbox's end of the control pipe
closes.

Started as `python -I -S shim.py PROCESS LOG BYTES FILES`; needs only the standard library.
A log file that has reached BYTES is followed by another; the newest FILES are kept.
PROCESS is a JSON file with `argv`, `env`, `cwd`. Standard input is the control pipe
(`T` sends SIGTERM to the descendants, `K` SIGKILL), standard output takes JSON lines:
`{"pid"}` or `{"error"}`, maybe `{"log_error"}`, at last `{"exit_code", "signal", "oom"}`.
Beside PROCESS it listens on `exec.sock` for further commands in the same container.
"""

import ctypes
import fcntl
import json
import os
import select
import signal
import socket
import sys
import termios
import time
from contextlib import suppress
from typing import Any

# Bytes of a line in one record; longer lines are split, as by containerd.
LONGEST_RECORD = 16 * 1024
_READ_BYTES = 64 * 1024
# Of a record: time, stream, tag and their spaces.
_HEAD_BYTES = len("2026-05-14T10:00:00.123456789Z stdout F ")
_KILL_TIMEOUT_S, _REQUEST_S = 10.0, 2.0
EXEC_SOCKET = "exec.sock"
Manifest = dict[str, Any]
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


class Log:
    """Log of the process in CRI records: time, stream, F or P, text."""

    def __init__(self, path: str, max_bytes: int, max_files: int) -> None:
        self._file = self._open(path)
        self._stem = path.removesuffix(".log")
        self._max_bytes = max_bytes
        self._max_files = max_files
        self._part = 0
        self._size = 0
        self._partial = {b"stdout": bytearray(), b"stderr": bytearray()}
        self._last_ns = 0
        self._second = 0
        self._second_text = b""
        self._lost_bytes = 0
        self._is_torn = False
        self.error = ""
        """Last error; the reader resets it."""

    def write(self, stream: bytes, chunk: bytes) -> None:
        """Write the complete lines of `chunk`, and full records of an incomplete one."""
        partial = self._partial[stream]
        records: list[bytes] = []
        lines = chunk.split(b"\n")
        if partial:
            lines[0] = bytes(partial) + lines[0]
            partial.clear()
        last = lines.pop()
        for line in lines:
            while len(line) > LONGEST_RECORD:
                records.append(self._record(stream, b"P", line[:LONGEST_RECORD]))
                line = line[LONGEST_RECORD:]
            records.append(self._record(stream, b"F", line))
        while len(last) >= LONGEST_RECORD:
            records.append(self._record(stream, b"P", last[:LONGEST_RECORD]))
            last = last[LONGEST_RECORD:]
        partial += last
        self._write(b"".join(records))

    def close(self) -> None:
        """Write text without a final newline as a partial record, and close the file."""
        for stream, partial in self._partial.items():
            if partial:
                self._write(self._record(stream, b"P", bytes(partial)))
        self._write(b"")  # reports what was lost
        os.close(self._file)

    def _record(self, stream: bytes, tag: bytes, text: bytes) -> bytes:
        # Times are unique, so that a reader can resume after any record.
        self._last_ns = max(self._last_ns + 1, time.time_ns())
        second, fraction = divmod(self._last_ns, 10**9)
        if second != self._second:
            self._second = second
            self._second_text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second)).encode()
        return b"%s.%09dZ %s %s %s\n" % (self._second_text, fraction, stream, tag, text)

    def _write(self, records: bytes) -> None:
        # When the disk is full, lost bytes are counted and reported once writing works again.
        if not records and not self._lost_bytes:
            return
        notice = b""
        if self._lost_bytes:
            message = b"gpuconsole: %d bytes of this log were lost." % self._lost_bytes
            notice = b"\n" * self._is_torn + self._record(b"stderr", b"F", message)
            records = notice + records
        if self._size and self._size + len(records) > self._max_bytes:
            self._rotate()
        left = memoryview(records)
        try:
            while left:
                left = left[os.write(self._file, left) :]
        except OSError as error:
            written = len(records) - len(left)
            if written:
                self._is_torn = records[written - 1] != 0x0A
            if notice and written >= len(notice):
                self._lost_bytes = 0
            self._lost_bytes += _text_bytes(records, max(written, len(notice)))
            self.error = f"The log could not be written: {error.strerror}."
        else:
            self._lost_bytes, self._is_torn = 0, False
            self._size += len(records)

    def _rotate(self) -> None:
        try:
            fresh = self._open(f"{self._stem}.{self._part + 1}.log")
        except OSError as error:
            self.error = f"The log could not be rotated: {error.strerror}."
            return
        os.close(self._file)
        self._file, self._size, self._part = fresh, 0, self._part + 1
        oldest = self._part - self._max_files
        path = f"{self._stem}.{oldest}.log" if oldest else f"{self._stem}.log"
        if oldest >= 0 and os.path.lexists(path):
            os.unlink(path)

    @staticmethod
    def _open(path: str) -> int:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def _text_bytes(records: bytes, start: int) -> int:
    """Count the output of the process in records, from an offset at or within one."""
    at = records.rfind(b"\n", 0, start) + 1
    texts = [
        (each[_HEAD_BYTES:], each[_HEAD_BYTES - 2 : _HEAD_BYTES - 1])
        for each in records[at:].split(b"\n")[:-1]
    ]
    return sum(len(text) + (tag == b"F") for text, tag in texts) - max(0, start - at - _HEAD_BYTES)


def descendants(root: int) -> list[int]:
    """Return the processes below `root`, whatever their session or group."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            if fields[0] not in (b"Z", b"X"):
                children.setdefault(int(fields[1]), []).append(int(name))
    found: list[int] = []
    todo = [root]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def send(number: int, session: int = 0) -> None:
    """Send a signal to everything below this process, or only to one session."""
    for pid in descendants(os.getpid()):
        try:
            if not session or os.getsid(pid) == session:
                os.kill(pid, number)
        except OSError:
            continue


def end_all() -> None:
    """Kill everything below this process, including what is forked meanwhile."""
    deadline = time.monotonic() + _KILL_TIMEOUT_S
    while time.monotonic() < deadline:
        send(signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.002)


def spawn(
    process: Manifest, stdin: int, stdout: int, stderr: int, *, is_terminal: bool = False
) -> tuple[int, str]:
    """Start a process in its own session; return its id and the error if it could not start."""
    argv, env, cwd = process["argv"], process["env"], process["cwd"]
    failed_read, failed_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            # Whoever started the sandbox may ignore or block some, as a shell does in its background.
            for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            for slot, descriptor in enumerate((stdin, stdout, stderr)):
                os.dup2(descriptor, slot)
            if is_terminal:
                fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            os.chdir(cwd)
            os.execvpe(argv[0], argv, env)
        except FileNotFoundError as error:
            where = " in $PATH" if "/" not in argv[0] else ""
            why = f'exec: "{argv[0]}": executable file not found{where}'
            os.write(failed_write, (f"{error.strerror}: {cwd}" if error.filename == cwd else why).encode())
        except BaseException as error:
            os.write(failed_write, f'exec: "{argv[0]}": {error}'.encode())
        os._exit(127)
    os.close(failed_write)
    why = os.read(failed_read, 4096).decode("utf-8", "replace")
    os.close(failed_read)
    if why:
        os.waitpid(pid, 0)
    return pid, why


class Commands:
    """Further commands in the container, each requested over a connection that lives as long."""

    def __init__(self, process: Manifest, folder: str) -> None:
        self.poller = select.poll()
        self._process = process
        self._connections: dict[int, tuple[socket.socket, int]] = {}
        self._listening = socket.socket(socket.AF_UNIX)
        path = f"{folder}/{EXEC_SOCKET}"
        if os.path.lexists(path):
            os.unlink(path)
        # By way of the folder: the path itself may be too long for a socket's address.
        at = os.open(folder, os.O_PATH | os.O_DIRECTORY)
        self._listening.bind(f"/proc/self/fd/{at}/{EXEC_SOCKET}")
        os.close(at)
        self._listening.listen()
        self.poller.register(self._listening, select.POLLIN)

    def serve(self, reader: int) -> None:
        """Accept a connection, or kill the command whose connection was closed."""
        if reader == self._listening.fileno():
            connection, _ = self._listening.accept()
            try:
                self._begin(connection)
            except (OSError, ValueError, KeyError, TypeError):
                connection.close()
        elif reader in self._connections:
            connection, session = self._connections.pop(reader)
            self.poller.unregister(connection)
            connection.close()
            send(signal.SIGKILL, session)

    def report_ends(self, ended: dict[int, int]) -> None:
        """Report the exit status of commands that have ended."""
        for connection, pid in self._connections.values():
            if pid in ended:
                _reply(connection, status=os.waitstatus_to_exitcode(ended[pid]))

    def _begin(self, connection: socket.socket) -> None:
        connection.settimeout(_REQUEST_S)
        request, descriptors, _, _ = socket.recv_fds(connection, 65536, 3, socket.MSG_CMSG_CLOEXEC)
        try:
            while not request.endswith(b"\n"):
                if not (more := connection.recv(65536)):
                    raise ValueError("the request is not whole")
                request += more
            command = json.loads(request)
            process = {**self._process, "argv": command["argv"]}
            if command["terminal"]:
                process["env"] = {"TERM": "xterm", **process["env"]}
            pid, why = spawn(process, *descriptors, is_terminal=command["terminal"])
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        if why:
            _reply(connection, error=why)
            connection.close()
            return
        _reply(connection, pid=pid)
        self._connections[connection.fileno()] = (connection, pid)
        self.poller.register(connection, select.POLLIN)


def _reply(connection: socket.socket, **fields: object) -> None:
    with suppress(OSError):
        connection.sendall(json.dumps(fields).encode() + b"\n")


def report(**fields: object) -> None:
    """Send a JSON line to the sandbox, which may be gone."""
    with suppress(OSError):
        os.write(1, json.dumps(fields).encode() + b"\n")


def oom_kills() -> int:
    """Return the number of processes that the kernel has killed for lack of memory since boot."""
    try:
        with open("/proc/vmstat", "rb") as file:
            return next((int(line.split()[1]) for line in file if line.startswith(b"oom_kill ")), 0)
    except OSError:
        return 0


def main(process_path: str, log_path: str, max_bytes: str, max_files: str) -> None:
    """Run the process until it ends or the sandbox is gone."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        with open(process_path, "rb") as file:
            process = json.load(file)
        log = Log(log_path, int(max_bytes), int(max_files))
        commands = Commands(process, os.path.dirname(process_path))
    except (OSError, ValueError) as error:
        report(error=str(error))
        return
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    oom_before = oom_kills()
    (out_read, out_write), (err_read, err_write) = os.pipe(), os.pipe()
    nothing = os.open(os.devnull, os.O_RDONLY)
    pid, why = spawn(process, nothing, out_write, err_write)
    os.close(nothing)
    os.close(out_write)
    os.close(err_write)
    if why:
        report(error=why)
        return
    report(pid=pid)
    status, was_killed = _serve(pid, log, commands, {out_read: b"stdout", err_read: b"stderr"}, wake_read)
    if status is None:
        return
    log.close()
    if log.error:
        report(log_error=log.error)
    code = os.waitstatus_to_exitcode(status)
    ended_by = -code if code < 0 else 0
    oom = ended_by == signal.SIGKILL and not was_killed and oom_kills() > oom_before
    report(exit_code=128 + ended_by if ended_by else code, signal=ended_by, oom=oom)


def _serve(
    pid: int, log: Log, commands: Commands, streams: dict[int, bytes], wake: int
) -> tuple[int | None, bool]:
    """Copy output to the log until the process ends; return its wait status, None if the sandbox is gone."""
    poller = commands.poller
    for reader in (0, wake, *streams):
        poller.register(reader, select.POLLIN)
    was_killed = False
    status: int | None = None
    while status is None:
        ready = [reader for reader, _ in poller.poll()]
        for reader in ready:
            if reader in streams:
                _move(reader, log, streams, poller)
            elif reader not in (0, wake):
                commands.serve(reader)
        if 0 in ready:
            orders = os.read(0, 64)
            if not orders:
                end_all()
                return None, True
            was_killed = was_killed or b"K" in orders
            send(signal.SIGKILL if b"K" in orders else signal.SIGTERM)
        if wake in ready:
            os.read(wake, 4096)
            ended = _reap()
            commands.report_ends(ended)
            status = ended.get(pid)
        if log.error:
            report(log_error=log.error)
            log.error = ""
    end_all()
    for reader in list(streams):
        os.set_blocking(reader, False)
        while reader in streams and _move(reader, log, streams, poller):
            pass
    return status, was_killed


def _move(reader: int, log: Log, streams: dict[int, bytes], poller: select.poll) -> bool:
    try:
        chunk = os.read(reader, _READ_BYTES)
    except BlockingIOError:
        return False
    if chunk:
        log.write(streams[reader], chunk)
    else:
        poller.unregister(reader)
        del streams[reader]
        os.close(reader)
    return bool(chunk)


def _reap() -> dict[int, int]:
    found: dict[int, int] = {}
    while True:
        try:
            ended, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if ended == 0:
            return found
        found[ended] = status


if __name__ == "__main__":
    main(*sys.argv[1:])
