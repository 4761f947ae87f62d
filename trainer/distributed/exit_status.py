"""Error lines and exit statuses of a rank."""

import os
import sys
from collections.abc import Callable
from signal import Signals

import torch

from trainer.distributed.process_group import is_lost_rank
from trainer.messages import Stopped, TrainingError, first_line, log, log_error
from trainer.signals import StopRequest


def run_to_exit_status(work: Callable[[], None], stop: StopRequest, *, memory_full: str) -> int:
    """Do the work of a rank and return its exit status; if that is not 0, the reason is logged in one line.

    Args:
        work: Raises `TrainingError` for failures that the user can act on.
        stop: Tells whether a signal came meanwhile.
        memory_full: Advice if the memory is full, as a sentence.
    """
    try:
        work()
    except Stopped as stopped:
        log(str(stopped))
        return stopped.exit_status
    except TrainingError as error:
        log_error(f"error: {error}")
        return error.exit_status
    except torch.OutOfMemoryError as error:
        reason = f"The GPU's memory is full. {first_line(error)}. Choose a smaller --batch-size."
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        reason = "The reader of the output has closed it."
    except MemoryError:
        reason = f"The memory is full. {memory_full}"
    except RuntimeError as error:
        if "allocate memory" in str(error):
            reason = f"The memory is full. {memory_full}"
        elif any(each.__name__ == "TorchDynamoException" for each in type(error).__mro__):
            reason = f"torch.compile failed. {_compiler_message(error)}. Use --compile off."
        elif not is_lost_rank(error):
            raise
        elif stop.signal:
            name = Signals(stop.signal).name
            log(f"Stopped by {name}; another rank went first, so nothing new was saved.")
            return 128 + stop.signal
        else:
            reason = (
                f"Another rank of the job is gone, so this one stops ({first_line(error)})."
                " Look for the first error in the other ranks' logs."
            )
    else:
        return 0
    log_error(f"error: {reason}")
    return 1


def _compiler_message(error: RuntimeError) -> str:
    lines = [line.strip() for line in str(error).splitlines()]
    return next((line for line in lines if " error: " in f" {line}"), first_line(error)).removesuffix(".")
