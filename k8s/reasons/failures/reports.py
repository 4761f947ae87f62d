"""Reports of launchers about their ranks: torchrun, mpirun, Hydra, srun, DeepSpeed, multiprocessing.

A launcher sees exits, not errors: the rank that it names first may be a victim of another.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence

import msgspec

from k8s.reasons.failures.errors import ROOT_CAUSE, RankedText
from k8s.status.pod import signal_name

# A process that got one of these was not told to stop by its launcher.
_HARD = ("SIGKILL", "SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE")
_SIGNAL_NAMES = {
    "killed": "SIGKILL",
    "out of memory": "SIGKILL",
    "segmentation fault": "SIGSEGV",
    "bus error": "SIGBUS",
    "aborted": "SIGABRT",
    "terminated": "SIGTERM",
}
_ELASTIC = re.compile(r"failed \(exitcode: (?P<code>-?\d+)\) local_rank: (?P<local>\d+)")
_SPAWNED = re.compile(
    r"process (?P<local>\d+) terminated with (?:signal (?P<signal>SIG\w+)|exit code (?P<code>\d+))"
)
# Its command is that of the process started last, whichever failed.
_DEEPSPEED = re.compile(r"exits with return code = (?P<code>-?\d+)")
_BY_RANK = (
    re.compile(
        r"process rank (?P<rank>\d+) with PID \d+ on node \S+ exited on(?: signal (?P<code>\d+)(?P<sig>))?"
    ),
    re.compile(r"(?:MPI_ABORT was invoked on rank |trainer process with rank=\[)(?P<rank>\d+)"),
    re.compile(r"^Abort\((?P<code>\d+)\) on node \d+ \(rank (?P<rank>\d+) in comm"),  # MPICH
    re.compile(r"(?:Process|Container rank) (?P<rank>\d+) (?:exit with )?status .*?\bcode (?P<code>-?\d+)"),
    re.compile(
        r"srun: error: \S+: tasks? (?P<rank>\d+)[\d,-]*: (?:Exited with exit code (?P<code>\d+)"
        r"|(?P<signal>.+))"
    ),
)
_TABLE_RANK = re.compile(r"^ +rank +: (\d+) \(local_rank: \d+\)")
_TABLE_CODE = re.compile(r"^ +exitcode +: (-?\d+)")
_MPI_NAME = re.compile(r"Process name: \[.*[,@]\d*,?(\d+)\]")
_MPI_CODE = re.compile(r"Exit code: +(\d+)")
_HYDRA_RANK = re.compile(r"^= +RANK (\d+) PID")
_HYDRA_CODE = re.compile(r"^= +(?:KILLED BY SIGNAL: (\d+)|EXIT CODE: (\d+))")
_WRAPPED_SIGNAL = re.compile(r"^signal (\d+)")
# Named by the ranks that wait for them.
_STALLED = re.compile(r"^(?:Missing|Stalled) ranks:\s*$")
_STALLED_RANK = re.compile(r"^(\d+): \[")
_ABSENT = re.compile(
    r"[Rr]anks? (\d[\d, ]*) failed to pass monitoredBarrier|[Mm]issing ranks: ?\[?(\d[\d, ]*)"
    r"|/task:(\d+) heartbeat timeout|unhealthy .*?/task:(\d+)"  # JAX
    r"|^ +\[(\d[\d, ]*)\] (?:finished collective #\d+, but|joined but) didn't"  # TORCH_NCCL_DESYNC_DEBUG
)


class RankReport(msgspec.Struct, frozen=True):
    """Statement of a launcher, or of another rank, about one rank."""

    rank: int | None
    """None if the launcher does not say which."""
    code: int | None
    """Exit code, negative for a signal; None if only the rank is named."""
    stamp_ns: int
    index: int
    text: str
    is_forced: bool = False
    """Its launcher killed it, because it ignored SIGTERM."""
    is_absent: bool = False
    """The rank did not reach a collective."""
    is_root: bool = False
    """Its launcher names it the first of several failures."""

    @property
    def signal(self) -> str:
        """Return the name of the signal that ended it; empty for none."""
        code = self.code or 0
        # A shell in between reports a signal as 128 plus its number.
        return signal_name(-code if code < 0 else max(0, code - 128))

    @property
    def is_hard(self) -> bool:
        """Return True if the process crashed or was killed, other than by its launcher."""
        return self.signal in _HARD and not self.is_forced


def find_reports(texts: Sequence[RankedText], ranks: Sequence[int]) -> list[RankReport]:
    """Return the reports in a container's log; `ranks` are its own, by local rank."""
    found: list[RankReport] = []
    rank: int | None = None
    forces = is_root = False
    for index, (stamp_ns, _, text, is_notable) in enumerate(texts):
        if not is_notable:
            continue
        forces = forces or "forcefully exiting via" in text
        is_root = is_root or ROOT_CAUSE in text
        code: int | None = None
        unsigned: re.Match[str] | None = None
        if named := _TABLE_RANK.match(text) or _MPI_NAME.search(text) or _HYDRA_RANK.match(text):
            rank = int(named[1])
            continue
        if rank is not None and (exited := _TABLE_CODE.match(text) or _MPI_CODE.search(text)):
            code = int(exited[1])
        elif rank is not None and (ended := _HYDRA_CODE.match(text)):
            code = -int(ended[1]) if ended[1] else int(ended[2])
            # Hydra prints a wait status: below 32, and not 1 or 2, it is a signal.
            code = -code if 3 < code < 32 else code
        elif found and (wrapped := _WRAPPED_SIGNAL.match(text)) and found[-1].index == index - 1:
            rank, code = found.pop().rank, -int(wrapped[1])
        elif _STALLED.match(text):
            following = (_STALLED_RANK.match(each.text) for each in texts[index + 1 : index + 9])
            for stalled in filter(None, following):
                found.append(RankReport(int(stalled[1]), None, stamp_ns, index, text, is_absent=True))
            continue
        elif absent := _ABSENT.search(text):
            for number in re.findall(r"\d+", next(filter(None, absent.groups())))[:16]:
                found.append(RankReport(int(number), None, stamp_ns, index, text, is_absent=True))
            continue
        else:
            rank, code = _named(text, ranks)
        if rank is not None or (code is None and (unsigned := _DEEPSPEED.search(text))):
            code = int(unsigned["code"]) if rank is None and unsigned else code
            is_forced = forces and code == -9
            found.append(
                RankReport(rank, code, stamp_ns, index, text, is_forced, is_root=is_root and text[:1] == " ")
            )
        rank = None
    return found


def _named(text: str, ranks: Sequence[int]) -> tuple[int | None, int | None]:
    for pattern in (_ELASTIC, _SPAWNED):
        if found := pattern.search(text):
            local = int(found["local"])
            if local >= len(ranks):
                return (local, _code(found)) if not ranks else (None, None)
            return ranks[local], _code(found)
    for pattern in _BY_RANK:
        if found := pattern.search(text):
            return int(found["rank"]), _code(found)
    return None, None


def _code(found: re.Match[str]) -> int | None:
    groups = found.groupdict()
    if word := groups.get("signal"):
        known = _SIGNAL_NAMES.get(word.split("(")[0].strip().lower(), word)
        return -getattr(signal, known).value if hasattr(signal, known) and known.startswith("SIG") else None
    if (text := groups.get("code")) is None:
        return None
    return -int(text) if "sig" in groups else int(text)
