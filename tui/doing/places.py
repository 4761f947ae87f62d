"""Going to a view."""

from __future__ import annotations

from typing import TYPE_CHECKING

from k8s.kinds import JobRef
from k8s.snapshot import Job
from tui.screens.jobs import JobsView
from tui.screens.view import View

if TYPE_CHECKING:
    from tui.app import Console


def jobs(console: Console, wish: View.Go) -> None:
    """Show the list of jobs."""
    console.switch(JobsView(ascii_only=console.options.is_ascii))


def nodes(console: Console, wish: View.Go) -> None:
    """Show the list of nodes."""
    from tui.screens.nodes import NodesView

    console.switch(NodesView(ascii_only=console.options.is_ascii))


def holders(console: Console, wish: View.Go) -> None:
    """Show who holds the GPUs of a node."""
    from tui.screens.holders import HoldersView

    console.show(HoldersView(wish.argument, ascii_only=console.options.is_ascii))


def open(console: Console, wish: View.Go) -> None:
    """Show one job."""
    from tui.screens.job import JobView

    if meant := console.meant(wish):
        console.show(JobView(*meant, ascii_only=console.options.is_ascii))


def logs(console: Console, wish: View.Go) -> None:
    """Show the logs of a job, beginning with an instance where one is named."""
    from tui.screens.logs import LogsScreen

    if meant := console.meant(wish):
        screen = LogsScreen(
            *meant,
            instance=wish.argument if wish.refs else "",
            folder=console.options.state_folder / "logs",
            ascii_only=console.options.is_ascii,
        )
        console.show(screen)


def curves(console: Console, wish: View.Go) -> None:
    """Show the curves of a job."""
    from tui.curve_feed import CurveFeed
    from tui.screens.curves import CurvesView

    if meant := console.meant(wish):
        client, ref = meant

        def job() -> Job | None:
            return console.snapshot.job(ref)

        console.show(CurvesView(ref, CurveFeed(client, ref, job), ascii_only=console.options.is_ascii))


def yaml(console: Console, wish: View.Go) -> None:
    """Show a job's object."""
    from k8s.submit import resource_of, to_yaml
    from tui.screens.text import TextView

    if meant := console.meant(wish):
        client, ref = meant

        async def fetch() -> str:
            obj = await client.get(resource_of(ref), ref.name, ref.namespace)
            (obj.get("metadata") or {}).pop("managedFields", None)
            return to_yaml(obj)

        console.show(TextView(_heading(ref, "YAML"), fetch, ascii_only=console.options.is_ascii))


def why(console: Console, wish: View.Go) -> None:
    """Show why a job is as it is, with all that was seen."""
    from k8s.why import answer_why
    from tui.screens.text import TextView

    if meant := console.meant(wish):
        client, ref = meant

        async def fetch() -> str:
            job = console.snapshot.job(ref)
            if job is None:
                return f"There is no {ref.kind} {ref.name} any more."
            return (await answer_why(client, job, console.snapshot)).as_text()

        console.show(TextView(_heading(ref, "why"), fetch, ascii_only=console.options.is_ascii))


def _heading(ref: JobRef, what: str) -> str:
    return f"Jobs › {ref.name} › {what}"
