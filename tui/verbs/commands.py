"""Command lines of gpuconsole and kubectl that do what the keys of a job do, for the same cluster."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import suppress
from typing import Literal

from msgspec.structs import replace

from k8s.jobs.modify import suspend_patch
from k8s.kinds import ElasticKind, kind_of
from k8s.snapshot import Job
from k8s.text.errors import NotFound
from tui.screens.base.console import BaseConsole, Functions
from tui.screens.base.request import ActionRequest
from tui.screens.dialogs.job_commands import JobCommandsScreen
from tui.settings.keys import ROW, remapped
from tui.settings.options import cluster_flags, command_line
from tui.text.instances import find_container, find_instance

# Name of an action, program, and words. Replicas have no action.
Command = tuple[str, Literal["gpuconsole", "kubectl"], tuple[str, ...]]


def commands(console: BaseConsole, request: ActionRequest) -> None:
    """List the commands for a job, to copy one."""
    if not (target := console.target_job(request)) or not (job := console.snapshot.job(target[1])):
        return
    ref, actions = job.ref, console.context.actions
    options = replace(console.options, namespace=ref.namespace)
    # The sandbox's kubeconfig is among the options of the session only.
    kubectl = ["kubectl", *cluster_flags(replace(options, kubeconfig=target[0].options.kubeconfig))]
    named = ref.namespace, ref.name, ref.kind
    refs = [each.ref for each in console.snapshot.jobs]
    same = [each for each in refs if (each.namespace, each.name, each.kind) == named]
    keys: dict[str, str] = {}
    for key in remapped(actions.keys(ROW), console.context.keymap):
        keys.setdefault(key.id.partition(".")[2], key.shown)
    rows = []
    for name, program, words in job_commands(job, request.instance, is_ambiguous=len(same) > 1):
        action = actions.find(name)
        if not options.is_read_only or (action is not None and not action.changes_cluster):
            typed = f":{action.commands[0]}" if action is not None and action.commands else ""
            is_ours = program == "gpuconsole"
            line = command_line(options, *words) if is_ours else shlex.join([*kubectl, *words])
            rows.append((keys.get(name, typed), shlex.join([program, *words]), line))

    def chosen(line: str | None) -> None:
        if line:
            console.post_message(ActionRequest("copy", line))

    console.push_screen(JobCommandsScreen(f"Commands for {ref.kind} {ref.name}", rows), chosen)


def job_commands(job: Job, instance: str = "", *, is_ambiguous: bool = False) -> Iterator[Command]:
    """Yield the commands for a job, without the flags that name the cluster.

    Args:
        job: The job.
        instance: Selected instance; empty for the chief.
        is_ambiguous: True if a job of another API group has the same kind and name.
    """
    kind = kind_of(job.ref)
    theirs = f"{kind.resource.full_name}/{job.ref.name}"
    ours = theirs if is_ambiguous else f"{job.ref.kind}/{job.ref.name}"
    chosen = ("-i", instance) if instance else ()
    pod: tuple[str, ...] = ()
    with suppress(NotFound):
        found = find_instance(job, instance)
        container = find_container(found)
        pod = (found.pod, *(("-c", container) if container else ()))
    yield "open_job", "gpuconsole", ("get", ours)
    yield "open_job", "gpuconsole", ("get", ours, "-o", "yaml")
    yield "open_job", "kubectl", ("describe", theirs)
    is_over = job.status.is_final
    for action, flags in (("logs", () if is_over else ("-f",)), ("previous_logs", ("--previous",))):
        yield action, "gpuconsole", ("logs", *flags, ours, *chosen)
        if pod:
            yield action, "kubectl", ("logs", *flags, *pod)
    for action in ("curves", "why", "diagnose"):
        yield action, "gpuconsole", (action, ours)
    yield "job_events", "gpuconsole", ("events", ours)
    yield "job_events", "kubectl", ("events", "--for", theirs)
    yield "yaml", "kubectl", ("get", theirs, "-o", "yaml")
    if pod and not is_over:
        yield "shell", "gpuconsole", ("shell", ours, *chosen)
        yield "shell", "kubectl", ("exec", "-it", *pod, "--", "sh")
    if not is_over:
        yield "port_forward", "gpuconsole", ("forward", ours)
    yield "clone", "gpuconsole", ("clone", ours)
    for action in ("edit", "delete"):
        yield action, "gpuconsole", (action, ours)
        yield action, "kubectl", (action, theirs)
    if is_over:
        return
    for action, is_suspended in (("suspend", True), ("resume", False)):
        if patch := suspend_patch(kind, is_suspended=is_suspended):
            yield action, "gpuconsole", (action, ours)
            yield action, "kubectl", ("patch", theirs, "--type", "merge", "-p", json.dumps(patch))
    if isinstance(kind, ElasticKind):
        workers = sum(not each.is_chief for each in job.instances) or 1
        yield "scale", "gpuconsole", ("scale", ours, "--replicas", str(workers))


FUNCTIONS: Functions = {"commands": commands}
