"""Layout of a container's folder, `PODS/uid/container`: written by the node agent, read by the API server.

`N.log` is the log of run N as CRI records; `N.1.log`, `N.2.log`… follow when a file is full, and the newest
are kept. `process.json` describes the last run. In the pod's folder, `ports/N.sock` stands for port N if a
program listens there instead of on this machine's loopback.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

# The shim accepts further commands here; `shim.py` repeats the name.
EXEC_SOCKET = "exec.sock"
# Variables that mark a process with its pod and with the folder of its sandbox.
POD_UID, SANDBOX = "GPUCONSOLE_POD_UID", "GPUCONSOLE_SANDBOX"
# This program listens at a socket in its pod's folder.
TENSORBOARD = "tensorboard"
# Variables with the folder of running containers by name, and with a port for a job's ranks.
HOSTS, JOB_PORT = "GPUCONSOLE_HOSTS", "GPUCONSOLE_JOB_PORT"
# Variable with the file that stands for `/dev/termination-log`.
TERMINATION_LOG = "GPUCONSOLE_TERMINATION_LOG"
# Path with letters that a shell does not take as they are.
_UNSAFE = re.compile(r"[^\w@%+=:,./-]")
_SHELL_LINE = re.compile(r"(?:^|[\0\s/(;&|])(?:ba|da|a|k|z)?sh(?:[\0\s]+-?\w+)*[\0\s]+-[a-z]*c\s*\Z")
_SHELL_TOKEN = (
    r"""\\.|<<-?\s*(?P<mark>['"]?)(?P<document>\w+)(?P=mark)|\n[\t ]*(?P<line>\w+)(?=\n|\Z)|\n|"""
    r"""\$\(|(?<!\S)#|[()'"]"""
)
_LOG_NAME = re.compile(r"(\d+)(?:\.(\d+))?\.log")


@dataclass(frozen=True, slots=True)
class LogLimits:
    """Limits of the log of one container run."""

    max_bytes: int = 64 * 2**20
    """Per file; a full one is followed by another."""
    max_files: int = 8


@dataclass(frozen=True, slots=True)
class Launch:
    """Process to start."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    mounts: tuple[tuple[str, str], ...]
    """Mount paths and host paths, the longest first."""

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Return the description of a container's last run.

        Raises:
            OSError, ValueError: The description is missing or damaged.
        """
        return cls(**json.loads((folder / "process.json").read_text()))

    def write(self, folder: Path) -> Path:
        """Write the description into a container's folder, readable by its owner only; return the file."""
        fresh = folder / "process.new"
        fresh.touch(0o600)
        fresh.write_text(json.dumps(asdict(self)))
        return fresh.replace(folder / "process.json")


def port_socket(pods: Path, uid: str, port: int) -> Path:
    """Return the path of the socket that stands for a pod's port; it may not exist."""
    return pods / uid / "ports" / f"{port}.sock"


def log_of(folder: Path, run: int, part: int = 0) -> Path:
    """Return the path of one part of a run's log; `shim.py` repeats these names."""
    return folder / (f"{run}.{part}.log" if part else f"{run}.log")


def log_parts(folder: Path, run: int) -> list[int]:
    """Return the existing parts of a run's log, the oldest first."""
    return sorted(part for of, part in _all_parts(folder) if of == run)


def remove_logs_before(folder: Path, run: int) -> None:
    """Delete the logs of earlier runs."""
    for of, part in _all_parts(folder):
        if of < run:
            log_of(folder, of, part).unlink(missing_ok=True)


def _all_parts(folder: Path) -> list[tuple[int, int]]:
    try:
        matches = [_LOG_NAME.fullmatch(name) for name in os.listdir(folder)]
    except FileNotFoundError:
        return []
    return [(int(match[1]), int(match[2] or 0)) for match in matches if match]


def rewrite_words(words: Sequence[str], mounts: Sequence[tuple[str, str]]) -> list[str]:
    """Replace mount paths in the words of a command; in the line of a shell, host paths are quoted."""
    return [
        rewrite(word, mounts, is_shell=bool(_SHELL_LINE.search("\0".join(words[:index]))))
        for index, word in enumerate(words)
    ]


def rewrite(text: str, mounts: Sequence[tuple[str, str]], *, is_shell: bool = False) -> str:
    """Replace mount paths by host paths where they are complete parts of a path, also in shell commands.

    A relative mount path is replaced only where it is certainly a path.
    """
    if not any(path in text for path, _ in mounts):
        return text
    real = dict(mounts)
    either = "|".join(map(_pattern, real))
    path = rf"(?<![\w./)}}~-])(?:\./)?(?P<path>{either})"
    if not is_shell or not any(map(_UNSAFE.search, real.values())):
        return re.sub(path, lambda match: real[match["path"]], text)
    quotes = _Quotes()
    return re.sub(
        rf"{path}|{_SHELL_TOKEN}",
        lambda match: quotes.quoted(real[match["path"]]) if match["path"] else quotes.passed(match),
        text,
        flags=re.DOTALL,
    )


class _Quotes:
    """Place in a shell's text, by its tokens from the start: within quotes, a comment or a here-document."""

    def __init__(self) -> None:
        # A quote, `#`, the last line of a here-document, or empty for plain text; the outermost first.
        # Quotes with a "c" hold the line of another shell.
        self._open = [""]

    def passed(self, token: re.Match[str]) -> str:
        """Go past a token and return it."""
        text, now = token[0], self._open[-1]
        if now in ("'", '"'):
            if text == now or (now, text) == ("'", "\\'"):
                self._open.pop()
            elif now == '"' and text == "$(":
                self._open.append("")
        elif now:
            if token["line"] == now or (now, text[0]) == ("#", "\n"):
                self._open.pop()
        elif self._open[-2:-1] == [f"{text}c"]:
            del self._open[-2:]
        elif text == ")":
            self._open = self._open[:-1] or [""]
        elif text in ("'", '"') and _SHELL_LINE.search(token.string[: token.start()]):
            self._open += [f"{text}c", ""]
        elif text[0] not in "\\\n":
            self._open.append(token["document"] or text.strip("$("))
        return text

    def quoted(self, path: str) -> str:
        """Return the text that means a path here."""
        *around, now = self._open
        text = path if now else shlex.quote(path)
        while now or (around and around[-1].endswith("c")):
            now = now or around.pop()
            around.pop()  # the plain text that the quotes are in
            if now[0] == '"':
                text = re.sub(r'[\\$`"]', r"\\\g<0>", text)
            elif now[0] == "'":
                text = text.replace("'", "'\\''")
            now = ""
        return text


def _pattern(path: str) -> str:
    whole = rf"{re.escape(path)}(?![\w.-])"
    is_word = not re.search("[/.]", path)
    return rf"(?<=\bcd ){whole}|{re.escape(path)}(?=/)" if is_word else whole
