"""The points in the lines of the scripts that people run."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k8s.logs import LogLine, Target
from k8s.logs.training_lines import LARGEST_STEP, TrainingLineReader
from tui.runs.log_points import MAX_TAGS, LogPoints
from tui.text.progress import progress_in

S = 10**9
Points = dict[str, list[tuple[int, float]]]


def read(*lines: str) -> Points:
    """Return the points that one rank's lines hold, by name."""
    reader, found = TrainingLineReader(), Points()
    for line in lines:
        for point in reader.read(line.encode()):
            for name, value in point.scalars:
                found.setdefault(name, []).append((point.step, value))
    return found


def drawn(*lines: LogLine) -> Points:
    """Return the points of each tag in the lines of a log."""
    points = LogPoints()
    points.add(lines)
    return {tag: list(zip(series.steps, series.values, strict=True)) for tag, series in points.series.items()}


def restarts(*lines: LogLine) -> list[int]:
    """Return the steps at which the loss in a log restarts."""
    points = LogPoints()
    points.add(lines)
    return [mark.step for mark in points.series["loss"].restarts]


@pytest.mark.parametrize(
    ("lines", "points"),
    [
        pytest.param(
            [
                "Train Epoch: 1 [0/60000 (0%)] loss=2.3000",
                "Train Epoch: 1 [640/60000 (1%)]\tloss=2.2135",
                "Train Epoch: 2 [640/60000 (1%)]\tloss=1.5",
                "",
                "accuracy=0.9904",
            ],
            {"loss": [(0, 2.3), (640, 2.2135), (60640, 1.5)], "accuracy": [(60640, 0.9904)]},
            id="arena",
        ),
        pytest.param(
            [
                "Train Epoch: 1 [59520/60000 (99%)]\tLoss: 0.051200",
                "Test set: Average loss: 0.0500, Accuracy: 9840/10000 (98%)",
            ],
            {"Loss": [(59520, 0.0512)], "test_loss": [(59520, 0.05)], "test_accuracy": [(59520, 0.984)]},
            id="pytorch-mnist",
        ),
        pytest.param(
            ["Epoch: [1][ 10/391]\tTime  0.2 ( 0.3)\tLoss 6.9e+00 (7.0e+00)\tAcc@1   0.00 (  0.1)"],
            {"Loss": [(401, 6.9)], "Acc@1": [(401, 0)]},
            id="pytorch-imagenet",
        ),
        pytest.param(
            [
                "test loss: 3.0, test accuracy: 0.1",
                "INFO:root:epoch 1/10, batch   500/1500 with loss: 0.5123",
                "epoch 1/10 with val loss: 0.0743, val accuracy: 0.9772",
                "epoch 2/10, batch   500/1500 with loss: 0.25",
                "test loss: 0.06, test accuracy: 0.98",
            ],
            {
                "loss": [(500, 0.5123), (2000, 0.25)],
                "val_loss": [(1500, 0.0743)],
                "val_accuracy": [(1500, 0.9772)],
                "test_loss": [(2000, 0.06)],
                "test_accuracy": [(2000, 0.98)],
            },
            id="t9k",
        ),
        pytest.param(
            ["Iter #0: 205.5 img/sec per GPU", "Iter #1: 205.2 img/sec per GPU", "Img/sec per GPU: 1 +-0.6"],
            {"img/sec per GPU": [(0, 205.5), (1, 205.2)]},
            id="horovod",
        ),
        pytest.param(
            [
                "{'loss': 2.5, 'grad_norm': 1.25, 'learning_rate': 4.9e-05, 'epoch': 0.1}",
                "{'loss': '2.0', 'epoch': '0.2'}",
                "{'train_runtime': 10.5, 'train_samples_per_second': 95.2, 'epoch': 1.0}",
                "{'a': 1}",
            ],
            {"loss": [(1, 2.5), (2, 2.0)], "grad_norm": [(1, 1.25)], "learning_rate": [(1, 4.9e-05)]},
            id="hugging-face",
        ),
        pytest.param(
            [
                "  0%|          | 0/500 [00:00<?, ?it/s]\r  2%|▏         | 10/500 [00:05<04:10,  1.96it/s]"
                "\r{'loss': 2.5, 'epoch': 0.02}\r  2%|▏         | 11/500 [00:06<04:10,  1.96it/s]",
                "100%|██████████| 7/7 [00:01<00:00,  6.1it/s]",
                "{'eval_loss': 1.75, 'epoch': 0.03}",
                " 4%|▍ | 20/500 [00:10<04:00,  2.0it/s]{'loss': 2.0, 'epoch': 0.04}",
            ],
            {"loss": [(10, 2.5), (20, 2.0)], "eval_loss": [(11, 1.75)]},
            id="hugging-face-with-bars",
        ),
        pytest.param(
            [
                "Epoch 0:  50%|█████     | 50/100 [00:05<00:05, 9.9it/s, v_num=0, train_loss=0.512]",
                "\x1b[32mEpoch 1\x1b[0m:  50%|█████     | 50/100 [00:05<00:05, 9it/s, train_loss=0.25]\x1b[K",
                " 61%|██████    | 122/200 [01:02<00:40,  1.93it/s, loss=1.5]",
            ],
            {"train_loss": [(50, 0.512), (150, 0.25)], "loss": [(122, 1.5)]},
            id="tqdm",
        ),
        pytest.param(
            ["step 250: train loss 2.0975, val loss 2.1125", "iter 251: loss 2.09, time 385.6ms, mfu -1.00%"],
            {"train_loss": [(250, 2.0975)], "val_loss": [(250, 2.1125)], "loss": [(251, 2.09)]},
            id="nanogpt",
        ),
        pytest.param(
            ["Epoch: 07 | Time: 2m 9s", "\tTrain Loss: 1.204 | Train Acc: 0.5", "\t Val. Loss: 1.35"],
            {"train_loss": [(7, 1.204)], "train_acc": [(7, 0.5)], "val_loss": [(7, 1.35)]},
            id="heading-above-the-losses",
        ),
        pytest.param(
            [
                "步骤 40\uff1a训练损失 0.9\uff0c验证损失 1.1",
                "Шаг 50: потери на обучении 0.8, потери на валидации 1.0",
            ],
            {"train_loss": [(40, 0.9), (50, 0.8)], "val_loss": [(40, 1.1), (50, 1.0)]},
            id="other-languages",
        ),
        pytest.param(["Train Epoch: 999999999 [1/999999999999 (0%)] loss=1"], {}, id="too-far"),
        pytest.param(["Train Epoch: 1 [64/60000 (1%)]", "Iter #x: 2 img/sec per GPU", "loss"], {}, id="none"),
    ],
)  # fmt: skip
def test_the_lines_of_scripts_hold_points(lines: list[str], points: Points) -> None:
    assert read(*lines) == points


# Rows of a framework, a loss, a step or `-` where the lines name none, and what the framework prints.
OUTPUT = Path(__file__).with_name("training_output.txt").read_text("utf-8").splitlines()
WITHOUT_LOSSES = Path(__file__).with_name("output_without_losses.txt").read_text("utf-8").splitlines()
ESCAPES = {"\\t": "\t", "\\x1b": "\x1b", "\\x08": "\x08"}


def raw_lines(text: str) -> list[bytes]:
    """Return the lines of a row, which writes line ends as `␊` and control characters as in Python."""
    for written, meant in ESCAPES.items():
        text = text.replace(written, meant)
    return [line.encode() for line in text.split("␊")]


@pytest.mark.parametrize("row", OUTPUT, ids=lambda row: row.partition(";")[0])
def test_the_loss_and_the_step_of_any_framework_are_read(row: str) -> None:
    _, loss, step, text = row.split("; ", 3)
    reader = TrainingLineReader()
    point = [point for line in raw_lines(text) for point in reader.read(line)][-1]
    value = next(value for name, value in point.scalars if "loss" in name.lower())
    assert value == pytest.approx(float(loss), rel=1e-12, nan_ok=True)
    assert step in ("-", str(point.step))


@pytest.mark.parametrize("row", WITHOUT_LOSSES)
def test_a_line_that_only_mentions_a_loss_holds_no_point(row: str) -> None:
    for before in (b"", b"step 3 loss: 0.5"):
        reader = TrainingLineReader()
        reader.read(before)
        assert [reader.read(line) for line in raw_lines(row)] == [[]]


def test_steps_are_counted_across_epochs() -> None:
    within = [
        f"Epoch {epoch}, batch {batch}, loss={epoch}.{batch}" for epoch in (1, 2, 3) for batch in (5, 9)
    ]
    assert [step for step, _ in read(*within)["loss"]] == [5, 9, 14, 18, 23, 27]
    keras = ["Epoch 2/3", " 5/10 [====>.....] - ETA: 3s - loss: 0.5", "10/10 [==========] - 3s - loss: 0.25"]
    assert read(*keras) == {"loss": [(15, 0.5), (20, 0.25)]}
    packaged = [f"epoch {epoch}/3 step {200 * epoch}/600 loss 0.5" for epoch in (1, 2, 3)]
    assert [step for step, _ in read(*packaged)["loss"]] == [200, 400, 600]


def test_a_table_is_read_until_it_ends_and_only_from_its_header_on() -> None:
    rows = [f"{epoch}         0.{epoch}00000    0.520000    00:1{epoch}" for epoch in range(3)]
    assert read("epoch     train_loss  valid_loss  time", *rows, "Done.", "7 files 0.5 0.5") == {
        "train_loss": [(0, 0.0), (1, 0.1), (2, 0.2)],
        "valid_loss": [(0, 0.52), (1, 0.52), (2, 0.52)],
    }
    assert read(*rows) == {}
    assert read("epoch     train_loss  valid_loss  time", *["-"] * 300, *rows) == {}


def test_the_total_training_loss_comes_first() -> None:
    points = TrainingLineReader().read(
        b"step 5 lr: 0.1 val_loss: 3.0 ce_loss: 1.5, total_loss: 2.0 accuracy: 0.5"
    )
    assert [name for name, _ in points[0].scalars[:2]] == ["total_loss", "ce_loss"]


def test_progress_bars_of_downloads_and_datasets_are_not_steps() -> None:
    bars = [
        "Map: 100%|██████████| 50000/50000 [00:09<00:00, 5123.1 examples/s]",
        "  2%|▏ | 11/500 [00:06<04:10,  2it/s]",
    ]
    assert read(*bars, "{'loss': 2.5, 'epoch': 0.02}") == {"loss": [(11, 2.5)]}


def target(*ranks: int, prints_all_ranks: bool = False) -> Target:
    return Target("default", "pod", ranks=ranks, prints_all_ranks=prints_all_ranks)


LINE = b"epoch 1/10, batch %d/1500 with loss: %f"


@pytest.mark.parametrize("source", [target(0, 1, 2, 3), target(), target(prints_all_ranks=True)])
def test_ranks_that_print_the_same_step_make_one_point(source: Target) -> None:
    lines = [
        LogLine(step * S + rank, LINE % (step, rank / 4), source, 0)
        for step in (10, 20, 30)
        for rank in range(4)
    ]
    late = [LogLine(31 * S, LINE % (20, 9), source, 0)]
    assert drawn(*lines, *late) == {"loss": [(10, 0), (20, 0), (30, 0)]}


def test_points_of_labelled_ranks_come_from_the_lowest_rank() -> None:
    lines = [
        LogLine(step * S, LINE % (step, rank), target(4, 5), 0, rank=rank)
        for step in (10, 20)
        for rank in (4, 5)
    ]
    assert drawn(*lines) == {"loss": [(10, 4), (20, 4)]}
    assert drawn(*(LogLine(S, LINE % (7, rank), target(), 0, rank=rank) for rank in (1, 0))) == {
        "loss": [(7, 0)]
    }


def test_a_restarted_rank_starts_a_new_curve_but_a_repeated_step_adds_no_point() -> None:
    steps = (10, 10, 20, 20, 10, 20)
    lines = [LogLine(at * S, LINE % (step, step / 10), target(0), 0, rank=0) for at, step in enumerate(steps)]
    assert drawn(*lines) == {"loss": [(10, 1), (20, 2)]}
    assert (restarts(*lines[:4]), restarts(*lines)) == ([], [10])


def test_ranks_sharing_a_log_that_restart_a_minute_later_start_a_new_curve() -> None:
    lines = [
        LogLine(second * S, LINE % (step, step / 10), target(0, 1), 0)
        for second, step in ((0, 10), (0, 10), (5, 20), (65, 10), (65, 10))
    ]
    assert (restarts(*lines[:3]), restarts(*lines)) == ([], [10])


@pytest.mark.parametrize("shown", ["1/4 2/4 3/4 4/4", "4/4"])
@pytest.mark.parametrize("tag", ["loss", "micro_loss"])
def test_lines_that_cover_the_run_count_rather_than_a_bar_in_each_step(shown: str, tag: str) -> None:
    bar = "accumulate: |####| {} [00:01<00:01, 3.9it/s, {}=0.7]"
    texts: list[str] = []
    for step in range(1, 61):
        texts += [
            "\r".join(bar.format(at, tag) for at in shown.split()),
            f"step {step} train loss {9 / step}",
        ]
    lines = [LogLine(at * S, text.encode(), target(0), at) for at, text in enumerate(texts)]
    found = drawn(*lines)
    assert list(found) == ["train_loss"]
    assert [step for step, _ in found["train_loss"]] == [*range(1, 61)]


def test_bars_of_epochs_count_beside_lines_of_their_last_steps() -> None:
    texts = [
        text
        for epoch in range(1, 9)
        for text in (
            *(f" {at}/90 [==>...] - ETA: 3s - loss: 0.5" for at in (30, 60, 90)),
            f"step {90 * epoch} loss 0.4",
        )
    ]
    lines = [LogLine(at * S, text.encode(), target(0), at) for at, text in enumerate(texts)]
    assert {30, 60, 90} < {step for step, _ in drawn(*lines)["loss"]}


PARTS = st.sampled_from(
    [
        "Train Epoch: 1 [", "640/60000", " (1%)]", "epoch 1/10, batch ", "Iter #", "0: 205.5 img/sec per GPU",
        "{'loss': ", "'epoch': 0.1}", "loss=", "nan", "1e999", "-", "9" * 30, "\r", "\x1b[32m", "\x1b[",
        " 42%|", "███| ", "420/1000 [", "00:42<00:58", "step ", "Test set: Average loss: ", "accuracy: ", "'",
        "|", "[", "{", " ", "\0", "val ", "/", "%", ":", "epoch", "epoch  train_loss  lr", "\x08", "\t", "━",
        "global_step", " is ", "(", ")", "}", "]", "G: 1 D: 2", "objective function", "# step  rmse_trn",
    ]
) | st.text(max_size=20)  # fmt: skip


def test_numbered_metric_names_do_not_create_unlimited_charts() -> None:
    lines = [
        LogLine(number * S, f"step 1 loss 0.5 loss_{number:05} 0.5".encode(), target(), number)
        for number in range(2 * MAX_TAGS)
    ]
    later = LogLine(9999 * S, b"step 2 loss 0.4", target(), 9999)
    found = drawn(*lines, later)
    assert len(found) == MAX_TAGS
    assert found["loss"][-1] == (2, 0.4)


@given(st.lists(st.lists(PARTS, max_size=30), max_size=6))
def test_any_text_line_is_parsed_into_valid_points(lines: list[list[str]]) -> None:
    reader = TrainingLineReader()
    points = LogPoints()
    for at, parts in enumerate(lines):
        line = "".join(parts)
        for point in reader.read(line.encode("utf-8", "surrogatepass")):
            assert 0 <= point.step <= LARGEST_STEP
            assert point.scalars
        points.add([LogLine(at * S, line.encode("utf-8", "surrogatepass"), target(), at)])
        assert len(progress_in(line)) < 200


@given(st.lists(st.binary(max_size=80), max_size=8))
def test_any_bytes_are_parsed_without_an_error(lines: list[bytes]) -> None:
    reader = TrainingLineReader()
    for line in lines:
        reader.read(b"loss " + line)


@pytest.mark.parametrize(
    "unit",
    [
        "Train Epoch: 1 [640/60000 ", "epoch 1/10, ", "{'loss': 1, ", "{'a': ", "loss=", "9", "9%", "9.", "a",
        "a_", " ", "\r", "\x1b[", "\x1b[1;", "42%|", "|", "[", "1:", "val ", "val loss: 1 ", "\t", "é",
        "step 1 ", "Test set: Average ", "'", "loss 9/", "epoch ", "iter ", "loss: 1.5 ", "loss 1 2.5 ", "(",
        "━ 1/2 ", "step-", "best_", "1 | ", "- ", "objective function is ", "}", "epoch 1 (", " --", "{a:",
        "1\x08", "loss [", "1it", "1e5", "#", "a = ", "a (",
        "epoch 3 9", "epoch, 3, 0.5, ", "train 050 2.1 ", "loss 1. ",
    ],
)  # fmt: skip
def test_parsing_a_long_line_takes_linear_time(unit: str) -> None:
    reader = TrainingLineReader()
    line = b"loss " + (unit * (65_536 // len(unit))).encode()
    started = time.process_time()
    for _ in range(3):
        reader.read(line)
        progress_in(line.decode())
    assert time.process_time() - started < 1.5


PLAIN_WORDS = """
train training trainer total avg av average mean running epoch batch step lm loss losses logloss main reduced
overall current objective
"""


@pytest.mark.parametrize("word", PLAIN_WORDS.split())
def test_only_a_loss_of_training_is_a_point_without_a_position(word: str) -> None:
    assert [point.step for point in TrainingLineReader().read(f"{word}_loss: 0.5".encode())] == [1]
    assert TrainingLineReader().read(f"dog_{word}_penalty_loss: 0.5".encode()) == [] or word.startswith(
        "train"
    )
