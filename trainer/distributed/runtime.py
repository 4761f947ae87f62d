"""Device, threads, memory and torchvision of a rank, and its exit status."""

import ctypes
import importlib
import os
import sys
from collections.abc import Callable
from signal import Signals
from types import ModuleType

import torch
from torch.distributed import DistError

from trainer.messages import Stopped, TooFewGpus, TrainingError, first_line, log, log_error
from trainer.ranks import Ranks
from trainer.signals import StopRequest

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # source: <malloc.h>
_KEPT_BYTES, _LARGEST_MMAP_THRESHOLD = 1 << 30, 32 << 20
_shims: list[torch.library.Library] = []


def choose_device(name: str, ranks: Ranks) -> torch.device:
    """Return this rank's device: the GPU of its local rank, or the CPU."""
    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        now = "Ask for a GPU, or use --device auto."
        raise TooFewGpus("--device cuda: torch finds no GPU here.", now=now)
    gpus = torch.cuda.device_count()
    if ranks.local_world_size > gpus:  # all of them say so: those with a GPU would wait for the others
        there = "is only 1 GPU" if gpus == 1 else f"are only {gpus} GPUs"
        why = "Each needs one of its own."
        now = "Start as many processes as there are GPUs, or use --device cpu."
        raise TooFewGpus(f"The job has {ranks.local_world_size} processes here, but there {there}.", why, now)
    device = torch.device("cuda", ranks.local_rank)
    torch.cuda.set_device(device)
    return device


def set_threads(ranks: Ranks) -> int:
    """Give this rank its share of the cores and return its number of threads.

    OMP_NUM_THREADS counts if the user set it, but not the 1 that torchrun sets by itself.
    """
    omp_threads = os.environ.get("OMP_NUM_THREADS", "")
    by_torchrun = ranks.launcher == "torchrun" and ranks.local_world_size > 1 and omp_threads == "1"
    chosen = int(omp_threads) if omp_threads.isdigit() and not by_torchrun else 0
    threads = chosen or max(1, _cores() // ranks.local_world_size)
    torch.set_num_threads(threads)
    return threads


def retain_freed_memory() -> None:
    """Have glibc keep up to `_KEPT_BYTES` that a step frees, for the next one.

    Otherwise the kernel takes large blocks and must clear each page again: a tenth of a step of resnet18.
    """
    library = ctypes.CDLL(None)
    if sys.platform == "linux" and hasattr(library, "gnu_get_libc_version"):
        library.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        library.mallopt(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)


def _cores() -> int:
    """Return the cores this process may use, by its affinity and the limit of its container."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        with open("/sys/fs/cgroup/cpu.max") as limit:
            quota, period = limit.read().split()
        return min(cores, max(1, int(quota) // int(period)))
    except (OSError, ValueError):
        return cores


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


def import_torchvision(part: str, without: str) -> ModuleType:
    """Import `torchvision.<part>`, even if its compiled operators do not load.

    Under a torch without CUDA, the import of PyPI's wheels fails when it registers shapes for two of them;
    with both declared, the Python parts work. `without` is the argument that avoids torchvision.
    """
    try:
        return importlib.import_module(f"torchvision.{part}")
    except ModuleNotFoundError as error:
        now = f"Install gpuconsole[trainer], or use {without}."
        raise TrainingError("torchvision is not installed.", f"{error}.", now) from error
    except RuntimeError as error:
        if "torchvision::nms does not exist" not in str(error):
            raise
    declared = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
    _shims.append(declared)
    for operator in ("nms", "qnms"):
        schema = f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        declared.define(schema)  # type: ignore[no-untyped-call]
    return importlib.import_module(f"torchvision.{part}")
