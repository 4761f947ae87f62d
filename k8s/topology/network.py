"""Which nodes are near each other in the network, by the labels that clouds and schedulers put on them.

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
"""What nodes share, the widest first, each with the labels that say so."""
NetworkPath = tuple[str, ...]
"""Where a node is: for each of `LEVELS` its value, empty where no label tells."""
_NOWHERE: NetworkPath = ("",) * len(LEVELS)


def network_path(labels: Mapping[str, str] | None) -> NetworkPath:
    """Return where a node is, by its labels."""
    if not labels:
        return _NOWHERE
    return tuple(next((labels[key] for key in keys if labels.get(key)), "") for _, keys in LEVELS)


def neighbourhoods(paths: Mapping[str, NetworkPath]) -> Iterable[list[frozenset[str]]]:
    """Yield sets of nodes by their names: each alone, then racks, blocks, and so on, at last all nodes."""
    yield [frozenset({name}) for name in paths]
    for at in reversed(range(len(LEVELS))):
        groups: dict[NetworkPath, set[str]] = {}
        for name, path in paths.items():
            if path[at]:
                groups.setdefault(path[: at + 1], set()).add(name)
        if groups:
            yield [frozenset(group) for group in groups.values()]
    yield [frozenset(paths)]
