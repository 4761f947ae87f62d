"""`help`: show a chapter of the manual, or the help of a command."""

from __future__ import annotations

import argparse
import shutil
import sys

from tui.commands import COMMANDS
from tui.commands.support.output import WrongUsage, write
from tui.settings.manual import chapter_text, contents, find_topic
from tui.settings.options import ConsoleOptions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the topic argument."""
    parser.add_argument("topic", nargs="?", default="", help="chapter of the manual, or a command")
    parser.add_argument("--man", action="store_true", help="print the man page, for man -l or a man1 folder")


async def run(options: ConsoleOptions, flags: argparse.Namespace) -> int:
    """Print a chapter, the help of a command, the list of topics, or the man page.

    Raises:
        WrongUsage: The topic does not exist.
    """
    from tui.commands.support.parser import make_parser

    if flags.man:
        from tui.settings.manual.man_page import man_page

        write(man_page(make_parser()).rstrip("\n"))
    elif not flags.topic:
        write(f"Topics:\n\n{contents()}\n\nRead one with gpuconsole help TOPIC.")
    elif topic := find_topic(flags.topic):
        width = min(shutil.get_terminal_size().columns, 120) if sys.stdout.isatty() else 100
        write(chapter_text(topic, width))
    elif any(flags.topic in (command.name, *command.aliases) for command in COMMANDS):
        make_parser().parse_args([flags.topic, "--help"])
    else:
        raise WrongUsage(f"There is no topic {flags.topic!r}.\n\n{contents()}\n")
    return 0
