"""The result of a diagnosis: one sentence, the facts behind it, and advice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # reading waiting jobs needs no patterns of failures
    from k8s.diagnosis.failures import Triage

# The last lines of a traceback, where only the most telling part is shown.
FEW_LINES = 6


@dataclass(frozen=True, slots=True)
class Fact:
    """An observation."""

    kind: str
    """One word: `pods`, `nodes`, `event`, `quota`, `also`, `unseen`, …"""
    text: str


@dataclass(frozen=True, slots=True)
class Cause:
    """The explanation of a job's state that one rule found."""

    sentence: str
    facts: tuple[Fact, ...] = ()
    help: tuple[str, ...] = ()
    brief: str = ""
    """Short form of a shortage, for the row of a list; empty for other causes."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The explanation shown to the user."""

    status: str
    sentence: str
    facts: tuple[Fact, ...] = ()
    help: tuple[str, ...] = ()
    brief: str = ""
    """Short form for the row of a list; empty if the row's own reason says as much."""
    is_shortage: bool = False
    """The nodes have too little free. The console recomputes this from its mirrors and is then newer."""
    triage: Triage | None = None
    """The failure that the logs show; None for other states, and if they show none."""

    def as_text(self, advice: Callable[[str], str] = str, *, traceback_lines: int | None = None) -> str:
        """Return plain text; `advice` adapts a line to where it is read, the console or the command line.

        `traceback_lines` limits the traceback of the rank that failed first to its last lines.
        """
        lines = [self.sentence]
        if self.facts:
            lines += ["", "Seen:", *(f"  {fact.kind}: {fact.text}" for fact in self.facts)]
        if self.triage is not None and len(self.triage.traceback) > 1:
            shown = self.triage.traceback[-traceback_lines:] if traceback_lines else self.triage.traceback
            lines += ["", f"Error of {self.triage.culprit}:", *(f"  {line}" for line in shown)]
        if self.help:
            lines += ["", "What would help:", *(f"  {advice(line)}" for line in self.help)]
        return "\n".join(lines)
