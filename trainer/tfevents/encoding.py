"""Encoding of the protobuf fields in event files."""

import struct


def varint(number: int) -> bytes:
    """Encode an integer; a negative one as its 64 bits."""
    number &= 0xFFFFFFFFFFFFFFFF
    octets = bytearray()
    while number > 127:
        octets.append(number & 127 | 128)
        number >>= 7
    octets.append(number)
    return bytes(octets)


def message(number: int, content: bytes) -> bytes:
    """Encode field `number`, below 16: a message, a text or bytes."""
    return bytes([number << 3 | 2]) + varint(len(content)) + content


def double(number: int, value: float) -> bytes:
    """Encode field `number`, below 16, of 64 bits."""
    return bytes([number << 3 | 1]) + struct.pack("<d", value)
