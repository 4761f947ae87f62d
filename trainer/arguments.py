"""What a trainer is to those who start it: its arguments, its command line, and the command of its pods."""

import argparse
import difflib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NoReturn

Launcher = Literal["torchrun", "mpirun"]
"""What starts the ranks of a job."""

MANY_CHOICES = 12
"""More are not listed where one is wrong."""

BACKENDS = ("auto", "nccl", "gloo", "mpi")
"""What carries gradients between ranks."""

_PYTHON = ["python", "-P", "-m"]
_TORCHRUN = [*_PYTHON, "trainer.launch", "-m"]
_MPIRUN = ["mpirun", "--allow-run-as-root", "--tag-output"]
"""Flags of Open MPI 4 and 5; MPICH has neither."""


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
    also: tuple[str, ...] = ()
    """Other names that scripts give it: "logdir"."""
    switches: tuple[tuple[str, str], ...] = ()
    """Flags of scripts that stand for one of its values: ("no-cuda", "cpu")."""

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
            raise ValueError(f"{text!r} is none of {self._likely(text)}")
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

    def _likely(self, text: str) -> str:
        """List the choices; of many, those that are spelt almost like `text`."""
        if len(self.choices) <= MANY_CHOICES:
            return ", ".join(self.choices)
        close = difflib.get_close_matches(text, self.choices)
        return f"the {len(self.choices)} there are" + (
            f"; did you mean {' or '.join(close)}?" if close else ""
        )

    @property
    def bounds(self) -> str:
        """What a number may be, as `1 to 1000000`; "" for what is no number."""
        if self.least is None or self.most is None:
            return ""
        return f"{_number(self.least)} to {_number(self.most)}"


@dataclass(frozen=True, slots=True)
class Implied:
    """What an argument that is given says of another one that is not."""

    given: str
    """The one that is given: "data"."""
    other: str
    """The one that is not: "dataset"."""
    value: str
    """What it then is: "mnist"."""
    where: tuple[str, str] = ("", "")
    """Only where a third one has this value: ("model", "gpt")."""

    def holds(self, words: Sequence[str]) -> bool:
        """Say whether it says something of a command line of the trainer's own flags."""
        values: dict[str, str] = {}
        for word, after in zip(words, [*words, ""][1:], strict=True):
            flag, equals, value = word.partition("=")
            values[flag] = value if equals else after
        name, value = self.where
        return (
            f"--{self.given}" in values
            and f"--{self.other}" not in values
            and (not name or values.get(f"--{name}") == value)
        )


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
    launcher: Launcher = "torchrun"
    """What starts its ranks where a job has both; every trainer runs under either."""
    conflict: Callable[[argparse.Namespace], str] = field(default=lambda _: "", repr=False)
    """Says which arguments do not go together, as argparse would; "" where all do."""

    implied: tuple[Implied, ...] = field(default=(), repr=False)
    """What an argument says of another one that is not given; the first that holds counts."""

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

    def command(
        self,
        arguments: Mapping[str, str] | Sequence[str] = (),
        *,
        launcher: Launcher | None = None,
        ranks: int | None = None,
        variables: Iterable[str] = (),
    ) -> list[str]:
        """Make the command of a pod that starts the ranks of this trainer.

        Under torchrun it is each pod's, and the number of nodes and processes, the
        node's rank and the master come from the pod's PET_* variables. Under mpirun,
        Open MPI's, it is the launcher's alone. `-P` keeps the working directory out of
        the import path: a `trainer.py` there is not run instead.

        Args:
            arguments: The words after the command, or values by name, where a bool
                argument is "true" or "false", and what is not named has its default.
            launcher: What the job has, where that is not the trainer's own.
            ranks: How many mpirun starts; None for all slots of its hostfile.
            variables: Names of those that mpirun takes along to the ranks in other pods.

        Raises:
            UnknownName: A name is not an argument's.
            ValueError: A value is not one the argument takes.
        """
        words = self._words(arguments) if isinstance(arguments, Mapping) else list(arguments)
        if (launcher or self.launcher) == "torchrun":
            return [*_TORCHRUN, self.module, *words]
        number = [] if ranks is None else ["-np", str(ranks)]
        taken = [word for name in variables for word in ("-x", name)]
        return [*_MPIRUN, *number, *taken, *_PYTHON, self.module, *words]

    def words_of(self, command: Sequence[str]) -> list[str] | None:
        """Return what stands behind this trainer in a command that `command` made; None if it is no such."""
        words = list(command)
        for start, end in ((_TORCHRUN, _TORCHRUN), (_MPIRUN, _PYTHON)):
            ends = [*end, self.module]
            behind = next((at for at in range(len(words)) if words[at : at + len(ends)] == ends), None)
            if behind is not None and words[: len(start)] == start:
                return words[behind + len(ends) :]
        return None

    def own_words(self, words: Sequence[str]) -> list[str]:
        """Return a command line with this trainer's own flags in place of what scripts call them.

        So `--log_dir` and `--logdir` become `--log-dir`, and `--no-cuda` becomes `--device cpu`. What
        is no flag of any of them stays. What one argument implies of another is added.
        """
        own = {}
        for argument in self.arguments:
            for name in (argument.name, *argument.also):
                own[f"--{name.replace('-', '_')}"] = [argument.flag]
            for name, value in argument.switches:
                own[f"--{name.replace('-', '_')}"] = [argument.flag, value]
        found: list[str] = []
        for word in words:
            flag, equals, value = word.partition("=")
            known = own.get(f"--{flag[2:].replace('-', '_')}") if flag.startswith("--") else None
            if known is None or (equals and len(known) > 1):
                found.append(word)
            else:
                found += [known[0] + equals + value, *known[1:]]
        for implied in self.implied:
            if implied.holds(found):
                found += [f"--{implied.other}", implied.value]
        return found

    def _words(self, values: Mapping[str, str]) -> list[str]:
        words = []
        chosen = dict(values)
        for implied in self.implied:
            if implied.given in values:
                chosen.setdefault(implied.other, str(self.argument(implied.other).default))
        for name, text in chosen.items():
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
        parser.conflict, parser.own_words = self.conflict, self.own_words
        for argument in self.arguments:
            words = argument.words.replace("%", "%%")
            if isinstance(argument.default, bool):
                parser.add_argument(argument.flag, action="store_true", help=words + _also(argument))
                continue
            unit = f" {argument.unit}" if argument.unit else ""
            bounds = f"; {argument.bounds}" if argument.bounds else ""
            parser.add_argument(
                argument.flag,
                type=_argparse_type(argument),
                default=argument.default,
                metavar=_metavar(argument),
                help=f"{words}{_also(argument)} (default: {argument.default or 'none'}{unit}{bounds})",
            )
        return parser


class _TrainerParser(argparse.ArgumentParser):
    """A parser that complains in one line: in a job's log a usage text for each rank hides the reason."""

    conflict: Callable[[argparse.Namespace], str]
    own_words: Callable[[Sequence[str]], list[str]]

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: None = None
    ) -> argparse.Namespace:
        parsed = super().parse_args(self.own_words(sys.argv[1:] if args is None else args), namespace)
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


def _metavar(argument: Argument) -> str:
    """Return what stands for a value in the usage; many choices have their name there."""
    few = argument.choices if len(argument.choices) <= MANY_CHOICES else ()
    return "|".join(few) or argument.name.upper().replace("-", "_")


def _also(argument: Argument) -> str:
    """Say what else an argument may be called."""
    names = [*(f"--{name}" for name in argument.also)]
    names += [f"--{name} for {value}" for name, value in argument.switches]
    return f"; also {', '.join(names)}" if names else ""


def _number(number: float) -> str:
    """Write a bound as one types it: whole numbers with all their digits while these are few."""
    return str(number) if isinstance(number, int) else f"{number:g}"
