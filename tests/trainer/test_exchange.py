"""Ranks exchange JSON and tensors: whatever another process sends, nothing of it is run."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given
from hypothesis import strategies as st

from tests.trainer.jobs import SMALL, Job, free_port
from trainer.distributed.process_group import MAX_TEXT_BYTES, check_sizes, decode, encode
from trainer.messages import MissingData, NotFinite, Stopped, TrainingError

# `ctypes.py_object` is no collective.
UNPICKLES = re.compile(r"(?<!py)_object(?:_list)?\(|weights_only=False|pickle\.load")
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False)
    | st.text(max_size=8)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.integers() | st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=4,
)


def sent(value: Any) -> Any:
    return decode(*encode(value))


@given(VALUES)
def test_values_arrive_as_they_were(value: object) -> None:
    assert sent(value) == value


def test_tensors_paths_and_errors_arrive_as_they_were() -> None:
    tensors = {
        0: torch.arange(6, dtype=torch.bfloat16).reshape(2, 3),
        "byte": torch.tensor([True, False, True]),
        "scalar": torch.tensor(2.5, dtype=torch.float64),
        "empty": torch.empty(0, 4),
        "view": torch.arange(12).reshape(3, 4).t(),
    }
    found = sent((Path("/a b"), tensors, [math.inf]))
    assert found[0] == Path("/a b") and found[2] == [math.inf]
    for name, tensor in tensors.items():
        assert found[1][name].dtype == tensor.dtype and torch.equal(found[1][name], tensor)
    for error in (
        MissingData("a", "b"),
        NotFinite("no"),
        Stopped("s", signal=15),
        TrainingError("t", now="n"),
    ):
        copy = sent(error)
        assert type(copy) is type(error) and copy.args == error.args
        assert copy.exit_status == error.exit_status


def test_other_types_are_refused_where_they_are_sent() -> None:
    with pytest.raises(TypeError, match="set"):
        encode({1})


@pytest.mark.parametrize(
    "sizes", [(0, 0), (-1, 8), (8, -1), (MAX_TEXT_BYTES + 1, 0), (2, 1 << 62), (2**63 - 1, 2**63 - 1)]
)
def test_impossible_sizes_are_refused_before_memory_is_taken(sizes: tuple[int, int]) -> None:
    with pytest.raises(TrainingError, match="no rank of this job"):
        check_sizes(torch.tensor(sizes))


@given(st.binary(min_size=1, max_size=64), st.integers(0, 64))
def test_any_bytes_are_a_value_or_an_error(text: bytes, tensors: int) -> None:
    body = torch.frombuffer(bytearray(text + bytes(tensors)), dtype=torch.uint8)
    try:
        decode(torch.tensor([len(text), tensors]), body)
    except TrainingError as error:
        assert error.args[0]


@pytest.mark.parametrize(
    "text",
    [
        '{"tensor": ["torch.float32", [4]]}',
        '{"tensor": ["torch.float32", [-1]]}',
        '{"tensor": ["torch.complex64", [1]]}',
        '{"tensor": []}',
        '{"tensor": ["torch.int8"]}',
        '{"error": ["SystemExit", ["0"], 0]}',
        '{"tuple": 3}',
        '{"dict": [[[], 1]]}',
        '{"a": 1, "b": 2}',
        "[" * 5000,
    ],
)
def test_malformed_exchange_messages_are_rejected(text: str) -> None:
    body = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)
    with pytest.raises(TrainingError, match="no rank of this job"):
        decode(torch.tensor([len(text), 0]), body)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "receives"),
    [(["trainer.train_ddp", *SMALL], 0), (["trainer.train_mpi", "--model", "tiny"], 2)],
    ids=["ddp", "mpi"],
)
def test_another_process_that_joins_as_a_rank_cannot_run_code_in_the_job(
    tmp_path: Path, imported_torch: None, command: list[str], receives: int
) -> None:
    marker, port = tmp_path / "ran", free_port()
    env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    with Job(tmp_path, forks=True) as job:
        job.start(command, RANK="0", **env)
        job.start(["tests.support.rank_impostor", port, str(marker), str(receives)])
        job.wait_for("joined", 1)
        statuses = job.end()
        assert not marker.exists(), f"a command ran as user {marker.read_text().strip()}"
        assert statuses[0] == 1
        assert job.lines[0][-1].startswith("error: Another rank ")


def test_the_trainers_name_no_collective_that_unpickles() -> None:
    import trainer

    root = Path(str(trainer.__file__)).parent
    found = [
        f"{path.relative_to(root)}:{number}"
        for path in root.rglob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if UNPICKLES.search(line)
    ]
    assert found == []
