"""Writing of scalars that TensorBoard and this package can read.

Field numbers are from TensorFlow's event.proto, the HParams plugin's plugin_data.proto and struct.proto.
"""

import contextlib
import itertools
import os
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from trainer.tfevents.event import frame


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


_TAG = b"_hparams_/session_start_info"
# float32 of shape (0,): a value must have a tensor.
_EMPTY_TENSOR = b"\x08\x01" + message(2, message(2, b""))

Hparams = Mapping[str, bool | int | float | str]


def session_start(hparams: Hparams, started_at: float) -> bytes:
    """Encode a Summary with the arguments of a run and its start, in seconds since 1970."""
    values = b"".join(
        message(1, message(1, name.encode()) + message(2, _value(each))) for name, each in hparams.items()
    )
    content = message(3, values + double(5, started_at))
    metadata = message(1, message(1, b"hparams") + message(2, content))
    return message(1, message(1, _TAG) + message(8, _EMPTY_TENSOR) + message(9, metadata))


def _value(each: bool | int | float | str) -> bytes:
    if isinstance(each, bool):
        return b"\x20" + bytes([each])
    if isinstance(each, str):
        return message(3, each.encode())
    return double(2, each)


_counter = itertools.count()
_LARGEST_FLOAT32 = 3.4028235677973366e38


class EventWriter:
    """Writes scalars to a new event file in `folder`, which is made if needed.

    Points reach the file after at most `flush_s` seconds if writing continues, else with `flush` or `close`.

    Raises:
        OSError: The folder or the file cannot be made or written.
    """

    def __init__(self, folder: str | os.PathLike[str], flush_s: float = 2.0) -> None:
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        now = time.time()
        name = f"events.out.tfevents.{int(now):010d}.{socket.gethostname()}.{os.getpid()}.{next(_counter)}"
        # Named as TensorBoard names its own, so that names sort by time.
        self.path = folder / name
        self._flush_s = flush_s
        self._file = self.path.open("xb")
        try:
            self._file.write(frame(_event(now, 0, b"\x1a\x0dbrain.Event:2")))
            self.flush()
        except OSError:
            with contextlib.suppress(OSError):
                self._file.close()
            with contextlib.suppress(OSError):
                self.path.unlink()
            raise

    def write_scalar(self, tag: str, step: int, value: float, wall_time: float | None = None) -> None:
        """Write one float32; `wall_time` in seconds since 1970, now if None."""
        if wall_time is None:
            wall_time = time.time()
        summary = message(1, message(1, tag.encode()) + b"\x15" + _float32(value))
        self._file.write(frame(_event(wall_time, step, message(5, summary))))
        if time.monotonic() - self._flushed_at >= self._flush_s:
            self.flush()

    def write_hparams(self, hparams: Hparams) -> None:
        """Write the arguments of the run, for TensorBoard's HParams tab."""
        now = time.time()
        self._file.write(frame(_event(now, 0, message(5, session_start(hparams, now)))))

    def flush(self) -> None:
        """Hand all points to the operating system."""
        self._file.flush()
        self._flushed_at = time.monotonic()

    def close(self) -> None:
        """Flush and close the file; may be called twice."""
        self._file.close()

    def __enter__(self) -> "EventWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _event(wall_time: float, step: int, rest: bytes) -> bytes:
    return double(1, wall_time) + (b"\x10" + varint(step) if step else b"") + rest


def _float32(value: float) -> bytes:
    # Like protobuf: numbers that are too large become infinite.
    if abs(value) >= _LARGEST_FLOAT32:
        value = float("inf") if value > 0 else float("-inf")
    return struct.pack("<f", value)
