"""Actions on a job's pods: open a shell, forward a port, read a volume through one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from k8s.kinds import JobRef
from k8s.snapshot import Job
from k8s.text.errors import KubeError, NotFound
from tui.screens.base.console import BaseConsole, Functions
from tui.screens.base.request import ActionRequest, Route
from tui.text.instances import find_container, find_instance

if TYPE_CHECKING:
    from k8s.client.client import Client

TOLD_S = 60.0


def shell(console: BaseConsole, request: ActionRequest) -> None:
    """Suspend the console and run a shell in one of a job's pods."""
    if (target := console.target_job(request)) and (job := console.snapshot.job(target[1])):
        console.begin(_shell, target[0].client, job, request.instance, group="shell", exclusive=True)


async def _shell(console: BaseConsole, client: Client, job: Job, name: str) -> None:
    from tui.terminal.pod_shell import LEFT, handed_over, run_shell

    try:
        instance = find_instance(job, name)
        container = find_container(instance)
        code = await run_shell(
            client, job.ref.namespace, instance.pod, container, hand_over=lambda: handed_over(console)
        )
    except KubeError as error:
        console.record_refusal(error)
        console.notify(error.details, title=error.what, severity="error")
    else:
        ended = {0: "exited", LEFT: "was left; it may still run"}.get(code, f"exited with {code}")
        console.notify(f"Shell in {instance.name} of {job.ref.name} {ended}.")


def reader(console: BaseConsole, request: ActionRequest) -> None:
    """Show the curves of a job from its volume, through a pod that is created for it."""
    if target := console.target_job(request):
        console.begin(_read_volume, target[0].client, target[1], group="reader", exclusive=True)


async def _read_volume(console: BaseConsole, client: Client, ref: JobRef) -> None:
    from k8s.text.yaml_writer import to_yaml
    from tui.runs.curve_feed import CurveFeed
    from tui.screens.dialogs.confirm import ConfirmScreen
    from tui.screens.job.curves import CurvesView

    feed = CurveFeed(client, ref, lambda: console.snapshot.job(ref))
    try:
        manifest = await feed.reader_manifest()
        question = f"Create a pod to read the volume of {ref.name}? It is deleted afterwards."
        if await console.push_screen_wait(ConfirmScreen(question, to_yaml(manifest), "Create")) != "do":
            return
        console.notify(f"Reading the volume of {ref.name} through pod {manifest['metadata']['name']}…")
        await feed.read_volume(manifest)
    except KubeError as error:
        console.record_refusal(error)
        console.notify(error.details, title=error.what, severity="error")
    else:
        console.call_later(
            console.views.show, Route("curves", job=ref), CurvesView([ref], [feed], console.options.alerts)
        )


def port_forward(console: BaseConsole, request: ActionRequest) -> None:
    """Toggle a job's TensorBoard on this machine: its own, forwarded, or one that is started here."""
    if target := console.target_job(request):
        session, ref = target
        if ref in console.forwards:
            console.forwards.pop(ref).cancel()
            console.notify(f"Closed the TensorBoard of {ref.name}.")
        elif job := console.snapshot.job(ref):
            console.forwards[ref] = console.begin(_forward, session.client, job, group="forward")


async def _forward(console: BaseConsole, client: Client, job: Job) -> None:
    from k8s.jobs.port_forward import Forward
    from k8s.jobs.port_forward import forward as open_forward
    from k8s.jobs.tensorboard import find_tensorboard
    from tui.runs.curve_feed import CurveFeed
    from tui.runs.tensorboard import local_tensorboard, ssh_line

    said = ""

    def tell(forwarded: Forward) -> None:
        warn(str(forwarded.last_error or ""))

    def warn(words: str) -> None:
        nonlocal said
        if words and words != said:
            console.notify(words, severity="error")
        said = words

    try:
        try:
            place = await find_tensorboard(client, job)
        except NotFound as error:
            console.notify(f"{error.what} Starting one on this machine…")
            feed = CurveFeed(client, job.ref, lambda: console.snapshot.job(job.ref))
            async with local_tensorboard({}, {job.ref.name: feed}, warn) as address:
                console.context.forwarded[job.ref] = address
                line = ssh_line(address)
                console.notify(
                    f"TensorBoard of {job.ref.name} is at {address} (same key stops it)."
                    + f"\nFrom your own machine: {line}" * bool(line),
                    timeout=TOLD_S,
                )
                await asyncio.Event().wait()
        async with open_forward(client, place.pod, place.namespace, place.port, on_change=tell) as opened:
            address = f"http://{opened.address}"
            console.context.forwarded[job.ref] = address
            console.notify(
                f"TensorBoard of {job.ref.name} is forwarded to {address} (same key stops it).",
                timeout=TOLD_S,
            )
            await asyncio.Event().wait()
    except KubeError as error:
        console.forwards.pop(job.ref, None)
        console.record_refusal(error)
        console.notify(error.details, title=error.what, severity="error")
    finally:
        console.context.forwarded.pop(job.ref, None)


FUNCTIONS: Functions = {"port_forward": port_forward, "reader": reader, "shell": shell}
