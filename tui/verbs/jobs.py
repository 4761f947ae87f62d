"""Actions that change jobs on the cluster, each after confirmation."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from k8s.client.client import Client
from k8s.kinds import JobRef
from k8s.snapshot import Job
from k8s.text.errors import KubeError
from tui.screens.base.console import BaseConsole, Functions
from tui.screens.base.request import ActionRequest
from tui.screens.dialogs.confirm import ConfirmScreen
from tui.settings.keys import NEW_JOB
from tui.settings.options import local_user
from tui.terminal.key_queue import keys_held
from tui.text.change_plans import ChangePlan, delete_plan, suspend_plan
from tui.text.format import listed
from tui.verbs import changes

if TYPE_CHECKING:
    from k8s.jobs.clone import Clone
    from tui.session.session import Session

LOOK_S = 1.0


def new(console: BaseConsole, request: ActionRequest) -> None:
    """Open the form for a new job."""
    if (session := console.require_session()) is not None:
        prompt_for_job(console, session)


def clone(console: BaseConsole, request: ActionRequest) -> None:
    """Open the form filled in from an existing job."""
    if target := console.target_job(request):
        console.begin(_clone, *target, group="clone", exclusive=True)


async def _clone(console: BaseConsole, session: Session, ref: JobRef) -> None:
    from k8s.jobs.clone import clone as clone_of
    from k8s.jobs.create import resource_of

    try:
        with keys_held(console):
            found = await session.client.get(resource_of(ref), ref.name, ref.namespace)
        taken = {job.ref.name for job in console.snapshot.jobs if job.ref.namespace == ref.namespace}
        made = clone_of(found, taken, user=session.client.config.username or local_user())
    except KubeError as error:
        console.notify(error.details, title=error.what, severity="error")
    else:
        (prompt_for_job if made.spec is not None else prompt_for_manifest)(console, session, made)


def prompt_for_job(console: BaseConsole, session: Session, like: Clone | None = None) -> None:
    """Open the form for a new job, filled in from `like` if given."""
    from tui.draft.draft import context_folder
    from tui.screens.documents.new_job import NewJobScreen

    client = session.client
    screen = NewJobScreen(
        client,
        namespace=session.namespace,
        state_folder=context_folder(console.options.state_folder, client.config),
        user=client.config.username or local_user(),
        clone=like,
        templates_folder=console.options.templates_folder,
        links=session.links,
    )
    screen.keys = console.context.keys(NEW_JOB)
    screen.data_bind(snapshot=type(console).snapshot)
    console.push_screen(screen, lambda ref: _made(console, ref))


def prompt_for_manifest(console: BaseConsole, session: Session, like: Clone) -> None:
    """Open the YAML of a job from which the form cannot be filled in, to edit and create it."""
    from tui.screens.documents.submit import ManifestScreen

    screen = ManifestScreen(session.client, like, namespace=str(like.manifest["metadata"]["namespace"]))
    screen.data_bind(snapshot=type(console).snapshot)
    console.push_screen(screen, lambda ref: _made(console, ref))


def _made(console: BaseConsole, ref: JobRef | None) -> None:
    from tui.screens.lists.jobs import JobsView

    if ref is not None:
        for view in console.screen_stack:
            if isinstance(view, JobsView):
                view.go_to_created(ref)
        console.notify(f"{ref.kind} {ref.name} created.", markup=False)
        console.post_message(ActionRequest("logs", targets=[ref]))


def edit(console: BaseConsole, request: ActionRequest) -> None:
    """Edit a job with `kubectl edit`, in the terminal."""
    view = console.views.current
    route = view.route if view is not None else None
    if route is not None and route.action == "yaml" and not request.argument:
        words = f"Outside, kubectl edit {route.argument} opens this one."
        console.notify(words, title="Only jobs are edited here.", severity="warning")
    elif any(each.group == "edit" and not each.is_finished for each in console.workers):
        return  # the key was pressed twice
    elif target := console.target_job(request):
        console.begin(_edit, *target, group="edit")


async def _edit(console: BaseConsole, session: Session, ref: JobRef) -> None:
    from tui.terminal.pod_shell import exit_text, handed_over, run_program

    try:
        options = replace(console.options, kubeconfig=session.options.kubeconfig)
        argv = changes.edit_argv(options, session.client.config, ref)
        status = await run_program(argv, os.environ, lambda: handed_over(console))
    except (KubeError, OSError) as error:
        console.notify(str(error), title=f"Could not edit {ref.kind} {ref.name}.", severity="error")
    else:
        ended = exit_text(status) if status else "ended"
        words = f"kubectl edit of {ref.kind} {ref.name}: {ended}."
        console.notify(words, severity="warning" if status else "information")


def delete(console: BaseConsole, request: ActionRequest) -> None:
    """Delete jobs after confirmation, and report what is left of them."""
    if target := console.target_job(request):
        plan = delete_plan(console.snapshot, console.target_jobs(request), hidden=request.hidden)
        console.begin(_delete, target[0], plan, group="delete")


async def _delete(console: BaseConsole, session: Session, plan: ChangePlan) -> None:
    from tui.session.last_facts import record_runs

    async def record(jobs: Sequence[Job]) -> None:
        await record_runs(session.client, jobs, session.runs, session.place, session.logs)

    deleted = await changes.delete(session.client, plan, DialogUi(console), record)
    if deleted is not None and deleted.jobs:
        await _report_leftovers(console, session, deleted)


async def _report_leftovers(console: BaseConsole, session: Session, plan: ChangePlan) -> None:
    import asyncio

    from tui.verbs.changes import find_leftovers, is_over, leftover_lines

    clock = asyncio.get_running_loop().time
    began_s = clock()
    while console.session is session:
        left = find_leftovers(plan, console.snapshot, session.mirror.pods)
        waited_s = clock() - began_s
        if is_over(left, waited_s):
            are_gone = all(each.is_gone for each in left)
            words = "\n".join(leftover_lines(left, waited_s))
            if are_gone:
                console.notify(words)
            else:
                console.notify(words, title="Not everything is gone.", severity="error", timeout=30)
            return
        await asyncio.sleep(LOOK_S)


def suspend(console: BaseConsole, request: ActionRequest) -> None:
    """Suspend jobs after confirmation."""
    _suspend(console, request, is_suspended=True)


def resume(console: BaseConsole, request: ActionRequest) -> None:
    """Resume suspended jobs after confirmation."""
    _suspend(console, request, is_suspended=False)


def _suspend(console: BaseConsole, request: ActionRequest, *, is_suspended: bool) -> None:
    if target := console.target_job(request):
        jobs = [job for ref in console.target_jobs(request) if (job := console.snapshot.job(ref)) is not None]
        plan = suspend_plan(jobs, is_suspended=is_suspended, hidden=request.hidden)
        console.begin(_confirm_suspend, target[0].client, plan, group="suspend")


async def _confirm_suspend(console: BaseConsole, client: Client, plan: ChangePlan) -> None:
    await changes.suspend(client, plan, DialogUi(console))


class DialogUi:
    """Asks in a dialog and reports in notices."""

    def __init__(self, console: BaseConsole) -> None:
        self._console = console

    async def confirm(self, plan: ChangePlan) -> ChangePlan | None:
        """Ask, or notify why there is nothing to do; return the plan to carry out, or None."""
        if not plan.jobs:
            error = next(iter(plan.problems), KubeError("It is already gone."))
            self._console.notify(error.details, title=error.what, severity="warning")
        elif plan.verb == "Delete":
            from tui.screens.dialogs.confirm import DeleteScreen

            return await self._console.push_screen_wait(DeleteScreen(plan))
        else:
            dialog = ConfirmScreen(plan.question, "\n".join(plan.lines), plan.verb)
            if await self._console.push_screen_wait(dialog) == "do":
                return plan
        return None

    def report(self, jobs: Sequence[Job], words: str) -> None:
        """Notify of what happened to jobs, in one sentence."""
        if len(jobs) > 1:
            words = f"{listed([job.ref.name for job in jobs])} are{words.removeprefix('is')}"
        else:
            words = f"{jobs[0].ref.kind} {jobs[0].ref.name} {words}"
        self._console.notify(words)

    def fail(self, error: KubeError) -> None:
        """Notify of an error, and remember a refusal."""
        self._console.record_refusal(error)
        self._console.notify(error.details, title=error.what, severity="error")


FUNCTIONS: Functions = {
    "clone": clone,
    "delete": delete,
    "edit": edit,
    "new": new,
    "resume": resume,
    "suspend": suspend,
}
