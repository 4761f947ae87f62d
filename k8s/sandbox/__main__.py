"""Entry point of the sandbox's process, and its log: `python -m k8s.sandbox FOLDER OPTIONS DESCRIPTOR`.

`launcher` starts it. The log file is bounded in size, whatever programs do to the sandbox.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from contextlib import suppress
from logging.handlers import RotatingFileHandler
from pathlib import Path

from k8s.sandbox.launcher import SandboxOptions
from k8s.sandbox.paths import SandboxPaths
from k8s.sandbox.serve import serve
from k8s.text.errors import KubeError

LOG_BYTES = 1024 * 1024
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def main(folder: str, options: str, descriptor: str) -> int:
    """Run a sandbox until it is stopped; return the exit status. Progress and errors go to the descriptor."""
    paths = SandboxPaths(Path(folder))
    begin_log(paths.log)

    def report(**fields: str) -> None:
        with suppress(OSError):
            os.write(int(descriptor), json.dumps(fields).encode() + b"\n")

    try:
        parsed_options = SandboxOptions(**json.loads(options))
        asyncio.run(serve(paths, parsed_options, lambda progress: report(progress=progress)))
    except KubeError as error:
        report(what=error.what, why=error.why, hint=error.hint)
        print(error, file=sys.stderr)
        return 1
    return 0


class SandboxLogHandler(RotatingFileHandler):
    """Rotating log file that stdout and stderr follow, if they are redirected to it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, maxBytes=LOG_BYTES, backupCount=1, encoding="utf-8", errors="backslashreplace")
        self._outputs = [each for each in (1, 2) if self._is_this_file(each)]
        self.setFormatter(logging.Formatter(_FORMAT))

    def doRollover(self) -> None:
        """Start a new file."""
        super().doRollover()
        with open(self.baseFilename, "ab") as fresh:
            for descriptor in self._outputs:
                os.dup2(fresh.fileno(), descriptor)

    def _is_this_file(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), os.stat(self.baseFilename))
        except OSError:
            return False


def begin_log(path: Path) -> None:
    """Send this process's log records to a file."""
    sys.stdout.flush()
    logging.basicConfig(level=logging.INFO, handlers=[SandboxLogHandler(path)])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
