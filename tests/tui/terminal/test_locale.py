"""Which locales are shown nothing but ASCII."""

from __future__ import annotations

import pytest

from tui.terminal.tty_state import wants_ascii


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
def test_the_users_locale_tells_whether_more_than_ascii_can_be_shown(
    monkeypatch: pytest.MonkeyPatch, said: dict[str, str], wanted: bool
) -> None:
    for name in ("LANG", "LC_ALL", "LC_CTYPE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    assert wants_ascii() is wanted
