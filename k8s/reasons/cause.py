"""Cause of a job's state, or of a problem it would have: one sentence, the facts behind it, and advice."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:  # waiting jobs need no patterns of failures
    from k8s.reasons.failures import Triage

# With an error the job or a part of it cannot be created or never starts; a warning may not come true. The
# preflight also has lines about a job without a problem: "ok" and "info".
Severity = Literal["ok", "info", "warning", "error"]
ERROR: Severity = "error"
REFUSED = "would be refused: "
# Starts of sentences about a job that exists, and about one that is to be created.
_CONDITIONALS = (
    ("Waits", "would wait"),
    ("Never starts", "would never start"),
    ("Never fits", "would never fit"),
    ("Too big", "would never start"),
    ("No node ", "would never start: no node "),
    ("Its pods cannot be created", "would never start"),
)


class Fact(msgspec.Struct, frozen=True):
    """An observation."""

    kind: str
    """One word: `pods`, `nodes`, `event`, `quota`, `also`, `unseen`, …"""
    text: str


class Cause(msgspec.Struct, frozen=True):
    """The explanation of a job's state, or a problem that it would have."""

    sentence: str
    """About the job as it is: `Waits for volume claim data, which does not exist in default.`"""
    facts: tuple[Fact, ...] = ()
    help: tuple[str, ...] = ()
    brief: str = ""
    """Short form for the row of a list; empty if the row's own reason says as much."""
    is_shortage: bool = False
    """The nodes have too little free. The console recomputes this from its mirrors and is then newer."""
    triage: Triage | None = None
    """The failure that the logs show; None for other states, and if they show none."""
    severity: Severity = "warning"
    field: str = ""
    """Field of `JobSpec`; empty if it concerns none."""
    about: str = ""
    """Kind, or kind and name, of the refused object: `PyTorchJob bert`; empty for any."""

    @property
    def text(self) -> str:
        """The sentence about a job to be created, without a full stop: `would wait for volume claim data`."""
        for start, conditional in _CONDITIONALS:
            if self.sentence.startswith(start):
                return conditional + self.sentence.removeprefix(start).removesuffix(".")
        return self.sentence.removesuffix(".")

    @property
    def remedy(self) -> str:
        """The first advice, to follow a semicolon; empty if there is none."""
        first = next(iter(self.help), "")
        return first[:1].lower() + first[1:].removesuffix(".")

    @property
    def warning(self) -> str:
        """Text and remedy in one line."""
        return "; ".join(filter(None, (self.text, self.remedy)))

    @property
    def is_refusal(self) -> bool:
        """Return True if the server would refuse the job or an object created with it."""
        return self.text.startswith(REFUSED)

    @property
    def is_never(self) -> bool:
        """Return True if the job could be created, but would wait for ever."""
        return self.text.startswith("would never ")

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


def error(field: str, sentence: str, remedy: str, about: str = "") -> Cause:
    """Return a cause with which the job cannot be created or never starts."""
    return Cause(sentence, help=(remedy,), severity=ERROR, field=field, about=about)


def warning(field: str, sentence: str, remedy: str) -> Cause:
    """Return a cause that may not come true."""
    return Cause(sentence, help=(remedy,), field=field)
