"""The ConfigMap in which Alibaba Cloud's component writes the links of a node's GPUs and what it measured.

It is in `kube-system`, has the labels `ack.node.gpu.schedule=topology` and `nodename=NODE`, and holds three
JSON texts: `devices` (`{"0": "Healthy"}`), `linkType` (`[["N-A", "NV2"], …]`) and `bandwidth` (GB/s one
way; on the diagonal that of the GPU's own memory).

Source: Arena, `pkg/topnode/gputopology.go` and `define.go`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from k8s.text.numbers import whole_number
from k8s.topology.links import SELF, LinkMatrix, link_bandwidth, link_name
from k8s.topology.smi_text import UnreadableTopology

NAMESPACE = "kube-system"
"""Where the ConfigMaps are."""
SCHEDULE_LABEL = "ack.node.gpu.schedule"
"""Label of a node, and of its ConfigMap: how its GPUs are given to pods."""
TOPOLOGY, DEFAULT = "topology", "default"
"""Values of the label: GPUs are given by their links, or as usual."""
NODE_LABEL = "nodename"
"""Label of the ConfigMap: whose it is."""
GPU_GROUP, GPU_VISIBLE = "topology.kubernetes.io/gpu-group", "topology.kubernetes.io/gpu-visible"
"""Annotations of a pod: which GPUs the scheduler gave it."""

MOST_GBYTES = 1e6
"""A bandwidth of more GB/s makes no sense."""


def read_config_map(config_map: Mapping[str, Any], model: str = "") -> LinkMatrix:
    """Read the links of a node from its ConfigMap; bandwidths that it lacks are NCCL's constants.

    Raises:
        UnreadableTopology: It has no matrix of links, or one that makes no sense.
    """
    name = str((config_map.get("metadata") or {}).get("name", ""))
    contents = config_map.get("data") or {}
    rows = _json(contents, "linkType")
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows) or not rows:
        raise UnreadableTopology(f"ConfigMap {name} has no matrix in its linkType.")
    size = len(rows)
    links = tuple(
        tuple(SELF if row == column else link_name(str(_cell(rows, row, column))) for column in range(size))
        for row in range(size)
    )
    measured = _json(contents, "bandwidth")
    numbers = [[_gbytes(_cell(measured, row, column)) for column in range(size)] for row in range(size)]
    is_measured = size > 1 and all(numbers[row][column] > 0 for row in range(size) for column in range(row))
    bandwidth = tuple(
        tuple(
            0.0 if row == column else numbers[row][column] if is_measured else link_bandwidth(link, model)
            for column, link in enumerate(links[row])
        )
        for row in range(size)
    )
    return LinkMatrix(links, bandwidth, f"ConfigMap {NAMESPACE}/{name}", is_measured)


def given_gpus(metadata: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the numbers of the GPUs that a scheduler wrote on a pod; nothing where that makes no sense."""
    annotations = metadata.get("annotations") or {}
    return gpu_numbers(str(annotations.get(GPU_GROUP) or annotations.get(GPU_VISIBLE) or ""))


def gpu_numbers(text: str) -> tuple[int, ...]:
    """Read `0,1,4`; nothing where that makes no sense."""
    numbers = [whole_number(word) for word in text.split(",")]
    known = tuple(number for number in numbers if number is not None)
    return known if len(known) == len(numbers) else ()


def node_of(config_map: Mapping[str, Any]) -> str:
    """Return the node that a ConfigMap is about."""
    return str(((config_map.get("metadata") or {}).get("labels") or {}).get(NODE_LABEL, ""))


def config_map(node: str, matrix: LinkMatrix, labels: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the ConfigMap that tells the links of a node; bandwidths only where they were measured."""
    size = len(matrix.links)
    links = [
        ["N-A" if row == column else matrix.links[row][column] for column in range(size)]
        for row in range(size)
    ]
    contents = {
        "devices": json.dumps({str(number): "Healthy" for number in matrix.gpus}),
        "linkType": json.dumps(links),
    }
    if matrix.is_measured:
        contents["bandwidth"] = json.dumps([list(row) for row in matrix.bandwidth])
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": f"{node}-gpu-topology",
            "namespace": NAMESPACE,
            "labels": {SCHEDULE_LABEL: TOPOLOGY, NODE_LABEL: node, **(labels or {})},
        },
        "data": contents,
    }


def _json(contents: Mapping[str, Any], key: str) -> Any:
    try:
        return json.loads(str(contents.get(key) or "null"))
    except (ValueError, RecursionError):
        return None


def _cell(rows: Any, row: int, column: int) -> Any:
    """Return a cell, that of the other way where its row is too short, as in Arena's example; else None."""
    for one, other in ((row, column), (column, row)):
        found = rows[one] if isinstance(rows, list) and one < len(rows) else None
        if isinstance(found, list) and len(found) == len(rows):
            return found[other]
    return None


def _gbytes(value: Any) -> float:
    """Return a bandwidth that makes sense, else 0."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return 0.0
    return float(value) if 0 < value < MOST_GBYTES else 0.0
