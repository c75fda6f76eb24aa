"""The functions of one watcher of an App, and what each was last successful with."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, final

import attrs

from appsdk_operator.app._declarations import Handler
from appsdk_operator.resource import Object
from appsdk_operator.runtime import callback_name, settle


@final
@attrs.define(eq=False)
class _Handled:
    """What the functions for updates have handled of one object."""

    states: list[Object]
    """The state that each function was last successful with."""
    failed: set[int] = attrs.field(factory=set)
    """The functions whose last call failed: it may have left something half done, so they are
    called again even if the object is back in its former state."""


@final
class WatcherFunctions:
    """Calls the functions of one watcher of an App.

    Which functions for updates are due is computed from the state that each was last successful
    with and the present state. An event only says when to look, so none that comes before a retry
    can make a change lost. The state begins with the success of ``on_add`` or ``on_sync``, and is
    in memory only.

    Calls for one object must not overlap; otherwise thread-safe.
    """

    def __init__(self, handlers: Sequence[Handler]) -> None:
        self._updates = [each for each in handlers if each.cause == "update"]
        self._by_cause: dict[str, Callable[..., Any]] = {
            each.cause: each.function for each in handlers
        }
        self.differs: Callable[[Object, Object], bool] = lambda old, new: old is not new
        """Whether two states of an object differ for a function without a field."""
        self._handled: dict[str, _Handled] = {}
        self._lock = threading.Lock()
        first = callback_name(handlers[0].function)
        names = {cause: callback_name(function) for cause, function in self._by_cause.items()}
        names["update"] = ", ".join(callback_name(each.function) for each in self._updates) or first
        self.add = _named(self._add, names.get("add", first))
        self.sync = _named(self._sync, names.get("sync", first))
        self.update = _named(self._update, names["update"])
        self.delete: Callable[..., Any] | None = self._by_cause.get("delete")

    @property
    def concerns(self) -> Callable[[Object, Object], bool] | None:
        """Whether a change calls any function for updates; None: each does."""
        fields = [each.field for each in self._updates if each.field is not None]
        if not self._updates or len(fields) < len(self._updates):
            return None
        return lambda old, new: any(field.has_changed(old, new) for field in fields)

    def forget(self, uid: str) -> None:
        """Forget an object that is gone."""
        with self._lock:
            self._handled.pop(uid, None)

    def _add(self, obj: Object) -> Any:
        return self._begin("add", obj)

    def _sync(self, obj: Object) -> Any:
        return self._begin("sync", obj)

    def _begin(self, cause: str, obj: Object) -> Any:
        """Handle an object as a whole; without a function for that, only what is due."""
        function = self._by_cause.get(cause)
        handled = self._handled.get(obj.uid)
        if function is None and handled is not None:
            self._update_due(handled, obj)
            return None
        outcome = None if function is None else settle(function(obj))
        self._set_handled(obj)
        return outcome

    def _set_handled(self, obj: Object) -> _Handled:
        handled = _Handled([obj] * len(self._updates))
        if self._updates or "sync" in self._by_cause:
            with self._lock:
                self._handled[obj.uid] = handled
        return handled

    def _update(self, old: Object, new: Object) -> None:
        """Call the functions for updates that are due.

        Raises:
            Exception: what the function raised that failed; an ExceptionGroup if several did.
        """
        handled = self._handled.get(new.uid)
        if handled is None:
            if "sync" in self._by_cause:
                # A change came before on_sync has succeeded: it gets the newer state.
                self._sync(new)
                return
            handled = self._set_handled(old)
        self._update_due(handled, new)

    def _update_due(self, handled: _Handled, new: Object) -> None:
        errors = []
        for number, each in enumerate(self._updates):
            old = handled.states[number]
            if number not in handled.failed and not self._is_due(each, old, new):
                if each.field is not None:
                    handled.states[number] = new  # the older state need not stay in memory
                continue
            handled.failed.add(number)
            try:
                settle(each.function(old, new))
            except Exception as error:
                errors.append(error)
            else:
                handled.states[number] = new
                handled.failed.discard(number)
        if len(errors) > 1:
            raise ExceptionGroup(f"{len(errors)} functions failed", errors)
        if errors:
            raise errors[0]

    def _is_due(self, handler: Handler, old: Object, new: Object) -> bool:
        if handler.field is not None:
            return handler.field.has_changed(old, new)
        return self.differs(old, new)


def _named(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """``function`` with the name that logs show."""

    def call(*objects: Object) -> Any:
        return function(*objects)

    call.__qualname__ = name
    return call
