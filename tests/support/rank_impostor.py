"""Another account of this machine that joins a job's store as rank 1 and sends a pickle which runs a command.

Arguments: the port of the store, the file that the command writes, and how many objects to receive before.
Prints `joined` once it is in the process group.
"""

import os
import sys
from datetime import timedelta
from typing import Any

import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

NOBODY = 65534


class Command:
    """An object whose pickle runs a command wherever it is read."""

    def __init__(self, file: str) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, (f"id -u > {self.file}",)


def main(port: int, file: str, receives: int) -> None:
    if os.geteuid() == 0:  # after the imports: torch may lie where this account cannot read
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    wait = timedelta(seconds=60)
    shared = vars(dist)["TCPStore"]("127.0.0.1", port, 2, False, wait)
    store = c10d.PrefixStore("attempt_0", shared)
    store.set("here/1", "cpu")
    dist.init_process_group(
        "gloo", store=c10d.PrefixStore("default_pg", store), rank=1, world_size=2, timeout=wait
    )
    print("joined", flush=True)
    vars(c10d)["_unpickler"] = lambda _file: Nothing()  # it must not run its own command
    for _ in range(receives):
        dist.broadcast_object_list([None], src=0)
    dist.all_gather_object([None, None], Command(file))


class Nothing:
    def load(self) -> None:
        """Return nothing."""


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
