"""Our log: unexpected exceptions, for bug reports, and output of the user's hooks."""

from __future__ import annotations

import os
import time
import traceback
from contextlib import suppress
from pathlib import Path

from k8s.text.redact import Redactor
from k8s.text.sanitize import sanitize_lines
from tui.files.private_file import make_private_folder

# A larger log starts over, because a repeated bug must not fill the disk.
LARGEST_LOG_BYTES = 1 << 20


def log_bug(path: Path, error: Exception) -> str:
    """Append the traceback of `error` to the log, without secrets; return the line that raised it.

    Failures to write are ignored.
    """
    append_to_log(path, sanitize_lines(Redactor().text("".join(traceback.format_exception(error)))))
    last = traceback.extract_tb(error.__traceback__)[-1:]
    return "".join(f"{Path(each.filename).name}:{each.lineno} in {each.name}" for each in last)


def append_to_log(path: Path, text: str) -> None:
    """Append a sanitised text with the time; failures to write are ignored."""
    with suppress(OSError):
        make_private_folder(path.parent)
        if path.exists() and path.stat().st_size > LARGEST_LOG_BYTES:
            path.unlink()
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "a", errors="backslashreplace") as log:
            log.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {text}\n")
