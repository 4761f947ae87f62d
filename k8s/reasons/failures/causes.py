"""Failure causes: those of `causes.toml`, and the user's own."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from typing import overload

_OPTIONAL = re.compile(r"\[([^\]]*)\]")
_FIELD = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class FailureCause:
    """A known cause of failures, how to recognise it, and what helps."""

    name: str
    """Shown to the user: `CUDA out of memory`."""
    pattern: str
    """Regular expression, searched in the culprit's error, then in the lines around it; empty for none."""
    sentence: str
    """Template: `{group}` is a group found; a part in brackets is left out if its groups were not found."""
    remedy: str
    states: tuple[str, ...] = ()
    """States of the container or pod that prove it: `OOMKilled`, `Evicted`, `SIGBUS`, `exit 127`."""
    details: tuple[str, ...] = ()
    """Further patterns, searched in the whole error for groups of the sentence."""
    can_retry_help: bool = False
    """The same job may well succeed when run again."""
    is_decisive: bool = False
    """A line near the error proves it, whatever the error itself says."""
    is_collateral: bool = False
    """Ranks print it after another one failed."""

    @property
    def is_ending(self) -> bool:
        """Return True if it describes how a process ended rather than why."""
        return any(state.startswith("SIG") for state in self.states)

    def fill(self, groups: Mapping[str, str]) -> str:
        """Return the sentence with the groups filled in."""

        def part(found: re.Match[str]) -> str:
            return found[1] if all(groups.get(name) for name in _FIELD.findall(found[1])) else ""

        return _FIELD.sub(lambda found: groups.get(found[1]) or "?", _OPTIONAL.sub(part, self.sentence))


@lru_cache(1024)
def compiled(pattern: str) -> re.Pattern[str]:
    """Return the compiled pattern of a cause."""
    return re.compile(pattern)


class PackagedCauses(Sequence[FailureCause]):
    """The causes of `causes.toml`, the more specific first; read on first use."""

    @overload
    def __getitem__(self, index: int) -> FailureCause: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[FailureCause]: ...
    def __getitem__(self, index: int | slice) -> FailureCause | Sequence[FailureCause]:
        return _packaged()[index]

    def __len__(self) -> int:
        return len(_packaged())


@cache
def _packaged() -> tuple[FailureCause, ...]:
    import tomllib

    table = tomllib.loads(files(__package__).joinpath("causes.toml").read_text("utf-8"))
    return tuple(
        FailureCause(
            entry["name"],
            "|".join(entry.get("pattern", ())),
            entry["sentence"],
            entry["remedy"],
            tuple(entry.get("states", ())),
            tuple(entry.get("details", ())),
            entry.get("retry", False),
            entry.get("decisive", False),
            entry.get("collateral", False),
        )
        for entry in table["cause"]
    )


CAUSES = PackagedCauses()
