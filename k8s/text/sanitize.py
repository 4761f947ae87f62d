"""Sanitising of text from outside (a cluster, a log, a file), and numbers in it.

Terminals obey bytes hidden in text: they move the cursor, change the title, write to the
clipboard, reverse the reading order. Every string from outside passes here before display.
"""

from __future__ import annotations

import re

DISPLAY_CAP = 4096
"""Characters of a log line to show; the number of bytes cut off follows `…`."""

TAB_WIDTH = 8

SgrRun = tuple[str, tuple[int, ...]]
"""Clean text, and the SGR parameters in force for it, such as `(1, 31)` for bold red."""

_UNSAFE = (
    "\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff\U0001bca0-\U0001bca3"
    "\U00013430-\U0001343f\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
UNSAFE = re.compile(f"[{_UNSAFE}]")
"""A character that controls the terminal, changes the reading order, or is invisible."""

_CSI = r"(?:\x1b\[|\x9b)[\x30-\x3f]*[\x20-\x2f]*[\x40-\x7e]"
_SEQUENCE = re.compile(
    _CSI
    # Operating system commands end at BEL or ST; device, application and privacy strings at ST only.
    # None holds the start of another: else a text of nothing but starts would take its length squared.
    + r"|(?:\x1b\]|\x9d)[^\x07\x1b\x90\x98\x9c-\x9f]*(?:\x07|\x1b\\|\x9c)"
    + r"|(?:\x1b[P_^X]|[\x90\x98\x9e\x9f])[^\x1b\x90\x98\x9c-\x9f]*(?:\x1b\\|\x9c)"
    # Character sets, keypad modes, save and restore: what `tput sgr0` and its like write.
    + r"|\x1b[()*+\-./][0-9A-Za-z]|\x1b[=>78]"
)
_NOT_IN_FILE_NAMES = re.compile(r"[^\w.-]+")
_SGR = re.compile(r"(?:\x1b\[|\x9b)([0-9;:]*)m")
_BINARY_SHARE = 0.1


def _control_picture(found: re.Match[str]) -> str:
    char = found.group()
    code = ord(char)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    if 0xFE00 <= code <= 0xFE0F:
        return ""
    return f"<{code:02X}>" if code < 0x100 else f"<U+{code:04X}>"


def _pictured(text: str) -> str:
    lines = [UNSAFE.sub(_control_picture, part) for part in text.split("\t")]
    return "\t".join(lines).expandtabs(TAB_WIDTH)


def sanitize(text: str) -> str:
    """Make any text safe to show on one line.

    Complete terminal sequences are removed. Remaining control characters, bidirectional controls
    and zero-width characters become visible (`␛`, `␊`, `<U+202E>`), tabs become spaces, lone
    surrogates their code point, and variation selectors are dropped.
    """
    if (text.isascii() and text.isprintable()) or not UNSAFE.search(text):
        return text
    return _pictured(_SEQUENCE.sub("", text))


def file_name(text: str, most_bytes: int = 100) -> str:
    """Return a file name made from text of others: letters, digits and `_-.`, neither hidden nor a path.

    Equal names may come from different texts.
    """
    name = _NOT_IN_FILE_NAMES.sub("-", text).lstrip(".-").encode("utf-8", "replace")[:most_bytes]
    return name.decode("utf-8", "ignore").rstrip(".-") or "unnamed"


def sanitize_lines(text: str) -> str:
    """Sanitise a text of several lines; line ends stay."""
    return "\n".join(map(sanitize, text.split("\n"))) if "\n" in text else sanitize(text)


def decode(raw: bytes) -> str:
    r"""Decode UTF-8; invalid bytes become `\ufffd`.

    If more than a tenth of the bytes are NUL, it is binary: every byte that is not printable ASCII
    becomes `\x00`.
    """
    if 0 in raw and raw.count(0) > len(raw) * _BINARY_SHARE:
        return "".join(
            chr(byte) if 0x20 <= byte < 0x7F else f"\\x{byte:02x}" for byte in raw[: 2 * DISPLAY_CAP]
        )
    return raw.decode("utf-8", "replace")


def collapse_carriage_returns(text: str) -> str:
    r"""Return the current state of a progress line: the last non-blank part between `\r`."""
    if "\r" not in text:
        return text
    for part in reversed(text.split("\r")):
        if part and _SEQUENCE.sub("", part).strip():
            return part
    return ""


def cap_line(text: str, cap: int = DISPLAY_CAP, *, missing_bytes: int = 0) -> str:
    """Cut a line after `cap` characters and append the size of what is missing: `… +1.2 MB`.

    Args:
        text: The line.
        cap: Number of characters to keep.
        missing_bytes: Bytes that were already cut off.
    """
    missing = max(0, len(text) - cap) + missing_bytes
    return f"{text[:cap]}… +{_size(missing)}" if missing else text


def log_text(raw: bytes | str, *, cap: int = DISPLAY_CAP, missing_bytes: int = 0) -> str:
    """Sanitise and cut one log line, without its colours.

    Args:
        raw: The line without its line end.
        cap: Maximum number of characters.
        missing_bytes: Bytes that were already cut off.
    """
    text = decode(raw) if isinstance(raw, bytes) else raw
    if text.isascii() and text.isprintable() and len(text) <= cap and not missing_bytes:
        return text
    text = collapse_carriage_returns(text)
    # Look a little further than is shown, so that the cut does not split a sequence.
    clean = sanitize(text[: cap + 64])
    beyond = max(0, len(text) - cap - 64)
    return cap_line(clean, cap, missing_bytes=beyond + missing_bytes)


def log_runs(raw: bytes | str, *, cap: int = DISPLAY_CAP, missing_bytes: int = 0) -> list[SgrRun]:
    """Sanitise and cut one log line, with its colours.

    The joined texts equal `log_text`, except for the positions of tab stops.
    """
    text = decode(raw) if isinstance(raw, bytes) else raw
    if "\x1b" not in text and "\x9b" not in text:
        return [(log_text(text, cap=cap, missing_bytes=missing_bytes), ())]
    text = collapse_carriage_returns(text)
    missing = max(0, len(text) - cap - 64) + missing_bytes
    runs: list[SgrRun] = []
    room, end, state = cap, 0, _NO_STYLE
    text = text[: cap + 64]
    for found in [*_SGR.finditer(text), None]:
        part = sanitize(text[end : found.start() if found else len(text)])
        missing += max(0, len(part) - room)
        if part[:room]:
            runs.append((part[:room], tuple(number for group in state for number in group)))
        room = max(0, room - len(part))
        if found:
            state = _next_style(state, found.group(1))
            end = found.end()
    return [*runs, (cap_line("", missing_bytes=missing), ())] if missing else runs


_Style = tuple[tuple[int, ...], ...]
_NO_STYLE: _Style = ((), (), (), (), (), (), (), ())
# Places in a style: bold, dim, italic, underline, reverse, strike, foreground, background.
_SIMPLE = {1: 0, 2: 1, 3: 2, 4: 3, 7: 4, 9: 5}
_ENDS = {22: (0, 1), 23: (2,), 24: (3,), 27: (4,), 29: (5,), 39: (6,), 49: (7,)}


def _next_style(style: _Style, parameters: str) -> _Style:
    numbers = [
        int(number) if number else 0 for number in re.split("[;:]+", parameters)[:32] if len(number) < 4
    ]
    parameters_by_slot = list(style)
    index = 0
    while index < len(numbers or [0]):
        number = numbers[index] if numbers else 0
        if number == 0:
            parameters_by_slot = list(_NO_STYLE)
        elif number in _SIMPLE:
            parameters_by_slot[_SIMPLE[number]] = (number,)
        elif number in _ENDS:
            for slot in _ENDS[number]:
                parameters_by_slot[slot] = ()
        elif number in (38, 48):
            length = {5: 3, 2: 5}.get(numbers[index + 1] if index + 1 < len(numbers) else 0, 1)
            if length > 1 and index + length <= len(numbers):
                parameters_by_slot[6 if number == 38 else 7] = tuple(numbers[index : index + length])
            index += length - 1
        elif 30 <= number <= 37 or 90 <= number <= 97:
            parameters_by_slot[6] = (number,)
        elif 40 <= number <= 47 or 100 <= number <= 107:
            parameters_by_slot[7] = (number,)
        index += 1
    return tuple(parameters_by_slot)


def _size(size_bytes: int) -> str:
    for size, unit in ((1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB")):
        if size_bytes >= size:
            return f"{size_bytes / size:.1f} {unit}"
    return f"{size_bytes} B"


def parse_integer(text: str) -> int | None:
    """Return the number in a text; None if it is not a decimal of at most 9 digits.

    `int` raises a `ValueError` for more than 4,300 digits.
    """
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None
