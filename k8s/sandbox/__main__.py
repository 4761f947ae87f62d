"""`python -m k8s.sandbox FOLDER OPTIONS DESCRIPTOR`: the sandbox's process, as `launcher` starts it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import suppress
from pathlib import Path

from k8s.errors import KubeError
from k8s.sandbox.launcher import SandboxOptions
from k8s.sandbox.paths import SandboxPaths
from k8s.sandbox.sandbox_log import begin_log
from k8s.sandbox.serve import serve


def main(folder: str, options: str, descriptor: str) -> int:
    """Run a sandbox until it is stopped, say through the descriptor how far it is; return the exit status."""
    paths = SandboxPaths(Path(folder))
    begin_log(paths.log)

    def say(**words: str) -> None:
        with suppress(OSError):
            os.write(int(descriptor), json.dumps(words).encode() + b"\n")

    try:
        wanted = SandboxOptions(**json.loads(options))
        asyncio.run(serve(paths, wanted, lambda progress: say(progress=progress)))
    except KubeError as error:
        say(what=error.what, why=error.why, hint=error.hint)
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
