"""Python stacks as faulthandler and py-spy print them, the place that they name, and tracebacks."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Mapping, Sequence

import msgspec

from k8s.text.sanitize import sanitize

# Limits of one stack: frames, and characters of a name.
MOST_FRAMES, LONGEST_NAME = 100, 300
_THREAD = re.compile(r"(Current thread|Thread) (?:0x)?[0-9a-fA-F]+(?:[ :(].*)?$")
_FRAME = re.compile(r'  File "(.*)", line (\d{1,9}|\?\?\?) in (.*)$')
_PY_SPY_FRAME = re.compile(r"    (\S.*) \((.*):(\d{1,9})\)$")
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib(?:64)?/python\d|^<frozen |\.zip/torch/")
_TRACEBACK_FRAME = re.compile(r'(\s+)File "([^"\n]*)", line (\d{1,9})')
_FOLDED = re.compile(r"\s+… (\d+) frames? of libraries, to ")
_PREFIX = re.compile(r".*/(?:site|dist)-packages/|.*\.zip/")
# Functions of libraries that say nothing about what the user called.
_WRAPPERS = re.compile(
    r"_?(?:wrapper|inner|wrapped)|_fn|decorate_context|_?(?:wrapped_)?call_impl|__call__|<.*>"
)
COLLECTIVES = re.compile(
    r"(?:all_reduce|all_gather|all_to_all|reduce_scatter|broadcast|reduce|gather|scatter|barrier"
    r"|monitored_barrier|send|recv|isend|irecv|batch_isend_irecv)(?:_\w+)?"
)


class Frame(msgspec.Struct, frozen=True):
    """Call of a Python function; its texts are sanitized."""

    function: str
    file: str
    line: int
    """0 if unknown."""

    @property
    def is_library(self) -> bool:
        """Return True for code that the user did not write."""
        return _LIBRARY.search(self.file) is not None

    @property
    def short(self) -> str:
        """`train.py:88`."""
        return f"{posixpath.basename(self.file)}:{self.line}" if self.line else posixpath.basename(self.file)

    @property
    def qualified(self) -> str:
        """The function; the file says whose special method it is."""
        if self.function.startswith("__"):
            stem = posixpath.basename(self.file).removesuffix(".py")
            return f"{'DataLoader' if stem == 'dataloader' else stem}.{self.function}"
        return self.function

    def __str__(self) -> str:
        return f"{self.function} ({_PREFIX.sub('', self.file)}:{self.line})"


def folded_traceback(lines: Sequence[str]) -> list[str]:
    """Return the lines of a traceback with one line for each run of frames of libraries."""
    found: list[str] = []
    count, indent, is_library = 0, "", False
    for line in lines:
        frame, folded = _TRACEBACK_FRAME.match(line), _FOLDED.match(line)
        if folded or (frame and _LIBRARY.search(frame[2])):
            count += int(folded[1]) if folded else 1
            if count > 1 and is_library:
                found.pop()
            indent = frame[1] if frame else indent
            place = f"{_PREFIX.sub('', frame[2])}:{frame[3]}" if frame else line.rpartition(", to ")[2]
            found.append(f"{indent or '  '}… {count} frame{'s' * (count > 1)} of libraries, to {place}")
            is_library = True
        elif (
            not is_library or frame or not line[:1].isspace() or len(line) - len(line.lstrip()) < len(indent)
        ):
            found.append(line)
            count, is_library = 0, False
    return found


def parse_stack(text: str) -> tuple[Frame, ...]:
    """Return the frames of the main thread, the innermost first; empty if there are none.

    Accepts the text of faulthandler and of torch's worker server, and py-spy's text and JSON.
    """
    if text.lstrip()[:1] in ("[", "{"):
        return _of_json(text)
    threads: list[tuple[str, list[Frame]]] = []
    for line in text.splitlines():
        if _THREAD.match(line):
            threads.append((line, []))
        elif threads and len(threads[-1][1]) < MOST_FRAMES:
            if found := _FRAME.match(line):
                threads[-1][1].append(_frame(found[3], found[1], found[2]))
            elif found := _PY_SPY_FRAME.match(line):
                threads[-1][1].append(_frame(found[1], found[2], found[3]))
    stacks = [(head, tuple(frames)) for head, frames in threads if frames]
    if not stacks:
        return ()
    if named := [frames for head, frames in stacks if '"MainThread"' in head]:
        return named[0]
    # faulthandler lists the main thread last. It stops after 100 threads, and then only the thread that got
    # the signal, usually the main one, is sure to be there.
    is_cut = len(threads) >= 100
    current = [frames for head, frames in stacks if head.startswith("Current")]
    return current[0] if is_cut and current else stacks[-1][1]


def _of_json(text: str) -> tuple[Frame, ...]:
    try:
        threads = json.loads(text)
    except (ValueError, RecursionError):
        return ()
    stacks: list[tuple[bool, tuple[Frame, ...]]] = []
    for thread in threads if isinstance(threads, list) else [threads]:
        frames = thread.get("frames") if isinstance(thread, dict) else None
        if isinstance(frames, list):
            found = [
                _frame(str(each.get("name")), str(each.get("filename")), str(each.get("line")))
                for each in frames[:MOST_FRAMES]
                if isinstance(each, dict)
            ]
            is_main = thread.get("thread_name") == "MainThread"
            is_main |= thread.get("os_thread_id", 0) == thread.get(
                "pid"
            )  # Linux gives it the process's number
            stacks.append((is_main, tuple(found)))
    return max(stacks, key=lambda each: (each[0], bool(each[1])), default=(False, ()))[1]


def _frame(function: str, file: str, line: str) -> Frame:
    number = int(line) if line.isascii() and line.isdecimal() and len(line) < 10 else 0
    return Frame(sanitize(function)[:LONGEST_NAME], sanitize(file)[:LONGEST_NAME], number)


class Place(msgspec.Struct, frozen=True):
    """Place of a rank: the collective or function that the user's code called, and its line."""

    text: str
    """`all_reduce (train.py:88)`."""
    user_frames: tuple[Frame, ...]
    """From the user's innermost frame outwards."""
    code: str = ""
    """The user's line; empty if unknown."""


def place_of(frames: Sequence[Frame], lines: Mapping[str, str]) -> Place:
    """Name the place of a stack that is not empty; `lines` has the code by `file:line`."""
    own = next((index for index, frame in enumerate(frames) if not frame.is_library), None)
    if own is None:
        return Place(f"{frames[0].qualified} ({frames[0].short})", tuple(frames))
    user = frames[own]
    called = [frame for frame in frames[:own] if not _WRAPPERS.fullmatch(frame.function)]
    collective = [
        frame
        for frame in called
        if "/torch/distributed/" in frame.file and COLLECTIVES.fullmatch(frame.function)
    ]
    where = (collective or called)[-1:]
    code = lines.get(f"{user.file}:{user.line}", "")
    if where:
        text = f"{where[0].qualified} ({user.short})"
    elif user.function == "<module>":
        text = user.short
    else:
        text = f"{user.function} ({user.short})"
    return Place(text, tuple(frames[own:]), sanitize(code)[:LONGEST_NAME])
