"""A place of a program's own for the states that an App has handled."""

from __future__ import annotations

from appsdk_operator.resource import Object


class Table:
    """Texts by uid; its calls fail on demand."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.failures = 0
        """How many of the next calls fail."""

    def load(self, obj: Object, /) -> str | None:
        self._maybe_fail()
        return self.texts.get(obj.uid)

    def store(self, obj: Object, state: str | None, /) -> None:
        self._maybe_fail()
        if state is None:
            self.texts.pop(obj.uid, None)
        else:
            self.texts[obj.uid] = state

    def _maybe_fail(self) -> None:
        if self.failures:
            self.failures -= 1
            raise ConnectionError("the table is away")
