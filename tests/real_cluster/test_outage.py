"""The API server of a real cluster dies and comes back while the console is open."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from k8s.client.client import Client
from k8s.models.resources import PODS
from tests.real_cluster import operator_objects
from tests.support import real_cluster
from tui.app import Console
from tui.settings.options import ConsoleOptions
from tui.widgets.table.table import Table

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(480)]
PATIENCE = 1200  # tenths of a second


async def test_rows_survive_an_outage(admin: Client, kubeconfig: Path, tmp_path: Path) -> None:
    await operator_objects.make(admin, PODS, "before", operator_objects.pod_spec("main", 1))
    options = ConsoleOptions(
        kubeconfig=str(kubeconfig), namespace=admin.config.namespace, state_folder=tmp_path / "state"
    )
    console = Console(options)
    async with console.run_test(size=(100, 30)) as pilot:

        async def until(is_so: object) -> None:
            assert callable(is_so)
            for _ in range(PATIENCE):
                if is_so():
                    return
                await pilot.pause(0.1)
            raise AssertionError(f"never came true: {console.snapshot}")

        def names() -> list[str]:
            return [job.ref.name for job in console.snapshot.jobs]

        await until(lambda: names() == ["before"] and console.snapshot.is_synced)
        await until(lambda: console.screen.query_one(Table).row_count == 1)
        real_cluster.kill(kubeconfig, "apiserver")
        try:
            await until(lambda: console.snapshot.stale)
            assert names() == ["before"]
            assert console.screen.query_one(Table).row_count == 1
            assert "away" in str(console.screen.query_one("StatusLine").render())
            await pilot.press("tab")
            await pilot.press("tab")
            assert console.is_running
        finally:
            await asyncio.to_thread(real_cluster.start)
        await until(lambda: not console.snapshot.stale)
        await operator_objects.make(admin, PODS, "after", operator_objects.pod_spec("main", 1))
        await until(lambda: sorted(names()) == ["after", "before"])
