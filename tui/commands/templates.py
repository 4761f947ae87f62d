"""`templates`: list the templates for `submit --template` and the form."""

from __future__ import annotations

import argparse

from tui.commands.support.output import add_format, write_object, write_stderr, write_table
from tui.draft.job_templates import every_template
from tui.settings.options import ConsoleOptions
from tui.tables.column import OutputColumn
from tui.text.format import NOTHING

COLUMNS = (OutputColumn("NAME"), OutputColumn("KIND"), OutputColumn("FROM"), OutputColumn("DESCRIPTION"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `-o`."""
    add_format(parser)


async def run(options: ConsoleOptions, flags: argparse.Namespace) -> int:
    """Print the templates."""
    found, problems = every_template(options.templates_folder)
    if flags.output in ("json", "yaml"):
        values = [
            {"name": each.name, "kind": each.kind, "is_own": each.is_own, "description": each.description}
            for each in found
        ]
        write_object(values, flags.output)
    else:
        rows = [
            (
                each.name,
                each.kind or NOTHING,
                "you" if each.is_own else "gpuconsole",
                each.description or NOTHING,
            )
            for each in found
        ]
        write_table(COLUMNS, rows, is_wide=False)
    for sentence in problems:
        write_stderr(sentence)
    return 1 if problems else 0
