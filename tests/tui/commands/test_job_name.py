"""Which job is meant, where several kinds share a name and several jobs too."""

from __future__ import annotations

import pytest

from k8s.errors import NotFound
from k8s.snapshot import ClusterSnapshot
from tests.k8s.kinds.operator_objects import jobs_in, pods_in, read_pods
from tests.support.objects import GPU, batch_job, join, read_jobs
from tui.commands.support.job_name import Ambiguous, find_job
from tui.commands.support.output import WrongUsage


def snapshot() -> ClusterSnapshot:
    """Return a Job of Kubernetes and one of Volcano of one name, and MPIJobs of two systems."""
    mine = batch_job("vgg")
    mine["metadata"]["namespace"] = "vision"
    made = [*read_jobs(mine), *jobs_in("volcano-running"), *jobs_in("mpijob-v1-running")]
    _, jobs = join([], pods_in("volcano-running"), [*made, *jobs_in("t9k-mpi-worker-form")])
    return ClusterSnapshot(namespace="vision", jobs=jobs)


def test_jobs_of_one_name_and_kind_are_told_apart_by_their_group() -> None:
    for words in ("vgg", "Job/vgg", "jobs/vgg"):
        with pytest.raises(Ambiguous) as caught:
            find_job(snapshot(), words)
        assert set(caught.value.why.split("\n")) == {"jobs.batch/vgg", "jobs.batch.volcano.sh/vgg"}
    assert find_job(snapshot(), "jobs.batch/vgg").ref.api_version == "batch/v1"
    for words in ("jobs.batch.volcano.sh/vgg", "volcano job/vgg"):
        assert find_job(snapshot(), words).ref.api_version == "batch.volcano.sh/v1alpha1"


def test_a_kind_of_several_systems_finds_the_job_of_any() -> None:
    assert find_job(snapshot(), "MPIJob/resnet").ref.api_version == "kubeflow.org/v1"
    assert find_job(snapshot(), "mpijobs/mpi-example").ref.api_version == "batch.tensorstack.dev/v1beta1"
    with pytest.raises(NotFound, match="There is no MPIJob vgg in namespace vision"):
        find_job(snapshot(), "mpijobs/vgg")


def test_a_kind_that_nobody_knows_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(WrongUsage, match=r"Unknown kind 'Nonsense'\. Known kinds: PyTorchJob, MPIJob"):
        find_job(snapshot(), "Nonsense/vgg")
    with pytest.raises(WrongUsage, match="is not a job name"):
        find_job(snapshot(), "Job/")


def test_what_else_holds_gpus_is_found_by_its_own_kind() -> None:
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "u", "controller": True}
    pod = {
        "metadata": {"name": "web-0", "namespace": "vision", "uid": "p", "ownerReferences": [owner]},
        "spec": {"nodeName": "n1", "containers": [{"resources": {"limits": {GPU: 1}}}]},
    }
    _, jobs = join([], read_pods(pod), [])
    there = ClusterSnapshot(namespace="vision", jobs=jobs)
    for words in ("web", "StatefulSet/web", "statefulsets.apps/web"):
        assert find_job(there, words).ref.kind == "StatefulSet"
