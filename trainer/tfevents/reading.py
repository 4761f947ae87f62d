"""One pass over a piece of an event file: record by record until it repeats, then in columns."""

from trainer.tfevents.columns import Columns, Form, read_rows
from trainer.tfevents.event import BadPayload, decode_event
from trainer.tfevents.records import HEADER_BYTES, payload_is_good, record_end

# Longest cycle of records that is searched for.
LONGEST_CYCLE = 64

# Forms remembered for records of one length.
MOST_FORMS = 16

# Most records read one by one after a false repetition.
LONGEST_WAIT = 1024


class Reading:
    """Result of one pass; after an error, what was read before it."""

    def __init__(self, chunk: bytes) -> None:
        self.columns: list[Columns] = []
        """In the order of the file, for each tag by itself."""
        self.used = 0
        """Bytes of complete records."""
        self.skipped = 0
        """Number of records whose payload is damaged."""
        self.texts: dict[str, str] = {}
        self.first_wall_time: float | None = None
        """Of the first event, scalar or not; None before it."""
        self.last_wall_time: float | None = None
        self._chunk = chunk
        self._single: dict[str, Columns] = {}
        self._known: dict[int, list[Form]] = {}
        self._recent: dict[Form, None] = {}
        self._wait = 1

    def run(self) -> None:
        """Read up to the last complete record.

        Raises:
            BrokenEvents: A length does not match its CRC.
        """
        try:
            self._run()
        finally:
            self._close_single()

    def _run(self) -> None:
        before_look = 0
        while (end := record_end(self._chunk, self.used)) is not None:
            at, self.used = self.used, end
            if not payload_is_good(self._chunk, at, end):
                self.skipped += 1
                continue
            form = self._pop_known(at, end) or self._take(at, end)
            before_look -= 1
            if before_look > 0:
                continue
            if form is None or len(self._recent) == LONGEST_CYCLE:
                self._recent.clear()
            elif form in self._recent:
                before_look = self._read_cycle(form)
            else:
                self._recent[form] = None

    def _pop_known(self, at: int, end: int) -> Form | None:
        """Read a record of a known form, which is fast; None if its form is new."""
        for form in self._known.get(end - at, ()):
            point = form.read(self._chunk, at)
            if point is not None:
                self._add(form.tag, *point)
                self.last_wall_time = point[1]
                return form
        return None

    def _take(self, at: int, end: int) -> Form | None:
        """Read a record of any form, and remember the form if it holds one plain scalar."""
        try:
            event = decode_event(self._chunk[at + HEADER_BYTES : end - 4])
        except BadPayload:
            self.skipped += 1
            return None
        if self.first_wall_time is None:
            self.first_wall_time = event.wall_time
        self.last_wall_time = event.wall_time
        self.texts.update(event.texts)
        for tag, value, _, _ in event.scalars:
            self._add(tag, event.step, event.wall_time, value)
        form = Form.of(self._chunk[at:end], event)
        known = self._known.setdefault(end - at, [])
        if form is not None and len(known) < MOST_FORMS:
            known.append(form)
        return form

    def _add(self, tag: str, step: int, wall_time: float, value: float) -> None:
        columns = self._single.get(tag)
        if columns is None:
            columns = self._single[tag] = Columns.empty(tag)
        columns.append(step, wall_time, value)

    def _close_single(self) -> None:
        self.columns += self._single.values()
        self._single = {}

    def _read_cycle(self, form: Form) -> int:
        """Read in columns, as `form` has repeated; returns how many records to read one by one next."""
        recent = list(self._recent)
        cycle = [*recent[recent.index(form) + 1 :], form]
        self._recent.clear()
        used_before = self.used
        if len({each.tag for each in cycle}) == len(cycle):
            while True:
                columns, used = read_rows(self._chunk, self.used, cycle)
                if not used:
                    break
                self._close_single()
                self.columns += columns
                self.used += used
                self.last_wall_time = columns[-1].wall_times[-1]
        self._wait = 1 if self.used > used_before else min(2 * self._wait, LONGEST_WAIT)
        return self._wait
