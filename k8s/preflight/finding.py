"""Finding of the preflight: a problem of a job, and its remedy."""

from __future__ import annotations

from typing import Literal, NamedTuple

# A warning may not come true; with an error the job or a part of it cannot be created.
Severity = Literal["warning", "error"]


REFUSED = "would be refused: "


# Prefix of findings without whose remedy the job waits for ever.
NEVER = "would never start: "


class Finding(NamedTuple):
    """Problem of a job."""

    severity: Severity
    text: str
    """Consequence and cause without a full stop: `would wait: volume claim data is not bound`."""
    remedy: str
    field: str = ""
    """Field of `JobSpec`; empty if it concerns none."""
    about: str = ""
    """Kind, or kind and name, of the refused object: `PyTorchJob bert`; empty for any."""

    @property
    def is_refusal(self) -> bool:
        """Return True if the server would refuse the job or a part of it."""
        return self.text.startswith(REFUSED)

    @property
    def is_never(self) -> bool:
        """Return True if the job could be created, but would wait for ever."""
        return self.text.startswith(NEVER)

    @property
    def sentence(self) -> str:
        """Problem and remedy in one line."""
        return f"{self.text}; {self.remedy}"


def error(field: str, text: str, remedy: str, about: str = "") -> Finding:
    """Return a finding with which the job cannot be created."""
    return Finding("error", text, remedy, field, about)


def warning(field: str, text: str, remedy: str) -> Finding:
    """Return a finding that may not come true."""
    return Finding("warning", text, remedy, field)
