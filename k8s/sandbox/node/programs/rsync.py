"""Wrapper of this machine's rsync with advice if it is not installed.

Started as `python -I -S rsync.py WORDS...`; needs only the standard library and rsync.
"""

import os
import shutil
import sys
from contextlib import suppress

_NOT_FOUND = 127
NOT_INSTALLED = (
    "rsync is not installed on this machine, and the sandbox ignores images, so it cannot fetch code. "
    "Install rsync (apt-get install rsync)."
)


def main(*arguments: str) -> int:
    """Replace this process by rsync; return the exit status if it is not installed."""
    ours = os.path.join(os.environ.get("GPUCONSOLE_SANDBOX", ""), "bin")
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    program = shutil.which("rsync", path=os.pathsep.join(each for each in folders if each != ours))
    if program:
        os.execv(program, ["rsync", *arguments])
    print(f"rsync: {NOT_INSTALLED}", file=sys.stderr, flush=True)
    if message_file := os.environ.get("GPUCONSOLE_TERMINATION_LOG"):
        with suppress(OSError), open(message_file, "w") as file:
            file.write(NOT_INSTALLED)
    return _NOT_FOUND


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
