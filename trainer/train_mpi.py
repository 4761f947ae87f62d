"""Measure training throughput on synthetic images, with the arguments and output of Horovod's benchmark.

    mpirun --tag-output -np 4 python -P -m trainer.train_mpi --model vgg16 --batch-size 64
    python -P -m trainer.train_mpi --model tiny --num-iters 3        one process

Rank 0 prints the figures; with --log-dir it also writes event files, with --json a file for programs.
"""

import os
import sys

from trainer import debuggable
from trainer.catalogue import find
from trainer.signals import StopRequest, stop_when_launcher_dies


def main() -> int:
    """Run the benchmark that the command line asks for, and return the exit status."""
    stop = StopRequest()
    stop.exit_on_signal("before the benchmark was done; nothing of it is saved")
    stop_when_launcher_dies()
    debuggable.arm()
    arguments = find("mpi").parser().parse_args()
    from trainer.benchmark.run import run

    return run(arguments, stop)


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # the figures are out; taking torch's threads down may abort the process
