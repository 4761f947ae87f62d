"""Canvas of dots: eight per cell in braille, or one per cell in ASCII."""

from __future__ import annotations

from itertools import groupby

_BITS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
# By side, first row and last row within a cell: the bits of that part of a dot column.
_MASKS = [
    [[sum(side[row] for row in range(top, bottom + 1)) for bottom in range(4)] for top in range(4)]
    for side in _BITS
]

_BRAILLE = [" ", *map(chr, range(0x2801, 0x2900))]
# Marks of owners 1 to 8; all others get `.`.
ASCII_MARKS = "*+ox#@%&"
# Markers of the same owners in braille: they tell curves apart without colours.
MARKERS = "●■▲◆○□△◇"


class Canvas:
    """Canvas of dots with owners. If two owners share a cell, the later one replaces the earlier."""

    def __init__(self, width: int, height: int, *, ascii_only: bool = False) -> None:
        """Make an empty canvas of `width` by `height` cells."""
        self.width = width
        self.height = height
        self.ascii_only = ascii_only
        """One dot per cell, drawn as an ASCII mark."""
        self.dots_x = width if ascii_only else 2 * width
        self.dots_y = height if ascii_only else 4 * height
        self._bits = bytearray(width * height)
        self._owners = bytearray(width * height)
        self._markers: dict[int, str] = {}

    def column(self, x: int, top: int, bottom: int, owner: int) -> None:
        """Fill the dots from row `top` to row `bottom` of column `x`, which must be on the canvas.

        Args:
            x: Column of dots, from the left.
            top: First row of dots, from the top.
            bottom: Last row of dots; not above `top`.
            owner: Owner of the dots, 1 to 255.
        """
        bits, owners, width = self._bits, self._owners, self.width
        if self.ascii_only:
            for cell in range(top * width + x, bottom * width + x + 1, width):
                bits[cell], owners[cell] = 1, owner
            return
        masks = _MASKS[x & 1]
        first, last = top >> 2, bottom >> 2
        cell = first * width + (x >> 1)
        for row in range(first, last + 1):
            mask = masks[top & 3 if row == first else 0][bottom & 3 if row == last else 3]
            if owners[cell] == owner:
                bits[cell] |= mask
            else:
                bits[cell], owners[cell] = mask, owner
            cell += width

    def line(self, start: tuple[int, int], end: tuple[int, int], owner: int) -> None:
        """Connect two dots (x, y); the first one is left of the second."""
        (x0, y0), (x1, y1) = start, end
        before = y0
        for x in range(x0 + 1, x1 + 1):
            y = round(y0 + (y1 - y0) * (x - x0) / (x1 - x0))
            self.reach(x, before, y, y, owner)
            before = y

    def reach(self, x: int, before: int, top: int, bottom: int, owner: int) -> None:
        """Fill from `top` to `bottom`, and on to touch the dot in row `before` one column to the left."""
        if before < top - 1:
            top = before + 1
        elif before > bottom + 1:
            bottom = before - 1
        self.column(x, top, bottom, owner)

    def marker(self, x: int, y: int, owner: int) -> None:
        """Draw the owner's marker over the cell of a dot; draw it after all dots."""
        cell = y // (self.dots_y // self.height) * self.width + x // (self.dots_x // self.width)
        if cell not in self._markers and 0 < owner <= len(MARKERS):
            self._markers[cell] = MARKERS[owner - 1]
            self._owners[cell] = owner

    def cell(self, x: int, row: int) -> tuple[str, int]:
        """Return the character of one cell, and its owner."""
        at = row * self.width + x
        return self._text(at, at + 1, self._owners[at]), self._owners[at]

    def row(self, row: int) -> list[tuple[str, int]]:
        """Return one row as pieces of text with their owner; empty pieces have owner 0."""
        start, end = row * self.width, (row + 1) * self.width
        owners = self._owners[start:end]
        runs = []
        for owner, group in groupby(owners):
            stop = start + len(list(group))
            runs.append((self._text(start, stop, owner), owner))
            start = stop
        return runs

    def _text(self, start: int, stop: int, owner: int) -> str:
        if self.ascii_only:
            mark = ASCII_MARKS[owner - 1] if 0 < owner <= len(ASCII_MARKS) else "." if owner else " "
            return mark * (stop - start)
        markers = self._markers
        if not markers:
            return "".join([_BRAILLE[bits] for bits in self._bits[start:stop]])
        return "".join([markers.get(at) or _BRAILLE[self._bits[at]] for at in range(start, stop)])
