"""MPIJob v1alpha1 as Arena's chart has it: one template, from which the operator makes all pods."""

from __future__ import annotations

from dataclasses import replace

from k8s.job_spec import JobSpec, Mount
from k8s.kinds.kubeflow.mpi_job_v1alpha1 import MPIJobV1Alpha1

KIND = MPIJobV1Alpha1()
SPEC = JobSpec(name="bench", image="i:1", command=("mpirun", "x"), workers=4, gpus=1)


def test_launcher_and_workers_share_a_template_but_the_launcher_requests_no_resources() -> None:
    body = KIND.manifest(SPEC)["spec"]
    assert (body["replicas"], body["launcherResources"]) == (4, {})
    assert body["template"]["spec"]["containers"][0]["command"] == ["mpirun", "x"]
    launcher, *workers = KIND.replicas(KIND.manifest(SPEC))
    assert launcher.template["spec"]["containers"][0]["resources"] == {}
    assert len(workers) == 4


def test_gpu_topology_is_requested_with_the_labels_and_resources_of_arena() -> None:
    template = KIND.manifest(replace(SPEC, gpu_topology=True))["spec"]["template"]
    assert template["metadata"]["labels"]["gpu-topology"] == "bench"
    assert template["metadata"]["labels"]["gpu-topology-replica"] == "4"
    pod = template["spec"]
    assert (pod["hostNetwork"], pod["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    assert pod["containers"][0]["resources"]["limits"] == {"aliyun.com/gpu": "1"}
    assert "volumes" not in pod


def test_mounts_on_launcher_is_written_to_the_spec() -> None:
    spec = replace(SPEC, mounts=(Mount("c", "/c"),), mounts_on_launcher=True)
    assert KIND.manifest(spec)["spec"]["mountsOnLauncher"] is True
    assert KIND.manifest(SPEC)["spec"]["mountsOnLauncher"] is False
