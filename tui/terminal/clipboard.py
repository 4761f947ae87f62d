"""Copying of text to this machine's clipboard, the terminal's clipboard, or a file.

Over SSH, only the terminal can reach the user's clipboard, through an escape sequence (OSC 52) that
no terminal acknowledges and many ignore; so a copy is reported as sent, never as arrived.
"""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec

from k8s.text.sanitize import sanitize
from tui.settings.private_file import write_private_file
from tui.text.format import plural

# Base64 bytes that terminals accept in one sequence. Source: k9s, `internal/view/clipboard.go`.
LARGEST_ENCODED = 74_994
# In the state folder, if no clipboard works.
FILE = "clipboard.txt"
# Environment variable: auto, native, osc52 or file.
OVERRIDE = "GPUCONSOLE_CLIPBOARD"
_TOOL_S = 2.0
# GNU screen passes on at most 256 bytes at once.
_SCREEN_CHUNK = 240
# Clipboard programs, each with the variable that it needs. tmux takes no sequence from programs by
# default, but its own command stores the text and passes it on to the terminal, even over SSH.
# Source: tmux 3.2's `CHANGES`, "Add a -w flag to load-buffer".
_TOOLS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("WAYLAND_DISPLAY", ("wl-copy",)),
    ("DISPLAY", ("xclip", "-selection", "clipboard")),
    ("DISPLAY", ("xsel", "--clipboard", "--input")),
    ("", ("pbcopy",)),
    ("TMUX", ("tmux", "load-buffer", "-w", "-")),
)
_REACHES_THE_PERSON = "tmux"


class Copied(msgspec.Struct, frozen=True):
    """Result of a copy."""

    how: str
    """`native`, `osc52`, `file`, or empty if the copy failed."""
    words: str
    """One sentence for the user."""
    path: Path | None = None
    """The file, if the text was written to one."""


def copy(
    text: str, write: Callable[[str], None], env: Mapping[str, str] = os.environ, *, folder: Path
) -> Copied:
    """Copy a sanitised text by the best available method; a clipboard program may take two seconds.

    Args:
        text: Any text; line ends stay.
        write: Writes to the terminal directly, bypassing the console's drawing.
        env: The environment.
        folder: Folder of the file that is the last resort.
    """
    text = "\n".join(sanitize(line) for line in text.split("\n"))
    amount = plural(text.count("\n") + (not text.endswith("\n")), "line") if text else "Nothing"
    wanted = env.get(OVERRIDE, "auto").strip().lower()
    if not text:
        return Copied("", "There is nothing to copy.")
    if wanted in ("auto", "native"):
        tool = _run_tool(text, env, is_forced=wanted == "native")
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
    """Describe the method that a copy would try first."""
    wanted = env.get(OVERRIDE, "auto").strip().lower()
    tools = _tools(env, is_forced=wanted == "native") if wanted in ("auto", "native") else ()
    for _, words in tools:
        return f"the tool {words[0]}"
    why = wanted in ("native", "file") or _no_sequence(" ", env)
    return "a file" if why else "the terminal (OSC 52)"


def sequence(text: str, env: Mapping[str, str]) -> str:
    """Return the OSC 52 sequence for a text, wrapped for tmux or GNU screen."""
    plain = f"\x1b]52;c;{base64.b64encode(text.encode()).decode()}\x07"
    if env.get("TMUX"):
        # With set-clipboard it takes the first for itself, with allow-passthrough it hands on the second.
        return plain + "\x1bPtmux;" + plain.replace("\x1b", "\x1b\x1b") + "\x1b\\"
    if env.get("STY") or env.get("TERM", "").startswith("screen"):
        pieces = [plain[at : at + _SCREEN_CHUNK] for at in range(0, len(plain), _SCREEN_CHUNK)]
        return "".join(f"\x1bP{piece}\x1b\\" for piece in pieces)
    return plain


def _no_sequence(text: str, env: Mapping[str, str]) -> str:
    # Empty if the terminal can be used.
    terminal = env.get("TERM", "")
    if terminal in ("", "dumb", "linux") or terminal.startswith("vt"):
        return "this terminal has no clipboard"
    encoded_bytes = -(-len(text.encode()) // 3) * 4
    return "too much for a terminal's clipboard" if encoded_bytes > LARGEST_ENCODED else ""


def _tools(env: Mapping[str, str], *, is_forced: bool) -> Iterator[tuple[str, tuple[str, ...]]]:
    # Over SSH, a program on this machine serves a clipboard that the user cannot reach.
    is_remote = any(env.get(name) for name in ("SSH_CONNECTION", "SSH_TTY", "SSH_CLIENT"))
    for needed, words in _TOOLS:
        if is_remote and not is_forced and words[0] != _REACHES_THE_PERSON:
            continue
        tool = shutil.which(words[0], path=env.get("PATH", "")) if not needed or env.get(needed) else None
        if tool is not None:
            yield tool, words


def _run_tool(text: str, env: Mapping[str, str], *, is_forced: bool) -> str:
    # Returns the program that took the text; empty if none did.
    for tool, words in _tools(env, is_forced=is_forced):
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
    path = folder / FILE
    try:
        write_private_file(path, text)
    except OSError as error:
        return Copied("", f"Could not copy: {why}, and {folder} cannot be written to: {error.strerror}.")
    return Copied("file", f"{amount} written to {path}: {why}.", path)
