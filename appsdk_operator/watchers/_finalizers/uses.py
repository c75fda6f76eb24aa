"""The finalizers in use in this process, and the check that no two controllers share one."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Final, final

import msgspec

from appsdk_operator.cache import Informer
from appsdk_operator.client import Client
from appsdk_operator.resource import Kind
from appsdk_operator.runtime import PREVIOUS_NAMES


@final
class OperatorName(msgspec.Struct, frozen=True):
    """An operator's name, and its earlier names."""

    name: str = ""
    """Empty if it has no name."""
    previous: tuple[str, ...] = PREVIOUS_NAMES


@final
class FinalizerUse(msgspec.Struct, frozen=True, eq=False):
    """The use of a finalizer by one watcher or reconciler."""

    user: str
    """The watcher or reconciler, for errors."""
    kind: Kind
    names: frozenset[str]
    """Its finalizer and its in-progress finalizer."""
    client: Any
    operator: object
    """The Operator or Manager that it belongs to; None for none."""
    informers: Sequence[object]
    """The informers that feed it. It handles no other objects than theirs."""

    def conflicts_with(self, other: FinalizerUse) -> bool:
        """Whether both put the same finalizer on the same objects.

        Uses with different clients and different operators do not conflict: a test may run several
        operators in one process, and several managers of one App are its replicas. Those of
        different Apps of one name do.
        """
        if self.kind != other.kind or not self.names & other.names:
            return False
        is_one = self.operator is not None and self.operator is other.operator
        if self.client is not other.client:
            if not (is_one or _are_different_apps(self, other)):
                return False
            if not _is_one_server(self, other):
                return False
        return _share_objects(self.informers, other.informers)


@final
class FinalizerUses:
    """The finalizers that controllers of this process use. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._uses: dict[int, tuple[FinalizerUse, ...]] = {}

    def register(self, owner: object, uses: Sequence[FinalizerUse]) -> None:
        """Register the finalizers of the controller ``owner``, instead of those so far.

        Raises:
            ValueError: two users of one of them would have the same objects; nothing is changed.
        """
        with self._lock:
            others = [use for key, uses in self._uses.items() if key != id(owner) for use in uses]
            for number, use in enumerate(uses):
                others += uses[number - 1 : number]
                clash = next((other for other in others if use.conflicts_with(other)), None)
                if clash is not None:
                    raise ValueError(
                        f"{use.user} would share its finalizer with {clash.user}, and objects "
                        "would be removed when only one of them has cleaned up: give each "
                        "controller its own name with name=, or one of the watchers another "
                        "finalizer with finalizer="
                    )
            self._uses[id(owner)] = tuple(uses)

    def reduce(self, owner: object, uses: Sequence[FinalizerUse]) -> None:
        """Register the finalizers that ``owner`` still uses of those that it did."""
        with self._lock:
            if id(owner) in self._uses:
                self._uses[id(owner)] = tuple(uses)

    def unregister(self, owner: object) -> None:
        """Remove the finalizers of ``owner``."""
        with self._lock:
            self._uses.pop(id(owner), None)


finalizer_uses: Final = FinalizerUses()
"""The finalizers in use in this process."""


def _are_different_apps(one: FinalizerUse, other: FinalizerUse) -> bool:
    apps = [getattr(use.operator, "declared_by", None) for use in (one, other)]
    return apps[0] is not apps[1]


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
        return True  # informers may still be added
    return any(_overlap(one, other) for one in ours for other in theirs)


def _overlap(one: object, other: object) -> bool:
    if not isinstance(one, Informer) or not isinstance(other, Informer):
        return True  # a cache, whose namespaces may change, or another package's informer
    if one.namespace and other.namespace and one.namespace != other.namespace:
        return False
    # Two different selectors are taken to select different objects.
    selections = [(str(i.label_selector), str(i.field_selector)) for i in (one, other)]
    return selections[0] == selections[1] or not all(map(_selects, (one, other)))


def _selects(informer: Informer) -> bool:
    return bool(informer.label_selector or informer.field_selector)
