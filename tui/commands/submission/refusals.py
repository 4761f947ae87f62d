"""Report expected refusals once: by the server if it does, else as a warning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from k8s.errors import KubeError
from k8s.reasons.cause import Cause
from tui.commands.support.output import write_stderr


class Refusal(NamedTuple):
    """An expected refusal of the server."""

    start: str
    """Prefix of its warning, `PyTorchJob bert: ` if there are several objects."""
    finding: Cause


@contextmanager
def reported_once(refusals: Sequence[Refusal]) -> Iterator[None]:
    """Create something, then warn of the expected refusals that the server did not mention.

    Advice is added to the server's refusal if that has none.
    """
    try:
        yield
    except KubeError as error:
        said = [each for each in refusals if _is_reported(each.finding, error)]
        warn_of([each for each in refusals if each not in said])
        for each in said:
            error.hint = _with_remedy(error.hint, each.finding)
        raise
    warn_of(refusals)


def warn_of(refusals: Sequence[Refusal]) -> None:
    """Print refusals that the server did not or will not report."""
    for start, finding in refusals:
        write_stderr(f"Warning: {start}{finding.warning}.")


def _is_reported(refusal: Cause, error: KubeError) -> bool:
    causes: Mapping[str, str] = getattr(error, "causes", {})
    if not refusal.about:
        return refusal.field in causes
    is_same = f" {refusal.about} " in f"{error.what.removesuffix('.')} "
    return is_same and (refusal.field in causes or not causes)


def _with_remedy(hint: str, refusal: Cause) -> str:
    remedy = f"{refusal.remedy[:1].upper()}{refusal.remedy[1:]}."
    if hint and (refusal.field != "kind" or remedy.lower() in hint.lower()):
        return hint
    return f"{remedy} {hint}".rstrip()
