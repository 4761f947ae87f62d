"""The packaged trainers, their arguments and the commands of their pods, for command lines and forms."""

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
        """Parse a value of the argument's type; raise InvalidValue if that fails."""
        if self.choices and text not in self.choices:
            raise InvalidValue(f"{text!r} is not one of {self._likely(text)}")
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
        return f"the {len(self.choices)} choices" + (f"; did you mean {close}?" if close else "")

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
BACKEND = choice(
    "backend",
    ("auto", "nccl", "gloo", "mpi"),
    "Communication backend; auto means nccl between GPUs, else gloo",
)
WAIT_FOR_OTHERS = number(
    "wait-for-others", 300, "s", 1, 604_800, "Time to wait for the other ranks at startup"
)

# `digits` is drawn by the trainer itself; `images` and `sequences` are noise; the others are files.
DATASETS = ("digits", "mnist", "folder", "tokens", "images", "sequences")
FROM_FILES = ("mnist", "folder", "tokens")
OF_TOKENS = ("tokens", "sequences")
OWN_MODELS = ("cnn", "lenet", "t9k-cnn", "gpt")
_TORCHVISION = """
alexnet convnext_base convnext_large convnext_small convnext_tiny densenet121 densenet161
densenet169 densenet201 efficientnet_b0 efficientnet_b1 efficientnet_b2 efficientnet_b3
efficientnet_b4 efficientnet_b5 efficientnet_b6 efficientnet_b7 efficientnet_v2_l efficientnet_v2_m
efficientnet_v2_s googlenet inception_v3 maxvit_t mnasnet0_5 mnasnet0_75 mnasnet1_0 mnasnet1_3
mobilenet_v2 mobilenet_v3_large mobilenet_v3_small regnet_x_16gf regnet_x_1_6gf regnet_x_32gf
regnet_x_3_2gf regnet_x_400mf regnet_x_800mf regnet_x_8gf regnet_y_128gf regnet_y_16gf
regnet_y_1_6gf regnet_y_32gf regnet_y_3_2gf regnet_y_400mf regnet_y_800mf regnet_y_8gf resnet101
resnet152 resnet18 resnet34 resnet50 resnext101_32x8d resnext101_64x4d resnext50_32x4d
shufflenet_v2_x0_5 shufflenet_v2_x1_0 shufflenet_v2_x1_5 shufflenet_v2_x2_0 squeezenet1_0
squeezenet1_1 swin_b swin_s swin_t swin_v2_b swin_v2_s swin_v2_t vgg11 vgg11_bn vgg13 vgg13_bn vgg16
vgg16_bn vgg19 vgg19_bn vit_b_16 vit_b_32 vit_h_14 vit_l_16 vit_l_32 wide_resnet101_2
wide_resnet50_2
"""

MODELS = (*OWN_MODELS, *_TORCHVISION.split())
GPT_BATCH_SIZE = 8  # default batch size of gpt, in sequences

_MANY = 1_000_000_000
_ON_OFF = ("auto", "on", "off")

_DDP_ARGUMENTS = (
    # data and network
    choice("dataset", DATASETS,
           "Training data: generated digits, files in --data, or noise (images, sequences)"),
    Argument("data", "mnist", "", "Folder or file of a data set that is read from files"),
    flag("download", "Download MNIST into --data if it is missing"),
    choice("model", MODELS, "Network: a small one, gpt for tokens, or any torchvision classifier"),
    number("epochs", 5, "epochs", 1, 1_000_000, "Passes over the training data"),
    number("batch-size", 64, "images", 1, 1_000_000,
           f"Images or sequences per process and step; for --model gpt the default is {GPT_BATCH_SIZE}"),
    number("test-batch-size", 0, "images", 0, 1_000_000,
           "Images per process in an evaluation batch; auto means --batch-size, at least 256 of small images",
           zero="auto", also=("val-batch-size",)),
    number("train-images", 12_000, "images", 1, _MANY,
           "Generated samples for training (datasets digits, images, sequences)"),
    number("val-images", 2_000, "images", 1, _MANY,
           "Generated samples for validation (datasets digits, images, sequences)"),
    number("image-size", 0, "pixels", 0, 4096,
           "Height and width of the input images; auto means 224 for folders and noise, else the files' size",
           zero="auto"),
    number("classes", 1000, "", 2, 1_000_000, "Number of classes (dataset images)"),
    flag("augment", "Randomly crop and mirror the training images (color images)"),
    number("workers", 0, "threads", 0, 1024,
           "Threads that decode images (dataset folder); auto means one per core of the process",
           zero="auto"),
    choice("token-bytes", ("1", "2", "4"), "Bytes per token in the file (dataset tokens)"),
    number("vocabulary", 0, "tokens", 0, 10_000_000,
           "Number of distinct tokens; auto means 256, for bytes (datasets tokens, sequences)", zero="auto"),
    number("sequence-length", 256, "tokens", 1, 1_048_576, "Tokens per sequence (gpt)"),
    number("layers", 4, "layers", 1, 1000, "Transformer blocks (gpt)"),
    number("heads", 4, "heads", 1, 1000, "Attention heads per block (gpt)"),
    number("width", 128, "", 1, 1_000_000, "Embedding size (gpt)"),
    number("seed", 1, "", 0, 4_294_967_295, "Random seed; runs with the same seed train the same way"),
    # step
    number("lr", 0.003, "", 0, 1e30,
           "Peak learning rate, reached after --warmup; then it follows --schedule"),
    choice("optimizer", ("auto", "adamw", "sgd"),
           "Optimizer; auto means sgd if --momentum is given, else adamw"),
    number("momentum", 0.0, "", 0, 1,
           "Momentum of SGD; none means AdamW unless --optimizer says otherwise", zero="none"),
    number("weight-decay", 0.01, "", 0, 100, "Weight decay of the optimizer"),
    choice("schedule", ("cosine", "step", "constant"),
           "Learning rate after the warmup: cosine to zero, falling in steps, or constant"),
    number("warmup", 0.1, "", 0, 1, "Fraction of the training in which the learning rate rises"),
    number("step-epochs", 1, "epochs", 1, 1_000_000, "Epochs between two reductions (schedule step)"),
    number("gamma", 0.7, "", 0, 1, "Factor of each reduction of the learning rate (schedule step)"),
    number("accumulate", 1, "batches", 1, 100_000, "Batches whose gradients are accumulated for one step"),
    number("clip-norm", 0.0, "", 0, 1e30, "Clip gradients to this norm", zero="off"),
    choice("device", ("auto", "cpu", "cuda"),
           "Device to train on; auto means a GPU if there is one", switches=(("no-cuda", "cpu"),)),
    BACKEND,
    choice("precision", ("auto", "fp32", "tf32", "bf16", "fp16", "fp64"),
           "Precision; auto means bf16 if the GPU has it, else fp32"),
    choice("channels-last", _ON_OFF,
           "Channels-last memory format; auto means on for 16-bit precision on a GPU"),
    choice("compile", _ON_OFF,
           "Use torch.compile; auto means on for large networks on a GPU that supports it"),
    number("bucket-mb", 25, "MB", 1, 100_000, "Bucket size of DDP"),
    flag("static-graph", "Tell DDP that every step uses the same parameters in the same order"),
    flag("copy-buckets", "Copy gradients out of DDP's buckets (gradient_as_bucket_view=False)"),
    # output
    Argument("log-dir", "logs", "", "Folder for the event files, written by rank 0", also=("logdir", "dir")),
    number("log-every", 10, "steps", 1, _MANY, "Steps between progress lines", also=("log-interval",)),
    Argument("checkpoint-dir", "checkpoints", "", "Folder for checkpoints, written and read by rank 0"),
    number("checkpoint-every", 0, "steps", 0, _MANY,
           "Steps between checkpoints within an epoch; off means only at its end", zero="off"),
    Argument("save-path", "", "", "File for the final weights as a state_dict, written by rank 0",
             switches=(("save-model", "mnist_cnn.pt"),)),
    number("keep", 2, "checkpoints", 1, 1_000_000, "Number of newest checkpoints to keep"),
    choice("resume", ("auto", "never", "must"),
           "Resume from the newest checkpoint: auto if there is one, must or fail;"
           " never starts from scratch and moves existing checkpoints to a subfolder old-N"),
    choice("on-full-disk", ("stop", "continue"),
           "When the checkpoint disk is full: stop, or train on and retry at the next checkpoint"),
    WAIT_FOR_OTHERS,
)  # fmt: skip
_MPI_ARGUMENTS = (
    Argument("model", "resnet50", "", "Network to measure: torchvision's, or a tiny one",
             ("vgg16", "resnet50", "resnet18", "tiny")),
    number("batch-size", 32, "images", 1, 1_000_000, "Images per process and step"),
    number("num-warmup-batches", 10, "batches", 0, 1_000_000, "Warm-up batches, not measured"),
    number("num-batches-per-iter", 10, "batches", 1, 1_000_000, "Batches per measurement"),
    number("num-iters", 10, "iterations", 1, 1_000_000, "Number of measurements"),
    choice("precision", ("fp32", "tf32", "bf16", "fp16"),
           "Precision: strict fp32, or a faster one of GPUs; bf16 also works on CPUs"),
    flag("fp16-allreduce", "Exchange gradients as 16-bit numbers"),
    flag("no-cuda", "Use the CPU even if there is a GPU"),
    Argument("log-dir", "", "", "Folder for event files with one point per measurement, written by rank 0",
             also=("logdir",)),
    Argument("json", "", "", "File for the result as JSON, written by rank 0"),
    number("allreduce-mib", 0, "MiB", 0, 16_384,
           "Largest message of the final all-reduce measurement; auto means 256 between GPUs, else 16",
           zero="auto"),
    flag("throughput-only", "Skip the measurements of a single rank and of all-reduce"),
    BACKEND,
    WAIT_FOR_OTHERS,
)  # fmt: skip


def _ddp_implied(given: Mapping[str, str]) -> dict[str, str]:
    is_gpt, found = given.get("model") == "gpt", {}
    if "data" in given and "dataset" not in given:
        found["dataset"] = "tokens" if is_gpt else "mnist"
    if is_gpt and "batch-size" not in given:
        found["batch-size"] = str(GPT_BATCH_SIZE)
    return found


def _ddp_conflict(arguments: argparse.Namespace) -> str:
    model, dataset = arguments.model, arguments.dataset
    if arguments.batch_size == 1 and model not in OWN_MODELS:
        return (
            f"argument --batch-size: 1 is not 2 or more, which --model {model} needs"
            " (it normalizes over the images of a step)"
        )
    if (model == "gpt") != (dataset in OF_TOKENS):
        fitting = (
            f"name a text or token file with --data, or choose --dataset {' or '.join(OF_TOKENS)}"
            if model == "gpt"
            else "choose --model gpt"
        )
        return f"argument --model: {model} cannot train on --dataset {dataset}; {fitting}"
    if model == "gpt" and arguments.width % arguments.heads:
        return f"argument --width: {arguments.width} is not a multiple of --heads {arguments.heads}"
    if dataset in OF_TOKENS and arguments.token_bytes != "1" and not arguments.vocabulary:
        return "argument --vocabulary: required if --token-bytes is not 1 (GPT-2's is 50257)"
    return ""


# In the order in which a form shows them.
TRAINERS: tuple[Trainer, ...] = (
    Trainer(
        "ddp",
        "Train an image classifier with DistributedDataParallel",
        "trainer.train_ddp",
        _DDP_ARGUMENTS,
        conflict=_ddp_conflict,
        implied=_ddp_implied,
        removed={"profile": "run the trainer under nsys profile or py-spy record"},
    ),
    Trainer(
        "mpi",
        "Measure how many images a second a network trains on",
        "trainer.train_mpi",
        _MPI_ARGUMENTS,
        launcher="mpirun",
        removed={
            "master-addr": "set MASTER_ADDR (mpirun -x MASTER_ADDR=HOST)",
            "master-port": "set MASTER_PORT (mpirun -x MASTER_PORT=PORT)",
        },
    ),
)


def find(name: str) -> Trainer:
    """Look up a trainer by name; UnknownName if there is none."""
    found = {trainer.name: trainer for trainer in TRAINERS}
    if name not in found:
        raise UnknownName(f"There is no trainer {name!r}. There is: {', '.join(found)}.")
    return found[name]
