"""The console: it owns the cluster's picture and the stack of views, and does what views wish for.

Only home is imported at the start. What talks to the cluster, and every other view, is
imported when it is first needed, because a console is opened many times a day.
"""

from __future__ import annotations

import asyncio
import getpass
import importlib
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual import work
from textual.app import App
from textual.binding import Binding, BindingType
from textual.reactive import reactive
from textual.screen import Screen
from textual.theme import Theme

import themes
from k8s.errors import KubeError, NotFound
from k8s.kinds import JobRef
from k8s.snapshot import ClusterSnapshot, Job
from k8s.text import sanitize
from tui import terminal
from tui.format import plural
from tui.keys import COMMANDS, EVERYWHERE, find_command
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
        for palette in self._palettes.values():
            self.register_theme(Theme(**palette))
        self.theme = themes.MONO if options.is_mono else options.theme or themes.DEFAULT

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Give our own variables a value under any theme."""
        theme = self.current_theme
        return themes.variable_defaults(dark=theme.dark, ansi=theme.name.startswith("ansi"))

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
        """Reach the cluster, and mirror it until the end."""
        await asyncio.to_thread(_import_what_is_slow)
        from k8s.client import Client
        from tui.live import Live

        try:
            options = await self._reach(self._options, self._say_progress)
            client = await Client.connect(options.kubeconfig, options.context, options.namespace)
        except KubeError as error:
            self.snapshot = ClusterSnapshot(stale=str(error), is_synced=True)
            return
        self._client = client
        namespace = "" if options.is_all_namespaces else client.access.namespace
        self._live = Live(client, namespace)
        try:
            await self._live.run(self._take)
        finally:
            await client.close()

    def _say_progress(self, words: str) -> None:
        self.snapshot = ClusterSnapshot(progress=f"{words}…")

    def _take(self, snapshot: ClusterSnapshot) -> None:
        self.snapshot = snapshot

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
            "new": self._go_new,
            "delete": self._go_delete,
            "ns": self._go_namespace,
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

    def _go_delete(self, event: View.Go) -> None:
        if self._options.is_read_only:
            self.notify("Nothing is changed with --readonly.", title="Read only.", markup=False)
            return
        meant = self._meant(event)
        if meant is None:
            return
        refs = list(event.refs)
        jobs = [job for ref in refs if (job := self.snapshot.job(ref)) is not None]
        pods = sum(len([each for each in job.instances if each.pod]) for job in jobs)
        gpus = sum(job.gpus_allocated for job in jobs)
        names = "\n".join(sanitize(f"{job.ref.kind} {job.ref.namespace}/{job.ref.name}") for job in jobs[:10])
        more = f"\nand {len(jobs) - 10} more" if len(jobs) > 10 else ""
        question = f"Delete {plural(len(jobs), 'job')}?"
        goes = f"{plural(pods, 'pod')} will be ended and {plural(gpus, 'GPU')} freed; their logs go too."
        details = f"{names}{more}\n\n{goes}"
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
        if self._live is None or self._client is None:
            return
        wanted = event.argument or self._client.access.namespace
        self._live.show_namespace("" if wanted == "all" else wanted)

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
