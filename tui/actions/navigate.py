"""Going to a view."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from k8s.kinds import JobRef
from k8s.models.resources import CLAIMS, CONFIG_MAPS, EVENTS, NODES, PODS, SECRETS, SERVICES, Resource
from k8s.snapshot import Job
from k8s.text.sanitize import sanitize
from tui.screens.base.view import View
from tui.screens.lists.jobs import JobsView

if TYPE_CHECKING:
    from k8s.client.client import Client
    from tui.app import Console

READABLE: Mapping[str, Resource] = {
    "pod": PODS,
    "node": NODES,
    "pvc": CLAIMS,
    "service": SERVICES,
    "configmap": CONFIG_MAPS,
    "secret": SECRETS,
    "event": EVENTS,
}
"""What can be read as YAML beside jobs, by the word before the slash."""


def jobs(console: Console, wish: View.Go) -> None:
    """Show the list of jobs."""
    console.switch(JobsView())


def nodes(console: Console, wish: View.Go) -> None:
    """Show the list of nodes."""
    from tui.screens.lists.nodes import NodesView

    console.switch(NodesView())


def holders(console: Console, wish: View.Go) -> None:
    """Show who holds the GPUs of a node."""
    from tui.screens.lists.node_gpus import NodeGpusView

    console.show(NodeGpusView(wish.argument))


def events(console: Console, wish: View.Go) -> None:
    """Show what happens on the cluster, or only to a job."""
    from tui.screens.job.job import JobView
    from tui.screens.lists.events import EventsView

    if wish.refs:
        open(console, wish)
        if isinstance(view := console.screen, JobView):
            view.call_after_refresh(view.show_events)
        return
    console.switch(EventsView(lambda: console.cluster_feed))


def volumes(console: Console, wish: View.Go) -> None:
    """Show the volume claims."""
    from tui.screens.lists.volumes import VolumesView

    console.switch(VolumesView(lambda: console.cluster_feed))


def volume(console: Console, wish: View.Go) -> None:
    """Show one volume claim, and which pods use it; it is named as in `namespace/name`."""
    from tui.feeds.volume_claims import describe
    from tui.screens.documents.text import TextView

    namespace, _, name = wish.argument.partition("/")
    if (client := console.client) is not None:
        console.show(TextView(f"Volumes › {name}", lambda: describe(client, namespace, name)))


def open(console: Console, wish: View.Go) -> None:
    """Show one job."""
    from tui.screens.job.job import JobView

    if (meant := console.meant(wish)) and (cluster_feed := console.cluster_feed) is not None:
        view = JobView(*meant, probe=cluster_feed.probe, pods=lambda: cluster_feed.pods)
        console.show(view)


def previous(console: Console, wish: View.Go) -> None:
    """Show what an instance of a job printed in its run before the last restart."""
    logs(console, wish, is_previous=True)


def logs(console: Console, wish: View.Go, *, is_previous: bool = False) -> None:
    """Show the logs of a job, beginning with an instance where one is named."""
    from tui.screens.job.logs import LogsScreen

    if meant := console.meant(wish):
        screen = LogsScreen(
            *meant,
            instance=wish.argument if wish.refs else "",
            is_previous=is_previous,
            folder=console.options.state_folder / "logs",
        )
        console.show(screen)


def curves(console: Console, wish: View.Go) -> None:
    """Show the curves of a job."""
    from tui.feeds.curve_feed import CurveFeed
    from tui.screens.job.curves import CurvesView

    if meant := console.meant(wish):
        client, ref = meant

        def job() -> Job | None:
            return console.snapshot.job(ref)

        console.show(CurvesView(ref, CurveFeed(client, ref, job)))


def yaml(console: Console, wish: View.Go) -> None:
    """Show an object as YAML: a job's, or the one that is named as `pod/NAME`."""
    from k8s.jobs.create import resource_of

    if "/" not in wish.argument:
        if meant := console.meant(wish):
            client, ref = meant
            _show_yaml(console, _heading(ref, "YAML"), client, resource_of(ref), ref.name, ref.namespace)
        return
    kind, _, name = wish.argument.partition("/")
    resource = READABLE.get(kind.strip().lower())
    if resource is None:
        console.notify(f"There are: {', '.join(READABLE)}.", title=f"No kind {sanitize(kind)!r}.")
    elif (cluster_feed := console.cluster_feed) is not None:
        namespace = (
            wish.refs[0].namespace
            if wish.refs
            else cluster_feed.namespace or cluster_feed.client.config.namespace
        )
        heading = f"{wish.refs[0].name} › " if wish.refs else ""
        heading = f"Jobs › {heading}{resource.kind} {name.strip()} › YAML"
        _show_yaml(console, heading, cluster_feed.client, resource, name.strip(), namespace)


def _show_yaml(
    console: Console, heading: str, client: Client, resource: Resource, name: str, namespace: str
) -> None:
    from tui.screens.documents.yaml import YamlScreen

    probe = console.cluster_feed.probe if console.cluster_feed is not None else None
    place = namespace if resource.is_namespaced else ""
    console.show(YamlScreen(heading, client, resource, name, place, probe=probe))


def why(console: Console, wish: View.Go) -> None:
    """Show why a job is as it is, with all that was seen."""
    from k8s.diagnosis import answer_why
    from tui.screens.documents.text import TextView

    if meant := console.meant(wish):
        client, ref = meant

        async def fetch() -> str:
            job = console.snapshot.job(ref)
            if job is None:
                return f"There is no {ref.kind} {ref.name} any more."
            return (await answer_why(client, job, console.snapshot)).as_text()

        console.show(TextView(_heading(ref, "why"), fetch))


def _heading(ref: JobRef, what: str) -> str:
    return f"Jobs › {ref.name} › {what}"
