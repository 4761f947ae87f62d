"""Error lines and exit statuses of a rank."""

import os
import sys
from collections.abc import Callable
from signal import Signals

import torch
from torch.distributed import DistError

from trainer.messages import Stopped, TrainingError, first_line, log, log_error
from trainer.signals import StopRequest


def run_to_exit_status(work: Callable[[], None], stop: StopRequest, *, memory_full: str) -> int:
    """Do the work of a rank and return its exit status; logs the reason, with advice if `memory_full`."""
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
        elif not (isinstance(error, DistError) or ("gloo" in str(error) and "onnect" in str(error))):
            raise  # not the loss of another rank
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
