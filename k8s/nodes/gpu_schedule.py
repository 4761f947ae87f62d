"""Sets by which scheduler's rules a node gives its GPUs on Alibaba Cloud: the label `ack.node.gpu.schedule`.

The guide does it with kubectl: `kubectl label node NODE ack.node.gpu.schedule=topology`, and back with
`=default --overwrite`. A node with `topology` offers `aliyun.com/gpu` and no `nvidia.com/gpu` any more.
"""

from __future__ import annotations

from k8s.client.client import Client
from k8s.errors import KubeError
from k8s.models.resources import NODES
from k8s.snapshot import NodeRow
from k8s.topology.ack import DEFAULT, SCHEDULE_LABEL, TOPOLOGY

VALUES = (TOPOLOGY, DEFAULT)
"""What the label is set to here."""


def other_schedule(node: NodeRow) -> str:
    """Return what the node's label would be set to: `topology`, or `default` where it is that."""
    return DEFAULT if node.schedule == TOPOLOGY else TOPOLOGY


def schedule_words(node: NodeRow, value: str) -> list[str]:
    """Say what setting the label would mean, line by line."""
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
        KubeError: The server refuses, or has not done it.
    """
    answer = await client.patch(NODES, node, {"metadata": {"labels": {SCHEDULE_LABEL: value}}})
    labels = (answer.get("metadata") or {}).get("labels") or {}
    if labels.get(SCHEDULE_LABEL) != value:
        raise KubeError(
            f"Could not label node {node}.", "The cluster took the change, but the label is not there."
        )
