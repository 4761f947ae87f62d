"""One thing that would go wrong with a job, and what to do about it."""

from __future__ import annotations

from typing import Literal, NamedTuple

Severity = Literal["warning", "error"]
"""A warning may turn out well; with an error the job, or a part of it, cannot come to be."""


REFUSED = "would be refused: "
"""How a finding of what a server refuses begins."""


class Finding(NamedTuple):
    """One finding of the preflight."""

    severity: Severity
    text: str
    """What would happen and why: `would wait: volume claim data is not bound`. It has no full stop."""
    remedy: str
    """What to do about it, without a full stop."""
    field: str = ""
    """The field of `JobSpec` that it is about; empty where it is about none."""
    about: str = ""
    """The kind, or the kind and the name, of what is refused: `PyTorchJob bert`; empty where any may be."""

    @property
    def is_refusal(self) -> bool:
        """Tell whether a server says so by itself, asked to create the job or a part of it."""
        return self.text.startswith(REFUSED)

    @property
    def sentence(self) -> str:
        """Return what is wrong and what to do in one line."""
        return f"{self.text}; {self.remedy}"


def error(field: str, text: str, remedy: str, about: str = "") -> Finding:
    """Return a finding with which the job cannot come to be."""
    return Finding("error", text, remedy, field, about)


def warning(field: str, text: str, remedy: str) -> Finding:
    """Return a finding that may turn out well."""
    return Finding("warning", text, remedy, field)
