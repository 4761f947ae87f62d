"""The grammar of the command line; what a command takes is fetched when it is used."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from k8s.text.sanitize import sanitize_lines
from tui.commands import COMMANDS, NOT_HERE
from tui.options import ConsoleOptions

WRONG_USAGE = 2
"""Exit status for a command line that makes no sense."""
_INEFFECTIVE = ("--loglevel", "--arena-namespace", "--helm-binary", "--pprof", "--trace")
"""Arena's global flags that change nothing here: three with a value, two switches."""
_CLUSTER_FLAGS = ("--kubeconfig", "--context")
"""Flags that name a cluster; there is one sandbox."""


class SwitchAction(argparse.Action):
    """A switch as Go's pflag reads it: `--tensorboard`, `--tensorboard=true`, `--tensorboard=false`.

    Its value is a list of the texts given, so that whoever reads it can say which is wrong.
    """

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        """Note what was given."""
        setattr(namespace, self.dest, [*(getattr(namespace, self.dest, None) or ()), values])


class CommandParser(argparse.ArgumentParser):
    """A parser that complains in one line, and is filled when its command is used."""

    command_module = ""
    """Whose `add_arguments` to ask, empty for none."""
    refusal = ""
    """Why it takes nothing at all, one sentence; empty where it does."""
    rewrite: Callable[[list[str]], list[str]] | None = None
    """Completes the words before they are parsed."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **options})
        self._is_filled = False

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse all words.

        Of those that nobody takes an unknown option is named alone: which of the words
        after it are its value, and not the user's command, cannot be told.
        """
        flags, extra = self.parse_known_args(args, namespace)
        if extra:
            self.prog = f"{self.prog} {getattr(flags, 'chosen', None) or ''}".rstrip()
            self._refuse(next((word for word in extra if word.startswith("-")), extra[0]))
        return flags

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, having fetched what the command takes, and what every command takes."""
        if self.refusal:
            self.error(self.refusal)
        if not self._is_filled:
            self._is_filled = True
            if self.command_module:
                importlib.import_module(f"tui.commands.{self.command_module}").add_arguments(self)
            _add_global_flags(self)
        words = [f"{word}=true" if self._is_switch(word) else word for word in args or ()]
        if self.rewrite is not None:
            words = self.rewrite(words)
        if self._subparsers is not None:
            self._check_before_command(words)
        return super().parse_known_args(words, namespace)

    def _is_switch(self, word: str) -> bool:
        return isinstance(self._option_string_actions.get(word), SwitchAction)

    def command_at(self, words: Sequence[str]) -> int | None:
        """Return where the first word is that is no option of this parser's, nor an option's value."""
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
        """Refuse an unknown option before a command: its value would be taken for the command."""
        at = self.command_at(words)
        if at is not None and words[at].startswith("-") and words[at] != "-":
            self._refuse(words[at])

    def _refuse(self, word: str) -> NoReturn:
        name = word.partition("=")[0]
        self.error(f"unknown option {name}" if word.startswith("-") else f"unexpected argument {word!r}")

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print help or a complaint, which repeats words of the command line: file names, as a rule."""
        super()._print_message(sanitize_lines(message), file)

    def error(self, message: str) -> NoReturn:
        """End with status 2 and one line."""
        self.exit(WRONG_USAGE, f"{message[:1].upper()}{message[1:]}\nSee {self.prog} --help\n")


def _add_global_flags(parser: argparse.ArgumentParser) -> None:
    """Let a parser take what holds for every command, before and after its name."""
    group = parser.add_argument_group("global options")
    for names, metavar, words in (
        (("--kubeconfig",), "FILE", "path to the kubeconfig file"),
        (("--context",), "NAME", "kubeconfig context to use"),
        (("-n", "--namespace"), "NAME", "namespace to use"),
        (("--theme",), "NAME", "theme of the console"),
    ):
        group.add_argument(*names, metavar=metavar, default=argparse.SUPPRESS, help=words)
    for names, words in (
        (("-A", "--all-namespaces"), "use all namespaces"),
        (("--sandbox",), "use the sandbox, a cluster on this machine; start it if needed"),
        (("--readonly",), "do not change anything on the cluster"),
        (("--mono",), "no colours"),
        (("--ascii",), "draw with ASCII only"),
    ):
        group.add_argument(*names, action="store_true", default=argparse.SUPPRESS, help=words)
    _add_arena_flags(group)


def _add_arena_flags(group: Any) -> None:
    """Understand Arena's global flags, so that its commands work as they were written."""
    hidden: dict[str, Any] = {"default": argparse.SUPPRESS, "help": argparse.SUPPRESS}
    group.add_argument("--config", dest="kubeconfig", **hidden)
    for name in _INEFFECTIVE[:3]:
        group.add_argument(name, dest=_arena_dest(name), **hidden)
    for name in _INEFFECTIVE[3:]:
        group.add_argument(name, dest=_arena_dest(name), action=SwitchAction, **hidden)


def _arena_dest(name: str) -> str:
    return f"arena{name.replace('-', '_')}"


def ineffective_flags(flags: argparse.Namespace) -> list[str]:
    """Return which global flags were given that change nothing: some of Arena's, and a cluster's name."""
    given = vars(flags)
    found = [name for name in _INEFFECTIVE if _arena_dest(name) in given]
    if "sandbox" in given:
        found += [name for name in _CLUSTER_FLAGS if name[2:] in given]
    return found


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of the whole command line."""
    parser = CommandParser(
        prog="gpuconsole",
        description="Console for training jobs on GPU clusters. Without a command, opens the console.",
        epilog="Exit status: 0 done, 1 failed, 2 wrong usage.",
    )
    parser.add_argument("--version", action="store_true", help="print the version")
    chosen = parser.add_subparsers(dest="chosen", metavar="COMMAND", title="commands")
    for command in COMMANDS:
        child = chosen.add_parser(
            command.name, aliases=command.aliases, help=command.words, description=f"{command.words}."
        )
        assert isinstance(child, CommandParser)
        child.command_module = command.module
        child.set_defaults(module=command.module)
    for word, sentence in NOT_HERE.items():
        refusing = chosen.add_parser(word, prog=parser.prog)
        assert isinstance(refusing, CommandParser)
        refusing.refusal = sentence
    return parser


def options_of(flags: argparse.Namespace) -> ConsoleOptions:
    """Return what holds for every command."""
    given = vars(flags)
    return ConsoleOptions(
        kubeconfig=given.get("kubeconfig", ""),
        context=given.get("context", ""),
        namespace=given.get("namespace", ""),
        is_all_namespaces=given.get("all_namespaces", False),
        is_sandbox=given.get("sandbox", False),
        is_read_only=given.get("readonly", False),
        theme=given.get("theme", ""),
        is_mono=given.get("mono", False),
        is_ascii=given.get("ascii", False),
    )
