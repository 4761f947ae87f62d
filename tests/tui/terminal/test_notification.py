"""The bytes that make a terminal show a notification, and what foreign text cannot do in them."""

from __future__ import annotations

import pytest

from tui.terminal.notification import MAX_BODY, notification

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
