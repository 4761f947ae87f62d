"""Event files read the plain way, record by record: what the fast reader must agree with."""

import contextlib
from typing import NamedTuple

from trainer.tfevents.event import BadPayload, decode_event
from trainer.tfevents.records import HEADER_BYTES, payload_is_good, record_end


class Point(NamedTuple):
    """One scalar of one tag; `wall_time` is in seconds since 1970."""

    tag: str
    step: int
    wall_time: float
    value: float


def read_points(chunk: bytes) -> tuple[list[Point], int]:
    """Decode every whole record at the start of `chunk`.

    A record is: u64 length, u32 masked CRC of those 8 bytes, the payload, u32
    masked CRC of the payload; little-endian. A file being written may end
    inside a record: read again later from `chunk[used:]`. A payload that is
    damaged under a good length is skipped.

    Returns:
        The scalars found, in the order of the file, and the number of bytes used.

    Raises:
        BrokenEvents: A length does not match its CRC.

    Source: "TFRecords Format Details", TensorFlow guide.
    """
    points: list[Point] = []
    used = 0
    while (end := record_end(chunk, used)) is not None:
        if payload_is_good(chunk, used, end):
            with contextlib.suppress(BadPayload):
                event = decode_event(chunk[used + HEADER_BYTES : end - 4])
                points += [
                    Point(found.tag, event.step, event.wall_time, found.value) for found in event.scalars
                ]
        used = end
    return points, used
