"""What changes jobs on the cluster, each after a question."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

from k8s.client.client import Client
from k8s.errors import KubeError
from k8s.kinds import JobRef
from k8s.snapshot import Job
from tui.jobs.change_each import change_each
from tui.jobs.delete_plan import DeletePlan, delete_plan
from tui.jobs.suspend_plan import suspend_plan
from tui.keys import NEW_JOB
from tui.options import login_name
from tui.screens.base.request import ActionRequest
from tui.screens.dialogs.confirm import ConfirmScreen
from tui.terminal.key_queue import keys_held

if TYPE_CHECKING:
    from k8s.jobs.clone import Clone
    from tui.app import Console

LOOK_S = 1.0
"""How often it is looked whether what was deleted is gone."""


def new(console: Console, request: ActionRequest) -> None:
    """Fill in a new job."""
    if (client := console.require_client()) is not None:
        ask_for_job(console, client)


def clone(console: Console, request: ActionRequest) -> None:
    """Open the new-job form filled in like a job that is there."""
    if target := console.target_job(request):
        console.begin(_clone, *target, group="clone", exclusive=True)


async def _clone(console: Console, client: Client, ref: JobRef) -> None:
    from k8s.jobs.clone import clone as clone_of
    from k8s.jobs.create import resource_of

    try:
        with keys_held(console):
            found = await client.get(resource_of(ref), ref.name, ref.namespace)
        taken = {job.ref.name for job in console.snapshot.jobs if job.ref.namespace == ref.namespace}
        made = clone_of(found, taken, user=login_name())
    except KubeError as error:
        console.notify(error.details, title=error.what, severity="error")
    else:
        (ask_for_job if made.fits_form else ask_for_manifest)(console, client, made)


def ask_for_job(console: Console, client: Client, like: Clone | None = None) -> None:
    """Open the form for a new job, filled in like another where one is given."""
    from tui.jobs.new_job.draft import context_folder
    from tui.screens.documents.new_job import NewJobScreen

    screen = NewJobScreen(
        client,
        namespace=console.snapshot.namespace or client.config.namespace,
        state_folder=context_folder(console.options.state_folder, client.config),
        user=login_name(),
        clone=like,
        templates_folder=console.options.templates_folder,
        links=console.gpu_links,
    )
    screen.keys = console.context.keys(NEW_JOB)
    screen.data_bind(snapshot=type(console).snapshot)
    console.push_screen(screen, lambda ref: _made(console, ref))


def ask_for_manifest(console: Console, client: Client, like: Clone) -> None:
    """Open the YAML of a job that no form can say, to be changed and created."""
    from tui.screens.documents.manifest import ManifestScreen

    screen = ManifestScreen(client, like, namespace=str(like.manifest["metadata"]["namespace"]))
    screen.data_bind(snapshot=type(console).snapshot)
    console.push_screen(screen, lambda ref: _made(console, ref))


def _made(console: Console, ref: JobRef | None) -> None:
    """Go to the logs of a job that was created; below them the list has the cursor on it."""
    from tui.screens.lists.jobs import JobsView

    if ref is not None:
        for view in console.screen_stack:
            if isinstance(view, JobsView):
                view.go_to_created(ref)
        console.notify(f"{ref.kind} {ref.name} created.", markup=False)
        console.post_message(ActionRequest("logs", targets=[ref]))


def delete(console: Console, request: ActionRequest) -> None:
    """Ask whether jobs are to be deleted, delete them, and say afterwards what is left of them."""
    from tui.screens.dialogs.delete import DeleteScreen

    if (target := console.target_job(request)) is None:
        return
    plan = delete_plan(console.snapshot, console.target_jobs(request), hidden=request.hidden)
    if not plan.jobs:
        console.notify("It is already gone.", severity="warning")
        return

    def answered(agreed: DeletePlan | None) -> None:
        if agreed is not None:
            console.begin(_delete, target[0], agreed, group="delete")

    console.push_screen(DeleteScreen(plan), answered)


async def _delete(console: Console, client: Client, plan: DeletePlan) -> None:
    from k8s.jobs.create import delete_job

    async def end(job: Job) -> None:
        await delete_job(client, job.ref, job.uid, propagation=plan.propagation)

    done = await _each(console, plan.jobs, end, "is being deleted.")
    if done:
        await _tell_leftovers(console, DeletePlan(plan.context, tuple(done), plan.propagation))


async def _tell_leftovers(console: Console, plan: DeletePlan) -> None:
    """Wait until what was deleted is gone, but not for ever; then say so, or what is left."""
    import asyncio

    from tui.jobs.leftovers import find_leftovers, is_over, leftover_lines

    clock = asyncio.get_running_loop().time
    began_s = clock()
    cluster_feed = console.cluster_feed
    while cluster_feed is not None and console.cluster_feed is cluster_feed:
        left = find_leftovers(plan, console.snapshot, cluster_feed.pods)
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


def suspend(console: Console, request: ActionRequest) -> None:
    """Ask whether jobs are to be suspended, and suspend them."""
    _ask_to_suspend(console, request, is_suspended=True)


def resume(console: Console, request: ActionRequest) -> None:
    """Ask whether suspended jobs are to run again, and resume them."""
    _ask_to_suspend(console, request, is_suspended=False)


def _ask_to_suspend(console: Console, request: ActionRequest, *, is_suspended: bool) -> None:
    if (target := console.target_job(request)) is None:
        return
    jobs = [job for ref in console.target_jobs(request) if (job := console.snapshot.job(ref)) is not None]
    plan = suspend_plan(jobs, is_suspended=is_suspended, hidden=min(request.hidden, len(jobs)))
    if not plan.jobs:
        for job, why in plan.refused[:1]:
            console.notify(why, title=f"{job.ref.kind} {job.ref.name}:", severity="warning")
        return

    def answered(answer: str | None) -> None:
        if answer == "do":
            console.begin(_suspend, target[0], plan.jobs, is_suspended, group="suspend")

    verb = "Suspend" if is_suspended else "Resume"
    console.push_screen(ConfirmScreen(plan.question, "\n".join(plan.lines), verb), answered)


async def _suspend(console: Console, client: Client, jobs: Iterable[Job], is_suspended: bool) -> None:
    from k8s.jobs.suspend import suspend_job

    async def do(job: Job) -> None:
        await suspend_job(client, job.ref, job.uid, is_suspended=is_suspended)

    await _each(console, jobs, do, "is being suspended." if is_suspended else "is being resumed.")


async def _each(
    console: Console, jobs: Iterable[Job], do: Callable[[Job], Awaitable[None]], done: str
) -> list[Job]:
    """Change jobs, and say of each what became of it; return those that were changed."""

    def fail(_job: Job, error: KubeError) -> None:
        console.note_refusal(error)
        console.notify(error.details, title=error.what, severity="error")

    def tell(job: Job, words: str) -> None:
        console.notify(f"{job.ref.kind} {job.ref.name} {words}")

    return await change_each(jobs, do, done, tell=tell, fail=fail)
