"""Numbers, times, names, ranks, progress and links as text, and text in the cells of a terminal."""

from __future__ import annotations

import math
import re
import time
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.cells import cell_len as rich_cell_len

from k8s.gpus.ack import config_map, read_config_map
from k8s.gpus.gpu_links import read_topology
from k8s.gpus.links import MACHINES, LinkMatrix
from k8s.models import Pod, convert
from k8s.models.event import Event
from k8s.reasons.phrases import clock
from k8s.status import Status
from k8s.status.job import DeclaredStatus, InstanceState, job_status
from k8s.status.pod import pod_status
from tests.k8s.gpus.texts import DGX_1V, H100, ONE
from tests.k8s.reasons.test_predicates import row
from tests.support.objects import pod_of, pytorch_job
from tui.tables.events import FoldedEvent, full_text
from tui.text import cells
from tui.text import format as fmt
from tui.text.cells import cell_len
from tui.text.format import NOTHING
from tui.text.gpu_links import link_lines, place_line, schedule_line
from tui.text.instances import format_ranks
from tui.text.progress import progress_in
from tui.text.sparkline import GAP, LEVELS, level, sparkline, trend


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "\N{EN DASH}"),
        (math.nan, "\N{EN DASH}"),
        (-5, "0s"),
        (45, "45s"),
        (540, "9m"),
        (8100, "2h15m"),
        (11 * 3600 + 240, "11h04m"),
        (3 * 86400 + 4 * 3600, "3d4h"),
        (400 * 86400, "400d"),
    ],
)
def test_ages_are_coarse_and_never_negative(seconds: float | None, text: str) -> None:
    assert fmt.age(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0.0s"),
        (0.42, "0.4s"),
        (9.94, "9.9s"),
        (9.96, "10s"),
        (42, "42s"),
        (252, "4m12s"),
        (5040, "1h24m"),
    ],
)
def test_durations_are_finer_than_ages(seconds: float, text: str) -> None:
    assert fmt.duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2.1e-05, "2.1e-05"),
        (1.87, "1.87"),
        (412.0, "412"),
        (24117.0, "24117"),
        (999.7, "1000"),
        (1e7, "1e+07"),
        (math.nan, "nan"),
        (-math.inf, "-inf"),
        (None, "\N{EN DASH}"),
    ],
)
def test_measured_values_have_three_digits(value: float | None, text: str) -> None:
    assert fmt.number(value) == text


def test_large_numbers_are_short() -> None:
    assert [fmt.si(value) for value in (0, 412, 12_000, 1_250_000)] == ["0", "412", "12k", "1.25M"]
    assert fmt.si(999_999) == "1M"
    assert [fmt.count(value) for value in (31, 1204, 99_999, 1_250_000)] == ["31", "1,204", "99,999", "1.25M"]
    assert [fmt.memory(value) for value in (0, 80 << 20, 3 << 29, 612 << 30)] == ["0B", "80M", "1.5G", "612G"]
    assert [fmt.plural(amount, "job") for amount in (0, 1, 3)] == ["0 jobs", "1 job", "3 jobs"]


@given(st.floats())
def test_any_number_can_be_formatted(value: float) -> None:
    for say in (fmt.number, fmt.si, fmt.age, fmt.duration):
        assert 0 < len(say(value)) < 330


def test_each_gpu_gets_one_cell_while_all_fit() -> None:
    assert fmt.gpu_bar(3, 2, 1) == "▮▮▮▯▯✕"
    assert fmt.gpu_bar(0, 0, 0) == ""


@given(st.integers(0, 5000), st.integers(0, 5000), st.integers(0, 5000), st.integers(3, 80))
def test_many_gpus_are_drawn_as_shares_with_every_existing_state_visible(
    busy: int, free: int, bad: int, width: int
) -> None:
    bar = fmt.gpu_bar(busy, free, bad, width=width)
    assert len(bar) == min(width, busy + free + bad)
    assert ("▮" in bar, "▯" in bar, "✕" in bar) == (busy > 0, free > 0, bad > 0)


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ((), ""),
        (("a100-1",), "a100-1"),
        (("a100-2", "a100-1"), "a100-[1-2]"),
        (("n-9", "n-10", "n-12", "login"), "n-[9-10,12], login"),
        (("n-08", "n-09", "n-10", "n-7"), "n-[7,08-10]"),
        (("ip-10-0-1-7.ec2.internal", "ip-10-0-1-8.ec2.internal"), "ip-10-0-1-[7-8].ec2.internal"),
        (("a-1", "b-1"), "a-1, b-1"),
    ],
)
def test_nodes_of_a_job_are_written_as_ranges(names: tuple[str, ...], text: str) -> None:
    assert fmt.compact_ranges(names) == text


def expanded(text: str) -> set[str]:
    names = set()
    for start, inside, end in re.findall(r"([^][, ]*)(?:\[([^]]*)\]([^][, ]*))?", text):
        for part in filter(None, inside.split(",")):
            first, _, last = part.partition("-")
            numbers = range(int(first), int(last or first) + 1)
            names |= {f"{start}{number:0{len(first)}}{end}" for number in numbers}
        if start and not inside:
            names.add(start)
    return names


HOSTS = st.from_regex(r"\A[a-c]{0,2}-?[0-9]{1,3}[a-b]?(\.x1)?\Z") | st.from_regex(r"\A[a-c]{1,2}\Z")


@given(st.sets(HOSTS, max_size=40))
@pytest.mark.slow
def test_compact_ranges_expand_to_exactly_the_original_names(names: set[str]) -> None:
    assert expanded(fmt.compact_ranges(names)) == names


def test_times_of_day_are_in_the_zone_of_the_machine_wherever_a_person_reads_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at = datetime(2026, 11, 20, 18, 36, 9, tzinfo=UTC)
    bad = InstanceState("worker-0", (), Status.FAILED, "exit 3", ended=at)
    made = pytorch_job("bert")
    end = {"exitCode": 3, "finishedAt": "2026-11-20T18:36:09Z"}
    status = {
        "name": "pytorch",
        "restartCount": 1,
        "state": {"running": {}},
        "lastState": {"terminated": end},
    }
    pod = convert(pod_of(made, "master-0", on="a", containerStatuses=[status]), Pod)
    event = convert({"metadata": {"name": "e"}, "lastTimestamp": "2026-11-20T18:36:09Z"}, Event)
    try:
        monkeypatch.setenv("TZ", "Asia/Kolkata")
        time.tzset()
        texts = [
            fmt.local_time(at),
            clock(at),
            job_status(DeclaredStatus(total=1, outcome=Status.FAILED), [bad])[1],
            pod_status(pod)[1],
            full_text(FoldedEvent(event, "e", 1, at)),
        ]
    finally:
        monkeypatch.undo()
        time.tzset()
    assert texts[:3] == ["2026-11-21 00:06:09 IST", "00:06:09", "worker-0 exit 3, 00:06:09"]
    assert all("00:06:09" in text and "18:36" not in text and "UTC" not in text for text in texts)


def test_every_status_has_a_style() -> None:
    statuses = "Queued Pending Starting Running Restarting Suspended Succeeded Failed Terminating Unknown"
    assert set(fmt.STATUS_STYLES) == set(statuses.split())


def test_an_age_uses_the_server_clock_and_is_marked_on_clock_skew() -> None:
    at = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
    same, rough = fmt.Clock(at), fmt.Clock(at, is_rough=True)
    assert same.age(at - timedelta(minutes=9)) == "9m"
    assert rough.age(at - timedelta(minutes=9)) == "~9m"
    assert rough.age(at + timedelta(hours=1)) == "~0s"  # never negative
    assert rough.age(at - timedelta(minutes=9), at - timedelta(minutes=2)) == "7m"  # both are the server's
    assert rough.age(None) == fmt.NOTHING


@pytest.mark.parametrize(
    ("ahead_s", "is_rough"), [(0.0, False), (-4.0, False), (6.0, True), (3600.0, True), (-3600.0, True)]
)
def test_a_clock_is_marked_inexact_when_it_is_some_seconds_off(ahead_s: float, is_rough: bool) -> None:
    before = datetime.now(UTC)
    clock = fmt.Clock.ahead(ahead_s)
    offset = timedelta(seconds=ahead_s)
    assert before + offset <= clock.now <= datetime.now(UTC) + offset
    assert clock.is_rough is is_rough


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            "epoch 1/3 step 120/564 loss 0.1234 lr 9.8e-04 412 images/s eta 1m12s",
            "epoch 1/3 step 120/564 ETA 1m12s",
        ),
        (" 61%|██████    | 122/200 [01:02<00:40,  1.93it/s]", "61% ETA 00:40"),
        ("Epoch: [2/90] Step [10/100] loss 5 ETA: 1:02:03", "epoch 2/90 step 10/100 ETA 1:02:03"),
        ("[rank0]: iteration 10/ 500 | lm loss: 9.1", "iteration 10/500"),
        ("Train Epoch: 1 [640/60000 (1%)]\tloss=2.2135", "epoch 1 640/60000"),
        ("Train Epoch: 3 [57600/60000 (96%)]\tLoss: 0.5", "epoch 3 57600/60000"),
        ("Epoch: [0][ 10/391]\tTime  0.2 ( 0.3)\tLoss 6.9e+00 (7.0e+00)", "epoch 0 10/391"),
        ("epoch 1/10, batch   500/1500 with loss: 0.5123", "epoch 1/10 batch 500/1500"),
        ("epoch 2/10 with val loss: 0.0743, val accuracy: 0.9772", "epoch 2/10"),
        ("Iter #3: 205.5 img/sec per GPU", "iter #3"),
        ("[1,0]<stdout>:Iter #0: 205.5 img/sec per GPU", "iter #0"),
        ("{'loss': 0.5, 'learning_rate': 4.9e-05, 'epoch': 0.13}", "epoch 0.13"),
        ("{'loss': '0.5', 'epoch': '2.5'}", "epoch 2.5"),
        ("Epoch 3:  42%|████▏     | 420/1000 [00:42<00:58, 10.0it/s, loss=0.512]", "epoch 3 42% ETA 00:58"),
        ("epoch: done", ""),
        ("gpu 98% busy", ""),
        ("loss 1.87", ""),
        ("step 5 took 3 ms", ""),
        ("timestep 3/4 beta 0.5", ""),
        ("", ""),
    ],
)
def test_progress_is_extracted_only_from_lines_that_report_it(line: str, words: str) -> None:
    assert progress_in(line) == words


@given(st.text())
def test_any_line_can_be_parsed_for_progress(line: str) -> None:
    assert len(progress_in(line)) < 200


@pytest.mark.parametrize(
    ("ranks", "proof", "words"),
    [
        ((), "none", NOTHING),
        ((3,), "declared", "3"),
        ((0, 1, 2, 3), "declared", "0-3"),
        ((4, 5), "assumed", "~4-5"),
        ((0,), "observed", "=0"),
        ((4, 5), "observed", "=4-5"),
    ],
)
def test_ranks_that_are_assumed_or_observed_are_marked(
    ranks: tuple[int, ...], proof: str, words: str
) -> None:
    assert format_ranks(ranks, proof) == words


V100 = """\
Links between its GPUs,
by nvidia-smi topo -m in pod gpu-operator/x:

         0   1   2   3   4   5   6   7
  GPU0   X NV1 NV1 NV2 NV2 SYS SYS SYS   bert
  GPU1 NV1   X NV2 NV1 SYS NV2 SYS SYS
  GPU2 NV1 NV2   X NV2 SYS SYS NV1 SYS
  GPU3 NV2 NV1 NV2   X SYS SYS SYS NV1   bert
  GPU4 NV2 SYS SYS SYS   X NV1 NV1 NV2
  GPU5 SYS NV2 SYS SYS NV1   X NV2 NV1
  GPU6 SYS SYS NV1 SYS NV1 NV2   X NV2
  GPU7 SYS SYS SYS NV1 NV2 NV1 NV2   X

Groups:
  NVLink   0 1 2 3 | 4 5 6 7

GB/s one way, NCCL's constant for the link type:
  NV2           40   2 NVLinks
  NV1           20   1 NVLink
  SYS            6   the link between CPU sockets

Best sets of its free GPUs:
  2 GPUs: 1 2, NV2, 40 GB/s between the slowest pair
  4 GPUs: 4-7, NV1, 20 GB/s between the slowest pair

Network adapters, with the GPUs nearest to each:
  mlx5_0   0 1 (PIX)
  mlx5_2   4 5 (PIX)
  mlx5_1   2 3 (PIX)
  mlx5_3   6 7 (PIX)"""


def test_the_full_link_report_of_a_dgx_1v_is_rendered() -> None:
    source = "nvidia-smi topo -m in pod gpu-operator/x"
    matrix = read_topology(DGX_1V, "Tesla-V100-SXM2-32GB", source)
    assert "\n".join(link_lines(row((2, (0, 3))), matrix)) == V100


def test_numa_nodes_and_unknown_free_gpus_are_shown_in_the_link_report() -> None:
    lines = link_lines(row((2, ())), read_topology(H100, "NVIDIA-H100-80GB-HBM3"))
    assert "  GPU2 NV18 NV18    X NV18   NUMA 1" in lines
    assert "Best sets (free GPUs are unknown):" in lines
    assert "  mlx5_bond_0   2 3 (PXB)" in lines


def test_measured_bandwidth_is_labelled_as_measured() -> None:
    v100 = MACHINES["dgx-1v"].matrix()
    measured = replace(
        v100,
        is_measured=True,
        bandwidth=tuple(tuple(each * 1.2 + (each == 20) for each in line) for line in v100.bandwidth),
    )
    lines = link_lines(row(), read_config_map(config_map("a", measured)))
    assert "GB/s one way, measured on the node:" in lines
    assert "  NV1           25   1 NVLink" in lines


def test_sixteen_gpus_fit_a_small_terminal_in_ascii() -> None:
    links = [["X" if a == b else "NV6" for b in range(16)] for a in range(16)]
    for matrix in (LinkMatrix.of(links, source="NVML"), MACHINES["pcie"].matrix(), read_topology(ONE)):
        lines = link_lines(row(), matrix)
        assert all(line.isascii() and len(line) <= 78 for line in lines)


def test_unknown_links_have_no_speed() -> None:
    lines = link_lines(row(), LinkMatrix.of([["X", "?"], ["?", "X"]]))
    assert "  ?              ?   not told" in lines
    assert "  2 GPUs: 0 1, ?, speed not known" in lines


def test_slices_of_gpus_use_no_links() -> None:
    lines = link_lines(replace(row(), mode="mig"), MACHINES["dgx-a100"].matrix())
    assert "Its GPUs are cut into slices (MIG), which use none of these links." in lines
    assert not any("Best sets" in line for line in lines)


def test_the_network_location_and_schedule_label_of_a_node_are_shown() -> None:
    node = replace(row(), network=("z", "", "b7", "r1", ""), schedule="topology")
    assert (place_line(node), schedule_line(node)) == (
        "zone z, block b7, rack r1",
        "ack.node.gpu.schedule=topology",
    )
    assert (place_line(row()), schedule_line(row())) == ("", "")


CLEAN = st.characters(exclude_categories=["Cc", "Cs"])
"""Characters of shown text, which has no control characters; see `k8s.text.sanitize`."""
FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
"""Three people and what joins them: one picture of two cells."""


def test_every_narrow_character_takes_the_cells_that_rich_gives_it() -> None:
    # Of texts with others Rich is asked.
    shown = [chr(code) for code in range(0x20, 0x3000) if code != 0x7F]
    assert [char for char in shown if cells.cell_len(char) != rich_cell_len(char)] == []


@given(st.text(st.one_of(CLEAN, st.sampled_from("\u200d\ufe0f1❤中é…▮")), max_size=40))
def test_a_text_is_as_wide_as_in_rich(text: str) -> None:
    assert cells.cell_len(text) == rich_cell_len(text)


def test_a_grapheme_cluster_is_never_split() -> None:
    assert cells.head(f"{FAMILY}a", 2) == FAMILY
    assert cells.tail(f"a{FAMILY}", 2) == FAMILY
    assert cells.head(FAMILY, 1) == ""
    assert cells.head("1\ufe0f2", 2) == "1\ufe0f"


@pytest.mark.parametrize(
    ("name", "width", "shown"),
    [
        ("bert-large-worker-12", 20, "bert-large-worker-12"),
        ("bert-large-ft-worker-12", 20, "bert-larg…-worker-12"),
        ("bert-large-ft-worker-12", 12, "b…-worker-12"),
        ("bert-large-ft-worker-12", 9, "…orker-12"),
        ("bert-large-ft-worker-12", 4, "…-12"),
        ("bert-large-ft-worker-12", 1, "…"),
        ("bert-large-ft-worker-12", 0, ""),
        ("模型训练任务-worker-3", 14, "模型…-worker-3"),
        ("no-number-at-its-end", 11, "no-nu…s-end"),
    ],
)
def test_a_shortened_name_keeps_its_suffix(name: str, width: int, shown: str) -> None:
    assert cells.elide_middle(name, width) == shown


@given(st.text(CLEAN, max_size=60), st.integers(-1, 70))
def test_shortened_text_never_takes_more_cells_than_given(text: str, width: int) -> None:
    for shorten in (cells.elide_middle, cells.elide_end, cells.head, cells.tail):
        assert cells.cell_len(shorten(text, width)) <= max(0, width)


@given(st.text("模型ab-_.0123456789", min_size=1, max_size=40), st.integers(0, 999), st.integers(6, 60))
def test_the_number_of_a_name_is_never_lost(stem: str, number: int, width: int) -> None:
    assert cells.elide_middle(f"{stem}-{number}", width).endswith(f"-{number}")


@given(st.text(CLEAN, max_size=30), st.integers(0, 60))
def test_padded_text_takes_exactly_the_cells_given(text: str, width: int) -> None:
    wanted = max(width, cells.cell_len(text))
    assert cells.cell_len(cells.pad(text, width)) == cells.cell_len(cells.pad(text, width, "right")) == wanted


def test_the_scale_is_fixed_so_that_rows_can_be_compared() -> None:
    assert sparkline([3.0, 4.0, 3.0], 3) == LEVELS[0] * 3
    assert sparkline([97.0, 98.0], 2) == LEVELS[-1] * 2
    assert [level(each) for each in (0, 50, 100, 150, -1)] == ["▁", "▄", "▇", "▇", "▁"]
    assert "█" not in LEVELS


def test_the_last_sparkline_cell_is_the_newest_value_and_others_show_their_maximum() -> None:
    assert sparkline([0, 100, 0, 0, 0, 0, 0], 3) == "▇▁▁"
    assert sparkline([100, 100, 100, 0], 2) == "▇▁"


def test_a_missing_sample_is_a_gap_and_cells_before_the_first_sample_are_blank() -> None:
    assert sparkline([50, None, 50], 5) == f"  ▄{GAP}▄"
    assert sparkline([None], 2) == f" {GAP}"
    assert sparkline([], 4) == "    "
    assert sparkline([1.0], 0) == ""


@given(st.lists(st.one_of(st.none(), st.floats(-10, 200)), max_size=200), st.integers(0, 60))
def test_a_sparkline_has_exactly_the_requested_width(percents: list[float | None], width: int) -> None:
    assert cell_len(sparkline(percents, width)) == width


def test_trend_bars_show_falling_values_and_nan() -> None:
    assert trend([7, 6, 5, 4, 3, 2, 1]) == "▇▆▅▄▃▂▁"
    assert trend([1.0]) == "" and trend([]) == ""
    assert trend([2.0, 2.0]) == "▁▁"
    assert trend([1.0, float("nan"), 3.0]) == "▁✕▇"
    assert len(trend(list(map(float, range(1000))))) == 8
