"""Errors in a container's log: Python tracebacks, aborts of native code, complaints of shells.

Lines of several ranks may be interleaved, prefixed, or glued to a progress bar.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from k8s.reasons.stacks.frames import folded_traceback
from k8s.text.sanitize import decode, log_text

if TYPE_CHECKING:
    from k8s.logs.lines import LogLine

# Limits of what is read of a line, and of one error.
LINE_CHARS = 2000
MESSAGE_LINES = 30
TRACEBACK_LINES = 60
_MOST_PARTS = 16
_MOST_ERRORS = 400
# Lines of one traceback are written at once; the runtime stamps them within this time.
_BLOCK_GAP_NS = 2_000_000_000


def any_of(*parts: str) -> re.Pattern[str]:
    """Return a compiled alternation of the parts; `(?i)` before the first ignores case in all."""
    return re.compile("|".join(parts))


_HEADER = re.compile(r"(?:(Original|Remote|Exception Group) )?Traceback \(most recent call last\)")
_DOTTED = r"(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*"
# After frames, whatever is not indented is the exception.
_RAISED = re.compile(rf"(?!File \")({_DOTTED}(?:\([\w.]+\))?)(?::(?: (.*))?)?\s*$")
# Without a traceback, the name has to tell.
_BARE = re.compile(
    rf"(?!\w*Warning\b)({_DOTTED}?(?:Error|Exception|Interrupt|Exit|Fault|[Tt]imeout|Expired|Group|Pool)"
    r"(?:\([\w.]+\))?)(?:: (?=\S)|:?\s*$)"
)
_FRAME = re.compile(r"\s+(?:> )?File \"")
_CAUSE_LINK = "The above exception was the direct cause of"
_CONTEXT_LINK = "During handling of the above exception"
_NESTED = any_of(
    r"-- Process (\d+) terminated with the following error",  # torch.multiprocessing.spawn
    r"^\"\"\"$|^'''$",  # concurrent.futures and multiprocessing.pool quote a remote traceback
    r"following error:\s*$",
)
_GROUP_EDGE = re.compile(r"^\s*(?:\| ?|\+-[-+ \d.]*$|\+ (?=Exception Group))")
# A line of another writer: it ends the message of an exception.
_LOGGED = any_of(
    r"(?i)\s*(?:\[?\d{4}[-/]\d\d[-/]\d\d[T ]|\[?\d\d:\d\d:\d\d)",  # a time
    r"\s*(?:[IWEF]\d{4} |\[[IWEF]\d{3,4} |\[[EW] \w)",  # glog, in TensorFlow, XLA and PyTorch
    r"\s*(?:(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)[: ]|\w+: (?:INFO|WARNING|ERROR)\b)",  # logging
    r"\s*\S+:\d+:\d+ \[\d+\] ",  # NCCL
    r"\s*\[[\w.-]+:\d+(?::\d+)*\] ",  # Open MPI, UCX
    r"\s*(?:wandb:|srun: |slurmstepd: |={20}|-{20}|\*{20})",
    r"\s*(?:terminate called|Fatal Python error|Exception (?:ignored )?in )",
    r"\s*(?:(?:step|epoch|iter\w*)\b.{0,60}loss|\d{1,3}%\|)",  # progress
)
# An exception's message goes on if its first line is open, or the next is indented; after a sentence or an
# error of NCCL, further lines may give the cause, but are not shown.
_OPEN = re.compile(r"[:,=(\[{\\]\s*$|^[^\"]*\"[^\"]*$|\([^)]*$|\[[^\]]*$|\{[^}]*$")
_INDENTED = re.compile(r"[\s*+|)\]}~^-]|$")
_VERBOSE = re.compile(r"[NH]CCL|Hccl|\bACL\b|Request ID|\.\s*$")
_TERMINATE = re.compile(r"terminate called after throwing an instance of '([^']{1,200})'")
_STILL_RUNS = "terminate called without an active exception"
_WHAT = re.compile(r"\s*what\(\):\s*(.*)")
_SIGNAL_WORDS = "Segmentation fault|Bus error|Illegal instruction|Floating point exception|Aborted|Killed"
_NATIVE = any_of(
    r"(Fatal Python error: .+)",  # faulthandler
    r"\] Signal: ([A-Z][\w ]+ \(\d+\))",  # Open MPI's handler
    # bash, of its children: `run.sh: line 9:    17 Killed      python train.py`
    rf"^(?:\S+: (?:line )?\d+: +\d+ )?((?:{_SIGNAL_WORDS})(?: +\(core dumped\).*)?)(?: {{2,}}.*)?$",
    r"((?:^F\d{4} |\[F\d{3,4} ).*|Check failed: .+|(?:FATAL|fatal error): .+)",  # glog, MPICH
    r"\*\*\* (SIG\w+) (?:received|\(@0x)",  # absl, glog
    r"terminated with exception: (.+)|(Watchdog caught collective operation timeout.*)",  # ProcessGroupNCCL
    r"(\[\w+\] \[Fatal\] .+)",  # LightGBM
    r"^(CUDA (?:error|failure)\b.*|.{0,200}: Test (?:CUDA|NCCL) failure.*)",  # nccl-tests
)
_SHELL = any_of(
    r"^\S*\b(?:ba|da|z|k)?sh: .+: (?:command not found|not found|No such file or directory"
    r"|Permission denied|cannot execute.*|.*format error)",
    r"^exec (?:failed|/\S+|\S+: ).*|^\S*env: .+: (?:No such file or directory|Permission denied)",
    r"^\S+: can't open file .+|^\S*python[\d.]*: (?:No module named|can't|Error while).+",
    r"^\S+: error while loading shared libraries: .+",  # ld.so
    r"^ssh: .+|^(?:\S+@)?\S+: Permission denied \(.+|^Host key verification failed.*",
    r"^(?!srun: |slurmstepd: )[\w./ -]{1,80}: error: .+|^usage: .+ error: .+",  # argparse, compilers
    r"^(?:[Ee]rror|fatal): .+|^Error response from daemon.+",  # Go programs, git
    r"^\S{1,60}: (?:cannot|unable to|could not|failed to) .+",  # coreutils
    r"^(?:mpirun|mpiexec|orterun|prterun|prun|horovodrun) (?:has detected|was unable|could not|is unable).+",
    r"^.{0,10}There are not enough slots available.+|^(?:ORTE|PRTE) (?:was unable|has lost|does not know).+",
    r"^(?:Error in call to target|Could not override|Missing mandatory value).+",  # Hydra
)
# Log lines of native code; its exceptions in Python often say less.
NATIVE_COMPLAINT = any_of(
    r"^[EF]\d{4} |\[[EF]\d{3,4} ",  # glog
    r"^\d{4}-\d\d-\d\d [\d:.]+: [EF] ",  # TensorFlow, XLA
    r"NCCL WARN|UCX +ERROR",
)
_ERROR_LEVEL = any_of(NATIVE_COMPLAINT.pattern, r"\b(?:ERROR|CRITICAL|FATAL)\b|^Error\b")
# A line with one of these is worth a closer look; most lines have none.
_NOTABLE_WORDS = (
    'error|exception|fatal|traceback|terminate|kill|fault|fail|denied|file "|not found|abort|cannot|'
    "can't|could not|unable|refused|interrupt|exit|timeout|timed out|detected|not enough|instruction|"
    "no module|missing|signal|what():|expired|no such|exec |nccl warn|.cpp:|ssh: |local_rank|resolve|"
    "but didn't|process name|running at|stalled ranks|/task:|return code|usage|invalid|unknown |exceeded|"
    "unrecognized|assert|bus |memory|as root|xid|slots|nan|: e |*** sig|-finite|exchange_id|closed by|in use|"
    "memlock| lost |does not know|no kernel|limit|times out|hccl|loaded runtime|root cause|mesh master|"
    "acquired"
)
_NOTABLE = tuple(_NOTABLE_WORDS.split("|"))
_LOOSE_LABEL = re.compile(r" {0,4}(\d{1,5}): |\[(\d{1,5})\] ?")
# PyTorch's label after that of torchrun, which is removed already, or the host of DeepSpeed's launcher.
_RANK_LABEL = re.compile(r"(?:[\w.-]{1,80}: )?\[rank(\d{1,6})\]: ?")
_TAG = re.compile(
    r"\[[^\],\s]{1,40},(\d{1,6})\](?:\[[^\]\s]*\])?<std\w+>: ?|\(\w[\w. ]* pid=\d+[^)]{0,80}\) ?"
)
_PREFIX_RANK = re.compile(r"(?i)\brank[ =:]{0,2}(\d{1,6})\b")
# torchelastic's table of failures.
_TABLE_RANK = re.compile(r"  rank +: (\d{1,6})")
# A process numbers the GPUs that it sees, which torchrun does not restrict.
_NCCL_DEVICE = re.compile(r"\S+:\d+:\d+ \[(\d{1,2})\] .*NCCL WARN")
ROOT_CAUSE = "Root Cause (first observed failure)"
_NUMBERS = re.compile(r"\d+")
_CLOCK = re.compile(r"\d\d:\d\d")

Kind = Literal["exception", "native", "shell", "complaint"]


class RankedText(NamedTuple):
    """One sanitized line, without the prefix of its rank."""

    stamp_ns: int
    rank: int | None
    text: str
    is_notable: bool
    """It may belong to an error, or report one."""


class Raised(msgspec.Struct):
    """One exception of a chain."""

    headline: str
    message: list[str] = msgspec.field(default_factory=list)
    link: str = ""
    """Link to the one before: `cause`, `context` or `nested`."""

    @property
    def texts(self) -> list[str]:
        """Return the headline and the further lines."""
        return [self.headline, *self.message]

    def is_open(self, following: str) -> bool:
        """Return True if the shapes of the headline and the next line make them one sentence."""
        return bool(_OPEN.search(self.headline) or _INDENTED.match(following))


class FoundError(msgspec.Struct):
    """One error in a container's log."""

    kind: Kind
    rank: int | None
    stamp_ns: int
    index: int
    last_index: int = 0
    chain: list[Raised] = msgspec.field(default_factory=list)
    lines: list[str] = msgspec.field(default_factory=list)
    """As printed: the traceback and the message, at most `TRACEBACK_LINES`."""
    is_ignored: bool = False
    """Python continued after it: `Exception ignored in`."""
    local_rank: int | None = None

    @property
    def members(self) -> list[Raised]:
        """Return the exceptions of the chain, the most helpful first: the innermost, else the outermost."""
        named = [each for each in self.chain if each.headline]
        nested = [each for each in named if each.link == "nested"]
        if not nested:
            return named[::-1]
        # The first exception of a group cancelled the others.
        first = nested[0 if "sub-exception" in named[0].headline else -1]
        return [first, *(each for each in reversed(named) if each is not first)]

    @property
    def headline(self) -> str:
        """Return the first line of the most helpful exception; empty if none was read."""
        return next((each.headline for each in self.members), "")

    @property
    def texts(self) -> list[str]:
        """Return the lines of all messages, the most helpful first."""
        return [text for member in self.members for text in member.texts]


def read_texts(lines: Sequence[LogLine], *, has_several_ranks: bool) -> list[RankedText]:
    """Return the sanitized lines; labels of ranks that are only likely are read if most lines have them."""
    found: list[RankedText] = []
    for line in lines:
        raw = line.text
        if len(raw) > 8 * LINE_CHARS:
            raw = raw[: 4 * LINE_CHARS] + raw[-4 * LINE_CHARS :] if b"\r" in raw else raw[: 4 * LINE_CHARS]
        texts = _parts(raw) if b"\r" in raw else (raw,)
        for text in texts:
            clean = log_text(text, cap=LINE_CHARS)
            found.append(RankedText(line.stamp_ns, line.rank, clean, _is_notable(clean)))
    for pattern in (_RANK_LABEL, _LOOSE_LABEL) if has_several_ranks else ():
        labels = [pattern.match(each.text) for each in found]
        if pattern is _RANK_LABEL or sum(map(bool, labels)) * 2 > len(found):
            found = [
                each._replace(rank=int(label[label.lastindex or 0]), text=each.text[label.end() :])
                if label
                else each
                for each, label in zip(found, labels, strict=True)
            ]
    return found


def _is_notable(text: str) -> bool:
    lower = text.lower()
    return any(word in lower for word in _NOTABLE)


def _parts(raw: bytes) -> Iterable[str]:
    # A progress bar is replaced by its last state, but an error printed between two states stays.
    parts = [each for each in decode(raw).rsplit("\r", _MOST_PARTS) if each.strip()]
    return [each for each in parts[:-1] if _is_notable(each)] + parts[-1:]


def find_errors(texts: Sequence[RankedText]) -> list[FoundError]:
    """Return the errors in the lines of one container, in the order of their first lines."""
    reader = _ErrorReader()
    for index, line in enumerate(texts):
        reader.read(index, line)
    return reader.found


class _Block:
    """A traceback or message that is being read."""

    def __init__(self, error: FoundError, prefix: str, state: str, *, is_typed: bool = False) -> None:
        self.error = error
        self.state = state
        """`frames`, `message`, `ended` (only a chained exception may follow), `link` or `over`."""
        self.stamp_ns = error.stamp_ns
        self.link = ""
        self._noise = 0
        # Frames without a header prove less: only what is named like an exception ends them.
        self._is_typed = is_typed
        self._prefix = prefix
        self.repeats: bool | None = None
        """True if the further lines have the prefix too, not a prompt's; None before the second line."""
        # Times in a prefix change from line to line, names do not.
        parts = _NUMBERS.split(prefix) if _CLOCK.search(prefix) else [prefix]
        self._continued = re.compile(r"\d+".join(map(re.escape, parts))) if prefix.strip() else None
        self._base = len(prefix) - len(prefix.lstrip()) if not prefix.strip() else 0

    def strip(self, text: str) -> str | None:
        """Return a line without the prefix of the block; None if it cannot belong to it."""
        if self._continued is not None:
            found = self._continued.match(text)
            if self.repeats is None:
                self.repeats = found is not None
            if self.repeats or found:
                return text[found.end() :] if found else None
            if text[:1].isspace() and self._prefix[:1].isspace():
                # The table of torchelastic: only its first line is labelled.
                return text[min(2, len(text) - len(text.lstrip())) :]
            # A logger's prefix stands before the first line only.
            return text
        if edge := _GROUP_EDGE.match(text):
            return text[edge.end() :]
        return text[self._base :] if text[: self._base].isspace() else text

    def read(self, text: str, stamp_ns: int) -> bool:
        """Add a line; return False if it does not belong to the block."""
        if stamp_ns and self.stamp_ns and abs(stamp_ns - self.stamp_ns) > _BLOCK_GAP_NS:
            self.state = "over"
            return False
        error = self.error
        if self.state == "frames":
            if not text.strip() or text[:1].isspace() or text.startswith(("> File", "File ", "^", "~", "│")):
                self._append(text)
                return True
            if not (_BARE.match(text) or (not self._is_typed and _RAISED.match(text))):
                if self._is_typed and error.chain:
                    return self._read_message(text, stamp_ns)
                self._noise += 1
                self.state = "over" if self._noise > 20 else "frames"
                return False
            error.chain.append(Raised(_stripped_type(text.rstrip()), link=self.link))
            self.state = "message"
            self._append(text)
        elif self.state == "link":
            if text.strip():
                self.state = "over"
                return False
        else:
            return self._read_message(text, stamp_ns)
        self.stamp_ns = stamp_ns
        return True

    def _read_message(self, text: str, stamp_ns: int) -> bool:
        error, before, self.state = self.error, self.state, "message"
        last = error.chain[-1]
        if text.startswith((_CAUSE_LINK, _CONTEXT_LINK)):
            self.link = "cause" if text.startswith(_CAUSE_LINK) else "context"
            self.state = "link"
        elif error.kind == "exception" and _FRAME.match(text):
            self.link, self.state, self._is_typed = "nested", "frames", True
        elif nested := _NESTED.search(text):
            self.link = "nested"
            if nested[1]:
                error.local_rank = int(nested[1])
        elif _LOGGED.match(text) or _TERMINATE.search(text):
            self.state = "over"
            return False
        elif before == "ended" or not (
            error.kind != "exception" or last.message or _VERBOSE.search(last.headline) or last.is_open(text)
        ):
            self.state = "ended"
            return False
        else:
            if found := _WHAT.match(text):
                last.headline = f"{last.headline}: {found[1]}".strip()[:LINE_CHARS]
            elif len(last.message) < MESSAGE_LINES and text.strip():
                last.message.append(text)
        self._append(text)
        self.stamp_ns = stamp_ns
        return True

    def _append(self, text: str) -> None:
        lines = self.error.lines
        lines.append(text[:LINE_CHARS])
        if len(lines) > TRACEBACK_LINES:
            lines[:] = folded_traceback(lines)
        if len(lines) > TRACEBACK_LINES:
            # The head shows where it began, the end what happened.
            del lines[TRACEBACK_LINES // 4]


class _ErrorReader:
    """Reads lines in order; each stream of a rank and a prefix has at most one open block."""

    def __init__(self) -> None:
        self.found: list[FoundError] = []
        self._open: dict[tuple[int | None, str], _Block] = {}
        self._ignored: set[int | None] = set()
        self._table_rank: int | None = None
        # When a table of failures was printed, and whether its root cause follows.
        self._table_ns, self._is_root = 0, False

    def read(self, index: int, line: RankedText) -> None:
        stamp_ns, rank, text, is_notable = line
        if not self._open and not is_notable:
            return
        while tag := _TAG.match(text):
            rank = int(tag[1]) if tag[1] else rank
            text = text[tag.end() :]
        if found := _TABLE_RANK.match(text):
            self._table_rank = int(found[1])
            self._table_ns = self._table_ns or stamp_ns
        self._is_root |= ROOT_CAUSE in text
        if header := _HEADER.search(text):
            self._read_header(index, stamp_ns, rank, text, header)
            return
        for key, block in reversed(self._open.items()):
            # Native code prefixes only the first line of a message.
            continues = rank is None and block.error.kind == "native" and block.error.last_index == index - 1
            if key[0] != rank and not continues:
                continue
            rest = block.strip(text)
            if rest is not None and block.read(rest, stamp_ns):
                block.error.last_index = index
                return
            if block.state == "over":
                del self._open[key]
                break
        if _FRAME.match(text):
            # A syntax error of the script itself is printed without a header.
            error = FoundError("exception", rank, stamp_ns, index, index, lines=[text])
            self._add(error)
            self._open[rank, ""] = _Block(error, "", "frames", is_typed=True)
        elif is_notable:
            self._read_single(index, stamp_ns, rank, text)

    def _read_header(
        self, index: int, stamp_ns: int, rank: int | None, text: str, header: re.Match[str]
    ) -> None:
        prefix = text[: header.start()]
        prefix = "" if prefix.strip() in ("+", "|") else prefix
        key = (rank, _NUMBERS.sub("0", prefix) if _CLOCK.search(prefix) else prefix)
        if prefix.strip() == "traceback :" and self._table_rank is not None:
            rank = self._table_rank
            if self._is_root and self._table_ns:
                # The launcher lists the failure that it saw first behind the others.
                stamp_ns = self._table_ns - 1
        block = self._open.get(key) or (self._open.get((rank, "")) if header[1] else None)
        if block is None and not prefix:
            linked = (each for of, each in self._open.items() if of[0] == rank and each.state == "link")
            block = next((each for each in linked if each.repeats is False), None)
        if block is not None and block.state != "over":
            is_near = not stamp_ns or abs(stamp_ns - block.stamp_ns) <= _BLOCK_GAP_NS
            is_nested = block.link == "nested" or header[1] or "sub-exception" in block.error.headline
            if is_near and (block.state in ("link", "frames") or is_nested):
                if block.state == "message":
                    block.link = "nested"
                block.state = "frames"
                block.error.lines.append(text[header.start() :])
                return
        if named := _PREFIX_RANK.search(prefix):
            rank = int(named[1]) if rank is None else rank
        error = FoundError("exception", rank, stamp_ns, index, index, lines=[text[header.start() :]])
        error.is_ignored = rank in self._ignored
        self._ignored.discard(rank)
        self._add(error)
        self._open[key] = _Block(error, prefix, "frames")

    def _add(self, error: FoundError) -> None:
        self.found.append(error)
        if len(self.found) > _MOST_ERRORS:
            # The first ones, and the last: what lies between repeats them.
            del self.found[_MOST_ERRORS // 2]

    def _read_single(self, index: int, stamp_ns: int, rank: int | None, text: str) -> None:
        if text.startswith(("Exception ignored in", "Error in atexit.")):
            self._ignored.add(rank)
            return
        kind: Kind
        if _BARE.match(text):
            kind, headline = "exception", _stripped_type(text.rstrip())
        elif _STILL_RUNS in text:
            kind, headline = "native", _STILL_RUNS
        elif found := _TERMINATE.search(text) or _NATIVE.search(text):
            kind, headline = "native", next(filter(None, found.groups())).strip()
        elif _SHELL.match(text):
            kind, headline = "shell", text.strip()
        elif _ERROR_LEVEL.search(text):
            kind, headline = "complaint", text.strip()
        else:
            return
        error = FoundError(kind, rank, stamp_ns, index, index, [Raised(headline)], [text])
        if rank is None and (named := _PREFIX_RANK.search(text)) and ".cpp:" in text:
            error.rank = int(named[1])
        elif kind == "complaint" and (device := _NCCL_DEVICE.match(text)):
            error.local_rank = int(device[1])
        self._add(error)
        if kind in ("exception", "native"):
            self._open[rank, ""] = _Block(error, "", "message")


def _stripped_type(headline: str) -> str:
    """Return a headline without the module of its type: `OutOfMemoryError`, not `torch.OutOfMemoryError`."""
    name, colon, message = headline.partition(":")
    return headline if " " in name or "(" in name else f"{name.rsplit('.', 1)[-1]}{colon}{message}"
