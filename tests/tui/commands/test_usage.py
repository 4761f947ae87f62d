"""Mistakes, refusals and interruptions: status and reason, never a traceback; global flags, and `help`."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from k8s.sandbox.paths import CONTEXT
from tests import ROOT
from tests.scripted.server import Answer, Asked, ScriptedCluster, Stream, page, refusal
from tests.support.terminal import Terminal
from tests.tui.commands.conftest import CommandLine, PretendedTerminal, write_kubeconfig
from tui.__main__ import main
from tui.commands import COMMANDS
from tui.settings import manual
from tui.settings.manual import TOPICS, find_topic

SLOW = ("textual", "rich", "kubernetes", "aiohttp", "torch", "numpy", "tensorboard", "msgspec")


async def imported_by(*lines: str, home: Path) -> set[str]:
    """Return the modules that are loaded once these commands have run."""
    code = (
        "import sys\n"
        "from tui.__main__ import main\n"
        "for line in sys.argv[1:]:\n"
        "    try:\n        main(line.split())\n    except SystemExit:\n        pass\n"
        "sys.stderr.write('|'.join(sys.modules))"
    )
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-c", code, *lines),
        env={"PYTHONPATH": str(ROOT), "HOME": str(home)},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, err = await child.communicate()
    return {name.partition(".")[0] for name in err.decode().splitlines()[-1].split("|")}


async def test_help_loads_nothing_that_is_slow(tmp_path: Path) -> None:
    loaded = await imported_by("--help", home=tmp_path)
    assert "argparse" in loaded
    assert not loaded & {*SLOW, "yaml"}


@pytest.mark.slow
async def test_one_shot_commands_load_neither_the_screens_nor_torch(tmp_path: Path) -> None:
    submit = "submit pytorch --name x --image y --dry-run client --trainer ddp"
    loaded = await imported_by("list", submit, home=tmp_path)
    assert "asyncio" in loaded
    assert not loaded & {"textual", "rich", "torch", "numpy", "tensorboard", "plotext"}


async def test_commands_that_read_no_log_import_no_aiohttp(run: CommandLine) -> None:
    lines = ("list", "top nodes", "get waits", "data list")
    flag = f"--kubeconfig {run.home / 'kubeconfig'}"
    loaded = await imported_by(*(f"{line} {flag}" for line in lines), home=run.home)
    asked = {each.path.rpartition("/")[2] for each in run.cluster.requests}
    assert asked >= {"pods", "nodes", "services", "persistentvolumeclaims"}
    assert not loaded & {"aiohttp", "textual", "rich", "torch", "numpy"}


async def test_every_command_has_a_help_of_its_own(alone: CommandLine) -> None:
    overview = await alone("--help")
    assert overview.status == 0
    for command in COMMANDS:
        assert command.name in overview.out
        ended = await alone(command.name, "--help")
        assert (ended.status, ended.err) == (0, "")
        assert ended.out.startswith(f"usage: gpuconsole {command.name}")
        assert "--kubeconfig" in ended.out


async def test_printing_the_version_does_not_import_asyncio_or_argparse(tmp_path: Path) -> None:
    assert not await imported_by("--version", home=tmp_path) & {"asyncio", "argparse", "importlib.metadata"}


async def test_the_version_is_printed(alone: CommandLine) -> None:
    assert (await alone("--version")).out.startswith("gpuconsole ")


@pytest.mark.parametrize(
    "words",
    [
        ("fly",),
        ("list", "--colour"),
        ("list", "-o", "xml"),
        ("top",),
        ("top", "pods"),
        ("get",),
        ("delete",),
        ("logs", "x", "--since", "yesterday"),
        ("logs", "x", "-i", "a", "-r", "1"),
        ("logs", "x", "-t", "few"),
        ("list", "--", "words"),
        ("sandbox", "dance"),
        ("get", "Nonsense/x"),
        ("get", "/"),
        ("submit",),
        ("submit", "gan"),
        ("list", "--name", "x"),
    ],
)
async def test_a_usage_error_is_reported_in_at_most_three_lines(
    run: CommandLine, words: tuple[str, ...]
) -> None:
    ended = await run(*words)
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.rstrip().endswith("--help")
    assert len(ended.err.splitlines()) <= 3


@pytest.mark.parametrize("line", ["top jobs x", "get Nonsense/x", "submit job --name A"])
async def test_a_usage_error_refers_to_the_help_of_the_command(run: CommandLine, line: str) -> None:
    words = line.split()
    assert (await run(*words)).err.rstrip().endswith(f"See gpuconsole {words[0]} --help")


async def test_useless_cluster_flags_with_the_sandbox_are_reported(alone: CommandLine) -> None:
    ended = await alone("sandbox", "kubeconfig", "--sandbox", "--context", "lab", "--kubeconfig", "x")
    assert "Without effect here: --kubeconfig, --context." in ended.err


@pytest.mark.parametrize(
    "words", [("list",), ("get", "x"), ("logs", "x"), ("data", "list"), ("top", "nodes")]
)
async def test_without_a_kubeconfig_the_sandbox_is_offered(
    alone: CommandLine, words: tuple[str, ...]
) -> None:
    (await alone(*words)).reports(1, "There is no kubeconfig at ~/.kube/config", "gpuconsole --sandbox")


async def test_an_invalid_or_missing_kubeconfig_is_named_in_the_error(alone: CommandLine) -> None:
    broken = alone.home / "broken"
    broken.write_text("a: [b")
    for path in (str(broken), str(alone.home / "missing")):
        ended = await alone("list", "--kubeconfig", path)
        assert ended.status == 1
        assert path in ended.err


async def test_an_unknown_context_is_named(run: CommandLine) -> None:
    ended = await run("list", "--context", "mars")
    assert ended.status == 1
    assert "mars" in ended.err


async def test_an_unreachable_server_is_reported_with_its_address(alone: CommandLine) -> None:
    alone.set("KUBECONFIG", write_kubeconfig(alone.home, "http://127.0.0.1:9"))
    ended = await alone.process("list")
    assert (ended.status, ended.out) == (1, "")
    assert ended.err.startswith("Could not list ")
    assert "127.0.0.1" in ended.err


@pytest.mark.parametrize(
    ("code", "words"), [(401, "Unauthorized"), (500, "etcd has no leader"), (429, "too many requests")]
)
async def test_a_server_refusal_is_reported(alone: CommandLine, code: int, words: str) -> None:
    async with ScriptedCluster() as cluster:
        for path in ("/api/v1/nodes", "/api/v1/pods", "/apis/batch/v1/jobs"):
            cluster.say(path, refusal(code, words))
        alone.set("KUBECONFIG", write_kubeconfig(alone.home, cluster.host))
        ended = await alone("list")
    assert (ended.status, ended.out) == (1, "")
    assert words in ended.err
    assert "secret-token" not in ended.err


async def test_list_fails_if_no_jobs_may_be_listed(alone: CommandLine) -> None:
    async with ScriptedCluster() as cluster:
        for path in ("/apis/kubeflow.org/v1/pytorchjobs", "/apis/batch/v1/jobs"):
            for place in (path, path.replace("/v1/", "/v1/namespaces/default/")):
                cluster.say(place, refusal(403, 'User "li" cannot list jobs', "Forbidden"))
        alone.set("KUBECONFIG", write_kubeconfig(alone.home, cluster.host))
        ended = await alone("list")
    assert (ended.status, ended.out) == (1, "")
    assert ended.err.splitlines()[:-1] == [
        "Could not list jobs in namespace default.",
        'The cluster says: User "li" cannot list jobs',
    ]


async def test_a_missing_job_is_named_in_the_error(run: CommandLine) -> None:
    for words in (("get", "nope[/b]x"), ("logs", "nope[/b]x"), ("events", "nope[/b]x"), ("curves", "nope")):
        ended = await run(*words)
        assert ended.out == ""
        assert ended.status in (1, 2)
        assert "nope" in ended.err


async def test_a_foreign_package_that_shadows_ours_is_named_without_a_traceback(alone: CommandLine) -> None:
    (alone.home / "themes").mkdir()
    (alone.home / "themes" / "__init__.py").write_text("")
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "tui", "list"),
        env={"PYTHONPATH": f"{alone.home}:{ROOT}", "HOME": str(alone.home)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await child.communicate()
    assert (child.returncode, out) == (1, b"")
    assert str(alone.home / "themes") in err.decode()
    assert "Traceback" not in err.decode()


async def test_ctrl_c_ends_quietly(run: CommandLine) -> None:
    pods = "/api/v1/namespaces/default/pods"
    run.cluster.replace(pods, Stream())
    child = await run.start("list")
    await run.cluster.until_asked(pods)
    child.send_signal(signal.SIGINT)
    out, err = await child.communicate()
    assert (child.returncode, out, err) == (130, b"", b"")


@pytest.mark.parametrize(
    "reply",
    [
        Answer(b"404 page not found", 404),
        Answer(b"<html>Unsupported method", 501),
        Answer(b"<html>", headers={"Content-Type": "text/html"}),
    ],
    ids=["404", "501", "a page"],
)
@pytest.mark.parametrize(
    "words",
    [
        ("list",),
        ("list", "-A", "-o", "json"),
        ("top", "nodes"),
        ("top", "jobs"),
        ("get", "bert"),
        ("data", "list"),
        ("delete", "bert", "--yes"),
        ("submit", "pytorch", "--name", "x", "--image", "y", "true"),
    ],
    ids=" ".join,
)
async def test_every_command_reports_a_server_that_is_not_a_kubernetes_api(
    run: CommandLine, reply: Answer, words: tuple[str, ...]
) -> None:
    run.cluster.say_everywhere(reply)
    ended = await run(*words)
    assert (ended.status, ended.out) == (1, "")
    assert ended.err.startswith("This address answers, but it is not a Kubernetes API.\n")
    assert f"{run.cluster.host}/version" in ended.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("lst",), "invalid choice: 'lst'; did you mean list?\n"),
        (("sumbit",), "did you mean submit?\n"),
        (("serv",), "invalid choice: 'serv'\n"),
        (("lgs",), "invalid choice: 'lgs'; did you mean logs?\n"),
        (("submit", "pytroch"), "did you mean pytorch? choose from pytorch, "),
        (("list", "-o", "jsn"), "did you mean json? choose from table, wide, json, yaml"),
    ],
)
async def test_a_wrong_choice_gets_suggestions(alone: CommandLine, words: tuple[str, ...], said: str) -> None:
    ended = await alone(*words)
    assert ended.status == 2
    assert said in ended.err
    choices = ended.err.splitlines()[0].partition("choose from ")[2].split(", ")
    assert not {"serve", "whoami", "ls", "ray", "etjob"} & set(choices)


WIDE = "NAME KIND STATUS PODS GPU(Requested) GPU(Allocated) DURATION NODES"


@pytest.mark.parametrize(
    ("columns", "titles"),
    [
        (200, WIDE),
        (80, "NAME KIND STATUS PODS GPU HELD TIME"),
        (56, "NAME STATUS PODS GPU HELD TIME"),  # whatever the age of the jobs is by now
    ],
)
async def test_a_list_fits_the_terminal(
    run: CommandLine, monkeypatch: pytest.MonkeyPatch, columns: int, titles: str
) -> None:
    piped = await run("list")
    assert piped.titles() == WIDE.split()
    assert max(map(len, piped.out.splitlines())) > 80
    run.set("COLUMNS", str(columns))
    monkeypatch.setattr(sys, "stdout", shown := PretendedTerminal())
    assert (await run("list")).status == 0
    lines = shown.printed.splitlines()
    assert lines[0].split() == titles.split()
    assert len(lines) == len(piped.out.splitlines())
    assert max(map(len, lines)) <= columns
    if columns == 80:
        assert next(line.split()[1] for line in lines if line.startswith("running ")) == "pytorch"


async def test_an_unreachable_sandbox_is_reported_with_the_start_command(alone: CommandLine) -> None:
    for context, said in ((CONTEXT, "gpuconsole sandbox start"), ("lab", "Start the cluster, or correct")):
        path = Path(write_kubeconfig(alone.home, "http://127.0.0.1:9"))
        path.write_text(path.read_text().replace('"recorded"', f'"{context}"'))
        alone.set("KUBECONFIG", str(path))
        ended = await alone("list")
        assert (ended.status, said in ended.err) == (1, True), ended.err


async def test_get_explains_how_to_reach_a_tensorboard(run: CommandLine) -> None:
    service = {
        "metadata": {"name": "running-tensorboard", "labels": {"role": "tensorboard", "release": "running"}},
        "spec": {"ports": [{"port": 6006}], "selector": {"app": "board"}},
    }
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    for path, objects in (
        ("services", [service]),
        ("pods", [{"metadata": {"name": "board"}, "status": ready}]),
    ):
        place = f"/api/v1/namespaces/default/{path}"
        if path == "services":
            run.cluster.replace(place, page(objects))
        else:
            recorded = Answer({"metadata": {"resourceVersion": "1"}, "items": objects})
            run.cluster.replace(place, recorded)
    printed = await run("get", "running", "-n", "default")
    assert "TensorBoard:  gpuconsole -n default forward running" in printed.out, printed
    assert (await run("get", "running", "-o", "json")).values["tensorboard"] is None


@pytest.mark.parametrize("topic", TOPICS)
def test_every_chapter_is_printed_without_its_markers(topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", topic]) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[1] == "=" * len(printed.splitlines()[0])
    prose = [line for line in printed.splitlines() if not line.startswith("    ")]
    assert not [line for line in prose if re.search(r"<!--|\*\*|^\s*\||^#|```|\]\(", line)]


def test_a_chapter_is_wrapped_with_aligned_tables_and_without_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "# Title\n\nOne **bold** and\n`a *b*` line, [see](x.md).\n- item `x`\n  goes *on* and on and on\n\n"
        "| key | does |\n|---|---|\n| `a\\|b` | one two three four |\n\n```sh\n# run\n```\n\n"
        "    a   # `x`\n    b | c\n"
    )
    monkeypatch.setattr(manual, "read_chapter", lambda _topic: text)
    assert manual.chapter_text("any", 20).splitlines() == [
        *(
            "Title",
            "=====",
            "",
            "One bold and a *b*",
            "line, see.",
            "- item x goes on and",
            "  on and on",
            "",
        ),
        *("key  does", "a|b  one two three", "     four", "", "    # run", "", "    a   # `x`", "    b | c"),
    ]


def test_help_without_a_topic_lists_all_topics(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help"]) == 0
    printed = capsys.readouterr().out
    assert all(f"\n{topic} " in printed for topic in TOPICS)


@pytest.mark.parametrize("command", [name for each in COMMANDS for name in (each.name, *each.aliases)])
def test_help_prints_the_chapter_or_the_usage_of_every_command(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        main(["help", command])
    except SystemExit as end:
        assert end.code == 0
    assert capsys.readouterr().out.startswith("usage: gpuconsole") is not bool(find_topic(command))


def test_an_unknown_topic_is_wrong_usage_and_lists_the_topics(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "nonsense"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "There is no topic 'nonsense'." in captured.err
    assert "topology" in captured.err


def test_a_unique_prefix_of_a_topic_finds_it_in_any_case() -> None:
    assert find_topic("topo") == "topology"
    assert find_topic("c") == ""
    assert find_topic("LOGS") == "logs"


async def test_sandbox_status_and_stop_report_a_sandbox_that_is_not_running(alone: CommandLine) -> None:
    found = (await alone("sandbox", "status", "-o", "json")).values
    assert (found["is_running"], found["pid"], found["started"]) == (False, 0, None)
    assert found["folder"] == str(alone.home / "data/gpuconsole/sandbox")
    assert (await alone("sandbox", "status")).out.startswith("The sandbox is not running.\n")
    assert (await alone("sandbox", "stop")).out == "The sandbox is not running.\n"
    assert (await alone("sandbox", "reset", "--yes")).status == 0


@pytest.mark.parametrize(
    ("line", "status", "said"),
    [
        ("kubeconfig", 1, "gpuconsole sandbox start"),
        ("start --nodes -1", 2, "--nodes"),
        ("start --container-log-max-size=10", 2, "'10' is not a"),
        ("start --container-log-max-size=much", 2, "'much' is not a"),
        ("start --container-log-max-size=-64Mi", 2, "'-64Mi' is not a"),
        ("start --container-log-max-files=1", 2, "'1' is not a"),
        ("start --container-log-max-files=x", 2, "'x' is not a"),
        ("start --links dgx-1v --gpus-per-node 9", 2, "a machine with --links dgx-1v has at most 8."),
        ("start --links dgx-9", 2, "invalid choice: 'dgx-9'"),
    ],
)
async def test_a_sandbox_that_cannot_be_is_refused(
    alone: CommandLine, line: str, status: int, said: str
) -> None:
    (await alone("sandbox", *line.split())).reports(status, said)


async def test_the_man_page_names_every_command_and_renders(alone: CommandLine) -> None:
    ended = await alone("help", "--man")
    assert ended.status == 0
    for command in COMMANDS:
        assert f"\n.SS\n{command.name}" in ended.out
    assert "0 done; 1 failed" in ended.out
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    words = ("groff", "-man", "-ww", "-Tutf8")
    done = subprocess.run(words, input=ended.out, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert "GPUCONSOLE(1)" in done.stdout


PODS = "/api/v1/namespaces/default/pods"
CLAIMS = "persistentvolumeclaims"


def groups_of(asked: Asked) -> list[str]:
    """Return the groups of a request, each of which has a header of its own."""
    return [value for name, value in asked.headers.items() if name == "Impersonate-Group"]


async def test_the_user_to_act_as_is_sent_with_each_request(run: CommandLine) -> None:
    ended = await run("list", "--as", "wu", "--as-group=dev", "--as-group=ops")
    assert ended.status == 0, ended.err
    assert run.cluster.requests
    for asked in run.cluster.requests:
        assert asked.headers.get("Impersonate-User") == "wu"
        assert groups_of(asked) == ["dev", "ops"]
        assert asked.headers["Authorization"] == "Bearer secret-token"
    (await run("list", "--as-group", "dev")).reports(2, "--as-group needs --as")


async def test_a_token_and_a_server_replace_those_of_the_kubeconfig(run: CommandLine) -> None:
    assert (await run("list", "--token", "other", "--server", f"{run.cluster.host}/")).status == 0
    assert run.cluster.asked(PODS)[-1].headers["Authorization"] == "Bearer other"
    gone = await run("list", "--server", "http://127.0.0.1:1")
    assert gone.status == 1
    assert "Traceback" not in gone.err
    (await run("list", "--server", "ftp://x")).reports(1, "https:// or http://")


async def test_a_server_needs_no_kubeconfig(alone: CommandLine, cluster: ScriptedCluster) -> None:
    ended = await alone("list", "--server", cluster.host, "--token", "other")
    assert (ended.status, ended.titles()[0]) == (0, "NAME")
    assert cluster.asked(PODS)[-1].headers["Authorization"] == "Bearer other"
    (await alone("list", "--server", cluster.host, "--context", "lab")).reports(1, "no context lab")
    (await alone("list", "--server", "https://[")).reports(1, "--server")
    (await alone("list")).reports(1, "--sandbox")


async def test_the_console_needs_no_kubeconfig_with_a_server(
    tmp_path: Path, cluster: ScriptedCluster
) -> None:
    env = {name: value for name, value in os.environ.items() if name != "KUBERNETES_SERVICE_HOST"}
    env |= {"HOME": str(tmp_path), "KUBECONFIG": str(tmp_path / "none")}
    words = [sys.executable, "-P", "-m", "tui", "--server", cluster.host, "--token", "other"]

    def open_console() -> None:
        with Terminal(words, env=env, folder=ROOT) as terminal:
            terminal.wait_for(lambda text: cluster.requests or "sandbox?" in text)
            assert "sandbox?" not in terminal.text
            terminal.send("\x03")
            terminal.wait_for_end()

    await asyncio.to_thread(open_console)
    assert cluster.requests[0].headers["Authorization"] == "Bearer other"


@pytest.mark.parametrize(
    ("name", "value", "path"),
    [
        ("NAMESPACE", "vision", f"/api/v1/namespaces/vision/{CLAIMS}"),
        ("ALL_NAMESPACES", "true", f"/api/v1/{CLAIMS}"),
    ],
)
async def test_namespace_flags_are_read_from_environment_variables_and_overridden_by_flags(
    run: CommandLine, name: str, value: str, path: str
) -> None:
    run.set(f"GPUCONSOLE_{name}", value)
    await run("data", "list")
    assert len(run.cluster.asked(path)) == 1
    await run("data", "list", "-n", "default")
    assert len(run.cluster.asked(path)) == 1
    assert run.cluster.asked(f"/api/v1/namespaces/default/{CLAIMS}")


async def test_impersonation_token_readonly_and_timeout_flags_are_read_from_the_environment(
    run: CommandLine,
) -> None:
    run.set("GPUCONSOLE_AS", "wu")
    run.set("GPUCONSOLE_AS_GROUP", "dev,ops")
    run.set("GPUCONSOLE_TOKEN", "other")
    run.set("GPUCONSOLE_READONLY", "1")
    assert (await run("list")).status == 0
    asked = run.cluster.asked(PODS)[-1]
    assert groups_of(asked) == ["dev", "ops"]
    assert asked.headers["Authorization"] == "Bearer other"
    (await run("delete", "running", "--yes")).reports(1, "--readonly")
    run.set("GPUCONSOLE_REQUEST_TIMEOUT", "soon")
    (await run("list")).reports(2, "--request-timeout: 'soon' is not a duration")


async def test_a_kubectl_plugin_prints_its_own_invocation_in_help_and_hints(
    run: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["/home/li/bin/kubectl-gpuconsole"])
    assert "usage: kubectl gpuconsole " in (await run("list", "--help")).out
    assert "kubectl gpuconsole -n default why fails" in (await run("-n", "default", "wait", "fails")).err
    assert "See kubectl gpuconsole list --help" in (await run("list", "-l", "a in")).err


@pytest.fixture
def config(run: CommandLine) -> Path:
    path = Path(run.home) / "config" / "gpuconsole" / "config.yaml"
    path.parent.mkdir(parents=True)
    return path


async def test_list_prints_the_chosen_columns(run: CommandLine, config: Path) -> None:
    config.write_text("columns: {jobs: [gpus, name, {title: TEAM, path: .metadata.labels.team}, duration]}\n")
    wide = (await run("list", "-o", "wide")).out.splitlines()[0].split()
    assert wide == ["GPUS", "NAME", "TEAM", "DURATION"]
    assert (await run("list", "-o", "csv")).out.splitlines()[0] == "gpus,name,TEAM,duration_s"
    assert (await run("list")).out.split()[0] != "GPUS"
    assert "TEAM" not in (await run("list", "-o", "json")).values["items"][0]


async def test_commands_respect_the_context(run: CommandLine, config: Path) -> None:
    config.write_text("contexts: {'*': {readonly: true, namespace: nowhere}}\n")
    refused = await run("delete", "anything", "--yes")
    assert refused.status == 1 and "Changes are disabled by config.yaml in this context." in refused.err
    assert "nowhere" in (await run("list")).err
    assert "nowhere" not in (await run("-n", "default", "list")).err


async def test_a_command_refuses_an_unknown_theme_with_those_there_are(alone: CommandLine) -> None:
    ended = await alone("info", "--theme", "drak")
    ended.reports(2, "There is no theme 'drak'.\nDid you mean dark? There are: dark, light, contrast")
