"""Curves of several jobs and past runs, of a job whose pods are gone, and of a folder that is typed."""

from __future__ import annotations

import csv
import json
import math
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from k8s.kinds.job_spec import LOG_DIR_ANNOTATION
from k8s.logs import Target
from tests.scripted.server import Answer, Asked, Compute, page
from tests.support.event_files import CLAIM, JOBS, job_with_event_files, serve_event_files
from tests.support.guide_runs import GUIDE, guide
from tests.support.objects import Object
from tests.support.playground import Playground, console_on, some_objects
from tests.tui.session.test_curve_sources import ExecHere
from tests.tui.settings.keys.world import seen, titled, typed, world
from trainer.tfevents import EventWriter
from tui.runs.store import RunStore
from tui.screens.documents.text import TextView
from tui.screens.lists.compare import CompareView

NAMES = ("vgg16-topology", "vgg16-spread", "resnet50-topology", "resnet50-spread")


def write(folder: Path, number: int, steps: int, *, first: int = 0) -> None:
    with EventWriter(folder, flush_s=0) as writer:
        for step in range(first, steps):
            value = (2 - number / 4) * math.exp(-step / 30) + 0.2
            is_bad = number == 1 and 60 <= step < 70
            writer.write_scalar("train/loss", step, math.nan if is_bad else value, 1.79e9 + step * 60)
            if number < 2:
                writer.write_scalar("train/epoch", step, step / 25, 1.79e9 + step * 60)


def running(name: str) -> Object:
    job = job_with_event_files(name)
    job["metadata"]["annotations"][LOG_DIR_ANNOTATION] = f"/w/{name}"
    return job


@asynccontextmanager
async def overlaid(
    tmp_path: Path, size: tuple[int, int] = (120, 40), names: tuple[str, ...] = NAMES, points: int = 100
) -> AsyncIterator[Playground]:
    """Mark all jobs in the list and open their curves; the last job has no points, the first `points`."""
    jobs = [running(name) for name in names]
    for number, name in enumerate(names[:3] if points else ()):
        write(tmp_path / "volume" / name, number, points - 20 * number)
    async with world(tmp_path, jobs=jobs, batch=[], size=size) as play:
        for job in jobs:
            serve_event_files(play.cluster, job, tmp_path / "volume")
        await play.press("N")
        await play.until(seen(play, *names[:2]))
        await play.press("g", *["j", "space"] * len(names), "m")  # the first job is not ours
        yield play


async def test_marked_jobs_share_a_chart_and_stay_live(tmp_path: Path) -> None:
    async with overlaid(tmp_path) as play:
        await play.until(titled(play, "Jobs › 4 jobs › curves   2 tags, 420 points"))
        await play.until(seen(play, "resnet50-spread: No points yet"))
        await play.press("enter")
        await play.until(seen(play, "vgg16-topology 0.274", "vgg16-spread 0.326", "resnet50-topology 0.41"))
        await play.until(seen(play, "10 nan or inf in vgg16-spread"))
        await play.press("h", "H", "H", "H")
        await play.until(lambda: "resnet50-topology –" in play.text and "step " in play.text)
        write(tmp_path / "volume" / NAMES[3], 3, 50)
        await play.until(titled(play, "2 tags, 470 points"))
        await play.until(seen(play, "resnet50-spread"))
        await play.press("x", "x", "x")
        await play.until(seen(play, "by epoch", "no epoch: "))
        await play.press("x")
        await play.until(lambda: "by epoch" not in play.text)
        await play.press("escape", "escape")
        await play.until(titled(play, " Jobs ("))


async def test_the_step_at_which_a_loss_diverged_is_marked_and_described(tmp_path: Path) -> None:
    with EventWriter(tmp_path / "volume" / NAMES[0], flush_s=0) as writer:
        for step in range(200):
            value = 2 * math.exp(-step / 20) + 0.1 if step < 100 else 3.0
            writer.write_scalar("train/loss", step, value, 1.79e9 + step)
    async with overlaid(tmp_path, names=NAMES[:1], points=0) as play:
        await play.until(seen(play, "its loss is far above its minimum of 0.1", "since step 100", "!"))


@pytest.mark.slow
async def test_the_curves_view_of_several_jobs_reopens_with_all_of_them(tmp_path: Path) -> None:
    async with overlaid(tmp_path) as play:
        await play.until(titled(play, "Jobs › 4 jobs › curves"))
        await play.press("W")
        await play.until(titled(play, "› why"))
        await play.press("escape")
        await play.until(titled(play, "Jobs › 4 jobs › curves"))
        await play.press("escape", *typed("curves vgg16-spread resnet50-topology nobody"))
        await play.until(titled(play, "Jobs › 2 jobs › curves"))
        await play.until(seen(play, "No job or past run nobody here."))


async def test_more_jobs_than_a_chart_can_show_are_rejected(tmp_path: Path) -> None:
    async with overlaid(tmp_path, names=tuple(f"sweep-{number}" for number in range(9))) as play:
        await play.until(seen(play, "9 jobs are chosen; one chart shows up to 8."))
        await play.press("g", "j", "space", "m")
        await play.until(titled(play, "Jobs › 8 jobs › curves"))
        await play.press("escape", "U", "m")
        await play.until(titled(play, "Jobs › sweep-0 › curves"))


@pytest.mark.parametrize("size", [(80, 24), (160, 50)])
async def test_marked_runs_are_compared_with_bars(tmp_path: Path, size: tuple[int, int]) -> None:
    async with console_on(tmp_path, size=size, **some_objects()) as play:
        for each in reversed(guide()):
            play.console.context.runs.add(each)
        await play.press("colon", *"runs", "enter", shows=" Past runs")
        assert ("Past runs (4)" in play.text and "1252" in play.text) or size == (80, 24)
        await play.press("C", shows="Two or more are compared.")
        await play.press("g", "space", *["j", "space"] * 3, shows="4 marked")
        await play.press("C")
        await play.until(lambda: "820" in play.text and "bars: IMG/S" in play.text)
        assert isinstance(play.console.screen, CompareView)
        play.table.action_sort("throughput")
        await play.until(lambda: "IMG/S↓" in play.text)
        rates = [row.key.partition(" ")[2] for row in play.table.shown_rows]
        assert rates == [name for name, *_ in sorted(GUIDE, key=lambda each: -each[-1])]
        bars = [row.cells[-1].text for row in play.table.shown_rows]
        assert [len(bar) for bar in bars] == [16, 11, 10, 6]
        assert "differ in placement, link, model" in play.text
        await play.press("enter", shows="The job of this run is gone")
        await play.press("ctrl+s")
        await play.until(lambda: list(tmp_path.rglob("*.csv")))
        rows = list(csv.reader(next(tmp_path.rglob("*.csv")).read_text().splitlines()))
        assert len(rows) == 5 and {"NAME", "MODEL", "IMG/S"} <= set(rows[0])
        await play.press("escape", "enter", shows="batch-size")
        assert isinstance(play.console.screen, TextView)


async def test_marked_jobs_are_compared_and_a_damaged_record_is_named(tmp_path: Path) -> None:
    async with console_on(tmp_path, size=(160, 50), **some_objects()) as play:
        await play.press("C", shows="Two or more are compared.")
        await play.press("g", "space", "j", "space", "C")
        await play.until(lambda: isinstance(play.console.screen, CompareView) and "bert" in play.text)
        await play.press("escape", "colon", *"compare", "space", *"bert", "space", *"nosuch", "enter")
        await play.until(lambda: "No job or past run nosuch." in play.text)
        store: RunStore = play.console.context.runs
        store.add(guide()[0])
        other = RunStore(play.console.options.state_folder).journal
        other.write(("INSERT INTO runs (uid, record) VALUES ('x', ?)", b'{"uid": 3}'))
        await play.press("colon", *"runs", "enter")
        await play.until(lambda: "1 record skipped" in play.text and "pytorch-topo-4-vgg16" in play.text)
        target = msgspec.json.encode(Target("vision", "p", "c", instance="launcher"))
        body = zlib.compress(b"2026-11-20T18:36:10.000000001Z kept \x1b[31mline\n")
        other.write(("INSERT INTO logs VALUES (?, 'p', 'c', ?, 9.0, 0, ?)", guide()[0].uid, target, body))
        await play.press("enter", "G")
        await play.until(lambda: "its last 1 lines" in play.text and "kept line" in play.text)


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
