"""CRC-32C, of which every record of an event file has two.

google-crc32c's runs in C, and the console brings it; an image with torch alone does not.
"""

from collections.abc import Callable

_POLYNOMIAL = 0x82F63B78
"""Castagnoli's, reflected. Source: RFC 3720, appendix B.4."""


def _remainder(octet: int) -> int:
    for _ in range(8):
        octet = octet >> 1 ^ _POLYNOMIAL * (octet & 1)
    return octet


_REMAINDERS = tuple(map(_remainder, range(256)))


def crc32c_in_python(octets: bytes) -> int:
    """Return the CRC-32C of `octets`, at some megabytes a second: for writing, enough."""
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
"""Return the CRC-32C of octets."""
