"""CRC-32C, two of which are in every record of an event file.

google-crc32c's runs in C, and the console depends on it; an image with torch alone does not have it.
"""

from collections.abc import Callable

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
