"""What a client needs of a patch, whatever its type."""

from __future__ import annotations

from typing import Protocol


class Patch(Protocol):
    """A patch, as :meth:`Client.patch` takes it."""

    @property
    def content_type(self) -> str:
        """The media type, which tells the server the kind of patch."""
        ...

    def body(self) -> bytes:
        """The body of the request."""
        ...

    @property
    def is_guarded(self) -> bool:
        """Whether the server refuses the patch once the object has changed, so that a retry does no
        harm."""
        ...
