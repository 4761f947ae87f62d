"""Pod logs of the sandbox: read and followed while the node agent writes them, also when rotated."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from k8s.sandbox.api import pod_log
from k8s.sandbox.api.pod_log import MAX_WAIT_S, ROTATED_AWAY, LogFile, tail_offset
from k8s.sandbox.paths import log_of
from tests.k8s.sandbox.calls import PATIENCE_S, Api, pod

MOMENT = "2026-11-20T10:00:00.123456789Z"


def record(text: bytes, tag: str = "F", moment: str = MOMENT, stream: str = "stdout") -> bytes:
    return f"{moment} {stream} {tag} ".encode() + text + b"\n"


class Container:
    """Writes the log and status of a pod's container as the node agent does."""

    def __init__(self, api: Api, root: Path, uid: str, name: str) -> None:
        self.folder = root / uid / name
        self.folder.mkdir(parents=True)
        self._api = api
        self._name = name

    def write(self, text: bytes, run: int = 0) -> None:
        with (self.folder / f"{run}.log").open("ab") as file:
            file.write(text)

    async def say(self, state: dict[str, Any], run: int = 0, **more: Any) -> None:
        status = {"name": self._name, "restartCount": run, "state": state, **more}
        field = "initContainerStatuses" if self._name == "init" else "containerStatuses"
        patch = {"status": {"phase": "Running", field: [status]}}
        answer = await self._api.patch("pods", "p", patch, subresource="status")
        assert answer.code == 200, answer.body


@pytest.fixture
async def container(sandbox: Api, tmp_path: Path) -> Container:
    made = await sandbox.made("pods", pod("p", node="n"))
    found = Container(sandbox, tmp_path / "pods", made["metadata"]["uid"], "a")
    await found.say({"running": {}})
    return found


@asynccontextmanager
async def following(api: Api, **query: str) -> AsyncIterator[aiohttp.StreamReader]:
    url = api.url + api.path("pods", "p", "log")
    headers = {"Authorization": f"Bearer {api.token}"}
    async with api.session.get(url, params={"follow": "true", **query}, headers=headers) as response:
        assert response.status == 200, await response.text()
        async with asyncio.timeout(PATIENCE_S):
            yield response.content


async def test_each_followed_line_arrives_before_the_next_is_written(
    sandbox: Api, container: Container
) -> None:
    container.write(record(b"before"))
    async with following(sandbox) as lines:
        assert await lines.readline() == b"before\n"
        for number in range(5):
            container.write(record(b"line %d" % number))
            assert await lines.readline() == b"line %d\n" % number
    assert MAX_WAIT_S <= 0.1, "the longest time between two looks at a file"


async def test_following_ends_after_the_container_once_everything_is_read(
    sandbox: Api, container: Container
) -> None:
    async with following(sandbox) as lines:
        container.write(record(b"first"))
        assert await lines.readline() == b"first\n"
        container.write(b"".join(record(b"%06d" % number) for number in range(50_000)))
        await container.say({"terminated": {"exitCode": 0}})
        rest = await lines.read()
    assert rest == b"".join(b"%06d\n" % number for number in range(50_000))


async def test_following_ends_when_the_pod_is_gone(sandbox: Api, container: Container) -> None:
    container.write(record(b"a"))
    async with following(sandbox) as lines:
        assert await lines.readline() == b"a\n"
        await sandbox.delete("pods", "p", {"gracePeriodSeconds": 0})
        assert await lines.read() == b""


async def test_following_ends_at_a_restart(sandbox: Api, container: Container) -> None:
    container.write(record(b"first run"))
    async with following(sandbox) as lines:
        container.write(record(b"second run"), run=1)
        await container.say({"running": {}}, run=1, lastState={"terminated": {"exitCode": 1}})
        assert await lines.read() == b"first run\n"
    async with following(sandbox) as lines:
        assert await lines.readline() == b"second run\n"
    answer = await sandbox.call("GET", sandbox.path("pods", "p", "log"), previous="true")
    assert answer.body == b"first run\n"


async def test_a_container_that_waits_to_run_again_shows_its_last_run(
    sandbox: Api, container: Container
) -> None:
    container.write(record(b"crashed"))
    waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
    await container.say(waiting, lastState={"terminated": {"exitCode": 1}})
    for query in ({}, {"previous": "true"}, {"follow": "true"}):
        answer = await sandbox.call("GET", sandbox.path("pods", "p", "log"), **query)
        assert (answer.code, answer.body) == (200, b"crashed\n")


async def test_a_log_that_is_not_written_yet_is_waited_for(sandbox: Api, container: Container) -> None:
    assert (await sandbox.call("GET", sandbox.path("pods", "p", "log"))).body == b""
    async with following(sandbox) as lines:
        container.write(record(b"late"))
        assert await lines.readline() == b"late\n"


async def test_a_record_is_sent_once_it_is_complete(sandbox: Api, container: Container) -> None:
    line = record(b"hello")
    async with following(sandbox) as lines:
        container.write(line[:40])
        await asyncio.sleep(0.1)
        container.write(line[40:])
        assert await lines.readline() == b"hello\n"


async def test_a_log_begins_at_the_requested_time(sandbox: Api, container: Container) -> None:
    now = datetime.now(UTC)
    for ago_s in (100, 50, 10):
        moment = (now - timedelta(seconds=ago_s)).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")
        container.write(record(b"%d" % ago_s, moment=moment))
    path = sandbox.path("pods", "p", "log")
    assert (await sandbox.call("GET", path, sinceSeconds="60")).body == b"50\n10\n"
    since = (now - timedelta(seconds=20)).strftime("%Y-%m-%dT%H:%M:%S+00:00")
    assert (await sandbox.call("GET", path, sinceTime=since)).body == b"10\n"
    assert (await sandbox.call("GET", path, sinceTime="yesterday")).code == 400
    assert (await sandbox.call("GET", path, tailLines="-1")).code == 400


async def test_an_init_container_has_a_log_of_its_own(sandbox: Api, tmp_path: Path) -> None:
    wanted = pod("p", node="n")
    wanted["spec"]["initContainers"] = [{"name": "init", "image": "x"}]
    made = await sandbox.made("pods", wanted)
    container = Container(sandbox, tmp_path / "pods", made["metadata"]["uid"], "init")
    await container.say({"terminated": {"exitCode": 0}})
    container.write(record(b"set up"))
    path = sandbox.path("pods", "p", "log")
    assert (await sandbox.call("GET", path, container="init")).body == b"set up\n"
    answer = await sandbox.call("GET", path)
    assert answer.body["message"] == 'container "a" in pod "p" is waiting to start: ContainerCreating'


lines_of_parts = st.lists(
    st.lists(st.binary(max_size=20).map(lambda text: text.replace(b"\n", b"")), min_size=1, max_size=3),
    max_size=12,
)


def file_of(lines: list[list[bytes]], *, unfinished: bool) -> bytes:
    text = b""
    for index, parts in enumerate(lines):
        is_last = unfinished and index == len(lines) - 1
        text += b"".join(record(part, "P") for part in parts[:-1])
        text += record(parts[-1], "P" if is_last else "F")
    return text


@given(lines=lines_of_parts, unfinished=st.booleans(), block=st.integers(1, 200), tail=st.integers(0, 15))
def test_logs_are_decoded_and_cut_by_lines(
    lines: list[list[bytes]], unfinished: bool, block: int, tail: int
) -> None:
    text = file_of(lines, unfinished=unfinished)
    wanted = [b"".join(parts) + b"\n" for parts in lines]
    if wanted and unfinished:
        wanted[-1] = wanted[-1][:-1]
    usual = pod_log.BLOCK_BYTES
    pod_log.BLOCK_BYTES = block
    try:
        file = BytesIO(text)
        file.seek(tail_offset(file, tail))
        text = text_of(LogFile(file))
    finally:
        pod_log.BLOCK_BYTES = usual
    assert text == b"".join(wanted[len(wanted) - tail :] if tail < len(wanted) else wanted)


@given(text=st.binary(max_size=300))
def test_any_bytes_can_be_read_as_a_log(text: bytes) -> None:
    file = BytesIO(text)
    file.seek(tail_offset(file, 3))
    reader = LogFile(file, timestamps=True, since="2026")
    while reader.read() is not None:
        pass


# Rotated logs

GONE = ROTATED_AWAY + b"\n"


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


async def test_a_full_read_begins_with_a_notice_of_removed_parts(sandbox: Api, container: Container) -> None:
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


async def test_a_slow_reader_gets_a_notice_of_removed_parts(sandbox: Api, container: Container) -> None:
    write(container, 0, 1)
    async with following(sandbox) as lines:
        assert await lines.readline() == b"1\n"
        write(container, 7, 50)
        assert [await lines.readline() for _ in range(2)] == [GONE, b"50\n"]


async def test_each_run_has_its_own_parts(sandbox: Api, container: Container) -> None:
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
    usual = pod_log.BLOCK_BYTES
    pod_log.BLOCK_BYTES = block
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
            since_time = moment(since) if since is not None else ""
            texts = [
                text_of(LogFile.open(folder, run, tail=tail, timestamps=True, since=since_time))
                for run in (0, 1)
            ]
    finally:
        pod_log.BLOCK_BYTES = usual
    assert texts[0] == texts[1]
    assert len(texts[0].splitlines()) == len(
        [each for each in seconds[-tail if tail else len(seconds) * (tail == 0) :] if each >= (since or 0)]
    )


def text_of(log: LogFile) -> bytes:
    text = b""
    while (part := log.read()) is not None:
        text += part
    log.close()
    return text
