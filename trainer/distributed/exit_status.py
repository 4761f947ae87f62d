"""What a rank says when its work fails, and the exit status it ends with."""

import os
import sys
from collections.abc import Callable
from signal import Signals

import torch

from trainer.distributed.process_group import is_lost_rank
from trainer.messages import Stopped, TrainingError, first_line, log, log_error
from trainer.signals import StopRequest


def run_to_exit_status(work: Callable[[], None], stop: StopRequest, *, memory_full: str) -> int:
    """Do the work of a rank; returns the exit status, and has said in one line why it is not 0.

    Args:
        work: Raises `TrainingError` for what the user can act on.
        stop: Whether somebody asked to stop meanwhile.
        memory_full: What to do when the memory is full, as a sentence.
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
        log_error(f"error: The GPU's memory is full. {first_line(error)}. Choose a smaller --batch-size.")
        return 1
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        log_error("error: Nobody reads the output any more.")
        return 1
    except MemoryError:
        log_error(f"error: The memory is full. {memory_full}")
        return 1
    except RuntimeError as error:
        if "allocate memory" in str(error):
            log_error(f"error: The memory is full. {memory_full}")
            return 1
        if _is_of_compiler(error):
            log_error(f"error: torch.compile failed. {_compilers_words(error)}. Use --compile off.")
            return 1
        if not is_lost_rank(error):
            raise
        if stop.signal:
            log(f"Stopped by {Signals(stop.signal).name}; another rank went first, so nothing new was saved.")
            return 128 + stop.signal
        log_error(
            f"error: Another rank of the job is gone, so this one stops ({first_line(error)})."
            " Look for the first error in the other ranks' logs."
        )
        return 1
    return 0


def _is_of_compiler(error: RuntimeError) -> bool:
    """Say whether torch.compile raised it; its classes are imported with the compiler alone."""
    return any(each.__name__ == "TorchDynamoException" for each in type(error).__mro__)


def _compilers_words(error: RuntimeError) -> str:
    """Return the line in which a C or C++ compiler says what is wrong, else the first one."""
    lines = [line.strip() for line in str(error).splitlines()]
    return next((line for line in lines if " error: " in f" {line}"), first_line(error)).removesuffix(".")
