"""Past runs in the state folder, complete, private and bounded; and their table side by side."""

from __future__ import annotations

import math
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.support.guide_runs import curve, guide
from tests.support.guide_runs import ended_run as job
from tui.runs import store as module
from tui.runs.compare import BadComparison, Comparison, fit
from tui.runs.journal.database import JOURNAL_FILE
from tui.runs.record import RunRecord, TagSummary, parse_arguments, with_past, with_template, with_values
from tui.runs.store import OLD_FILE, RunStore
from tui.text.cells import cell_len


def test_a_comparison_shows_only_differing_settings_beside_the_values() -> None:
    found = Comparison(guide(), now_s=0, sort_by="-throughput")
    assert found.differing == ["placement", "link", "model"]
    assert [row.name for row in found.rows][:2] == ["pytorch-topo-4-resnet50", "pytorch-4-resnet50"]
    fields, rows, left_out = fit(found, 100)
    assert [each.key for each in fields][-4:] == ["throughput", "duration_s", "gpu_hours", "bar"]
    assert [len(row[-1]) for row in rows] == sorted((len(row[-1]) for row in rows), reverse=True)
    assert left_out == [] and [row[-2] for row in rows] == ["1"] * 4  # 4 GPUs for a quarter of an hour
    equal = Comparison([job("a", [1.0]), job("b", [1.0])], now_s=0)
    assert equal.differing == [] and [each.key for each in equal.fields()][:2] == ["name", "train/loss"]


def test_folders_named_after_their_runs_do_not_count_as_differing() -> None:
    runs = [
        job(
            name, [1.0], arguments={"--log-dir": f"/work/{name}-20260514/logs", "--model": name, "--out": out}
        )
        for name, out in (("vgg16", "/work/vgg16"), ("resnet50", "elsewhere"))
    ]
    assert Comparison(runs, now_s=0).differing == ["model", "out"]


def test_values_of_a_curve_are_the_last_the_best_and_the_time_to_a_loss() -> None:
    diverged = job("a", [4.0, 1.0, 2.0, math.nan])
    found = Comparison([diverged, job("b", [3.0, 2.0, 0.5])], now_s=0, to_loss=1.0, sort_by="best")
    values = found.values()["runs"]
    assert [run["name"] for run in values] == ["b", "a"]
    assert values[1]["tags"] == {
        "train/loss": {"last": None, "min": 1.0, "max": 4.0, "best": 1.0, "step": 3, "count": 4}
    }
    assert [run["to_loss_s"] for run in values] == [30.0, 20.0]
    assert found.texts(found.rows[1])["train/loss"] == "nan"
    assert diverged.time_to(0.9) is None and math.isnan(diverged.loss or 0.0)
    rates = with_values(job("c"), [curve("acc", [0.2, 0.9]), curve("img/sec per GPU", [50.0, 100.0])])
    assert (rates.best_of("acc"), rates.throughput, rates.throughput_unit) == (0.9, 400.0, "img/s")
    longer = with_values(
        with_values(job("d"), [curve("loss", [3.0, 1.0])]), [curve("loss", [2.0])], adds=True
    )
    assert (longer.tags["loss"].count, longer.tags["loss"].low, longer.loss) == (3, 1.0, 2.0)


def test_a_sweep_with_seeds_becomes_means_of_groups() -> None:
    sweep = [
        job(f"lr{lr}-{seed}", [last], arguments={"--lr": lr, "--seed": str(seed)}, labels={"team": lr})
        for lr, lasts in (("0.1", (1.0, 3.0)), ("0.01", (0.5,)))
        for seed, last in enumerate(lasts)
    ]
    for group_by in ("lr", "--lr", "label=team"):
        found = Comparison(sweep, now_s=0, group_by=group_by, sort_by="loss")
        rows = {row.name: row.figures["train/loss"] for row in found.rows}
        assert list(rows) == ["0.01", "0.1"]
        assert (rows["0.1"].value, round(rows["0.1"].std or 0, 3), rows["0.01"].std) == (2.0, 1.414, None)
        assert "seed" not in found.differing
    assert found.texts(found.rows[1])["train/loss"] == "2 ± 1.41"
    assert found.values()["groups"][1]["train/loss"] == {"mean": 2.0, "std": pytest.approx(1.41421356)}
    for wrong in ({"group_by": "nosuch"}, {"group_by": "label=x"}, {"sort_by": "x"}, {"tags": ["zzz"]}):
        with pytest.raises(BadComparison, match="There are: "):
            Comparison(sweep, now_s=0, **wrong)


TEXTS = st.text(max_size=30)
RECORDS = st.builds(
    RunRecord, uid=TEXTS, name=TEXTS, image=TEXTS, arguments=st.dictionaries(TEXTS, TEXTS, max_size=4),
    env=st.dictionaries(TEXTS, TEXTS, max_size=3), throughput=st.none() | st.floats(), throughput_unit=TEXTS,
    started_s=st.none() | st.floats(), ended_s=st.none() | st.floats(), kind=TEXTS,
)  # fmt: skip


@given(st.lists(RECORDS, min_size=2, max_size=5), st.integers(40, 200))
def test_any_records_fit_the_terminal(records: list[RunRecord], width: int) -> None:
    comparison = Comparison(records, now_s=0)
    fields, rows, _ = fit(comparison, width)
    for column in zip(*rows, strict=True):
        assert len(column) == len(records)
    settings = [each for each in fields if each.is_setting]
    if settings:
        titles = [[each.title for each in fields], *rows]
        widths = [max(map(cell_len, column)) for column in zip(*titles, strict=True)]
        assert sum(widths) + 2 * (len(widths) - 1) <= width
    msgspec.json.encode(comparison.values())


def test_arguments_are_parsed_in_all_spellings_and_secrets_are_not_stored() -> None:
    script = "cd /code && python train.py --lr 1e-3 --wd=-0.1 -b 8 --amp optim.name=adam"
    command, found = parse_arguments(["bash", "-lc", script, "x", "--seed", "3"])
    assert found == {
        "--lr": "1e-3", "--wd": "-0.1", "-b": "8", "--amp": "true", "optim.name": "adam", "--seed": "3",
    }  # fmt: skip
    assert command == "cd /code && python train.py x"
    assert parse_arguments(["sh", "-c", "echo 'open"])[0] == "echo 'open"
    key = "0123456789abcdef" * 2
    environment = [{"name": "WANDB_API_KEY", "value": key}, {"name": "LR", "value": "1"}]
    git = [{"name": "GIT_SYNC_REPO", "value": "https://h/r.git"}, {"name": "GIT_SYNC_REV", "value": "abc"}]
    template: dict[str, Any] = {
        "spec": {
            "containers": [
                {"image": "i", "args": ["--token", "hf_abcdefghijklmnopqrst", "-x", key], "env": environment}
            ],
            "initContainers": [{"env": git}],
        }
    }
    record = with_template(RunRecord("a"), template)
    assert "0123456789abcdef" not in str(record) and "hf_abc" not in str(record)
    assert (record.env["LR"], record.code, record.image) == ("1", "https://h/r.git@abc", "i")
    template["spec"]["containers"].append({"name": "train", "image": "torch"})
    assert with_template(RunRecord("a"), template, "train").image == "torch"
    assert with_template(RunRecord("a"), {"spec": {"containers": []}}) == RunRecord("a")


def test_unknown_settings_do_not_count_as_differing_and_a_job_keeps_recorded_values() -> None:
    folder = with_values(RunRecord("f", "runs/f"), [curve("loss", [1.0])])
    assert Comparison([job("a", [2.0]), folder], now_s=0).differing == []
    past = guide()[0]
    now = msgspec.structs.replace(past, placement="", link="", throughput=None)
    assert with_past(now, past) == past and with_past(past, None) is past


def run(uid: str, loss: float | None = 1.0, status: str = "Succeeded") -> RunRecord:
    tags = {"loss": TagSummary(loss, 0.5, 2.0, 10, 3)}
    return RunRecord(uid, f"job-{uid}", "vision", "PyTorchJob", status=status, tags=tags, seen_s=1.0)


def test_stored_runs_survive_a_restart_in_a_private_file(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    first = RunStore(folder)
    assert first.find("a") is None and "a" not in first and first.records() == []
    for each in (run("a", 0.25), RunRecord("b", status="Failed"), run("c", None), run("d", status="Running")):
        first.add(each)
    again = RunStore(folder)
    assert again.find("a") == 0.25 and "b" in again and again.find("b") is None
    assert math.isnan(again.find("c") or 0.0) and "d" not in again
    assert again.get("a") == run("a", 0.25)
    assert [(folder / JOURNAL_FILE).stat().st_mode & 0o777, first.journal.size_bytes > 0] == [0o600, True]
    assert again.clear() == 4 and RunStore(folder).records() == [] and first.records() == []


def test_jobs_that_never_started_are_no_past_runs() -> None:
    store = RunStore()
    waited = replace(run("w", status="Deleted"), tags={}, created_s=1.0)
    for each in (waited, replace(waited, uid="n", nodes=("a",)), replace(waited, uid="s", started_s=2.0)):
        store.add(each)
    assert ([each.uid for each in store.records()], "w" in store) == (["n", "s"], True)


def test_two_consoles_keep_each_others_runs(tmp_path: Path) -> None:
    one, other = RunStore(tmp_path), RunStore(tmp_path)
    assert one.find("x") is None and other.find("x") is None
    for store, uid in ((one, "a"), (other, "b"), (one, "c"), (other, "a")):
        store.add(run(uid))
    assert [each.uid for each in RunStore(tmp_path).records()] == ["b", "c", "a"]
    assert one.records() == other.records()


def test_only_the_newest_runs_are_retained_also_without_a_writable_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_RUNS", 4)
    store, memory = RunStore(tmp_path), RunStore()
    for number in range(6):
        store.add(run(str(number)))
        memory.add(run(str(number)))
    kept = [each.uid for each in RunStore(tmp_path).records()]
    assert kept == ["2", "3", "4", "5"] == [each.uid for each in memory.records()]
    blocked = RunStore(tmp_path / JOURNAL_FILE)  # a file where the folder should be
    blocked.add(run("a"))
    assert blocked.find("a") == 1.0 and "File exists" in blocked.problems[0]


def test_a_run_with_very_many_settings_is_stored_without_its_variables(tmp_path: Path) -> None:
    large = msgspec.structs.replace(run("a"), env={str(number): "x" * 400 for number in range(200)})
    RunStore(tmp_path).add(large)
    found = RunStore(tmp_path).get("a")
    assert found is not None and found.env == {} and found.loss == 1.0


DAMAGE = st.one_of(
    st.binary(max_size=60),
    st.sampled_from([b"{}", b'{"uid": 3}', b"null", b"[" * 5000, b'{"uid":"x","tags":{"loss":3}}', b"\xff"]),
    st.integers(0, 200).map(lambda at: msgspec.json.encode(run("cut"))[:at]),
)


@given(st.lists(DAMAGE, max_size=6), st.integers(0, 6))
def test_runs_of_an_earlier_version_move_into_the_journal_and_damaged_ones_are_reported(
    damage: list[bytes], place: int
) -> None:
    good = [msgspec.json.encode(run(uid)) for uid in ("good-1", "good-2")]
    lines = [*damage[:place], good[0], *damage[place:], good[1]]
    with TemporaryDirectory() as folder:
        path = Path(folder) / OLD_FILE
        path.write_bytes(b"\n".join(lines))  # the last line has no end
        store = RunStore(Path(folder))
        uids = {each.uid for each in store.records()}
        assert {"good-1", "good-2"} <= uids
        assert all(str(path) in problem for problem in store.problems)
        store.add(run("new"))
        assert not path.exists()
        assert {"good-1", "good-2", "new"} <= {each.uid for each in RunStore(Path(folder)).records()}


@pytest.mark.parametrize("name", [OLD_FILE, JOURNAL_FILE])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    store = RunStore(tmp_path)
    assert store.records() == [] and "directory" in store.problems[0].lower()
    store.add(run("a"))
    assert store.find("a") == 1.0
