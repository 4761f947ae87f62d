"""How a job's GPUs would be linked: known where it is told which are free, else what holds for any."""

from __future__ import annotations

from dataclasses import replace

import pytest

from k8s.scheduling.gpu_fit import best_sets, free_gpus, link_fit
from k8s.snapshot import Holder, NodeRow, Share
from k8s.topology.machines import MACHINES
from tests.support.objects import GPU

V100, H100, PCIE = (MACHINES[name].matrix() for name in ("dgx-1v", "dgx-h100", "pcie"))


def row(*holders: tuple[int, tuple[int, ...]], unhealthy: int = 0) -> NodeRow:
    """Return a node with eight GPUs, of which pods hold so many, and which if that is told."""
    held = tuple(
        Holder("default", f"p{at}", "bert", gpus, {GPU: gpus}, devices=devices)
        for at, (gpus, devices) in enumerate(holders)
    )
    share = Share(8, sum(gpus for gpus, _ in holders), unhealthy)
    return NodeRow("a", "", (), "Ready", False, "", {GPU: share}, held, None)


@pytest.mark.parametrize(
    ("node", "free"),
    [
        (row(), tuple(range(8))),
        (row((2, (0, 3)), (1, (7,))), (1, 2, 4, 5, 6)),
        (row((2, ())), None),
        (row((2, (0,))), None),
        (row(unhealthy=1), None),
        (replace(row((1, (0,))), resources={GPU: Share(8, 3, 0)}), None),
        (replace(row(), mode="share"), None),
    ],
)
def test_free_gpus_are_named_only_where_all_held_ones_are(
    node: NodeRow, free: tuple[int, ...] | None
) -> None:
    assert free_gpus(node, V100) == free


def test_where_it_is_told_which_are_free_the_best_of_them_is_meant() -> None:
    fit = link_fit(row((4, (0, 1, 2, 3))), V100, 4)
    assert fit is not None
    assert (fit.best.gpus, fit.is_nvlink, fit.is_pcie) == ((4, 5, 6, 7), True, False)
    fit = link_fit(row((4, (1, 3, 5, 7))), V100, 4)
    assert fit is not None
    assert (fit.best.gpus, fit.is_nvlink, fit.is_pcie) == ((0, 2, 4, 6), False, True)


def test_where_it_is_not_told_only_what_holds_for_any_is_said() -> None:
    fit = link_fit(row((4, ())), V100, 4)
    assert fit is not None
    assert (fit.worst.link, fit.best.link, fit.is_nvlink, fit.is_pcie) == ("SYS", "NV1", False, False)
    fit = link_fit(row((4, ())), H100, 4)
    assert fit is not None and fit.is_nvlink
    fit = link_fit(row((4, ())), PCIE, 4)
    assert fit is not None and fit.is_pcie


def test_a_single_gpu_has_no_link_and_more_than_are_free_do_not_fit() -> None:
    fit = link_fit(row((4, ())), V100, 1)
    assert fit is not None
    assert (fit.best.link, fit.is_nvlink, fit.is_pcie) == ("", False, False)
    assert link_fit(row((4, ())), V100, 5) is None
    assert link_fit(replace(row(), status="Ready, cordoned"), V100, 2) is None
    assert link_fit(replace(row(), mode="mig"), V100, 2) is None
    assert best_sets(replace(row(), mode="mig"), V100) == []


def test_the_best_sets_of_what_is_free() -> None:
    assert [each.gpus for each in best_sets(row((4, (0, 1, 2, 3))), V100)] == [(4, 7), (4, 5, 6, 7)]
    assert [len(each.gpus) for each in best_sets(row((2, ())), V100)] == [2, 4, 8]
