"""Snapshots of nodes and jobs in which the GPUs add up."""

from __future__ import annotations

from k8s.cluster.joiner import NOT_LISTED, Joiner
from k8s.kinds.job_spec import USER_ANNOTATION
from k8s.models import Pod, Reader
from k8s.snapshot import Share
from k8s.status import Status
from tests.support.objects import (
    GPU,
    batch_job,
    join,
    join_again,
    joined,
    listed,
    node,
    pod_of,
    pytorch_job,
    read_jobs,
    recorded,
)

MIG = "nvidia.com/mig-1g.10gb"


def test_recorded_nodes_have_the_expected_status_and_gpu_shares() -> None:
    nodes, _ = joined(recorded("nodes"), recorded("pods"), recorded("pytorchjobs"))
    assert {name: (row.status, dict(row.resources)) for name, row in nodes.items()} == {
        "gpu-node-0": ("Ready", {GPU: Share(8, 8, 0)}),
        "gpu-node-1": ("NotReady", {GPU: Share(7, 7, 1)}),
        "gpu-node-2": ("NotReady, cordoned", {MIG: Share(14, 0, 0, cards=2)}),
    }
    assert nodes["gpu-node-1"].gpu_model == "NVIDIA-H100-80GB-HBM3"


def test_recorded_jobs_have_the_expected_status_gpus_and_reason() -> None:
    cases: list[tuple[str, int, int, Status, str]] = [
        ("done", 1, 0, Status.SUCCEEDED, ""),
        ("fails", 1, 0, Status.FAILED, "master-0 exit 1, 18:36:07"),
        ("restarts", 1, 1, Status.RESTARTING, "exit 137 (SIGKILL), restarted 4 times"),
        ("running", 2, 2, Status.RUNNING, ""),
        ("too-big", 16, 0, Status.PENDING, "Insufficient nvidia.com/gpu"),
        ("waits", 12, 8, Status.PENDING, "half-allocated: 2 of 3 pods hold 8 GPUs; worker-1 not scheduled"),
        ("pytorch-dist", 3, 2, Status.PENDING, "half-allocated: 2 of 3 pods hold 2 GPUs"),
        ("pytorch-dist-git", 2, 2, Status.UNKNOWN, "master-0: its node gpu-node-1 does not answer"),
    ]
    _, jobs = joined(recorded("nodes"), recorded("pods"), recorded("pytorchjobs"))
    assert set(jobs) == {name for name, *_ in cases}
    for name, requested, allocated, status, words in cases:
        job = jobs[name]
        assert (job.gpus_requested, job.gpus_allocated, job.status) == (requested, allocated, status)
        assert words in job.reason


def test_instances_of_a_recorded_job_are_matched_by_older_operator_labels() -> None:
    _, jobs = joined(recorded("nodes"), recorded("pods"), recorded("pytorchjobs"))
    instances = jobs["waits"].instances
    assert [(each.name, each.node, each.is_chief) for each in instances] == [
        ("master-0", "gpu-node-0", True),
        ("worker-0", "gpu-node-1", False),
        ("worker-1", "", False),
    ]
    assert jobs["waits"].nodes == ("gpu-node-0", "gpu-node-1")
    assert jobs["restarts"].instances[0].restarts > 0


def test_a_job_without_pods_requests_the_gpus_of_its_spec() -> None:
    _, jobs = joined([], [], [pytorch_job("bert", workers=4, gpus=8)])
    job = jobs["bert"]
    assert (job.gpus_requested, job.gpus_allocated, job.status) == (32, 0, Status.PENDING)
    assert [each.reason for each in job.instances] == ["no pod yet"] * 4


def test_a_pod_removed_when_its_job_ended_is_not_shown_as_pending() -> None:
    ended = [{"type": "Succeeded", "status": "True", "lastTransitionTime": "2026-11-21T12:00:00Z"}]
    bert = pytorch_job("bert", workers=2) | {"status": {"conditions": ended}}
    _, jobs = joined([node("a")], [pod_of(bert, "master-0", on="a", phase="Succeeded")], [bert])
    master, worker = jobs["bert"].instances
    states = master.status, worker.status, worker.reason
    assert states == (Status.SUCCEEDED, Status.SUCCEEDED, "its pod was removed")
    ended[0]["type"] = "Failed"
    _, jobs = joined([node("a")], [], [bert])
    assert [(each.status, each.reason) for each in jobs["bert"].instances] == [
        (Status.UNKNOWN, "its pod is gone")
    ] * 2


def test_pods_that_ended_well_wait_for_no_gpus() -> None:
    cases: list[tuple[tuple[str, str], tuple[int, ...]]] = [
        (("Running", "Succeeded"), (16, 8, 0)),
        (("Running", "Pending"), (16, 8, 8)),
        (("Succeeded", "Succeeded"), (16, 0, 0)),
        (("Running", "Failed"), (16, 8, 8)),  # it restarts: the pod comes back
    ]
    for phases, counts in cases:
        bert = pytorch_job("bert", workers=2)
        pods = [
            pod_of(bert, name, on="" if phase == "Pending" else "a", phase=phase)
            for name, phase in zip(("master-0", "worker-0"), phases, strict=True)
        ]
        job = joined([node("a", 16)], pods, [bert])[1]["bert"]
        assert (job.gpus_requested, job.gpus_allocated, job.gpus_waiting) == counts


def test_a_recreated_pod_with_its_old_name_takes_the_place_of_the_old_one() -> None:
    bert = pytorch_job("bert")
    old = pod_of(bert, "master-0", phase="Failed", uid="old")
    new = pod_of(bert, "master-0", on="n1", uid="new")
    old["metadata"]["creationTimestamp"] = "2026-11-20T18:00:00Z"
    new["metadata"]["creationTimestamp"] = "2026-11-20T18:10:00Z"
    for pods in ([old, new], [new, old]):
        nodes, jobs = joined([node("n1")], pods, [bert])
        assert [each.pod_uid for each in jobs["bert"].instances] == ["new"]
        assert jobs["bert"].status is Status.RUNNING
        assert nodes["n1"].gpus_allocated == 8


def test_a_pod_of_a_deleted_job_is_not_given_to_the_next_job_of_that_name() -> None:
    earlier, now = pytorch_job("bert", uid="first"), pytorch_job("bert", uid="second")
    nodes, jobs = joined([node("n1")], [pod_of(earlier, "master-0", on="n1")], [now])
    assert jobs["bert"].gpus_allocated == 0
    assert jobs["bert"].instances[0].pod == ""
    assert [(each.pod, each.job, each.gpus) for each in nodes["n1"].holders] == [("bert-master-0", "bert", 8)]


def test_jobs_of_one_name_in_two_namespaces_keep_their_own_pods() -> None:
    here, there = pytorch_job("bert", uid="here"), pytorch_job("bert", uid="there", namespace="other")
    pods = Reader[Pod](Pod).read_list(listed(pod_of(there, "master-0", on="n1")))[1]
    _, jobs = join([], pods, read_jobs(here, there))
    assert {job.ref.namespace: job.gpus_allocated for job in jobs} == {"default": 0, "other": 8}


def test_a_job_without_a_master_has_worker_0_as_chief() -> None:
    bert = pytorch_job("bert", workers=3)
    del bert["spec"]["pytorchReplicaSpecs"]["Master"]
    _, jobs = joined([], [pod_of(bert, "worker-1", on="n1")], [bert])
    job = jobs["bert"]
    assert [(each.name, each.is_chief) for each in job.instances] == [("worker-0", True), ("worker-1", False)]
    assert job.instances[1].node == "n1"


def test_mig_slices_are_counted_separately_from_whole_gpus() -> None:
    mixed = node("n1", gpus=4)
    mixed["status"]["allocatable"][MIG] = "7"
    mixed["status"]["capacity"][MIG] = "7"
    bert = pytorch_job("bert")
    pod = pod_of(bert, "master-0", on="n1")
    pod["spec"]["containers"][0]["resources"]["limits"] = {MIG: "3"}
    nodes, jobs = joined([mixed], [pod], [bert])
    assert dict(nodes["n1"].resources) == {GPU: Share(4, 0, 0), MIG: Share(7, 3, 0, cards=1)}
    assert jobs["bert"].gpus_allocated == 3


def test_a_node_without_accelerators_has_no_shares() -> None:
    nodes, _ = joined([node("cpu-1", gpus=0)], [], [])
    assert dict(nodes["cpu-1"].resources) == {}


def test_gpus_of_a_pod_on_an_unlisted_node_are_counted_on_that_node() -> None:
    bert = pytorch_job("bert")
    nodes, jobs = joined([], [pod_of(bert, "master-0", on="gone")], [bert])
    row = nodes["gone"]
    assert (row.status, row.gpus_total, row.gpus_allocated) == (NOT_LISTED, 0, 8)
    assert jobs["bert"].gpus_allocated == 8


def test_simulated_gpus_are_marked() -> None:
    simulated = node("n1")
    simulated["metadata"]["labels"] = {"gpuconsole.dev/simulated": "true"}
    nodes, _ = joined([simulated, node("n2")], [], [])
    assert nodes["n1"].is_simulated
    assert not nodes["n2"].is_simulated


def test_a_job_of_128_pods_has_128_places_in_order() -> None:
    bert = pytorch_job("bert", workers=128, gpus=8)
    pods = [pod_of(bert, "master-0", on="n0")]
    pods += [pod_of(bert, f"worker-{index}", on=f"n{index + 1}") for index in reversed(range(127))]
    _, jobs = joined([node(f"n{index}") for index in range(128)], pods, [bert])
    job = jobs["bert"]
    assert [each.name for each in job.instances] == ["master-0", *(f"worker-{i}" for i in range(127))]
    assert (job.gpus_requested, job.gpus_allocated, job.instances_running) == (1024, 1024, 128)
    assert [rank for each in job.instances for rank in each.ranks] == list(range(1024))
    assert job.ranks_total == 1024


def test_names_that_look_like_markup_are_not_changed() -> None:
    odd = pytorch_job("[/b]bold")
    nodes, jobs = joined([node("[red]n")], [pod_of(odd, "master-0", on="[red]n")], [odd])
    assert jobs["[/b]bold"].instances[0].pod == "[/b]bold-master-0"
    assert nodes["[red]n"].holders[0].job == "[/b]bold"


def test_a_surplus_pod_of_a_job_is_shown_and_its_gpus_are_counted() -> None:
    bert = pytorch_job("bert", workers=2, gpus=8)
    pods = [pod_of(bert, place, on="n1") for place in ("master-0", "worker-0", "worker-1")]
    _, jobs = joined([], pods, [bert])
    job = jobs["bert"]
    assert (job.gpus_requested, job.gpus_allocated) == (16, 24)
    assert sum(each.gpus for each in job.instances) == 24


def test_a_plain_jobs_retry_is_shown_and_not_the_pod_that_failed_before() -> None:
    sweep = batch_job("sweep", pods=2)
    pods = [
        pod_of(sweep, "aaaaa", on="n1", gpus=1, uid="first"),
        pod_of(sweep, "bbbbb", on="n1", gpus=1, phase="Failed", uid="failed"),
        pod_of(sweep, "ccccc", on="n1", gpus=1, uid="again"),
    ]
    for minute, pod in enumerate(pods):
        pod["metadata"]["creationTimestamp"] = f"2026-11-20T18:0{minute}:00Z"
    for order in (pods, pods[::-1]):
        _, jobs = joined([], order, [sweep])
        job = jobs["sweep"]
        assert {each.pod_uid for each in job.instances} == {"first", "again"}
        assert (job.status, job.gpus_allocated) == (Status.RUNNING, 2)


def test_an_indexed_jobs_retry_takes_its_index() -> None:
    sweep = batch_job("sweep", pods=2, indexed=True)
    failed = pod_of(sweep, "1", phase="Failed", uid="failed")
    again = pod_of(sweep, "1", on="n1", uid="again")
    failed["metadata"]["creationTimestamp"] = "2026-11-20T18:00:00Z"
    again["metadata"]["creationTimestamp"] = "2026-11-20T18:01:00Z"
    _, jobs = joined([], [again, failed, pod_of(sweep, "0", on="n1")], [sweep])
    assert [each.pod_uid for each in jobs["sweep"].instances] == ["pod-sweep-0", "again"]
    assert jobs["sweep"].status is Status.RUNNING


def test_a_job_that_waits_in_a_queue_is_queued() -> None:
    bert = pytorch_job("bert", labels={"kueue.x-k8s.io/queue-name": "research"})
    bert["spec"]["runPolicy"] = {"suspend": True}
    _, jobs = joined([], [], [bert])
    assert (jobs["bert"].status, jobs["bert"].reason) == (Status.QUEUED, "waits in queue research")


def test_gpus_of_a_foreign_pod_are_held_under_the_name_of_its_owner() -> None:
    pod = pod_of(pytorch_job("x"), "master-0", on="n1")
    pod["metadata"]["labels"] = {}
    pod["metadata"]["ownerReferences"][0] |= {"kind": "StatefulSet", "name": "notebook", "uid": "set"}
    nodes, jobs = joined([node("n1")], [pod], [])
    assert [(each.job, each.gpus) for each in nodes["n1"].holders] == [("notebook", 8)]
    row = jobs["notebook"]
    assert (row.ref.kind, row.uid, row.status) == ("StatefulSet", "set", Status.RUNNING)
    assert (row.gpus_requested, row.gpus_allocated, len(row.instances)) == (8, 8, 1)


def test_jobs_are_sorted_newest_first() -> None:
    old = pytorch_job("old", creationTimestamp="2026-11-20T18:00:00Z")
    new = pytorch_job("new", creationTimestamp="2026-11-20T19:00:00Z")
    _, jobs = joined([], [], [old, new])
    assert list(jobs) == ["new", "old"]


def test_pods_that_outlive_their_deleted_job_keep_its_user() -> None:
    bert = pytorch_job("bert", annotations={USER_ANNOTATION: "li"})
    pods = Reader[Pod](Pod).read_list(listed(pod_of(bert, "master-0", on="n1")))[1]
    joiner, declared = Joiner(), read_jobs(bert)
    for jobs in (declared, []):
        assert [job.user for job in join_again(joiner, [], pods, jobs)[1]] == ["li"]


def test_a_negative_gpu_count_is_treated_as_zero() -> None:
    cases: list[str] = ["-5", "-1", "0"]
    for gpus in cases:
        bert = pytorch_job("bert", gpus=1)
        limits = bert["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0][
            "resources"
        ]["limits"]
        limits[GPU] = gpus
        nodes, jobs = joined([node("a")], [pod_of(bert, "master-0", on="a", gpus=-5)], [bert])
        amounts = jobs["bert"].gpus_requested, jobs["bert"].gpus_allocated, nodes["a"].gpus_allocated
        assert amounts == (0, 0, 0)
