"""The claim of a controller on a source, which belongs to it alone."""

from __future__ import annotations

import threading
from typing import final


@final
class Claim:
    """Whether a source was started, which happens once. Thread-safe."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self.is_taken: bool = False

    def take(self) -> None:
        """Mark the source as started.

        Raises:
            RuntimeError: it was started before.
        """
        with self._lock:
            if self.is_taken:
                raise RuntimeError(
                    f"source {self._name} was started before: a source belongs to one controller, "
                    "make one for each"
                )
            self.is_taken = True
