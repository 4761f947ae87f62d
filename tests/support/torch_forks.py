"""Processes with torch and the sandbox's plug-in: forks of one process that has imported torch.

To import torch takes seconds, and a rendezvous needs several processes. As in a pod, the plug-in is installed
once torch is imported.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from k8s.sandbox.node.torch_loopback import write_plugin

LONGEST_S = 200.0
"""Until a fork is killed, which ends a test that waits for it."""
SERVER = """
import json, os, signal, socket, sys, tempfile, traceback
import torch.distributed
sys.path.insert(0, sys.argv[2])

def run(given, streams):
    for slot, stream in enumerate(streams):
        os.dup2(stream, slot)
    os.environ.clear()
    os.environ.update(given["env"])
    tempfile.tempdir = None
    try:
        import gpuconsole_loopback
        gpuconsole_loopback.install()
        exec(compile(given["code"], "<rank>", "exec"), {"__name__": "__main__"})
    except BaseException:
        traceback.print_exc()
        return 1
    return 0

def watch(connection):
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    request, streams, _, _ = socket.recv_fds(connection, 65536, 3)
    child = os.fork()
    if child == 0:
        connection.close()
        status = run(json.loads(request), streams)
        sys.stdout.flush()
        os._exit(status)
    for stream in streams:
        os.close(stream)
    connection.sendall(b"%d\\n" % child)
    connection.sendall(b"%d\\n" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
listening = socket.socket(socket.AF_UNIX)
listening.bind(sys.argv[1])
listening.listen()
print("ready", flush=True)
while True:
    connection, _ = listening.accept()
    if os.fork() == 0:
        listening.close()
        watch(connection)
        os._exit(0)
    connection.close()
"""


class Fork:
    """One process; used like a `subprocess.Popen` with three pipes of text."""

    def __init__(self, server: Path, code: str, env: Mapping[str, str]) -> None:
        pipes = [os.pipe() for _ in range(3)]
        (read_in, write_in), (read_out, write_out), (read_err, write_err) = pipes
        self._server = socket.socket(socket.AF_UNIX)
        self._server.connect(str(server))
        request = json.dumps({"code": code, "env": dict(env)}).encode()
        socket.send_fds(self._server, [request], [read_in, write_out, write_err])
        for each in (read_in, write_out, write_err):
            os.close(each)
        self.stdin, self.stdout = os.fdopen(write_in, "w"), os.fdopen(read_out)
        self._stderr = os.fdopen(read_err)
        self._reports = self._server.makefile()
        self._pid = int(self._reports.readline())
        self._deadline = threading.Timer(LONGEST_S, self.kill)
        self._deadline.start()
        self.returncode: int | None = None

    def communicate(self) -> tuple[str, str]:
        """Close its standard input and wait for its end; return what else it writes."""
        self.stdin.close()
        written = self.stdout.read(), self._stderr.read()
        self.returncode = int(self._reports.readline())
        self._deadline.cancel()
        for each in (self.stdout, self._stderr, self._reports, self._server):
            each.close()
        return written

    def kill(self) -> None:
        """Kill it."""
        os.kill(self._pid, signal.SIGKILL)


@contextmanager
def serving(folder: Path) -> Iterator[Path]:
    """Start the process that is forked; yield its socket, for `Fork`."""
    write_plugin(folder / "python")
    server = folder / "forks"
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-c", SERVER, str(server), str(folder / "python")]
    with subprocess.Popen(words, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield server
        process.kill()
