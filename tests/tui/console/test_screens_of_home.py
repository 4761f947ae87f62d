"""What home looks like with no node, with few, and with a thousand, in every size, as it was looked at."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.scripted.server import Compute, ScriptedCluster, page
from tests.support.home_clusters import cluster_of
from tests.support.namespace_objects import event
from tests.support.playground import EVENTS, Playground, console_on
from tests.support.sample_cluster import ago
from tests.support.screen_text import compare
from tests.tui.console.test_screens import THEMES, resize, say

SIZES = ((60, 15), (80, 24), (120, 40), (160, 45), (200, 60))
CLUSTERS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "no_nodes": ({"nodes": 0}, ("llm-70b-eval",)),
    "no_jobs": ({"nodes": 2, "has_jobs": False}, ("No jobs",)),
    "2_nodes": ({"nodes": 2}, ("step 300", "loss  0.03", "on gpu-1")),
    "20_nodes": ({"nodes": 20}, ("step 300", "loss  0.03", "on a100-[1-2]")),
    "1000_nodes": ({"nodes": 1000}, ("step 300", "loss  0.03", "on a100-[1-2]")),
}
"""Clusters, and words by which home is known to be filled at 120x40."""

_MADE = ("SuccessfulCreatePod", "Created pod.")


@pytest.mark.slow
@pytest.mark.parametrize("name", CLUSTERS)
async def test_home_looks_as_it_was_accepted_in_every_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("LOGNAME", "li")
    async with home_on(tmp_path, name) as play:
        for size in SIZES:
            text, looks = await resize(play, size)
            parts = {"dark text": text, "dark looks": looks}
            compare(f"home_{name}-{size[0]}x{size[1]}", parts)


@pytest.mark.slow
async def test_home_looks_as_it_was_accepted_in_every_theme(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "li")
    sizes = ((120, 40), (200, 60))
    seen: dict[tuple[int, int], dict[str, str]] = {size: {} for size in sizes}
    async with home_on(tmp_path, "20_nodes") as play:
        for look in ("light", "mono"):
            play.console.theme = THEMES[look]
            for size, parts in seen.items():
                parts[f"{look} text"], parts[f"{look} looks"] = await resize(play, size)
    async with home_on(tmp_path, "20_nodes", is_ascii=True) as play:
        for size, parts in seen.items():
            parts["ascii text"], _ = await resize(play, size)
            assert parts["ascii text"].isascii()
    for size, parts in seen.items():
        compare(f"home_themes-{size[0]}x{size[1]}", parts)


@asynccontextmanager
async def home_on(tmp_path: Path, name: str, **options: Any) -> AsyncIterator[Playground]:
    """Open the console on a cluster, with the cursor on the first job by name."""
    settings, words = CLUSTERS[name]
    shown: dict[str, Any] = {"prepare": say_of_home, "size": (120, 40), **cluster_of(**settings), **options}
    async with console_on(tmp_path, **shown) as play:
        for key in ("N", "g", "3", "t", "2"):  # without the times of lines: they are those of the test
            await play.until(lambda: play.is_filled)
            await play.press(key)
        await play.until(lambda: all(word in play.text for word in words))
        yield play


def say_of_home(cluster: ScriptedCluster) -> None:
    """Give the lab what its jobs print, and each what happened to it alone."""
    say(cluster)
    made = event("1", ("PyTorchJob", "bert-large-ft"), *_MADE, at=ago(hours=2, minutes=15))
    cluster.forget(EVENTS)
    cluster.say(
        EVENTS,
        Compute(
            lambda asked: page([made] if asked.query["fieldSelector"].endswith("=bert-large-ft") else [])
        ),
    )
