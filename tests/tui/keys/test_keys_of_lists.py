"""Each key of the lists beside that of the jobs does what the table says."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from k8s.status import Status
from tests.support.playground import Playground
from tests.support.telemetry import ScriptedReader, feed_of, reading, telemetry_of
from tests.tui.keys.proofs import KEYS, Hands, proves
from tests.tui.keys.world import at, changes, order, ordered, seen, titled, typed, unseen, world


def leads_on(id: str) -> str:
    """Return what the title of the next view begins with: what its key's words say."""
    return f" {KEYS[id].footer.capitalize()} ("


@proves(
    "nodes.node_gpus",
    "nodes.largest_job",
    "nodes.sort_free",
    "nodes.sort_name",
    "nodes.next_view",
    "nodes.gpu_links",
    "nodes.gpu_schedule",
    "node_gpus.gpu_links",
    "node_gpus.gpu_schedule",
    "nodes.users",
    "node_gpus.next_pane",
    "node_gpus.open_job",
    "node_gpus.logs",
    "node_gpus.why",
    "node_gpus.curves",
    "node_gpus.usage",
    "node_gpus.commands",
    "node_gpus.yaml",
    "node_gpus.shell",
    "node_gpus.sort_since",
)
async def test_keys_of_nodes_lead_to_who_holds_them_and_to_their_jobs(tmp_path: Path) -> None:
    async with world(tmp_path) as play:
        hands, back = Hands.on(play), ["escape"]
        await play.press(*typed("nodes"))
        await play.until(ordered(play, "a", "b"))
        await hands.press("nodes.sort_free", ordered(play, "b", "a"))
        await hands.press("nodes.sort_name", ordered(play, "a", "b"))
        await play.press("g")
        await hands.press("nodes.largest_job", titled(play, "Jobs › bert   "), undo=back)
        topology, question = (
            titled(play, "Nodes › a › topology"),
            seen(play, "Give the GPUs of a by the links"),
        )
        await hands.press("nodes.gpu_links", topology, undo=back)
        await hands.press("nodes.gpu_schedule", question, undo=back)
        await hands.press("nodes.users", titled(play, " Users ("), undo=back)
        await hands.press("nodes.node_gpus", titled(play, "Nodes › a "), undo=back)
        await play.press("enter")
        await hands.press("node_gpus.next_pane", seen(play, "No telemetry for these GPUs."))
        await hands.press("node_gpus.sort_since", ordered(play, "bert-worker-0", "bert-master-0"))
        await play.press("g")
        await hands.press("node_gpus.open_job", titled(play, "Jobs › bert   "), undo=back)
        await play.press("l")
        await play.until(seen(play, "› logs", "line 99 of bert-worker-0"))
        await play.press("escape")
        await press_letters_of_a_job(play, hands, "node_gpus")
        await hands.press("node_gpus.gpu_links", topology, undo=back)
        await hands.press("node_gpus.gpu_schedule", question, undo=back)
        await play.press("escape")
        await hands.press("nodes.next_view", titled(play, leads_on("nodes.next_view")))
        assert changes(play) == []


@proves(
    "app.open_notice",
    "notices.open_notice",
    "notices.logs",
    "notices.why",
    "notices.curves",
    "notices.usage",
    "notices.commands",
    "notices.yaml",
    "notices.shell",
    "notices.sort_time",
    "notices.sort_job",
    "notices.sort_event",
)
async def test_keys_of_notices_lead_to_their_jobs(tmp_path: Path) -> None:
    async with world(tmp_path) as play:
        hands, back, console = Hands.on(play), ["escape"], play.console
        assert console.notifier is not None and console.cluster_feed is not None
        jobs = {job.ref.name: job for job in console.cluster_feed.all_jobs}
        bert, far = jobs["bert"], replace(jobs["far"], user="li")
        ended = [replace(bert, status=Status.FAILED), replace(far, status=Status.SUCCEEDED)]
        for seen_jobs in ((bert, far), (ended[0], far), tuple(ended)):
            console.notifier.update(console.snapshot, seen_jobs)
        await play.press("ctrl+n")
        await play.until(titled(play, "Jobs › far   "))
        assert console.snapshot.namespace == "vision"
        await play.press("escape", *typed("ns default"))
        await hands.press("app.open_notice", titled(play, "Jobs › bert   "), undo=back)
        await play.press(*typed("notices"))
        await play.until(ordered(play, "far", "bert"))
        await hands.press("notices.sort_event", ordered(play, "bert", "far"), undo=["S"])
        await hands.press("notices.sort_job", ordered(play, "bert", "far"))
        await hands.press("notices.sort_time", ordered(play, "far", "bert"))
        await play.press("G")
        await hands.press("notices.open_notice", titled(play, "Jobs › bert   "), undo=back)
        await press_letters_of_a_job(play, hands, "notices")
        assert changes(play) == []


@proves(
    "pods.open_job",
    "pods.logs",
    "pods.previous_logs",
    "pods.curves",
    "pods.why",
    "pods.usage",
    "pods.commands",
    "pods.yaml",
    "pods.shell",
    "pods.all_namespaces",
    "pods.mine",
    "pods.sort_restarts",
    "pods.sort_name",
    "pods.sort_age",
    "pods.sort_status",
    "pods.next_view",
)
async def test_keys_of_pods(tmp_path: Path) -> None:
    async with world(tmp_path) as play:
        hands, back = Hands.on(play), ["escape"]
        pods = master, worker, waits = "bert-master-0", "bert-worker-0", "waits-master-0"
        await play.press(*typed("po"))
        await play.until(ordered(play, master, worker))
        await hands.press("pods.mine", ordered(play, *pods))
        await hands.press("pods.sort_status", ordered(play, waits, master, worker))
        await hands.press("pods.sort_restarts", ordered(play, *pods))
        await play.press("S")
        await hands.press("pods.sort_name", ordered(play, *pods))
        await hands.press("pods.sort_age", lambda: "AGE↓" in play.text or "AGE↑" in play.text)
        await play.press("N")
        await hands.press("pods.all_namespaces", seen(play, "far-master-0", "NAMESPACE"), undo=["0"])
        await play.press("g", "j")
        await play.until(at(play, worker))
        await hands.press("pods.open_job", titled(play, "Jobs › bert   "), undo=back)
        await play.press("l")
        await play.until(seen(play, "› logs", "line 99 of bert-worker-0"))
        await play.press("escape")
        await hands.press("pods.previous_logs", seen(play, "previous run", "it crashed here"), undo=back)
        await press_letters_of_a_job(play, hands, "pods", worker)
        await hands.press("pods.next_view", titled(play, leads_on("pods.next_view")))
        assert changes(play) == []


async def press_letters_of_a_job(play: Playground, hands: Hands, view: str, pod: str = "") -> None:
    """Press the letters of a job in a list whose cursor is on a row of bert."""
    shows = {
        "logs": seen(play, "› bert › logs"),
        "curves": seen(play, "› bert › curves"),
        "why": seen(play, "› bert › why"),
        "usage": seen(play, "› bert › usage"),
        "commands": seen(play, "Commands for PyTorchJob bert"),
        "yaml": seen(play, f"› bert ›{f' Pod {pod} ›' * bool(pod)} YAML"),
    }
    for name, is_shown in shows.items():
        await hands.press(f"{view}.{name}", is_shown, undo=["escape"])
    requests = play.cluster.requests
    await hands.press(f"{view}.shell", lambda: any(each.path.endswith("/exec") for each in requests))


@proves(
    "users.open_job",
    "users.all_namespaces",
    "users.sort_idle_hours",
    "users.sort_user",
    "users.logs",
    "users.curves",
    "users.why",
    "users.usage",
    "users.commands",
    "users.yaml",
    "users.shell",
)
async def test_keys_of_users(tmp_path: Path) -> None:
    async with world(tmp_path) as play:
        hands, back = Hands.on(play), ["escape"]
        play.console.telemetry_feed = None
        await play.press(*typed("users"))
        await play.until(ordered(play, "li", "li", "maria", "maria"))
        await play.press("g", "j")
        await hands.press("users.open_job", titled(play, "Jobs › bert   "), undo=back)
        await press_letters_of_a_job(play, hands, "users")
        await play.press("g", "W")
        await play.until(seen(play, "This is the user's total; select a job below."))
        await hands.press("users.all_namespaces", seen(play, "all namespaces", "chen"))
        users = "li", "maria", "chen"
        await hands.press("users.sort_user", lambda: order(play, *users)[:1] == ["chen"])
        gpus = [reading("a", index, 1.0, "bert-master-0") for index in range(4)]
        feed = feed_of(ScriptedReader(telemetry_of(*gpus)), jobs=lambda: play.console.snapshot.jobs)
        before = [replace(gpu, read_at=gpu.read_at - timedelta(minutes=4)) for gpu in gpus]
        for each in (before, gpus):
            feed.ledger.add(each, play.console.snapshot.jobs)
        play.console.telemetry_feed = feed
        await hands.press("users.sort_idle_hours", lambda: order(play, *users)[:1] == ["li"])
        assert changes(play) == []


@proves(
    "events.logs",
    "events.curves",
    "events.why",
    "events.usage",
    "events.commands",
    "events.yaml",
    "events.shell",
    "events.open_event",
    "events.whole_event",
    "events.warnings",
    "events.all_namespaces",
    "events.sort_age",
    "events.sort_about",
    "events.sort_type",
    "events.next_view",
)
async def test_keys_of_events(tmp_path: Path) -> None:
    async with world(tmp_path) as play:
        hands, back = Hands.on(play), ["escape"]
        pulled, rebooted, failed = "pod/bert-master-0", "node/a", "pod/notebook"
        await play.press(*typed("events"))
        await play.until(ordered(play, pulled, rebooted, failed))
        await hands.press("events.sort_age", ordered(play, failed, rebooted, pulled))
        await hands.press("events.sort_about", ordered(play, rebooted, pulled, failed))
        await hands.press("events.sort_type", ordered(play, pulled, rebooted, failed))
        await hands.press("events.warnings", unseen(play, "Pulled"), undo=["F"])
        await play.press("g")
        await hands.press("events.open_event", titled(play, "Jobs › bert   "), undo=back)
        await hands.press(
            "events.whole_event", seen(play, "about       Pod default/bert-master-0"), undo=back
        )
        await press_letters_of_a_job(play, hands, "events")
        await play.press("slash", *"Rebooted", "enter", "l")
        await play.until(seen(play, "This event is about no job; v shows it in full."))
        await play.press("escape")
        await hands.press("events.all_namespaces", seen(play, "all namespaces", "NAMESPACE"), undo=["0"])
        await hands.press("events.next_view", titled(play, leads_on("events.next_view")))
        assert changes(play) == []


@proves(
    "volumes.volume",
    "volumes.all_namespaces",
    "volumes.sort_name",
    "volumes.sort_age",
    "volumes.sort_status",
    "volumes.next_view",
)
async def test_keys_of_volumes(tmp_path: Path) -> None:
    async with world(tmp_path) as play:
        hands = Hands.on(play)
        await play.press(*typed("volumes"))
        await play.until(ordered(play, "imagenet", "scratch", "workspace"))
        await hands.press("volumes.sort_age", ordered(play, "scratch", "imagenet", "workspace"))
        await hands.press("volumes.sort_name", ordered(play, "imagenet", "scratch", "workspace"))
        await hands.press("volumes.sort_status", ordered(play, "scratch", "workspace", "imagenet"))
        await play.press("g")
        await hands.press("volumes.volume", titled(play, "Volumes › scratch"), undo=["escape"])
        await hands.press("volumes.all_namespaces", seen(play, "all namespaces", "NAMESPACE"), undo=["0"])
        await hands.press("volumes.next_view", titled(play, leads_on("volumes.next_view")))
        assert changes(play) == []


@proves(
    "namespaces.switch_namespace",
    "namespaces.sort_name",
    "namespaces.sort_age",
    "namespaces.sort_held",
    "namespaces.next_view",
)
async def test_keys_of_namespaces(tmp_path: Path) -> None:
    async with world(tmp_path) as play:
        hands = Hands.on(play)
        await play.press(*typed("ns"))
        await play.until(ordered(play, "default", "nlp", "vision"))
        await hands.press("namespaces.sort_held", ordered(play, "default", "vision", "nlp"))
        await hands.press("namespaces.sort_name", ordered(play, "default", "nlp", "vision"))
        await hands.press("namespaces.sort_age", ordered(play, "nlp", "vision", "default"))

        async def go_back() -> None:
            await play.press(*typed("ns"), "slash", *"vision", "enter")
            await play.until(at(play, "vision"))

        await go_back()
        shown = seen(play, "lab / vision ", " Jobs (1)", "far")
        await hands.press("namespaces.switch_namespace", shown, undo=go_back)
        await hands.press("namespaces.next_view", titled(play, leads_on("namespaces.next_view")))
        assert changes(play) == []


@proves("contexts.sort_name", "contexts.switch_context")
async def test_keys_of_contexts(tmp_path: Path) -> None:
    async with world(tmp_path) as play:
        hands = Hands.on(play)
        _add_context(tmp_path / "kubeconfig", "attic")
        await play.press(*typed("ctx"))
        await play.until(ordered(play, "attic", "lab"))
        await hands.press("contexts.sort_name", ordered(play, "lab", "attic"))
        await play.press("N")

        async def go_back() -> None:
            await play.press(*typed("ctx lab"))
            await play.until(seen(play, " lab / default ", " Jobs (3 of 4)"))
            await play.press(*typed("ctx"))
            await play.until(ordered(play, "attic", "lab"))
            await play.press("g")

        await play.press("g")
        await play.until(at(play, "attic"))
        await hands.press(
            "contexts.switch_context", seen(play, " attic / default ", " Jobs (3 of 4)"), undo=go_back
        )


def _add_context(kubeconfig: Path, name: str) -> None:
    said = json.loads(kubeconfig.read_text())
    said["contexts"].append(said["contexts"][0] | {"name": name})
    kubeconfig.write_text(json.dumps(said))
