"""Framing of records in an event file.

A record is: u64 length, u32 masked CRC of those 8 bytes, the payload, u32 masked CRC of the payload;
little-endian. Source: "TFRecords Format Details", TensorFlow guide.
"""

import struct
from functools import lru_cache

from trainer.tfevents.crc32c import crc32c

HEADER_BYTES = 12

FRAME_BYTES = 16

# Protobuf's own limit for one message; a longer record is not an event.
LARGEST_PAYLOAD_BYTES = 1 << 31

_GZIP_MAGIC = b"\x1f\x8b"
_HEADER = struct.Struct("<QI")
_CRC = struct.Struct("<I")


class BrokenEvents(Exception):
    """The length of a record does not match its CRC, so nothing after it can be found."""


def masked_crc(octets: bytes) -> int:
    """Return the CRC-32C as TFRecord stores it: rotated by 15 bits, plus a constant."""
    crc = crc32c(octets)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def frame(payload: bytes) -> bytes:
    """Wrap `payload` into one record."""
    return _HEADER.pack(len(payload), _length_crc(len(payload))) + payload + _CRC.pack(masked_crc(payload))


def record_end(chunk: bytes, at: int) -> int | None:
    """Return the end of the record that starts at `at`; None if `chunk` ends inside it.

    A header of zeros is a hole that the file system has not filled yet: unfinished, not broken.

    Raises:
        BrokenEvents: The length does not match its CRC.
    """
    if at + HEADER_BYTES > len(chunk):
        return None
    length, crc = _HEADER.unpack_from(chunk, at)
    if crc != _length_crc(length) or length > LARGEST_PAYLOAD_BYTES:
        if not any(chunk[at : at + HEADER_BYTES]):
            return None
        if chunk.startswith(_GZIP_MAGIC, at):
            raise BrokenEvents("The file is gzip'd. Unpack it with gunzip first.")
        raise BrokenEvents("A record's length does not match its CRC; what follows cannot be read.")
    end: int = at + FRAME_BYTES + length
    return end if end <= len(chunk) else None


def payload_is_good(chunk: bytes, at: int, end: int) -> bool:
    """Return True if the payload of the record in `chunk[at:end]` matches its CRC."""
    stored: int = _CRC.unpack_from(chunk, end - 4)[0]
    return stored == masked_crc(chunk[at + HEADER_BYTES : end - 4])


@lru_cache(maxsize=1024)
def _length_crc(length: int) -> int:
    return masked_crc(struct.pack("<Q", length))
