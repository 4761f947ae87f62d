"""Copies text to where it can be pasted from: this machine's clipboard, the terminal's, or a file.

Over SSH only the terminal can reach the clipboard of the person at it. It is asked by an escape sequence
(OSC 52), which no terminal answers and many ignore: so it is never said to have arrived.
tmux is asked by its own command, for by default it takes no sequence from programs; GNU screen hands on
what is wrapped for it.
"""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from k8s.text.sanitize import sanitize
from tui.files.private_file import write_private_file
from tui.text.format import plural

LARGEST_ENCODED = 74_994
"""Bytes of base64 that terminals take in one sequence. Source: k9s, `internal/view/clipboard.go`."""
FILE = "clipboard.txt"
"""Where a copy goes that no clipboard may take, in the state folder."""
OVERRIDE = "GPUCONSOLE_CLIPBOARD"
"""Variable that chooses: auto, native, osc52 or file."""
_TOOL_S = 2.0
_SCREEN_CHUNK = 240
"""Bytes that GNU screen hands on in one piece; it stops at 256."""
_TOOLS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("WAYLAND_DISPLAY", ("wl-copy",)),
    ("DISPLAY", ("xclip", "-selection", "clipboard")),
    ("DISPLAY", ("xsel", "--clipboard", "--input")),
    ("", ("pbcopy",)),
    ("TMUX", ("tmux", "load-buffer", "-w", "-")),
)
"""What puts text into the clipboard of this machine, and the variable without which it has none.

tmux keeps the text to be pasted, and hands it on to the terminal at which the person is, also over SSH.
Source: tmux 3.2's `CHANGES`, "Add a -w flag to load-buffer".
"""
_REACHES_THE_PERSON = "tmux"


@dataclass(frozen=True, slots=True)
class Copied:
    """Where a copy went."""

    how: str
    """`native`, `osc52`, `file`, or nothing when it went nowhere."""
    words: str
    """One sentence for the person who asked."""
    path: Path | None = None
    """The file that has it, if one has."""


def copy(
    text: str, write: Callable[[str], None], env: Mapping[str, str] = os.environ, *, folder: Path
) -> Copied:
    """Copy a text, made harmless, by the best way there is; a tool may take two seconds.

    Args:
        text: Any text; lines stay lines.
        write: Sends characters to the terminal, past whatever draws there.
        env: The environment.
        folder: Where a file goes when there is no other way.
    """
    text = "\n".join(sanitize(line) for line in text.split("\n"))
    amount = plural(text.count("\n") + (not text.endswith("\n")), "line") if text else "Nothing"
    wanted = env.get(OVERRIDE, "auto").strip().lower()
    if not text:
        return Copied("", "There is nothing to copy.")
    if wanted in ("auto", "native"):
        tool = _run_tool(text, env, is_asked_for=wanted == "native")
        if tool:
            return Copied("native", f"{amount} copied by {tool}.")
    why = "no clipboard tool works here" if wanted == "native" else "as asked for" if wanted == "file" else ""
    if not why:
        why = _no_sequence(text, env)
    if why:
        return _to_file(text, amount, why, folder)
    write(sequence(text, env))
    return Copied("osc52", f"{amount} sent to the terminal's clipboard; not all terminals take it.")


def way(env: Mapping[str, str] = os.environ) -> str:
    """Say which way a copy would be tried first, for people."""
    wanted = env.get(OVERRIDE, "auto").strip().lower()
    tools = _tools(env, is_asked_for=wanted == "native") if wanted in ("auto", "native") else ()
    for _, words in tools:
        return f"the tool {words[0]}"
    why = wanted in ("native", "file") or _no_sequence(" ", env)
    return "a file" if why else "the terminal (OSC 52)"


def sequence(text: str, env: Mapping[str, str]) -> str:
    """Return the escape sequence that asks the terminal to take a text, wrapped for what is between."""
    plain = f"\x1b]52;c;{base64.b64encode(text.encode()).decode()}\x07"
    if env.get("TMUX"):
        # With set-clipboard it takes the first for itself, with allow-passthrough it hands on the second.
        return plain + "\x1bPtmux;" + plain.replace("\x1b", "\x1b\x1b") + "\x1b\\"
    if env.get("STY") or env.get("TERM", "").startswith("screen"):
        pieces = [plain[at : at + _SCREEN_CHUNK] for at in range(0, len(plain), _SCREEN_CHUNK)]
        return "".join(f"\x1bP{piece}\x1b\\" for piece in pieces)
    return plain


def _no_sequence(text: str, env: Mapping[str, str]) -> str:
    """Return why the terminal is not asked; empty when it is."""
    terminal = env.get("TERM", "")
    if terminal in ("", "dumb", "linux") or terminal.startswith("vt"):
        return "this terminal has no clipboard"
    encoded_bytes = -(-len(text.encode()) // 3) * 4
    return "too much for a terminal's clipboard" if encoded_bytes > LARGEST_ENCODED else ""


def _tools(env: Mapping[str, str], *, is_asked_for: bool) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the programs that may take a copy, each by its path and the words that run it."""
    is_remote = any(env.get(name) for name in ("SSH_CONNECTION", "SSH_TTY", "SSH_CLIENT"))
    for needed, words in _TOOLS:
        if is_remote and not is_asked_for and words[0] != _REACHES_THE_PERSON:
            continue
        tool = shutil.which(words[0], path=env.get("PATH", "")) if not needed or env.get(needed) else None
        if tool is not None:
            yield tool, words


def _run_tool(text: str, env: Mapping[str, str], *, is_asked_for: bool) -> str:
    """Return the tool that took the text; over SSH none whose clipboard is nobody's."""
    for tool, words in _tools(env, is_asked_for=is_asked_for):
        try:
            # Some of them stay to serve the clipboard: their output must not be waited for.
            subprocess.run(
                [tool, *words[1:]],
                input=text.encode(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=dict(env),
                timeout=_TOOL_S,
                check=True,
            )
        except (OSError, subprocess.SubprocessError):
            continue
        return words[0]
    return ""


def _to_file(text: str, amount: str, why: str, folder: Path) -> Copied:
    """Keep the text in a file that only its owner can read; the copy before it is replaced."""
    path = folder / FILE
    try:
        write_private_file(path, text)
    except OSError as error:
        return Copied("", f"Could not copy: {why}, and {folder} cannot be written to: {error.strerror}.")
    return Copied("file", f"{amount} kept in {path}: {why}.", path)
