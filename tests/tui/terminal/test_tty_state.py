"""Terminal capabilities from its name, the environment and the locale."""

from __future__ import annotations

import os
import signal

import pytest

from tui.terminal import tty_state
from tui.terminal.tty_state import wants_ascii


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "COLORTERM", "SSH_CONNECTION", "ESCDELAY", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name in [name for name in os.environ if name.startswith("TEXTUAL_")]:
        monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("names", "colours"),
    [
        (("linux", "xterm", "xterm-16color", "vt220", "screen", "something-new"), "16"),
        (("xterm-256color", "screen-256color", "tmux-256color"), "256"),
        (("xterm-direct", "xterm-kitty", "alacritty"), "true"),
        (("dumb", ""), "none"),
    ],
)
def test_the_terminal_name_determines_the_number_of_colours(
    monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...], colours: str
) -> None:
    for name in names:
        monkeypatch.setenv("TERM", name)
        assert tty_state.colours() == colours, name


def test_colorterm_overrides_the_terminal_name_and_no_color_overrides_both(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLORTERM", "truecolor")
    assert tty_state.colours() == "true"
    monkeypatch.setenv("NO_COLOR", "1")
    assert tty_state.colours() == "none"


@pytest.mark.parametrize(("connection", "delay"), [("", "100"), ("10.0.0.1 5000 10.0.0.2 22", "350")])
def test_the_escape_delay_is_longer_over_ssh(
    monkeypatch: pytest.MonkeyPatch, connection: str, delay: str
) -> None:
    monkeypatch.setattr(os, "environ", dict(os.environ))
    if connection:
        os.environ["SSH_CONNECTION"] = connection
    tty_state.prepare()
    assert os.environ["ESCDELAY"] == delay
    assert os.environ["TEXTUAL_ANIMATIONS"] == "none"


def test_exported_columns_and_lines_are_removed_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {**os.environ, "COLUMNS": "80", "LINES": "24"})
    tty_state.prepare()
    assert not {"COLUMNS", "LINES"} & set(os.environ)


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ({"LANG": "C"}, True),
        ({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, True),  # as Python leaves it where LANG=C was said
        ({"LANG": "C.UTF-8", "LC_ALL": "POSIX"}, True),
        ({"LANG": "de_DE.ISO-8859-1"}, True),
        ({"LANG": "en_US"}, True),
        ({"LANG": "C.UTF-8"}, False),
        ({"LANG": "C", "LC_ALL": "C.utf8"}, False),
        ({"LANG": "C", "LC_CTYPE": "de_DE.UTF-8"}, False),
        ({"LANG": "ca_ES.UTF-8@valencia"}, False),
        ({"LC_CTYPE": "C.UTF-8"}, False),  # as Python leaves it where nothing was said
    ],
)
def test_the_locale_determines_whether_output_is_limited_to_ascii(
    monkeypatch: pytest.MonkeyPatch, said: dict[str, str], wanted: bool
) -> None:
    for name in ("LANG", "LC_ALL", "LC_CTYPE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    assert wants_ascii() is wanted


async def test_ignored_signals_stay_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    caught: dict[int, object] = {}
    monkeypatch.setattr("signal.signal", lambda number, caller: caught.setdefault(number, caller))
    found = {signal.SIGHUP: signal.SIG_IGN}
    monkeypatch.setattr("signal.getsignal", found.get)
    tty_state.caught_signal()
    assert caught.keys() == {signal.SIGINT, signal.SIGTERM}
