"""HTTP/1.1 as far as a proxy on loopback needs it: heads, and bodies however they are framed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final, Self, final

import attrs

__all__ = ["HEAD_LIMIT", "ClosableReader", "MessageHead", "body_of", "framed", "read_head"]

HEAD_LIMIT: Final = 256 * 1024
_PIECE: Final = 65536


@final
class ClosableReader(asyncio.StreamReader):
    """A reader that tells when the other side has gone, also while nobody reads."""

    def __init__(self) -> None:
        """See the class; the loop is the running one."""
        super().__init__(limit=HEAD_LIMIT, loop=asyncio.get_running_loop())
        self.gone = asyncio.Event()

    def feed_eof(self) -> None:
        """The other side has sent its last byte."""
        super().feed_eof()
        self.gone.set()

    def set_exception(self, exc: Exception) -> None:
        """The connection has broken."""
        super().set_exception(exc)
        self.gone.set()


@final
@attrs.frozen
class MessageHead:
    """The head of a request or of an answer."""

    start: tuple[str, str, str]
    """The three parts of the first line."""
    fields: tuple[tuple[str, str], ...]

    @classmethod
    def parsed(cls, raw: bytes) -> Self:
        """The head in these bytes.

        Raises:
            ValueError: it is none.
        """
        first, *lines = raw.decode("latin-1").split("\r\n")
        parts = first.split(" ", 2)
        if len(parts) == 2 and parts[0].startswith("HTTP/"):
            parts.append("")
        if len(parts) != 3:
            raise ValueError(f"no HTTP: {first!r}")
        fields = []
        for line in filter(None, lines):
            name, colon, value = line.partition(":")
            if not colon:
                raise ValueError(f"no header: {line!r}")
            fields.append((name, value.strip()))
        head = cls((parts[0], parts[1], parts[2]), tuple(fields))
        if head.length is not None and head.length < 0:
            raise ValueError(f"no length: {head.length}")
        return head

    def get(self, name: str) -> str:
        """The value of a field, ``""`` when there is none."""
        wanted = name.lower()
        return next((value for key, value in self.fields if key.lower() == wanted), "")

    def changed(self, **fields: str | None) -> MessageHead:
        """The same with other values, by names with ``_`` for ``-``; None leaves a field out."""
        values = {name.replace("_", "-").lower(): value for name, value in fields.items()}
        kept = [pair for pair in self.fields if pair[0].lower() not in values]
        added = [(name, value) for name, value in values.items() if value is not None]
        return MessageHead(self.start, (*kept, *added))

    @property
    def is_chunked(self) -> bool:
        """Whether the body comes in chunks."""
        return "chunked" in self.get("Transfer-Encoding").lower()

    @property
    def length(self) -> int | None:
        """The length of the body, if it is told.

        Raises:
            ValueError: it is no number.
        """
        text = self.get("Content-Length")
        return int(text) if text else None

    @property
    def closes(self) -> bool:
        """Whether the connection ends with this message."""
        return "close" in self.get("Connection").lower()

    def encode(self) -> bytes:
        """The bytes to send."""
        lines = [" ".join(self.start), *(f"{name}: {value}" for name, value in self.fields)]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")


async def read_head(reader: asyncio.StreamReader) -> MessageHead | None:
    """The next head; None where the other side has ended before its first byte.

    Raises:
        ValueError: this is no HTTP.
        ConnectionError: it ended in the middle.
    """
    try:
        return MessageHead.parsed(await reader.readuntil(b"\r\n\r\n"))
    except asyncio.IncompleteReadError as error:
        if not error.partial:
            return None
        raise ConnectionError("ended in the middle of a head") from None
    except asyncio.LimitOverrunError:
        raise ValueError("a head that is too long") from None


async def body_of(
    reader: asyncio.StreamReader, head: MessageHead, *, has_none: bool, until_end: bool
) -> AsyncIterator[bytes]:
    """The pieces of a body, without the frames they came in.

    Args:
        reader: what follows the head.
        head: says how the body is framed.
        has_none: there is no body, whatever the head says.
        until_end: without a frame the body lasts until the end of the connection.

    Raises:
        ConnectionError: it ended in the middle.
        ValueError: a frame that is none.
    """
    if has_none:
        return
    try:
        if head.is_chunked:
            while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
                left = size
                while left:
                    piece = await reader.readexactly(min(left, _PIECE))
                    left -= len(piece)
                    yield piece
                await reader.readexactly(2)
            while await reader.readuntil(b"\r\n") != b"\r\n":
                pass
            return
        left = head.length or 0
        while left:
            piece = await reader.readexactly(min(left, _PIECE))
            left -= len(piece)
            yield piece
    except asyncio.IncompleteReadError:
        raise ConnectionError("ended in the middle of a body") from None
    if head.length is None and until_end:
        while piece := await reader.read(_PIECE):
            yield piece


def framed(piece: bytes) -> bytes:
    """A piece as a chunk."""
    return b"%x\r\n%b\r\n" % (len(piece), piece)
