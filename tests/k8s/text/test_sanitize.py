"""Words from outside: nothing in them may reach the terminal as a command."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k8s.text.sanitize import (
    DISPLAY_CAP,
    cap_line,
    collapse_carriage_returns,
    decode,
    file_name,
    log_runs,
    log_text,
    sanitize,
)

FORBIDDEN = frozenset(
    chr(code)
    for first, last in (
        (0x00, 0x1F),
        (0x7F, 0x9F),
        (0xAD, 0xAD),
        (0x061C, 0x061C),
        (0x200B, 0x200F),
        (0x2028, 0x202E),
        (0x2060, 0x206F),
        (0xFE00, 0xFE0F),
        (0xFEFF, 0xFEFF),
        (0xFFF9, 0xFFFB),
        (0xD800, 0xDFFF),
        (0xE0000, 0xE007F),
    )
    for code in range(first, last + 1)
)

NASTY = st.text(
    st.one_of(
        st.sampled_from("\x1b[]P_^X\\;:m0123456789ABCJKHh?\x07\x9b\x9c\x9d\x90\r\n\t\x00 ab"),
        st.sampled_from(sorted(FORBIDDEN)),
        st.characters(),
    ),
    max_size=200,
)


@given(NASTY)
def test_no_control_character_survives(text: str) -> None:
    clean = sanitize(text)
    assert not FORBIDDEN & set(clean)
    assert sanitize(clean) == clean
    clean.encode("utf-8")


@given(NASTY)
def test_a_file_name_from_any_text_stays_in_its_folder(text: str) -> None:
    name = file_name(text)
    assert name and name not in (".", "..") and len(name.encode()) <= 100
    assert not set("/\\\0\n ") & set(name) and not name.startswith((".", "-"))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("llama-7b_run.2", "llama-7b_run.2"),
        ("../../etc/passwd", "etc-passwd"),
        ("..", "unnamed"),
        ("", "unnamed"),
        ("--help", "help"),
        ("höme 家/a", "höme-家-a"),
        ("家" * 60, "家" * 33),
    ],
)
def test_file_names_keep_harmless_characters(text: str, name: str) -> None:
    assert file_name(text) == name


@given(st.one_of(st.binary(max_size=300), NASTY))
def test_no_log_line_carries_a_control_character(raw: bytes | str) -> None:
    assert not FORBIDDEN & set(log_text(raw))
    assert not FORBIDDEN & set("".join(text for text, _ in log_runs(raw)))


@given(st.one_of(st.binary(max_size=300), NASTY), st.integers(0, 40))
def test_no_log_line_is_longer_than_its_cap_and_its_marker(raw: bytes | str, cap: int) -> None:
    assert len(log_text(raw, cap=cap)) <= cap + len("… +999.9 GB")
    assert len("".join(text for text, _ in log_runs(raw, cap=cap))) <= cap + len("… +999.9 GB")


@given(st.text(st.characters(codec="ascii", min_codepoint=0x20, max_codepoint=0x7E)))
def test_clean_text_is_not_touched(text: str) -> None:
    assert sanitize(text) is text


def test_terminal_control_sequences_are_dropped_or_made_visible() -> None:
    for given_text, shown in [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[2J\x1b[Hgone", "gone"),
        ("a\x1b]0;new title\x07b", "ab"),
        ("a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "alink"),
        ("a\x1bPq#0\x1b\\b", "ab"),
        ("a\x1b_apc\x1b\\b\x1b^pm\x1b\\c\x1bXsos\x1b\\d", "abcd"),
        ("\x9b31mred", "red"),
        ("tput \x1b(B\x1b[m", "tput "),
        ("\x1b]52;c;c3RlYWw=", "␛]52;c;c3RlYWw="),
        ("\x1b\x1b[mc", "␛c"),
        ("pods\u202egpj.exe", "pods<U+202E>gpj.exe"),
        ("zero\u200bwidth", "zero<U+200B>width"),
        ("two\nlines\r", "two␊lines␍"),
        ("a\tb", "a       b"),
        ("\x00\x7f\x85", "␀␡<85>"),
        ("half \ud83d", "half <U+D83D>"),
        ("⚠️ 模型", "⚠ 模型"),
    ]:
        assert sanitize(given_text) == shown


@pytest.mark.parametrize("start", ["\x9d", "\x90a", "\x9e", "\x1b]", "\x1b[0", "\x9b0"])
def test_a_sequence_that_starts_again_and_again_is_read_once(start: str) -> None:
    """With the square of its length this would take hours."""
    clean = sanitize(start * 1_000_000)
    assert len(clean) >= 1_000_000 and not FORBIDDEN & set(clean)


def test_only_the_last_state_of_a_progress_line_is_shown() -> None:
    assert collapse_carriage_returns("10%\r20%\r30%") == "30%"
    assert collapse_carriage_returns("10%\r20%\r") == "20%"
    assert log_text(b"10%\r\x1b[K100% done\r\x1b[K") == "100% done"
    assert log_text(b"windows line\r") == "windows line"
    assert log_text(b"\r\r") == ""


def test_a_cut_line_shows_its_missing_size() -> None:
    assert log_text(b"x" * (DISPLAY_CAP + 64)).endswith("x… +64 B")
    assert log_text(b"x" * 1_204_096).endswith("… +1.2 MB")
    assert cap_line("abc", missing_bytes=2_500) == "abc… +2.5 kB"
    assert log_text("short", missing_bytes=1_000_000) == "short… +1.0 MB"


def test_binary_is_shown_as_numbers() -> None:
    assert decode(b"\x7fELF\x00\x00\x00\x01\xff") == r"\x7fELF\x00\x00\x00\x01\xff"
    assert decode("训练".encode()) == "训练"
    assert decode(b"caf\xe9") == "caf\ufffd"


def test_colours_of_a_line_are_kept_as_numbers() -> None:
    runs = log_runs("a\x1b[1;31mred\x1b[22mthin\x1b[38;5;208mo\x1b[2J\x1b[mend")
    assert runs == [("a", ()), ("red", (1, 31)), ("thin", (31,)), ("o", (38, 5, 208)), ("end", ())]
    assert log_runs("\x1b[38;2;1;2;3;48:5:7;4mx") == [("x", (4, 38, 2, 1, 2, 3, 48, 5, 7))]
    assert log_runs("\x1b[99;;38;38;5mx") == [("x", ())]
    assert log_runs(b"plain") == [("plain", ())]


def test_a_coloured_line_is_capped_like_a_plain_one() -> None:
    runs = log_runs("\x1b[32m" + "x" * 100, cap=10)
    assert runs == [("x" * 10, (32,)), ("… +90 B", ())]
