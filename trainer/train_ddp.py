"""Train an image classifier with DistributedDataParallel.

    python -P -m trainer.train_ddp --epochs 1                       alone
    python -P -m trainer.launch --nproc-per-node 2 -m trainer.train_ddp    two processes here
    RANK=0 WORLD_SIZE=2 MASTER_ADDR=... python -P -m trainer.train_ddp    as an operator starts it

Arguments: `trainer.catalogue`. Writes event files, checkpoints, and lines of progress from every rank.
"""

import os
import sys

from trainer.catalogue import find
from trainer.signals import StopRequest, stop_when_launcher_dies


def main() -> int:
    """Train as the command line says; returns the exit status.

    torch takes seconds to import, so signals and wrong arguments are answered first.
    """
    stop = StopRequest()
    stop.exit_on_signal("before training began; there is nothing new to save")
    stop_when_launcher_dies()
    arguments = find("ddp").parser().parse_args()
    from trainer.ddp.run import run

    return run(arguments, stop)


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # all is saved; taking torch's threads down may abort the process
