"""Framing of records in an event file.

A record is: u64 length, u32 masked CRC of those 8 bytes, the payload, u32 masked CRC of the payload;
little-endian. Source: "TFRecords Format Details", TensorFlow guide.
CRC-32C by google-crc32c runs in C, and the console depends on it; an image with torch alone lacks it.
"""

import struct
from collections.abc import Callable
from functools import lru_cache

# Castagnoli's, reflected. Source: RFC 3720, appendix B.4.
_POLYNOMIAL = 0x82F63B78


def _remainder(octet: int) -> int:
    for _ in range(8):
        octet = octet >> 1 ^ _POLYNOMIAL * (octet & 1)
    return octet


_REMAINDERS = tuple(map(_remainder, range(256)))


def crc32c_in_python(octets: bytes) -> int:
    """Return the CRC-32C of `octets`, at some megabytes per second, which is enough for writing."""
    crc = 0xFFFFFFFF
    for octet in octets:
        crc = crc >> 8 ^ _REMAINDERS[crc & 0xFF ^ octet]
    return crc ^ 0xFFFFFFFF


def _fastest() -> Callable[[bytes], int]:
    try:
        from google_crc32c import value
    except ImportError:
        return crc32c_in_python
    return value  # type: ignore[no-any-return]


crc32c = _fastest()

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
