"""Flight recorders of several ranks compared: who never entered a collective that others wait in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from k8s.reasons.phrases import span
from k8s.text.sanitize import sanitize

# A rank may be this much later than the others without being stuck.
_LATE_S = 2.0
# Times as large as this do not fit a float with the others.
_MOST_NS = 2**63
_LONGEST_NAME = 60
# All ranks must give these the same sizes.
_OF_EQUAL_SIZE = ("all_reduce", "broadcast", "reduce", "allreduce")


class Operation(msgspec.Struct, frozen=True):
    """Collective as one rank recorded it."""

    number: int
    name: str
    """Without the backend: `all_reduce`."""
    sizes: str
    is_done: bool
    created_ns: int


class CollectiveFinding(msgspec.Struct, frozen=True):
    """Ranks that are not where the others are."""

    sentence: str
    ranks: tuple[int, ...]
    name: str = ""
    number: int = 0
    waiting: tuple[int, ...] = ()


def compare(
    recorders: Mapping[int, object], now_ns: Mapping[int, int], unknown: Sequence[int] = ()
) -> tuple[CollectiveFinding, ...]:
    """Compare recorders, by rank, each a mapping of process group to its newest entries.

    `unknown` are the ranks of which no recorder answered.
    """
    groups: dict[str, dict[int, dict[int, Operation]]] = {}
    for rank, recorder in recorders.items():
        for group, entries in recorder.items() if isinstance(recorder, dict) else ():
            groups.setdefault(str(group), {})[rank] = dict(_operations(entries))
    for group, by_rank in groups.items():
        if _holds_all(group):
            by_rank.update({rank: {} for rank in recorders if rank not in by_rank})
    found = [
        _compare_group(group, by_rank, now_ns, unknown if _holds_all(group) else ())
        for group, by_rank in groups.items()
    ]
    return tuple(each for each in found if each is not None)


def _holds_all(group: str) -> bool:
    # The first group, of all ranks.
    return group == "0" or group.startswith("0 ")


def _operations(entries: object) -> Iterable[tuple[int, Operation]]:
    for each in entries if isinstance(entries, list) else ():
        if isinstance(each, dict):
            number, created = each.get("collective_seq_id"), each.get("time_created_ns")
            if isinstance(number, int) and isinstance(created, int) and created < _MOST_NS:
                name = sanitize(str(each.get("profiling_name")))[:_LONGEST_NAME]
                name = name.rpartition(":")[2].lstrip("_")
                is_done = each.get("retired") is True or each.get("state") == "completed"
                sizes = f"{each.get('input_sizes')} {each.get('input_dtypes')}"
                yield number, Operation(number, name, sizes, is_done, created)


def _compare_group(
    group: str,
    by_rank: Mapping[int, Mapping[int, Operation]],
    now_ns: Mapping[int, int],
    unknown: Sequence[int],
) -> CollectiveFinding | None:
    if len(by_rank) + len(unknown) < 2:
        return None
    name = sanitize(group.partition(" ")[2])[:_LONGEST_NAME]
    where = "" if name in ("", "default_pg", "undefined") else f" of group {name}"
    for number in sorted({number for entries in by_rank.values() for number in entries}):
        if finding := _mismatch(number, {r: each[number] for r, each in by_rank.items() if number in each}):
            return finding
    last = {rank: max(entries, default=0) for rank, entries in by_rank.items()}
    behind = min(last.values())
    number = behind + 1 if behind < max(last.values()) else behind
    entered = {rank: entries[number] for rank, entries in by_rank.items() if number in entries}
    waiting = tuple(sorted(rank for rank, each in entered.items() if not each.is_done))
    missing = tuple(sorted(rank for rank in by_rank if last[rank] < number))
    if not waiting:
        return None
    each = entered[waiting[0]]
    age_s = min(min(now_ns.get(rank, 0), _MOST_NS) - entered[rank].created_ns for rank in waiting) / 1e9
    if age_s < _LATE_S:
        return None
    what = f"{each.name} #{number}{where}"
    if unknown and not missing:
        sentence = (
            f"{_start(waiting)} {'waits' if len(waiting) == 1 else 'wait'} in {what} for {span(age_s)};"
        )
        sentence += f" whether {describe_ranks(unknown)} entered it is not known."
        return CollectiveFinding(sentence, tuple(unknown), each.name, number, waiting)
    if missing:
        wait = f"{'waits' if len(waiting) == 1 else 'wait'} in it for {span(age_s)}"
        sentence = f"{_start(missing)} never entered {what}: {describe_ranks(waiting)} {wait}."
        return CollectiveFinding(sentence, missing, each.name, number, waiting)
    done = tuple(sorted(rank for rank, each in entered.items() if each.is_done))
    others = f"; {describe_ranks(done)} finished it" if done else ", and none finished it"
    sentence = f"All {len(by_rank)} ranks entered {what}{others}: the network or a GPU may be stuck."
    return CollectiveFinding(sentence, waiting if done else (), each.name, number, waiting)


def _mismatch(number: int, entered: Mapping[int, Operation]) -> CollectiveFinding | None:
    if len(kinds := _grouped({rank: each.name for rank, each in entered.items()})) > 1:
        what = "different collectives"
    elif next(iter(kinds), "") in _OF_EQUAL_SIZE and len(entered) > 1:
        kinds = _grouped({rank: f"{each.name} of {each.sizes}" for rank, each in entered.items()})
        what = "collectives of different sizes"
    if len(kinds) < 2:
        return None
    ordered = sorted(kinds.items(), key=lambda each: -len(each[1]))
    parts = ", ".join(f"{describe_ranks(ranks)} {name[:120]}" for name, ranks in ordered)
    return CollectiveFinding(
        f"The ranks entered {what} as #{number}: {parts}.", ordered[-1][1], number=number
    )


def _grouped(names: Mapping[int, str]) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for rank in sorted(names):
        found[names[rank]] = (*found.get(names[rank], ()), rank)
    return found


def _start(ranks: Sequence[int]) -> str:
    words = describe_ranks(ranks)
    return words[0].upper() + words[1:]


def describe_ranks(ranks: Sequence[int]) -> str:
    """Return `rank 2`, `ranks 2 and 5`, or `63 ranks`."""
    if len(ranks) > 2:
        return f"{len(ranks)} ranks"
    return f"rank{'s' * (len(ranks) > 1)} {' and '.join(map(str, ranks))}"
