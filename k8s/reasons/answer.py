"""The result of a diagnosis: one sentence, the facts behind it, and advice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from k8s.reasons.cause import Fact

if TYPE_CHECKING:  # reading waiting jobs needs no patterns of failures
    from k8s.reasons.failures import Triage


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

    def as_text(self, advice: Callable[[str], str] = str) -> str:
        """Return plain text; `advice` adapts a line to where it is read, the console or the command line."""
        lines = [self.sentence]
        if self.facts:
            lines += ["", "Seen:", *(f"  {fact.kind}: {fact.text}" for fact in self.facts)]
        if self.help:
            lines += ["", "What would help:", *(f"  {advice(line)}" for line in self.help)]
        if self.triage is not None and len(self.triage.traceback) > 1:
            from k8s.reasons.stacks.frames import folded_traceback

            shown = folded_traceback(self.triage.traceback)
            lines += ["", f"Error of {self.triage.culprit}:", *(f"  {line}" for line in shown)]
        return "\n".join(lines)
