"""What the form says of how a job's GPUs would be linked, node by node: `b: 4 free, NVLink-connected`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from k8s.job_spec import JobSpec
from k8s.scheduling.gpu_fit import LinkFit, link_fit
from k8s.snapshot import NodeRow
from k8s.topology.links import LinkMatrix

MOST_NODES = 3
"""Nodes that are named, the best linked first."""
HALF = 0.5
"""At so small a share of NVLink's bandwidth a job is expected to take twice as long.

Alibaba Cloud measured it with four V100: VGG-16 made 205 images/s per GPU over NVLink and 109 otherwise;
ResNet-50, which has a fifth of the gradients, 331 and 313.
"""


class _Offer(NamedTuple):
    """What a node has for a job."""

    node: NodeRow
    free: int
    wanted: int
    fit: LinkFit


def link_words(spec: JobSpec, nodes: Sequence[NodeRow], links: Mapping[str, LinkMatrix]) -> str:
    """Return how the job's GPUs would be linked on each of some nodes; empty where that is not known.

    Args:
        spec: The job; what matters are its pods and the GPUs of each.
        nodes: Those that can take at least one of its pods now.
        links: The links of each node's GPUs, as far as they are known.
    """
    offers = [offer for node in nodes if (offer := _offer(spec, node, links.get(node.name))) is not None]
    if not offers:
        return ""
    wanted = max(offer.wanted for offer in offers)
    offers = [offer for offer in offers if offer.wanted == wanted]
    offers.sort(key=lambda offer: (not offer.fit.is_nvlink, -offer.fit.worst.bottleneck, offer.node.name))
    fastest = max((each.fit.worst.bottleneck for each in offers if each.fit.is_nvlink), default=0.0)
    return "; ".join(_offer_words(offer, fastest) for offer in offers[:MOST_NODES])


def nodes_open_to(nodes: Sequence[NodeRow], closed: Collection[str]) -> list[NodeRow]:
    """Return the nodes that a pod could be bound to."""
    return [node for node in nodes if node.takes_pods and node.name not in closed]


def _offer(spec: JobSpec, node: NodeRow, matrix: LinkMatrix | None) -> _Offer | None:
    free = node.free.get(spec.gpu_resource, 0)
    pods = min(spec.workers, free // spec.gpus) if spec.gpus else 0
    wanted = pods * spec.gpus
    if matrix is None or wanted < 2:
        return None
    fit = link_fit(node, matrix, wanted)
    return _Offer(node, free, wanted, fit) if fit is not None else None


def _offer_words(offer: _Offer, fastest: float) -> str:
    fit = offer.fit
    of_them = "" if offer.free == offer.wanted else f", {offer.wanted} of them"
    start = f"{offer.node.name}: {offer.free} free{of_them}"
    if fit.is_nvlink:
        return f"{start}{' ' if of_them else ', '}NVLink-connected"
    if fit.is_pcie:
        is_half = fastest and fit.best.bottleneck <= fastest * HALF
        return f"{start} over PCIe{', expect about half' if is_half else ''}"
    return f"{start}{' ' if of_them else ', '}NVLink-connected in part"
