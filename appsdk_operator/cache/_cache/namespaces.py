"""Which namespaces are watched, where a selector chooses them: a state machine without I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, final

import msgspec

from appsdk_operator.resource import NamespaceSelector, is_older_version

_MOST_ENDED: Final = 1000


class NamespaceChange(msgspec.Struct, frozen=True):
    """How the watched namespaces changed; each name is in one field at most."""

    begun: tuple[str, ...] = ()
    """They match, and were not watched before."""
    left: tuple[str, ...] = ()
    """They exist and no longer match."""
    ended: tuple[str, ...] = ()
    """They were deleted, and their last object is gone, or cannot be seen to go."""

    def __bool__(self) -> bool:
        return bool(self.begun or self.left or self.ended)


@final
class SelectedNamespaces:
    """The namespaces that a selector chooses, as they come and go.

    A namespace is watched while it exists and matches. While it is being deleted it exists. After
    that it is watched until its objects have gone from the local copies, too: the end of a
    namespace and the ends of its last objects arrive on different watches, in any order.
    """

    def __init__(self, selector: NamespaceSelector) -> None:
        self.selector = selector
        self.watched: frozenset[str] = frozenset()
        # The names of deleted namespaces, the oldest first.
        self._ended: dict[str, None] = {}
        # The latest resource versions of what this process wrote, by namespace, the oldest first.
        self._written: dict[str, str] = {}

    def update(
        self, present: Mapping[str, Mapping[str, str]], is_empty: Callable[[str], bool]
    ) -> NamespaceChange:
        """Note which namespaces exist; returns what changed.

        Args:
            present: the labels of all namespaces by name.
            is_empty: whether the local copies have no object of a watched namespace, or will not
                see its end.
        """
        selected = {name for name, labels in present.items() if self.selector.matches(name, labels)}
        deleted = {name for name in self.watched if name not in present}
        ended = {name for name in deleted if is_empty(name)}
        change = NamespaceChange(
            begun=tuple(sorted(selected - self.watched)),
            left=tuple(sorted(self.watched - selected - deleted)),
            ended=tuple(sorted(ended)),
        )
        self.watched = frozenset(selected | (deleted - ended))
        for name in change.ended:
            self._ended[name] = None
        for name in [name for name in self._ended if name in present]:
            del self._ended[name]
        _drop_oldest(self._ended)
        return change

    def note_written(self, name: str, version: str) -> None:
        """Note that there was a namespace of this name at a resource version: a write succeeded."""
        before = self._written.pop(name, "")
        self._written[name] = before if is_older_version(version, before) else version
        _drop_oldest(self._written)

    def has_ended(self, name: str, version: str) -> bool:
        """Whether the namespace was watched until it ended, and there is none of its name since.

        Only the last 1,000 are known.

        Args:
            name: its name.
            version: the resource version up to which namespaces are known: what was written later
                was written to a new one.
        """
        return name in self._ended and not is_older_version(version, self._written.get(name, ""))


def _drop_oldest(names: dict[str, Any]) -> None:
    while len(names) > _MOST_ENDED:
        del names[next(iter(names))]
