"""The watcher that manages a finalizer, so that no deletion is missed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, final

from appsdk_operator._generics import OtherSpecT, OtherStatusT, SpecT, StatusT, subscript
from appsdk_operator.cache import ResourceAction
from appsdk_operator.controllers import PatchClient
from appsdk_operator.resource import Kind, Object
from appsdk_operator.runtime import settle
from appsdk_operator.runtime.validation import check_callable
from appsdk_operator.watchers._checks import check_returned, check_watcher
from appsdk_operator.watchers._finalizers.lifecycle import Concerns, FinalizerLifecycle
from appsdk_operator.watchers._finalizers.names import FinalizerSupplier, default_finalizer
from appsdk_operator.watchers._finalizers.opinionated import HasFinalizerLifecycle
from appsdk_operator.watchers._watcher import (
    ObjectCallback,
    ResourceWatcher,
    SelectiveWatcher,
    UpdateCallback,
    refuse_other_names,
)


@final
class OpinionatedWatcher(HasFinalizerLifecycle, Generic[SpecT, StatusT]):
    """A watcher that knows whether an object is new, already handled, or to be cleaned up.

    A handled object has this watcher's finalizer. The server therefore keeps it until the
    ``delete`` callback has succeeded, even if no process watched when it was deleted.

    Guarantees, whatever crashes when:
        * ``add`` is called for each object at least once, and succeeds before ``update``, ``sync``
          or the finalizer.
        * If ``add`` was called for an object, the object is not released before ``delete`` has
          succeeded.
        * Other finalizers are never changed, and keep their order.

    Callbacks (each optional, plain or ``async def``; one that raises is retried):
        * ``add(obj)``: an object that was not handled before.
        * ``sync(obj)``: an object that an earlier process has handled, once at the start.
        * ``update(old, new)``: the spec changed. Changes that keep the generation (status, labels,
          annotations) are not delivered; for kinds without generations all changes are.
        * ``delete(obj)``: the object is being deleted, and still exists.

    While ``add`` runs the object has a second finalizer (``wip.…``), so that a crash in the middle
    cannot lose a deletion. Two watchers of one kind need different finalizers; with a shared one
    the object is removed when the first of them has cleaned up. Thread-safe. The semantics are
    those of grafana-app-sdk's OpinionatedWatcher.
    """

    if not TYPE_CHECKING:
        __class_getitem__ = subscript

        def __new__(cls, *_: Any, **given: Any) -> Any:
            callbacks = ("add", "update", "delete", "sync")
            others = given.keys() - {*callbacks, "kind", "client", "finalizer", "concerns"}
            refuse_other_names("OpinionatedWatcher", others, callbacks)
            return object.__new__(cls)

    def __init__(
        self,
        kind: Kind[SpecT, StatusT],
        client: PatchClient,
        *,
        add: ObjectCallback[SpecT, StatusT] | None = None,
        update: UpdateCallback[SpecT, StatusT] | None = None,
        delete: ObjectCallback[SpecT, StatusT] | None = None,
        sync: ObjectCallback[SpecT, StatusT] | None = None,
        finalizer: FinalizerSupplier = default_finalizer,
        concerns: Concerns | None = None,
    ) -> None:
        """A watcher for objects of ``kind``.

        Args:
            kind: the kind of its objects.
            client: reads objects and writes finalizers.
            add: see above, as the other callbacks.
            update: see above.
            delete: see above.
            sync: see above.
            finalizer: returns the finalizer's name; default: :func:`default_finalizer`.
            concerns: a function of (old, new): whether ``update`` would do anything. Updates for
                which it returns False are not delivered, and do not end pending retries.
                Default: all are delivered.

        Raises:
            ValueError: the finalizer's name is too long, or not a name that servers accept.
            TypeError: a callback does not take its arguments, ``kind`` is not a Kind, or ``client``
                is not a client.
        """
        for name, callback, arguments in (
            ("add", add, ("obj",)),
            ("update", update, ("old", "new")),
            ("delete", delete, ("obj",)),
            ("sync", sync, ("obj",)),
        ):
            check_callable(name, callback, *arguments, is_awaited=True)
        check_callable("concerns", concerns, "old", "new")
        super().__init__(FinalizerLifecycle(kind, client, finalizer, concerns))
        self.kind = kind
        self._add = add
        self._update = update
        self._delete = delete
        self._sync = sync

    @classmethod
    def wrap(
        cls,
        watcher: ResourceWatcher[OtherSpecT, OtherStatusT] | None,
        kind: Kind[OtherSpecT, OtherStatusT],
        client: PatchClient,
        *,
        sync_to_add: bool = False,
        finalizer: FinalizerSupplier = default_finalizer,
    ) -> OpinionatedWatcher[OtherSpecT, OtherStatusT]:
        """An OpinionatedWatcher around the callbacks of another watcher.

        Args:
            watcher: its ``add``, ``update`` and ``delete`` are called, and its ``concerns`` if it
                has one; None: nothing is called.
            kind: as for the constructor.
            client: as for the constructor.
            sync_to_add: whether ``sync`` calls the watcher's ``add`` too.
            finalizer: as for the constructor.

        Raises:
            TypeError: ``watcher`` is not a watcher; and as the constructor.
            ValueError: as the constructor.
        """
        if watcher is None:
            return OpinionatedWatcher(kind, client, finalizer=finalizer)
        check_watcher(watcher)
        return OpinionatedWatcher(
            kind,
            client,
            add=watcher.add,
            update=watcher.update,
            delete=watcher.delete,
            sync=watcher.add if sync_to_add else None,
            finalizer=finalizer,
            concerns=watcher.concerns if isinstance(watcher, SelectiveWatcher) else None,
        )

    def add(self, obj: Object[SpecT, StatusT]) -> None:
        """Handle a new object, or one of the initial list.

        Raises:
            FinalizerError: a finalizer could not be written.
            Exception: what the callback raised.
        """
        self._finalizer_lifecycle.on_add(obj, self._notify)

    def update(self, old: Object[SpecT, StatusT], new: Object[SpecT, StatusT]) -> None:
        """Handle a change.

        Raises:
            FinalizerError: a finalizer could not be written.
            Exception: what a callback raised.
        """
        self._finalizer_lifecycle.on_update(old, new, self._notify)

    def concerns(self, old: Object[SpecT, StatusT], new: Object[SpecT, StatusT]) -> bool:
        """Whether an update needs a callback or a finalizer write.

        A change of only the status, labels, annotations or the watcher's own finalizers needs
        none: otherwise the write of the in-progress finalizer would end the retries of a failing
        ``add``. The given ``concerns`` decides on the other changes. If another client removed the
        finalizer, the watcher always handles the update.
        """
        return self._finalizer_lifecycle.concerns(old, new)

    def delete(self, obj: Object[SpecT, StatusT]) -> None:
        """Handle the removal of an object: usually nothing is left to do.

        Normally the ``delete`` callback ran before the finalizer was removed. This method cleans up
        in two cases: kube-apiserver may remove an object although a finalizer was added during the
        deletion; and another client may have removed the finalizer.

        Raises:
            FinalizerError: the watcher could not find out whether the object is gone.
            Exception: what the callback raised.
        """
        self._finalizer_lifecycle.on_delete(obj, self._notify)

    def callback(self, method: str, obj: Object | None = None) -> Callable[..., Any] | None:
        """The callback that an ``add``, ``update`` or ``delete`` of ``obj`` leads to, for logs.

        It may be another one than the event's: the finalizer shows that an object was handled, and
        for an object that is being deleted it is ``delete``, whatever the event.
        """
        found = {"add": self._add, "update": self._update, "delete": self._delete}
        callback = found[method]
        if obj is not None and obj.is_deleting:
            callback = self._delete
        elif obj is not None and method == "add" and self._finalizer_lifecycle.shows_handled(obj):
            callback = self._sync
        others = (callback, self._add, self._sync, self._update, self._delete)
        return next((each for each in others if each is not None), None)

    def _notify(
        self,
        action: ResourceAction,
        obj: Object[SpecT, StatusT],
        old: Object[SpecT, StatusT] | None,
        /,
    ) -> None:
        if action is ResourceAction.UPDATE:
            _call(self._update, old, obj)
        elif action is ResourceAction.CREATE:
            _call(self._add, obj)
        elif action is ResourceAction.DELETE:
            _call(self._delete, obj)
        else:
            _call(self._sync, obj)

    def __repr__(self) -> str:
        return f"<OpinionatedWatcher of {self.kind}, finalizer {self.finalizer}>"


def _call(callback: Callable[..., Any] | None, *objects: Object | None) -> None:
    if callback is not None:
        outcome = callback(*objects)
        if outcome is not None:
            check_returned(callback, settle(outcome))


if not TYPE_CHECKING:  # its signature is that of the arguments
    OpinionatedWatcher.__new__.__wrapped__ = OpinionatedWatcher.__init__
