"""The console: it owns the cluster's picture and the stack of views, and does what views wish for.

Only home is imported at the start. What talks to the cluster, and every other view, is
imported when it is first needed, because a console is opened many times a day.
"""

from __future__ import annotations

import asyncio
import getpass
import importlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual import work
from textual.app import App
from textual.binding import Binding, BindingType
from textual.filter import LineFilter
from textual.reactive import reactive
from textual.screen import Screen
from textual.theme import Theme

import themes
from k8s.errors import KubeError, NotFound
from k8s.kinds import JobRef
from k8s.snapshot import ClusterSnapshot, Job
from k8s.text import sanitize
from tui import terminal
from tui.deletion import delete_question
from tui.keys import COMMANDS, EVERYWHERE, find_command
from tui.line_filters import AsciiOnly, Harmless
from tui.screens.choose import ConfirmScreen
from tui.screens.jobs import JobsView
from tui.screens.view import View
from tui.settings import ConsoleOptions

if TYPE_CHECKING:
    from k8s.client import Client
    from tui.live import Live


Reach = Callable[[ConsoleOptions, Callable[[str], None]], Awaitable[ConsoleOptions]]
"""Finishes options once the console is on screen, telling what it waits for."""


async def _as_they_are(options: ConsoleOptions, _progress: Callable[[str], None]) -> ConsoleOptions:
    return options


class Console(App[int]):
    """The application. Its one state is `snapshot`; everything on screen is bound to it."""

    CSS_PATH = [themes.STYLESHEET, Path(__file__).parent / "screens" / "view.tcss"]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "interrupt", "Leave", show=False, priority=True, id="app.interrupt")
    ]
    ENABLE_COMMAND_PALETTE = False
    TITLE = "gpuconsole"

    snapshot: reactive[ClusterSnapshot] = reactive(ClusterSnapshot, layout=False)
    """The newest picture of the cluster."""

    def __init__(self, options: ConsoleOptions, reach: Reach = _as_they_are) -> None:
        """Prepare the console; once it is on screen `reach` finishes the options and the cluster is asked."""
        self._palettes = themes.load(options.themes_folder)
        super().__init__()
        self._options = options
        self._reach = reach
        self._client: Client | None = None
        self._live: Live | None = None
        self._gates = (Harmless(), AsciiOnly(enabled=options.is_ascii))
        for palette in self._palettes.values():
            self.register_theme(Theme(**palette))
        self.theme = themes.MONO if options.is_mono else options.theme or themes.DEFAULT

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Give our own variables a value under any theme."""
        theme = self.current_theme
        return themes.variable_defaults(dark=theme.dark, ansi=theme.name.startswith("ansi"))

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Let every line of every widget pass our gates, before its colours are changed."""
        return [*(gate for gate in self._gates if gate.enabled), *super().get_line_filters()]

    def on_mount(self) -> None:
        """Show home, then reach for the cluster."""
        terminal.on_signals(self._leave)
        self._show(JobsView(ascii_only=self._options.is_ascii))
        self.call_after_refresh(self._connect)

    def action_interrupt(self) -> None:
        """Close what asks something; else leave."""
        screen = self.screen
        if isinstance(screen, View) and not screen.is_prompt_open:
            self._leave(0)
        elif isinstance(screen, View):
            screen.close_prompt()
        else:
            self.simulate_key("escape")

    def _leave(self, code: int) -> None:
        self.exit(code, return_code=code)

    @work(group="cluster", exclusive=True)
    async def _connect(self) -> None:
        """Reach the cluster, and mirror it until the end, or until another one is meant."""
        await asyncio.to_thread(_import_what_is_slow)
        from k8s.client import Client
        from tui.live import Live

        try:
            options = await self._reach(self._options, self._say_progress)
            client = await Client.connect(options.kubeconfig, options.context, options.namespace)
        except KubeError as error:
            self.snapshot = replace(self.snapshot, stale=str(error), is_synced=True, progress="")
            return
        own = self._options.namespace or client.access.namespace
        live = Live(client, "" if self._options.is_all_namespaces else own)
        self._client, self._live = client, live

        def take(snapshot: ClusterSnapshot) -> None:
            if self._live is live:
                self.snapshot = snapshot

        take(live.snapshot())
        try:
            await live.run(take)
        finally:
            await client.close()

    def _say_progress(self, words: str) -> None:
        self.snapshot = replace(self.snapshot, stale="", is_synced=False, progress=f"{words}…")

    def _show(self, view: Screen[None]) -> None:
        """Push a view, bound to the snapshot."""
        if isinstance(view, View):
            view.data_bind(snapshot=Console.snapshot)
        self.push_screen(view)

    def _switch(self, view: View) -> None:
        """Make a view the home below which there is nothing."""
        while len(self.screen_stack) > 2:
            self.pop_screen()
        view.data_bind(snapshot=Console.snapshot)
        self.switch_screen(view)

    def on_view_go(self, event: View.Go) -> None:
        """Do what a view wishes for."""
        event.stop()
        command = find_command(event.where)
        name = command.name if command else event.where
        doing = self._wishes().get(name)
        if doing is None:
            words = ", ".join(each.name for each in COMMANDS)
            self.notify(f"Commands are: {words}.", title=f"No command {event.where!r}.", markup=False)
            return
        doing(event)

    def _wishes(self) -> dict[str, Callable[[View.Go], None]]:
        ascii_only = self._options.is_ascii
        return {
            "jobs": lambda _: self._switch(JobsView(ascii_only=ascii_only)),
            "nodes": self._go_nodes,
            "open": self._go_job,
            "logs": self._go_logs,
            "curves": self._go_curves,
            "yaml": self._go_yaml,
            "why": self._go_why,
            "new": self._go_new,
            "delete": self._go_delete,
            "ns": self._go_namespace,
            "ctx": self._go_context,
            "theme": self._go_theme,
            "help": self._go_help,
            "retry": self._go_retry,
            "back": self._go_back,
            "quit-or-back": self._go_quit_or_back,
            "quit": lambda _: self._leave(0),
        }

    def _meant(self, event: View.Go) -> tuple[Client, JobRef] | None:
        """Return the cluster and the job that a wish is about, or say that there is none."""
        refs = list(event.refs) or [job.ref for job in self.snapshot.jobs if job.ref.name == event.argument]
        if self._client is None:
            self.notify("There is no cluster yet.", severity="warning", markup=False)
            return None
        if not refs:
            what = f"No job {sanitize(event.argument)!r} here." if event.argument else "Which job?"
            self.notify("Type its name after the command.", title=what, severity="warning", markup=False)
            return None
        return self._client, refs[0]

    def _go_nodes(self, event: View.Go) -> None:
        from tui.screens.nodes import NodesView

        self._switch(NodesView(ascii_only=self._options.is_ascii))

    def _go_job(self, event: View.Go) -> None:
        from tui.screens.job import JobView

        if meant := self._meant(event):
            self._show(JobView(*meant, ascii_only=self._options.is_ascii))

    def _go_logs(self, event: View.Go) -> None:
        from tui.screens.logs import LogsScreen

        if meant := self._meant(event):
            screen = LogsScreen(
                *meant,
                instance=event.argument if event.refs else "",
                folder=self._options.state_folder / "logs",
                ascii_only=self._options.is_ascii,
            )
            self._show(screen)

    def _go_new(self, event: View.Go) -> None:
        from tui.screens.new_job import NewJobScreen

        client, options = self._client, self._options
        if client is None or options.is_read_only:
            why = "There is no cluster yet." if client is None else "Nothing is changed with --readonly."
            self.notify(why, severity="warning", markup=False)
            return
        screen = NewJobScreen(
            client,
            namespace=self.snapshot.namespace or client.access.namespace,
            state_folder=options.state_folder,
            user=getpass.getuser(),
            ascii_only=options.is_ascii,
        )
        screen.data_bind(snapshot=Console.snapshot)

        def made(ref: JobRef | None) -> None:
            if ref is not None:
                self.notify(f"{ref.kind} {ref.name} is created.", markup=False)
                self.post_message(View.Go("logs", refs=[ref]))

        self.push_screen(screen, made)

    def _go_curves(self, event: View.Go) -> None:
        from tui.curve_feed import CurveFeed
        from tui.screens.curves import CurvesView

        if meant := self._meant(event):
            client, ref = meant

            def job() -> Job | None:
                return self.snapshot.job(ref)

            self._show(CurvesView(ref, CurveFeed(client, ref, job), ascii_only=self._options.is_ascii))

    def _go_yaml(self, event: View.Go) -> None:
        from k8s.submit import resource_of, to_yaml
        from tui.screens.text import TextView

        if meant := self._meant(event):
            client, ref = meant

            async def fetch() -> str:
                obj = await client.get(resource_of(ref), ref.name, ref.namespace)
                (obj.get("metadata") or {}).pop("managedFields", None)
                return to_yaml(obj)

            heading = f"Jobs › {ref.name} › YAML"
            self._show(TextView(heading, fetch, ascii_only=self._options.is_ascii))

    def _go_why(self, event: View.Go) -> None:
        from k8s.why import answer_why
        from tui.screens.text import TextView

        if meant := self._meant(event):
            client, ref = meant

            async def fetch() -> str:
                job = self.snapshot.job(ref)
                if job is None:
                    return f"There is no {ref.kind} {ref.name} any more."
                return (await answer_why(client, job, self.snapshot)).as_text()

            self._show(TextView(f"Jobs › {ref.name} › why", fetch, ascii_only=self._options.is_ascii))

    def _go_delete(self, event: View.Go) -> None:
        if self._options.is_read_only:
            self.notify("Nothing is changed with --readonly.", title="Read only.", markup=False)
            return
        meant = self._meant(event)
        if meant is None:
            return
        refs = list(event.refs)
        jobs = [job for ref in refs if (job := self.snapshot.job(ref)) is not None]
        question, details = delete_question(jobs)
        uids = {job.ref: job.uid for job in jobs}

        def answered(answer: str | None) -> None:
            if answer == "do":
                self._delete(meant[0], [(ref, uids[ref]) for ref in uids])

        self.push_screen(ConfirmScreen(question, details, "Delete"), answered)

    @work(group="delete")
    async def _delete(self, client: Client, jobs: Sequence[tuple[JobRef, str]]) -> None:
        """Delete jobs one after the other; one that fails does not keep the others."""
        from k8s.submit import delete_job

        for ref, uid in jobs:
            try:
                await delete_job(client, ref, uid)
            except NotFound:
                continue
            except KubeError as error:
                self.notify(error.details, title=error.what, severity="error", markup=False)
            else:
                self.notify(f"{ref.kind} {ref.name} is being deleted.", markup=False)

    def _go_namespace(self, event: View.Go) -> None:
        is_all = event.argument == "all"
        wanted = "" if is_all else event.argument
        self._options = replace(self._options, namespace=wanted, is_all_namespaces=is_all)
        if self._live is not None:
            self._live.show_namespace("" if is_all else wanted or self._live.client.access.namespace)

    def _go_context(self, event: View.Go) -> None:
        if event.argument:
            self._change_context(event.argument)
            return
        from k8s.contexts import read_kubeconfig
        from tui.screens.contexts import ContextsView

        read = partial(read_kubeconfig, self._options.kubeconfig)
        self._show(ContextsView(read, ascii_only=self._options.is_ascii))

    @work(group="context", exclusive=True)
    async def _change_context(self, name: str) -> None:
        """Leave the cluster as it is, dead or alive, and go to another; a sandbox too is left."""
        from k8s.contexts import read_kubeconfig

        try:
            known = await asyncio.to_thread(read_kubeconfig, self._options.kubeconfig)
            context = known.choose(name).context
        except KubeError as error:
            self.notify(error.why, title=error.what, severity="warning", markup=False)
            return
        self._options = replace(self._options, context=name, namespace="", is_sandbox=False)
        self._client = self._live = None
        namespace = "" if self._options.is_all_namespaces else context.namespace
        progress = f"Connecting to {sanitize(name)}…"
        self.snapshot = ClusterSnapshot(name, context.user, namespace, progress=progress)
        self._switch(JobsView(ascii_only=self._options.is_ascii))
        self._connect()

    def _go_theme(self, event: View.Go) -> None:
        if event.argument in self.available_themes:
            self.theme = event.argument
        else:
            names = ", ".join(self._palettes)
            self.notify(f"There are: {names}.", title=f"No theme {event.argument!r}.", markup=False)

    def _go_help(self, event: View.Go) -> None:
        from tui.screens.help import HelpScreen

        keys = self.screen.KEYS if isinstance(self.screen, View) else EVERYWHERE
        self.push_screen(HelpScreen("Here", keys))

    def _go_retry(self, event: View.Go) -> None:
        if self._live is not None:
            self._live.try_again()
        else:
            self._connect()

    def _go_back(self, event: View.Go) -> None:
        if len(self.screen_stack) > 2:
            self.pop_screen()
        elif not isinstance(self.screen, JobsView):
            self._switch(JobsView(ascii_only=self._options.is_ascii))

    def _go_quit_or_back(self, event: View.Go) -> None:
        if len(self.screen_stack) > 2 or not isinstance(self.screen, JobsView):
            self._go_back(event)
            return

        def answered(answer: str | None) -> None:
            if answer == "do":
                self._leave(0)

        self.push_screen(ConfirmScreen("Leave gpuconsole?", "Jobs run on without it.", "Leave"), answered)


def _import_what_is_slow() -> None:
    """Import, in a thread, what would keep the first frame and the first keys waiting."""
    for name in ("tui.live", "kubernetes.aio.config"):
        importlib.import_module(name)


def run_console(options: ConsoleOptions, reach: Reach = _as_they_are) -> int:
    """Open the console and return the exit status."""
    console = Console(options, reach)
    try:
        console.run(mouse=False)
    finally:
        terminal.restore()
    return console.return_code or 0
