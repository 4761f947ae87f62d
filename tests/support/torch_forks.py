"""Processes with torch and the sandbox's plug-in: forks of the process that has imported torch for all tests.

To import torch takes seconds, and a rendezvous needs several processes. As in a pod, the plug-in is installed
once torch is imported.
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping
from multiprocessing.connection import Connection

from tests.trainer.forked_rank import FORKING

LONGEST_S = 200.0  # until a fork is killed, which ends a test that waits for it


class Fork:
    """One process; used like a `subprocess.Popen` with three pipes of text."""

    def __init__(self, code: str, env: Mapping[str, str]) -> None:
        """Run code with these variables; `PYTHONPATH` is the folder with the plug-in."""
        (read_in, write_in), (read_out, write_out), (read_err, write_err) = (os.pipe() for _ in range(3))
        streams = [Connection(read_in, writable=False)]
        streams += [Connection(each, readable=False) for each in (write_out, write_err)]
        self._process = FORKING.Process(target=_run, args=(code, dict(env), streams))
        self._process.start()
        for stream in streams:
            stream.close()
        self.stdin, self.stdout, self._stderr = (
            os.fdopen(write_in, "w"),
            os.fdopen(read_out),
            os.fdopen(read_err),
        )
        self._deadline = threading.Timer(LONGEST_S, self.kill)
        self._deadline.start()

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def communicate(self) -> tuple[str, str]:
        """Close its standard input and wait for its end; return what else it writes."""
        self.stdin.close()
        written = self.stdout.read(), self._stderr.read()
        self._process.join()
        self._deadline.cancel()
        for each in (self.stdout, self._stderr):
            each.close()
        return written

    def kill(self) -> None:
        self._process.kill()


def _run(code: str, env: dict[str, str], streams: list[Connection]) -> None:
    for slot, stream in enumerate(streams):
        os.dup2(stream.fileno(), slot)
        stream.close()
    sys.stdin = os.fdopen(0, closefd=False)
    os.environ.clear()
    os.environ.update(env)
    tempfile.tempdir = None
    sys.path.insert(0, env["PYTHONPATH"])
    status = 0
    try:
        importlib.import_module("gpuconsole_loopback").install()
        exec(compile(code, "<rank>", "exec"), {"__name__": "__main__"})
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
