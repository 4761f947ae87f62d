"""`curves`: from event files of a folder, of a job's volume or pod, or from the lines of a log."""

from __future__ import annotations

import csv
import io
import json
import math
import time
from array import array
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k8s.logs import LogLine, Target
from tests.scripted.server import SUCCESS, Answer, Asked, Compute, ScriptedCluster, Socket, page, refusal
from tests.support.objects import recorded
from tests.tui.commands.conftest import CommandLine
from trainer.tfevents import EventWriter
from tui.commands.curves import WIDEST, PlotLine, json_pieces, plot
from tui.runs.log_points import LogPoints

JOB_PATH = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs/running"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    written = EventWriter(tmp_path / "runs")
    for step in range(100):
        written.write_scalar("train/loss", step, 2.5 * math.exp(-step / 30))
    written.write_scalar("val/accuracy", 99, 0.5)
    written.write_scalar("val/accuracy", 199, math.nan)
    written.close()
    return tmp_path / "runs"


async def test_a_folder_is_plotted_without_a_cluster(alone: CommandLine, folder: Path) -> None:
    alone.set("COLUMNS", "80")
    ended = await alone("curves", str(folder))
    assert (ended.status, ended.err) == (0, "")
    assert f"Read from {folder}" in ended.out
    assert "train/loss\n" in ended.out
    assert "last 0.0922 at step 99, lowest 0.0922 at 99, highest 2.5 at 0; 100 points" in ended.out
    assert {len(row) for row in ended.out.splitlines() if row.endswith("┐")} == {80}
    assert "\x1b" not in ended.out
    assert any("⠀" < char <= "⣿" for char in ended.out)
    assert (await alone("--ascii", "curves", str(folder))).out.isascii()


async def test_json_has_every_point(alone: CommandLine, folder: Path) -> None:
    found = (await alone("curves", str(folder), "-o", "json")).values
    assert found.keys() == {"tags", "source"}
    assert found["tags"].keys() == {"train/loss", "val/accuracy"}
    points = found["tags"]["train/loss"]
    assert [each["step"] for each in points] == list(range(100))
    assert points[0].keys() == {"step", "wall_time", "value"}
    assert [each["value"] for each in found["tags"]["val/accuracy"]] == [0.5, None]


async def test_csv_has_a_row_for_each_point(alone: CommandLine, folder: Path) -> None:
    ended = await alone("curves", str(folder), "-o", "csv", "--tag", "accuracy")
    rows = list(csv.reader(io.StringIO(ended.out)))
    assert rows[0] == ["tag", "step", "wall_time", "value"]
    assert [row[:2] + row[3:] for row in rows[1:]] == [
        ["val/accuracy", "99", "0.5"],
        ["val/accuracy", "199", "nan"],
    ]


async def test_curves_of_two_runs_in_one_folder_are_labelled_by_run(
    alone: CommandLine, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        written = EventWriter(tmp_path / "runs" / name)
        written.write_scalar("loss", 1, 1.0)
        written.close()
    found = (await alone("curves", str(tmp_path / "runs"), "-o", "json")).values
    assert found["tags"].keys() == {"loss (a)", "loss (b)"}


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("./missing",), 1, "There are no event files or other metrics in missing."),
        (("~nobody-of-this-name/runs",), 1, "other metrics in ~nobody-of-this-name/runs."),
        (("FOLDER", "--tag", "lr"), 1, "train/loss, val/accuracy"),
        (tuple(f"./run-{number}" for number in range(9)), 2, "9 sources; one chart shows up to 8."),
    ],
    ids=["missing", "home", "tag", "many"],
)
async def test_sources_that_cannot_be_plotted_are_reported(
    alone: CommandLine, folder: Path, words: tuple[str, ...], status: int, said: str
) -> None:
    (await alone("curves", *(str(folder) if word == "FOLDER" else word for word in words))).reports(
        status, said
    )


async def test_links_to_runs_and_files_are_followed_and_loops_end(alone: CommandLine, folder: Path) -> None:
    runs = folder.parent / "linked"
    (runs / "real").mkdir(parents=True)
    (runs / "exp-7").symlink_to(folder)
    (runs / "again").symlink_to(runs)
    (runs / "up").symlink_to(folder.parent)
    (file,) = folder.glob("*tfevents*")
    (runs / "real" / file.name).symlink_to(file)
    tags = (await alone("curves", str(runs), "-o", "json")).values["tags"]
    assert {tag for tag in tags if tag.startswith("train")} == {"train/loss (exp-7)", "train/loss (real)"}


@pytest.mark.parametrize("path", ["mlruns/0/meta.yaml", "meta.yaml", "4711/meta.yaml"])
async def test_a_folder_of_mlflow_is_named(alone: CommandLine, tmp_path: Path, path: str) -> None:
    file = tmp_path / "work" / path
    file.parent.mkdir(parents=True)
    file.write_text("name: x\n")
    (await alone("curves", str(tmp_path / "work"))).reports(1, "It is a folder of MLflow, which is not read")


@pytest.fixture
def runs(tmp_path: Path) -> list[str]:
    """Return the folders of two runs; the second one counts epochs, too."""
    for number, name in enumerate(("experiment-of-vgg16", "experiment-of-resnet50")):
        with EventWriter(tmp_path / name) as written:
            for step in range(10):
                written.write_scalar("loss", step, 1 + number + step / 10)
                if number:
                    written.write_scalar("epoch", step, step / 5)
    return [str(tmp_path / "experiment-of-vgg16"), str(tmp_path / "experiment-of-resnet50")]


async def test_several_runs_share_a_chart(alone: CommandLine, runs: list[str]) -> None:
    alone.set("COLUMNS", "80")
    ended = await alone("curves", *runs, "--tag", "loss")
    assert (ended.status, ended.err) == (0, "")
    assert "⠤●⠤ vgg16 1.9     ⠤■⠤ resnet50 2.9" in ended.out
    assert "vgg16: last 1.9 at step 9, lowest 1 at 0, highest 1.9 at 9; 10 points" in ended.out
    assert all(f"Read from {folder}" in ended.out for folder in runs)
    assert "\x1b" not in ended.out
    assert (await alone("--ascii", "curves", *runs)).out.isascii()


async def test_runs_are_drawn_on_another_axis(alone: CommandLine, runs: list[str]) -> None:
    ended = await alone("curves", *runs, "--x", "epoch", "--tag", "loss")
    assert "by epoch" in ended.out
    assert "no epoch: vgg16" in ended.out
    assert "by epoch" in (await alone("curves", runs[1], "--x", "epoch", "--tag", "loss")).out


async def test_points_of_several_runs_name_their_run(alone: CommandLine, runs: list[str]) -> None:
    ended = await alone("curves", *runs, "-o", "csv")
    rows = list(csv.reader(io.StringIO(ended.out)))
    assert rows[0] == ["run", "tag", "step", "wall_time", "value"]
    assert [(row[0], row[1]) for row in rows[1:]] == [
        *[(runs[0], "loss")] * 10,
        *[(runs[1], "loss")] * 10,
        *[(runs[1], "epoch")] * 10,
    ]
    found = (await alone("curves", *runs, "-o", "json")).values
    assert found["sources"] == {folder: folder for folder in runs}
    assert {key: len(points) for key, points in found["tags"].items()} == {"loss": 20, "epoch": 10}
    assert [point["run"] for point in found["tags"]["loss"]] == [runs[0]] * 10 + [runs[1]] * 10
    assert found["tags"]["loss"][0].keys() == {"run", "step", "wall_time", "value"}


async def test_sources_without_curves_are_named_and_the_others_shown(
    alone: CommandLine, runs: list[str], tmp_path: Path
) -> None:
    ended = await alone("curves", runs[0], str(tmp_path / "missing"), runs[1], "nobody", "-o", "json")
    assert ended.status == 1
    assert ended.values["sources"].keys() == set(runs)
    assert f"Not shown: {tmp_path / 'missing'}. There are no event files" in ended.err
    assert "Not shown: nobody. No cluster to talk to." in ended.err
    alone_left = await alone("curves", runs[0], str(tmp_path / "missing"), "-o", "csv")
    assert alone_left.out.startswith("run,tag,")
    (await alone("curves", "./none", "./nothing")).reports(1, "There are no event files")


async def test_a_job_and_a_folder_share_a_chart(run: CommandLine, folder: Path, runs: list[str]) -> None:
    job_writing_to(run.cluster, "/mnt/runs")
    claim = {"metadata": {"annotations": {"gpuconsole.dev/path": str(folder.parent)}}}
    run.cluster.say("/api/v1/namespaces/default/persistentvolumeclaims/training-data", Answer(claim))
    found = (await run("curves", "running", runs[0], "-o", "json")).values
    assert found["sources"] == {"running": "/mnt/runs on this machine", runs[0]: runs[0]}


def job_writing_to(cluster: ScriptedCluster, log_dir: str) -> None:
    """Let the recorded job `running` say where it writes, on the claim `training-data`."""
    jobs: list[Any] = recorded("pytorchjobs")
    job = next(each for each in jobs if each["metadata"]["name"] == "running")
    if log_dir:
        job["metadata"].setdefault("annotations", {})["gpuconsole.dev/log-dir"] = log_dir
    for role in job["spec"]["pytorchReplicaSpecs"].values():
        pod = role["template"]["spec"]
        pod["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "training-data"}}]
        pod["containers"][0]["volumeMounts"] = [{"name": "v", "mountPath": "/mnt"}]
    cluster.replace("/apis/kubeflow.org/v1/pytorchjobs", page(jobs))
    cluster.say(JOB_PATH, Answer(job))


async def test_a_local_volume_is_read(run: CommandLine, folder: Path) -> None:
    job_writing_to(run.cluster, "/mnt/runs")
    claim = {"metadata": {"annotations": {"gpuconsole.dev/path": str(folder.parent)}}}
    run.cluster.say("/api/v1/namespaces/default/persistentvolumeclaims/training-data", Answer(claim))
    found = (await run("curves", "running", "-o", "json")).values
    assert len(found["tags"]["train/loss"]) == 100
    assert found["source"] == "/mnt/runs on this machine"


async def test_texts_and_arguments_of_a_run_are_printed(alone: CommandLine, folder: Path) -> None:
    with EventWriter(folder / "b\x1b[2J") as writer:
        writer.write_hparams({"lr": 0.5, "words": "two\nlines\x1b[2J"})
    ended = await alone("curves", str(folder), "--text")
    assert ended.out.splitlines()[1:] == ["    lr: 0.5", "    words: two", "      lines"]
    assert "\x1b" not in ended.out
    found = (await alone("curves", str(folder), "--text", "-o", "json")).values
    assert found == {str(folder): {"b\x1b[2J": {"lr": "0.5", "words": "two\nlines\x1b[2J"}}}
    (await alone("curves", "x", "--folder", "logs")).reports(2, "from / on")


async def test_the_age_of_the_newest_point_is_shown(alone: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text(f'{{"step": 1, "loss": 2.5, "time": {time.time() - 7200}}}\n')
    assert f"Read from {tmp_path}, newest point 2h" in (await alone("curves", str(tmp_path))).out


async def test_a_volume_is_read_through_a_temporary_reader_pod_after_confirmation(
    run: CommandLine, folder: Path
) -> None:
    job_writing_to(run.cluster, "/mnt/runs")
    pods = "/api/v1/namespaces/default/pods"
    (await run("curves", "running", "--reader-pod")).reports(2, "pass --yes")
    (await run("--readonly", "curves", "running", "--reader-pod", "--yes")).reports(1, "disabled")
    (file,) = folder.iterdir()
    listed = f"{file.stat().st_size} /mnt/runs/{file.name}\n".encode()
    created: list[str] = []

    def create(asked: Asked) -> Answer:
        body = json.loads(asked.body)
        created.append(body["metadata"]["name"])
        assert body["spec"]["containers"][0]["image"] == "busybox"
        of_pod = f"{pods}/{created[-1]}/exec"
        run.cluster.say(of_pod, Socket([(1, listed), SUCCESS]), Socket([(1, file.read_bytes()), SUCCESS]))
        return Answer(body, 201)

    run.cluster.say(f"{pods}/running-master-0", refusal(404, "gone", "NotFound"))
    run.cluster.say(f"{pods}/running-master-0/exec", refusal(403, "no exec"))
    run.cluster.say(pods, Compute(create), method="POST")
    run.cluster.say(f"{pods}/*", Answer({"status": {"phase": "Running"}}))
    run.cluster.say(f"{pods}/*", Answer({}), method="DELETE")
    ended = await run("curves", "running", "--reader-pod", "--image", "busybox", "--yes", "-o", "json")
    [pod] = created
    assert ended.values["source"] == f"/mnt/runs in {pod}"
    assert len(ended.values["tags"]["train/loss"]) == 100
    assert f"reading through pod {pod}, which is deleted afterwards" in ended.err
    assert len(run.cluster.asked(f"{pods}/{pod}", method="DELETE")) == 1


async def test_event_files_are_read_from_a_running_pod(run: CommandLine, folder: Path) -> None:
    job_writing_to(run.cluster, "/mnt/runs")
    (file,) = folder.iterdir()
    body = file.read_bytes()
    listed = f"{len(body)} /mnt/runs/{file.name}\n".encode()
    path = "/api/v1/namespaces/default/pods/running-master-0/exec"
    run.cluster.say(path, Socket([(1, listed), SUCCESS]), Socket([(1, body), SUCCESS]))
    found = (await run("curves", "running", "-o", "json")).values
    assert len(found["tags"]["train/loss"]) == 100
    assert found["source"] == "/mnt/runs in running-master-0"


async def test_without_event_files_the_log_is_read(run: CommandLine) -> None:
    job_writing_to(run.cluster, "")
    pod = next(each for each in recorded("pods") if each["metadata"]["name"] == "running-master-0")
    path = "/api/v1/namespaces/default/pods/running-master-0"
    run.cluster.say(path, Answer(pod))
    stamps = [f"2026-11-20T18:36:{second}.000000000Z" for second in range(10, 60)]
    lines = [f"{stamp} epoch 1/2 step {at}/50 loss {9 - at / 10}" for at, stamp in enumerate(stamps)]
    run.cluster.say(f"{path}/log", Answer("\n".join(lines).encode()))
    ended = await run("curves", "running", "-o", "json")
    assert ended.values["source"] == "the log of master-0"
    points = ended.values["tags"]["loss"]
    assert (points[0]["step"], points[0]["value"], points[0]["wall_time"]) == (0, 9, 1795199770)
    assert points[49]["value"] == pytest.approx(4.1)
    assert ended.err == ""


async def test_tags_are_sorted_with_losses_first_and_numbers_in_numeric_order(
    alone: CommandLine, tmp_path: Path
) -> None:
    tags = ["loss", "train/loss", "head2/loss", "head10/loss", "val/loss", "val/accuracy", "grad2", "grad10"]
    with EventWriter(tmp_path / "runs") as written:
        for tag in sorted(tags):
            written.write_scalar(tag, 1, 1.0)
    found = (await alone("curves", str(tmp_path / "runs"), "-o", "json")).values
    assert list(found["tags"]) == tags


async def test_curves_reports_a_job_without_curves(run: CommandLine) -> None:
    job_writing_to(run.cluster, "")
    (await run("curves", "running")).reports(1, "There are no curves for PyTorchJob default/running.")


SOURCE = Target("default", "pod")


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("step 40/800 loss 1.87 lr 3.0e-03", {"loss": (40, 1.87), "lr": (40, 0.003)}),
        ("[rank0]: epoch 1/5 step 10/31 loss 2.2 201 images/s eta 7s", {"loss": (10, 2.2)}),
        ("step=7 train_loss=nan, acc=0.5", {"train_loss": (7, math.nan), "acc": (7, 0.5)}),
        ("Iter: 12, Loss: -inf", {"Loss": (12, -math.inf)}),
        (
            "epoch 3 step 5/9 val_loss 0.5 val_accuracy 0.9100",
            {"val_loss": (5, 0.5), "val_accuracy": (5, 0.91)},
        ),
        (
            "| iteration 10/ 500 | lm loss: 9.1E+00 | grad norm: 1.5",
            {"lm_loss": (10, 9.1), "norm": (10, 1.5)},
        ),
        ("loss 1.87", {}),
        ("step 5 took 3 ms", {}),
        ("footstep 5 loss 1", {}),
        ("loss weights step", {}),
        ("step 99999999999999999999999 loss 1", {}),
    ],
)
def test_progress_lines_hold_points(line: str, found: dict[str, tuple[int, float]]) -> None:
    points = LogPoints()
    points.add([LogLine(10**9, line.encode(), SOURCE, 0)])
    seen = {tag: (series.steps[0], series.values[0]) for tag, series in points.series.items()}
    assert repr(seen) == repr(found)


@given(st.lists(st.binary(max_size=60)))
def test_any_log_lines_can_be_scanned_for_points(raws: list[bytes]) -> None:
    lines = [LogLine(1, b"step 5 loss 1 " + raw, SOURCE, 0) for raw in raws]
    points = LogPoints()
    points.add(lines)
    assert ("loss" in points.series) == bool(raws)


@given(
    st.lists(st.floats(), max_size=40),
    st.integers(1, 10**17),
    st.integers(0, 400),
    st.booleans(),
    st.text(max_size=5),
)
def test_any_values_can_be_plotted_at_any_width(
    values: list[float], stride: int, width: int, is_ascii: bool, name: str
) -> None:
    steps = array("q", [at * stride for at in range(len(values))])
    line = PlotLine(name, steps, array("d", [0.0] * len(values)), array("d", values))
    rows = plot(line, width, is_ascii=is_ascii).splitlines()
    assert all(len(row) <= WIDEST for row in rows[1:-1])


async def test_a_tag_that_a_spreadsheet_would_run_is_escaped(alone: CommandLine, tmp_path: Path) -> None:
    written = EventWriter(tmp_path / "runs")
    written.write_scalar("=cmd|'/c calc'!A0", 1, -2.5)
    written.close()
    ended = await alone("curves", str(tmp_path / "runs"), "-o", "csv")
    tag, step, _, value = list(csv.reader(io.StringIO(ended.out)))[1]
    assert (tag, step, value) == ("'=cmd|'/c calc'!A0", "1", "-2.5")


POINTS = st.lists(st.tuples(st.integers(0, 2**63 - 1), st.floats(), st.floats()), max_size=5)


@given(st.dictionaries(st.text(), POINTS, max_size=3), st.text())
def test_streamed_json_equals_the_output_of_json_dumps(
    found: dict[str, list[tuple[int, float, float]]], source: str
) -> None:
    lines = [
        PlotLine(
            name,
            array("q", [step for step, _, _ in points]),
            array("d", [at for _, at, _ in points]),
            array("d", [value for _, _, value in points]),
        )
        for name, points in found.items()
    ]

    def finite(value: float) -> float | None:
        return value if math.isfinite(value) else None

    tags = {
        name: [{"step": step, "wall_time": finite(at), "value": finite(value)} for step, at, value in points]
        for name, points in found.items()
    }
    expected = json.dumps({"tags": tags, "source": source}, indent=2)
    assert "".join(json_pieces(lines, source)) == f"{expected}\n"
    of_runs = [replace(line, run=f"{source}%s") for line in lines]
    named = {name: [{"run": f"{source}%s", **point} for point in points] for name, points in tags.items()}
    expected = json.dumps({"tags": named, "sources": {source: "x"}}, indent=2)
    assert "".join(json_pieces(of_runs, {source: "x"})) == f"{expected}\n"
