"""Questions on a terminal, whose safe answer needs no word, and exec plugins that talk to the user."""

from __future__ import annotations

import asyncio
import gc
import io
import os
import sys
from pathlib import Path

import pytest

from k8s.text.errors import SANDBOX_CONTEXT
from tests import ROOT
from tests.k8s.client.test_cluster_config import config, write
from tests.scripted.server import Answer, ScriptedCluster, page
from tests.support.objects import pytorch_job
from tests.support.playground import Playground
from tests.support.terminal import Terminal
from tests.tui.commands.conftest import CommandLine
from tui.app import Console
from tui.commands.support.output import confirm, confirm_by_word
from tui.settings.options import ConsoleOptions

PATH = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs/waits"


def terminal(line: CommandLine, *words: str) -> Terminal:
    line.set("TERM", "xterm-256color")
    command = [sys.executable, "-P", "-m", "tui", *words]
    return Terminal(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, columns=160)


async def answer(asking: Terminal, question: str, keys: str) -> int:
    await asyncio.to_thread(asking.wait_for, question)
    asking.send(keys)
    return await asyncio.to_thread(asking.wait_for_end)


async def test_delete_prompts_for_confirmation_and_enter_declines(run: CommandLine) -> None:
    question = "Delete PyTorchJob default/waits? Deletes 3 pods and their logs, and frees 8 GPUs."
    status, screen = await run.on_terminal("delete", "waits", typed="\n")
    assert (status, question in screen) == (1, True), screen
    assert run.cluster.asked(PATH, method="DELETE") == []


@pytest.mark.parametrize(
    ("typed", "is_yes", "is_yes_by_default"),
    [
        ("\n", False, True),
        ("", False, False),
        ("n\n", False, False),
        ("Yes \n", True, True),
        ("x\n", False, False),
    ],
)
def test_only_yes_confirms_and_the_end_of_input_declines(
    monkeypatch: pytest.MonkeyPatch, typed: str, is_yes: bool, is_yes_by_default: bool
) -> None:
    for default, expected in ((False, is_yes), (True, is_yes_by_default)):
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        assert confirm("Sure?", default=default) is expected


@pytest.mark.parametrize(("typed", "is_meant"), [("y\n", False), ("delete 5\n", False), ("delete 6\n", True)])
def test_a_word_is_typed_in_full(monkeypatch: pytest.MonkeyPatch, typed: str, is_meant: bool) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
    assert confirm_by_word("Sure?", "delete 6") is is_meant


async def test_delete_sends_one_request_after_yes(run: CommandLine) -> None:
    run.cluster.say(PATH, Answer({"status": "Success"}), method="DELETE")
    status, screen = await run.on_terminal("delete", "waits", typed="y\n")
    assert (status, "PyTorchJob default/waits is being deleted." in screen) == (0, True), screen
    assert len(run.cluster.asked(PATH, method="DELETE")) == 1


async def test_the_console_offers_the_sandbox_where_there_is_no_cluster(alone: CommandLine) -> None:
    with terminal(alone) as asking:
        assert await answer(asking, "Start the sandbox? [Y/n]", "n\r") == 1
        assert "gpuconsole --sandbox" in asking.text
    assert not (alone.home / "data").exists()


async def test_ctrl_c_at_a_confirmation_exits_130_and_deletes_nothing(run: CommandLine) -> None:
    with terminal(run, "delete", "waits") as asking:
        assert await answer(asking, "[y/N]", "\x03") == 130
    assert run.cluster.asked(PATH, method="DELETE") == []


PRESSED = """
import asyncio, signal, sys
from tui.commands.support import output

class Pressed:
    "A terminal on which ctrl+c is pressed in the moment that a question appears."
    def write(self, text): signal.raise_signal(signal.SIGINT)
    def flush(self): pass

async def before():
    signal.raise_signal(signal.SIGINT)
    output.confirm("Sure?")

async def while_it_appears():
    sys.stderr = Pressed()
    output.confirm("Sure?")

try:
    asyncio.run({moment}())
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.parametrize("moment", ["before", "while_it_appears"])
async def test_ctrl_c_while_a_confirmation_appears_exits_130(moment: str) -> None:
    asking = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-c",
        PRESSED.format(moment=moment),
        stdin=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        assert await asyncio.wait_for(asking.wait(), 20) == 130
    finally:
        if asking.returncode is None:
            asking.kill()
            await asking.wait()


async def test_deleting_many_jobs_needs_a_typed_answer(run: CommandLine) -> None:
    jobs = [pytorch_job(f"job-{number}") for number in range(6)]
    run.cluster.replace("/apis/kubeflow.org/v1/pytorchjobs", page(jobs))
    names = [job["metadata"]["name"] for job in jobs]
    paths = [f"{PATH.rpartition('/')[0]}/{name}" for name in names]
    for path in paths:
        run.cluster.say(path, Answer({"status": "Success"}), method="DELETE")
    for typed, status, times in (("y", 1, 0), ("delete 6", 0, 1)):
        ended, screen = await run.on_terminal("delete", *names, typed=f"{typed}\n")
        assert (ended, 'Type "delete 6" to continue:' in screen) == (status, True), screen
        assert [len(run.cluster.asked(path, method="DELETE")) for path in paths] == [times] * 6


async def test_suspend_names_the_loss_and_enter_means_no(run: CommandLine) -> None:
    status, screen = await run.on_terminal("suspend", "waits", typed="\n")
    assert (status, "frees 8 GPUs. Progress since the last checkpoint is lost" in screen) == (1, True), screen
    assert run.cluster.asked(PATH, method="PATCH") == []


GIT = ("--sync-mode", "git", "--sync-source", "https://host.example/x.git", "--git-user", "li")


@pytest.mark.slow
async def test_the_git_password_prompt_does_not_echo_and_creates_a_secret(run: CommandLine) -> None:
    words = ("submit", "pytorch", "--name", "demo", "--image", "x", *GIT, "--dry-run=client")
    with terminal(run, *words, "python a.py") as asking:
        assert (
            await answer(asking, "Password or token of li for https://host.example/x.git:", "hunter2\r") == 0
        )
        assert "hunter2" not in asking.text
        assert "secret/demo-git created (dry run)" in asking.text
    with terminal(run, *words, "python a.py") as asking:
        assert await answer(asking, "Password or token", "\r") == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (GIT, "--git-user asks for a password, and there is no terminal"),
        (GIT[-2:], "only code from git over https takes a user"),
        ((*GIT, "--git-secret", "mine"), "already has credentials"),
        ((*GIT, "--env=GIT_SYNC_PASSWORD=x", "--env=GIT_SYNC_USERNAME=y"), "already has credentials"),
    ],
)
async def test_a_useless_git_user_is_refused(run: CommandLine, words: tuple[str, ...], said: str) -> None:
    (await run("submit", "pytorch", "--name", "demo", "--image", "x", *words, "python a.py")).reports(2, said)


async def test_the_console_in_a_pipe_lists_the_jobs_and_reports_the_missing_terminal(
    run: CommandLine,
) -> None:
    listed = await run("list")
    alone = await run()
    assert (alone.status, alone.out) == (2, listed.out)
    assert alone.out.splitlines()[0].split()[0] == "NAME"
    assert alone.err.splitlines()[0] == (
        "The console needs a terminal; standard output is a file, a pipe or closed."
    )
    assert gc.isenabled()


async def test_the_console_without_cluster_or_terminal_reports_both(alone: CommandLine) -> None:
    ended = await alone()
    assert (ended.status, ended.out) == (2, "")
    assert "No cluster" in ended.err or "kubeconfig" in ended.err
    assert "The console needs a terminal" in ended.err


def test_a_dumb_terminal_is_rejected_without_escape_sequences(tmp_path: Path) -> None:
    env = {**os.environ, "TERM": "dumb", "HOME": str(tmp_path), "KUBECONFIG": str(tmp_path / "none")}
    with Terminal([sys.executable, "-P", "-m", "tui"], env=env, folder=ROOT) as terminal:
        assert terminal.wait_for_end() == 2
        assert "The console needs a terminal; TERM is dumb." in terminal.text
        assert b"\x1b" not in terminal.output


CHANGES = (
    *("delete waits", "suspend waits", "resume waits", "clone done", "prune --older-than 7d"),
    *("sandbox reset", "scale bert --replicas 3", "scalein etjob --name bert", "scaleout etjob --name bert"),
)


@pytest.mark.parametrize("words", CHANGES)
async def test_without_a_terminal_a_change_needs_yes(run: CommandLine, words: str) -> None:
    (await run(*words.split())).reports(2, "pass --yes")
    assert run.cluster.requests == []


WITHOUT_A_QUESTION = ("submit job --name demo --image x true", "sandbox start", "sandbox stop", "shell bert")


@pytest.mark.parametrize("words", [*(f"{each} --yes" for each in CHANGES), *WITHOUT_A_QUESTION])
async def test_nothing_is_changed_with_readonly(run: CommandLine, words: str) -> None:
    (await run("--readonly", *words.split())).reports(1, "Changes are disabled by --readonly.")
    assert run.cluster.requests == []


VERSION = "/version"
PLUGIN = """
import json, os, pathlib, sys, time
info = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
sys.stderr.write("Open https://login.lab/device [any browser] and enter KXPQ-7731\\nPIN: ")
sys.stderr.flush()
pin = sys.stdin.readline().strip() if info["spec"]["interactive"] else "none"
while pin == "none" and not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.01)
print(json.dumps({**info, "status": {"token": "pin-" + pin}}))
"""


def kubeconfig(folder: Path, host: str, mode: str) -> str:
    """Write a kubeconfig whose user logs in with a plugin that talks; return its path."""
    words = {
        "command": sys.executable,
        "args": [write(folder / "login.py", PLUGIN), str(folder / "confirmed")],
    }
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": mode, **words}
    return write(folder / "kubeconfig", config(host, {"exec": plugin}))


@pytest.mark.parametrize("mode", ["Always", "IfAvailable"])
async def test_a_command_on_a_terminal_lets_its_login_command_prompt(tmp_path: Path, mode: str) -> None:
    async with ScriptedCluster() as cluster:
        cluster.say(VERSION, Answer({"gitVersion": "v1.36.2", "major": "1", "minor": "36"}))
        env = {**os.environ, "HOME": str(tmp_path), "KUBECONFIG": kubeconfig(tmp_path, cluster.host, mode)}

        def log_in() -> int:
            with Terminal([sys.executable, "-P", "-m", "tui", "version"], env=env, folder=ROOT) as terminal:
                terminal.wait_for("PIN:")
                assert "enter KXPQ-7731" in terminal.text
                terminal.send("4711\n")
                return terminal.wait_for_end()

        assert await asyncio.to_thread(log_in) == 0
    assert cluster.asked(VERSION)[0].headers["Authorization"] == "Bearer pin-4711"


async def test_a_login_command_that_needs_a_terminal_names_the_line_to_run(tmp_path: Path) -> None:
    env = {
        **os.environ,
        "HOME": str(tmp_path),
        "KUBECONFIG": kubeconfig(tmp_path, "http://127.0.0.1:9", "Always"),
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "tui", "list", "-n", "rack 7"),
        cwd=ROOT, env=env, stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    errors = (await process.communicate())[1].decode()
    assert process.returncode == 1
    assert errors.endswith("Run it on a terminal: gpuconsole list -n 'rack 7'\n")


@pytest.mark.parametrize("size", [(80, 24), (160, 45)])
async def test_the_console_shows_the_lines_of_the_login_command_while_it_connects(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    async with ScriptedCluster() as cluster:
        path = kubeconfig(tmp_path, cluster.host, "IfAvailable")
        console = Console(
            ConsoleOptions(
                kubeconfig=path, state_folder=tmp_path / "state", config_folder=tmp_path / "config"
            )
        )
        async with console.run_test(size=size) as pilot:
            play = Playground(cluster, pilot, {})
            await play.until(lambda: "KXPQ-7731" in play.text and "PIN:" in play.text)
            assert "https://login.lab/device [any browser]" in " ".join(play.text.split())
            assert console.snapshot.context != SANDBOX_CONTEXT
            (tmp_path / "confirmed").touch()
            await play.until(lambda: console.session is not None)
            assert play.session.client.config.authorization() == "Bearer pin-none"
            assert "KXPQ-7731" not in play.text


@pytest.mark.end_to_end
async def test_the_console_lends_its_terminal_to_a_login_command_that_needs_one(tmp_path: Path) -> None:
    async with ScriptedCluster() as cluster:
        env = {
            **os.environ,
            "HOME": str(tmp_path),
            "KUBECONFIG": kubeconfig(tmp_path, cluster.host, "Always"),
        }

        def log_in() -> None:
            with Terminal([sys.executable, "-P", "-m", "tui"], env=env, folder=ROOT) as terminal:
                terminal.wait_for("PIN:")
                terminal.send("4711\r")
                terminal.wait_for("? help")
                terminal.send("\x03")
                terminal.wait_for_end()

        await asyncio.to_thread(log_in)
    assert cluster.requests[0].headers["Authorization"] == "Bearer pin-4711"
