"""Offline and local runs of W&B: `wandb/*run-*/run-ID.wandb`.

A file is a log as LevelDB writes it: after 7 bytes of header, blocks of 32 KiB with fragments of
records, each a u32 CRC-32 (IEEE) of type and content, a u16 length and a u8 type. A record is a
protobuf message; field numbers are from wandb_internal.proto.

Source: LevelDB's log_format.md; wandb 0.22.
"""

from __future__ import annotations

import struct
import zlib

from k8s.text.sanitize import sanitize
from trainer.tfevents import BYTES, MOST_TEXTS, VARINT, Columns, message_fields, read_varint
from tui.runs.formats.records import RecordStream, parse_json

BLOCK_BYTES = 32_768
# A longer record holds no history.
RECORD_LIMIT_BYTES = 16 << 20
MAGIC = b":W&B\xe1\xbe\x00"

_FRAGMENT = struct.Struct("<IHB")
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_HISTORY, _CONFIG, _RUN = 2, 5, 17
_RUN_CONFIG = 4
# In HistoryItem and ConfigItem.
_KEY, _NESTED_KEY, _VALUE = 1, 2, 16


class WandbFile(RecordStream):
    """Follows one file of a run; after damage it continues with the next block."""

    def __init__(self) -> None:
        super().__init__()
        self._at = 0
        self._rest = b""
        self._record = b""
        self._is_in_record = False

    def next_read(self, size_bytes: int) -> int | None:
        """Return the offset to read from once the file has that size; None if there is nothing new."""
        return None if self.is_foreign else super().next_read(size_bytes)

    def feed(self, chunk: bytes) -> list[Columns]:
        """Take the next bytes of the file and return the points that they complete."""
        self.offset += len(chunk)
        if self.is_foreign:
            return []
        content, at = self._rest + chunk, 0
        while True:
            if self._at + at == 0:
                used = self._header(content)
            else:
                used = self._fragment(content, at, BLOCK_BYTES - (self._at + at) % BLOCK_BYTES)
            if not used:
                break
            at += used
        self._at += at
        self._rest = content[at:]
        return self.pop_fresh()

    def _header(self, content: bytes) -> int:
        if len(content) < len(MAGIC):
            return 0
        if not content.startswith(MAGIC):
            self.is_foreign, self.problem = True, "It is not a file of W&B, or of a newer version."
            return 0
        return len(MAGIC)

    def _fragment(self, content: bytes, at: int, left: int) -> int:
        # Returns the bytes used; 0 if more are needed.
        if left < _FRAGMENT.size:
            return left if at + left <= len(content) else 0
        if at + _FRAGMENT.size > len(content):
            return 0
        crc, length, kind = _FRAGMENT.unpack_from(content, at)
        end: int = at + _FRAGMENT.size + length
        is_zero = not (crc or length or kind)
        if not is_zero and length + _FRAGMENT.size <= left:
            if end > len(content):
                return 0
            piece = content[at + _FRAGMENT.size : end]
            if crc == zlib.crc32(content[at + 6 : end]) and _FULL <= kind <= _LAST:
                self._join(kind, piece)
                return end - at
        # The length cannot be trusted: skip to the next block.
        if at + left > len(content):
            return 0
        self.skipped += not is_zero
        self._record, self._is_in_record = b"", False
        return left

    def _join(self, kind: int, piece: bytes) -> None:
        if kind in (_FULL, _FIRST):
            self._record, self._is_in_record = b"", True
        elif not self._is_in_record:
            return
        self._record += piece
        if len(self._record) > RECORD_LIMIT_BYTES:
            self._record, self._is_in_record = b"", False
        elif kind in (_FULL, _LAST):
            record, self._record, self._is_in_record = self._record, b"", False
            try:
                self._read(record)
            except (IndexError, UnicodeDecodeError):
                self.skipped += 1

    def _read(self, record: bytes) -> None:
        for number, wire, at, end in message_fields(record, 0, len(record)):
            if (number, wire) == (_HISTORY, BYTES):
                self._read_history(record, at, end)
            elif (number, wire) == (_CONFIG, BYTES):
                self._read_config(record, at, end)
            elif (number, wire) == (_RUN, BYTES):
                for inner, inner_wire, start, stop in message_fields(record, at, end):
                    if (inner, inner_wire) == (_RUN_CONFIG, BYTES):
                        self._read_config(record, start, stop)

    def _read_history(self, record: bytes, at: int, end: int) -> None:
        found: dict[str, object] = {}
        for number, wire, start, stop in message_fields(record, at, end):
            if (number, wire) == (1, BYTES):
                name, text = _item(record, start, stop)
                found[name] = parse_json(text)
            elif (number, wire) == (2, BYTES):
                for inner, inner_wire, step_at, _ in message_fields(record, start, stop):
                    if (inner, inner_wire) == (1, VARINT):
                        found.setdefault("_step", read_varint(record, step_at)[0])
        self.add(found, ".")

    def _read_config(self, record: bytes, at: int, end: int) -> None:
        for number, wire, start, stop in message_fields(record, at, end):
            if (number, wire) == (1, BYTES):
                name, text = _item(record, start, stop)
                # Versions and telemetry of W&B itself.
                if name and not name.startswith("_wandb") and len(self.texts) < MOST_TEXTS:
                    value = text[:4096].decode("utf-8", "replace")
                    word = parse_json(text) if value.startswith('"') else None
                    self.texts[sanitize(name)] = sanitize(word if isinstance(word, str) else value)


def _item(record: bytes, at: int, end: int) -> tuple[str, bytes]:
    name, value, nested = "", b"null", []
    for number, wire, start, stop in message_fields(record, at, end):
        if (number, wire) == (_KEY, BYTES):
            name = record[start:stop].decode()
        elif (number, wire) == (_NESTED_KEY, BYTES):
            nested.append(record[start:stop].decode())
        elif (number, wire) == (_VALUE, BYTES):
            value = record[start:stop]
    return name or ".".join(nested), value
