"""Event files of others in our reader, ours in theirs, and every way to store one number."""

import struct
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.trainer.test_event_files import read_points
from trainer.tfevents import EventFolder, EventStream, EventWriter, Hparams, ScalarCurve
from trainer.tfevents.event import frame
from trainer.tfevents.writer import session_start

tensorboard = pytest.importorskip(
    "tensorboard", reason="compares with TensorBoard, which gpuconsole[trainer] brings"
)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import numpy as np
    from tensorboard.backend.event_processing import data_provider
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
    from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2
    from tensorboard.context import RequestContext
    from tensorboard.plugins import base_plugin
    from tensorboard.plugins.hparams import (
        api_pb2,
        backend_context,
        list_session_groups,
        metadata,
        summary_v2,
    )
    from tensorboard.summary.writer.event_file_writer import EventFileWriter
    from tensorboard.util import tensor_util


def summary_of(tag: str, **value: Any) -> Any:
    return summary_pb2.Summary(value=[summary_pb2.Summary.Value(tag=tag, **value)])


def event(step: int, **value: Any) -> bytes:
    summary = summary_of("loss", **value)
    payload: bytes = event_pb2.Event(wall_time=1000.0 + step, step=step, summary=summary).SerializeToString()
    return frame(payload)


def curves_in(path: Path) -> list[ScalarCurve]:
    """Read the curves of a folder in which nothing is damaged."""
    folder = EventFolder(path)
    folder.read_new()
    assert folder.problems == {}
    return list(folder.curves())


def scalars_metadata(plugin: str = "scalars") -> Any:
    return summary_pb2.SummaryMetadata(plugin_data=summary_pb2.SummaryMetadata.PluginData(plugin_name=plugin))


def test_our_records_are_the_bytes_tensorboard_writes(tmp_path: Path) -> None:
    with EventWriter(tmp_path) as writer:
        for step in (0, 1, 127, 128, 1 << 40, -1):
            writer.write_scalar("loss", step, 0.25, 1000.0 + step)
    ours = writer.path.read_bytes()
    assert ours.endswith(b"".join(event(step, simple_value=0.25) for step in (0, 1, 127, 128, 1 << 40, -1)))


@pytest.mark.parametrize("new_style", [False, True])
def test_files_torch_writes_open_in_ours_and_pictures_and_texts_are_left_out(
    tmp_path: Path, new_style: bool
) -> None:
    pytest.importorskip(
        "torch", reason="compares with torch's SummaryWriter, which gpuconsole[trainer] brings"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.utils.tensorboard.writer import SummaryWriter

        with SummaryWriter(str(tmp_path)) as writer:
            for step in range(200):
                writer.add_scalar("train/loss", step / 8, step, new_style=new_style)
                writer.add_scalar("train/lr", 0.5, step, double_precision=True, new_style=new_style)
                if step % 50 == 0:
                    writer.add_text("notes", "hello", step)
                    writer.add_histogram("weights", np.arange(9.0), step)
    curves = {curve.tag: curve for curve in curves_in(tmp_path)}
    assert curves.keys() == {"train/loss", "train/lr"}
    assert list(curves["train/loss"].steps) == list(range(200))
    assert list(curves["train/loss"].values) == [step / 8 for step in range(200)]
    assert list(curves["train/lr"].values) == [0.5] * 200


def number(dtype: str, shape: tuple[int, ...] = ()) -> Callable[[float], dict[str, Any]]:
    return lambda value: {"tensor": tensor_util.make_tensor_proto(np.full(shape, value, dtype))}


def content(dtype: str, code: int) -> Callable[[float], dict[str, Any]]:
    return lambda value: {
        "tensor": tensor_pb2.TensorProto(dtype=code, tensor_content=np.array(value, dtype).tobytes())
    }


def bfloat16(value: float) -> dict[str, Any]:
    bits = struct.unpack("<I", struct.pack("<f", value))[0] >> 16
    return {"tensor": tensor_pb2.TensorProto(dtype=14, half_val=[bits])}


def bfloat16_content(value: float) -> dict[str, Any]:
    return {"tensor": tensor_pb2.TensorProto(dtype=14, tensor_content=struct.pack("<f", value)[2:])}


@pytest.mark.parametrize(
    "stored",
    [
        pytest.param(lambda value: {"simple_value": value}, id="simple_value"),
        pytest.param(number("float32"), id="float32 float_val"),
        pytest.param(content("float32", 1), id="float32 tensor_content"),
        pytest.param(number("float64"), id="float64 double_val"),
        pytest.param(content("float64", 2), id="float64 tensor_content"),
        pytest.param(number("float16"), id="half half_val"),
        pytest.param(content("float16", 19), id="half tensor_content"),
        pytest.param(bfloat16, id="bfloat16 half_val"),
        pytest.param(bfloat16_content, id="bfloat16 tensor_content"),
        pytest.param(number("float32", (1,)), id="shape (1,)"),
        pytest.param(number("int64"), id="int64"),
        pytest.param(number("int32"), id="int32"),
        pytest.param(number("uint8"), id="uint8"),
    ],
)
@pytest.mark.parametrize("described", ["always", "first", "never"])
def test_a_number_is_found_however_it_is_stored(
    stored: Callable[[float], dict[str, Any]], described: str
) -> None:
    stream = EventStream()
    chunk = b""
    for step in range(40):
        value = stored(float(step))
        if described == "always" or (described == "first" and step == 0):
            value["metadata"] = scalars_metadata()
        chunk += event(step, **value)
    stream.feed(chunk)
    assert list(stream.series["loss"].values) == [float(step) for step in range(40)]
    assert list(stream.series["loss"].steps) == list(range(40))
    assert [point.value for point in read_points(chunk)[0]] == [float(step) for step in range(40)]
    assert (stream.skipped, stream.problem) == (0, "")


@pytest.mark.parametrize(
    "value",
    [
        number("float32", (3,))(1.0),
        number("float32", (0,))(1.0),
        {"tensor": tensor_util.make_tensor_proto("words")},
        number("float32")(1.0) | {"metadata": scalars_metadata("audio")},
        {"histo": summary_pb2.HistogramProto(num=1.0)},
    ],
)
def test_values_other_than_a_single_number_are_not_points(value: dict[str, Any]) -> None:
    assert read_points(event(1, **value))[0] == []


def test_several_values_in_one_event_are_several_points() -> None:
    values = [summary_pb2.Summary.Value(tag=tag, simple_value=1.0) for tag in ("a", "b")]
    payload = event_pb2.Event(step=3, summary=summary_pb2.Summary(value=values)).SerializeToString()
    assert [(point.tag, point.step) for point in read_points(frame(payload))[0]] == [("a", 3), ("b", 3)]


TEXTS = {"download": "false", "epochs": "5", "lr": "0.1", "model": "cnn", "names": "", "words": "żółw"}
HPARAMS: Hparams = {"lr": 0.003, "epochs": 5, "model": "cnn", "download": False, "words": "żółw", "names": ""}


def test_the_hparams_of_a_run_are_encoded_as_tensorboard_encodes_them() -> None:
    theirs = summary_v2.hparams_pb(HPARAMS, start_time_secs=1000.5)
    ours = summary_pb2.Summary.FromString(session_start(HPARAMS, 1000.5))
    [value] = ours.value
    assert value.tag == theirs.value[0].tag
    assert value.tensor == theirs.value[0].tensor
    plugin_data = value.metadata.plugin_data
    assert plugin_data.plugin_name == theirs.value[0].metadata.plugin_data.plugin_name
    read = metadata.parse_session_start_info_plugin_data(plugin_data.content)
    expected = metadata.parse_session_start_info_plugin_data(theirs.value[0].metadata.plugin_data.content)
    assert dict(read.hparams) == dict(expected.hparams)
    assert (read.start_time_secs, len(read.hparams)) == (1000.5, len(HPARAMS))


def test_tensorboards_hparams_tab_lists_a_run_with_its_arguments_and_metrics(tmp_path: Path) -> None:
    for number, lr in enumerate((0.1, 0.2)):
        with EventWriter(tmp_path / f"run-{number}") as writer:
            writer.write_hparams({**HPARAMS, "lr": lr})
            writer.write_scalar("val/loss", 10, 0.5 + number)
    multiplexer = EventMultiplexer(tensor_size_guidance={"scalars": 0}).AddRunsFromDirectory(str(tmp_path))
    multiplexer.Reload()
    context = backend_context.Context(
        base_plugin.TBContext(data_provider=data_provider.MultiplexerDataProvider(multiplexer, str(tmp_path)))
    )
    request = api_pb2.ListSessionGroupsRequest(start_index=0, slice_size=9)
    request.allowed_statuses.append(api_pb2.STATUS_UNKNOWN)
    request.col_params.add(metric=api_pb2.MetricName(tag="val/loss"))
    request.col_params.add(hparam="lr")
    groups = list_session_groups.Handler(RequestContext(), context, "", request).run().session_groups
    assert {group.hparams["model"].string_value for group in groups} == {"cnn"}
    losses = {each.hparams["lr"].number_value: [one.value for one in each.metric_values] for each in groups}
    assert losses == {0.1: [0.5], 0.2: [1.5]} and len(groups) == 2
    folder = EventFolder(tmp_path)
    folder.read_new()
    assert {curve.tag for curve in folder.curves()} == {"val/loss"}
    assert folder.problems == {}
    assert [text for text in folder.texts() if text.run == "run-0"] == [
        ("run-0", name, text) for name, text in TEXTS.items()
    ]


def test_texts_are_read_and_the_newest_of_a_tag_stays() -> None:
    plugin = scalars_metadata("text")
    stream = EventStream()
    for step, words in enumerate((["old"], ["a\x1b[2J", "b"])):
        tensor = tensor_util.make_tensor_proto(np.array([word.encode() for word in words], dtype=object))
        stream.feed(event(step, tensor=tensor, metadata=plugin))
    assert stream.texts == {"loss": "a\x1b[2J | b"}
    assert (stream.series, stream.skipped) == ({}, 0)


points = st.lists(
    st.tuples(st.sampled_from(["a", "train/loss", "π"]), st.floats(width=32)), min_size=1, max_size=80
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(points)
def test_any_points_survive_the_way_to_tensorboard_and_back(
    tmp_path: Path, points: list[tuple[str, float]]
) -> None:
    there = Path(tempfile.mkdtemp(dir=tmp_path))
    with EventWriter(there) as writer:
        for step, (tag, value) in enumerate(points):
            writer.write_scalar(tag, step, value, 1000.0 + step)
    accumulator = EventAccumulator(str(there), size_guidance={"scalars": 0})
    accumulator.Reload()
    theirs = {
        tag: [(event.step, event.wall_time, repr(event.value)) for event in accumulator.Scalars(tag)]
        for tag in accumulator.Tags()["scalars"]
    }
    back = Path(tempfile.mkdtemp(dir=tmp_path))
    again = EventFileWriter(str(back))
    for tag, values in theirs.items():
        for step, time, shown in values:
            summary = summary_of(tag, simple_value=float(shown))
            again.add_event(event_pb2.Event(wall_time=time, step=step, summary=summary))
    again.close()
    for path in (there, back):
        assert theirs == {
            curve.tag: list(zip(curve.steps, curve.wall_times, map(repr, curve.values), strict=True))
            for curve in curves_in(path)
        }
