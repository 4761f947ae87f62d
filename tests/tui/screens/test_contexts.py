"""Going from one cluster to another in any state, and settings and columns that follow the context."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import themes
from k8s.models.base import keep_annotations
from tests.scripted.server import Object, Reply, ScriptedCluster, Stall, Stream, page
from tests.support.objects import node, pytorch_job
from tests.support.playground import LISTS, Playground, some_objects
from tests.support.playground import console_on as one_console
from tests.support.screen_text import resize
from tui.app import Console
from tui.screens.job.job import JobView
from tui.screens.lists.jobs import JobsView
from tui.screens.lists.nodes import NodesView
from tui.settings.options import Alias, ConsoleOptions, ContextSettings, OwnColumn
from tui.tables.column import annotations_in


def serve(cluster: ScriptedCluster, job: str, namespace: str = "default") -> None:
    """Let a cluster have one node and one job, and say nothing more."""
    cluster.say("/apis", page([]))
    made = pytorch_job(job, gpus=1)
    made["metadata"]["namespace"] = namespace
    for name, path in LISTS.items():
        items: dict[str, list[Any]] = {"nodes": [node("a", 8)], "jobs": [made]}
        cluster.say(path, page(items.get(name, [])))
        cluster.say(path, Stream(), Stall(), watch=True)


def hang(cluster: ScriptedCluster, reply: Reply) -> None:
    """Let a cluster take every request and answer none, as behind a link that is down."""
    for path in ("/version", "/apis", *LISTS.values()):
        cluster.forget(path)
        cluster.say(path, reply)
        cluster.forget(path, watch=True)
        cluster.say(path, reply, watch=True)


def kubeconfig_of(hosts: Mapping[str, str], users: Mapping[str, Any] | None = None) -> Object:
    """Return a kubeconfig with a context for each host; the first is current."""
    return {
        "clusters": [
            {"name": f"{name}-cluster", "cluster": {"server": host}} for name, host in hosts.items()
        ],
        "users": [
            {"name": f"{name}-user", "user": (users or {}).get(name) or {"token": "SECRET"}} for name in hosts
        ],
        "contexts": [
            {
                "name": name,
                "context": {"cluster": f"{name}-cluster", "user": f"{name}-user", "namespace": f"{name}-ns"},
            }
            for name in hosts
        ],
        "current-context": next(iter(hosts)),
    }


def nobody() -> str:
    """Return an address without a listener."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


class Clusters:
    def __init__(self, play: Playground, served: Mapping[str, ScriptedCluster], kubeconfig: Path) -> None:
        self.play, self.served, self.kubeconfig = play, served, kubeconfig

    async def command(self, words: str) -> None:
        keys = ("space" if char == " " else "minus" if char == "-" else char for char in words)
        await self.play.press("colon", *keys, "enter")

    @property
    def header(self) -> str:
        return self.play.text.splitlines()[0]

    def has_line_with(self, *words: str) -> bool:
        lines = (" ".join(line.split()) for line in self.play.text.splitlines())
        return any(all(word in line for word in words) for line in lines)

    async def until_shown(self, context: str, job: str) -> None:
        await self.play.until(lambda: f"{context} / " in self.header and job in self.play.text)


@asynccontextmanager
async def console_on(
    tmp_path: Path,
    *names: str,
    extra: Mapping[str, str] | None = None,
    users: Mapping[str, Any] | None = None,
    **options: Any,
) -> AsyncIterator[Clusters]:
    """Open a console with a cluster for each name, which has a job called `job-NAME`."""
    async with AsyncExitStack() as stack:
        served = {name: await stack.enter_async_context(ScriptedCluster()) for name in names}
        for name, cluster in served.items():
            serve(cluster, f"job-{name}", f"{name}-ns")
        hosts = {name: cluster.host for name, cluster in served.items()} | dict(extra or {})
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(json.dumps(kubeconfig_of(hosts, users)))
        console = Console(
            ConsoleOptions(kubeconfig=str(kubeconfig), state_folder=tmp_path / "state", **options)
        )
        async with console.run_test(size=(120, 40), notifications=True) as pilot:
            play = Playground(next(iter(served.values())), pilot, {})
            clusters = Clusters(play, served, kubeconfig)
            await clusters.until_shown(names[0], f"job-{names[0]}")
            yield clusters


@pytest.mark.slow
async def test_contexts_are_listed_with_their_cluster_and_enter_switches_to_one(tmp_path: Path) -> None:
    async with console_on(tmp_path, "lab", "prod") as clusters:
        play = clusters.play
        await clusters.command("ctx")
        assert " Contexts" in play.text
        await play.until(lambda: play.table.row_count == 2)
        host = clusters.served["prod"].host
        wide = [("prod-cluster", host)]
        for size, more in (((80, 24), []), ((120, 40), wide), ((200, 60), [*wide, ("prod-user",)])):
            await resize(play.pilot, *size)
            for words in (("* lab", "lab-ns"), ("prod", "prod-ns"), *more):
                await play.until(partial(clusters.has_line_with, *words))
            assert "SECRET" not in play.text
        for keys, rows in ((("slash", *"prod", "enter"), 1), (("escape",), 2)):
            await play.press(*keys)
            assert play.table.row_count == rows
        await play.press("G", "enter")
        await clusters.until_shown("prod", "job-prod")
        assert isinstance(play.console.screen, JobsView)
        assert "prod-user" in clusters.header and "prod-ns" in clusters.header
        await play.until(lambda: "job-lab" not in play.text)


@pytest.mark.slow
async def test_a_context_command_with_a_name_switches_immediately(tmp_path: Path) -> None:
    async with console_on(tmp_path, "lab", "prod") as clusters:
        await clusters.command("ctx prdo")
        await clusters.play.until(lambda: "There are: lab, prod" in clusters.play.text)
        assert "lab / lab-ns" in clusters.header and "job-lab" in clusters.play.text
        for word, name in (("ctx", "prod"), ("context", "lab"), ("contexts", "prod")):
            await clusters.command(f"{word} {name}")
            await clusters.until_shown(name, f"job-{name}")


async def test_switching_away_from_a_hanging_cluster_clears_its_rows_immediately(tmp_path: Path) -> None:
    async with console_on(tmp_path, "lab", "prod") as clusters:
        play = clusters.play
        hang(clusters.served["lab"], Stall())
        hang(clusters.served["prod"], Stall())
        await play.press("ctrl+r")
        await clusters.command("ctx prod")
        await play.until(lambda: "prod / " in clusters.header)
        assert "job-lab" not in play.text and "lab" not in clusters.header
        await play.until(lambda: "Reading the cluster" in play.text)
        # The new one hangs as well, and can be left too.
        serve_again = clusters.served["lab"]
        for path in ("/version", "/apis", *LISTS.values()):
            serve_again.forget(path)
            serve_again.forget(path, watch=True)
        serve(serve_again, "job-again", "lab-ns")
        await clusters.command("ctx lab")
        await clusters.until_shown("lab", "job-again")


@pytest.mark.slow
async def test_switching_context_closes_views_of_the_old_cluster_and_clears_the_view_history(
    tmp_path: Path,
) -> None:
    async with console_on(tmp_path, "lab", "prod") as clusters:
        play = clusters.play
        await play.press("enter", shows=JobView)
        await clusters.command("ctx prod")
        await clusters.until_shown("prod", "job-prod")
        assert isinstance(play.console.screen, JobsView)
        await play.press("minus", shows="No previous view yet.")
        await play.press("escape", shows=JobsView)
        await play.press("enter")
        await play.until(lambda: isinstance(play.console.screen, JobView) and "job-prod" in play.text)


async def test_switching_context_closes_watches_of_the_old_cluster(tmp_path: Path) -> None:
    async with console_on(tmp_path, "lab", "prod") as clusters:
        lab = clusters.served["lab"]
        watch = Stream()
        lab.forget(LISTS["pods"], watch=True)
        lab.say(LISTS["pods"], watch, Stall(), watch=True)
        await clusters.command("ctx lab")
        await lab.until_asked(LISTS["pods"], 2, watch=True)
        await clusters.command("ctx prod")
        await clusters.play.until(watch.is_over.is_set)


@pytest.mark.slow
async def test_an_unreachable_cluster_can_be_entered_navigated_and_left(tmp_path: Path) -> None:
    async with console_on(tmp_path, "lab", extra={"dead": nobody()}) as clusters:
        play = clusters.play
        await clusters.command("ctx dead")
        await play.until(lambda: "dead / dead-ns" in clusters.header and "away" in clusters.header)
        assert "job-lab" not in play.text
        await clusters.command("ns other")
        await play.until(lambda: "dead / other" in clusters.header)
        await clusters.command("ns all")
        await play.until(lambda: "dead / all namespaces" in clusters.header)
        await play.press("tab", shows=NodesView)
        await play.press("slash", "x", "escape", "question_mark", "escape", "escape", "ctrl+r")
        assert isinstance(play.console.screen, JobsView)
        await clusters.command("ctx lab")
        await clusters.until_shown("lab", "job-lab")
        assert "all namespaces" in clusters.header


async def test_a_failed_login_is_reported_under_the_context_name_and_can_be_retried(tmp_path: Path) -> None:
    version = "client.authentication.k8s.io/v1"
    failing = {"exec": {"apiVersion": version, "command": "sh", "args": ["-c", "echo no badge >&2; exit 1"]}}
    async with console_on(tmp_path, "lab", "prod", users={"prod": failing}) as clusters:
        await clusters.command("ctx prod")
        await clusters.play.until(lambda: "no badge" in clusters.play.text)
        assert "prod / " in clusters.header and "job-lab" not in clusters.play.text
        clusters.kubeconfig.write_text(
            json.dumps(kubeconfig_of({name: each.host for name, each in clusters.served.items()}))
        )
        await clusters.play.press("ctrl+r")
        await clusters.until_shown("prod", "job-prod")


async def test_a_slow_exec_login_does_not_block_the_console(tmp_path: Path) -> None:
    slow = {"exec": {"apiVersion": "v1", "command": "sleep", "args": ["600"]}}
    async with console_on(tmp_path, "lab", "prod", users={"prod": slow}) as clusters:
        await clusters.command("ctx prod")
        await clusters.play.until(lambda: "Connecting to prod" in clusters.play.text)
        assert "prod / " in clusters.header and "job-lab" not in clusters.play.text
        await clusters.command("ctx lab")
        await clusters.until_shown("lab", "job-lab")


async def test_a_namespace_chosen_while_connecting_is_shown_once_connected(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    answer = {"apiVersion": "v1", "kind": "ExecCredential", "status": {"token": "t"}}
    script = f"while [ ! -e '{gate}' ]; do sleep 0.05; done; echo '{json.dumps(answer)}'"
    slow = {"exec": {"apiVersion": "v1", "command": "sh", "args": ["-c", script]}}
    async with console_on(tmp_path, "lab", "prod", users={"prod": slow}) as clusters:
        await clusters.command("ctx prod")
        await clusters.play.until(lambda: "Connecting to prod" in clusters.play.text)
        await clusters.command("ns other")
        gate.touch()
        await clusters.play.until(lambda: "prod / other" in clusters.header)


async def test_a_malformed_kubeconfig_is_reported_in_the_context_list_without_secrets(tmp_path: Path) -> None:
    async with console_on(tmp_path, "lab") as clusters:
        clusters.kubeconfig.write_text("a: [SECRET")
        await clusters.command("ctx")
        await clusters.play.until(lambda: "kubeconfig: line" in clusters.play.text)
        assert "There is no context." in clusters.play.text and "SECRET" not in clusters.play.text
        await clusters.play.press("escape")
        assert "job-lab" in clusters.play.text


async def test_going_back_to_the_list_opened_by_a_context_switch_does_not_reconnect(tmp_path: Path) -> None:
    async with console_on(tmp_path, "lab", "prod") as clusters:
        await clusters.until_shown("lab", "job-lab")
        await clusters.command("ctx prod")
        await clusters.until_shown("prod", "job-prod")
        console = clusters.play.console
        assert isinstance(console, Console)
        session = console.session
        await clusters.command("nodes")
        await clusters.play.until(lambda: isinstance(clusters.play.console.screen, NodesView))
        await clusters.play.press("minus")
        await clusters.play.until(lambda: isinstance(clusters.play.console.screen, JobsView))
        assert console.session is session and session is not None
        assert "Connecting" not in clusters.play.text and "job-prod" in clusters.play.text


NOTE = OwnColumn("NOTE", "metadata.annotations['example.com/note']")
TEAM = OwnColumn("TEAM", ".metadata.labels.team")
PROD = (
    ContextSettings(pattern="prod*", read_only=True, namespace="train", theme="light"),
    ContextSettings(pattern="*", theme="nowhere"),
)


def labelled() -> dict[str, Any]:
    """Return objects with labels, and an annotation that is not for a terminal."""
    found: dict[str, Any] = json.loads(json.dumps(some_objects()))
    for each in (*found["jobs"], *found["nodes"], *found["pods"]):
        each["metadata"].setdefault("labels", {})["team"] = "vision"
        each["metadata"]["annotations"] = {
            "example.com/note": "\x1b[31mred\n[bold]",
            "example.com/other": "x",
        }
    return found


def has_titles(play: Playground, found: list[str]) -> bool:
    return titles(play) == found


def titles(play: Playground) -> list[str]:
    return [column.title for column in play.table.columns]


async def test_lists_have_the_chosen_columns(tmp_path: Path) -> None:
    columns: dict[str, tuple[str | OwnColumn, ...]] = {
        "jobs": ("priority", "name", TEAM, NOTE, OwnColumn("WHO", ".user")),
        "nodes": ("status", TEAM, "name"),
        "pods": ("name", TEAM, NOTE),
        "events": ("type", "age"),
    }
    keep_annotations(annotations_in(columns))
    try:
        async with one_console(tmp_path, **labelled(), columns=columns) as play:
            assert titles(play) == ["PRIORITY", "NAME", "TEAM", "NOTE", "WHO"]
            assert "vision" in play.text and "red␊[bold]" in play.text
            await play.press("c")
            assert play.console.screen.copy_text() in ("bert", "waits")  # type: ignore[attr-defined]
            for command, found in (
                ("nodes", ["STATUS", "TEAM", "NODE"]),
                ("pods", ["NAME", "TEAM", "NOTE"]),
                ("events", ["TYPE", "AGE"]),
            ):
                await play.press("colon", *command, "enter")
                await play.until(partial(has_titles, play, found))
                if command != "events":
                    await play.until(lambda: "vision" in play.text)
    finally:
        keep_annotations(())


def test_only_wanted_annotations_are_kept() -> None:
    assert annotations_in({"jobs": ("name", NOTE, TEAM)}) == {"example.com/note"}


async def test_aliases_are_commands(tmp_path: Path) -> None:
    aliases = {"no1": Alias("nodes", 2), "bb": Alias("jobs", 3), "q": Alias("nodes", 4), "x": Alias("svc", 5)}
    async with one_console(tmp_path, **some_objects(), aliases=aliases) as play:
        assert "line 4, aliases: :q is a command already." in " ".join(play.text.replace("│", "").split())
        assert "line 5, aliases: x: there is no command :svc." in " ".join(play.text.replace("│", "").split())
        await play.press("escape", "colon", *"no1", "enter")
        assert "Nodes (2)" in play.text
        await play.press("colon", *"bb /wai", "enter")
        assert "/wai" in play.text
        await play.press("colon", "x", "enter")
        assert "Unknown command :svc." in play.text
        await play.press("ctrl+a", "G")
        assert "Your own: svc" in play.text


@pytest.mark.slow
async def test_settings_follow_the_context(tmp_path: Path) -> None:
    async with console_on(tmp_path, "lab", "prod", contexts=PROD) as clusters:
        play = clusters.play
        assert "There is no theme nowhere." in play.text
        await play.press("escape")
        await clusters.command("theme contrast")
        chosen = play.console.theme
        await clusters.command("ctx prod")
        await play.until(lambda: "prod / train" in clusters.header)
        assert "read-only" in clusters.header and play.console.theme == themes.find(
            "light", play.console.palettes
        )
        await play.press("n")
        assert "Changes are disabled by config.yaml in this context." in play.text
        await clusters.command("new")
        assert "Changes are disabled by config.yaml in this context." in play.text
        await clusters.command("ctx lab")
        await clusters.until_shown("lab", "job-lab")
        assert "read-only" not in clusters.header and play.console.theme == chosen
        await clusters.command("ctx prod")
        await play.until(lambda: "read-only" in clusters.header)


async def test_a_flag_counts_more_than_the_context(tmp_path: Path) -> None:
    contexts = (ContextSettings(pattern="*", read_only=False, namespace="x", theme="light"),)
    options: dict[str, Any] = {"is_read_only": True, "is_theme_fixed": True, "contexts": contexts}
    async with console_on(tmp_path, "lab", "prod", **options) as clusters:
        theme = clusters.play.console.theme
        await clusters.command("ctx prod")
        await clusters.play.until(lambda: "prod / x" in clusters.header)
        assert "read-only" in clusters.header and clusters.play.console.theme == theme
