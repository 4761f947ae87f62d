"""torchrun for a pod: reports in one line which rank failed first, and exits with its status.

Takes torchrun's arguments and PET_* variables. The output of the ranks is unchanged.
"""

import logging
import os
import signal
import sys
from types import FrameType

from trainer.messages import TrainingError, port_in_use
from trainer.signals import LAUNCHER_PID_VARIABLE, SIGNALS, StopRequest

# Modules of torch.distributed that log what is reported here, or what a rank handles itself.
_TALKATIVE = ("run", "elastic.agent.server.api", "elastic.multiprocessing.api")

# Gives each restart of the ranks a store of its own; in a shared one they find the ranks that are gone.
# Source: pytorch/pytorch#135712.
_OWN_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"


def main() -> int:
    """Run torchrun's own `main` in this process, and return the exit status."""
    StopRequest().exit_on_signal("before the ranks were started")
    from torch.distributed import DistError, run
    from torch.distributed.elastic.multiprocessing import api
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
    from torch.distributed.elastic.rendezvous import RendezvousError

    def pass_on(signum: int, frame: FrameType | None) -> None:
        """Stop the ranks at the first signal; a second one would only tear the agent from them."""
        for each in SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        raise api.SignalException("asked to stop", signal.Signals(signum))

    def age(failure: ProcessFailure) -> tuple[bool, int, bool]:
        """Sort by second, then killed ranks before those that noticed; ranks asked to stop are last."""
        was_asked = failure.exitcode in asked_statuses
        return was_asked, failure.timestamp, failure.exitcode >= 0

    asked_statuses = {status for number in SIGNALS for status in (128 + number, -number)}
    api._terminate_process_handler = pass_on
    for name in _TALKATIVE:
        logging.getLogger(f"torch.distributed.{name}").setLevel(logging.CRITICAL)
    os.environ |= {LAUNCHER_PID_VARIABLE: str(os.getpid()), "PYTHONSAFEPATH": "1"}
    os.environ.setdefault(_OWN_STORE, "1")
    # By itself torchrun dies of a SIGHUP under nohup too.
    os.environ.setdefault("PET_SIGNALS_TO_HANDLE", ",".join(each.name for each in (*SIGNALS, signal.SIGQUIT)))
    try:
        run.main(sys.argv[1:])
    except api.SignalException as asked:
        return 128 + asked.sigval
    except ChildFailedError as error:
        status = min(error.failures.values(), key=age).exitcode
        return _report([rank for rank, each in error.failures.items() if each.exitcode == status], status)
    except (RendezvousError, DistError) as error:
        first = str(error).splitlines()[0]
        reason = port_in_use(error) or TrainingError("The pods of this job did not find each other.", first)
        print(f"error: {reason}", file=sys.stderr)
        return reason.exit_status
    return 0


def _report(ranks: list[int], status: int) -> int:
    """Log the ranks that failed first; a negative status is a signal. Returns the status to exit with."""
    who = f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"
    how = f"exit status {status}" if status > 0 else signal.Signals(-status).name
    print(f"launcher: {who} ended with {how}", file=sys.stderr, flush=True)
    return status if status > 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
