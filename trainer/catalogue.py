"""What can be launched: the trainers this project brings, and the arguments each one takes.

The console's forms and the trainers' own command lines are both made from here.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn


class UnknownName(LookupError):
    """No trainer, or no argument of a trainer, has this name; the message lists those there are."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One thing the user can choose."""

    name: str
    """As typed after `--`: "batch-size"."""
    default: str | int | float | bool
    """Used when the user chooses nothing; its type is the argument's type. A bool argument takes no value."""
    unit: str
    """What a number counts: "images", "s"; "" where there is none."""
    words: str
    """What it does, in one sentence without a full stop."""
    choices: tuple[str, ...] = ()
    """The values allowed; empty when any will do."""
    least: float | None = None
    """The smallest number allowed."""
    most: float | None = None
    """The largest number allowed."""

    @property
    def flag(self) -> str:
        """The name as typed on a command line: `--batch-size`."""
        return f"--{self.name}"

    def read(self, text: str) -> str | int | float:
        """Turn what the user typed into a value of the argument's type.

        Raises:
            ValueError: It is not such a value; the message says what is expected.
        """
        if self.choices and text not in self.choices:
            raise ValueError(f"{text!r} is none of {', '.join(self.choices)}")
        value: str | int | float = text
        if isinstance(self.default, int | float):
            whole = isinstance(self.default, int)
            try:
                value = int(text) if whole else float(text)
            except ValueError:
                raise ValueError(f"{text!r} is not a {'whole ' if whole else ''}number") from None
            if self.least is not None and not value >= self.least:
                raise ValueError(f"{text} is not {self.least:g} or more")
            if self.most is not None and not value <= self.most:
                raise ValueError(f"{text} is not {_number(self.most)} or less")
        return value

    @property
    def bounds(self) -> str:
        """What a number may be, as `1 to 1000000`; "" for what is no number."""
        if self.least is None or self.most is None:
            return ""
        return f"{_number(self.least)} to {_number(self.most)}"


@dataclass(frozen=True, slots=True)
class Trainer:
    """One program that trains, and how to start it."""

    name: str
    """What the user calls it: "ddp"."""
    title: str
    """What it does, in a few words."""
    module: str
    """What `python -m` runs."""
    arguments: tuple[Argument, ...] = field(repr=False)
    """In the order a form shows them."""
    conflict: Callable[[argparse.Namespace], str] = field(default=lambda _: "", repr=False)
    """Says which arguments do not go together, as argparse would; "" where all do."""

    def argument(self, name: str) -> Argument:
        """Look up an argument.

        Raises:
            UnknownName: There is none of this name.
        """
        for argument in self.arguments:
            if argument.name == name:
                return argument
        names = ", ".join(argument.name for argument in self.arguments)
        raise UnknownName(f"The trainer {self.name} has no argument {name!r}. It has: {names}.")

    def command(self, arguments: Mapping[str, str] | Sequence[str] = ()) -> list[str]:
        """Make the command of a pod that runs this trainer under torchrun.

        The number of nodes and processes, the node's rank and the master come
        from the pod's PET_* variables. `-P` keeps the working directory out of
        the import path: a `trainer.py` there is not run instead.

        `arguments` are the words after the command, or values by name, where a bool
        argument is "true" or "false".

        Raises:
            UnknownName: A name is not an argument's.
            ValueError: A value is not one the argument takes.
        """
        words = self._words(arguments) if isinstance(arguments, Mapping) else list(arguments)
        return ["python", "-P", "-m", "trainer.launch", "-m", self.module, *words]

    def _words(self, values: Mapping[str, str]) -> list[str]:
        words = []
        for name, text in values.items():
            argument = self.argument(name)
            if isinstance(argument.default, bool):
                if text not in ("true", "false"):
                    raise ValueError(f"{argument.flag}: {text!r} is neither true nor false")
                words += [argument.flag] if text == "true" else []
                continue
            try:
                argument.read(text)
            except ValueError as error:
                raise ValueError(f"{argument.flag}: {error}") from None
            words += [f"{argument.flag}={text}"] if text.startswith("-") else [argument.flag, text]
        return words

    def parser(self) -> argparse.ArgumentParser:
        """Make the parser of the trainer's own command line.

        What it cannot read ends the process with status 2 and one line on stderr.
        """
        parser = _TrainerParser(prog=f"python -m {self.module}", description=self.title, allow_abbrev=False)
        parser.conflict = self.conflict
        for argument in self.arguments:
            words = argument.words.replace("%", "%%")
            if isinstance(argument.default, bool):
                parser.add_argument(argument.flag, action="store_true", help=words)
                continue
            unit = f" {argument.unit}" if argument.unit else ""
            bounds = f"; {argument.bounds}" if argument.bounds else ""
            parser.add_argument(
                argument.flag,
                type=_argparse_type(argument),
                default=argument.default,
                metavar="|".join(argument.choices) or argument.name.upper().replace("-", "_"),
                help=f"{words} (default: {argument.default or 'none'}{unit}{bounds})",
            )
        return parser


class _TrainerParser(argparse.ArgumentParser):
    """A parser that complains in one line: in a job's log a usage text for each rank hides the reason."""

    conflict: Callable[[argparse.Namespace], str]

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: None = None
    ) -> argparse.Namespace:
        parsed = super().parse_args(args, namespace)
        words = self.conflict(parsed)
        if words:
            self.error(words)
        return parsed

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message}. See {self.prog} --help.\n")


def _argparse_type(argument: Argument) -> Callable[[str], str | int | float]:
    """Return the `type` that argparse takes for `argument`; what is wrong is said in its words."""

    def read(text: str) -> str | int | float:
        try:
            return argument.read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


def _number(number: float) -> str:
    """Write a bound as one types it: whole numbers with all their digits while these are few."""
    return str(number) if isinstance(number, int) else f"{number:g}"


DATASETS = ("digits", "mnist")
"""`digits` is drawn by the trainer itself; `mnist` is read from files."""

MODELS = ("cnn", "resnet18", "resnet34", "resnet50", "mobilenet_v3_small")
"""`cnn` is the trainer's own; the others are torchvision's."""

DEVICES = ("auto", "cpu", "cuda")
"""Where to compute."""

RESUME_MODES = ("auto", "never", "must")
"""What to do about checkpoints that are there already."""

WHEN_FULL = ("stop", "continue")
"""What to do when the disk of the checkpoints is full."""

_DDP_ARGUMENTS = (
    Argument(
        "dataset", "digits", "", "What to learn: digits drawn on the spot, or MNIST from --data", DATASETS
    ),
    Argument("data", "mnist", "", "Folder with MNIST's four files (dataset mnist)"),
    Argument("download", False, "", "Fetch MNIST into --data if it is not there"),
    Argument("model", "cnn", "", "The network: a small one of our own, or one of torchvision's", MODELS),
    Argument("epochs", 5, "epochs", "How often to go through the training images", least=1, most=1_000_000),
    Argument("batch-size", 32, "images", "Images in a step of one process", least=1, most=1_000_000),
    Argument(
        "lr", 0.003, "", "Highest learning rate; it rises at the start and falls to zero", least=0, most=1e30
    ),
    Argument("weight-decay", 0.01, "", "How strongly AdamW pulls weights to zero", least=0, most=100),
    Argument(
        "train-images",
        12_000,
        "images",
        "Digits to draw for training (dataset digits)",
        least=1,
        most=1_000_000,
    ),
    Argument(
        "val-images",
        2_000,
        "images",
        "Digits to draw for validation (dataset digits)",
        least=1,
        most=1_000_000,
    ),
    Argument(
        "seed",
        1,
        "",
        "Start of every random sequence; the same seed trains the same way",
        least=0,
        most=4_294_967_295,
    ),
    Argument("device", "auto", "", "Where to compute; auto takes a GPU if there is one", DEVICES),
    Argument("precision", "fp32", "", "Numbers to compute with; bf16 is for GPUs", ("fp32", "bf16")),
    Argument("log-dir", "logs", "", "Folder for the event files, written by rank 0"),
    Argument("log-every", 10, "steps", "Steps between two lines of progress", least=1, most=1_000_000_000),
    Argument("checkpoint-dir", "checkpoints", "", "Folder for checkpoints, written and read by rank 0"),
    Argument("keep", 2, "checkpoints", "How many of the newest checkpoints to keep", least=1, most=1_000_000),
    Argument(
        "resume",
        "auto",
        "",
        "Go on from the newest checkpoint: if there is one, never, or fail;"
        " never moves the checkpoints that are there to a folder old-N beside them",
        RESUME_MODES,
    ),
    Argument(
        "on-full-disk",
        "stop",
        "",
        "When a checkpoint finds no room on its disk: stop, or train on and try again with the next",
        WHEN_FULL,
    ),
    Argument(
        "wait-for-others",
        300,
        "s",
        "How long a process waits for the others before training",
        least=1,
        most=604_800,
    ),
)


def _ddp_conflict(arguments: argparse.Namespace) -> str:
    if arguments.batch_size == 1 and arguments.model != "cnn":
        return (
            f"argument --batch-size: 1 is not 2 or more, which --model {arguments.model} needs"
            " (it normalizes over the images of a step)"
        )
    return ""


TRAINERS: tuple[Trainer, ...] = (
    Trainer(
        "ddp",
        "Train an image classifier with DistributedDataParallel",
        "trainer.train_ddp",
        _DDP_ARGUMENTS,
        _ddp_conflict,
    ),
)
"""Every trainer, in the order a form shows them."""


def find(name: str) -> Trainer:
    """Look up a trainer.

    Raises:
        UnknownName: There is none of this name.
    """
    for trainer in TRAINERS:
        if trainer.name == name:
            return trainer
    raise UnknownName(f"There is no trainer {name!r}. There is: {', '.join(each.name for each in TRAINERS)}.")
