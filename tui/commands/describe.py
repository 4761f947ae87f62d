"""`describe`: show a node with its GPUs, their links and their holders, or a job as `get` does."""

from __future__ import annotations

import argparse
import math

from k8s.client.client import Client
from k8s.gpus.gpu_links import fetch_links
from k8s.gpus.gpu_set import GpuSet, best_sets, free_gpus
from k8s.gpus.links import LinkMatrix, groups_of
from k8s.models.node import LEVELS
from k8s.snapshot import ClusterSnapshot, NodeRow, device_sums, format_sums
from k8s.text.errors import KubeError, NotFound
from tui.commands import get
from tui.commands.support.connect import cluster
from tui.commands.support.output import add_format, write, write_fields, write_object, write_stderr
from tui.commands.support.parser import make_parser
from tui.settings.options import ConsoleOptions
from tui.settings.served_kinds import open_mirror
from tui.tables.column import Values, values_of
from tui.tables.nodes import COLUMNS, NodesNow
from tui.text.format import NOTHING, Clock, memory
from tui.text.gpu_links import link_lines, place_line, schedule_line, version_fields

OF_JOBS = "For jobs, use gpuconsole get or gpuconsole why."
_NODE = ("node", "nodes", "no")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the node, as `node NAME` or `node/NAME`, or the job."""
    words = "a job; or node NODE, also node/NODE"
    parser.add_argument("words", metavar="JOB | node NODE", nargs="+", help=words)
    add_format(parser, ("text", "json", "yaml"))


async def run(options: ConsoleOptions, flags: argparse.Namespace) -> int:
    """Print one node; if its links cannot be read, print the rest and the reason on stderr."""
    if flags.words[0].partition("/")[0] not in _NODE:
        name = "/".join(flags.words)  # `describe pytorchjob bert`, as kubectl has it
        form = "table" if flags.output == "text" else flags.output
        return await get.run(options, make_parser().parse_args(["get", name, "-o", form]))
    name = node_name(flags.words)
    async with cluster(options) as client:
        snapshot = await open_mirror(options, client).read_once()
        node = find_node(snapshot, name)
        matrix, why = await _links(client, node)
    if flags.output in ("json", "yaml"):
        write_object({**described(node, matrix), "links_missing": why}, flags.output)
        return 0
    _print(node)
    if matrix is not None:
        write("")
        for line in link_lines(node, matrix):
            write(line)
    elif why:
        write_stderr(f"\n{why}")
    return 0


def node_name(words: list[str]) -> str:
    """Return the name of the requested node.

    Raises:
        KubeError: The arguments do not name a node.
    """
    match [word for each in words for word in each.split("/", 1)]:
        case [kind, name] if kind in _NODE and name:
            return name
    raise KubeError(f"{' '.join(words)} is not a node.", "Use node NODE or node/NODE.", OF_JOBS)


def find_node(snapshot: ClusterSnapshot, name: str) -> NodeRow:
    """Return a node by name.

    Raises:
        NotFound: The node does not exist, or nodes may not be listed.
    """
    found = next((node for node in snapshot.nodes if node.name == name), None)
    if found is None:
        why = next((each.words for each in snapshot.missing_gpus if each.resource == "nodes"), "")
        if why:
            raise NotFound(f"Cannot tell whether there is a node {name}.", why)
        raise NotFound(f"There is no node {name}.", hint="To list all nodes: gpuconsole top nodes")
    return found


async def _links(client: Client, node: NodeRow) -> tuple[LinkMatrix | None, str]:
    if not node.gpus_total and node.shared is None:
        return None, ""
    try:
        return await fetch_links(client, node, client.config.namespace), ""
    except KubeError as error:
        return None, str(error)


def described(node: NodeRow, matrix: LinkMatrix | None) -> Values:
    """Return a node as `describe node -o json` prints it; bandwidths are in GB/s, one way."""
    return {
        **values_of(node, NodesNow(Clock.ahead(0)), COLUMNS),
        "versions": dict(node.versions),
        "schedule": node.schedule,
        "network": {name: value for (name, _), value in zip(LEVELS, node.network, strict=False) if value},
        "links": _link_values(node, matrix) if matrix is not None else None,
    }


def _link_values(node: NodeRow, matrix: LinkMatrix) -> Values:
    free = free_gpus(node, matrix)
    return {
        "source": matrix.source,
        "bandwidth_source": matrix.bandwidth_source,
        "is_measured": matrix.is_measured,
        "gpus": list(matrix.gpus),
        "matrix": [list(row) for row in matrix.links],
        "bandwidth_gb_s": [list(row) for row in matrix.bandwidth],
        "cpus": list(matrix.cpus),
        "numa": list(matrix.numa),
        "nics": list(matrix.nics),
        "nic_links": [list(row) for row in matrix.nic_links],
        "groups": [
            {"title": each.title, "gpus": [list(group) for group in each.groups]}
            for each in groups_of(matrix)
        ],
        "free_gpus": None if free is None else list(free),
        "best_sets": [_set_values(each) for each in best_sets(node, matrix)],
    }


def _set_values(found: GpuSet) -> Values:
    return {
        "gpus": list(found.gpus),
        "link": found.link,
        "bottleneck_gb_s": None if math.isinf(found.bottleneck) else found.bottleneck,
        "total_gb_s": found.total,
    }


def _print(node: NodeRow) -> None:
    is_unsaid = node.is_simulated and "simulated" not in node.gpu_model
    model = f"{node.gpu_model or 'GPUs'}{' (simulated)' * is_unsaid}"
    sums = [f"{total} {what}" for _, total, what in device_sums([node])]
    gpus = f"{node.gpus_total} {model}"
    if node.parts:
        gpus = ", ".join([*sums, model] if node.gpu_model else sums)
    write_fields(
        (
            ("Name", node.name),
            ("Address", node.ip),
            ("Roles", ", ".join(node.roles)),
            ("Status", node.status),
            ("Trouble", node.trouble),
            ("GPUs", gpus if node.gpus_total else "none"),
            ("Not counted", ", ".join(node.uncounted)),
            ("GPU memory", memory(node.gpu_memory) if node.gpu_memory else ""),
            ("Allocated", format_sums([node], is_short=True) if node.gpus_total else ""),
            ("Unhealthy", str(node.gpus_unhealthy) if node.gpus_unhealthy else ""),
            ("Held by", ", ".join(f"{job} {amount}" for _, job, amount in node.jobs) or NOTHING),
            ("Mode", node.mode),
            ("Schedule", schedule_line(node)),
            ("Network", place_line(node)),
            *version_fields(node),
        )
    )
