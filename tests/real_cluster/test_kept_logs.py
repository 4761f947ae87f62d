"""Logs of pods that their controller deletes as soon as they end, of a killed API server and of a kubelet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from k8s.client.client import Client
from k8s.models.resources import JOBS, PODS
from tests.real_cluster import operator_objects
from tests.support import real_cluster
from tui.runs.journal.kept_logs import KeptLogs
from tui.runs.store import RunStore
from tui.session.session import Session
from tui.settings.options import ConsoleOptions
from tui.tables.filters import own_names

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(480)]
LINES = 300
WHOLE = [*(f"line {number}" for number in range(1, LINES + 1)), "end"]


@asynccontextmanager
async def recording(client: Client, folder: Path) -> AsyncIterator[RunStore]:
    """Record as the console does."""
    store = RunStore(folder)
    options = ConsoleOptions(namespace=client.config.namespace, state_folder=folder)
    session = Session(client, options, store)
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


async def make_job(client: Client, name: str, seconds: int) -> None:
    """Create a job of two pods, which print numbered lines, wait, and print an end."""
    count = f"i=0; while [ $i -lt {LINES} ]; do i=$((i+1)); echo line $i; done"
    command = f"{{ {count}; sleep {seconds}; echo end; }}"
    user = {"arena.kubeflow.org/username": sorted(own_names(client.config.acting_user))[0]}
    spec = {
        "parallelism": 2,
        "completions": 2,
        "backoffLimit": 0,
        "template": {"spec": operator_objects.pod_spec("main", 1, command) | {"restartPolicy": "Never"}},
    }
    await operator_objects.make(client, JOBS, name, spec, annotations=user)


async def pods_of(client: Client, name: str) -> list[dict[str, object]]:
    return await client.list(PODS, client.config.namespace, label_selector=f"job-name={name}")


async def statuses(client: Client, name: str) -> list[str]:
    return [str(each["status"].get("phase")) for each in await pods_of(client, name)]  # type: ignore[attr-defined]


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


async def test_logs_of_pods_that_go_as_they_end_are_kept_or_the_gap_is_marked(
    admin: Client, tmp_path: Path
) -> None:
    async with recording(admin, tmp_path) as store:
        await make_job(admin, "short", 2)

        async def have_ended() -> bool:
            found = await statuses(admin, "short")
            return len(found) == 2 and set(found) <= {"Failed", "Succeeded"}

        await until(have_ended)
        await admin.delete(JOBS, "short", admin.config.namespace)
        kept = await kept_of(store, "short")
    assert printed(kept)
    for lines in printed(kept):
        first = WHOLE.index(lines[0])
        assert lines == WHOLE or (kept.is_partial and lines == WHOLE[first : first + len(lines)])


async def test_logs_of_a_job_that_ends_while_the_api_server_is_dead_are_kept_whole(
    admin: Client, kubeconfig: Path, tmp_path: Path
) -> None:
    async with recording(admin, tmp_path) as store:
        await make_job(admin, "long", 5)
        await until(lambda: have_started(admin, "long"))
        real_cluster.kill_apiserver(kubeconfig)
        await asyncio.to_thread(real_cluster.start)
        kept = await kept_of(store, "long")

        async def are_both() -> bool:
            nonlocal kept
            kept = KeptLogs(store.journal, kept.record)
            return len(printed(kept)) == 2

        await until(are_both)
        assert printed(kept) == [WHOLE, WHOLE] and not kept.is_partial
        query = (
            "SELECT status FROM changes JOIN jobs ON jobs.id = job WHERE name = 'long' ORDER BY changes.id"
        )
        assert store.journal.rows(query)[-1] == ("Succeeded",)
