"""TensorBoard event files, written and read without TensorBoard, torch or numpy.

`EventWriter` writes scalars. `read_points` decodes one piece of a file;
`EventStream` follows a file whose bytes come from anywhere; `EventFiles` joins
the files of a folder tree into curves, and `EventFolder` reads them from disk.
Tags come from outside: clean them before they reach a terminal.
"""

from .columns import Columns
from .event import Point
from .files import EventFiles, EventFolder, Fresh, ScalarCurve
from .reading import read_points
from .records import BrokenEvents
from .stream import EventStream, Restart, ScalarSeries
from .writer import EventWriter

__all__ = [
    "BrokenEvents",
    "Columns",
    "EventFiles",
    "EventFolder",
    "EventStream",
    "EventWriter",
    "Fresh",
    "Point",
    "Restart",
    "ScalarCurve",
    "ScalarSeries",
    "read_points",
]
