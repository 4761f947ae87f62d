"""GPU telemetry on the screens: numbers with source and age, trends, warnings, and reasons for gaps."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from msgspec.structs import replace
from textual.pilot import Pilot

from k8s.gpus.readings import (
    GpuReading,
    NoReadings,
    NoReadingsCause,
    PodReadings,
    Source,
    Telemetry,
    Throttle,
    Traffic,
    Usage,
)
from k8s.kinds import JobRef
from tests.scripted.server import WAIT_S, Reply, ScriptedCluster, refusal
from tests.scripted.telemetry import PODS, gpu_cluster, proxied, proxy_path, text
from tests.support.hosted_view import Hosted, hosted
from tests.support.objects import node
from tests.support.playground import console_on
from tests.support.telemetry import GIB, NO_EXPORTER, ScriptedReader, feed_of, reading, telemetry_of
from tests.tui.screens.test_job import job_view
from tests.tui.screens.test_job import row as job_row
from tests.tui.screens.test_jobs import line_of, picture
from tui.screens.base.telemetry_list import TREND_CELLS, trend
from tui.screens.base.view import View
from tui.screens.dialogs.detail import DetailScreen
from tui.screens.lists.gpus import NodeGpusView, UsageView
from tui.screens.lists.nodes import NodesView
from tui.screens.lists.users import UsersView
from tui.session.session import Session
from tui.session.telemetry_feed import TelemetryFeed
from tui.widgets.table.table import Table

REFUSED = NoReadings(NoReadingsCause.FORBIDDEN, "You may not get pods/proxy in namespace gpu-operator.")
SIMULATED = NoReadings(NoReadingsCause.NO_EXPORTER, "Its GPUs are simulated: there is nothing to measure.")
MASTER, WORKER = "bert-large-ft-master-0", "bert-large-ft-worker-0"


def of_bert(**more: Any) -> list[GpuReading]:
    """Return eight GPUs of one node: four of them work, three do little, the last has `more`."""
    busy = [reading("a100-1", index, 97, MASTER) for index in range(4)]
    return [*busy, *(reading("a100-1", index, 30, WORKER) for index in range(4, 7)), last(**more)]


def last(**more: Any) -> GpuReading:
    return reading("a100-1", 7, more.pop("utilisation", 55), WORKER, **more)


@dataclass
class Shown:
    """A view of the lab whose GPUs are said to do something."""

    app: Hosted
    pilot: Pilot[None]
    reader: ScriptedReader
    feed: TelemetryFeed

    async def until(self, is_so: Callable[[], object]) -> None:
        for _ in range(int(WAIT_S / 0.01)):
            if is_so():
                return
            await self.pilot.pause(0.01)
        raise AssertionError(f"never came true; on screen:\n{self.app.text}")


class NotAsked:
    """Permissions of which nothing is known."""

    def known(self, *_: object) -> SimpleNamespace:
        return SimpleNamespace(is_allowed=None)

    async def fetch_all(self, *_: object) -> None: ...


@asynccontextmanager
async def showing(
    view: View, telemetry: Telemetry, size: tuple[int, int] = (120, 40), **fields: Any
) -> AsyncIterator[Shown]:
    """Show a view of the lab, once its GPUs were read and drawn."""
    reader = ScriptedReader(telemetry)
    snapshot = picture(**fields)
    feed = feed_of(reader, jobs=lambda: snapshot.jobs, nodes=lambda: snapshot.nodes)
    view.session = cast(Session, SimpleNamespace(telemetry=feed, namespace="", permissions=NotAsked()))
    async with hosted(view, snapshot, size) as (app, pilot):
        shown = Shown(app, pilot, reader, feed)
        await shown.until(lambda: len(reader.asked) > 1)
        await pilot.pause()
        yield shown


def bert() -> JobRef:
    return next(job.ref for job in picture().jobs if job.ref.name == "bert-large-ft")


async def test_a_node_shows_the_metrics_of_each_gpu_with_source_and_age() -> None:
    async with showing(NodeGpusView("a100-1"), telemetry_of(*of_bert())) as shown:
        assert re.search(r" DCGM \ds ago", shown.app.text)
        busy = next(line for line in shown.app.text.splitlines() if "97%" in line)
        for words in ("▇", "61G/80G", "402/400W", "64C", "1410MHz", MASTER):
            assert words in busy
        assert "!" not in shown.app.text.split("GPU  UTIL")[1]


async def test_stale_gpu_metrics_are_marked() -> None:
    old = [replace(gpu, read_at=gpu.read_at - timedelta(minutes=4)) for gpu in of_bert()]
    async with showing(NodeGpusView("a100-1"), telemetry_of(*old)) as shown:
        assert "DCGM 4m ago!" in shown.app.text


async def test_a_narrow_terminal_hides_low_priority_gpu_columns() -> None:
    async with showing(NodeGpusView("a100-1"), telemetry_of(*of_bert()), (62, 24)) as shown:
        header = next(line for line in shown.app.text.splitlines() if "UTIL" in line)
        assert "MEMORY" in header and "TEMP" in header and "CLOCK" not in header
        assert shown.app.text.count("61G/80G") == 8


async def test_a_node_without_telemetry_adds_only_one_line_with_the_reason() -> None:
    async with hosted(NodeGpusView("a100-1"), picture(), (120, 24)) as (app, _):
        before = [line for line in app.text.splitlines() if line]
    for missing, words in (
        (NO_EXPORTER, "Nothing on this node tells what its GPUs do."),
        (replace(NO_EXPORTER, words="No DCGM exporter runs on it."), "NVIDIA's dcgm-exporter"),
        (REFUSED, "You may not get pods/proxy in namespace gpu-operator. Ask for permission"),
        (SIMULATED, "Its GPUs are simulated: there is nothing to measure."),
        (NoReadings(NoReadingsCause.UNREACHABLE, "no answer"), "No answer. Retrying automatically"),
    ):
        told = telemetry_of(missing={"a100-1": missing})
        async with showing(NodeGpusView("a100-1"), told, (120, 24)) as shown:
            after = shown.app.text.splitlines()
            assert sum(words in line for line in after) == 1
            assert [line for line in after if words not in line and line] == before
            assert "UTIL" not in shown.app.text


async def test_a_gpu_warning_is_summarized_and_enter_shows_cause_and_remedy() -> None:
    hot = of_bert(throttles=frozenset({Throttle.THERMAL}), temperature_c=91.0, xid=79)
    async with showing(NodeGpusView("a100-1"), telemetry_of(*hot)) as shown:
        text = shown.app.text
        assert (
            "7 !" in text and "└ ! Last XID 79: the GPU has fallen off the bus. (+1; enter shows all)" in text
        )
        await shown.pilot.press("tab", "G", "enter")
        assert isinstance(shown.app.screen, DetailScreen)
        await shown.until(lambda: "Slowed down by its heat at 91 °C." in shown.app.text)
        words = " ".join(shown.app.text.replace("│", " ").split())
        assert "have the node's cooling" in words and "have the node drained" in words
        assert "throttled by thermal" in words and "source DCGM" in words
        assert shown.app.requests == []


async def test_without_telemetry_tab_reports_it_and_enter_on_a_holder_opens_its_job() -> None:
    async with showing(NodeGpusView("a100-1"), telemetry_of(missing={"a100-1": NO_EXPORTER})) as shown:
        await shown.pilot.press("tab")
        assert "No telemetry for these GPUs." in shown.app.text
        await shown.pilot.press("enter")
        assert [request[0] for request in shown.app.requests] == ["open_job"]


async def test_telemetry_is_read_for_visible_gpu_nodes_only() -> None:
    async with showing(NodesView(), telemetry_of(*of_bert()), (120, 12)) as shown:
        assert set(shown.reader.asked[0]) < {node.name for node in picture().nodes}
        assert "h100-1" not in {name for names in shown.reader.asked for name in names}
        await shown.pilot.press("G")
        await shown.until(lambda: "h100-1" in shown.reader.asked[-1])
        assert "a100-1" not in shown.reader.asked[-1] and "login-1" not in shown.reader.asked[-1]


async def test_the_node_list_has_gpu_metric_columns_when_any_node_has_telemetry() -> None:
    async with showing(NodesView(), telemetry_of(*of_bert(temperature_c=83.0)), (200, 40)) as shown:
        assert re.search(r"Nodes \(11\)  DCGM \ds ago", shown.app.text)
        told = line_of(shown.app, "a100-1")
        assert " 67% " in told and "488G/640G" in told and "3216W" in told and "83C" in told
        assert "–" in line_of(shown.app, "a100-2")
    async with showing(NodesView(), telemetry_of(missing={"a100-1": NO_EXPORTER}), (200, 40)) as shown:
        assert "UTIL" not in shown.app.text and "DCGM" not in shown.app.text


async def test_telemetry_is_not_read_while_another_view_is_shown() -> None:
    async with showing(NodesView(), telemetry_of(*of_bert())) as shown:
        view = shown.app.view
        await shown.app.push_screen(View())
        await shown.until(
            lambda: not any(not each.is_finished for each in view.workers if each.group == "telemetry")
        )
        asked = len(shown.reader.asked)
        view.post_message(Table.RowHighlighted(view.query_one(Table), "a100-2"))
        await shown.pilot.pause(0.1)
        assert len(shown.reader.asked) == asked
        shown.app.pop_screen()
        await shown.until(lambda: len(shown.reader.asked) > asked)


async def test_ctrl_r_retries_forbidden_telemetry() -> None:
    async with showing(NodeGpusView("a100-1"), telemetry_of(missing={"a100-1": REFUSED})) as shown:
        shown.app.view.refresh_feeds()
        assert shown.reader.retries == 1


async def test_usage_has_a_row_per_rank_with_gpu_metrics_and_pod_usage() -> None:
    now = datetime.now(UTC)
    used = PodReadings(
        "default",
        MASTER,
        Usage(3.21, 12 * GIB, Source.METRICS, now),
        Traffic(1.2e6, 8e4, 2.1e8, 4e3, Source.PROMETHEUS, now),
    )
    view = UsageView(bert())
    async with showing(view, telemetry_of(*of_bert(xid=79), pods=[used]), (160, 40)) as shown:
        text = shown.app.text
        told = r"DCGM \ds ago  metrics.k8s.io \ds ago, Prometheus \ds ago"
        assert re.search(told, text.splitlines()[1])
        first = next(line for line in text.splitlines() if "a100-1:0" in line)
        for words in (" 0  master-0 ", "97%", "61G/80G", "3.2", "12G", "1.2M↓ 80k↑", "210M↓ 4k↑"):
            assert words in first
        assert "! 7  worker-0" in text and "Last XID 79" in text
        assert "16" not in {cells.split()[0] for cells in text.splitlines() if cells.split()}
        assert "Σ 8 GPUs seen · 67% in the mean, 30% the least · 3216W · 1 warning" in text
        assert {name for names in shown.reader.jobs for name in names} == {"bert-large-ft"}
        await shown.until(lambda: ("a100-1", "a100-2") in shown.reader.asked)
        await shown.pilot.press("g", "enter")
        await shown.until(lambda: isinstance(shown.app.screen, DetailScreen))


async def test_missing_pod_usage_adds_no_lines_and_a_forbidden_exporter_is_reported_once() -> None:
    view, used = UsageView(bert()), PodReadings("default", MASTER)
    async with showing(view, telemetry_of(*of_bert(), pods=[used]), (200, 40)) as shown:
        assert '"' not in shown.app.text
    refused = telemetry_of(missing={"a100-1": REFUSED, "a100-2": REFUSED})
    async with showing(UsageView(bert()), refused) as shown:
        assert shown.app.text.count("You may not get pods/proxy in namespace gpu-operator.") == 1


async def test_a_slow_gpu_of_a_job_is_reported_after_enough_samples() -> None:
    slow = [reading("a100-1", index, 96, MASTER) for index in range(7)]
    slow.append(reading("a100-1", 7, 20, MASTER))
    view = UsageView(bert())
    async with showing(view, telemetry_of(*slow)) as shown:
        for seconds in range(1, 4):
            later = [replace(gpu, read_at=gpu.read_at + timedelta(seconds=seconds)) for gpu in slow]
            rounds = len(shown.reader.asked)
            shown.reader.telemetry = telemetry_of(*later)
            await shown.until(lambda rounds=rounds: len(shown.reader.asked) > rounds + 1)  # type: ignore[misc]
        await shown.until(lambda: "orks 20 % of the time, its peers 96 %." in shown.app.text)
        assert "All ranks wait for it" in shown.app.text


async def test_the_job_view_shows_gpu_metrics_and_warnings_or_the_reason_why_they_are_missing(
    tmp_path: Path,
) -> None:
    gpus = [reading("a100-1", 0, 97, "bert-master-0"), reading("a100-1", 1, 87, "bert-master-0")]
    gpus += [reading("a100-1", 2, 2, "bert-worker-0"), reading("a100-1", 3, 98, "bert-worker-0", xid=79)]
    reader = ScriptedReader(telemetry_of(*gpus))
    async with job_view(tmp_path, size=(130, 40)) as play:
        console = play.console
        play.session.telemetry = feed_of(
            reader, jobs=lambda: console.snapshot.jobs, nodes=lambda: console.snapshot.nodes
        )
        console.screen.query_one(Table).screen.refresh_view()  # type: ignore[attr-defined]
        await play.until(lambda: "▇▇ 92%" in job_row(play, "master-0"))
        assert "122G/160G" in job_row(play, "master-0") and "804W" in job_row(play, "master-0")
        assert "50%!" in job_row(play, "worker-0")
        assert "└ ! Rank 3, GPU 3 of a100-1: Last XID 79: the GPU has fallen off the bus." in play.text
        await play.press("W", shows="It runs: 3 of 3 pods; 1 GPU warning, see below.")
        assert (
            "gpu: Rank 3, GPU 3 of a100-1: Last XID 79" in play.text and "have the node drained" in play.text
        )
        await play.press("escape")
        reader.telemetry = telemetry_of(missing={"a100-1": REFUSED})
        await play.until(lambda: "You may not get pods/proxy in namespace gpu-operator." in play.text)
        assert "UTIL" not in play.text


async def test_users_are_listed_with_held_and_idle_gpus() -> None:
    async with showing(
        UsersView(), telemetry_of(*of_bert(utilisation=1), missing={"a100-4": REFUSED})
    ) as shown:
        text = shown.app.text
        assert re.search(r"Users \(4\)  DCGM \ds ago", text)
        assert "Idle is not known for 1 of " in text and ": You may not get pods/proxy" in text
        job = line_of(shown.app, "bert-large-ft").split()
        assert job[:6] == ["li", "bert-large-ft", "default", "16", "16", "1"]
        assert "Σ 4 users · 63 GPUs held · 32 waited for · 1 idle now" in text


async def test_the_most_idle_user_comes_first_and_c_copies_a_message_to_that_user() -> None:
    idle = [reading("a100-3", index, 1.0, "vit-h-pretrain-worker-0") for index in range(8)]
    async with showing(UsersView(), telemetry_of(*idle, *of_bert())) as shown:
        await shown.until(lambda: "8 idle now" in shown.app.text)
        table = shown.app.screen.query_one(Table)
        assert next(row.cells[0].text for row in table.shown_rows) == "maria"
        await shown.pilot.press("g", "j")
        message = shown.app.view.copy_text()
        assert message.startswith(
            "Hi maria, vit-h-pretrain in namespace default holds 16 GPUs; 8 of 8 seen are idle now (below"
        )
        assert message.endswith("Does it still need them?")
        await shown.pilot.press("enter")
        assert shown.app.requests[-1][0] == "open_job" and shown.app.requests[-1][2] == ("vit-h-pretrain",)


def exporter_on(reply: Reply) -> Callable[[ScriptedCluster], None]:
    """Let the exporter of node gpu-a answer so."""

    def prepare(cluster: ScriptedCluster) -> None:
        cluster.forget(PODS)
        gpu_cluster(cluster, gpu_a=reply)

    return prepare


async def test_the_console_reads_an_exporter_through_the_api_server_once_a_view_shows_it(
    tmp_path: Path,
) -> None:
    async with console_on(tmp_path, nodes=[node("gpu-a", 2)], prepare=exporter_on(text())) as play:
        assert proxied(play.cluster) == []
        await play.press("tab", shows="Nodes (1)  DCGM")
        await play.press("enter")
        await play.until(lambda: "98%" in play.text and "387W" in play.text)
        assert proxied(play.cluster) == [proxy_path("gpu-a")]


async def test_a_forbidden_exporter_is_reported_in_one_line_and_requested_once(tmp_path: Path) -> None:
    words = 'User "li" cannot get resource "pods/proxy" in API group "" in the namespace "gpu-operator"'
    refused = exporter_on(refusal(403, words, "Forbidden"))
    async with console_on(tmp_path, nodes=[node("gpu-a", 2)], prepare=refused) as play:
        await play.press("tab", "enter")
        said = "You may not get pods/proxy in namespace gpu-operator."
        await play.until(lambda: said in play.text)
        assert play.text.count(said) == 1 and "UTIL" not in play.text
        await play.press("escape", "enter", "escape", "colon", *"users", "enter", shows="Users (0)")
        assert proxied(play.cluster) == [proxy_path("gpu-a")]


def test_a_trend_is_blank_before_the_first_sample_and_shows_gaps_as_dots() -> None:
    feed = feed_of(ScriptedReader(Telemetry()))
    key = last().key
    assert trend(feed.history.of(key)) == "–"
    for minutes, utilisation in ((20, 100.0), (2, 50.0), (0, 0.0)):
        feed.history.add([last(utilisation=utilisation, ago_s=minutes * 60)])
    drawn = trend(feed.history.of(key))
    assert len(drawn) == TREND_CELLS and drawn.endswith("▄▁") and drawn.strip().startswith("▇·")
    assert asyncio.iscoroutinefunction(feed.follow)
