"""The grammar of the command line; what a command takes is fetched when it is used."""

from __future__ import annotations

import argparse
import importlib
from typing import Any, NoReturn

from tui.commands import COMMANDS
from tui.options import ConsoleOptions

WRONG_USAGE = 2
"""Exit status for a command line that makes no sense."""


class _Parser(argparse.ArgumentParser):
    """A parser that complains in one line, and is filled when its command is used."""

    command_module = ""
    """Whose `add_arguments` to ask, empty for none."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **options})
        self._is_filled = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, having fetched what the command takes, and what every command takes."""
        if not self._is_filled:
            self._is_filled = True
            if self.command_module:
                importlib.import_module(f"tui.commands.{self.command_module}").add_arguments(self)
            _add_global_flags(self)
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """End with status 2 and one line."""
        self.exit(WRONG_USAGE, f"{message[:1].upper()}{message[1:]}\nSee {self.prog} --help\n")


def _add_global_flags(parser: argparse.ArgumentParser) -> None:
    """Let a parser take what holds for every command, before and after its name."""
    group = parser.add_argument_group("for every command")
    for names, metavar, words in (
        (("--kubeconfig",), "FILE", "the kubeconfig to use"),
        (("--context",), "NAME", "the context in it"),
        (("-n", "--namespace"), "NAME", "whose jobs"),
        (("--theme",), "NAME", "the console's palette"),
    ):
        group.add_argument(*names, metavar=metavar, default=argparse.SUPPRESS, help=words)
    for names, words in (
        (("-A", "--all-namespaces"), "jobs of all namespaces"),
        (("--sandbox",), "the single-machine cluster, started if need be"),
        (("--readonly",), "change nothing on the cluster"),
        (("--mono",), "no colours"),
        (("--ascii",), "nothing but ASCII"),
    ):
        group.add_argument(*names, action="store_true", default=argparse.SUPPRESS, help=words)


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of the whole command line."""
    parser = _Parser(
        prog="gpuconsole",
        description="A console for people who train models on GPU clusters. Without a command it opens.",
        epilog="Exit status: 0 done, 1 it could not be done, 2 wrong usage.",
    )
    parser.add_argument("--version", action="store_true", help="print the version")
    chosen = parser.add_subparsers(dest="chosen", metavar="COMMAND", title="commands")
    for command in COMMANDS:
        child = chosen.add_parser(command.name, help=command.words, description=f"{command.words}.")
        assert isinstance(child, _Parser)
        child.command_module = command.module
        child.set_defaults(module=command.module)
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
