from __future__ import annotations

from k8s.snapshot import Job, NodeRow
from k8s.telemetry.readings import holders_of, readings_by_rank
from tests.support.gpu_readings import gpu, telemetry
from tests.support.objects import joined, node, pod_of, pytorch_job


def bert(gpus: int = 2, node_gpus: int = 8) -> tuple[Job, list[NodeRow]]:
    job = pytorch_job("bert", workers=2, gpus=gpus)
    pods = [pod_of(job, "master-0", on="n1", gpus=gpus), pod_of(job, "worker-0", on="n2", gpus=gpus)]
    nodes, jobs = joined([node("n1", node_gpus), node("n2", node_gpus)], pods, [job])
    return jobs["bert"], list(nodes.values())


def test_each_rank_has_the_gpu_of_its_pod_by_the_order_of_their_numbers() -> None:
    job, _ = bert()
    read = telemetry(
        gpu(5, node="n1", pod="bert-master-0"),
        gpu(7, node="n1", pod="bert-master-0"),
        gpu(6, node="n1", pod="other"),
        gpu(0, node="n2", pod="bert-worker-0"),
        gpu(1, node="n2", pod="bert-worker-0"),
    )
    lines = readings_by_rank(job, read)
    assert [(line.rank, line.gpu and (line.gpu.node, line.gpu.index)) for line in lines] == [
        (0, ("n1", 5)),
        (1, ("n1", 7)),
        (2, ("n2", 0)),
        (3, ("n2", 1)),
    ]
    assert not any(line.is_assumed for line in lines)


def test_ranks_without_readings_are_listed_without_a_gpu() -> None:
    job, _ = bert()
    lines = readings_by_rank(job, telemetry(gpu(0, node="n1", pod="bert-master-0")))
    assert [(line.rank, line.gpu is None) for line in lines] == [(None, False), (2, True), (3, True)]


def test_a_pod_with_the_same_name_in_another_namespace_does_not_match_the_job() -> None:
    job, _ = bert()
    foreign = gpu(0, node="n1", pod="bert-master-0")
    foreign = gpu(0, node="n1", holders=(foreign.holders[0]._replace(namespace="elsewhere"),))
    assert all(line.gpu is None for line in readings_by_rank(job, telemetry(foreign)))


def test_where_the_source_names_no_pod_a_pod_that_holds_the_whole_node_has_its_gpus() -> None:
    job, nodes = bert(gpus=2, node_gpus=2)
    read = telemetry(*(gpu(index, node=name) for name in ("n1", "n2") for index in (0, 1)))
    lines = readings_by_rank(job, read, nodes)
    assert [line.rank for line in lines] == [0, 1, 2, 3]
    assert all(line.gpu and line.is_assumed for line in lines)


def test_where_the_source_names_no_pod_nothing_is_claimed_of_half_a_node() -> None:
    job, nodes = bert(gpus=2, node_gpus=8)
    assert holders_of(gpu(0, node="n1"), nodes) == ()
    assert all(line.gpu is None for line in readings_by_rank(job, telemetry(gpu(0, node="n1")), nodes))
