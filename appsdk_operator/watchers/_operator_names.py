"""An operator's name in the finalizers of its watchers, and no two watchers with one finalizer."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Sequence
from typing import Any, Final, final

import attrs

from appsdk_operator.cache import Informer
from appsdk_operator.client import Client
from appsdk_operator.resource import Kind

__all__ = [
    "PREVIOUS_NAMES",
    "UNNAMED",
    "FinalizerUse",
    "OperatorName",
    "RunningUses",
    "check_operator_name",
    "check_previous_names",
    "is_operator_name",
    "running_uses",
]

UNNAMED: Final = "operator"
"""What stands in the finalizers of operators without a name, as in grafana-app-sdk."""
PREVIOUS_NAMES: Final = (UNNAMED,)
_RESERVED: Final = (UNNAMED, "wip")
_LONGEST: Final = 40  # so that something of the kind's name is left in a finalizer's 63 characters
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


def is_operator_name(name: str) -> bool:
    """Whether finalizers can have it in front."""
    return bool(_NAME.fullmatch(name)) and len(name) <= _LONGEST and name not in _RESERVED


def check_operator_name(name: object, option: str = "name") -> str:
    """``name`` itself, ``""`` included.

    Raises:
        TypeError: it is no string.
        ValueError: no finalizer can have it in front.
    """
    if not isinstance(name, str):
        raise TypeError(f"{option}={name!r}: give the operator's name as a string")
    if name in _RESERVED:
        raise ValueError(
            f"{option}={name!r} is what operators without a name have in their finalizers: give "
            "this one a name of its own, such as 'bucket-operator'"
        )
    if name and not is_operator_name(name):
        raise ValueError(
            f"{option}={name!r} cannot stand in a finalizer: use at most {_LONGEST} lower-case "
            "letters, digits and '-', such as 'bucket-operator'"
        )
    return name


def check_previous_names(names: object) -> tuple[str, ...]:
    """``names`` as a tuple.

    Raises:
        TypeError: it is no series of strings.
        ValueError: one of them was never in a finalizer.
    """
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise TypeError(f"previous_names={names!r}: give a series of names, such as ('old-name',)")
    given = tuple(names)
    for name in given:
        if name != UNNAMED:
            check_operator_name(name, "previous_names: name")
        if not name:
            raise ValueError(
                f"previous_names={given!r}: for what was written without a name give {UNNAMED!r}"
            )
    return given


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

    def is_twin_of(self, other: FinalizerUse) -> bool:
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
class RunningUses:
    """The finalizers that the controllers of this process put on objects. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._uses: dict[int, tuple[FinalizerUse, ...]] = {}

    def begin(self, owner: object, uses: Sequence[FinalizerUse]) -> None:
        """Note what the controller ``owner`` uses from now on.

        Raises:
            ValueError: another controller has the same finalizer for the same objects.
        """
        with self._lock:
            others = [use for key, uses in self._uses.items() if key != id(owner) for use in uses]
            for use in uses:
                twin = next((other for other in others if use.is_twin_of(other)), None)
                if twin is not None:
                    raise ValueError(
                        f"{use.user} would share its finalizer with {twin.user}, and objects would "
                        "go when one of them has cleaned up: give the controllers names of their "
                        "own with name=, or one of the watchers another finalizer with finalizer="
                    )
            self._uses[id(owner)] = tuple(uses)

    def end(self, owner: object) -> None:
        """Forget what ``owner`` used."""
        with self._lock:
            self._uses.pop(id(owner), None)


running_uses: Final = RunningUses()
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
