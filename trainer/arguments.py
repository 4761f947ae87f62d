"""Arguments of a trainer, its command line, and the command of its pods."""

import argparse
import difflib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

Launcher = Literal["torchrun", "mpirun"]

# Beyond it, an error does not list all choices.
MANY_CHOICES = 12

_PYTHON = ["python", "-P", "-m"]
_TORCHRUN = [*_PYTHON, "trainer.launch", "-m"]
# Flags of Open MPI 4 and 5; MPICH has neither.
_MPIRUN = ["mpirun", "--allow-run-as-root", "--tag-output"]


class UnknownName(LookupError):
    """No trainer or argument has this name; the message lists those that exist."""


class InvalidValue(argparse.ArgumentTypeError, ValueError):
    """Text is not a value of an argument; the message tells what is expected."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One option of a trainer."""

    name: str
    default: str | int | float | bool  # of the argument's type; a bool argument is a flag without a value
    unit: str  # unit of a number, as "images" or "s"; empty if it has none
    words: str  # help text: one sentence without a full stop
    choices: tuple[str, ...] = ()  # allowed values; empty if any is allowed
    least: float | None = None
    most: float | None = None
    also: tuple[str, ...] = ()  # names of the same option in scripts of guides: "logdir"
    switches: tuple[tuple[str, str], ...] = ()  # flags of such scripts for a value: ("no-cuda", "cpu")
    zero: str = ""  # word for 0 if 0 is not a quantity, as "auto" or "none"; both can be typed

    @property
    def flag(self) -> str:
        """The name on a command line: `--batch-size`."""
        return f"--{self.name}"

    def read(self, text: str) -> str | int | float:
        """Parse a value of the argument's type; InvalidValue if the text is none."""
        if self.choices and text not in self.choices:
            raise InvalidValue(f"{text!r} is none of {self._likely(text)}")
        value: str | int | float = text
        if isinstance(self.default, int | float):
            whole = isinstance(self.default, int)
            text = "0" if self.zero and text == self.zero else text
            try:
                value = int(text) if whole else float(text)
            except ValueError:
                raise InvalidValue(f"{text!r} is not a {'whole ' if whole else ''}number") from None
            if self.least is not None and not value >= self.least:
                raise InvalidValue(f"{text} is not {self.least:g} or more")
            if self.most is not None and not value <= self.most:
                raise InvalidValue(f"{text} is not {_number(self.most)} or less")
        return value

    def _likely(self, text: str) -> str:
        if len(self.choices) <= MANY_CHOICES:
            return ", ".join(self.choices)
        close = " or ".join(difflib.get_close_matches(text, self.choices))
        return f"the {len(self.choices)} there are" + (f"; did you mean {close}?" if close else "")

    @property
    def bounds(self) -> str:
        """Range of a number, as `1 to 1000000`; "" for other types."""
        if self.least is None or self.most is None:
            return ""
        return f"{_number(self.least)} to {_number(self.most)}"


def number(
    name: str, default: float, unit: str, least: float, most: float, words: str, **more: Any
) -> Argument:
    """Return an argument with a number, which is whole if its default is; `more` are fields."""
    return Argument(name, default, unit, words, least=least, most=most, **more)


def choice(name: str, choices: tuple[str, ...], words: str, **more: Any) -> Argument:
    """Return an argument with one of `choices`, of which the first is the default; `more` are fields."""
    return Argument(name, choices[0], "", words, choices, **more)


def flag(name: str, words: str) -> Argument:
    """Return a flag without a value."""
    return Argument(name, False, "", words)


@dataclass(frozen=True, slots=True)
class Trainer:
    """A training program, and how to start it."""

    name: str
    title: str
    module: str  # module for `python -m`
    arguments: tuple[Argument, ...] = field(repr=False)  # in the order of the form
    launcher: Launcher = "torchrun"  # of a job that has both; every trainer runs under either
    # Returns an error, worded as argparse's, if arguments conflict; "" if they do not.
    conflict: Callable[[argparse.Namespace], str] = field(default=lambda _: "", repr=False)
    # Returns defaults that depend on the arguments given, both by name.
    implied: Callable[[Mapping[str, str]], dict[str, str]] = field(default=lambda _: {}, repr=False)
    # Flags of the release before, by name, each with what to use instead.
    removed: Mapping[str, str] = field(default_factory=dict, repr=False)

    def argument(self, name: str) -> Argument:
        """Look up an argument by name; UnknownName if there is none."""
        found = {argument.name: argument for argument in self.arguments}
        if name not in found:
            known = ", ".join(found)
            raise UnknownName(f"The trainer {self.name} has no argument {name!r}. It has: {known}.")
        return found[name]

    def command(
        self,
        arguments: Mapping[str, str] | Sequence[str] = (),
        *,
        launcher: Launcher | None = None,
        ranks: int | None = None,
        variables: Iterable[str] = (),
    ) -> list[str]:
        """Return the command of a pod that starts the ranks of this trainer.

        Under torchrun it is the command of each pod, which gets the rest in PET_* variables; under mpirun,
        Open MPI's, of the launcher alone. `-P` keeps a `trainer.py` in the working directory out of the way.

        Args:
            arguments: Words after the command, or values by name, with "true" or "false" for a bool argument.
            launcher: Launcher of the job; None for the trainer's own.
            ranks: Number of ranks for mpirun; None for all slots of its hostfile.
            variables: Names of variables that mpirun passes to the ranks in other pods.
        """
        words = self.words(arguments) if isinstance(arguments, Mapping) else list(arguments)
        if (launcher or self.launcher) == "torchrun":
            return [*_TORCHRUN, self.module, *words]
        number = [] if ranks is None else ["-np", str(ranks)]
        taken = [word for name in variables for word in ("-x", name)]
        return [*_MPIRUN, *number, *taken, *_PYTHON, self.module, *words]

    def words_of(self, command: Sequence[str]) -> list[str] | None:
        """Return the trainer's arguments in a command made by `command`; None for other commands."""
        words = list(command)
        for start, end in ((_TORCHRUN, _TORCHRUN), (_MPIRUN, _PYTHON)):
            ends = [*end, self.module]
            behind = next((at for at in range(len(words)) if words[at : at + len(ends)] == ends), None)
            if behind is not None and words[: len(start)] == start:
                return words[behind + len(ends) :]
        return None

    def own_args(self, words: Sequence[str]) -> list[str]:
        """Return a command line with the trainer's own flags for those of scripts, and implied values.

        So `--log_dir` and `--logdir` become `--log-dir`, `--no-cuda` `--device cpu`; unknown words stay.
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
        given: dict[str, str] = {}
        for word, after in zip(found, [*found, ""][1:], strict=True):
            flag, equals, value = word.partition("=")
            given[flag.removeprefix("--")] = value if equals else after
        for name, value in self.implied(given).items():
            found += [f"--{name}", value]
        return found

    def words(self, values: Mapping[str, str]) -> list[str]:
        """Return arguments by name as words of a command line; LookupError, ValueError for invalid ones."""
        words: list[str] = []
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
        # A form shows the default of what is not named, so that is what counts, and nothing is implied.
        for name in self.implied(values):
            words += [f"--{name}", str(self.argument(name).default)]
        return words

    def parser(self) -> argparse.ArgumentParser:
        """Return the command-line parser; errors end the process with status 2 and one line."""
        parser = _TrainerParser(prog=f"python -m {self.module}", description=self.title, allow_abbrev=False)
        parser.trainer = self
        for argument in self.arguments:
            words = argument.words.replace("%", "%%")
            if isinstance(argument.default, bool):
                parser.add_argument(argument.flag, action="store_true", help=words + _also(argument))
                continue
            unit = f" {argument.unit}" if argument.unit else ""
            bounds = f"; {argument.bounds}{unit}" if argument.bounds else ""
            default = "none" if argument.default == "" else argument.zero or argument.default
            parser.add_argument(
                argument.flag,
                type=argument.read,
                default=argument.default,
                metavar=_metavar(argument),
                help=f"{words}{_also(argument)} (default: {default}{bounds})",
            )
        return parser


class _TrainerParser(argparse.ArgumentParser):
    """Parser with errors of one line: in a job's log, a usage text from each rank would hide the reason."""

    trainer: Trainer

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: None = None
    ) -> argparse.Namespace:
        own, removed = self.trainer.own_args(sys.argv[1:] if args is None else args), self.trainer.removed
        for name in (word.partition("=")[0][2:].replace("_", "-") for word in own if word.startswith("--")):
            if name in removed:
                self.error(f"--{name} was removed: {removed[name]} instead")
        parsed = super().parse_args(own, namespace)
        if conflict := self.trainer.conflict(parsed):
            self.error(conflict)
        return parsed

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message}. See {self.prog} --help.\n")


def _metavar(argument: Argument) -> str:
    few = argument.choices if len(argument.choices) <= MANY_CHOICES else ()
    return "|".join(few) or argument.name.upper().replace("-", "_")


def _also(argument: Argument) -> str:
    names = [f"--{name}" for name in argument.also]
    names += [f"--{name} for {value}" for name, value in argument.switches]
    return f"; also {', '.join(names)}" if names else ""


def _number(number: float) -> str:
    return str(number) if isinstance(number, int) else f"{number:g}"


# Arguments that all trainers have.
_BACKEND_WORDS = "Communication backend; auto means nccl between GPUs, else gloo"
BACKEND = choice("backend", ("auto", "nccl", "gloo", "mpi"), _BACKEND_WORDS)
_WAIT_WORDS = "Time to wait for the other ranks at startup"
WAIT_FOR_OTHERS = number("wait-for-others", 300, "s", 1, 604_800, _WAIT_WORDS)
