"""Lines of a watch stream, as slices of the buffers that were read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, final, overload


@final
class Lines(Sequence[bytes]):
    """Lines as offsets into buffers, so that their bytes are not copied twice.

    It keeps the buffers alive.

    >>> lines = Lines([(b"one two", 0, 3), (b"one two", 4, 7)])
    >>> list(lines), lines[-1], len(lines), lines == [b"one", b"two"]
    ([b'one', b'two'], b'two', 2, True)
    """

    __slots__ = ("places",)

    def __init__(self, places: list[tuple[bytes, int, int]]) -> None:
        self.places: list[tuple[bytes, int, int]] = places
        """For each line its buffer, and its begin and end there."""

    def __len__(self) -> int:
        return len(self.places)

    def __iter__(self) -> Iterator[bytes]:
        return (data[start:end] for data, start, end in self.places)

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> Lines: ...
    def __getitem__(self, index: int | slice) -> bytes | Lines:
        if isinstance(index, slice):
            return Lines(self.places[index])
        data, start, end = self.places[index]
        return data[start:end]

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, Sequence) else NotImplemented

    __hash__: Any = None

    def __repr__(self) -> str:
        return f"<{len(self)} lines>"
