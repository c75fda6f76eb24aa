"""The error of a finalizer that could not be written."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from appsdk_operator.client import JsonPatch


class FinalizerError(Exception):
    """A finalizer could not be added or removed; ``__cause__`` has the reason.

    In grafana-app-sdk's error of this name the properties are ``PatchRequest()`` and ``Status()``.
    """

    def __init__(
        self, message: str = "", *, patch: JsonPatch | None = None, status: int | None = None
    ) -> None:
        """An error with the last patch and the server's HTTP status, if there are any."""
        super().__init__(message)
        self._patch = patch
        self._status = status

    @property
    def patch(self) -> JsonPatch | None:
        """The last patch that was sent; None if no patch was sent."""
        return self._patch

    @property
    def status(self) -> int | None:
        """The server's HTTP status, such as 403; None without an answer."""
        return self._status

    def after(self, what: str) -> FinalizerError:
        """A copy of this error with ``what`` in front of its text."""
        return FinalizerError(f"{what}: {self}", patch=self.patch, status=self.status)
