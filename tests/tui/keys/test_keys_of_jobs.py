"""Each key of the list of jobs does what the table says."""

from __future__ import annotations

from pathlib import Path

from tests.tui.keys.proofs import Hands, proves
from tests.tui.keys.world import PODS, changes, order, ordered, seen, titled, world


@proves(
    "jobs.open_job",
    "jobs.logs",
    "jobs.previous_logs",
    "jobs.why",
    "jobs.diagnose",
    "jobs.job_events",
    "jobs.curves",
    "jobs.usage",
    "jobs.yaml",
    "jobs.next_view",
)
async def test_keys_of_the_list_of_jobs_lead_to_views_of_the_job_under_the_cursor(tmp_path: Path) -> None:
    async with world(tmp_path) as play:
        hands, back = Hands.on(play), ["escape"]
        await play.press("N", "g")
        await hands.press(
            "jobs.open_job", seen(play, "Jobs › bert   ", "instances 2", "conditions"), undo=back
        )
        await hands.press("jobs.logs", seen(play, "› bert › logs", "line 99 of bert-master-0"), undo=back)
        before = seen(play, "› logs   ranks 0 · previous run", "it crashed here")
        await hands.press("jobs.previous_logs", before, undo=back)
        happened = seen(play, "Jobs › bert   ", "Image is there.")
        await hands.press("jobs.job_events", happened, undo=[*back, *back])
        await hands.press("jobs.curves", titled(play, "Jobs › bert › curves"), undo=back)
        await hands.press("jobs.usage", titled(play, "Jobs › bert › usage"), undo=back)
        await hands.press("jobs.yaml", seen(play, "› bert › YAML", "kind: PyTorchJob"), undo=back)
        await play.press("G")
        why = seen(play, "Jobs › waits › why", "Pending", "0/2 nodes are available.")
        await hands.press("jobs.why", why, undo=back)
        diagnosis = seen(play, "Jobs › waits › diagnose", "0/2 nodes are available.")
        await hands.press("jobs.diagnose", diagnosis, undo=back)
        await hands.press("jobs.next_view", titled(play, "Nodes (2)"))
        assert changes(play) == []


@proves(
    "jobs.mine",
    "jobs.faults",
    "jobs.older",
    "jobs.all_namespaces",
    "jobs.sort_name",
    "jobs.sort_age",
    "jobs.sort_status",
)
async def test_keys_of_the_list_of_jobs_choose_and_sort_what_is_listed(tmp_path: Path) -> None:
    async with world(tmp_path) as play:
        hands = Hands.on(play)
        await hands.press("jobs.sort_name", ordered(play, "bert", "paused", "waits"))
        await play.press("N")
        await play.until(ordered(play, "waits", "paused", "bert"))
        await hands.press("jobs.sort_status", ordered(play, "waits", "bert", "paused"))
        await play.press("N")
        await hands.press("jobs.sort_age", ordered(play, "waits", "bert", "paused"))
        await hands.press("jobs.mine", lambda: order(play, "bert", "paused") == ["bert"], undo=["M"])
        await hands.press("jobs.older", seen(play, "ancient"), undo=["o"])
        await hands.press(
            "jobs.faults", lambda: order(play, "bert", "paused", "waits") == ["waits"], undo=["F"]
        )
        await hands.press("jobs.all_namespaces", seen(play, "all namespaces", "far", "vision"), undo=["0"])
        assert changes(play) == []


@proves(
    "jobs.new", "jobs.clone", "jobs.delete", "jobs.suspend", "jobs.resume", "jobs.shell", "jobs.port_forward"
)
async def test_keys_of_the_list_of_jobs_ask_before_they_act_on_the_job_under_the_cursor(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as play:
        hands, back = Hands.on(play), ["escape"]
        await play.press("N", "g")
        await hands.press("jobs.new", titled(play, "New job"), undo=back)
        await hands.press("jobs.clone", titled(play, "New job, clone of bert"), undo=back)
        await hands.press("jobs.delete", seen(play, "Delete 1 job?", "PyTorchJob default/bert"), undo=back)
        await hands.press("jobs.suspend", seen(play, "Suspend 1 job?", "Deletes 2 pods"), undo=back)
        await play.press("j")
        await hands.press("jobs.resume", seen(play, "Resume 1 job?", "Job default/paused"), undo=back)
        await play.press("k")
        forwarded = seen(play, "http://127.0.0.1:", "TensorBoard of bert is forwarded")
        await hands.press("jobs.port_forward", forwarded, undo=["f"])
        refused = seen(play, "Could not open a shell in bert-master-0.", "no shell for li")
        await hands.press("jobs.shell", refused)
        assert play.cluster.asked(f"{PODS}/bert-master-0/exec")
        assert changes(play) == []
