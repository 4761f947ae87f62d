"""A log in several files reads as one: whole, followed, its tail, since a time; what is gone is said."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k8s.sandbox.api.streams import log_file
from k8s.sandbox.api.streams.log_file import LogFile
from k8s.sandbox.api.streams.rotated_log import ROTATED_AWAY
from k8s.sandbox.pod_folder import log_of
from tests.k8s.sandbox.api.test_logs import Container, following, record
from tests.k8s.sandbox.calls import Api, pod

GONE = ROTATED_AWAY + b"\n"


@pytest.fixture
async def container(sandbox: Api, tmp_path: Path) -> Container:
    made = await sandbox.made("pods", pod("p", node="n"))
    found = Container(sandbox, tmp_path / "pods", made["metadata"]["uid"], "a")
    await found.say({"running": {}})
    return found


def moment(second: int) -> str:
    return f"2026-11-20T10:00:{second:02}.500000000Z"


def write(container: Container, part: int, *seconds: int, run: int = 0) -> None:
    """Add a line for each of these seconds to a part of the log."""
    with log_of(container.folder, run, part).open("ab") as file:
        for second in seconds:
            file.write(record(b"%d" % second, moment=moment(second)))


async def read(api: Api, **query: str) -> bytes:
    answer = await api.call("GET", api.path("pods", "p", "log"), **query)
    assert answer.code == 200, answer.body
    return bytes(answer.body)


async def test_all_parts_are_read_as_one(sandbox: Api, container: Container) -> None:
    write(container, 0, 1, 2)
    write(container, 1, 3)
    write(container, 2)
    write(container, 10, 4, 5)
    for part in (1, 2):
        log_of(container.folder, 0, part).touch()
    expected = b"1\n2\n3\n" + GONE + b"4\n5\n"
    assert await read(sandbox) == expected
    for part in range(3, 10):
        log_of(container.folder, 0, part).touch()
    assert await read(sandbox) == b"1\n2\n3\n4\n5\n"
    assert await read(sandbox, tailLines="4") == b"2\n3\n4\n5\n"
    assert await read(sandbox, tailLines="1") == b"5\n"
    assert await read(sandbox, tailLines="0") == b""
    assert await read(sandbox, sinceTime="2026-11-20T10:00:03Z") == b"3\n4\n5\n"
    assert await read(sandbox, sinceTime="2026-11-20T10:00:01Z", tailLines="3") == b"3\n4\n5\n"
    assert await read(sandbox, limitBytes="5") == b"1\n2\n3"


async def test_what_was_rotated_away_is_said_to_whom_it_matters(sandbox: Api, container: Container) -> None:
    write(container, 3, 30, 31)
    write(container, 4, 40)
    assert await read(sandbox) == GONE + b"30\n31\n40\n"
    assert await read(sandbox, tailLines="9") == GONE + b"30\n31\n40\n"
    assert await read(sandbox, tailLines="2") == b"31\n40\n"
    assert await read(sandbox, sinceTime="2026-11-20T10:00:20Z") == GONE + b"30\n31\n40\n"
    assert await read(sandbox, sinceTime="2026-11-20T10:00:31Z") == b"31\n40\n"
    timed = (await read(sandbox, timestamps="true")).splitlines()
    assert timed[0] == b"2026-11-20T10:00:30.499999999Z " + ROTATED_AWAY
    assert timed[1] == moment(30).encode() + b" 30"


async def test_following_goes_on_in_the_next_part(sandbox: Api, container: Container) -> None:
    write(container, 0, 1)
    async with following(sandbox) as lines:
        assert await lines.readline() == b"1\n"
        write(container, 0, 2)
        write(container, 1, 3)
        log_of(container.folder, 0, 0).unlink()
        assert [await lines.readline() for _ in range(2)] == [b"2\n", b"3\n"]
        for part in (2, 3):
            write(container, part, 10 * part)
        assert [await lines.readline() for _ in range(2)] == [b"20\n", b"30\n"]
        await container.say({"terminated": {"exitCode": 0}})
        assert await lines.read() == b""


async def test_a_reader_that_is_too_slow_is_told(sandbox: Api, container: Container) -> None:
    write(container, 0, 1)
    async with following(sandbox) as lines:
        assert await lines.readline() == b"1\n"
        write(container, 7, 50)
        assert [await lines.readline() for _ in range(2)] == [GONE, b"50\n"]


async def test_each_run_has_parts_of_its_own(sandbox: Api, container: Container) -> None:
    write(container, 0, 1)
    write(container, 1, 2)
    write(container, 0, 11, run=1)
    write(container, 1, 12, run=1)
    ended = {"terminated": {"exitCode": 1}}
    await container.say({"running": {}}, run=1, lastState=ended)
    assert await read(sandbox, previous="true") == b"1\n2\n"
    assert await read(sandbox) == b"11\n12\n"


@given(
    parts=st.lists(st.lists(st.integers(0, 59), max_size=4), min_size=1, max_size=4),
    tail=st.none() | st.integers(0, 20),
    since=st.none() | st.integers(0, 59),
    block=st.integers(1, 200),
)
def test_any_rotated_log_reads_as_the_same_log_in_one_file(
    parts: list[list[int]], tail: int | None, since: int | None, block: int
) -> None:
    seconds = sorted(second for part in parts for second in part)
    sizes = [len(part) for part in parts]
    usual = log_file.BLOCK_BYTES
    log_file.BLOCK_BYTES = block
    try:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            left = list(seconds)
            for part, size in enumerate(sizes):
                text = b"".join(record(b"%d" % each, moment=moment(each)) for each in left[:size])
                log_of(folder, 0, part).write_bytes(text)
                with log_of(folder, 1).open("ab") as file:
                    file.write(text)
                left = left[size:]
            words = moment(since) if since is not None else ""
            found = [
                whole(LogFile.open(folder, run, tail=tail, timestamps=True, since=words)) for run in (0, 1)
            ]
    finally:
        log_file.BLOCK_BYTES = usual
    assert found[0] == found[1]
    assert len(found[0].splitlines()) == len(
        [each for each in seconds[-tail if tail else len(seconds) * (tail == 0) :] if each >= (since or 0)]
    )


def whole(log: LogFile) -> bytes:
    found = b""
    while (text := log.read()) is not None:
        found += text
    log.close()
    return found
