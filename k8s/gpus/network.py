"""Network distance of nodes by the topology labels of clouds and schedulers.

Sources: Kubernetes' well-known labels; Kueue, "Topology Aware Scheduling"; NVIDIA Topograph and the GPU
operator; GKE's compact placement; Amazon's `topology.k8s.aws`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

LEVELS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("zone", ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")),
    (
        "core switch",
        (
            "network.topology.nvidia.com/core",
            "fabric.topograph.run/tier-2",
            "topology.k8s.aws/network-node-layer-1",
        ),
    ),
    (
        "block",
        (
            "cloud.provider.com/topology-block",
            "cloud.google.com/gce-topology-block",
            "network.topology.nvidia.com/spine",
            "fabric.topograph.run/tier-1",
            "topology.k8s.aws/network-node-layer-2",
        ),
    ),
    (
        "rack",
        (
            "cloud.provider.com/topology-rack",
            "cloud.google.com/gce-topology-subblock",
            "network.topology.nvidia.com/leaf",
            "fabric.topograph.run/tier-0",
            "topology.k8s.aws/network-node-layer-3",
        ),
    ),
    (
        "NVLink domain",
        (
            "nvidia.com/gpu.clique",
            "network.topology.nvidia.com/accelerator",
            "accelerator.topograph.run/domain",
        ),
    ),
)
"""Title and labels of each level, the widest first."""
NetworkPath = tuple[str, ...]
"""The value of each of `LEVELS`; empty where a node has no such label."""
_NOWHERE: NetworkPath = ("",) * len(LEVELS)


def network_path(labels: Mapping[str, str] | None) -> NetworkPath:
    """Return the position of a node in the network, by its labels."""
    if not labels:
        return _NOWHERE
    return tuple(next((labels[key] for key in keys if labels.get(key)), "") for _, keys in LEVELS)


def neighbourhoods(paths: Mapping[str, NetworkPath]) -> Iterable[list[frozenset[str]]]:
    """Yield partitions of the nodes: single nodes, then the groups of each level, and all nodes last."""
    yield [frozenset({name}) for name in paths]
    for at in reversed(range(len(LEVELS))):
        groups: dict[NetworkPath, set[str]] = {}
        for name, path in paths.items():
            if path[at]:
                groups.setdefault(path[: at + 1], set()).add(name)
        if groups:
            yield [frozenset(group) for group in groups.values()]
    yield [frozenset(paths)]
