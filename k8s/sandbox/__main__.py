"""`python -m k8s.sandbox serve`: the sandbox's process. People use `gpuconsole sandbox start`."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import sys
from pathlib import Path

from k8s.errors import KubeError
from k8s.sandbox.launcher import SandboxOptions
from k8s.sandbox.places import Places
from k8s.sandbox.serve import serve


def main() -> int:
    """Run a sandbox until it is stopped; return the exit status."""
    usual = SandboxOptions()
    parser = argparse.ArgumentParser(prog="python -m k8s.sandbox")
    parser.add_argument("what", choices=["serve"])
    parser.add_argument("--folder", type=Path, help="where it keeps its things")
    parser.add_argument("--nodes", type=int, default=0)
    parser.add_argument("--gpus-per-node", type=int, default=-1)
    parser.add_argument("--idle-s", type=float, default=usual.idle_s)
    parser.add_argument("--restart-delay-s", type=float, default=usual.restart_delay_s)
    parser.add_argument("--ready-fd", type=int, default=-1, help="where to say how far it is")
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    places = Places(given.folder) if given.folder else Places.default()
    options = SandboxOptions(given.nodes, given.gpus_per_node, given.idle_s, given.restart_delay_s)

    def say(**words: str) -> None:
        if given.ready_fd >= 0:
            try:
                os.write(given.ready_fd, json.dumps(words).encode() + b"\n")
            except OSError:
                return
        elif "progress" in words:
            print(words["progress"], file=sys.stderr)

    try:
        asyncio.run(serve(places, options, lambda progress: say(progress=progress)))
    except KubeError as error:
        say(what=error.what, why=error.why, hint=error.hint)
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
