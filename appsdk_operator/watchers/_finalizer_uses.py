"""An operator's name in the finalizers of its watchers, and no two watchers with one finalizer."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Final, final

import attrs

from appsdk_operator.cache import Informer
from appsdk_operator.client import Client
from appsdk_operator.resource import Kind
from appsdk_operator.runtime import PREVIOUS_NAMES

__all__ = [
    "FinalizerUse",
    "FinalizerUses",
    "OperatorName",
    "finalizer_uses",
]


@final
@attrs.frozen
class OperatorName:
    """What an operator is called, and was called before."""

    name: str = ""
    """``""``: it has no name."""
    previous: tuple[str, ...] = PREVIOUS_NAMES


@final
@attrs.frozen(eq=False)
class FinalizerUse:
    """One watcher or reconciler that puts a finalizer on objects."""

    user: str
    """Who, for errors."""
    kind: Kind
    names: frozenset[str]
    """Its finalizer, and the one for objects in progress."""
    client: Any
    operator: object
    """The Operator or Manager that it belongs to; None: none."""
    informers: Sequence[object]
    """Those that show it objects; other objects than these show are none of its business."""

    def conflicts_with(self, other: FinalizerUse) -> bool:
        """Whether both handle the same objects with the same finalizer, in one process.

        A test may run several processes in one: they have their own clients and managers.
        """
        if self.kind != other.kind or not self.names & other.names:
            return False
        is_one = self.operator is not None and self.operator is other.operator
        if self.client is not other.client and not (is_one and _is_one_server(self, other)):
            return False
        return _share_objects(self.informers, other.informers)


@final
class FinalizerUses:
    """The finalizers that the controllers of this process put on objects. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._uses: dict[int, tuple[FinalizerUse, ...]] = {}

    def register(self, owner: object, uses: Sequence[FinalizerUse]) -> None:
        """Note what the controller ``owner`` uses from now on.

        Raises:
            ValueError: another controller has the same finalizer for the same objects.
        """
        with self._lock:
            others = [use for key, uses in self._uses.items() if key != id(owner) for use in uses]
            for use in uses:
                twin = next((other for other in others if use.conflicts_with(other)), None)
                if twin is not None:
                    raise ValueError(
                        f"{use.user} would share its finalizer with {twin.user}, and objects would "
                        "go when one of them has cleaned up: give the controllers names of their "
                        "own with name=, or one of the watchers another finalizer with finalizer="
                    )
            self._uses[id(owner)] = tuple(uses)

    def unregister(self, owner: object) -> None:
        """Forget what ``owner`` used."""
        with self._lock:
            self._uses.pop(id(owner), None)


finalizer_uses: Final = FinalizerUses()
"""Those of this process."""


def _is_one_server(one: FinalizerUse, other: FinalizerUse) -> bool:
    servers = {_server_of(one.client), _server_of(other.client)}
    return len(servers) == 1 or None in servers


def _server_of(client: Any) -> str | None:
    layer = client
    while layer is not None and not isinstance(layer, Client):
        layer = getattr(layer, "inner", None)
    return None if layer is None else layer.config.server


def _share_objects(ours: Sequence[object], theirs: Sequence[object]) -> bool:
    if not ours or not theirs:
        return True  # informers may still come
    return any(_overlap(one, other) for one in ours for other in theirs)


def _overlap(one: object, other: object) -> bool:
    if not isinstance(one, Informer) or not isinstance(other, Informer):
        return True  # a cache, whose namespaces change, or somebody else's
    if one.namespace and other.namespace and one.namespace != other.namespace:
        return False
    # Who gives two selections means two sets of objects.
    selections = [(str(i.label_selector), str(i.field_selector)) for i in (one, other)]
    return selections[0] == selections[1] or not all(map(_selects, (one, other)))


def _selects(informer: Informer) -> bool:
    return bool(informer.label_selector or informer.field_selector)
