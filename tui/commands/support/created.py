"""What came to be beside a job, said as kubectl says it."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from k8s.jobs.companions import Companion
from tui.commands.support.output import write


def write_companions(companions: Iterable[Companion], words: str, used: Collection[Companion] = ()) -> None:
    """Print a line for each: `service/bert created`.

    Args:
        companions: What came along; of what is optional it is not known whether it was created.
        words: What became of them.
        used: Those that were there already.
    """
    for companion in companions:
        if companion.is_optional:
            continue
        resource, name = companion.resource, companion.manifest["metadata"]["name"]
        full_kind = ".".join(filter(None, (resource.kind.lower(), resource.group)))
        write(f"{full_kind}/{name} {'used, it is there already' if companion in used else words}")
