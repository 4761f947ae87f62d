"""Whole runs of the trainer, each rank a fork of one process: `python -m tests.trainer.ddp.forked_runs`."""

import importlib.util
import multiprocessing
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
import torch._dynamo  # else each process imports it again

from tests.trainer.jobs import free_port
from trainer.catalogue import find
from trainer.distributed.torchvision import import_torchvision
from trainer.signals import StopRequest
from trainer.train_ddp import run

HAS_TORCHVISION = importlib.util.find_spec("torchvision") is not None
"""True if there is a network with batch normalization."""
STOPPED_AT = 6
"""The step after which runs are stopped, in the middle of the first epoch."""

GPT = [
    *("--model", "gpt", "--dataset", "sequences", "--train-images", "40", "--val-images", "5"),
    *("--sequence-length", "16", "--vocabulary", "32", "--layers", "2", "--heads", "2", "--width", "16"),
    *("--epochs", "2", "--log-every", "100", "--clip-norm", "0.5", "--accumulate", "2"),
]
NORMED = [
    *("--model", "shufflenet_v2_x0_5", "--train-images", "64", "--val-images", "21", "--epochs", "2"),
    *("--batch-size", "8", "--test-batch-size", "4", "--log-every", "2", "--save-path", "weights.pt"),
]


EQUAL = ["--precision", "fp64", "--epochs", "1", "--log-every", "100", "--test-batch-size", "2"]
IMAGES = [*EQUAL, "--model", "t9k-cnn", "--train-images", "640", "--val-images", "101", "--batch-size"]
TOKENS = [*GPT, *EQUAL, "--train-images", "160", "--accumulate", "1", "--batch-size"]


@dataclass(frozen=True)
class Case:
    """Ranks that train together in a folder."""

    ranks: int
    words: list[str]
    is_stopped: bool = False
    """True if they are stopped on their way, and then started again."""


GPT_CASES = {
    "gpt-1": Case(1, [*GPT, "--batch-size", "2"]),
    "gpt-2": Case(2, [*GPT, "--batch-size", "1", "--accumulate", "2"]),
    "gpt-3": Case(3, [*GPT, "--batch-size", "1", "--accumulate", "1"]),
    "gpt-3-static": Case(3, [*GPT, "--batch-size", "1", "--accumulate", "1", "--static-graph"]),
}
EQUAL_CASES = {
    "images-1": Case(1, [*IMAGES, "32"]),
    "images-2": Case(2, [*IMAGES, "16"]),
    "images-4": Case(4, [*IMAGES, "8"]),
    "images-accumulated": Case(2, [*IMAGES, "4", "--accumulate", "4"]),
    "tokens-1": Case(1, [*TOKENS, "8"]),
    "tokens-2": Case(2, [*TOKENS, "4"]),
}
"""Twenty steps in float64 of the same samples, with different numbers of ranks."""
CASES = {
    **GPT_CASES,
    **{f"{name}-stopped": Case(each.ranks, each.words, is_stopped=True) for name, each in GPT_CASES.items()},
    **EQUAL_CASES,
}
if HAS_TORCHVISION:
    CASES["normed"] = Case(2, NORMED)


class StopAfter(StopRequest):
    """SIGTERM in the middle of the step that the loop asks about as its `steps`-th."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    @property
    def signal(self) -> int:  # type: ignore[override]
        self.left -= 1
        return 0 if self.left else signal.SIGTERM


def train(words: list[str], rank: int, ranks: int, port: str, stop: StopRequest) -> None:
    """Be one rank from its command line to its exit status."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(ranks)}
    status = run(find("ddp").parser().parse_args(words), stop)
    sys.stdout.flush()
    os._exit(status)  # taking torch's threads down in a fork may wait for ever


def start(case: Case, words: list[str], stop_after: int = 0) -> list[int | None]:
    """Run all ranks of a case to their end; returns their exit statuses."""
    forking, port = multiprocessing.get_context("fork"), free_port()
    stops = [StopAfter(stop_after) if stop_after else StopRequest() for _ in range(case.ranks)]
    processes = [
        forking.Process(target=train, args=(words, rank, case.ranks, port, stop))
        for rank, stop in enumerate(stops)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return [process.exitcode for process in processes]


def main() -> str | None:
    """Run all cases, each in a folder of its name; returns which ended otherwise than it should."""
    torch.set_num_threads(1)
    if HAS_TORCHVISION:
        import_torchvision("models", "")  # once for all, too
    home = Path.cwd()
    for name in CASES:
        case = CASES[name]
        folder = home / name
        folder.mkdir()
        os.chdir(folder)
        if case.is_stopped and set(start(case, case.words, STOPPED_AT)) != {128 + signal.SIGTERM}:
            return f"{name} was not stopped"
        words = [*case.words, "--resume", "must"] if case.is_stopped else case.words
        if set(start(case, words)) != {0}:
            return f"{name} has failed"
    return None


if __name__ == "__main__":
    sys.exit(main())
