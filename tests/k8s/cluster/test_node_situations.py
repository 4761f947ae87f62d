"""Faults of nodes and devices, and the rows and reasons that they become."""

from __future__ import annotations

from tests.k8s.cluster.situations import Case, check
from tests.support.objects import GPU, Object, node, pod_of, pytorch_job


def ill(name: str, *conditions: str, cordoned: bool = False, **marks: str) -> Object:
    """Return a Ready node with further conditions, each `Type Status Reason`, and with labels."""
    found = node(name, **({"unschedulable": True} if cordoned else {}))
    for each in conditions:
        kind, status, reason, *message = each.split(" ", 3)
        found["status"]["conditions"].append(
            {"type": kind, "status": status, "reason": reason, "message": "".join(message)}
        )
    found["metadata"]["labels"] = {
        key.replace("__", "/").replace("_", "-"): text for key, text in marks.items()
    }
    return found


def with_devices(pod: Object, *health: str) -> Object:
    """Let a pod report the health of its GPUs a, b, …"""
    devices = [{"resourceID": f"GPU-{chr(97 + n)}", "health": each} for n, each in enumerate(health)]
    pod["status"]["containerStatuses"] = [
        {
            "name": "pytorch",
            "state": {"running": {}},
            "allocatedResourcesStatus": [{"name": GPU, "resources": devices}],
        }
    ]
    return pod


def test_faults_of_nodes_and_devices_are_shown_and_explain_their_jobs() -> None:
    yi = pytorch_job("yi", workers=2, gpus=2)
    pods = [pod_of(yi, place, on="n1", gpus=2) for place in ("master-0", "worker-0")]
    held = ["n1: 4 of 8, yi 4", "yi: Running 4 of 4"]
    reason, ill_gpu = (f"worker-0{colon} nvidia.com/gpu GPU-b is unhealthy" for colon in ("", ":"))
    unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    waiting = pod_of(yi, "master-0", gpus=2, phase="Pending", conditions=[unscheduled])
    sentinel = ill(
        "n1",
        "GpuMemWatch True GpuMemWatchIsNotHealthy DCGM_FR_VOLATILE_DBE_DETECTED GPU:3",
        "GpuPcieWatch False GpuPcieWatchIsHealthy No health failures",
        cordoned=True,
        k8saas_nvidia_com__cordon_by="NVSentinel",
        k8saas_nvidia_com__cordon_reason="GPU-fatal",
    )
    marks = sentinel["metadata"]["labels"]
    sentinel["metadata"]["labels"] = {
        key.replace("k8saas-nvidia-com", "k8saas.nvidia.com"): marks[key] for key in marks
    }
    dbe = "GpuMemWatch (DCGM_FR_VOLATILE_DBE_DETECTED GPU:3); cordoned by NVSentinel: GPU-fatal"
    check([
        Case("an unhealthy device of a running pod",
             [node("n1"), yi, pods[0],
              with_devices(pod_of(yi, "worker-0", on="n1", gpus=2), "Healthy", "Unhealthy")],
             [held[0], f"yi: Running 4 of 4 ({reason})",
              f"why yi: It runs, but on a device that is out of order: {ill_gpu}. | {ill_gpu}"]),
        Case("a device of which nothing is known",
             [node("n1"), yi, pods[0],
              with_devices(pod_of(yi, "worker-0", on="n1", gpus=2), "Unknown", "Healthy")],
             held),
        Case("conditions that are bad when true",
             [ill("n1", "KernelDeadlock True DockerHung", "GPUProblem True Xid79",
              "FrequentKubeletRestart True F")],
             ["n1: 0 of 8, KernelDeadlock (DockerHung); GPUProblem (Xid79); FrequentKubeletRestart (F)"]),
        Case("the same on a node that is well",
             [ill("n1", "KernelDeadlock False KernelHasNoDeadlock", "ReadonlyFilesystem False X",
              "XIDErrors False N")],
             ["n1: 0 of 8"]),
        Case("conditions that are bad when false",
             [ill("n1", "AcceleratedHardwareReady False NvidiaXID79Error", "IbHealthy False LinkDown")],
             ["n1: 0 of 8, AcceleratedHardwareReady (NvidiaXID79Error); IbHealthy (LinkDown)"]),
        Case("the same on a node that is well",
             [ill("n1", "AcceleratedHardwareReady True NvidiaReady", "IbHealthy Unknown NotRead")],
             ["n1: 0 of 8"]),
        Case("types that tell nothing, and one whose reason does",
             [ill("n1", "EtcdIsVoter False NoMember", "UpdateAvailable True New",
              "GpuHealth False GpuUnhealthy")],
             ["n1: 0 of 8, GpuHealth (GpuUnhealthy)"]),
        Case("a job on a node that NVSentinel closed",
             [sentinel, yi, *pods],
             [f"n1: 4 of 8, {dbe}, yi 4", held[1], f"why yi: It runs: 2 of 2 pods. | n1: {dbe}"]),
        Case("a job that waits for such a node",
             [sentinel, pytorch_job("yi", gpus=2), waiting],
             [f"n1: 0 of 8, {dbe}", "yi: Pending 0 of 2 (master-0: Unschedulable)",
              "why yi: Waits for a node: master-0 needs 2 nvidia.com/gpu; no node that is large enough "
              "accepts it (1 node cordoned). | cordoned: n1 (by NVSentinel: GPU-fatal, GpuMemWatch)"
              " | n1: 8 of 8 nvidia.com/gpu free, cordoned"]),
        Case("one that was evicted from a node with a fault",
             [ill("n1", "DiskPressure True KubeletHasDiskPressure"), pytorch_job("yi", gpus=2), pod_of(yi,
              "master-0", on="n1", gpus=2, phase="Failed", reason="Evicted", message="low on disk")],
             ["n1: 0 of 8, DiskPressure (KubeletHasDiskPressure)",
              "yi: Restarting 0 of 2 (master-0 Evicted: low on disk)",
              "why yi: Restarts: master-0 Evicted on n1: low on disk."
              " | n1: DiskPressure (KubeletHasDiskPressure)"]),
    ])  # fmt: skip
