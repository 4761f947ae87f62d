"""Run files of many frameworks, read while they grow, are rewritten, or are damaged."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.event_files import config, history, wandb_file
from trainer.tfevents import EventWriter, NewPoints
from tui.runs.formats import MetricFiles, MetricFolder
from tui.runs.formats.records import FOREIGN_LINES, LINE_LIMIT_BYTES, MOST_TAGS, STATE_LIMIT_BYTES

Points = dict[str, list[tuple[int, float]]]


def points_of(files: MetricFiles) -> Points:
    return {curve.tag: list(zip(curve.steps, curve.values, strict=True)) for curve in files.curves()}


def read(path: str, content: bytes, *, piece_bytes: int = 1 << 30) -> MetricFiles:
    """Feed a file piece by piece, as a reader that polls does."""
    files = MetricFiles()
    for size in [*range(piece_bytes, len(content), piece_bytes), len(content)]:
        feed(files, path, content, size)
    return files


def feed(files: MetricFiles, path: str, content: bytes, size: int) -> None:
    for _ in range(3):
        if (at := files.next_read(path, size)) is None:
            return
        files.feed(path, content[at:size])
    raise AssertionError("reads without end")


def lines(*records: Mapping[str, Any]) -> bytes:
    return "".join(f"{json.dumps(record)}\n" for record in records).encode()


LIGHTNING = b"""epoch,lr,step,train_loss,val_loss
0,,49,2.25,
0,0.5,49,,
0,,99,,2.5
1,,149,1.75,
"""
STATE = json.dumps(
    {
        "best_metric": 0.5,
        "global_step": 20,
        "log_history": [
            {"epoch": 0.5, "grad_norm": 3.5, "learning_rate": 0.25, "loss": 2.5, "step": 10},
            {"epoch": 1.0, "eval_loss": 2.25, "step": 10},
            {"epoch": 1.0, "loss": math.nan, "step": 20},
        ],
    },
    indent=2,
).encode()
MMCV = lines(
    {"env_info": "sys.platform: linux", "seed": 0, "exp_name": "x.py"},
    {"mode": "train", "epoch": 1, "iter": 50, "lr": 0.01, "loss": 2.5},
    {"mode": "train", "epoch": 1, "iter": 100, "lr": 0.01, "loss": 2.25},
    {"mode": "val", "epoch": 1, "iter": 30, "lr": 0.01, "bbox_mAP": 0.125},
    {"mode": "train", "epoch": 2, "iter": 50, "lr": 0.01, "loss": 2.0},
)
WANDB = wandb_file(
    [
        config({"lr": 0.5, "name": "a\x1b[2J", "_wandb": {}}),
        history({"loss": 2.5, "_step": 0, "_timestamp": 1.7e9, "opt.lr": 0.25, "words": "x"}),
        history({"loss": "NaN", "pic": {"_type": "image-file"}, "big": "y" * 70_000}, step=1),
        history({"loss": 1.5, "val": {"acc": 0.5}, "_step": 2}),
    ]
)
EXAMPLES: list[tuple[str, bytes, Points]] = [
    (
        "lightning_logs/version_0/metrics.csv",
        LIGHTNING,
        {
            "epoch": [(49, 0.0), (99, 0.0), (149, 1.0)],
            "lr": [(49, 0.5)],
            "train_loss": [(49, 2.25), (149, 1.75)],
            "val_loss": [(99, 2.5)],
        },
    ),
    (
        "runs/train/results.csv",
        b"   epoch,  time,  train/box_loss\n1, 12.5, 1.25\n2, 25.5, 1.125\n",
        {"train/box_loss": [(1, 1.25), (2, 1.125)], "time": [(1, 12.5), (2, 25.5)]},
    ),
    (
        "out/trainer_state.json",
        STATE,
        {
            "epoch": [(10, 1.0), (20, 1.0)],
            "train/grad_norm": [(10, 3.5)],
            "train/learning_rate": [(10, 0.25)],
            "train/loss": [(10, 2.5), (20, math.nan)],
            "eval/loss": [(10, 2.25)],
        },
    ),
    (
        "20260101_000000/vis_data/scalars.json",
        lines(
            {"lr": 0.5, "loss": 2.5, "epoch": 1, "iter": 50, "step": 50}, {"coco/bbox_mAP": 0.25, "step": 1}
        ),
        {"epoch": [(50, 1.0)], "lr": [(50, 0.5)], "loss": [(50, 2.5)], "coco/bbox_mAP": [(1, 0.25)]},
    ),
    (
        "20260101_000000.log.json",
        MMCV,
        {
            "epoch": [(50, 1.0), (100, 1.0), (150, 2.0)],
            "lr": [(50, 0.01), (100, 0.01), (150, 0.01)],
            "loss": [(50, 2.5), (100, 2.25), (150, 2.0)],
            "val/epoch": [(100, 1.0)],
            "val/lr": [(100, 0.01)],
            "val/bbox_mAP": [(100, 0.125)],
        },
    ),
    (
        "trainer_log.jsonl",
        lines(
            {"current_steps": 5, "total_steps": 20, "loss": 1.5, "epoch": 0.25, "elapsed_time": "0:01:05"},
            {"current_steps": 10, "total_steps": 20, "loss": 1.25, "epoch": 0.5, "elapsed_time": "0:02:10"},
            {"current_steps": 20, "total_steps": 20, "percentage": 100.0},
        ),
        {"loss": [(5, 1.5), (10, 1.25)], "epoch": [(5, 0.25), (10, 0.5)]},
    ),
    (
        "log.txt",
        lines({"train_loss": 10.5, "train_lr": 0.5, "epoch": 0}, {"train_loss": 9.5, "epoch": 1}),
        {"train_loss": [(0, 10.5), (1, 9.5)], "train_lr": [(0, 0.5)]},
    ),
    (
        "stats.jsonl",
        lines(
            {
                "Loss/G/loss": {"num": 64, "mean": 0.75, "std": 0.25},
                "Progress/kimg": {"num": 1, "mean": 4.0, "std": 0.0},
                "timestamp": 1.7e9,
            }
        ),
        {"Loss/G/loss": [(4000, 0.75)]},
    ),
    (
        "metrics.json",
        lines({"iteration": 19, "total_loss": 1.5, "lr": 0.5}),
        {"total_loss": [(19, 1.5)], "lr": [(19, 0.5)]},
    ),
    (
        "train_metrics.jsonl",
        lines({"step": 1, "loss": 2.5, "eval": {"acc": 0.5}}) + b'{"step": 2, "loss": 2.25}',
        {"loss": [(1, 2.5), (2, 2.25)], "eval/acc": [(1, 0.5)]},
    ),
    (
        "wandb/offline-run-20260101_000000-abc/run-abc.wandb",
        WANDB,
        {"loss": [(0, 2.5), (1, math.nan), (2, 1.5)], "opt.lr": [(0, 0.25)], "val.acc": [(2, 0.5)]},
    ),
]
every_format = pytest.mark.parametrize(
    ("path", "content", "points"), EXAMPLES, ids=[path.rsplit("/")[-1] for path, *_ in EXAMPLES]
)


@every_format
@pytest.mark.parametrize("piece_bytes", [1 << 30, 7, 1])
def test_every_format_yields_each_point_once_for_any_chunk_size(
    path: str, content: bytes, points: Points, piece_bytes: int
) -> None:
    if piece_bytes == 1:
        content = content if len(content) < 5000 else content[:2000]
    files = read(path, content, piece_bytes=piece_bytes)
    if len(content) > 2000 or piece_bytes > 1:
        assert repr(points_of(files)) == repr(dict(sorted(points.items())))
        assert files.problems == {}
    assert not any(curve.restarts for curve in files.curves())


@every_format
def test_a_folder_on_disk_is_followed_while_files_grow(
    tmp_path: Path, path: str, content: bytes, points: Points
) -> None:
    file = tmp_path / path
    file.parent.mkdir(parents=True, exist_ok=True)
    folder = MetricFolder(tmp_path)
    for end in (len(content) // 3, len(content) // 2, len(content)):
        file.write_bytes(content[:end])
        folder.read_new()
    assert repr(points_of(folder)) == repr(dict(sorted(points.items())))
    assert folder.problems == {}
    assert folder.read_new() == []
    file.unlink()
    folder.read_new()
    assert folder.curves() == []


def fresh_points(path: str, content: bytes, piece_bytes: int = 1 << 30) -> Points:
    """Return all points in the order they are read, those of a restart too."""
    files, found = MetricFiles(), Points()
    for size in [*range(piece_bytes, len(content), piece_bytes), len(content)]:
        if (at := files.next_read(path, size)) is not None:
            for _, columns in files.feed(path, content[at:size]):
                found.setdefault(columns.tag, []).extend(zip(columns.steps, columns.values, strict=True))
    files.curves()
    files.texts()
    assert all(problem.endswith(".") for problem in files.problems.values())
    return found


@every_format
@settings(max_examples=80, deadline=None)
@given(
    at=st.integers(0, 1 << 20),
    octets=st.binary(max_size=60),
    is_over=st.booleans(),
    later=st.lists(st.tuples(st.integers(0, 1 << 20), st.binary(min_size=1, max_size=9)), max_size=3),
    pieces=st.integers(1, 4),
)
def test_damage_in_a_metrics_file_never_raises_and_keeps_the_points_before(
    path: str,
    content: bytes,
    points: Points,
    at: int,
    octets: bytes,
    is_over: bool,
    later: list[tuple[int, bytes]],
    pieces: int,
) -> None:
    at %= len(content)
    broken = bytearray(content[:at] + octets)
    if octets:  # else the file is cut there
        broken += content[at + len(octets) * is_over :]
        for place, more in later:
            place = at + place % (len(broken) - at)
            broken[place : place + len(more)] = more
    found = fresh_points(path, bytes(broken), max(1, -(-len(broken) // pieces)))
    if path.endswith("trainer_state.json"):
        return  # one JSON text, which is readable as a whole or not at all
    start = at if path.endswith(".wandb") else content.rfind(b"\n", 0, at) + 1
    for tag, good in fresh_points(path, content[:start]).items():
        assert repr(found[tag][: len(good)]) == repr(good)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from([path for path, *_ in EXAMPLES]), st.binary(max_size=400))
def test_any_content_of_a_metrics_file_is_read_without_an_error(path: str, content: bytes) -> None:
    files = read(path, content, piece_bytes=50)
    files.curves()
    files.texts()


def test_lines_after_a_damaged_line_are_read_and_the_damage_is_reported() -> None:
    content = lines({"step": 1, "loss": 2.5}) + b'{"step": 2, "lo\n[1]\n' + lines({"step": 3, "loss": 2.0})
    files = read("log.jsonl", content)
    assert points_of(files) == {"loss": [(1, 2.5), (3, 2.0)]}
    assert files.problems == {"log.jsonl": "2 damaged records were left out."}


def test_a_damaged_wandb_block_loses_only_that_block() -> None:
    records = [history({"loss": float(step), "pad": "x" * 1000}, step) for step in range(200)]
    content = bytearray(wandb_file(records))
    content[40_000] ^= 1
    files = read("run-a.wandb", bytes(content), piece_bytes=10_000)
    [(_, points)] = points_of(files).items()
    steps = [step for step, _ in points]
    assert steps[:30] == [*range(30)] and steps[-100:] == [*range(100, 200)]
    assert 0 < 200 - len(steps) < 40
    assert files.problems == {"run-a.wandb": "1 damaged records were left out."}


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("run-a.wandb", b"PK\x03\x04" + bytes(100)),
        ("trainer_state.json", b'{"log_history": 3}'),
        ("trainer_state.json", b'{"log_history": ['),
    ],
)
def test_a_metrics_file_with_foreign_content_is_reported(path: str, content: bytes) -> None:
    files = read(path, content)
    assert (files.curves(), [*files.problems]) == ([], [path])


def test_a_text_log_or_data_set_is_abandoned_silently() -> None:
    for path, line in (
        ("log.txt", b"step 10 loss 1.5\n"),
        ("catalog.jsonl", b'{"text": "loss", "label": 3}\n'),
    ):
        files = MetricFiles()
        content = line * FOREIGN_LINES * 100
        feed(files, path, content, len(line) * FOREIGN_LINES)
        assert files.next_read(path, len(content)) is None
        assert (files.curves(), files.problems) == ([], {})


def test_a_csv_with_a_growing_header_is_reread_and_yields_each_point_once(tmp_path: Path) -> None:
    file = tmp_path / "metrics.csv"
    folder = MetricFolder(tmp_path)
    file.write_text("step,loss\n" + "".join(f"{step},{step / 8}\n" for step in range(50)))
    folder.read_new()
    file.write_text("step,loss,acc\n" + "".join(f"{step},{step / 8},\n" for step in range(50)) + "50,,0.5\n")
    folder.read_new()
    assert points_of(folder) == {"acc": [(50, 0.5)], "loss": [(step, step / 8) for step in range(50)]}
    assert not any(curve.restarts for curve in folder.curves())
    file.write_text("step,loss\n0,1.0\n")
    folder.read_new()
    assert points_of(folder) == {"loss": [(0, 1.0)]}


def state(last: int) -> bytes:
    return json.dumps(
        {"log_history": [{"step": step, "loss": 1.0} for step in range(10, last + 1, 10)]}
    ).encode()


def test_the_newest_trainer_state_is_used_and_a_half_written_one_keeps_earlier_points(tmp_path: Path) -> None:
    folder = MetricFolder(tmp_path)
    for step in (10, 20, 100):
        (tmp_path / f"checkpoint-{step}").mkdir()
        (tmp_path / f"checkpoint-{step}" / "trainer_state.json").write_bytes(state(step))
    folder.read_new()
    assert [(curve.run, len(curve)) for curve in folder.curves()] == [(".", 10)]
    file = tmp_path / "trainer_state.json"
    file.write_bytes(state(110))
    folder.read_new()
    assert [(curve.run, len(curve)) for curve in folder.curves()] == [(".", 11)]
    file.write_bytes(state(120)[:-20])
    folder.read_new()
    assert [(curve.run, len(curve)) for curve in folder.curves()] == [(".", 11)]
    assert "trainer_state.json" in folder.problems
    file.write_bytes(state(120))
    folder.read_new()
    assert [(curve.run, len(curve)) for curve in folder.curves()] == [(".", 12)]
    assert folder.problems == {}


@pytest.mark.parametrize("name", ["metrics.csv", "events.out.tfevents.1.a"])
def test_points_written_while_a_file_is_read_are_yielded_once(tmp_path: Path, name: str) -> None:
    with EventWriter(tmp_path / "made") as writer:
        for step in range(20):
            writer.write_scalar("loss", step, 0.5)
    text = "step,loss\n" + "".join(f"{step},0.5\n" for step in range(20))
    content = text.encode() if name.endswith(".csv") else writer.path.read_bytes()
    writer.path.unlink()
    file = tmp_path / name

    class Growing(MetricFolder):
        def feed(self, path: str, chunk: bytes) -> list[NewPoints]:
            if file.stat().st_size < len(content):
                file.write_bytes(content[: file.stat().st_size + 50])
            return super().feed(path, chunk)

    file.write_bytes(content[:50])
    folder, count = Growing(tmp_path), 0
    while points_of(folder) != {"loss": [(step, 0.5) for step in range(20)]}:
        count += sum(len(columns) for _, columns in folder.read_new())
    assert count == 20


def test_event_files_take_precedence_per_tag_and_step(tmp_path: Path) -> None:
    with EventWriter(tmp_path / "runs" / "a") as writer:
        writer.write_scalar("train/loss", 10, 5.0)
    (tmp_path / "trainer_state.json").write_bytes(state(30))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "trainer_state.json").write_bytes(state(20))
    folder = MetricFolder(tmp_path)
    folder.read_new()
    assert [(curve.run, list(curve.steps)) for curve in folder.curves()] == [
        (".", [20, 30]),
        ("other", [10, 20]),
        ("runs/a", [10]),
    ]


def test_names_settings_and_sizes_are_bounded_and_clean() -> None:
    [_, *_, (path, content, _)] = EXAMPLES
    assert [(text.name, text.text) for text in read(path, content).texts()] == [("lr", "0.5"), ("name", "a")]
    record = {"step": 1, **{f"loss{number}\x1b]0;x\x07": 1.0 for number in range(MOST_TAGS + 5)}}
    files = read("log.jsonl", lines(record, {"step": 2, "x" * 5000: 1.0}))
    assert len(files.curves()) == MOST_TAGS
    assert not any("\x1b" in curve.tag for curve in files.curves())
    assert files.problems == {"log.jsonl": f"Only the first {MOST_TAGS} tags are read."}
    long = (
        lines({"step": 1, "loss": 2.0})
        + b"x" * (LINE_LIMIT_BYTES + 9)
        + b"\n"
        + lines({"step": 2, "loss": 1})
    )
    files = read("log.jsonl", long, piece_bytes=300_000)
    assert points_of(files) == {"loss": [(1, 2.0), (2, 1.0)]}
    assert files.next_read("trainer_state.json", STATE_LIMIT_BYTES + 1) == 0
    files.feed("trainer_state.json", b"{")
    assert files.next_read("trainer_state.json", STATE_LIMIT_BYTES + 1) is None


@pytest.mark.parametrize(
    ("record", "time_s"),
    [
        ({"timestamp": 1.7e9}, 1.7e9),
        ({"timestamp": 1.7e12}, 1.7e9),
        ({"timestamp": "2026-01-01T00:00:00+00:00"}, 1767225600.0),
        ({"elapsed_time": "1 day, 1:00:01"}, 90_001.0),
        ({"timestamp": "soon", "time": 0.25}, 0.0),
        ({"timestamp": 1e400}, 0.0),
        ({"timestamp": "0001-01-01T00:00:00+14:00"}, 0.0),
    ],
)
def test_timestamps_are_parsed_in_all_spellings(record: dict[str, Any], time_s: float) -> None:
    [curve, *_] = read("log.jsonl", lines({"step": 1, "loss": 1.0, **record})).curves()
    assert list(curve.wall_times) == [time_s]


LARGE: list[tuple[str, Callable[[int], bytes]]] = [
    ("steps beyond 64 bits", lambda _: lines({"step": 10**30, "loss": 1.0})),
    ("deep", lambda _: b'{"step": 1, "a": ' + b'{"a":' * 5000 + b"1" + b"}" * 5001 + b"\n"),
    ("long numbers", lambda _: b'{"step": 1, "loss": ' + b"9" * 5000 + b"}\n"),
    ("large numbers", lambda _: b'{"step": 1, "loss": ' + b"9" * 400 + b"}\n"),
]


@pytest.mark.parametrize("make", [make for _, make in LARGE], ids=[name for name, _ in LARGE])
def test_excessive_numbers_and_nesting_do_not_stop_the_reader(make: Callable[[int], bytes]) -> None:
    files = read("log.jsonl", make(0) + lines({"step": 2, "loss": 1.0}))
    assert points_of(files)["loss"][-1] == (2, 1.0)


def test_steps_of_mmcv_too_large_to_add_stay_at_the_largest() -> None:
    largest = 2**62 - 2**10
    lines = [
        {"mode": mode, "epoch": n, "iter": largest, "loss": 0.5}
        for n in (1, 2, 3)
        for mode in ("train", "val")
    ]
    found = points_of(read("a.log.json", "\n".join(map(json.dumps, lines)).encode() + b"\n"))
    assert [step for step, _ in found["loss"]][1:] == [2**62]
