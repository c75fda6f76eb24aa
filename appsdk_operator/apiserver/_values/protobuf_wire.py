"""The wire format of protobuf: tags, numbers and fields."""

from __future__ import annotations

from typing import Final

VARINT: Final = 0
FIXED64: Final = 1
BYTES: Final = 2
FIXED32: Final = 5


def wire_field(place: int, data: bytes) -> bytes:
    """A field of bytes, a text or a message."""
    return wire_tag(place, BYTES) + wire_number(len(data)) + data


def wire_tag(place: int, wire: int) -> bytes:
    """The tag before a value: the number of its field, and the form of the value."""
    return wire_number(place << 3 | wire)


def wire_number(value: int) -> bytes:
    """A number of 64 bits."""
    value &= 0xFFFFFFFFFFFFFFFF
    if value < 0x80:
        return bytes((value,))
    written = bytearray()
    while value >= 0x80:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)
