"""TensorBoard event files, written and read without TensorBoard, torch or numpy.

`EventWriter` writes scalars and the arguments of a run. `EventStream` follows one file whose bytes come from
anywhere; `EventFiles` joins the files of a folder tree into curves, and `EventFolder` reads them from disk.
Tags come from outside: clean them before they reach a terminal.
"""

from trainer.tfevents.columns import Columns
from trainer.tfevents.event import BYTES, VARINT, BrokenEvents, message_fields, read_varint
from trainer.tfevents.files import EventFiles, EventFolder, NewPoints, RunText, ScalarCurve
from trainer.tfevents.stream import MOST_TEXTS, EventStream, Restart, ScalarSeries
from trainer.tfevents.writer import EventWriter, Hparams

__all__ = [
    "BYTES", "MOST_TEXTS", "VARINT", "BrokenEvents", "Columns", "EventFiles", "EventFolder",
    "EventStream", "EventWriter", "Hparams", "NewPoints", "Restart", "RunText", "ScalarCurve",
    "ScalarSeries", "message_fields", "read_varint",
]  # fmt: skip
