"""The processes of a container, for any snapshot of /proc."""

from __future__ import annotations

import pytest

from k8s.sandbox.node.process_tree import ProcessStat, trees


@pytest.mark.parametrize(
    ("parents", "roots", "found"),
    [
        ({10: 1, 11: 10, 12: 11, 20: 1, 21: 20}, [10, 20], {10: {10, 11, 12}, 20: {20, 21}}),
        ({10: 1, 11: 10, 12: 11}, [10, 11], {10: {10}, 11: {11, 12}}),
        ({11: 10, 12: 1}, [10], {10: {11}}),
        ({10: 1, 11: 12, 12: 11}, [10], {10: {10}}),
        ({10: 1}, [], {}),
    ],
    ids=["apart", "nested", "gone", "ring of reused ids", "none"],
)
def test_each_process_belongs_to_the_nearest_root_above_it(
    parents: dict[int, int], roots: list[int], found: dict[int, set[int]]
) -> None:
    processes = {pid: ProcessStat(parent, 0.0) for pid, parent in parents.items()}
    assert trees(roots, processes) == found
