"""Keys pressed in a console: each view, and each kind of effect that a key has.

`test_key_table` shows that every key is bound to an action; tests of the views show the rest of the effects.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from k8s.status import Status
from tests.scripted.server import Answer, Stall
from tests.support.event_files import curve
from tests.support.guide_runs import guide
from tests.support.objects import batch_job, node
from tests.support.playground import Playground, console_on
from tests.support.screen_text import resize
from tests.support.telemetry import ScriptedReader, feed_of, reading, telemetry_of
from tests.tui.screens.home_lab import lab_of, pane, says
from tests.tui.settings.keys.world import (
    BERT,
    BERT_PODS,
    PODS,
    PYTORCH_JOBS,
    at,
    changes,
    drawn_otherwise,
    is_one_piece,
    look_of,
    order,
    ordered,
    seen,
    title,
    titled,
    typed,
    unseen,
    world,
)
from tui.runs.journal.kept_facts import keep_curves
from tui.screens import VIEWS
from tui.screens.dialogs.help import HelpScreen
from tui.screens.lists.jobs import JobsView
from tui.widgets.home.node_bar import NodeBar
from tui.widgets.table.table import Table

PLACES = ("master-0", "worker-0")


@pytest.mark.slow
async def test_letters_of_the_list_of_jobs_open_views_of_the_job_under_the_cursor(tmp_path: Path) -> None:
    effects = {
        "enter": ("Jobs › bert   ", "instances 2", "conditions"),
        "l": ("› bert › logs", "line 99 of bert-master-0"),
        "p": ("› logs   ranks 0 · previous run", "it crashed here"),
        "m": ("Jobs › bert › curves",),
        "u": ("Jobs › bert › usage",),
        "y": ("› bert › YAML", "kind: PyTorchJob"),
    }
    async with world(tmp_path) as play:
        await play.press("N", "g")
        for key, words in effects.items():
            await play.see(key, seen(play, *words), "escape")
        await play.press("G")
        await play.see("W", seen(play, "› waits › why", "Pending", "0/2 nodes are available."), "escape")
        await play.see("T", seen(play, "› waits › diagnose", "0/2 nodes are available."), "escape")
        assert changes(play) == []


@pytest.mark.slow
async def test_letters_of_the_list_of_jobs_act_on_the_job_under_the_cursor(tmp_path: Path) -> None:
    async with world(tmp_path) as play:
        await play.press("N", "g")
        await play.see("v", seen(play, "Jobs › bert   ", "Image is there."), "escape", "escape")
        await play.see("ctrl+d", seen(play, "Delete 1 job?", "PyTorchJob default/bert", "Background:"))
        await play.see("p", seen(play, "Foreground:"), "p", "p")
        await play.press("escape")
        await play.see("H", seen(play, "Suspend 1 job?", "Deletes 2 pods"), "escape")
        await play.see("f", seen(play, "http://127.0.0.1:", "TensorBoard of bert is forwarded"), "f")
        await play.see("s", seen(play, "Could not open a shell in bert-master-0.", "no shell for li"))
        assert play.cluster.asked(f"{PODS}/bert-master-0/exec")
        await play.see("b", titled(play, "New job, clone of bert"), "escape")
        await play.press("j")
        await play.see("R", seen(play, "Resume 1 job?", "Job default/paused"), "escape")
        assert changes(play) == []


async def test_keys_of_the_list_of_jobs_filter_sort_and_mark_rows(tmp_path: Path) -> None:
    async with world(tmp_path) as play:
        await play.see("N", ordered(play, "bert", "paused", "waits"), "N")
        await play.see("S", ordered(play, "waits", "bert", "paused"))
        await play.see("M", lambda: order(play, "bert", "paused") == ["bert"], "M")
        await play.see("o", seen(play, "ancient"), "o")
        await play.see("F", lambda: order(play, "bert", "paused", "waits") == ["waits"], "F")
        await play.see("0", seen(play, "all namespaces", "far", "vision"), "0")
        await play.press("g")
        await play.see("space", seen(play, "1 marked"))
        await play.press("j", "j")
        await play.see("V", seen(play, "3 marked"))
        await play.see("U", unseen(play, "marked"))
        assert changes(play) == []


@pytest.mark.slow
async def test_keys_of_one_job_act_on_the_selected_instance_and_arrange_its_panes(tmp_path: Path) -> None:
    async with world(tmp_path) as play:
        await play.press("N", "g", "enter")
        await play.until(seen(play, "instances 2", "─ conditions", "─ events 1", "worker-0"))
        await play.press("j")
        await play.see("l", seen(play, "› bert › logs", "line 99 of bert-worker-0"), "escape")
        await play.see("p", seen(play, "previous run", "it crashed here"), "escape")
        await play.see("y", seen(play, "Pod bert-worker-0 › YAML", "nodeName: a"), "escape")
        await play.see("Y", seen(play, "› bert › YAML", "kind: PyTorchJob"), "escape")
        await play.see("s", seen(play, "Could not open a shell in bert-worker-0."))
        assert play.cluster.asked(f"{PODS}/bert-worker-0/exec")
        plain = look_of(play, "conditions")
        await play.see("tab", drawn_otherwise(play, "conditions", plain), "tab")
        await play.see("shift+tab", drawn_otherwise(play, "conditions", plain))
        await play.see("f", unseen(play, "instances 2"), "f")
        await play.see("v", unseen(play, "instances 2"), "v")
        assert changes(play) == []


async def test_keys_of_usage_sort_its_ranks_and_open_a_gpu(tmp_path: Path) -> None:
    async with world(tmp_path) as play:
        gpus = [reading("a", index, 90 - index, f"bert-{place}") for index, place in enumerate(PLACES)]
        console = play.console
        play.session.telemetry = feed_of(
            ScriptedReader(telemetry_of(*gpus)),
            jobs=lambda: console.snapshot.jobs,
            nodes=lambda: console.snapshot.nodes,
        )
        await play.press(*typed("usage bert"))
        await play.until(ordered(play, *PLACES))
        await play.press("full_stop", "full_stop", "full_stop", "O", "O")
        await play.until(ordered(play, *reversed(PLACES)))
        await play.see("O", ordered(play, *PLACES))
        await play.press("g")
        await play.see("d", seen(play, "GPU 0 of a ", "UUID"), "escape")


def strip(play: Playground) -> NodeBar:
    return play.console.screen.query_one(NodeBar)


async def test_digits_focus_a_pane_and_the_node_bar_moves_and_lists_the_jobs_of_a_node(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, nodes=[node(name, 8) for name in "abcdefgh"]) as play:
        screen = play.console.screen
        assert isinstance(screen, JobsView)
        await play.see("3", lambda: pane(play).holds_focus, "escape")
        assert screen.query_one(Table).has_focus
        await play.see("1", lambda: strip(play).has_focus, "2")
        await play.press("1")
        for key, name in (
            *(("right", "b"), ("left", "a"), ("l", "b"), ("h", "a"), ("end", "h"), ("home", "a"), ("G", "h")),
            *(("g", "a"), ("down", "f"), ("up", "a"), ("j", "f"), ("k", "a")),
        ):
            await play.see(key, lambda name=name: strip(play).cursor == name)  # type: ignore[misc]
        await play.until(seen(play, "◆  bert"))

        def listed() -> list[str]:
            return order(play, "bert", "waits", "paused")

        await play.see("enter", lambda: listed() == ["bert"] and "on a" in title(play))
        await play.see("enter", titled(play, "Nodes (8)"))
        await play.until(seen(play, "▸ a "))
        await play.press("escape")
        await play.until(lambda: listed() == ["bert"] and strip(play).has_focus)
        await play.press("escape")
        await play.until(lambda: len(listed()) == 3 and strip(play).has_focus)
        await play.press("escape")
        assert screen.query_one(Table).has_focus
        await resize(play.pilot, 80, 24)
        await play.until(lambda: not pane(play).display)
        await play.press("3")
        await play.until(lambda: pane(play).holds_focus and strip(play).display)
        assert changes(play) == []


@pytest.mark.slow
async def test_keys_of_the_job_s_pane_step_through_ranks_and_open_views_of_its_job(tmp_path: Path) -> None:
    async with world(tmp_path) as play:
        await play.press("N", "g", "3")
        await play.until(lambda: "line 99 of bert-master-0" in says(play))
        for letter, words in (("m", "› bert › curves"), ("W", "› bert › why")):
            await play.see(letter, titled(play, words), "escape")
            await play.until(lambda: "line 99 of bert-master-0" in says(play))

        def other() -> bool:
            return "line 99 of bert-worker-0" in says(play)

        (bert,) = [each for each in play.console.snapshot.jobs if each.ref.name == "bert"]
        await play.press(*["full_stop"] * (len(bert.instances[0].ranks) - 1))
        await play.see("full_stop", other, "comma")
        await play.press("full_stop")
        await play.until(other)
        await play.see("enter", titled(play, "Jobs › bert › logs"))
        await play.until(seen(play, "line 99 of bert-worker-0"))
        await play.press("escape")
        await play.until(lambda: other() and pane(play).holds_focus)
        assert changes(play) == []


async def test_a_key_shows_the_loss_of_running_jobs_or_reads_none(tmp_path: Path) -> None:
    objects, logs, _ = lab_of(2)
    async with console_on(tmp_path, **objects) as play:
        await play.press("z")
        await play.until(seen(play, "LOSS", "0.091  ▇▂▁▁▁▁▁▁"))
        await play.until(lambda: play.text.count("0.091  ▇") == 2)
        await play.press("x")
        await play.until(unseen(play, "LOSS"))
        assert sorted(logs.glanced) == ["job-000-master-0", "job-001-master-0"]


@pytest.mark.slow
async def test_keys_of_nodes_and_of_one_node_open_their_jobs(tmp_path: Path) -> None:
    async with world(tmp_path) as play:
        await play.see("tab", titled(play, "Nodes (2)"))
        await play.until(ordered(play, "a", "b"))
        await play.see("1", seen(play, "1 is gone: . and , select a column, and O sorts by it."))
        await play.see("N", ordered(play, "b", "a"))
        await play.see("N", ordered(play, "a", "b"))
        await play.press("g")
        await play.see("o", titled(play, "Jobs › bert   "), "escape")
        await play.see("T", titled(play, "Nodes › a › topology"), "escape")
        await play.see("u", titled(play, " Users ("), "escape")
        await play.see("d", titled(play, "Nodes › a "))
        await play.see("tab", seen(play, "No telemetry for these GPUs."))
        await play.see("A", ordered(play, "bert-worker-0", "bert-master-0"))
        await play.press("g")
        await play.see("enter", titled(play, "Jobs › bert   "), "escape")
        await play.see("l", seen(play, "› logs", "line 99 of bert-worker-0"), "escape")
        assert changes(play) == []


async def test_keys_of_pods_open_the_job_of_the_row(tmp_path: Path) -> None:
    async with world(tmp_path) as play:
        master, worker, waits = "bert-master-0", "bert-worker-0", "waits-master-0"
        await play.press(*typed("po"))
        await play.until(ordered(play, master, worker))
        await play.see("M", ordered(play, master, worker, waits))
        await play.see("S", ordered(play, waits, master, worker))
        await play.see("N", ordered(play, master, worker, waits))
        await play.see("0", seen(play, "far-master-0", "NAMESPACE"), "0")
        await play.press("g", "j")
        await play.until(at(play, worker))
        await play.see("enter", titled(play, "Jobs › bert   "), "escape")
        await play.see("l", seen(play, "› logs", "line 99 of bert-worker-0"), "escape")
        await play.see("y", seen(play, f"› bert › Pod {worker} › YAML"), "escape")
        assert changes(play) == []


async def test_keys_of_users_open_the_job_of_the_row(tmp_path: Path) -> None:
    async with world(tmp_path) as play:
        play.session.telemetry = feed_of(ScriptedReader(telemetry_of()))
        await play.press(*typed("users"))
        await play.until(ordered(play, "li", "li", "maria", "maria"))
        await play.press("g")
        await play.see("W", seen(play, "This is the user's total; select a job below."))
        await play.press("j")
        await play.see("enter", titled(play, "Jobs › bert   "), "escape")
        await play.see("m", titled(play, "› bert › curves"), "escape")
        await play.see("0", seen(play, "all namespaces", "chen"))
        await play.see("N", lambda: order(play, "li", "maria", "chen")[:1] == ["chen"])
        assert changes(play) == []


async def test_keys_of_notices_open_the_job_of_the_row(tmp_path: Path) -> None:
    async with world(tmp_path) as play:
        console = play.console
        assert console.notifier is not None
        (bert,) = [job for job in play.session.mirror.all_jobs if job.ref.name == "bert"]
        for status in (Status.RUNNING, Status.FAILED):
            console.notifier.update(console.snapshot, (replace(bert, status=status),))
        await play.see("ctrl+n", titled(play, "Jobs › bert   "), "escape")
        await play.press(*typed("notices"))
        await play.until(ordered(play, "bert"))
        await play.see("enter", titled(play, "Jobs › bert   "), "escape")
        await play.see("W", titled(play, "› bert › why"), "escape")
        assert changes(play) == []


@pytest.mark.slow
async def test_keys_of_events_and_volumes_open_the_object_of_the_row(tmp_path: Path) -> None:
    async with world(tmp_path) as play:
        pulled, rebooted, failed = "pod/bert-master-0", "node/a", "pod/notebook"
        await play.press(*typed("events"))
        await play.until(ordered(play, pulled, rebooted, failed))
        await play.see("N", ordered(play, rebooted, pulled, failed))
        await play.see("S", ordered(play, pulled, rebooted, failed))
        await play.see("F", unseen(play, "Pulled"), "F")
        await play.press("g")
        await play.see("enter", titled(play, "Jobs › bert   "), "escape")
        await play.see("v", seen(play, "about       Pod default/bert-master-0"), "escape")
        await play.see("y", titled(play, "› bert › YAML"), "escape")
        await play.press("j")
        await play.see("l", seen(play, "This event is about no job; v shows it in full."))

        await play.see("tab", titled(play, "Volumes ("))
        await play.until(ordered(play, "imagenet", "scratch", "workspace"))
        await play.see("S", ordered(play, "scratch", "workspace", "imagenet"))
        await play.press("g")
        await play.see("enter", titled(play, "Volumes › scratch"), "escape")
        await play.see("0", seen(play, "all namespaces", "NAMESPACE"), "0")
        await play.see("tab", titled(play, "Jobs ("))
        assert changes(play) == []


async def test_keys_of_namespaces_and_contexts_sort_them_and_switch(tmp_path: Path) -> None:
    async with world(tmp_path) as play:
        await play.press(*typed("ns"))
        await play.until(ordered(play, "default", "nlp", "vision"))
        await play.see("A", ordered(play, "nlp", "vision", "default"))
        await play.press("g", "j")
        await play.until(at(play, "vision"))
        await play.see("enter", seen(play, "lab / vision ", " Jobs (1)", "far"))

        _add_context(tmp_path / "kubeconfig", "attic")
        await play.press(*typed("ctx"))
        await play.until(ordered(play, "attic", "lab"))
        await play.press("g")
        await play.see("enter", seen(play, " attic / default ", " Jobs (3 of 4)"))
        assert changes(play) == []


def _add_context(kubeconfig: Path, name: str) -> None:
    said = json.loads(kubeconfig.read_text())
    said["contexts"].append(said["contexts"][0] | {"name": name})
    kubeconfig.write_text(json.dumps(said))


@pytest.mark.slow
async def test_keys_of_past_runs_sort_open_and_compare_them(tmp_path: Path) -> None:
    async with world(tmp_path) as play:
        first, second = guide()[0], guide()[1]
        for each in (
            replace(first, name="b", uid="b", ended_s=2e9, status="Succeeded", tags={}),
            replace(second, name="a", uid="a", ended_s=1e9, status="Failed"),
        ):
            play.console.context.runs.add(each)
        await play.press("g", "space", "j", "space")
        await play.see("C", titled(play, " Compare 2 runs"), "escape")
        await play.press(*typed("runs"))
        await play.until(ordered(play, "a", "b"))
        await play.see("A", ordered(play, "b", "a"))
        await play.press("g")
        await play.see("enter", seen(play, "batch-size"), "escape")
        await play.press("space", "j", "space")
        await play.see("C", titled(play, " Compare 2 runs"))
        await play.until(seen(play, "bars: IMG/S"))
        await play.see("N", seen(play, "NAME↑"))

        keep_curves(play.console.context.runs.journal, "b", [curve("loss", [3.0, 1.0])], is_log=False)
        await play.press("escape")
        await play.see("m", titled(play, "Jobs › 2 jobs › curves   1 tag, 2 points"))
        await play.until(seen(play, "a: The journal has no curves of this run."))
        await play.press("escape", "U", "g")
        await play.see("m", titled(play, "Jobs › b › curves   1 tag, 2 points · the journal"), "escape")
        await play.see("l", seen(play, "batch-size"), "escape")
        await play.see("W", seen(play, "The job of this run is gone; enter shows its record"))


def prompt(play: Playground) -> str:
    return play.text.splitlines()[-2].strip()


@pytest.mark.slow
async def test_keys_of_every_view_walk_through_the_history(tmp_path: Path) -> None:
    async with world(tmp_path) as play:
        here = play.console.views
        await play.see("left_curly_bracket", seen(play, "No earlier view."))
        await play.press(*typed("nodes"), *typed("why bert"), "escape", *typed("events"))
        for before in (" Nodes (", "› bert › why", " Nodes (", " Jobs ("):
            await play.see("left_curly_bracket", titled(play, before))
        for after in (" Nodes (", "› bert › why", " Nodes (", " Events ("):
            await play.see("right_curly_bracket", titled(play, after))
        await play.see("right_curly_bracket", seen(play, "No later view."))
        await play.press("{", *typed("users"), "}")
        assert here.current is not None and here.current.VIEW.name == "users"
        await play.see("minus", titled(play, " Nodes ("), "minus")
        assert changes(play) == []


async def test_keys_of_every_view_list_commands_and_keys_filter_and_go_back(tmp_path: Path) -> None:
    async with world(tmp_path) as play:
        await play.see("ctrl+a", seen(play, ":jobs, job, j ", ":compare "))
        await play.see("G", seen(play, ":pytorchjobs, pytorchjob, pytorch, py ", "Jobs of kind TrainJob"))
        await play.press("escape")
        await play.see("question_mark", seen(play, "This view", "Open the job: instances"), "escape")
        await play.see("ctrl+p", seen(play, "enter d     Open the job: instances"), "escape")
        await play.press("N", "slash", *"bert", "enter")
        await play.until(lambda: "/bert" in title(play) and "waits" not in play.text)
        await play.see("escape", ordered(play, "bert", "paused", "waits"))
        assert changes(play) == []


@pytest.mark.slow
async def test_keys_of_the_prompt_complete_recall_run_and_cancel(tmp_path: Path) -> None:
    async with world(tmp_path) as play:
        await play.see("slash", lambda: prompt(play) == "/", "escape")
        await play.press("N", "slash", *"bert")
        await play.see("enter", lambda: "/bert" in title(play) and prompt(play).startswith("Σ"))
        await play.press("escape", "colon", *"logs be")
        await play.until(lambda: prompt(play) == ":logs bert")
        await play.see("tab", lambda: is_one_piece(play, "logs bert"))
        await play.see("escape", lambda: prompt(play).startswith("Σ"))
        await play.press(*typed("nodes"), *typed("jobs"), "colon")
        for key, command in (("up", ":jobs"), ("up", ":nodes"), ("down", ":jobs")):
            await play.see(key, lambda command=command: prompt(play) == command)  # type: ignore[misc]
        assert changes(play) == []


@pytest.mark.slow
async def test_keys_of_every_view_copy_save_refresh_and_quit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUCONSOLE_CLIPBOARD", "file")
    async with world(tmp_path, size=(150, 40)) as play:
        state = tmp_path / "state"
        await play.press("N", "g")
        await play.until(seen(play, "─ events ─"))
        await play.see("z", unseen(play, "─ events ─"), "z")
        copied = state / "clipboard.txt"
        await play.see("c", lambda: copied.is_file() and copied.read_text() == "bert")
        await play.see("ctrl+s", lambda: list((state / "saved").glob("jobs-*.csv")))
        (saved,) = (state / "saved").iterdir()
        await play.until(seen(play, f"Saved to {saved}."))
        assert saved.read_text().splitlines()[1].startswith("bert,PyTorchJob,Running")
        asked = len(play.cluster.asked("/apis"))
        await play.see("ctrl+r", lambda: len(play.cluster.asked("/apis")) > asked)
        await play.see("q", seen(play, "Quit gpuconsole?"), "escape")
        await play.press("enter")
        await play.until(titled(play, "Jobs › bert   "))
        await play.see("q", titled(play, " Jobs ("))
        assert changes(play) == []
        await play.see("ctrl+c", lambda: play.console.return_code is not None)
        assert play.console.return_code == 0


@pytest.mark.parametrize(
    ("line", "named"), [("", "l on worker-0"), ("[rank3]: ValueError: bad shard 7", "l on rank 3")]
)
async def test_the_log_key_in_the_diagnosis_opens_the_log_of_the_advised_instance(
    tmp_path: Path, line: str, named: str
) -> None:
    ended = {"name": "pytorch", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}
    failed = BERT_PODS[1] | {"status": {"phase": "Failed", "containerStatuses": [ended]}}
    bert = BERT | {"status": {"conditions": [{"type": "Failed", "status": "True"}]}}
    bert["spec"] = BERT["spec"] | {"nprocPerNode": "2"}
    async with world(tmp_path, jobs=[bert], pods=[BERT_PODS[0], failed]) as play:
        for path, found in ((f"{PYTORCH_JOBS}/bert", bert), (f"{PODS}/bert-worker-0", failed)):
            play.cluster.forget(path)
            play.cluster.say(path, Answer(found))
        if line:
            play.cluster.replace(
                f"{PODS}/bert-worker-0/log", Answer(line.encode() + b"\nline 99 of bert-worker-0\n")
            )
        await play.press(*typed("why bert"))
        await play.until(seen(play, named))
        await play.press("l")
        await play.until(seen(play, "line 99 of bert-worker-0"))


async def test_the_diagnosis_of_a_suspended_job_names_the_resume_key(tmp_path: Path) -> None:
    paused = batch_job("paused", 1, 1, suspend=True)
    async with console_on(tmp_path, batch=[paused]) as play:
        play.cluster.say("/apis/batch/v1/namespaces/default/jobs/paused", Answer(paused))
        await play.press("W")
        await play.until(lambda: "Suspended: its object says suspend, so it has no pods." in play.text)
        assert "Resume it: R" in play.text
        assert "pod-0" not in play.text and "gpuconsole resume" not in play.text


@pytest.mark.slow
async def test_views_open_and_keys_act_while_the_server_answers_nothing(tmp_path: Path) -> None:
    of_jobs = {"job": "enter", "logs": "l", "curves": "m"}

    def is_open(view: str) -> bool:
        return play.console.views.current is not None and play.console.views.current.VIEW.name == view

    async with world(tmp_path) as play:
        play.cluster.say_everywhere(Stall())
        opening = {each.name: typed(each.command.name) for each in VIEWS if each.command}
        for view, keys in (opening | {name: [*typed("jobs"), key] for name, key in of_jobs.items()}).items():
            await play.press(*keys)
            await play.until(partial(is_open, view), view)
            await play.press("question_mark", shows=HelpScreen)
            await play.press("escape")
