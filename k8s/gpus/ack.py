"""Alibaba Cloud's GPU topology: the ConfigMap with the links of a node, and the scheduling label.

The ConfigMap is in `kube-system`, has the labels `ack.node.gpu.schedule=topology` and `nodename=NODE`,
and holds three JSON texts: `devices` (`{"0": "Healthy"}`), `linkType` (`[["N-A", "NV2"], …]`) and
`bandwidth` (GB/s one way; the diagonal is the bandwidth of the GPU's own memory).

A node with the label `ack.node.gpu.schedule=topology` has `aliyun.com/gpu` in place of `nvidia.com/gpu`;
`default` makes it an ordinary node again.

Source: Arena, `pkg/topnode/gputopology.go` and `define.go`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from k8s.gpus.links import SELF, LinkMatrix, UnreadableTopology, link_bandwidth, link_name
from k8s.models.gpu_sharing import SCHEDULE_LABEL, TOPOLOGY
from k8s.text.errors import KubeError

if TYPE_CHECKING:
    from k8s.client.client import Client
    from k8s.snapshot import NodeRow

NAMESPACE = "kube-system"
DEFAULT = "default"
NODE_LABEL = "nodename"

# Larger values are taken for errors.
MAX_GBYTES = 1e6


def read_config_map(config_map: Mapping[str, Any], model: str = "") -> LinkMatrix:
    """Return the links in a ConfigMap. If a bandwidth is missing, NCCL's constants are used for all links.

    Raises:
        UnreadableTopology: The link matrix is missing or malformed.
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


def node_of(config_map: Mapping[str, Any]) -> str:
    """Return the name of the node that a ConfigMap describes."""
    return str(((config_map.get("metadata") or {}).get("labels") or {}).get(NODE_LABEL, ""))


def config_map(node: str, matrix: LinkMatrix, labels: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Build the ConfigMap for a node's links; bandwidths are included only if they were measured."""
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
    # Arena's example has short rows; the value of the opposite direction replaces a missing cell.
    for one, other in ((row, column), (column, row)):
        found = rows[one] if isinstance(rows, list) and one < len(rows) else None
        if isinstance(found, list) and len(found) == len(rows):
            return found[other]
    return None


def _gbytes(value: Any) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return 0.0
    return float(value) if 0 < value < MAX_GBYTES else 0.0


VALUES = (TOPOLOGY, DEFAULT)


def other_schedule(node: NodeRow) -> str:
    """Return the value that the label is toggled to."""
    return DEFAULT if node.schedule == TOPOLOGY else TOPOLOGY


def describe_schedule(node: NodeRow, value: str) -> list[str]:
    """Describe the effect of setting the label, line by line."""
    lines = [f"Label {SCHEDULE_LABEL}={value}, now {node.schedule or 'not set'}."]
    if value == TOPOLOGY:
        lines.append(
            "Its GPUs are then given by the links between them, to MPI jobs with --gputopology only."
        )
        lines.append("Jobs that ask for nvidia.com/gpu start there no longer.")
        lines.append("This needs Alibaba Cloud's GPU topology component; elsewhere the label does nothing.")
    else:
        lines.append("Its GPUs are then given as usual; jobs with --gputopology start there no longer.")
    if pods := len(node.holders):
        lines.append(
            "The pod that holds GPUs there runs on."
            if pods == 1
            else f"The {pods} pods that hold GPUs there run on."
        )
    return lines


async def set_schedule(client: Client, node: str, value: str) -> None:
    """Set the label of a node.

    Raises:
        KubeError: The server refused, or the label is not set afterwards.
    """
    # Lazy: the console's first frame needs only the constants of this module.
    from k8s.models.resources import NODES

    answer = await client.patch(NODES, node, {"metadata": {"labels": {SCHEDULE_LABEL: value}}})
    labels = (answer.get("metadata") or {}).get("labels") or {}
    if labels.get(SCHEDULE_LABEL) != value:
        raise KubeError(
            f"Could not label node {node}.", "The cluster took the change, but the label is not there."
        )
