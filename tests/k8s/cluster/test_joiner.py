"""Properties of every join: the GPUs add up, and what did not change stays the same value."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from k8s.cluster.job_builder import RankEvidence
from k8s.cluster.joiner import NOT_LISTED, Joiner, cooperatively
from k8s.kinds import DeclaredJob, JobRef, Replica
from k8s.models import (
    Condition,
    Container,
    Meta,
    Node,
    NodeStatus,
    OwnerReference,
    Pod,
    PodSpec,
    PodStatus,
    Reader,
    Resources,
)
from k8s.snapshot import Job, NodeRow
from k8s.status import BEING_READ
from tests.support.objects import GPU, elastic_job, join, join_again, listed, pod_of, pytorch_job, read_jobs

MADE = datetime(2026, 11, 20, tzinfo=UTC)
KINDS = (("PyTorchJob", "kubeflow.org/v1"), ("Job", "batch/v1"), ("JobSet", "jobset.x-k8s.io/v1alpha2"))
JOBS = ("j0", "j1", "j2", "j3")
OTHERS = ("o0", "o1", "o2")
NODES = ("n0", "n1", "n2")
MIG, MEMORY = "nvidia.com/mig-1g.10gb", "aliyun.com/gpu-mem"


def reference(uid: str, kind: str = "Deployment", api_version: str = "apps/v1") -> OwnerReference:
    return OwnerReference(kind, f"name-of-{uid}", uid, api_version, True)


minutes = st.one_of(st.none(), st.integers(0, 3).map(lambda number: MADE + timedelta(minutes=number)))
controllers = st.one_of(st.none(), st.sampled_from((*JOBS, *OTHERS)))


@st.composite
def pods(draw: st.DrawFn) -> Pod:
    uid = draw(controllers)
    kind = draw(st.sampled_from(("PyTorchJob", "Job", "ReplicaSet", "Node")))
    labels = draw(
        st.one_of(
            st.none(),
            st.fixed_dictionaries(
                {
                    "training.kubeflow.org/job-name": st.sampled_from([f"name-of-{job}" for job in JOBS]),
                    "training.kubeflow.org/operator-name": st.just("pytorchjob-controller"),
                    "training.kubeflow.org/replica-type": st.just("worker"),
                    "training.kubeflow.org/replica-index": st.sampled_from(("0", "1", "7")),
                }
            ),
        )
    )
    resource = draw(st.sampled_from((GPU, GPU, MIG, MEMORY, "cpu")))
    container = Container("main", resources=Resources(limits={resource: draw(st.integers(0, 8))}))
    return Pod(
        Meta(
            draw(st.sampled_from(("a", "b", "c"))),
            draw(st.sampled_from(("here", "here", "there"))),
            labels=labels,
            owner_references=[reference(uid, kind)] if uid else None,
            creation_timestamp=draw(minutes),
        ),
        PodSpec(draw(st.sampled_from(("", *NODES, "gone"))), [container]),
        PodStatus(draw(st.sampled_from(("Pending", "Running", "Running", "Succeeded", "Failed")))),
    )


@st.composite
def jobs(draw: st.DrawFn) -> DeclaredJob:
    kind, api_version = draw(st.sampled_from(KINDS))
    owner = draw(controllers)
    template = {"spec": {"containers": [{"resources": {"limits": {GPU: draw(st.integers(0, 4))}}}]}}
    role = draw(st.sampled_from(("worker", "pod")))
    replicas = tuple(
        Replica("", role, index, index == 0, (), "none", template, "Never")
        for index in range(draw(st.integers(0, 2)))
    )
    return DeclaredJob(
        ref=JobRef("here", "", kind, api_version),
        meta=Meta(
            namespace="here",
            owner_references=[reference(owner, "JobSet")] if owner else None,
            creation_timestamp=draw(minutes),
        ),
        replicas=replicas,
        outcome=None,
        outcome_reason="",
        is_suspended=draw(st.booleans()),
        started=None,
        finished=None,
        conditions=(),
        priority="",
        log_dir="",
        trainer="",
        user="",
        restarts=draw(st.integers(0, 2)),
        restarts_allowed=draw(st.one_of(st.none(), st.integers(0, 2))),
    )


def named_job(uid: str, job: DeclaredJob) -> DeclaredJob:
    name = f"name-of-{uid}"
    ref = JobRef("here", name, job.ref.kind, job.ref.api_version)
    return replace(job, ref=ref, meta=msgspec.structs.replace(job.meta, name=name, uid=uid))


def named_pod(uid: str, pod: Pod) -> Pod:
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, uid=uid))


nodes = st.builds(
    lambda gpus, ready: NodeStatus(
        {GPU: gpus}, {GPU: gpus}, [Condition("Ready", "True" if ready else "Unknown")]
    ),
    st.integers(0, 8),
    st.booleans(),
)
metas = st.builds(
    lambda above, made: Meta(owner_references=[reference(above)] if above else None, creation_timestamp=made),
    controllers,
    minutes,
)


class World:
    """Objects by uid, as mirrors hold them."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        self.jobs: dict[str, DeclaredJob] = {}
        self.owners: dict[str, Meta] = {}

    def change(self, part: str, uid: str, value: Any) -> None:
        """Replace the object with this uid; None removes it."""
        known = getattr(self, part)
        if part == "owners":  # replaced as a whole, as `Owners.found` is
            known = self.owners = dict(known)
        if value is None:
            known.pop(uid, None)
        elif part == "nodes":
            known[uid] = Node(Meta(uid, uid=f"uid-{uid}"), status=value)
        elif part == "pods":
            known[uid] = named_pod(uid, value)
        elif part == "jobs":
            known[uid] = named_job(uid, value)
        else:
            known[uid] = value

    def join(self, joiner: Joiner, **how: bool) -> tuple[tuple[NodeRow, ...], tuple[Job, ...]]:
        objects = self.nodes.values(), self.pods.values(), self.jobs.values(), self.owners
        return join_again(joiner, *objects, **how)


def changes_of(part: str, uids: tuple[str, ...], value: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.tuples(st.just(part), st.sampled_from(uids), st.one_of(st.none(), value, value))


change = st.one_of(
    changes_of("nodes", NODES, nodes),
    changes_of("pods", tuple(f"p{number}" for number in range(6)), pods()),
    changes_of("pods", tuple(f"p{number}" for number in range(6)), pods()),
    changes_of("jobs", JOBS, jobs()),
    changes_of("owners", OTHERS, metas),
)


@settings(max_examples=60)
@given(st.lists(change, max_size=25))
def test_gpus_of_jobs_nodes_and_holders_always_add_up(changes: list[tuple[str, str, Any]]) -> None:
    world = World()
    for each in changes:
        world.change(*each)
    node_rows, job_rows = join(world.nodes.values(), world.pods.values(), world.jobs.values(), world.owners)
    held = sum(row.gpus_allocated for row in node_rows)
    assert sum(job.gpus_allocated for job in job_rows) == held
    assert sum(holder.gpus for row in node_rows for holder in row.holders) == held
    assert len({row.name for row in node_rows}) == len(node_rows)
    assert len({job.uid for job in job_rows}) == len(job_rows)
    assert {row.name for row in node_rows if row.status != NOT_LISTED} == set(world.nodes)


@settings(max_examples=60)
@given(st.lists(st.lists(change, max_size=4), max_size=10))
def test_an_updated_snapshot_equals_one_from_scratch(steps: list[list[tuple[str, str, Any]]]) -> None:
    world, joiner = World(), Joiner()
    before: dict[str, Any] = {}
    for step in steps:
        for each in step:
            world.change(*each)
        node_rows, job_rows = world.join(joiner)
        fresh = Joiner()
        assert (node_rows, job_rows) == world.join(fresh)
        assert joiner.above == fresh.above
        after: dict[str, Any] = {f"node {row.name}": row for row in node_rows}
        after |= {f"job {job.uid}": job for job in job_rows}
        for name, row in after.items():
            if name in before and before[name] == row:
                assert before[name] is row
        before = after


@settings(max_examples=60)
@given(st.lists(st.tuples(st.booleans(), st.lists(change, max_size=4)), max_size=10))
def test_while_pods_are_missing_jobs_have_no_status_and_afterwards_the_right_one(
    steps: list[tuple[bool, list[tuple[str, str, Any]]]],
) -> None:
    world, joiner = World(), Joiner()
    for is_partial, step in (*steps, (False, [])):
        for each in step:
            world.change(*each)
        rows = zip(world.join(joiner, is_partial=is_partial)[1], world.join(Joiner())[1], strict=True)
        for row, right in rows:
            # A pod's user is its first namespace, and here pods move to others.
            is_right = msgspec.structs.replace(row, user=right.user) == right
            assert is_right or (is_partial and row.reason == BEING_READ)
            assert (row.gpus_allocated, row.gpus_requested) == (right.gpus_allocated, right.gpus_requested)


def test_a_job_whose_pods_are_all_there_has_its_status_before_the_list_ends() -> None:
    jobs = [pytorch_job(name, workers=2) for name in ("half", "unread", "whole")]
    pods = [pod_of(jobs[0], "worker-0"), pod_of(jobs[2], "master-0"), pod_of(jobs[2], "worker-0")]
    read = Reader[Pod](Pod).read_list(listed(*pods))[1]
    _, rows = join_again(Joiner(), [], read, read_jobs(*jobs), is_partial=True)
    assert [str(job.status) for job in rows] == ["Unknown", "Unknown", "Running"]
    assert [(job.reason == BEING_READ, len(job.instances)) for job in rows[:2]] == [(True, 1), (True, 0)]


def test_an_unchanged_cluster_yields_the_identical_rows() -> None:
    world, joiner = World(), Joiner()
    world.change("nodes", "n0", NodeStatus({GPU: 8}, {GPU: 8}))
    holds = Container("main", resources=Resources(limits={GPU: 2}))
    world.change("pods", "p0", Pod(Meta("a", "here"), PodSpec("n0", [holds]), PodStatus("Running")))
    node_rows, job_rows = world.join(joiner)
    assert [job.gpus_allocated for job in job_rows] == [2]
    again = world.join(joiner)
    assert again[0] is node_rows
    assert again[1] is job_rows


async def test_joining_a_large_cluster_yields_to_the_event_loop() -> None:
    job = pytorch_job("wide", workers=3000, gpus=1)
    pods = [pod_of(job, f"worker-{number}", on="n1", gpus=1) for number in range(2999)]
    read = Reader[Pod](Pod).read_list(listed(*pods))[1]
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(take_turns())
    joiner = Joiner()
    await cooperatively(joiner.steps([], read, read_jobs(job), {}))
    other.cancel()
    assert turns > 1
    assert joiner.rows == join([], read, read_jobs(job))


def test_ranks_that_logs_prove_change_their_job_only_and_are_withdrawn_with_the_evidence() -> None:
    (gale, pods), (calm, others) = elastic_job("gale"), elastic_job("calm")
    read, jobs, joiner = (
        Reader[Pod](Pod).read_list(listed(*pods, *others))[1],
        read_jobs(gale, calm),
        Joiner(),
    )

    def rows(evidence: dict[str, RankEvidence]) -> dict[str, Job]:
        return {job.ref.name: job for job in join_again(joiner, [], read, jobs, evidence=evidence)[1]}

    assumed = rows({})
    first, second = (each.pod_uid for each in assumed["gale"].instances)
    swapped = RankEvidence({first: (1,), second: (0,)}, {}, {})
    evidence = {assumed["gale"].uid: swapped, "of a job that is gone": swapped}
    proven = rows(evidence)
    assert proven["calm"] is assumed["calm"] and rows(evidence)["gale"] is proven["gale"]
    assert [(each.ranks, each.is_chief) for each in proven["gale"].instances] == [((1,), False), ((0,), True)]
    read = [msgspec.structs.replace(each) for each in read]  # as a later event brings them
    assert rows(evidence) == proven and rows({}) == assumed
