"""Each key of the view of one job does what the table says."""

from __future__ import annotations

from pathlib import Path

from tests.support.telemetry import ScriptedReader, feed_of, reading, telemetry_of
from tests.tui.keys.proofs import Hands, proves
from tests.tui.keys.world import (
    PODS,
    changes,
    drawn_otherwise,
    look_of,
    ordered,
    seen,
    titled,
    unseen,
    world,
)

PLACES = ("master-0", "worker-0")


@proves("job.usage", "usage.gpu", "usage.sort_util")
async def test_keys_of_what_one_job_uses(tmp_path: Path) -> None:
    async with world(tmp_path) as play:
        hands = Hands.on(play)
        gpus = [reading("a", index, 90 - index, f"bert-{place}") for index, place in enumerate(PLACES)]
        console = play.console
        console.telemetry_feed = feed_of(
            ScriptedReader(telemetry_of(*gpus)),
            jobs=lambda: console.snapshot.jobs,
            nodes=lambda: console.snapshot.nodes,
        )
        await play.press("N", "g", "enter")
        await play.until(seen(play, "Jobs › bert   ", "worker-0"))
        await hands.press("job.usage", titled(play, "Jobs › bert › usage"), undo=["escape"])
        await play.press("u")
        await play.until(ordered(play, *PLACES))
        await play.press("1", "1")
        await play.until(ordered(play, *reversed(PLACES)))
        await hands.press("usage.sort_util", ordered(play, *PLACES))
        await play.press("g")
        await hands.press("usage.gpu", seen(play, "GPU 0 of a ", "UUID"), undo=["escape"])
        assert changes(play) == []


@proves("job.logs", "job.previous_logs", "job.curves", "job.why", "job.diagnose", "job.yaml", "job.job_yaml")
async def test_keys_of_one_job_lead_to_what_it_said_and_is(tmp_path: Path) -> None:
    async with world(tmp_path) as play:
        hands, back = Hands.on(play), ["escape"]
        await play.press("N", "g", "enter")
        await play.until(seen(play, "Jobs › bert   ", "worker-0"))
        await play.press("j")
        await hands.press("job.logs", seen(play, "› bert › logs", "line 99 of bert-worker-0"), undo=back)
        await hands.press("job.previous_logs", seen(play, "previous run", "it crashed here"), undo=back)
        await hands.press("job.curves", titled(play, "Jobs › bert › curves"), undo=back)
        await hands.press("job.why", seen(play, "› bert › why", "It runs: 2 of 2 pods."), undo=back)
        await hands.press("job.diagnose", seen(play, "› bert › diagnose", "It runs: 2 of 2"), undo=back)
        pod = seen(play, "Pod bert-worker-0 › YAML", "nodeName: a", "name: bert-worker-0")
        await hands.press("job.yaml", pod, undo=back)
        await hands.press("job.job_yaml", seen(play, "› bert › YAML", "kind: PyTorchJob"), undo=back)
        assert changes(play) == []


@proves("job.only_events", "job.next_pane", "job.previous_pane", "job.full")
async def test_keys_of_one_job_go_round_its_panes_and_show_one_alone(tmp_path: Path) -> None:
    async with world(tmp_path) as play:
        hands = Hands.on(play)
        await play.press("N", "g", "enter")
        await play.until(seen(play, "instances 2", "─ conditions", "─ events 1"))
        plain = look_of(play, "conditions")
        await hands.press("job.next_pane", drawn_otherwise(play, "conditions", plain))
        await play.press("tab")
        await play.until(lambda: look_of(play, "conditions") == plain)
        await hands.press("job.previous_pane", drawn_otherwise(play, "conditions", plain))
        await hands.press("job.full", unseen(play, "instances 2"), undo=["f"])
        await hands.press("job.only_events", unseen(play, "instances 2"), undo=["v"])
        assert seen(play, "─ events 1", "Image is there.")()
        assert changes(play) == []


@proves("job.clone", "job.suspend", "job.resume", "job.delete", "job.port_forward", "job.shell")
async def test_keys_of_one_job_ask_before_they_act(tmp_path: Path) -> None:
    async with world(tmp_path) as play:
        hands, back = Hands.on(play), ["escape"]
        await play.press("N", "g", "j", "enter")
        await play.until(titled(play, "Jobs › paused   "))
        await hands.press("job.resume", seen(play, "Resume 1 job?", "Job default/paused"), undo=back)
        await play.press("escape", "k", "enter")
        await play.until(titled(play, "Jobs › bert   "))
        await hands.press("job.clone", titled(play, "New job, clone of bert"), undo=back)
        await hands.press("job.suspend", seen(play, "Suspend 1 job?", "PyTorchJob default/bert"), undo=back)
        await hands.press("job.delete", seen(play, "Delete 1 job?", "PyTorchJob default/bert"), undo=back)
        forwarded = seen(play, "http://127.0.0.1:", "TensorBoard of bert is forwarded")
        await hands.press("job.port_forward", forwarded, undo=["F"])
        await play.press("j")
        await hands.press("job.shell", seen(play, "Could not open a shell in bert-worker-0."))
        assert play.cluster.asked(f"{PODS}/bert-worker-0/exec")
        assert changes(play) == []
