"""`resume`: starts suspended jobs again."""

from __future__ import annotations

import argparse

from tui.commands.suspend import add_arguments, change
from tui.options import ConsoleOptions

__all__ = ["add_arguments", "run"]


async def run(options: ConsoleOptions, flags: argparse.Namespace) -> int:
    """Resume jobs; one that cannot be resumed does not keep the others."""
    return await change(options, flags, is_suspended=False)
