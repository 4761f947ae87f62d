"""Writing of scalars that TensorBoard and this package can read."""

import contextlib
import itertools
import os
import socket
import struct
import time
from pathlib import Path
from types import TracebackType

from trainer.tfevents.encoding import double, message, varint
from trainer.tfevents.hparams import Hparams, session_start
from trainer.tfevents.records import frame

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
