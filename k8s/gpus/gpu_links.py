"""Fetch the GPU links of a node from the cluster.

Tried in this order: Alibaba Cloud's ConfigMap, which has measurements; `nvidia-smi topo -m` in a pod
of the node that sees all of its GPUs (DCGM exporter, driver, device plugin, other parts of the GPU
operator); the same in a job's pod that holds all GPUs, for users without access to other namespaces.
Needs `list configmaps` in kube-system, or `list pods` and `get pods/exec` (`create pods/exec` since
Kubernetes 1.35) in the namespace of such a pod.

`nvidia-smi topo -m` prints a header with the devices: GPUs, then network adapters by their own name
(`mlx5_0`) or, since driver 520, as `NIC0` with a legend below; then `CPU Affinity`, `NUMA Affinity`,
`GPU NUMA ID`, of which older drivers lack the last ones. One row per device follows. Columns are separated
by tabs, or by spaces if the text was copied. Some drivers underline the header, even when not on a terminal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from k8s import models
from k8s.client.client import Client
from k8s.gpus.ack import NAMESPACE, NODE_LABEL, node_of, read_config_map
from k8s.gpus.links import SELF, LinkMatrix, UnreadableTopology, link_name
from k8s.models import Pod
from k8s.models.accelerators import may_be_nvidia, of_pod
from k8s.models.gpu_sharing import SCHEDULE_LABEL, TOPOLOGY
from k8s.models.resources import CONFIG_MAPS, PODS
from k8s.snapshot import NodeRow
from k8s.text.errors import Forbidden, KubeError, NotFound

# Parts of the names or images of pods that see every GPU of their node, the most likely first.
SEE_ALL = (
    "nvidia-dcgm", "dcgm-exporter", "nvidia-driver-daemonset", "nvidia-device-plugin",
    "k8s-device-plugin", "nvidia-gpu-device-plugin", "gpu-feature-discovery",
    "nvidia-container-toolkit", "nvidia-operator-validator", "nvidia-mig-manager",
)  # fmt: skip
# Searched if the user may not list the pods of all namespaces.
USUAL_NAMESPACES = (
    "gpu-operator",
    "kube-system",
    "nvidia-gpu-operator",
    "nvidia-device-plugin",
    "monitoring",
)
MAX_TRIED = 4
NEEDS = (
    "It needs a pod on the node that sees all of its GPUs (the DCGM exporter's, the driver's, the device "
    "plugin's, or that of a job that holds them all), and the right to run a command there (pods/exec); or "
    "Alibaba Cloud's ConfigMap in kube-system."
)
_SIMULATED = "They are simulated, without links between them."
_LINK_SIMULATED = (
    "For the links of a DGX-1V: gpuconsole sandbox stop, then gpuconsole sandbox start --links dgx-1v "
    "(or dgx-a100, dgx-h100, pcie)."
)
_NOT_NVIDIA = "They are not NVIDIA GPUs, so nvidia-smi does not know them."


class UnknownLinks(KubeError):
    """No source has the GPU links of a node."""


class _Place(NamedTuple):
    """A container to run the command in."""

    rank: int
    namespace: str
    pod: str
    container: str


async def fetch_links(client: Client, node: NodeRow, namespace: str = "") -> LinkMatrix:
    """Fetch the links between the GPUs of a node.

    Args:
        client: The cluster.
        node: The node.
        namespace: The user's own namespace, searched if the pods of all namespaces may not be listed.

    Raises:
        UnknownLinks: No source has them; the error lists the attempts.
    """
    reasons: list[str] = []
    selector = f"{SCHEDULE_LABEL}={TOPOLOGY},{NODE_LABEL}={node.name}"
    try:
        for found in await client.list(CONFIG_MAPS, NAMESPACE, label_selector=selector):
            return read_config_map(found, node.gpu_model)
    except (Forbidden, NotFound):
        pass  # most users may not read kube-system, and few clusters have one there
    except UnreadableTopology as error:
        reasons.append(str(error))
    what = f"Could not read how the GPUs of {node.name} are linked."
    if node.is_simulated:
        raise UnknownLinks(what, "\n".join((*reasons, _SIMULATED)), _LINK_SIMULATED)
    if node.resources and not may_be_nvidia(node.resources):
        raise UnknownLinks(what, "\n".join((*reasons, _NOT_NVIDIA)))
    places, refused = await _places(client, node, namespace)
    for place in places[:MAX_TRIED]:
        where = f"{place.namespace}/{place.pod}"
        try:
            output = await client.run(place.pod, place.namespace, COMMAND, container=place.container)
            source = f"{' '.join(COMMAND)} in pod {where}"
            matrix = read_topology(output.decode("utf-8", "replace"), node.gpu_model, source)
        except KubeError as error:
            reasons.append(f"{where}: {_first_line(error.why) or error.what}")
        except UnreadableTopology as error:
            reasons.append(f"{where}: {error}")
        else:
            if len(matrix.links) >= node.gpus_total or not node.allocates_full_gpus:
                return matrix
            reasons.append(f"{where} sees {len(matrix.links)} of {node.gpus_total} GPUs.")
    if not places:
        reasons.append(refused or "No pod on it sees all of its GPUs.")
    raise UnknownLinks(what, "\n".join(reasons), NEEDS)


async def fetch_known_links(client: Client, models_by_node: Mapping[str, str]) -> dict[str, LinkMatrix]:
    """Fetch the links of all nodes that have a ConfigMap, in one request; empty if it is refused.

    Args:
        client: The cluster.
        models_by_node: GPU model of each node.
    """
    try:
        found = await client.list(CONFIG_MAPS, NAMESPACE, label_selector=f"{SCHEDULE_LABEL}={TOPOLOGY}")
    except KubeError:
        return {}
    links: dict[str, LinkMatrix] = {}
    for each in found:
        node = node_of(each)
        try:
            links[node] = read_config_map(each, models_by_node.get(node, ""))
        except UnreadableTopology:
            continue
    return links


async def _places(client: Client, node: NodeRow, namespace: str) -> tuple[list[_Place], str]:
    selector = f"spec.nodeName={node.name},status.phase=Running"
    refused = ""
    try:
        pods = await client.list(PODS, field_selector=selector)
    except Forbidden as error:
        refused, pods = _first_line(error.why), []
        for each in dict.fromkeys((*USUAL_NAMESPACES, namespace)):
            if each:
                pods += await _listed(client, each, selector)
    return sorted(_of_pods(pods, node.gpus_total if node.allocates_full_gpus else 0)), refused


async def _listed(client: Client, namespace: str, selector: str) -> list[dict[str, Any]]:
    try:
        return await client.list(PODS, namespace, field_selector=selector)
    except (Forbidden, NotFound):
        return []


def _of_pods(pods: Iterable[Mapping[str, Any]], gpus: int) -> Iterable[_Place]:
    for pod in pods:
        meta, containers = pod["metadata"], (pod.get("spec") or {}).get("containers") or ()
        for container in containers:
            identity = f"{meta['name']} {container.get('image', '')}"
            rank = next((rank for rank, name in enumerate(SEE_ALL) if name in identity), len(SEE_ALL))
            if rank < len(SEE_ALL):
                yield _Place(rank, str(meta["namespace"]), str(meta["name"]), str(container["name"]))
                break
        else:
            held = sum(of_pod(models.convert(pod, Pod).spec).values())
            if containers and gpus and held >= gpus:
                yield _Place(
                    len(SEE_ALL), str(meta["namespace"]), str(meta["name"]), str(containers[0]["name"])
                )


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


COMMAND = ("nvidia-smi", "topo", "-m")
MAX_GPUS = 64
_MARKUP = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_GPU = re.compile(r"GPU([0-9]{1,3})")
_LINK = re.compile(r"X|N/A|SOC|SYS|NODE|PHB|PXB|PIX|NV[0-9]{1,2}")
# Neighbouring cells run together if there are many columns: `PXBNODE`.
_GLUED = re.compile(rf"(?:{_LINK.pattern}){{2,}}")
_NIC_LEGEND = re.compile(r"\s*(NIC[0-9]{1,3})\s*:\s*(\S+)\s*")
# So do names of devices: `NIC8NIC9`, `NIC15CPU Affinity`.
_GLUED_NAMES = re.compile(r"(?<=\d)(?=(?:GPU|NIC|mlx\d_)\d|(?:CPU|NUMA) Aff|GPU NUMA)")
# First words of the columns after the devices: CPU Affinity, NUMA Affinity, GPU NUMA ID.
_HEADINGS = ("CPU", "NUMA", "GPU")


def read_topology(text: str, model: str = "", source: str = "") -> LinkMatrix:
    """Parse the link matrix.

    Args:
        text: Output of the command; other text around the matrix is ignored.
        model: GPU model, which determines the bandwidths.
        source: Origin of the text, for display.

    Raises:
        UnreadableTopology: The matrix is missing or incomplete.
    """
    lines = [line for line in _MARKUP.sub("", text).splitlines() if line.strip()]
    at = next((at for at, line in enumerate(lines) if _is_header(line)), None)
    if at is None:
        raise UnreadableTopology("It contains no GPU matrix.")
    devices, headings = _columns(lines[at])
    rows = _rows(lines[at + 1 :], devices)
    names = _nic_names(lines)
    gpus = [name for name in devices if _GPU.fullmatch(name)]
    if len(gpus) > MAX_GPUS:
        raise UnreadableTopology(f"It has {len(gpus)} GPUs, which no node has.")
    if missing := [name for name in gpus if name not in rows]:
        raise UnreadableTopology(f"The row of {missing[0]} is missing or cut off.")
    for name in gpus:
        if rows[name][0][devices.index(name)] != SELF:
            raise UnreadableTopology(f"The row of {name} does not fit the header.")
    nics = [name for name in devices if name not in gpus]
    matrix = LinkMatrix.of([_pick(rows[name][0], devices, gpus) for name in gpus], model, source)
    numbers = tuple(int(name.removeprefix("GPU")) for name in gpus)
    return replace(
        matrix,
        numbers=() if numbers == tuple(range(len(gpus))) else numbers,
        cpus=_affinity([rows[name][1] for name in gpus], headings, "CPU"),
        numa=_affinity([rows[name][1] for name in gpus], headings, "NUMA"),
        nics=tuple(names.get(name, name) for name in nics),
        nic_links=tuple(_pick(rows[name][0], devices, nics) for name in gpus) if nics else (),
    )


def _is_header(line: str) -> bool:
    cells = _GLUED_NAMES.sub(" ", line).split()
    return _GPU.fullmatch(cells[0]) is not None and (len(cells) < 2 or not _LINK.fullmatch(cells[1]))


def _columns(header: str) -> tuple[list[str], list[str]]:
    cells = _GLUED_NAMES.sub(" ", header).split()
    end = next((at for at, word in enumerate(cells) if word in _HEADINGS), len(cells))
    if len(set(cells[:end])) != end:
        raise UnreadableTopology("A device is named twice in its header.")
    # Of `GPU NUMA ID` the second word is no column of its own.
    headings = [
        word for at, word in enumerate(cells[end:], end) if word in _HEADINGS and cells[at - 1] != "GPU"
    ]
    return cells[:end], headings


def _rows(lines: Sequence[str], devices: Sequence[str]) -> dict[str, tuple[list[str], list[str]]]:
    # Rows that were cut off are dropped.
    rows: dict[str, tuple[list[str], list[str]]] = {}
    for line in lines:
        cells = [
            cell
            for word in line.split()
            for cell in (_LINK.findall(word) if _GLUED.fullmatch(word) else [word])
        ]
        if cells[0] not in devices or cells[0] in rows:
            continue
        found = cells[1 : 1 + len(devices)]
        further = cells[1 + len(devices) : 2 + len(devices)]
        if further and further != ["N/A"] and _LINK.fullmatch(further[0]):
            raise UnreadableTopology(f"The row of {cells[0]} has more links than the header has devices.")
        if len(found) == len(devices) and all(map(_LINK.fullmatch, found)):
            rows[cells[0]] = [link_name(word) for word in found], _behind(line, cells, len(devices))
    return rows


def _behind(line: str, cells: Sequence[str], devices: int) -> list[str]:
    # Between tabs, an affinity may be empty.
    between_tabs = [cell.strip() for cell in line.split("\t")]
    is_empty = len(between_tabs) > devices + 1 and not between_tabs[devices + 1]
    return ["", *cells[devices + 1 :]] if is_empty else list(cells[devices + 1 :])


def _affinity(behind: Sequence[Sequence[str]], headings: Sequence[str], heading: str) -> tuple[str, ...]:
    if heading not in headings:
        return ()
    at = headings.index(heading)
    found = tuple(cells[at] if at < len(cells) else "" for cells in behind)
    return tuple("" if word == "N/A" else word for word in found) if any(found) else ()


def _pick(links: Sequence[str], devices: Sequence[str], wanted: Sequence[str]) -> tuple[str, ...]:
    return tuple(link for link, name in zip(links, devices, strict=True) if name in wanted)


def _nic_names(lines: Sequence[str]) -> Mapping[str, str]:
    return {found[1]: found[2] for line in lines if (found := _NIC_LEGEND.fullmatch(line))}
