"""`label node NODE ack.node.gpu.schedule=topology`: set a node's GPU scheduling mode (Alibaba Cloud)."""

from __future__ import annotations

import argparse

from k8s.cluster.cluster_mirror import ClusterMirror
from k8s.gpus.ack import SCHEDULE_LABEL, VALUES, describe_schedule, set_schedule
from tui.commands.describe import find_node, node_name
from tui.commands.support.connect import check_may_change, cluster, namespace_in_use
from tui.commands.support.output import (
    WrongUsage,
    add_yes,
    check_can_confirm,
    is_confirmed,
    write,
    write_stderr,
)
from tui.settings.options import ConsoleOptions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the node and the label."""
    parser.add_argument("words", metavar="node NODE", nargs="+", help="the node; also node/NODE")
    parser.add_argument(
        "label", metavar="LABEL", help=" or ".join(f"{SCHEDULE_LABEL}={value}" for value in VALUES)
    )
    parser.add_argument("--overwrite", action="store_true", help="change the label where it is already set")
    add_yes(parser)


async def run(options: ConsoleOptions, flags: argparse.Namespace) -> int:
    """Set the label after confirmation."""
    name, value = node_name(flags.words), _value(flags.label)
    check_may_change(options, f"label node {name}")
    check_can_confirm(flags, "label")
    async with cluster(options) as client:
        snapshot = await ClusterMirror(client, namespace_in_use(options, client)).read_once()
        node = find_node(snapshot, name)
        if node.schedule == value:
            write(f"Node {name} has {SCHEDULE_LABEL}={value} already.")
            return 0
        if node.schedule and not flags.overwrite:
            raise WrongUsage(
                f"Node {name} has {SCHEDULE_LABEL}={node.schedule}: pass --overwrite to change it."
            )
        if not flags.yes:
            write_stderr("\n".join(describe_schedule(node, value)))
        if not is_confirmed(flags, f"Label node {name}?"):
            return 1
        await set_schedule(client, name, value)
    write(f"Node {name} is labelled {SCHEDULE_LABEL}={value}.")
    return 0


def _value(label: str) -> str:
    key, _, value = label.partition("=")
    if key != SCHEDULE_LABEL or value not in VALUES:
        known = " or ".join(f"{SCHEDULE_LABEL}={each}" for each in VALUES)
        raise WrongUsage(f"Only {known} can be set here; for {label} use kubectl label.")
    return value
