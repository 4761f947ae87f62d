"""torchrun for a pod: ends with the exit status of what happened, and says it in a line.

    python -P -m trainer.launch --nproc-per-node 2 -m trainer.train_ddp --epochs 3

Takes torchrun's arguments and PET_* variables. The ranks' own output is left as it is.
"""

import logging
import os
import signal
import sys
from types import FrameType

from trainer.messages import port_in_use
from trainer.signals import LAUNCHER_PID_VARIABLE, SIGNALS, StopRequest

_TALKATIVE = ("run", "elastic.agent.server.api", "elastic.multiprocessing.api")
"""Modules of torch.distributed that announce what is said here, or what a rank settles itself."""

_OWN_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
"""With it each start of the ranks gets a store of its own; in a shared one they find those that are gone.
Source: pytorch/pytorch#135712."""


def main() -> int:
    """Run torchrun's own `main` in this process; returns the exit status."""
    StopRequest().exit_on_signal("before the ranks were started")
    from torch.distributed import DistError, run
    from torch.distributed.elastic.multiprocessing import api
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
    from torch.distributed.elastic.rendezvous import RendezvousError

    def pass_on(signum: int, frame: FrameType | None) -> None:
        """Stop the ranks with the first signal; a second one would only tear the agent from them."""
        for each in SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        raise api.SignalException("asked to stop", signal.Signals(signum))

    def age(failure: ProcessFailure) -> tuple[bool, int, bool]:
        """Sort by second, who was killed before who noticed it; last those that were asked to stop."""
        was_asked = failure.exitcode in asked_statuses
        return was_asked, failure.timestamp, failure.exitcode >= 0

    asked_statuses = {status for number in SIGNALS for status in (128 + number, -number)}
    api._terminate_process_handler = pass_on
    for name in _TALKATIVE:
        logging.getLogger(f"torch.distributed.{name}").setLevel(logging.CRITICAL)
    os.environ |= {LAUNCHER_PID_VARIABLE: str(os.getpid()), "PYTHONSAFEPATH": "1"}
    os.environ.setdefault(_OWN_STORE, "1")
    try:
        run.main(sys.argv[1:])
    except api.SignalException as asked:
        return 128 + asked.sigval
    except ChildFailedError as error:
        status = min(error.failures.values(), key=age).exitcode
        return _report([rank for rank, each in error.failures.items() if each.exitcode == status], status)
    except (RendezvousError, DistError) as error:
        taken = port_in_use(error)
        if taken:
            print(f"error: {taken}", file=sys.stderr)
            return taken.exit_status
        print(
            f"error: The pods of this job did not find each other. {str(error).splitlines()[0]}",
            file=sys.stderr,
        )
        return 1
    return 0


def _report(ranks: list[int], status: int) -> int:
    """Say how the ranks that failed first ended, below zero by a signal; returns the status to end with."""
    who = f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"
    how = f"exit status {status}" if status > 0 else signal.Signals(-status).name
    print(f"launcher: {who} ended with {how}", file=sys.stderr, flush=True)
    return status if status > 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
