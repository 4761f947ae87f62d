"""MPIJob v1 of the training-operator: what it has in place of v2beta1's fields; the rest: `test_mpi_job`."""

from __future__ import annotations

from k8s.job_spec import JobSpec
from k8s.kinds.kubeflow.mpi_job_v1 import MPIJobV1

KIND = MPIJobV1()
SPEC = JobSpec(name="bench", image="i:1", command=("mpirun", "x"), workers=2)


def test_what_v2beta1_alone_has_is_not_written() -> None:
    body = KIND.manifest(SPEC)["spec"]
    assert set(body) == {"slotsPerWorker", "runPolicy", "mpiReplicaSpecs"}


def test_an_older_jobs_clean_policy_stands_in_the_spec_itself() -> None:
    manifest = KIND.manifest(SPEC)
    manifest["spec"]["cleanPodPolicy"] = manifest["spec"]["runPolicy"].pop("cleanPodPolicy")
    spec, lost = KIND.spec_from_manifest(manifest)
    assert (spec.clean_pods, lost) == ("Running", ())


def test_kueue_does_not_admit_it_and_no_label_says_that_it_would() -> None:
    manifest = KIND.manifest(JobSpec(name="a", image="i", command=("x",), queue="team-a"))
    assert "kueue.x-k8s.io/queue-name" not in manifest["metadata"]["labels"]
    assert "v2beta1" in KIND.lacks["queue"]
