"""Logs of pods that their controller deletes as soon as they end, of a killed API server and of a kubelet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from k8s.client.client import Client
from k8s.logs import LogLine, Options, Target
from k8s.logs.read import read
from k8s.logs.tail import read_tail
from k8s.models.resources import JOBS, PODS
from k8s.text.errors import ServerFailed
from tests.real_cluster import operator_objects
from tests.support import real_cluster
from tui.runs.journal.kept_logs import KeptLogs
from tui.runs.store import RunStore
from tui.session.session import Session
from tui.settings.options import ConsoleOptions
from tui.tables.filters import own_names

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(240)]
LINES = 300
WHOLE = [*(f"line {number}" for number in range(1, LINES + 1)), "step 1 loss 0.5", "end"]


@asynccontextmanager
async def recording(
    client: Client, folder: Path, losses: dict[str, Sequence[float]] | None = None
) -> AsyncIterator[RunStore]:
    """Record as the console does; the losses that are read come into `losses`."""
    store = RunStore(folder)
    options = ConsoleOptions(namespace=client.config.namespace, state_folder=folder)
    session = Session(client, options, store)
    session.life.losses = losses if losses is not None else {}
    recorder = session.open_recorder("record")
    running = [session.mirror.run(recorder.update), session.open_life().run(), recorder.run()]
    tasks = [asyncio.create_task(each) for each in running]
    await recorder.caught_up.wait()
    yield store
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await session.close()


async def until(is_so: Callable[[], Awaitable[object]]) -> None:
    while not await is_so():
        await asyncio.sleep(0.05)


async def make_job(client: Client, name: str, wait: str, folder: Path) -> None:
    """Create a job of two pods, which print numbered lines, wait, and print an end.

    At the end each makes a file with its name in `folder` of this machine.
    """
    count = f"i=0; while [ $i -lt {LINES} ]; do i=$((i+1)); echo line $i; done; echo {WHOLE[-2]}"
    pod = operator_objects.pod_spec("main", 1, f"{{ {count}; {wait}; echo end; touch {folder}/$HOSTNAME; }}")
    pod["volumes"] = [{"name": "shared", "hostPath": {"path": str(folder), "type": "DirectoryOrCreate"}}]
    pod["containers"][0]["volumeMounts"] = [{"name": "shared", "mountPath": str(folder)}]
    user = {"arena.kubeflow.org/username": sorted(own_names(client.config.acting_user))[0]}
    spec = {
        "parallelism": 2,
        "completions": 2,
        "backoffLimit": 0,
        "template": {"spec": pod},
    }
    await operator_objects.make(client, JOBS, name, spec, annotations=user)


async def pods_of(client: Client, name: str) -> list[dict[str, Any]]:
    return await client.list(PODS, client.config.namespace, label_selector=f"job-name={name}")


async def statuses(client: Client, name: str) -> list[str]:
    return [str(each["status"].get("phase")) for each in await pods_of(client, name)]


async def have_started(client: Client, name: str) -> bool:
    return await statuses(client, name) == ["Running"] * 2


async def kept_of(store: RunStore, name: str) -> KeptLogs:
    async def is_kept() -> bool:
        return any(each.name == name and each.has_ended for each in store.records())

    await until(is_kept)
    record = next(each for each in store.records() if each.name == name)
    return KeptLogs(store.journal, record)


def printed(kept: KeptLogs) -> list[list[str]]:
    return [text.splitlines()[1:] for text in kept.texts()]


def assert_whole_or_marked(kept: KeptLogs) -> None:
    assert len(printed(kept)) == 2
    for lines in printed(kept):
        first = WHOLE.index(lines[0]) if lines else 0
        assert lines == WHOLE or (kept.is_partial and lines == WHOLE[first : first + len(lines)])


def states(store: RunStore, name: str) -> list[str]:
    query = "SELECT status FROM changes JOIN jobs ON jobs.id = job WHERE name = ? ORDER BY changes.id"
    return [status for (status,) in store.journal.rows(query, name)]


async def until_recorded(store: RunStore, name: str, state: str) -> None:
    async def is_last() -> bool:
        return states(store, name)[-1:] == [state]

    await until(is_last)


async def assert_kept_whole(store: RunStore, name: str) -> None:
    record = (await kept_of(store, name)).record

    async def are_both() -> bool:
        return len(printed(KeptLogs(store.journal, record))) == 2

    await until(are_both)
    kept = KeptLogs(store.journal, record)
    assert printed(kept) == [WHOLE, WHOLE] and not kept.is_partial
    await until_recorded(store, name, "Succeeded")


async def test_logs_of_pods_that_go_as_they_end_are_kept_or_the_gap_is_marked(
    admin: Client, tmp_path: Path
) -> None:
    async with recording(admin, tmp_path) as store:
        await make_job(admin, "short", "sleep 2", tmp_path / "ends")

        async def have_ended() -> bool:
            found = await statuses(admin, "short")
            return len(found) == 2 and set(found) <= {"Failed", "Succeeded"}

        await until(have_ended)
        await admin.delete(JOBS, "short", admin.config.namespace)
        kept = await kept_of(store, "short")
    assert_whole_or_marked(kept)


async def test_logs_of_a_job_that_ends_while_the_api_server_is_dead_are_kept_whole(
    admin: Client, kubeconfig: Path, tmp_path: Path
) -> None:
    async with recording(admin, tmp_path) as store:
        await make_job(admin, "long", "sleep 5", tmp_path / "ends")
        await until(lambda: have_started(admin, "long"))
        real_cluster.kill(kubeconfig, "apiserver")
        await asyncio.to_thread(real_cluster.start)
        await assert_kept_whole(store, "long")


@pytest.fixture
def kubelet(kubeconfig: Path) -> Iterator[Callable[[Client, str], Awaitable[None]]]:
    """Kill the kubelet, until logs can no longer be read; it is back for the next test."""

    async def kill(client: Client, pod: str) -> None:
        real_cluster.kill(kubeconfig, "kubelet")

        async def is_unreadable() -> bool:
            try:
                await read_tail(client, Target(client.config.namespace, pod), 1)
            except ServerFailed:
                return True
            return False

        await until(is_unreadable)

    yield kill
    real_cluster.start()


async def test_logs_of_a_job_that_ends_while_its_kubelet_is_dead_are_kept_whole(
    admin: Client, kubelet: Callable[[Client, str], Awaitable[None]], tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    async with recording(admin, tmp_path) as store:
        await make_job(admin, "gated", f"until [ -e {gate}/open ]; do sleep 0.1; done", gate)

        await until(lambda: have_started(admin, "gated"))
        await until_recorded(store, "gated", "Running")
        names = {str(each["metadata"]["name"]) for each in await pods_of(admin, "gated")}
        await kubelet(admin, min(names))
        (gate / "open").touch()

        async def have_ended() -> bool:
            return names <= {each.name for each in gate.iterdir()}

        await until(have_ended)
        assert states(store, "gated")[-1] == "Running"
        await asyncio.to_thread(real_cluster.start)
        await assert_kept_whole(store, "gated")


async def test_logs_of_pods_that_are_deleted_while_their_kubelet_is_dead_are_marked_as_partial(
    admin: Client, kubelet: Callable[[Client, str], Awaitable[None]], tmp_path: Path
) -> None:
    losses: dict[str, Sequence[float]] = {}
    async with recording(admin, tmp_path, losses) as store:
        await make_job(admin, "lost", "sleep 600", tmp_path / "ends")

        async def is_read() -> bool:
            return bool(losses)

        await until(is_read)
        names = [str(each["metadata"]["name"]) for each in await pods_of(admin, "lost")]
        await kubelet(admin, names[0])
        await admin.delete(JOBS, "lost", admin.config.namespace)
        for name in names:
            await admin.delete(PODS, name, admin.config.namespace, grace_period_s=0)
        kept = await kept_of(store, "lost")
        assert_whole_or_marked(kept)
        assert kept.is_partial
        await until_recorded(store, "lost", "Deleted")


async def test_a_log_whose_kubelet_dies_while_it_is_read_is_never_short_and_whole(
    admin: Client, kubelet: Callable[[Client, str], Awaitable[None]]
) -> None:
    lines = 300_000
    command = f"seq 1000000 {1_000_000 + lines - 1}"
    await operator_objects.make(admin, PODS, "large", operator_objects.pod_spec("main", 0, command))

    async def has_ended() -> bool:
        found = await admin.get(PODS, "large", admin.config.namespace)
        return bool(found["status"]["phase"] == "Succeeded")

    await until(has_ended)
    printed_bytes = 0
    try:
        async with aclosing(
            read(admin, [Target(admin.config.namespace, "large")], Options(raw=True))
        ) as batches:
            async for batch in batches:
                if not printed_bytes:
                    await kubelet(admin, "large")
                printed_bytes += sum(len(each.raw) for each in batch if isinstance(each, LogLine))
    except ServerFailed as error:
        assert "connection refused" in error.why
    else:
        assert printed_bytes == 8 * lines
