"""Our log, gpuconsole.log: warnings, unexpected exceptions, output of hooks, and with `-v` each request."""

from __future__ import annotations

import copy
import logging
import os
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path

from k8s.text.errors import KubeError
from k8s.text.sanitize import sanitize_lines

# A larger log becomes gpuconsole.log.1 and replaces the one before.
LARGEST_LOG_BYTES = 1 << 20


class ConsoleLog(logging.Handler):
    """Records of all loggers, redacted. Several consoles may append to the same file."""

    def __init__(self, path: Path, *, is_on_stderr: bool) -> None:
        super().__init__()
        self._path = path
        self._is_on_stderr = is_on_stderr
        self.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """Append a record to the file, and write it to stderr if that was asked for."""
        from k8s.text.redact import Redactor  # most runs log nothing

        error = record.exc_info[1] if record.exc_info else None
        try:
            if isinstance(error, KubeError | OSError):  # expected: its traceback would look like a bug
                record = copy.copy(record)
                record.msg, record.args = f"{record.getMessage()}: {error}", None
                record.exc_info = record.exc_text = None
            text = sanitize_lines(Redactor().text(self.format(record)))
        except Exception:  # a library's wrong format
            self.handleError(record)
            return
        append_to_log(self._path, text)
        if self._is_on_stderr:
            with suppress(OSError, ValueError):
                sys.stderr.write(f"{text}\n")


def start_log(path: Path, verbosity: int, *, is_on_stderr: bool) -> None:
    """Send warnings of all loggers to `path`; with verbosity 1 also requests, with 2 everything."""
    root = logging.getLogger()
    for handler in [each for each in root.handlers if isinstance(each, ConsoleLog)]:
        root.removeHandler(handler)
    root.addHandler(ConsoleLog(path, is_on_stderr=is_on_stderr and verbosity > 0))
    root.setLevel(logging.DEBUG if verbosity > 1 else logging.WARNING)
    for name in ("k8s", "tui"):
        logging.getLogger(name).setLevel(logging.INFO if verbosity == 1 else logging.NOTSET)


def log_bug(path: Path, error: Exception) -> str:
    """Append the traceback of `error` to the log, without secrets; return the line that raised it.

    Failures to write are ignored.
    """
    from k8s.text.redact import Redactor

    append_to_log(path, sanitize_lines(Redactor().text("".join(traceback.format_exception(error)))))
    last = traceback.extract_tb(error.__traceback__)[-1:]
    return "".join(f"{Path(each.filename).name}:{each.lineno} in {each.name}" for each in last)


def append_to_log(path: Path, text: str) -> None:
    """Append a sanitised text with the time; failures to write are ignored."""
    from tui.settings.private_file import make_private_folder

    with suppress(OSError):
        make_private_folder(path.parent)
        if path.exists() and path.stat().st_size > LARGEST_LOG_BYTES:
            path.replace(path.with_name(f"{path.name}.1"))
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "a", errors="backslashreplace") as log:
            log.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {text}\n")
