"""Curves from the volume of a job whose pods are gone, and from a folder that is typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.scripted.server import Answer, Asked, Compute, page
from tests.support.event_files import CLAIM, JOBS, job_with_event_files
from tests.tui.session.test_curve_sources import ExecHere
from tests.tui.settings.keys.world import seen, titled, typed, world
from trainer.tfevents import EventWriter

PODS = "/api/v1/namespaces/default/pods"


@pytest.mark.slow
async def test_a_volume_is_read_after_the_manifest_of_the_pod_was_confirmed(tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    with EventWriter(volume / "logs") as writer:
        writer.write_scalar("train/loss", 1, 0.5, 1.7e9)
    job = job_with_event_files("learns")
    async with world(tmp_path, jobs=[job], batch=[]) as play:
        cluster = play.cluster

        def create(asked: Asked) -> Answer:
            body = json.loads(asked.body)
            cluster.say(f"{PODS}/{body['metadata']['name']}/exec", ExecHere(volume))
            return Answer(body, 201)

        cluster.say(f"{JOBS}/learns", Answer(job))
        cluster.say(CLAIM, Answer({"metadata": {"name": "workspace"}}))
        cluster.replace(PODS, page([]))
        cluster.say(PODS, Compute(create), method="POST")
        cluster.say(f"{PODS}/*", Answer({"status": {"phase": "Running"}}))
        cluster.say(f"{PODS}/*", Answer({}), method="DELETE")
        await play.press(*typed("reader learns"))
        await play.until(seen(play, "Create a pod to read the volume of learns?", "activeDeadlineSeconds"))
        await play.press("escape")
        assert cluster.asked(PODS, method="POST") == []
        await play.press(*typed("reader learns"), shows="Create a pod to read")
        await play.press("tab", "enter")
        await play.until(titled(play, "Jobs › learns › curves   1 tag, 1 point · /w/logs in learns-reader-"))
        await play.until(seen(play, "train/loss", "newest point"))
        assert len([each for each in cluster.requests if each.method == "DELETE"]) == 1
        await play.press(*typed("folder logs"), shows="Which folder?")
        await play.press(*typed("folder /w/other"), shows="Jobs › learns › curves")
