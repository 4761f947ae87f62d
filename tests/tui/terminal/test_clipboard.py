"""Copying by a tool, the terminal or into a file, never claimed without proof; desktop notifications."""

from __future__ import annotations

import base64
import os
import stat
from pathlib import Path

import pytest

from tui.terminal.clipboard import LARGEST_ENCODED, copy, sequence, way
from tui.terminal.hooks import MAX_BODY, notification

REMOTE = {"TERM": "xterm-256color", "SSH_CONNECTION": "10.0.0.1 1 10.0.0.2 22", "PATH": ""}


class Terminal:
    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> None:
        self.text += text


def a_tool(folder: Path, name: str, script: str) -> str:
    """Make a program of this name, and return the PATH that has it."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return f"{folder}:{os.defpath}"


def test_over_ssh_the_copy_uses_osc52_and_the_message_promises_no_success(tmp_path: Path) -> None:
    terminal = Terminal()
    copied = copy("a\nb", terminal.write, REMOTE, folder=tmp_path)
    assert terminal.text == "\x1b]52;c;" + base64.b64encode(b"a\nb").decode() + "\x07"
    assert (copied.how, copied.path) == ("osc52", None)
    assert copied.words == "2 lines sent to the terminal's clipboard; not all terminals take it."
    assert list(tmp_path.iterdir()) == []


def test_tmux_gets_osc52_both_plain_and_wrapped_for_passthrough() -> None:
    plain = "\x1b]52;c;eA==\x07"
    assert sequence("x", {"TMUX": "/tmp/s,1,0"}) == f"{plain}\x1bPtmux;\x1b{plain}\x1b\\"
    assert sequence("x", {"TERM": "tmux-256color"}) == "\x1b]52;c;eA==\x07"


@pytest.mark.parametrize(
    ("tool", "session", "words"),
    [
        ("tmux", {**REMOTE, "TMUX": "/tmp/s,1,0"}, "load-buffer -w -"),
        ("xclip", {"TERM": "xterm", "DISPLAY": ":0"}, "-selection clipboard"),
        ("wl-copy", {"TERM": "xterm", "WAYLAND_DISPLAY": "wayland-0"}, ""),
    ],
)
def test_a_tool_of_this_machine_or_of_tmux_copies_and_falls_back_to_osc52(
    tmp_path: Path, tool: str, session: dict[str, str], words: str
) -> None:
    taken = tmp_path / "taken"
    path = a_tool(tmp_path / "bin", tool, f'printf "%s " "$@" > {taken}; cat >> {taken}')
    terminal = Terminal()
    env = {**session, "PATH": path}
    copied = copy("héllo", terminal.write, env, folder=tmp_path)
    assert taken.read_text() == f"{words} héllo"
    assert (copied.how, copied.words, terminal.text) == ("native", f"1 line copied by {tool}.", "")
    assert way(env) == f"the tool {tool}"
    a_tool(tmp_path / "bin", tool, "exit 1")  # tmux before 3.2 knew no -w
    assert copy("x", terminal.write, env, folder=tmp_path).how == "osc52"


def test_osc52_is_split_into_chunks_that_gnu_screen_passes_through() -> None:
    text = "x" * 1000
    said = sequence(text, {"STY": "1.pts", "TERM": "screen.xterm-256color"})
    pieces = said.split("\x1b\\")[:-1]
    assert all(piece.startswith("\x1bP") and len(piece) < 256 for piece in pieces)
    assert "".join(piece[2:] for piece in pieces) == sequence(text, {})


@pytest.mark.parametrize("size", [LARGEST_ENCODED // 4 * 3 - 3, LARGEST_ENCODED // 4 * 3, LARGEST_ENCODED])
def test_text_too_long_for_osc52_is_copied_to_a_private_file(tmp_path: Path, size: int) -> None:
    terminal = Terminal()
    text = "é" * (size // 2)
    copied = copy(text, terminal.write, REMOTE, folder=tmp_path / "state")
    fits = len(base64.b64encode(text.encode())) <= LARGEST_ENCODED
    assert copied.how == ("osc52" if fits else "file")
    assert bool(terminal.text) is fits
    if not fits:
        assert copied.path is not None
        assert copied.path.read_text() == text
        assert stat.S_IMODE(copied.path.stat().st_mode) == 0o600
        assert str(copied.path) in copied.words


@pytest.mark.parametrize("terminal", ["dumb", "linux", "vt100", ""])
def test_a_terminal_without_a_clipboard_gets_no_osc52(tmp_path: Path, terminal: str) -> None:
    written = Terminal()
    copied = copy("x", written.write, {**REMOTE, "TERM": terminal}, folder=tmp_path)
    assert (copied.how, written.text) == ("file", "")
    assert copied.words == f"1 line written to {tmp_path / 'clipboard.txt'}: this terminal has no clipboard."


def test_a_failing_clipboard_tool_required_by_the_environment_leaves_a_file(tmp_path: Path) -> None:
    path = a_tool(tmp_path / "bin", "wl-copy", "exit 1")
    env = {"TERM": "xterm", "WAYLAND_DISPLAY": "wayland-0", "PATH": path, "GPUCONSOLE_CLIPBOARD": "native"}
    forced = copy("x", Terminal().write, env, folder=tmp_path)
    assert (forced.how, "no clipboard tool works here" in forced.words) == ("file", True)


def test_the_copy_method_can_be_chosen_by_environment_variable(tmp_path: Path) -> None:
    terminal = Terminal()
    path = a_tool(tmp_path / "bin", "xsel", "cat > /dev/null")
    env = {"TERM": "xterm", "DISPLAY": ":0", "PATH": path}
    for chosen, how in {"auto": "native", "native": "native", "osc52": "osc52", "file": "file"}.items():
        copied = copy("x", terminal.write, {**env, "GPUCONSOLE_CLIPBOARD": chosen}, folder=tmp_path)
        assert copied.how == how
    assert copy("x", terminal.write, {**env, "SSH_TTY": "/dev/pts/1"}, folder=tmp_path).how == "osc52"


def test_only_clean_text_is_copied(tmp_path: Path) -> None:
    env = {**REMOTE, "GPUCONSOLE_CLIPBOARD": "file"}
    copied = copy("a\x1b[31mred\x1b[0m\x07\nb\u202ec", Terminal().write, env, folder=tmp_path)
    assert copied.path is not None
    assert copied.path.read_text() == "ared\u2407\nb<U+202E>c"


def test_empty_text_is_not_copied_and_an_unwritable_folder_is_reported(tmp_path: Path) -> None:
    terminal = Terminal()
    assert copy("", terminal.write, REMOTE, folder=tmp_path).words == "There is nothing to copy."
    (tmp_path / "file").write_text("")
    copied = copy("x", terminal.write, {"TERM": "dumb"}, folder=tmp_path / "file")
    assert (copied.how, copied.path) == ("", None)
    assert copied.words.startswith("Could not copy: this terminal has no clipboard, and ")


_777 = "\x1b]777;notify;bert failed;rank 2 exit 1\x1b\\"
_9 = "\x1b]9;bert failed: rank 2 exit 1\x1b\\"
_99 = "\x1b]99;i=gpuconsole:d=0;bert failed\x1b\\\x1b]99;i=gpuconsole:p=body;rank 2 exit 1\x1b\\"
TERMINALS = [
    ("kitty", {"TERM": "xterm-kitty"}, _99),
    ("kitty by its window", {"TERM": "xterm-256color", "KITTY_WINDOW_ID": "1"}, _99),
    ("iTerm2", {"TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app"}, _9),
    ("WezTerm", {"TERM": "xterm-256color", "TERM_PROGRAM": "WezTerm"}, _777),
    ("ghostty over SSH", {"TERM": "xterm-ghostty"}, _777),
    ("foot", {"TERM": "foot"}, _777),
    ("urxvt", {"TERM": "rxvt-unicode-256color"}, _777),
    ("VTE", {"TERM": "xterm-256color", "VTE_VERSION": "7600"}, _777),
    ("unknown", {"TERM": "xterm-256color"}, _9),
    (
        "tmux in kitty",
        {"TERM": "tmux-256color", "TMUX": "/tmp/x,1,0", "TERM_PROGRAM": "tmux", "KITTY_WINDOW_ID": "1"},
        "\x1bPtmux;" + _99.replace("\x1b", "\x1b\x1b") + "\x1b\\",
    ),
    (
        "tmux as screen",
        {"TERM": "screen-256color", "TMUX": "x"},
        f"\x1bPtmux;{_9.replace(chr(27), chr(27) * 2)}\x1b\\",
    ),
    ("screen", {"TERM": "screen.xterm-256color", "STY": "1.x"}, ""),
    ("screen over SSH", {"TERM": "screen"}, ""),
    ("the Linux console", {"TERM": "linux"}, ""),
    ("a vt100", {"TERM": "vt100"}, ""),
    ("none", {}, ""),
]


@pytest.mark.parametrize(("env", "found"), [each[1:] for each in TERMINALS], ids=[e[0] for e in TERMINALS])
def test_each_terminal_gets_its_own_sequence(env: dict[str, str], found: str) -> None:
    assert notification("bert failed", "rank 2 exit 1", env) == found


@pytest.mark.parametrize("term", ["xterm-kitty", "foot", "xterm"])
@pytest.mark.parametrize(
    "hostile",
    ["a\x1b\\\x1b]52;c;eA==\x07b", "\x07\x9c\x9d0;x\x9c", "4;1;100", "a\nb\r\x00", "\u202ex", "x" * 9999],
)
def test_a_hostile_notification_text_cannot_inject_escape_sequences(term: str, hostile: str) -> None:
    plain = notification("a", "b", {"TERM": term})
    found = notification(hostile, hostile, {"TERM": term})
    assert found.count("\x1b") == plain.count("\x1b") and found.count(";") == plain.count(";")
    assert not any(ord(char) < 0x1B or 0x7F <= ord(char) < 0xA0 or char == "\u202e" for char in found)
    assert len(found) < 2 * MAX_BODY


def test_a_notification_without_a_body_has_only_a_title() -> None:
    assert notification("a", "", {"TERM": "xterm-kitty"}) == "\x1b]99;i=gpuconsole:d=1;a\x1b\\"
    assert notification("a", "", {"TERM": "xterm"}) == "\x1b]9;a\x1b\\"
