"""What the server will refuse, known before it is asked, is said once: by the server where it says so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from k8s.errors import KubeError
from k8s.preflight import Finding
from tui.commands.support.output import write_stderr


class Refusal(NamedTuple):
    """What the server will refuse."""

    start: str
    """What its warning begins with: `PyTorchJob bert: ` where there are several objects."""
    finding: Finding


@contextmanager
def said_once(refusals: Sequence[Refusal]) -> Iterator[None]:
    """Create something, and warn of those refusals that the server's own one, if any, says nothing of.

    Where the server does not say what to do, that is added to its refusal.
    """
    try:
        yield
    except KubeError as error:
        said = [each for each in refusals if _is_said(each.finding, error)]
        warn_of([each for each in refusals if each not in said])
        for each in said:
            error.hint = _with_remedy(error.hint, each.finding)
        raise
    warn_of(refusals)


def warn_of(refusals: Sequence[Refusal]) -> None:
    """Print what the server has not said, or will not be asked."""
    for start, finding in refusals:
        write_stderr(f"Warning: {start}{finding.sentence}.")


def _is_said(refusal: Finding, error: KubeError) -> bool:
    """Tell whether an error is that refusal: it names the same object, and the field if it names any."""
    causes: Mapping[str, str] = getattr(error, "causes", {})
    if not refusal.about:
        return refusal.field in causes
    is_same = f" {refusal.about} " in f"{error.what.removesuffix('.')} "
    return is_same and (refusal.field in causes or not causes)


def _with_remedy(hint: str, refusal: Finding) -> str:
    remedy = f"{refusal.remedy[:1].upper()}{refusal.remedy[1:]}."
    if hint and (refusal.field != "kind" or remedy.lower() in hint.lower()):
        return hint
    return f"{remedy} {hint}".rstrip()
