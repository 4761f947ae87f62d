"""What is told beside the answer, on stderr, and what ends a command besides what clusters say."""

from __future__ import annotations

import sys

from k8s.text.sanitize import sanitize


class WrongUsage(Exception):
    """The command line itself is at fault; the message says what would be right."""


def say(text: str) -> None:
    """Tell the person at the terminal something that is not part of the answer."""
    sys.stderr.write("".join(f"{sanitize(line)}\n" for line in text.split("\n")))
