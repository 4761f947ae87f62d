"""From the command to the first frame, to the data, and to the end of one-shot commands."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence

from tests.bench.figures import Figure, seconds
from tests.support.terminal import Terminal

ROUNDS = 9
"""How often all is done, in turn, so that a busy moment of the machine hits everybody; the fastest counts."""
FRAME, ROWS = b" Jobs", b"live "
"""What only the first frame and all later ones hold; what is written once everything is listed."""


def measure() -> Iterator[Figure]:
    """Compare with importing Textual alone, and with kubectl on the same sandbox."""
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "XDG_DATA_HOME": folder, "XDG_STATE_HOME": folder, "XDG_CONFIG_HOME": folder}
        env["TERM"] = "xterm-256color"
        # Both sides compiled, as they are once installed.
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        env["PYTHONPYCACHEPREFIX"] = f"{folder}/compiled"
        console = [sys.executable, "-P", "-m", "tui"]
        subprocess.run([*console, "sandbox", "start"], env=env, check=True, capture_output=True)
        try:
            kubeconfig = subprocess.run(
                [*console, "sandbox", "kubeconfig"], env=env, check=True, capture_output=True, text=True
            ).stdout.strip()
            opened = [*console, "--kubeconfig", kubeconfig]
            importing = [sys.executable, "-c", "import textual.app"]
            listing = ["kubectl", "--kubeconfig", kubeconfig, "get", "nodes"]
            works: dict[str, Callable[[], None]] = {
                "frame": lambda: _open(opened, env, FRAME),
                "import": lambda: _run(importing, env),
                "rows": lambda: _open(opened, env, ROWS),
                "list": lambda: _run([*opened, "list"], env),
                "top nodes": lambda: _run([*opened, "top", "nodes"], env),
                "--version": lambda: _run([*console, "--version"], env),
                "python": lambda: _run([sys.executable, "-c", "pass"], env),
            }
            if shutil.which("kubectl"):
                works["kubectl"] = lambda: _run(listing, env)
                works["kubectl pods"] = lambda: _run([*listing[:-1], "pods"], env)
            for work in works.values():
                work()
            rounds = [{name: seconds(work) for name, work in works.items()} for _ in range(ROUNDS)]
            fastest = {name: min(each[name] for each in rounds) for name in works}
        finally:
            subprocess.run([*console, "sandbox", "stop"], env=env, check=True, capture_output=True)
    yield Figure(
        "start to the first frame", fastest["frame"], "import textual.app", fastest["import"], "<= 1.5x"
    )
    pods = fastest.get("kubectl pods")
    yield Figure("list", fastest["list"], "kubectl get pods", pods, "<= 2x")
    yield Figure("top nodes", fastest["top nodes"], "kubectl get nodes", fastest.get("kubectl"), "<= 2x")
    yield Figure("--version", fastest["--version"], "python -c pass", fastest["python"], "<= 100 ms")
    yield Figure("start to data shown", fastest["rows"], "kubectl get nodes", fastest.get("kubectl"), "<= 2x")


def _run(words: Sequence[str], env: Mapping[str, str]) -> None:
    subprocess.run(words, env=env, check=True, capture_output=True)


def _open(words: Sequence[str], env: Mapping[str, str], wanted: bytes) -> None:
    """Open the console, and close it again when it has written something."""
    with Terminal(words, env=env) as terminal:
        terminal.wait_for(lambda _: wanted in terminal.output)
