"""A small app on the console's driver that gives its terminal to a shell, for tests in a terminal.

Run as `python -m tests.support.shell_app KUBECONFIG NAMESPACE POD`; `s` opens the shell, `x` counts.
"""

from __future__ import annotations

import sys
from functools import partial

from textual.app import ComposeResult
from textual.binding import Binding
from textual.widgets import Static

from k8s.client.client import Client
from k8s.text.errors import KubeError
from tests import ROOT
from tests.support.terminal import Terminal
from tui.terminal import tty_state
from tui.terminal.driver import PacedApp
from tui.terminal.pod_shell import handed_over, run_shell


class ShellApp(PacedApp[int]):
    ENABLE_COMMAND_PALETTE = False
    BINDINGS = [Binding("s", "shell"), Binding("x", "count")]  # noqa: RUF012

    def __init__(self, kubeconfig: str, namespace: str, pod: str) -> None:
        super().__init__()
        self._place = kubeconfig, namespace, pod
        self.ticks = self.keys = self.shells = 0

    def compose(self) -> ComposeResult:
        yield Static(id="keys", markup=False)
        yield Static("no shell yet", id="ended", markup=False)
        yield Static("the last line", id="last", markup=False)

    def on_mount(self) -> None:
        self.set_interval(0.01, self.tick)
        self.action_count(0)

    def tick(self) -> None:
        self.ticks += 1

    def action_count(self, more: int = 1) -> None:
        self.keys += more
        self.query_one("#keys", Static).update(f"keys {self.keys}")

    def action_shell(self) -> None:
        self.run_worker(self._shell())

    async def _shell(self) -> None:
        kubeconfig, namespace, pod = self._place
        before = self.ticks
        self.shells += 1
        shell = f"shell {self.shells}"
        async with await Client.connect(kubeconfig, namespace=namespace) as client:
            try:
                hand_over = partial(handed_over, self)
                code = await run_shell(client, namespace, pod, hand_over=hand_over)
                ended = f"{shell} ended with {code}"
            except KubeError as error:
                ended = str(error)
        went_on = "went on" if self.ticks > before else "stood still"
        self.query_one("#ended", Static).update(f"{ended}\n{went_on}")


class InTerminal(Terminal):
    def __init__(self, *where: str) -> None:
        words = [sys.executable, "-m", "tests.support.shell_app", *where]
        super().__init__(words, columns=80, lines=24, folder=ROOT)


def main() -> None:
    tty_state.prepare()
    app = ShellApp(*sys.argv[1:])
    try:
        app.run(mouse=False)
    finally:
        tty_state.restore()
    sys.exit(app.return_code or 0)


if __name__ == "__main__":
    main()
