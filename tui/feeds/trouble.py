"""How far what mirrors hold can be trusted: why it may be old, since when, and what is still to come."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from k8s.errors import KubeError, NotKubernetes, Throttled, Unauthorized, Unreachable
from k8s.models.resources import Resource
from k8s.watch.mirror import Mirror, MirrorState
from tui.text.format import count

_TROUBLES: tuple[tuple[type[KubeError], str], ...] = (
    (Unauthorized, "login expired"),
    (Throttled, "throttled"),
    (NotKubernetes, "no Kubernetes API"),
    (Unreachable, "away"),
    (KubeError, "failing"),
)
"""A problem to a word for it, the one that explains the others first."""


def trouble_of(mirrors: Sequence[Mirror[Any]], unanswered: KubeError | None) -> tuple[str, str, float]:
    """Return why what is shown may be old, in a word and in words, and since when; empty when it is not.

    What the probe has found while the cluster answers nobody is newer than what ended each watch.
    """
    ailing = [
        (mirror, unanswered or problem)
        for mirror in mirrors
        if (problem := mirror.state.problem) is not None and not mirror.state.is_absent
    ]
    for kind, word in _TROUBLES:
        found = [(mirror, problem) for mirror, problem in ailing if isinstance(problem, kind)]
        if found:
            problem = found[0][1]
            reason = problem.why or problem.what
            if isinstance(problem, Unauthorized):
                reason = f"{problem.details} ctrl+r retries now."
            elif isinstance(problem, NotKubernetes):
                reason = f"{problem.what} {problem.details} ctrl+r retries now."
            elif isinstance(problem, Unreachable):
                said = filter(None, (f"{reason.rstrip('.')}.", problem.hint))
                reason = f"{' '.join(said)} Retrying automatically; ctrl+r retries now."
            if unanswered is None and len(ailing) < sum(not mirror.state.is_absent for mirror in mirrors):
                reason = f"{', '.join(mirror.resource.full_name for mirror, _ in found)}: {reason}"
            heard_s = [mirror.heard_at_s for mirror, _ in ailing if mirror.heard_at_s]
            return word, reason, min(heard_s, default=0.0)
    return "", "", 0.0


def list_progress(lists: Iterable[tuple[Resource, MirrorState]]) -> str:
    """Say how much of the first lists has come: `1,500 of 10,000 pods so far…`; empty before and after."""
    parts = []
    for resource, state in lists:
        if state.listed and not state.is_synced:
            of_all = f" of {count(state.listed + state.remaining)}" if state.remaining else ""
            parts.append(f"{count(state.listed)}{of_all} {resource.plural}")
    return f"{', '.join(parts)} so far…" if parts else ""
