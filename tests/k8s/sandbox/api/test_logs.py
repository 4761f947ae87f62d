"""Pod logs of the sandbox: the file as the node agent writes it, followed while it does."""

from __future__ import annotations

import asyncio
import time
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

from k8s.sandbox.api.streams import log_file
from k8s.sandbox.api.streams.log_file import LogFile, tail_offset
from tests.k8s.sandbox.calls import Api, pod

MOMENT = "2026-11-20T10:00:00.123456789Z"


def record(text: bytes, tag: str = "F", moment: str = MOMENT, stream: str = "stdout") -> bytes:
    return f"{moment} {stream} {tag} ".encode() + text + b"\n"


class Container:
    """What the node agent does for a pod's container: write its log, say its state."""

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
        async with asyncio.timeout(20):
            yield response.content


async def test_a_followed_line_arrives_within_a_tenth_of_a_second(sandbox: Api, container: Container) -> None:
    container.write(record(b"before"))
    async with following(sandbox) as lines:
        assert await lines.readline() == b"before\n"
        waits = []
        for number in range(5):
            await asyncio.sleep(0.15)
            begun = time.monotonic()
            container.write(record(b"line %d" % number))
            assert await lines.readline() == b"line %d\n" % number
            waits.append(time.monotonic() - begun)
    # The best of five: others may hold the machine meanwhile.
    assert min(waits) < 0.1


async def test_following_ends_when_the_container_has_and_all_is_read(
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


async def test_a_record_is_sent_when_it_is_whole(sandbox: Api, container: Container) -> None:
    whole = record(b"hello")
    async with following(sandbox) as lines:
        container.write(whole[:40])
        await asyncio.sleep(0.1)
        container.write(whole[40:])
        assert await lines.readline() == b"hello\n"


async def test_a_line_of_a_megabyte_is_one_line(sandbox: Api, container: Container) -> None:
    line = bytes(range(32, 127)) * 11_000
    parts = [line[at : at + 16_384] for at in range(0, len(line), 16_384)]
    container.write(
        b"".join(record(part, "P") for part in parts[:-1]) + record(parts[-1]) + record(b"\xff\xfe")
    )
    answer = await sandbox.call("GET", sandbox.path("pods", "p", "log"))
    assert answer.body == line + b"\n\xff\xfe\n"
    timed = await sandbox.call("GET", sandbox.path("pods", "p", "log"), timestamps="true", tailLines="2")
    assert timed.body == MOMENT.encode() + b" " + line + b"\n" + MOMENT.encode() + b" \xff\xfe\n"


async def test_a_log_begins_where_it_is_asked_to(sandbox: Api, container: Container) -> None:
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


Line = tuple[bytes, int]
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
def test_any_log_is_read_back_and_cut_by_lines(
    lines: list[list[bytes]], unfinished: bool, block: int, tail: int
) -> None:
    text = file_of(lines, unfinished=unfinished)
    wanted = [b"".join(parts) + b"\n" for parts in lines]
    if wanted and unfinished:
        wanted[-1] = wanted[-1][:-1]
    usual = log_file.BLOCK_BYTES
    log_file.BLOCK_BYTES = block
    try:
        file = BytesIO(text)
        file.seek(tail_offset(file, tail))
        reader = LogFile(file)
        found = b""
        while (part := reader.read()) is not None:
            found += part
    finally:
        log_file.BLOCK_BYTES = usual
    assert found == b"".join(wanted[len(wanted) - tail :] if tail < len(wanted) else wanted)


@given(text=st.binary(max_size=300))
def test_a_file_that_is_no_log_breaks_nothing(text: bytes) -> None:
    file = BytesIO(text)
    file.seek(tail_offset(file, 3))
    reader = LogFile(file, timestamps=True, since="2026")
    while reader.read() is not None:
        pass
