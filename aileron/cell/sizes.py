"""The two sizes of changes that an overlay stored: the bytes that programs read, and the bytes on the disk.

A file can have a size of terabytes and take no block (a sparse file), and each hard link to it is applied as a separate
file. So an agent can make either number misleading, and a person sees both.

>>> Size(3 << 30, 16384).words()
'3.0 GiB, 16 KiB on disk'
>>> Size(5, 4096).words()
'5 B'

Not here: keeping holes (apply.py), asking the person (the command).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from aileron.cell.overlay import Difference

__all__ = ["Size", "size_of", "spoken"]

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


class Size(NamedTuple):
    """The size of one file, or the total size of several."""

    read_bytes: int
    """Bytes that a program gets when it reads the complete file: `st_size`."""
    disk_bytes: int
    """Bytes of the disk blocks in use."""

    @property
    def larger_bytes(self) -> int:
        """The larger of the two sizes, which is used for limits and sorting."""
        return max(self)

    @property
    def is_sparse(self) -> bool:
        """True if more than half of the bytes are holes."""
        return 2 * self.disk_bytes < self.read_bytes

    def words(self) -> str:
        """Return the read size as text, followed by the size on disk if the file is sparse."""
        shown = spoken(self.read_bytes)
        return f"{shown}, {spoken(self.disk_bytes)} on disk" if self.is_sparse else shown


def size_of(differences: Iterable[Difference]) -> Size:
    """Return the total size of the files that applying these differences to the project would write. Folders, links and
    removals count as 0.
    """
    read_bytes = disk_bytes = 0
    for difference in differences:
        if difference.kind == "file" and difference.status is not None:
            read_bytes += difference.status.st_size
            disk_bytes += difference.status.st_blocks * 512
    return Size(read_bytes, disk_bytes)


def spoken(count: int) -> str:
    """Return a number of bytes as text with a unit, such as `3.0 GiB`."""
    number, unit = float(count), 0
    while number >= 1024 and unit < len(_UNITS) - 1:
        number, unit = number / 1024, unit + 1
    return f"{number:.1f} {_UNITS[unit]}" if unit > 1 else f"{number:.0f} {_UNITS[unit]}"
