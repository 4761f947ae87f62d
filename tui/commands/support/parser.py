"""Grammar of the command line; a command's arguments are imported when it is used."""

from __future__ import annotations

import argparse
import difflib
import importlib
import os
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from k8s.text.sanitize import sanitize_lines
from tui import program
from tui.commands import COMMANDS, NOT_HERE, REMOVED_FLAGS
from tui.commands.support.output import WrongUsage
from tui.terminal.tty_state import wants_ascii

if TYPE_CHECKING:
    from tui.settings.options import ConsoleOptions

WRONG_USAGE = 2
# Choices that an error lists.
MOST_LISTED = 12
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
# Arena's global flags without effect here: three with a value, two switches.
_INEFFECTIVE = ("--loglevel", "--arena-namespace", "--helm-binary", "--pprof", "--trace")
# Without effect on the sandbox, of which there is one.
_CLUSTER_FLAGS = ("--kubeconfig", "--context")


# Its value may begin with a dash, which argparse takes for an option.
_ORDER = "--sort-by"


class SwitchAction(argparse.Action):
    """A switch as Go's pflag parses it: `--tensorboard`, `--tensorboard=true`, `--tensorboard=false`.

    Its value is the list of texts given, so that a later check can name a wrong one.
    """

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        """Append the given text."""
        setattr(namespace, self.dest, [*(getattr(namespace, self.dest, None) or ()), values])


class CommandParser(argparse.ArgumentParser):
    """A parser with one-line errors, filled when its command is used."""

    command_module = ""
    """Module with `add_arguments`; empty for none."""
    refusal = ""
    """Reason that the command accepts no arguments at all; empty if it does."""
    rewrite: Callable[[list[str]], list[str]] | None = None

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **options})
        self._is_filled = False

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse all arguments."""
        flags, extra = self.parse_known_args(args, namespace)
        if extra:
            self.prog = f"{self.prog} {getattr(flags, 'chosen', None) or ''}".rstrip()
            # Words after an unknown option may be its value or the user's command: name the option.
            self._refuse(next((word for word in extra if word.startswith("-")), extra[0]))
        return flags

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, after adding the command's own arguments and the global ones."""
        if self.refusal:
            self.error(self.refusal)
        self.fill()
        words = [f"{word}=true" if self._is_switch(word) else word for word in args or ()]
        if _ORDER in self._option_string_actions:
            words = _with_joined_orders(words)
        if self.rewrite is not None:
            words = self.rewrite(words)
        if self._subparsers is not None:
            self._check_before_command(words)
        return super().parse_known_args(words, namespace)

    def fill(self) -> None:
        """Add the command's own arguments and the global ones, once."""
        if not self._is_filled:
            self._is_filled = True
            if self.command_module:
                importlib.import_module(f"tui.commands.{self.command_module}").add_arguments(self)
            _add_global_flags(self)

    def _is_switch(self, word: str) -> bool:
        return isinstance(self._option_string_actions.get(word), SwitchAction)

    def command_at(self, words: Sequence[str]) -> int | None:
        """Return the index of the first word that is neither an option nor an option's value."""
        is_value = False
        for at, word in enumerate(words):
            if is_value:
                is_value = False
                continue
            if not word.startswith("-") or word == "-":
                return at
            name, equals, _ = word.partition("=")
            action = self._option_string_actions.get(name)
            if action is None and not self._option_string_actions.get(word[:2]):
                return at
            is_value = action is not None and not equals and action.nargs != 0
        return None

    def _check_before_command(self, words: Sequence[str]) -> None:
        # Its value would be parsed as the command.
        at = self.command_at(words)
        if at is None or not words[at].startswith("-") or words[at] == "-":
            return
        name = words[at].partition("=")[0]
        for action in self._actions:
            children = action.choices if isinstance(action, argparse._SubParsersAction) else {}
            owner = next((key for key, each in children.items() if name in each._option_string_actions), "")
            if owner:
                self.error(f"{name} needs a {action.metavar} before it, e.g. {owner} {name}")
        self._refuse(words[at])

    def _get_value(self, action: argparse.Action, text: str) -> Any:
        # argparse names Python's type in its own message.
        try:
            return super()._get_value(action, text)
        except argparse.ArgumentError:
            if action.type is not int:
                raise
            raise argparse.ArgumentError(action, f"{text!r} is not a whole number") from None

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Reject an invalid choice; suggest the nearest one, and list the usable ones if they are few."""
        if action.choices is None or value in action.choices:
            return
        choices: Sequence[Any] = tuple(action.choices)
        if isinstance(action.choices, dict):  # commands: aliases and those that only refuse are not listed
            parsers = {id(each): name for name, each in reversed(action.choices.items()) if not each.refusal}
            choices = tuple(reversed(parsers.values()))
        near = difflib.get_close_matches(str(value), [str(each) for each in choices], 1)
        parts = [f"did you mean {near[0]}?"] if near else []
        if len(choices) <= MOST_LISTED:
            parts.append(f"choose from {', '.join(map(str, choices))}")
        message = "; ".join((f"invalid choice: {value!r}", " ".join(parts))).removesuffix("; ")
        raise argparse.ArgumentError(action, message)

    def _refuse(self, word: str) -> NoReturn:
        name = word.partition("=")[0]
        if instead := REMOVED_FLAGS.get(name) or REMOVED_FLAGS.get(f"{self.prog.split()[-1]} {name}"):
            self.error(f"{name} is gone: {instead}.")
        self.error(f"unknown option {name}" if word.startswith("-") else f"unexpected argument {word!r}")

    def _print_message(self, message: str, file: Any = None) -> None:
        # Messages repeat words of the command line, which may be hostile file names.
        super()._print_message(sanitize_lines(message), file)

    def error(self, message: str) -> NoReturn:
        """Exit with status 2 and a one-line message."""
        self.exit(WRONG_USAGE, f"{message[:1].upper()}{message[1:]}\nSee {self.prog} --help\n")


def _with_joined_orders(words: Sequence[str]) -> list[str]:
    joined: list[str] = []
    for word in words:
        if joined[-1:] == [_ORDER] and word[:1] == "-" and word[1:2] not in ("", "-"):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def _add_global_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("global options")
    for names, metavar, words in (
        (("--kubeconfig",), "FILE", "path to the kubeconfig file"),
        (("--context",), "NAME", "kubeconfig context to use"),
        (("-n", "--namespace"), "NAME", "namespace to use"),
        (("--theme",), "NAME", "theme of the console"),
        (("--request-timeout",), "TIME", "give up on a request after this time, e.g. 10s"),
        (("--as",), "USER", "user to act as"),
        (("--server",), "URL", "address of the API server"),
        (("--token",), "TOKEN", "bearer token; visible to others in ps, so prefer GPUCONSOLE_TOKEN"),
    ):
        group.add_argument(*names, metavar=metavar, default=argparse.SUPPRESS, help=words)
    group.add_argument(
        "--as-group",
        action="append",
        metavar="GROUP",
        default=argparse.SUPPRESS,
        help="group to act as; may be repeated",
    )
    for names, words in (
        (("-A", "--all-namespaces"), "use all namespaces"),
        (("--sandbox",), "use the sandbox, a cluster on this machine; start it if needed"),
        (("--readonly",), "do not change anything on the cluster"),
        (("--mono",), "no colours"),
        (("--ascii",), "draw with ASCII only"),
    ):
        group.add_argument(*names, action="store_true", default=argparse.SUPPRESS, help=words)
    group.add_argument(
        "-v",
        "--verbose",
        action="count",
        default=argparse.SUPPRESS,
        help="log each request, here and in gpuconsole.log; -vv logs everything",
    )
    _add_arena_flags(group)


def _add_arena_flags(group: Any) -> None:
    hidden: dict[str, Any] = {"default": argparse.SUPPRESS, "help": argparse.SUPPRESS}
    group.add_argument("--config", dest="kubeconfig", **hidden)
    for name in _INEFFECTIVE[:3]:
        group.add_argument(name, dest=_arena_dest(name), **hidden)
    for name in _INEFFECTIVE[3:]:
        group.add_argument(name, dest=_arena_dest(name), action=SwitchAction, **hidden)


def _arena_dest(name: str) -> str:
    return f"arena{name.replace('-', '_')}"


def ineffective_flags(flags: argparse.Namespace) -> list[str]:
    """Return the given global flags that have no effect: some of Arena's, or a cluster beside `--sandbox`."""
    given = vars(flags)
    found = [name for name in _INEFFECTIVE if _arena_dest(name) in given]
    if "sandbox" in given:
        found += [name for name in _CLUSTER_FLAGS if name[2:] in given]
    return found


def make_parser(words: Sequence[str] = ("--help",)) -> argparse.ArgumentParser:
    """Return the parser of a command line; it knows all commands only if these words need that.

    A command line names at most one, and the parsers of all take 8 ms.
    """
    parser = CommandParser(
        prog=program(),
        description="Console for training jobs on GPU clusters. Without a command, opens the console.",
        epilog="Exit status: 0 done, 1 failed, 2 wrong usage.",
    )
    parser.add_argument("--version", action="store_true", help="print the version")
    chosen = parser.add_subparsers(dest="chosen", metavar="COMMAND", title="commands")
    parser.fill()
    at = parser.command_at(words)
    named = [each for each in COMMANDS if at is not None and words[at] in (each.name, *each.aliases)]
    is_whole = not {"-h", "--help"}.isdisjoint(words[:at]) or (at is not None and not named)
    for command in COMMANDS if is_whole else named:
        child = chosen.add_parser(
            command.name, aliases=command.aliases, help=command.words, description=f"{command.words}."
        )
        assert isinstance(child, CommandParser)
        child.command_module = command.module
        child.set_defaults(module=command.module)
    for word, sentence in NOT_HERE.items() if is_whole else ():
        refusing = chosen.add_parser(word, prog=parser.prog)
        assert isinstance(refusing, CommandParser)
        refusing.refusal = sentence
    return parser


def options_of(flags: argparse.Namespace) -> ConsoleOptions:
    """Return the global options: the flags, else the variables `GPUCONSOLE_…` of the environment.

    Raises:
        WrongUsage: A timeout cannot be parsed, or a group is given without a user to act as.
    """
    from k8s.client.auth.kubeconfig import ConfigOverrides  # not needed for help
    from tui.settings.options import ConsoleOptions

    def text(name: str) -> str:
        return str(getattr(flags, name, None) or os.environ.get(f"GPUCONSOLE_{name.upper()}", "").strip())

    def switch(name: str) -> bool:
        return getattr(flags, name, False) or text(name).lower() in ("1", "true", "yes")

    groups = getattr(flags, "as_group", None) or text("as_group").split(",")
    # A namespace that is named on the command line counts more than `-A` in the environment.
    is_all = getattr(flags, "all_namespaces", "namespace" not in flags and switch("all_namespaces"))
    overrides = ConfigOverrides(
        server=text("server"),
        token=text("token"),
        as_user=text("as"),
        as_groups=tuple(group for group in groups if group),
        request_s=_request_s(text("request_timeout")),
    )
    if overrides.as_groups and not overrides.as_user:
        raise WrongUsage("--as-group needs --as.")
    return ConsoleOptions(
        kubeconfig=text("kubeconfig"),
        context=text("context"),
        namespace=text("namespace"),
        overrides=overrides,
        is_all_namespaces=is_all,
        is_sandbox=switch("sandbox"),
        is_read_only=switch("readonly"),
        theme=text("theme"),
        verbosity=_verbosity(flags, text("verbose")),
        is_mono=switch("mono"),
        is_ascii=switch("ascii") or wants_ascii(),
    )


def _verbosity(flags: argparse.Namespace, text: str) -> int:
    if isinstance(given := getattr(flags, "verbose", None), int):
        return given
    return int(text) if text.isdecimal() else 0


def seconds(text: str) -> int:
    """Parse a duration such as `90s` or `1h30m` into seconds, at most a century."""
    if not re.fullmatch(r"(\d{1,9}[smhd])+", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration such as 90s, 10m, 1h30m")
    parts = re.findall(r"(\d+)([smhd])", text)
    # A kubelet's overflow after 292 years.
    return min(sum(int(number) * _UNITS_S[unit] for number, unit in parts), 100 * 365 * _UNITS_S["d"])


def _request_s(text: str) -> float:
    # As kubectl's: a bare number is seconds, and 0 is the default.
    if not text:
        return 0.0
    try:
        return float(seconds(f"{text}s" if text.isdecimal() else text))
    except argparse.ArgumentTypeError as error:
        raise WrongUsage(f"--request-timeout: {error}.") from None
