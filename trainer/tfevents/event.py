"""Format of an event file: framing of its records, and scalars and texts in their payloads without protobuf.

A record is: u64 length, u32 masked CRC of those 8 bytes, the payload, u32 masked CRC of the payload;
little-endian. Source: "TFRecords Format Details", TensorFlow guide.
CRC-32C by google-crc32c runs in C, and the console depends on it; an image with torch alone lacks it.

A payload is an Event message. Field numbers are from TensorBoard's event.proto, summary.proto and
tensor.proto. Each value comes with its position, so that a run of equal records can be read as columns.
"""

import struct
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

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


VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

# Longer texts are cut.
MOST_TEXT_BYTES = 65_536

_FORMATS = {1: "<f", 2: "<d", 3: "<i", 4: "<B", 5: "<h", 6: "<b", 9: "<q", 10: "<?"}
_FORMATS |= {17: "<H", 19: "<e", 22: "<I", 23: "<Q"}
_BFLOAT16 = 14
_LIST_OF_DTYPE = {1: 5, 2: 6, 9: 10, 10: 11, 14: 13, 19: 13, 22: 16, 23: 17}
_INT_LIST = 7


class Found(NamedTuple):
    """A value and its position in the payload; `form` is "" if it has no fixed place."""

    tag: str
    value: float
    at: int
    form: str


class EventRecord(NamedTuple):
    """Content of one payload; offsets are -1 for absent fields."""

    wall_time: float
    step: int
    wall_time_at: int
    step_at: int
    step_end: int
    scalars: list[Found]
    texts: list[tuple[str, str]]  # tag and text of the text plug-in; names and values of the HParams plug-in


class BadPayload(Exception):
    """The bytes are not an Event message."""


def decode_event(payload: bytes) -> EventRecord:
    """Return the scalars and texts of one event; other summaries (images, histograms) are left out.

    Raises:
        BadPayload: The bytes are not an Event message.
    """
    wall_time, step, wall_time_at, step_at, step_end = 0.0, 0, -1, -1, -1
    scalars: list[Found] = []
    texts: list[tuple[str, str]] = []
    try:
        for number, wire, start, end in message_fields(payload, 0, len(payload)):
            if (number, wire) == (1, FIXED64):
                wall_time, wall_time_at = struct.unpack_from("<d", payload, start)[0], start
            elif (number, wire) == (2, VARINT):
                step, step_at, step_end = _signed(read_varint(payload, start)[0]), start, end
            elif (number, wire) == (5, BYTES):
                for found, content in _summary_values(payload, start, end):
                    scalars += found
                    texts += content
    except (IndexError, struct.error) as error:
        raise BadPayload(str(error)) from error
    return EventRecord(wall_time, step, wall_time_at, step_at, step_end, scalars, texts)


def _summary_values(
    payload: bytes, start: int, end: int
) -> Iterator[tuple[list[Found], list[tuple[str, str]]]]:
    for number, wire, value_start, value_end in message_fields(payload, start, end):
        if (number, wire) == (1, BYTES):
            if (found := _scalar(payload, value_start, value_end)) is not None:
                yield [found], []
            else:
                yield [], _texts(payload, value_start, value_end)


def _scalar(payload: bytes, start: int, end: int) -> Found | None:
    """Read one Summary.Value: `simple_value`, or a tensor of one number."""
    tag, plugin, found = "", b"scalars", None
    for number, wire, at, stop in message_fields(payload, start, end):
        if (number, wire) == (1, BYTES):
            tag = payload[at:stop].decode("utf-8", "replace")
        elif (number, wire) == (2, FIXED32):
            found = (struct.unpack_from("<f", payload, at)[0], at, "<f")
        elif (number, wire) == (8, BYTES):
            found = _tensor_scalar(payload, at, stop)
        elif (number, wire) == (9, BYTES):
            plugin = _plugin_name(payload, at, stop) or plugin
    if found is None or plugin != b"scalars":
        return None
    return Found(tag, *found)


def _texts(payload: bytes, start: int, end: int) -> list[tuple[str, str]]:
    """Read one Summary.Value of the text plug-in, or the arguments of a run from that of HParams."""
    value = _parts(payload, start, end)
    plugin = _parts(payload, *_parts(payload, *value.get(9, (0, 0))).get(1, (0, 0)))
    name = payload[slice(*plugin.get(1, (0, 0)))]
    if name == b"text":
        # A tensor of strings: one, or the cells of a table.
        lines = [
            payload[at : min(stop, at + MOST_TEXT_BYTES)].decode("utf-8", "replace")
            for number, wire, at, stop in message_fields(payload, *value.get(8, (0, 0)))
            if (number, wire) == (8, BYTES)
        ]
        tag = payload[slice(*value.get(1, (0, 0)))].decode("utf-8", "replace")
        return [(tag.removesuffix("/text_summary"), " | ".join(lines)[:MOST_TEXT_BYTES])]
    session = _parts(payload, *plugin.get(2, (0, 0))).get(3) if name == b"hparams" else None
    return [] if session is None else [*_hparams(payload, *session)]


def _hparams(payload: bytes, start: int, end: int) -> Iterator[tuple[str, str]]:
    for number, wire, at, stop in message_fields(payload, start, end):
        if (number, wire) != (1, BYTES):
            continue
        entry = _parts(payload, at, stop)
        name = payload[slice(*entry.get(1, (0, 0)))].decode("utf-8", "replace")
        for kind, _, value_at, value_stop in message_fields(payload, *entry.get(2, (0, 0))):
            if kind == 2:
                yield name, f"{struct.unpack_from('<d', payload, value_at)[0]:.15g}"
            elif kind == 3:
                text = payload[value_at : min(value_stop, value_at + MOST_TEXT_BYTES)]
                yield name, text.decode("utf-8", "replace")
            elif kind == 4:
                yield name, "true" if payload[value_at] else "false"


def _parts(payload: bytes, start: int, end: int) -> dict[int, tuple[int, int]]:
    # The last field of each number that is a message, a text or bytes.
    return {
        number: (at, stop) for number, wire, at, stop in message_fields(payload, start, end) if wire == BYTES
    }


def _plugin_name(payload: bytes, start: int, end: int) -> bytes:
    for number, wire, at, stop in message_fields(payload, start, end):
        if (number, wire) == (1, BYTES):
            for inner, inner_wire, name_at, name_stop in message_fields(payload, at, stop):
                if (inner, inner_wire) == (1, BYTES):
                    return payload[name_at:name_stop]
    return b""


def _tensor_scalar(payload: bytes, start: int, end: int) -> tuple[float, int, str] | None:
    """Read a tensor of exactly one number of any numeric dtype."""
    dtype, size, content = 0, 1, None
    lists: dict[int, tuple[int, int, int]] = {}
    for number, wire, at, stop in message_fields(payload, start, end):
        if (number, wire) == (1, VARINT):
            dtype = read_varint(payload, at)[0]
        elif (number, wire) == (2, BYTES):
            size = _tensor_size(payload, at, stop)
        elif (number, wire) == (4, BYTES) and stop > at:
            content = (at, stop)
        elif stop > at:
            lists[number] = (wire, at, stop)
    if size != 1 or (dtype not in _FORMATS and dtype != _BFLOAT16):
        return None
    form = _FORMATS.get(dtype, "")
    if content is not None:
        at, stop = content
        if dtype == _BFLOAT16:
            return _from_bfloat16(int.from_bytes(payload[at:stop], "little")), at, ""
        if stop - at != struct.calcsize(form):
            raise IndexError("a tensor's content does not fit its shape")
        return float(struct.unpack_from(form, payload, at)[0]), at, form if form in ("<f", "<d") else ""
    wire, at, stop = lists.get(_LIST_OF_DTYPE.get(dtype, _INT_LIST), (BYTES, -1, -1))
    if at < 0:
        return 0.0, at, ""
    if form in ("<f", "<d"):
        return struct.unpack_from(form, payload, at)[0], at, form
    number = read_varint(payload, at)[0]
    if dtype == _BFLOAT16:
        return _from_bfloat16(number), at, ""
    if form == "<e":
        return struct.unpack("<e", struct.pack("<H", number & 0xFFFF))[0], at, ""
    return float(number if form == "<Q" else _signed(number)), at, ""


def _tensor_size(payload: bytes, start: int, end: int) -> int:
    size = 1
    for number, wire, at, stop in message_fields(payload, start, end):
        if (number, wire) == (2, BYTES):
            length = 0
            for inner, inner_wire, length_at, _ in message_fields(payload, at, stop):
                if (inner, inner_wire) == (1, VARINT):
                    length = _signed(read_varint(payload, length_at)[0])
            size *= length
    return size


def message_fields(payload: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield field number, wire type, and start and end of the value."""
    while at < end:
        key, at = read_varint(payload, at)
        wire = key & 7
        if wire == BYTES:
            length, at = read_varint(payload, at)
            stop = at + length
        elif wire == VARINT:
            stop = read_varint(payload, at)[1]
        elif wire == FIXED32:
            stop = at + 4
        elif wire == FIXED64:
            stop = at + 8
        else:
            raise IndexError(f"unknown wire type {wire}")
        if stop > end:
            raise IndexError("a field runs past its message")
        yield key >> 3, wire, at, stop
        at = stop


def read_varint(payload: bytes, at: int) -> tuple[int, int]:
    """Return the number, and the offset of the next byte."""
    number, shift = 0, 0
    while True:
        octet = payload[at]
        at += 1
        number |= (octet & 127) << shift
        if octet < 128:
            return number & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
        if shift > 63:
            raise IndexError("a varint is longer than ten bytes")


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


def _from_bfloat16(bits: int) -> float:
    value: float = struct.unpack("<f", struct.pack("<I", (bits & 0xFFFF) << 16))[0]
    return value
