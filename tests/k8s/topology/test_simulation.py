"""The simulation of `make bench`: its jobs are called made up, and links are never the worse for it."""

from __future__ import annotations

import pytest

from tests.bench.topology import ARRIVALS, CLUSTERS, by_topology, first_fit, measure, read_arrivals, simulate


def test_the_arrivals_say_where_they_are_from() -> None:
    assert ARRIVALS.read_text().startswith("# Made up, not recorded on any cluster:")
    found = read_arrivals()
    assert len(found) == 400
    assert [each.at_min for each in found] == sorted(each.at_min for each in found)
    assert {each.gpus for each in found} == {1, 2, 3, 4, 8}


@pytest.mark.parametrize("title", CLUSTERS)
def test_jobs_placed_by_topology_are_linked_no_worse_than_by_first_fit(title: str) -> None:
    arrivals = read_arrivals()[:120]
    plain, aware = (simulate(arrivals, CLUSTERS[title], choose) for choose in (first_fit, by_topology))
    assert len(plain.sets) == len(aware.sets) == sum(each.gpus > 1 for each in arrivals)
    assert [len(each.gpus) for each in aware.sets] == [each.gpus for each in arrivals if each.gpus > 1]
    assert aware.bottleneck >= plain.bottleneck
    if "H100" in title:
        assert aware.bottleneck == plain.bottleneck
    if "DGX-1V" in title or "PCIe server," in title:
        assert aware.bottleneck > 1.2 * plain.bottleneck


def test_the_table_has_a_line_for_each_cluster() -> None:
    lines = list(measure())
    assert lines[0].startswith("400 made-up jobs;")
    assert [title for title in CLUSTERS if not any(line.startswith(title) for line in lines)] == []
