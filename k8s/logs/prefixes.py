"""Rank prefixes that launchers and frameworks put before lines.

Some name the global rank, which proves the writer. Some name only the local rank, which gives the
global one if the pod's ranks are known. Rules are few and strict: a line assigned to the wrong rank
is worse than one that stays with its pod.

Not rules, on purpose: `3: ` (srun --label, but also every numbered list), NCCL's
`host:pid:tid [0] NCCL INFO` (a device, not a rank), `[3]` from anything but an MPI launcher.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

import msgspec

from k8s.text.lazy_pattern import lazy_pattern
from k8s.text.sanitize import sanitize

# A prefix must end within these bytes of a line.
PREFIX_BYTES = 256
_KNOWN_STARTS = 2048

Names = Literal["global", "local", "either"]


class PrefixRule(msgspec.Struct, frozen=True):
    """One prefix format."""

    example: str
    pattern: re.Pattern[bytes]
    """Group 1 is the number."""
    names: Names = "global"
    """`global` rank, `local` rank in the pod, or `either`: local unless it is one of the pod's ranks."""
    stays: bool = False
    of_launcher: bool = False
    """Holds only where all ranks of an MPI job print."""


def _rule(example: str, pattern: bytes, names: Names = "global", **flags: bool) -> PrefixRule:
    return PrefixRule(example, lazy_pattern(pattern), names, **flags)


_N = rb"(\d{1,6})"
_DATE = rb"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d:]{10,16} \d{4}"
# Open MPI 5 puts a space before the line, 4 does not: one alone is its own.
_TAG_END = rb"(?:,[\w.-]+)?\](?:\[[^\]\s]*\])?<(?:stdout|stderr|stddiag)>:(?: (?! ))?"
# SageMaker's writes `[1,mpirank:3,algo-1]<stdout>:`, horovodrun with Gloo `[3]<stdout>:`.
_MPI_TAG = rb"\[(?:[^\],\s]*,(?:mpirank:)?)?" + _N + _TAG_END

# The first match wins.
RULES: tuple[PrefixRule, ...] = (
    # Our jobs' TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE; the excepthook of torch's init_process_group
    _rule("[rank3]: step 1", rb"\[rank" + _N + rb"\]: "),
    # torch c10/util/Logging.cpp: the rank before every message of the C++ side
    _rule(
        "[rank3]:[W1014 12:00:00.000 ProcessGroupNCCL.cpp:1] x", rb"\[rank" + _N + rb"\]:(?=\[[IWEF]\d* ?\d)"
    ),
    # torchrun --role rank --tee 3, as torchtitan's run_train.sh: the place on the node
    _rule("[rank3]:step 1", rb"\[rank" + _N + rb"\]:", "either"),
    # torch/distributed/elastic/multiprocessing/tail_log.py with its default [<role><local rank>]:
    _rule("[default3]:step 1", rb"\[(?:default|trainer|worker)" + _N + rb"\]:", "local"),
    # Open MPI mpirun --tag-output; PRRTE --output tag, tag-fullname, tag-detailed
    _rule("[1,3]<stdout>:step 1", _MPI_TAG),
    # Open MPI 5 and 4: mpirun --tag-output --timestamp-output
    _rule("[Tue May 14 12:00:00 2024][1,3]<stdout>: x", rb"\[" + _DATE + rb"\]" + _MPI_TAG),
    _rule("Tue May 14 12:00:00 2024[1,3]<stdout>:step 1", _DATE + _MPI_TAG),
    # MPICH Hydra -prepend-rank, Intel MPI -l
    _rule("[3] step 1", rb"\[" + _N + rb"\] ", of_launcher=True),
    # lightning/fabric/utilities/rank_zero.py rank_prefixed_message
    _rule("[rank: 3] step 1", rb"\[(?i:rank)(?:: ?|=| )" + _N + rb"\]:? "),
    # logfmt, and by hand
    _rule("rank=3 step=1", rb"(?i:rank)=" + _N + rb"(?= )", stays=True),
    _rule("rank 3: step 1", rb"(?i:rank) ?" + _N + rb": "),
    # nemo/utils/formatters/base.py DEBUG_FORMAT
    _rule(
        "[NeMo I 2024-05-14 train:12 rank:3] x", rb"\[NeMo [A-Z] [^\]]{1,120} rank:" + _N + rb"\]", stays=True
    ),
    # deepspeed/utils/logging.py log_dist
    _rule(
        "[2024-05-14 12:00:00,000] [INFO] [logging.py:69:log_dist] [Rank 3] x",
        rb"\[\d{4}-[^\]]{1,40}\] \[[A-Z]+\] \[[^\]]{1,80}\] \[Rank " + _N + rb"\] ",
        stays=True,
    ),
)


class LineOwner(NamedTuple):
    """The rank that wrote a line, as far as its prefix or its pod tells."""

    rank: int | None = None
    is_proven: bool = False
    prefix_bytes: int = 0


# The pod itself.
NO_OWNER = LineOwner()

_BY_START = {
    start: tuple(rule for rule in RULES if chr(start) in (rule.example[0], rule.example[0].swapcase()))
    for start in b"[rR"
} | {start: tuple(rule for rule in RULES if rule.example[0] == "T") for start in b"MTWFS"}


class RankReader:
    """Finds the rank of each line of one pod."""

    def __init__(self, ranks: Sequence[int] = (), *, prints_all_ranks: bool = False) -> None:
        """Create a reader for a pod; `ranks` are global, known or assumed, by local rank."""
        self._ranks = tuple(ranks)
        self._prints_all_ranks = prints_all_ranks
        self._owners: dict[bytes, LineOwner] = {}
        # Names by so many first bytes of lines.
        self._names: dict[bytes, bytes] = {}
        self._name_bytes = 0
        # The only rank of a pod writes its lines without a prefix, too.
        self._default_owner = (
            LineOwner(self._ranks[0]) if len(self._ranks) == 1 and not prints_all_ranks else NO_OWNER
        )

    def owner(self, raw: bytes) -> LineOwner:
        """Return the owner of a line; without a prefix, the pod's only rank or `NO_OWNER`."""
        # Most lines begin with the first rule's prefix, as one of the lines before.
        if raw.startswith(b"[rank") and (end := raw.find(b"]: ", 6, 14)) > 0:
            start = raw[:end]
            if (known := self._owners.get(start)) is None:
                if len(self._owners) >= _KNOWN_STARTS:
                    self._owners.clear()
                known = self._owners[start] = self._read_owner(raw[: end + 3])
            return known
        return self._read_owner(raw)

    def named(self, lines: Iterable[bytes], name: str, begin: int) -> list[bytes]:
        """Return lines from byte `begin` on with the names of their writers in place of the prefixes."""
        names, end = self._names.get, begin + self._name_bytes
        return [
            start + line[end:] if (start := names(line[begin:end])) else self._named(line[begin:], name)
            for line in lines
        ]

    def _named(self, raw: bytes, name: str) -> bytes:
        owner = self.owner(raw)
        start, rest = named_start(name, owner.rank), raw[owner.prefix_bytes :]
        if raw.startswith(b"[rank") and raw.find(b"]: ", 6, 14) == owner.prefix_bytes - 3:
            self._name_bytes = max(self._name_bytes, owner.prefix_bytes)
            if len(self._names) < _KNOWN_STARTS:
                cut = self._name_bytes - owner.prefix_bytes
                self._names[raw[: self._name_bytes]] = start + rest[:cut]
        return start + rest

    def _read_owner(self, raw: bytes) -> LineOwner:
        rules = _BY_START.get(raw[0]) if raw else None
        if rules is None:
            return self._default_owner
        head = raw[:PREFIX_BYTES]
        for rule in rules:
            if rule.of_launcher and not self._prints_all_ranks:
                continue
            if found := rule.pattern.match(head):
                return self._owned(rule, int(found.group(1)), 0 if rule.stays else found.end())
        return self._default_owner

    def _owned(self, rule: PrefixRule, number: int, prefix_bytes: int) -> LineOwner:
        ranks = self._ranks
        if rule.names == "global":
            return LineOwner(number, True, prefix_bytes)
        if rule.names == "either" and (not ranks or number in ranks):
            return LineOwner(number, False, prefix_bytes)
        if number < len(ranks):
            return LineOwner(ranks[number], False, prefix_bytes)
        # A local rank without a known global one: claim nothing, hide nothing.
        return NO_OWNER


@lru_cache(4096)
def named_start(name: str, rank: int | None) -> bytes:
    """Return the name of a writer as it is printed before its lines."""
    return f"[{sanitize(name if rank is None else f'{name} {rank}')}] ".encode()
