"""What is said about a job: one sentence, the facts below it, and what would help."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that was seen."""

    kind: str
    """What it is about, one word: `pods`, `nodes`, `event`, `quota`, `also`, `unseen`."""
    text: str


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a job is as it is, as one rule sees it."""

    sentence: str
    facts: tuple[Fact, ...] = ()
    help: tuple[str, ...] = ()
    """What would help, one line each."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The whole answer."""

    status: str
    """The job's derived status."""
    sentence: str
    facts: tuple[Fact, ...] = ()
    help: tuple[str, ...] = ()

    def as_text(self, advice: Callable[[str], str] = str) -> str:
        """Return the answer as plain text, as a person reads it.

        Args:
            advice: Returns a line of what would help in the words of where it is read.
        """
        lines = [self.sentence]
        if self.facts:
            lines += ["", "Seen:", *(f"  {fact.kind}: {fact.text}" for fact in self.facts)]
        if self.help:
            lines += ["", "What would help:", *(f"  {advice(line)}" for line in self.help)]
        return "\n".join(lines)
