"""HTTP/1.1 messages on asyncio streams, parsed and framed by h11.

The proxy passes heads on as they came, so it writes them itself; h11 would normalize them.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Final, final

import attrs
import h11

_HEAD_LIMIT: Final = 256 * 1024
_PIECE: Final = 65536
_HEAD_END: Final = b"\r\n\r\n"
# h11 tolerates both.
_BARE_LINE_END: Final = re.compile(rb"(?<!\r)\n|\r(?!\n)")


@final
class ClosableReader(asyncio.StreamReader):
    """A reader that sets :attr:`closed` when the peer closes, also while nobody reads."""

    def __init__(self) -> None:
        """A reader of the running loop."""
        super().__init__(limit=_HEAD_LIMIT, loop=asyncio.get_running_loop())
        self.closed: asyncio.Event = asyncio.Event()

    def feed_eof(self) -> None:
        """The peer has sent its last byte."""
        super().feed_eof()
        self.closed.set()

    def set_exception(self, exc: Exception) -> None:
        """The connection has broken."""
        super().set_exception(exc)
        self.closed.set()


@final
@attrs.frozen
class MessageHead:
    """The head of a request or of an answer."""

    start: tuple[str, str, str]
    """The three parts of the first line."""
    fields: tuple[tuple[str, str], ...]
    """Names, in the case in which they came, and values."""

    def get(self, name: str) -> str:
        """The value of a field; ``""`` when the field is missing."""
        wanted = name.lower()
        return next((value for key, value in self.fields if key.lower() == wanted), "")

    def replace(self, **fields: str | None) -> MessageHead:
        """A copy with other values, by names with ``_`` for ``-``; None removes a field."""
        values = {name.replace("_", "-").lower(): value for name, value in fields.items()}
        others = [pair for pair in self.fields if pair[0].lower() not in values]
        added = [(name, value) for name, value in values.items() if value is not None]
        return MessageHead(self.start, (*others, *added))

    @property
    def is_chunked(self) -> bool:
        """Whether the body comes in chunks."""
        return "chunked" in self.get("Transfer-Encoding").lower()

    @property
    def has_length(self) -> bool:
        """Whether there is a ``Content-Length``."""
        return bool(self.get("Content-Length"))

    @property
    def closes(self) -> bool:
        """Whether the connection ends with this message."""
        return "close" in self.get("Connection").lower()

    def encode(self) -> bytes:
        """The bytes to send."""
        lines = [" ".join(self.start), *(f"{name}: {value}" for name, value in self.fields)]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")


@final
class MessageStream:
    """Reads the messages of one connection, and has the writer for the other direction."""

    def __init__(self, reader: ClosableReader, writer: asyncio.StreamWriter) -> None:
        """A stream on both halves of a connection."""
        self.writer = writer
        self._reader = reader
        # Received, and not yet passed to h11.
        self._buffer = b""
        # One for each message.
        self._h11 = h11.Connection(h11.SERVER)

    @property
    def closed(self) -> asyncio.Event:
        """Set when the peer has closed."""
        return self._reader.closed

    async def read_request(self) -> MessageHead | None:
        """The head of the next request; None when the client closes before its first byte.

        Raises:
            ValueError: it is not HTTP.
            ConnectionError: the client closes in the middle.
        """
        data = await self._read_head()
        if data is None:
            return None
        self._h11 = h11.Connection(h11.SERVER, _HEAD_LIMIT)
        self._h11.receive_data(data)
        event = await self._next_event()
        assert isinstance(event, h11.Request)
        start = (event.method.decode(), event.target.decode(), _version(event))
        return MessageHead(start, _fields(event))

    async def read_answer(self, request: MessageHead) -> MessageHead:
        """The head of the answer to ``request``, without interim answers but 101.

        Raises:
            ValueError: it is not HTTP.
            ConnectionError: the server closes.
        """
        self._h11 = h11.Connection(h11.CLIENT, _HEAD_LIMIT)
        # How an answer is framed depends on its request.
        fields = [("Host", "any")]
        if upgrade := request.get("Upgrade"):
            fields += [("Connection", "Upgrade"), ("Upgrade", upgrade)]
        self._h11.send(h11.Request(method=request.start[0], target="/", headers=fields))
        self._h11.send(h11.EndOfMessage())
        while True:
            data = await self._read_head()
            if data is None:
                raise ConnectionError("the server has closed the connection")
            self._h11.receive_data(data)
            event = await self._next_event()
            assert isinstance(event, (h11.InformationalResponse, h11.Response))
            if event.status_code == 101 or isinstance(event, h11.Response):
                start = (_version(event), str(event.status_code), event.reason.decode("latin-1"))
                return MessageHead(start, _fields(event))

    async def body(self) -> AsyncIterator[bytes]:
        """The parts of the body that follows the head read last, without their framing.

        Raises:
            ValueError: the framing is not HTTP, or the peer closes in the middle.
        """
        while not isinstance(event := await self._next_event(), h11.EndOfMessage):
            assert isinstance(event, h11.Data)
            yield bytes(event.data)
        self._buffer = self._h11.trailing_data[0] + self._buffer

    async def read_raw(self) -> bytes:
        """The next bytes whatever they mean, for a connection that has changed its protocol."""
        data, self._buffer = self._buffer, b""
        return data or await self._reader.read(_PIECE)

    async def _read_head(self) -> bytes | None:
        while (end := self._buffer.find(_HEAD_END)) < 0:
            if len(self._buffer) > _HEAD_LIMIT:
                raise ValueError("a head that is too long")
            data = await self._reader.read(_PIECE)
            if not data:
                if not self._buffer:
                    return None
                raise ConnectionError("closed in the middle of a head")
            self._buffer += data
        end += len(_HEAD_END)
        head, self._buffer = self._buffer[:end], self._buffer[end:]
        if _BARE_LINE_END.search(head):
            raise ValueError("lines end with CR LF")
        return head

    async def _next_event(self) -> h11.Event:
        try:
            while (event := self._h11.next_event()) is h11.NEED_DATA:
                self._h11.receive_data(await self.read_raw())
        except h11.RemoteProtocolError as error:
            raise ValueError(f"not HTTP: {error}") from None
        assert isinstance(event, h11.Event)
        return event


def _version(event: h11.Request | h11.Response | h11.InformationalResponse) -> str:
    return f"HTTP/{event.http_version.decode()}"


def _fields(
    event: h11.Request | h11.Response | h11.InformationalResponse,
) -> tuple[tuple[str, str], ...]:
    pairs = event.headers.raw_items()
    return tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in pairs)


def as_chunk(data: bytes) -> bytes:
    """The data as one chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)
