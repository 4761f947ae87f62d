"""From the command to the first frame, and to the data, in a pseudo-terminal."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from tests.bench.figures import Figure, best_of
from tests.terminal import Terminal


def measure() -> Iterator[Figure]:
    """Compare with importing Textual alone, and with kubectl on the same sandbox."""
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "XDG_DATA_HOME": folder, "XDG_STATE_HOME": folder, "XDG_CONFIG_HOME": folder}
        env["TERM"] = "xterm-256color"
        console = [sys.executable, "-P", "-m", "tui"]
        subprocess.run([*console, "sandbox", "start"], env=env, check=True, capture_output=True)
        try:
            kubeconfig = subprocess.run(
                [*console, "sandbox", "kubeconfig"], env=env, check=True, capture_output=True, text=True
            ).stdout.strip()

            def until(words: str) -> float:
                return best_of(3, lambda: _open(console, env, words))

            def imported() -> None:
                subprocess.run([sys.executable, "-c", "import textual.app, textual.widgets"], check=True)

            frame_s = until("Jobs (")
            yield Figure(
                "start to the first frame", frame_s, "import textual", best_of(3, imported), "<= 1.5x"
            )
            data_s = until("─ live")
            if shutil.which("kubectl"):

                def get_nodes() -> None:
                    words = ["kubectl", "--kubeconfig", kubeconfig, "get", "nodes"]
                    subprocess.run(words, env=env, check=True, capture_output=True)

                yield Figure(
                    "start to data shown", data_s, "kubectl get nodes", best_of(3, get_nodes), "<= 2x"
                )
        finally:
            subprocess.run([*console, "sandbox", "stop"], env=env, check=True, capture_output=True)


def _open(console: list[str], env: dict[str, str], words: str) -> None:
    with Terminal([*console, "--sandbox"], env=env) as terminal:
        terminal.wait_for(words)
