"""Delete, suspend, resume and edit jobs, and report the remains of deleted ones.

A delete is only a request: a node that does not respond keeps its pods, and a finalizer keeps its
object. GPUs that are still held after a delete are easily overlooked.
"""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from msgspec.structs import replace

from k8s.client.auth.cluster_config import IN_CLUSTER, ClusterConfig
from k8s.client.client import Client
from k8s.kinds import JobRef, kind_of
from k8s.models import Pod
from k8s.models.resources import PODS
from k8s.snapshot import ClusterSnapshot, Job
from k8s.status.pod import pod_status
from k8s.text.errors import KubeError, NotFound
from k8s.text.sanitize import sanitize
from tui.settings.options import ConsoleOptions, cluster_flags
from tui.text.change_plans import ChangePlan, pods_of
from tui.text.format import listed, plural

# Pods usually have 30 s to end.
LONGEST_S = 60.0
_MOST_NAMED = 3
# The text of `pod_status` for such a pod.
_NO_ANSWER = "its node does not answer"


@dataclass(frozen=True, slots=True)
class Leftover:
    """Remains of one deleted job."""

    job: Job
    """The job at the time of the delete request."""
    is_there: bool = False
    finalizers: tuple[str, ...] = ()
    """Finalizers that keep its object."""
    pods: tuple[tuple[str, str], ...] = ()
    """Names of its remaining pods, each with its state and the reason it remains."""
    runs_on: bool = False
    unknown: str = ""
    """Reason that the above is unknown, as a sentence; empty if it is known."""

    @property
    def is_gone(self) -> bool:
        """Return True if everything that was to be deleted is gone."""
        return not self.unknown and not self.is_there and (self.runs_on or not self.pods)


def find_leftovers(
    plan: ChangePlan, snapshot: ClusterSnapshot, pods: Mapping[str, Pod]
) -> tuple[Leftover, ...]:
    """Return the remains of each deleted job.

    Args:
        plan: The jobs to delete.
        snapshot: The newest snapshot.
        pods: All pods by uid, from `ClusterMirror.pods`: pods without GPUs leave the snapshot once
            their job is gone.
    """
    by_uid = {job.uid: job for job in snapshot.jobs}
    nodes = {node.name: node.status for node in snapshot.nodes}
    return tuple(_left(job, plan, snapshot, by_uid.get(job.uid), pods, nodes) for job in plan.jobs)


def is_over(left: Iterable[Leftover], waited_s: float, longest_s: float = LONGEST_S) -> bool:
    """Return True if everything is gone or the time is up."""
    return waited_s >= longest_s or all(each.is_gone for each in left)


def leftover_lines(left: Sequence[Leftover], waited_s: float) -> tuple[str, ...]:
    """Return the messages about deleted jobs; those that are gone share one sentence."""
    gone = [each for each in left if each.is_gone and not (each.runs_on and each.pods)]
    sentences = []
    if gone:
        names = listed([_name(each) for each in gone])
        sentences.append(f"{names} {'is' if len(gone) == 1 else 'are'} gone.")
    sentences += [_sentence(each, waited_s) for each in left if each not in gone]
    return tuple(map(sanitize, sentences))


def _sentence(left: Leftover, waited_s: float) -> str:
    name, after = _name(left), f"after {waited_s:.0f} s"
    if left.unknown:
        return f"{name}: nobody can tell whether it is gone. {left.unknown}"
    if left.is_gone and not left.pods:
        return f"{name} is gone."
    if left.is_gone:
        gpus, one = left.job.gpus_allocated, len(left.pods) == 1
        if not gpus:
            return f"{name} is gone; {_pods(left)} of it {'stays' if one else 'stay'} as asked."
        runs = "runs" if one else "run"
        return f"{name} is gone; {_pods(left)} of it {runs} on as asked, with {plural(gpus, 'GPU')}."
    if left.pods:
        shown = "; ".join(f"{pod} {how}" for pod, how in left.pods[:_MOST_NAMED])
        more = f"; and {len(left.pods) - _MOST_NAMED} more" if len(left.pods) > _MOST_NAMED else ""
        return f"{name}: {_pods(left)} still there {after}: {shown}{more}."
    kept = f", kept by {_finalizers(left.finalizers)}" if left.finalizers else ""
    return f"{name} is still there {after}, without pods{kept}."


def _left(
    job: Job,
    plan: ChangePlan,
    snapshot: ClusterSnapshot,
    now: Job | None,
    pods: Mapping[str, Pod],
    nodes: Mapping[str, str],
) -> Leftover:
    runs_on = plan.propagation == "Orphan"
    if unknown := _unknown(job, plan, snapshot):
        return Leftover(job, runs_on=runs_on, unknown=unknown)
    instances = {each.pod_uid: each for each in (*pods_of(job), *(pods_of(now) if now is not None else ()))}
    found = tuple(
        (pod.metadata.name, _how(pod, nodes)) for uid in instances if (pod := pods.get(uid)) is not None
    )
    # A row may be made of pods alone, when its object is gone; without pods it is the object's.
    return Leftover(job, now is not None, now.finalizers if now is not None else (), found, runs_on)


def _unknown(job: Job, plan: ChangePlan, snapshot: ClusterSnapshot) -> str:
    if snapshot.context != plan.context:
        return "Another cluster is shown now."
    if not snapshot.is_synced:
        return "The cluster has not been read yet."
    if snapshot.namespace not in ("", job.ref.namespace):
        return "Another namespace is shown now."
    if snapshot.stale:
        return f"The state may be out of date: {snapshot.stale}"
    missing = snapshot.problems.get(PODS.full_name)
    return missing.words if missing is not None and missing.shown != job.ref.namespace else ""


def _how(pod: Pod, nodes: Mapping[str, str]) -> str:
    status, reason = pod_status(pod)
    node, meta = pod.spec.node_name, pod.metadata
    kept = []
    if nodes.get(node, "").startswith("NotReady"):
        kept.append("its node is not ready")
    elif _NO_ANSWER in reason:
        kept.append(_NO_ANSWER)
    if meta.deletion_timestamp is None:
        kept.append("nothing has asked it to end")
    elif meta.finalizers and (pod.is_finished or not node):  # else its containers have to end first
        kept.append(f"kept by {_finalizers(meta.finalizers)}")
    words = f"{status} on {node}" if node else str(status)
    return f"{words} ({', '.join(kept)})" if kept else words


def _finalizers(names: Sequence[str]) -> str:
    return f"finalizer{'s' if len(names) > 1 else ''} {', '.join(names)}"


def _name(left: Leftover) -> str:
    return left.job.ref.name


def _pods(left: Leftover) -> str:
    return plural(len(left.pods), "pod")


class Ui(Protocol):
    """Asks the user and reports to them: dialogs and notices, or a prompt and lines."""

    async def confirm(self, plan: ChangePlan) -> ChangePlan | None:
        """Report why jobs cannot be changed, and ask; return the plan to carry out, or None."""

    def report(self, jobs: Sequence[Job], words: str) -> None:
        """Report what happened to jobs, such as `is being deleted.`."""

    def fail(self, error: KubeError) -> None:
        """Report a failed change."""


async def delete(
    client: Client, plan: ChangePlan, ui: Ui, record: Callable[[Sequence[Job]], Awaitable[None]]
) -> ChangePlan | None:
    """Delete jobs after confirmation; `record` keeps records of their runs first.

    Returns:
        The confirmed plan with the jobs that were deleted; None if it was declined.
    """
    if (confirmed := await ui.confirm(plan)) is None:
        return None
    from k8s.jobs.create import delete_job  # slow to import: the question comes first

    await record(confirmed.jobs)

    async def end(job: Job) -> None:
        await delete_job(client, job.ref, job.uid, propagation=confirmed.propagation)

    return await _change(confirmed, end, "is being deleted.", ui)


async def suspend(client: Client, plan: ChangePlan, ui: Ui) -> ChangePlan | None:
    """Suspend or resume jobs after confirmation; return the plan as `delete` does."""
    if (confirmed := await ui.confirm(plan)) is None:
        return None
    from k8s.jobs.modify import suspend_job

    is_suspended = plan.verb == "Suspend"
    done = "is being suspended." if is_suspended else "is being resumed."

    async def do(job: Job) -> None:
        await suspend_job(client, job.ref, job.uid, is_suspended=is_suspended)

    return await _change(confirmed, do, done, ui)


async def _change(
    plan: ChangePlan, change: Callable[[Job], Awaitable[None]], done: str, ui: Ui
) -> ChangePlan:
    # A failure does not stop the others. An interrupt does, but what was done is reported.
    reports: dict[str, list[Job]] = {}
    try:
        for job in plan.jobs:
            try:
                await change(job)
                reports.setdefault(done, []).append(job)
            except NotFound:
                reports.setdefault("is already gone.", []).append(job)
            except KubeError as error:
                ui.fail(error)
    finally:
        for words, jobs in reports.items():
            ui.report(jobs, words)
    return replace(plan, jobs=tuple(reports.get(done, ())))


def edit_argv(options: ConsoleOptions, config: ClusterConfig, ref: JobRef) -> list[str]:
    """Return the command line of `kubectl edit` for a job.

    Args:
        options: Name the kubeconfig, the sandbox's too, and whom to act as.
        config: The cluster in use; its context may no longer be the kubeconfig's current one.
        ref: The job.

    Raises:
        KubeError: kubectl is not installed, or would act as another user.
    """
    what = f"Could not edit {ref.kind} {ref.name}."
    if shutil.which("kubectl") is None:
        hint = "Install kubectl: https://kubernetes.io/docs/tasks/tools/"
        raise KubeError(what, "kubectl, which edits it, is not found.", hint)
    if options.overrides.token:
        why = "kubectl would act as another user: a token is not passed on, as ps would show it."
        raise KubeError(what, why, "Put the token into a kubeconfig.")
    context = "" if config.context == IN_CLUSTER else config.context
    there = cluster_flags(replace(options, namespace=ref.namespace, context=context))
    return ["kubectl", *there, "edit", f"{kind_of(ref).resource.full_name}/{ref.name}"]
