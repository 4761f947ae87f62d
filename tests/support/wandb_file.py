"""Runs of W&B as it writes them: protobuf records in a LevelDB log."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Mapping

from trainer.tfevents.writer import message, varint

_BLOCK, _HEADER = 32_768, 7


def wandb_file(records: Iterable[bytes]) -> bytes:
    written = bytearray(b":W&B\xe1\xbe\x00")
    for record in records:
        left, is_first = record, True
        while left or is_first:
            room = _BLOCK - len(written) % _BLOCK
            if room < _HEADER:
                written += bytes(room)
                continue
            piece, left = left[: room - _HEADER], left[room - _HEADER :]
            kind = bytes([(1 if is_first else 4) if not left else (2 if is_first else 3)])
            written += struct.pack("<IH", zlib.crc32(kind + piece), len(piece)) + kind + piece
            is_first = False
    return bytes(written)


def history(values: Mapping[str, object], step: int | None = None) -> bytes:
    """Encode what one call of `log` wrote; a name with dots is a nested one."""
    content = b"".join(message(1, _item(name, value)) for name, value in values.items())
    if step is not None:
        content += message(2, b"\x08" + varint(step))
    return b"\x08\x07" + message(2, content)


def config(values: Mapping[str, object]) -> bytes:
    return message(5, b"".join(message(1, _item(name, value)) for name, value in values.items()))


def _item(name: str, value: object) -> bytes:
    parts = name.split(".")
    named = message(1, name.encode()) if len(parts) == 1 else b"".join(message(2, x.encode()) for x in parts)
    text = json.dumps(value).encode()
    return named + b"\x82\x01" + varint(len(text)) + text
