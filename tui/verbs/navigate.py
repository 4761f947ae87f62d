"""Actions that open a view."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from k8s.kinds import JobRef
from k8s.models.resources import CLAIMS, CONFIG_MAPS, EVENTS, NODES, PODS, SECRETS, SERVICES, Resource
from k8s.text.sanitize import sanitize
from tui.runs.record import RunRecord
from tui.screens.base.console import BaseConsole, Functions
from tui.screens.base.request import ActionRequest, Route
from tui.screens.lists.jobs import JobsView
from tui.verbs.runs import past_runs

if TYPE_CHECKING:
    from tui.session.session import Session

# Objects other than jobs that have a YAML view, by the word before the slash.
READABLE: Mapping[str, Resource] = {
    "pod": PODS,
    "node": NODES,
    "pvc": CLAIMS,
    "service": SERVICES,
    "configmap": CONFIG_MAPS,
    "secret": SECRETS,
    "event": EVENTS,
}


def jobs(console: BaseConsole, request: ActionRequest) -> None:
    """Show the jobs, of a namespace, or filtered, or of the kind whose name was typed.

    `:job NAME` opens one.
    """
    argument = request.argument
    if request.is_typed and request.name == "job" and argument:
        open_job(console, request)
        return
    kind = ""
    if request.is_typed and console.context.actions.find_command(request.name) is None:
        from tui.text.kind_words import find_kind

        kind = f"kind:^{find_kind(request.name)}$"
    if request.is_typed and argument not in ("", "all") and argument[0] != "/":
        console.begin(_show_jobs_of, argument, kind, group="namespace", exclusive=True)
    else:
        _show_jobs(console, argument, kind)


async def _show_jobs_of(console: BaseConsole, name: str, kind: str) -> None:
    """Show the jobs of a namespace; if none has this name, those that match it as a filter."""
    from tui.verbs.context import find_namespace, show_namespace

    exists, _ = await find_namespace(console, name)
    if not exists:
        _show_jobs(console, name, kind)
        return
    show_namespace(console, name)
    _show_jobs(console, "", kind)
    if (view := console.views.current) is not None:
        view.filter_text = kind


def _show_jobs(console: BaseConsole, argument: str, kind: str) -> None:
    is_all = argument == "all"
    console.views.switch(Route("jobs", argument if is_all else ""), JobsView())
    _filter(console, f"{kind} {'' if is_all else argument.removeprefix('/')}".strip())


def _filter(console: BaseConsole, argument: str) -> None:
    if argument and (view := console.views.current) is not None:
        view.filter_text = argument.removeprefix("/")


def nodes(console: BaseConsole, request: ActionRequest) -> None:
    """Show the list of nodes, with the cursor on the node of the current view if it has one."""
    from tui.screens.lists.nodes import NodesView

    argument = request.argument
    if argument and argument[0] != "/" and all(each.name != argument for each in console.snapshot.nodes):
        argument = f"/{argument}"
    show = console.views.show if argument else console.views.switch
    show(Route("nodes", argument), NodesView(argument))


def users(console: BaseConsole, request: ActionRequest) -> None:
    """Show the GPUs that each user's jobs hold, request and leave idle."""
    from tui.screens.lists.users import UsersView

    console.views.show(Route("users"), UsersView())
    _filter(console, request.argument)


def pods(console: BaseConsole, request: ActionRequest) -> None:
    """Show the pods of jobs."""
    from tui.screens.lists.pods import pods_view

    console.views.switch(Route("pods"), pods_view())
    _filter(console, request.argument)


def usage(console: BaseConsole, request: ActionRequest) -> None:
    """Show the GPU usage of each rank of a job, and the usage of its pods."""
    from tui.screens.lists.gpus import UsageView

    if target := console.target_job(request):
        console.views.show(Route("usage", job=target[1]), UsageView(target[1]))


def events(console: BaseConsole, request: ActionRequest) -> None:
    """Show the events of the cluster."""
    from tui.screens.lists.events import EventsView

    console.views.switch(Route("events"), EventsView())
    _filter(console, request.argument)


def volumes(console: BaseConsole, request: ActionRequest) -> None:
    """Show the volume claims."""
    from tui.screens.lists.volumes import volumes_view

    console.views.switch(Route("volumes"), volumes_view())
    _filter(console, request.argument)


def next_view(console: BaseConsole, request: ActionRequest) -> None:
    """Show the next list in `tab` order."""
    if (view := console.views.current) is not None:
        console.post_message(ActionRequest(view.VIEW.next_view or "jobs"))


def node_gpus(console: BaseConsole, request: ActionRequest) -> None:
    """Show the holders of a node's GPUs."""
    from tui.screens.lists.gpus import NodeGpusView

    if node := request.argument or request.selected:
        console.views.show(Route("node_gpus", node), NodeGpusView(node))


def volume(console: BaseConsole, request: ActionRequest) -> None:
    """Show one volume claim, `NAMESPACE/NAME`, and the pods that use it."""
    from tui.screens.documents.text import TextView
    from tui.session.volume_claims import describe

    claim = request.argument or request.selected
    namespace, _, name = claim.partition("/")
    if claim and (session := console.session) is not None:
        view = TextView(f"Volumes › {name}", lambda: describe(session.client, namespace, name))
        console.views.show(Route("volume", claim), view)


def open_job(console: BaseConsole, request: ActionRequest) -> None:
    """Show one job, and its namespace."""
    from tui.screens.job.job import JobView
    from tui.verbs.context import show_namespace

    if target := console.target_job(request):
        if console.snapshot.namespace not in ("", target[1].namespace):
            show_namespace(console, target[1].namespace)
        console.views.show(Route("open_job", job=target[1]), JobView(*target))
        console.mark_job_seen(console.snapshot.context, target[1])


def job_events(console: BaseConsole, request: ActionRequest) -> None:
    """Show one job, with its events first."""
    from tui.screens.job.job import JobView

    open_job(console, request)
    if isinstance(view := console.screen, JobView):
        view.call_after_refresh(view.show_events)


def logs(console: BaseConsole, request: ActionRequest) -> None:
    """Show the logs of a job, starting with the selected instance."""
    _show_logs(console, request, is_previous=False)


def previous_logs(console: BaseConsole, request: ActionRequest) -> None:
    """Show the logs of an instance from before its last restart."""
    _show_logs(console, request, is_previous=True)


def _show_logs(console: BaseConsole, request: ActionRequest, *, is_previous: bool) -> None:
    from tui.screens.job.logs import LogsScreen

    if target := console.target_job(request):
        session, ref = target
        moment = request.argument if request.targets else ""
        screen = LogsScreen(
            session.logs,
            ref,
            instance=request.instance,
            is_previous=is_previous,
            at_s=float(moment or 0),
            folder=console.context.log_folder,
        )
        name = "previous_logs" if is_previous else "logs"
        console.views.show(Route(name, moment, ref, request.instance), screen)


def curves(console: BaseConsole, request: ActionRequest) -> None:
    """Show the curves of jobs and past runs over each other."""
    from tui.runs.curve_feed import CurveFeed
    from tui.runs.journal.kept_facts import KeptCurves
    from tui.runs.overlay import MOST_RUNS
    from tui.screens.job.curves import CurvesView

    journal, names = console.context.runs.journal, dict.fromkeys(request.argument.split())
    known: dict[str, JobRef | RunRecord] = dict(past_runs(console)) if names else {}
    known |= {key: job.ref for job in reversed(console.snapshot.jobs) for key in (job.ref.name, job.uid)}
    chosen: list[JobRef | RunRecord] = [*request.targets]
    chosen = chosen or [known[name] for name in names if name in known]
    if not names and not chosen and (target := console.target_job(request)):
        chosen = [target[1]]
    missing = ", ".join(name for name in names if name not in known)
    is_live = any(isinstance(each, JobRef) for each in chosen)
    session = console.require_session() if is_live else None

    def feed(each: JobRef | RunRecord) -> CurveFeed | KeptCurves:
        if isinstance(each, RunRecord) or session is None:
            return KeptCurves(journal, each.uid if isinstance(each, RunRecord) else "")
        job = console.snapshot.job(each)
        kept = KeptCurves(journal, job.uid) if job is not None else None
        current = partial(console.snapshot.job, each)
        return CurveFeed(session.client, each, current, hub=session.logs, kept=kept)

    if len(chosen) > MOST_RUNS:
        console.notify(
            "Unmark some with space, or all with U.",
            title=f"{len(chosen)} jobs are chosen; one chart shows up to {MOST_RUNS}.",
            severity="warning",
        )
    elif chosen and (session is not None or not is_live):
        refs = [
            each if isinstance(each, JobRef) else JobRef(each.namespace, each.name, each.kind, "")
            for each in chosen
        ]
        route = Route("curves", job=refs[0], jobs=tuple(refs) if len(refs) > 1 else ())
        if any(isinstance(each, RunRecord) for each in chosen):
            words = (each.name if isinstance(each, JobRef) else each.uid for each in chosen)
            route = Route("curves", " ".join(words))
        console.views.show(route, CurvesView(refs, list(map(feed, chosen)), console.options.alerts))
    if missing:
        what = f"No job or past run {sanitize(missing)} here."
        # The status line of the view before would be gone with it.
        console.notify(
            "The others are shown." if chosen else "", title=what, severity="warning", is_toast=bool(chosen)
        )


def folder(console: BaseConsole, request: ActionRequest) -> None:
    """Read the curves that are shown from another folder in the pod; without a path, search for one."""
    from tui.screens.job.curves import CurvesView

    if not isinstance(view := console.views.current, CurvesView):
        console.notify("Open the curves of a job first.", severity="warning")
    elif request.argument and not request.argument.startswith("/"):
        console.notify("Type the path in the pod, from / on.", title="Which folder?", severity="warning")
    else:
        view.choose_folder(request.argument)


def yaml(console: BaseConsole, request: ActionRequest) -> None:
    """Show an object as YAML: the one named or selected as `pod/NAME`, or else the job."""
    name = request.argument or request.selected
    if "/" not in name:
        job_yaml(console, request)
        return
    kind, _, name = name.partition("/")
    resource = READABLE.get(kind.strip().lower())
    if resource is None:
        console.notify(f"Available kinds: {', '.join(READABLE)}.", title=f"No kind {sanitize(kind)!r}.")
    elif (session := console.session) is not None:
        job = next(iter(request.targets), None)
        namespace = job.namespace if job else session.namespace
        heading = f"{job.name} › " if job else ""
        heading = f"Jobs › {heading}{resource.kind} {name.strip()} › YAML"
        route = Route("yaml", f"{kind}/{name}", job)
        _show_yaml(console, route, heading, session, resource, name.strip(), namespace)


def job_yaml(console: BaseConsole, request: ActionRequest) -> None:
    """Show the job's object as YAML."""
    from k8s.jobs.create import resource_of

    if target := console.target_job(request):
        session, ref = target
        route = Route("job_yaml", job=ref)
        _show_yaml(console, route, _heading(ref, "YAML"), session, resource_of(ref), ref.name, ref.namespace)


def _show_yaml(
    console: BaseConsole,
    route: Route,
    heading: str,
    session: Session,
    resource: Resource,
    name: str,
    namespace: str,
) -> None:
    from tui.screens.documents.yaml import YamlScreen

    place = namespace if resource.is_namespaced else ""
    view = YamlScreen(heading, session.client, resource, name, place, probe=session.mirror.probe)
    console.views.show(route, view)


def why(console: BaseConsole, request: ActionRequest) -> None:
    """Explain the state of a job, with the evidence."""
    _explain(console, request, "why")


def diagnose(console: BaseConsole, request: ActionRequest) -> None:
    """Report which rank of a failed job failed first, or what each rank of a running job does."""
    _explain(console, request, "diagnose")


def _explain(console: BaseConsole, request: ActionRequest, action: str) -> None:
    from k8s.reasons.failures import CAUSES
    from k8s.reasons.gather import answer_why
    from k8s.reasons.stacks import inspect_ranks
    from tui.screens.documents.text import TextView

    if target := console.target_job(request):
        session, ref = target
        client, causes = session.client, session.reasons.causes or CAUSES

        async def fetch() -> str:
            job = console.snapshot.job(ref)
            if job is None:
                return f"There is no {ref.kind} {ref.name} any more."
            answer = await answer_why(client, job, console.snapshot, causes=causes)
            await session.telemetry.read_gpus(job)
            answer = session.telemetry.with_warnings(job, answer)
            if action != "diagnose" or job.status != "Running":
                return answer.as_text(console.advice)
            report = await inspect_ranks(client, job)
            return f"{replace(answer, help=()).as_text()}\n\n{report.as_text()}"

        console.views.show(Route(action, job=ref), TextView(_heading(ref, action), fetch))


def _heading(ref: JobRef, what: str) -> str:
    return f"Jobs › {ref.name} › {what}"


FUNCTIONS: Functions = {
    "folder": folder,
    "curves": curves,
    "events": events,
    "diagnose": diagnose,
    "job_events": job_events,
    "job_yaml": job_yaml,
    "jobs": jobs,
    "logs": logs,
    "next_view": next_view,
    "node_gpus": node_gpus,
    "nodes": nodes,
    "open_job": open_job,
    "pods": pods,
    "previous_logs": previous_logs,
    "usage": usage,
    "users": users,
    "volume": volume,
    "volumes": volumes,
    "why": why,
    "yaml": yaml,
}
