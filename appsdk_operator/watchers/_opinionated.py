"""A watcher that manages a finalizer, so that no deletion is missed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, final

from appsdk_operator.controllers._finalizers import FinalizerError, Finalizers, check_finalizer
from appsdk_operator.controllers._guarded import PatchClient
from appsdk_operator.resource import Kind, Object
from appsdk_operator.runtime import settle
from appsdk_operator.watchers._finalizers import (
    FinalizerSupplier,
    default_finalizer,
    in_progress_finalizer,
    in_progress_name,
)
from appsdk_operator.watchers._watcher import (
    ObjectCallback,
    ResourceWatcher,
    SelectiveWatcher,
    UpdateCallback,
)

__all__ = ["OpinionatedWatcher"]


@final
class OpinionatedWatcher:
    """Tells apart what is new, what was handled by an earlier process, and what must be cleaned up.

    An object that was handled carries this watcher's finalizer, so the server keeps it until the
    ``delete`` callback has succeeded, also when nobody watched at the moment of the deletion.

    Guarantees, whatever crashes when:
        * ``add`` is called for each object at least once, and succeeds before ``update``, ``sync``
          or the finalizer.
        * An object that ``add`` began with is not let go before ``delete`` has succeeded.
        * Foreign finalizers are never touched, and keep their order.

    Callbacks (each optional, plain or ``async def``; to raise is to fail and be retried):
        * ``add(obj)``: an object that was not handled before.
        * ``sync(obj)``: an object that an earlier process has handled already, once at the start.
        * ``update(old, new)``: the spec changed. Changes that leave the generation as it is
          (status, labels, annotations) are not shown; kinds without generations show all.
        * ``delete(obj)``: the object is being deleted, and still there.

    While ``add`` is under way the object carries a second finalizer (``wip.…``), so that a crash in
    the middle cannot lose a deletion. Two watchers of one kind need different finalizers, or the
    object goes when one of them has cleaned up. Thread-safe. The semantics are those of
    grafana-app-sdk's OpinionatedWatcher.
    """

    def __init__(
        self,
        kind: Kind,
        client: PatchClient,
        *,
        add: ObjectCallback | None = None,
        update: UpdateCallback | None = None,
        delete: ObjectCallback | None = None,
        sync: ObjectCallback | None = None,
        finalizer: FinalizerSupplier = default_finalizer,
    ) -> None:
        """A watcher for objects of ``kind``.

        Args:
            kind: the kind of the objects it will be given.
            client: reads objects and writes finalizers.
            add: see above, as the other callbacks.
            update: see above.
            delete: see above.
            sync: see above.
            finalizer: gives the finalizer's name; default: :func:`default_finalizer`.

        Raises:
            ValueError: the finalizer's name is too long, or not a name.
            TypeError: a callback cannot be called.
        """
        for name, callback in (
            ("add", add),
            ("update", update),
            ("delete", delete),
            ("sync", sync),
        ):
            if callback is not None and not callable(callback):
                raise TypeError(f"{name}={callback!r} cannot be called: give a function, or None")
        if not isinstance(kind, Kind):
            raise TypeError(f"kind={kind!r} is no Kind: give first the kind, then the client")
        if not callable(finalizer):
            raise TypeError(
                f"finalizer={finalizer!r} is no function: give one of the kind, such as "
                "lambda kind: 'example.com/cleanup'"
            )
        self.kind = kind
        self.finalizer = check_finalizer(finalizer(kind))
        self.in_progress_finalizer = check_finalizer(in_progress_name(kind, self.finalizer))
        if self.finalizer == in_progress_finalizer(kind):
            raise ValueError(
                f"finalizer {self.finalizer!r} is the one for objects in progress: choose another"
            )
        self._names = (self.finalizer, self.in_progress_finalizer)
        self._add = add
        self._update = update
        self._delete = delete
        self._sync = sync
        self._finalizers = Finalizers(kind, client)
        self._lock = threading.Lock()
        # The version at which this process put the finalizer on, until events have caught up:
        # those before it still show the object without.
        self._added_at: dict[str, int] = {}

    @classmethod
    def wrap(
        cls,
        watcher: ResourceWatcher | None,
        kind: Kind,
        client: PatchClient,
        *,
        sync_to_add: bool = False,
        finalizer: FinalizerSupplier = default_finalizer,
    ) -> OpinionatedWatcher:
        """Give another watcher's callbacks the guarantees of this one.

        Args:
            watcher: whose ``add``, ``update`` and ``delete`` to call; None: nothing is called.
            kind: as for the constructor.
            client: as for the constructor.
            sync_to_add: whether ``sync`` calls the watcher's ``add`` too.
            finalizer: as for the constructor.
        """
        if watcher is None:
            return cls(kind, client, finalizer=finalizer)
        return cls(
            kind,
            client,
            add=watcher.add,
            update=watcher.update,
            delete=watcher.delete,
            sync=watcher.add if sync_to_add else None,
            finalizer=finalizer,
        )

    def add(self, obj: Object) -> None:
        """Handle an object that appeared, or was there at the start.

        Raises:
            FinalizerError: a finalizer could not be written.
            Exception: what the callback raised.
        """
        self._check_object(obj, "add")
        if obj.is_deleting:
            self._clean_up(obj)
        elif self.finalizer in obj.finalizers:
            _call(self._sync, obj)
            if self.in_progress_finalizer in obj.finalizers:
                self._finalizers.remove(obj, self.in_progress_finalizer)
        else:
            self._begin(obj)

    def update(self, old: Object, new: Object) -> None:
        """Handle a change.

        Raises:
            FinalizerError: a finalizer could not be written.
            Exception: what a callback raised.
        """
        self._check_object(old, "update")
        self._check_object(new, "update")
        if not self.concerns(old, new):
            return
        if new.is_deleting:
            self._clean_up(new)
            return
        # An event older than our finalizer shows the object without it.
        is_added = self.finalizer in new.finalizers or self._is_added(new)
        if is_added or self._begin(new):
            _call(self._update, old, new)

    def concerns(self, old: Object, new: Object) -> bool:
        """Whether more than status, labels, annotations or our own finalizers changed.

        While ``add`` fails, our own write of the finalizer in progress must not pass for news that
        ends its retries.
        """
        if new.is_deleting != old.is_deleting:
            return True
        if new.generation > 0:
            return new.generation != old.generation
        return not self._is_own_write(old, new)

    def delete(self, obj: Object) -> None:
        """Usually nothing: the ``delete`` callback ran before the finalizer was taken off.

        But a server that is carrying out a deletion when a finalizer is put on may drop the object
        all the same, as kube-apiserver does. An object that carried our finalizer, was never
        marked for deletion and is gone from the server went so, and is cleaned up now.

        Raises:
            FinalizerError: the server does not say whether the object is gone.
            Exception: what the callback raised.
        """
        self._check_object(obj, "delete")
        self._forget(obj.uid)
        is_ours = any(name in obj.finalizers for name in self._names)
        # An object that only left the informer's selector looks the same, and lives on.
        if is_ours and not obj.is_deleting and self._finalizers.is_gone(obj):
            _call(self._delete, obj)

    def _begin(self, obj: Object) -> bool:
        """Have the object added; False when it is gone, or on its way out, before that."""
        present = obj
        if self.in_progress_finalizer not in obj.finalizers:
            marked = self._finalizers.put(obj, self.in_progress_finalizer)
            if marked is None or self.in_progress_finalizer not in marked.finalizers:
                return False
            present = marked
        _call(self._add, obj)
        try:
            done = self._finalizers.put(
                present, self.finalizer, instead_of=self.in_progress_finalizer
            )
        except FinalizerError as error:
            raise FinalizerError(f"the add callback succeeded, but then: {error}") from error
        # An object that is being deleted by now keeps the finalizer in progress, which holds it
        # as well until the delete callback has succeeded.
        if done is not None and done.uid and done.resource_version.isdigit():
            with self._lock:
                self._added_at[done.uid] = int(done.resource_version)
        return done is not None

    def _clean_up(self, obj: Object) -> None:
        ours = [name for name in self._names if name in obj.finalizers]
        if ours:
            _call(self._delete, obj)
            self._finalizers.remove(obj, *self._names)
            self._forget(obj.uid)

    def _is_added(self, obj: Object) -> bool:
        """Whether this process put the finalizer on at a version that ``obj`` has not reached."""
        with self._lock:
            added_at = self._added_at.get(obj.uid)
            if added_at is None:
                return False
            version = obj.resource_version
            if version.isdigit() and int(version) < added_at:
                return True
            del self._added_at[obj.uid]
            return False

    def _is_own_write(self, old: Object, new: Object) -> bool:
        """Whether our own finalizers are all that changed."""
        before, after = set(old.finalizers), set(new.finalizers)
        if not (before ^ after) & set(self._names):
            return False
        return self._without_bookkeeping(old) == self._without_bookkeeping(new)

    def _without_bookkeeping(self, obj: Object) -> dict[str, Any]:
        data = obj.to_dict()
        metadata = data.get("metadata", {})
        for field in ("managedFields", "resourceVersion"):
            metadata.pop(field, None)
        metadata["finalizers"] = [name for name in obj.finalizers if name not in self._names]
        return data

    def _check_object(self, obj: object, action: str) -> None:
        if not isinstance(obj, Object):
            raise TypeError(f"{action} needs an object, and got {obj!r}")
        if obj.kind != self.kind:
            raise TypeError(
                f"{obj!r} is not of {self.kind}: add this watcher under the kind that it was made "
                "for"
            )

    def __repr__(self) -> str:
        return f"<OpinionatedWatcher of {self.kind}, finalizer {self.finalizer}>"

    def _forget(self, uid: str) -> None:
        with self._lock:
            self._added_at.pop(uid, None)


def _call(callback: Callable[..., Any] | None, *objects: Object) -> None:
    if callback is not None:
        settle(callback(*objects))


def _fits(watcher: OpinionatedWatcher) -> SelectiveWatcher:
    return watcher
