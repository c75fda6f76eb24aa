"""What of an object's life is shown to whom, and what becomes of its finalizers by that.

The one table behind :class:`OpinionatedWatcher` and :class:`OpinionatedReconciler`.
"""

from __future__ import annotations

import threading
from typing import Any, Protocol, final

from appsdk_operator.cache import ResourceAction
from appsdk_operator.cache._options import check_client
from appsdk_operator.controllers import Outcome
from appsdk_operator.controllers._finalizers import FinalizerError, Finalizers, check_finalizer
from appsdk_operator.controllers._guarded import PatchClient
from appsdk_operator.resource import Kind, Object, is_older_version
from appsdk_operator.watchers._finalizers import (
    FinalizerSupplier,
    in_progress_finalizer,
    in_progress_name,
)

__all__ = ["Custody", "Tell"]

_CREATE, _UPDATE, _DELETE, _RESYNC = (
    ResourceAction.CREATE,
    ResourceAction.UPDATE,
    ResourceAction.DELETE,
    ResourceAction.RESYNC,
)


class Tell(Protocol):
    """Shows a moment to the user's code."""

    def __call__(self, action: ResourceAction, obj: Object, old: Object | None, /) -> Outcome:
        """Show it, and wait for the end.

        Args:
            action: CREATE for what was not handled before, RESYNC for what was, UPDATE for a
                change, DELETE for what is to be cleaned up.
            obj: the object.
            old: for an UPDATE, what it was before.

        Returns:
            With ``requeue_after``: it is not finished, finalizers stay as they are.
        """
        ...


@final
class Custody:
    """Holds the objects of a kind with a finalizer for as long as somebody has a stake in them.

    What a :class:`Tell` raises goes to the caller, and leaves the finalizers as they are.
    Thread-safe for different objects.
    """

    def __init__(self, kind: Kind, client: PatchClient, finalizer: FinalizerSupplier) -> None:
        if not isinstance(kind, Kind):
            raise TypeError(f"kind={kind!r} is no Kind: give first the kind, then the client")
        if not callable(finalizer):
            raise TypeError(
                f"finalizer={finalizer!r} is no function: give one of the kind, such as "
                "lambda kind: 'example.com/cleanup'"
            )
        self.kind = kind
        self.finalizer = check_finalizer(finalizer(kind), kind)
        self.in_progress_finalizer = check_finalizer(in_progress_name(kind, self.finalizer))
        if self.finalizer == in_progress_finalizer(kind):
            raise ValueError(
                f"finalizer {self.finalizer!r} is the one for objects in progress: choose another"
            )
        check_client(client, "get", "patch")
        self.names = (self.finalizer, self.in_progress_finalizer)
        self._finalizers = Finalizers(kind, client)
        self._lock = threading.Lock()
        # The version at which this process put the finalizer on, until events have caught up:
        # those before it still show the object without.
        self._added_at: dict[str, str] = {}

    def appeared(self, obj: Object, tell: Tell) -> Outcome:
        """The object is new, or was there at the start."""
        self._check_object(obj, "add")
        if obj.is_deleting:
            return self._clean_up(obj, tell)
        if self.finalizer not in obj.finalizers:
            return self._begin(obj, tell)[1]
        return self._known(obj, tell)

    def shown_again(self, obj: Object, tell: Tell) -> Outcome:
        """Nothing happened to the object."""
        self._check_object(obj, "resync")
        if obj.is_deleting:
            return self._clean_up(obj, tell)
        if self.finalizer not in obj.finalizers and not self._is_added(obj):
            return self._begin(obj, tell)[1]
        return self._known(obj, tell)

    def changed(self, old: Object, new: Object, tell: Tell) -> Outcome:
        """The object is not what it was."""
        self._check_object(old, "update")
        self._check_object(new, "update")
        if not self.concerns(old, new):
            return None
        if new.is_deleting:
            return self._clean_up(new, tell)
        # An event older than our finalizer shows the object without it.
        if self.finalizer not in new.finalizers and not self._is_added(new):
            begun, outcome = self._begin(new, tell)
            if begun is None:
                return outcome
            new = begun
        return tell(_UPDATE, new, old)

    def vanished(self, obj: Object, tell: Tell) -> Outcome:
        """The object is gone; usually all is done then.

        But a server that is carrying out a deletion when a finalizer is put on may drop the object
        all the same, as kube-apiserver does. An object that carried our finalizer, was never
        marked for deletion and is gone from the server went so, and is cleaned up now.
        """
        self._check_object(obj, "delete")
        self._forget(obj.uid)
        is_ours = any(name in obj.finalizers for name in self.names)
        # An object that only left the informer's selector looks the same, and lives on.
        if is_ours and not obj.is_deleting and self._finalizers.is_gone(obj):
            return tell(_DELETE, obj, None)
        return None

    def concerns(self, old: Object, new: Object) -> bool:
        """Whether more than status, labels, annotations or our own finalizers changed.

        While the first call fails, our own write of the finalizer in progress must not pass for
        news that ends its retries.
        """
        self._catch_up(old, new)
        # After a restore the state is another one, whatever its generation.
        if new.is_deleting != old.is_deleting or _goes_back(old, new):
            return True
        if new.generation > 0:
            return new.generation != old.generation
        return not self._is_own_write(old, new)

    def _known(self, obj: Object, tell: Tell) -> Outcome:
        outcome = tell(_RESYNC, obj, None)
        if self.in_progress_finalizer in obj.finalizers and self.finalizer in obj.finalizers:
            self._finalizers.remove(obj, self.in_progress_finalizer)
        return outcome

    def _begin(self, obj: Object, tell: Tell) -> tuple[Object | None, Outcome]:
        """Show a new object, as it is with the finalizer in progress.

        Returns:
            The object as it is then; None when that is not finished, or it is on its way out.
        """
        present = obj
        if self.in_progress_finalizer not in obj.finalizers:
            marked = self._finalizers.put(obj, self.in_progress_finalizer)
            if marked is None or self.in_progress_finalizer not in marked.finalizers:
                return None, None
            present = marked
        outcome = tell(_CREATE, present, None)
        if _is_unfinished(outcome):
            return None, outcome
        try:
            done = self._finalizers.put(
                present, self.finalizer, instead_of=self.in_progress_finalizer
            )
        except FinalizerError as error:
            raise FinalizerError(f"the add callback succeeded, but then: {error}") from error
        # An object that is being deleted by now keeps the finalizer in progress, which holds it
        # as well until the delete callback has succeeded.
        if done is not None and done.uid:
            with self._lock:
                self._added_at[done.uid] = done.resource_version
        return done, outcome

    def _clean_up(self, obj: Object, tell: Tell) -> Outcome:
        if not any(name in obj.finalizers for name in self.names):
            return None
        outcome = tell(_DELETE, obj, None)
        if not _is_unfinished(outcome):
            self._finalizers.remove(obj, *self.names)
            self._forget(obj.uid)
        return outcome

    def _is_added(self, obj: Object) -> bool:
        """Whether this process put the finalizer on at a version that ``obj`` has not reached."""
        with self._lock:
            added_at = self._added_at.get(obj.uid)
        return added_at is not None and is_older_version(obj.resource_version, added_at)

    def _catch_up(self, old: Object, new: Object) -> None:
        """Forget our own write when events have caught up with it, or when history went back."""
        with self._lock:
            added_at = self._added_at.get(new.uid)
        if added_at is not None and (
            not is_older_version(new.resource_version, added_at) or _goes_back(old, new)
        ):
            self._forget(new.uid)

    def _is_own_write(self, old: Object, new: Object) -> bool:
        """Whether our own finalizers are all that changed."""
        before, after = set(old.finalizers), set(new.finalizers)
        if not (before ^ after) & set(self.names):
            return False
        return self._without_bookkeeping(old) == self._without_bookkeeping(new)

    def _without_bookkeeping(self, obj: Object) -> dict[str, Any]:
        data = obj.to_dict()
        metadata = data.get("metadata", {})
        for field in ("managedFields", "resourceVersion"):
            metadata.pop(field, None)
        metadata["finalizers"] = [name for name in obj.finalizers if name not in self.names]
        return data

    def _check_object(self, obj: object, action: str) -> None:
        if not isinstance(obj, Object):
            raise TypeError(f"{action} needs an object, and got {obj!r}")
        if obj.kind != self.kind:
            raise TypeError(
                f"{obj!r} is not of {self.kind}: add this watcher under the kind that it was made "
                "for"
            )

    def _forget(self, uid: str) -> None:
        with self._lock:
            self._added_at.pop(uid, None)


def _goes_back(old: Object, new: Object) -> bool:
    return is_older_version(new.resource_version, old.resource_version)


def _is_unfinished(outcome: Outcome) -> bool:
    return outcome is not None and bool(outcome.requeue_after)
