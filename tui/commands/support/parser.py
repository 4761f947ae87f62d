"""The grammar of the command line; what a command takes is fetched when it is used."""

from __future__ import annotations

import argparse
import importlib
from typing import Any, NoReturn

from k8s.text.sanitize import sanitize_lines
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


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of the whole command line."""
    parser = _Parser(
        prog="gpuconsole",
        description="Console for training jobs on GPU clusters. Without a command, opens the console.",
        epilog="Exit status: 0 done, 1 failed, 2 wrong usage.",
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
