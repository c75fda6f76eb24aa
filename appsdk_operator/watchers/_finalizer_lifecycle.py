"""What of an object's life is shown to whom, and what becomes of its finalizers by that.

The one table behind :class:`OpinionatedWatcher` and :class:`OpinionatedReconciler`.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol, final

from appsdk_operator.cache import ResourceAction
from appsdk_operator.controllers import (
    FinalizerError,
    Finalizers,
    Outcome,
    PatchClient,
    check_finalizer,
)
from appsdk_operator.resource import Kind, Object, is_older_version
from appsdk_operator.runtime import get_logger
from appsdk_operator.runtime.validation import check_client
from appsdk_operator.watchers._finalizer_names import (
    FinalizerSupplier,
    default_finalizer,
    in_progress_finalizer,
    in_progress_name,
)
from appsdk_operator.watchers._finalizer_uses import OperatorName

__all__ = ["Concerns", "FinalizerLifecycle", "HasFinalizerLifecycle", "NotifyCallback"]

_log = get_logger("appsdk_operator.watchers")

Concerns = Callable[[Object, Object], bool]

_CREATE, _UPDATE, _DELETE, _RESYNC = (
    ResourceAction.CREATE,
    ResourceAction.UPDATE,
    ResourceAction.DELETE,
    ResourceAction.RESYNC,
)


class NotifyCallback(Protocol):
    """Shows a moment to the user's code."""

    def __call__(self, action: ResourceAction, obj: Object, old: Object | None, /) -> Outcome:
        """Show it, and wait for the end.

        Args:
            action: CREATE for what was not handled before, RESYNC for what was, UPDATE for a
                change, DELETE for what is to be cleaned up.
            obj: the object.
            old: for an UPDATE, what it was before.

        Returns:
            With ``requeue_after``, also of 0: it is not finished, finalizers stay as they are.
        """
        ...


@final
class FinalizerLifecycle:
    """Holds the objects of a kind with a finalizer for as long as somebody has a stake in them.

    What a :class:`NotifyCallback` raises goes to the caller, and leaves the finalizers as they are.
    Thread-safe for different objects.
    """

    def __init__(
        self,
        kind: Kind,
        client: PatchClient,
        finalizer: FinalizerSupplier,
        concerns: Concerns | None = None,
    ) -> None:
        if not isinstance(kind, Kind):
            raise TypeError(f"kind={kind!r} is no Kind: give first the kind, then the client")
        if not callable(finalizer):
            raise TypeError(
                f"finalizer={finalizer!r} is no function: give one of the kind, such as "
                "lambda kind: 'example.com/cleanup'"
            )
        self.kind = kind
        self.client = client
        self.takes_operator_name: bool = finalizer is default_finalizer
        """Whether an operator's name goes into the finalizer."""
        self._operator = ""
        self._set_finalizer(finalizer(kind))
        if self.finalizer == in_progress_finalizer(kind):
            raise ValueError(
                f"finalizer {self.finalizer!r} is the one for objects in progress: choose another"
            )
        check_client(client, "get", "patch")
        # Finalizers of this operator under the names that it had before, each with the one for
        # objects in progress, and the objects on which they wait to be replaced.
        self._previous: tuple[tuple[str, str], ...] = ()
        self._legacy: set[str] = set()
        self._finalizers = Finalizers(kind, client)
        self._concerns = concerns
        self._lock = threading.Lock()
        # The version at which this process put the finalizer on, until events have caught up:
        # those before it still show the object without.
        self._finalizer_versions: dict[str, str] = {}
        # Objects that a callback began with, and on which there may be no finalizer of ours any
        # more: they are cleaned up at their end although nothing on them says so.
        self._unprotected: set[str] = set()
        # What a callback succeeded for, and which only the write after it is still missing for.
        self._write_pending: dict[str, ResourceAction] = {}
        self._times_stripped = 0

    def _set_finalizer(self, name: str) -> None:
        self.finalizer: str = check_finalizer(name, self.kind)
        self.in_progress_finalizer: str = check_finalizer(in_progress_name(self.kind, name))
        self.names: tuple[str, str] = (self.finalizer, self.in_progress_finalizer)

    def use_operator_name(self, operator: OperatorName) -> None:
        """Put the operator's name into the default finalizer; before the first event.

        Raises:
            ValueError: another operator's name is in it already.
        """
        if not self.takes_operator_name or not operator.name:
            return
        if self._operator not in ("", operator.name):
            raise ValueError(
                f"the watcher of {self.kind} with finalizer {self.finalizer} belongs to "
                f"{self._operator!r} already, and cannot belong to {operator.name!r} too: make one "
                "for each"
            )
        self._operator = operator.name
        self._set_finalizer(default_finalizer(self.kind, operator.name))
        before = [default_finalizer(self.kind, name) for name in operator.previous]
        self._previous = tuple(
            (name, in_progress_name(self.kind, name)) for name in before if name != self.finalizer
        )

    @property
    def all_names(self) -> frozenset[str]:
        """Its finalizers, those with older names included."""
        return frozenset([*self.names, *(name for pair in self._previous for name in pair)])

    def on_add(self, obj: Object, notify: NotifyCallback) -> Outcome:
        """The object is new, or was there at the start."""
        self._check_object(obj, "add")
        if self._previous and not obj.is_deleting:
            self._note_legacy(obj)
            obj = self._migrated(obj)
        if obj.is_deleting:
            return self._clean_up(obj, notify)
        if self.finalizer not in obj.finalizers:
            return self._on_new(obj, notify)[1]
        return self._on_known(obj, notify)

    def on_resync(self, obj: Object, notify: NotifyCallback) -> Outcome:
        """Nothing happened to the object."""
        self._check_object(obj, "resync")
        if self._legacy and not obj.is_deleting:
            obj = self._migrated(obj)
        if obj.is_deleting:
            return self._clean_up(obj, notify)
        if self.finalizer not in obj.finalizers and not self._is_before_our_write(obj):
            return self._on_new(obj, notify)[1]
        return self._on_known(obj, notify)

    def on_update(self, old: Object, new: Object, notify: NotifyCallback) -> Outcome:
        """The object is not what it was."""
        self._check_object(old, "update")
        self._check_object(new, "update")
        is_news, is_stripped = self._is_news(old, new), self._is_stripped(old, new)
        if is_stripped:
            self._note_stripped(new)
        if new.is_deleting:
            return self._clean_up(new, notify) if is_news else None
        if not is_news and not is_stripped:
            return None
        if self._legacy:
            new = self._migrated(new)
            if new.is_deleting:
                return self._clean_up(new, notify)
        # An event older than our finalizer shows the object without it.
        if self.finalizer in new.finalizers or self._is_before_our_write(new):
            return self._call(notify, _UPDATE, new, old)
        begun, outcome = self._on_new(new, notify)
        if begun is None or not is_news or not self._wants_update(old, new):
            return outcome
        return self._call(notify, _UPDATE, begun, old)

    def on_delete(self, obj: Object, notify: NotifyCallback) -> Outcome:
        """The object is gone; usually all is done then.

        But a server that is carrying out a deletion when a finalizer is put on may drop the object
        all the same, as kube-apiserver does; and somebody may have taken our finalizer off. An
        object that add began with, that went in another way than by our clean-up and is gone from
        the server, is cleaned up now.
        """
        self._check_object(obj, "delete")
        with self._lock:
            self._finalizer_versions.pop(obj.uid, None)
            is_done = self._write_pending.get(obj.uid) is _DELETE
            is_unprotected = obj.uid in self._unprotected
        outcome: Outcome = None
        is_held = not obj.is_deleting and any(name in obj.finalizers for name in self.names)
        # An object that only left the informer's selector looks the same, and lives on.
        if (is_held or is_unprotected) and not is_done and self._finalizers.is_gone(obj):
            outcome = self._call(notify, _DELETE, obj, None)
        if not _is_unfinished(outcome):
            self._forget(obj.uid)
        return outcome

    def concerns(self, old: Object, new: Object) -> bool:
        """Whether there is anything to do: for us, or for the callback of an update.

        Not for changes of status, labels, annotations or our own finalizers alone: while the first
        call fails, our own write of the finalizer in progress must not pass for news that ends its
        retries.
        """
        if self._is_stripped(old, new):
            return True
        if not self._is_news(old, new):
            return False
        if new.is_deleting:
            return True
        is_bare = self.finalizer not in new.finalizers and not self._is_before_our_write(new)
        return is_bare or self._wants_update(old, new)

    def _is_news(self, old: Object, new: Object) -> bool:
        """Whether more than status, labels, annotations or our own finalizers on_update."""
        self._forget_seen_write(old, new)
        # After a restore the state is another one, whatever its generation.
        if new.is_deleting != old.is_deleting or _goes_back(old, new):
            return True
        if new.generation > 0:
            return new.generation != old.generation
        return not self._is_own_write(old, new)

    def _wants_update(self, old: Object, new: Object) -> bool:
        """Whether the callback of an update would do anything, as far as it can say."""
        if self._concerns is None:
            return True
        try:
            return self._concerns(old.viewed_as(self.kind), new.viewed_as(self.kind))
        except BaseException:
            _log.exception(
                "concerns() of the watcher of %s failed: the event is delivered", self.kind
            )
            return True

    def _is_stripped(self, old: Object, new: Object) -> bool:
        """Whether somebody took our finalizer off, between these two."""
        if self.finalizer in new.finalizers or old.is_deleting:
            return False  # the clean-up knows
        if self.finalizer in old.finalizers:
            return not (new.is_deleting and self.in_progress_finalizer in new.finalizers)
        with self._lock:
            version = self._finalizer_versions.get(new.uid)
        return version is not None and _has_reached(new, version) and not _has_reached(old, version)

    def _note_stripped(self, obj: Object) -> None:
        with self._lock:
            if not obj.uid or obj.uid in self._unprotected:
                return
            self._unprotected.add(obj.uid)
            self._times_stripped += 1
            times = self._times_stripped
        if times & (times - 1) == 0:  # 1, 2, 4, …: whoever does so may do so all day long
            _log.warning(
                "somebody took finalizer %s off %r (%d objects so far): it is handled as a new one "
                "again, or cleaned up if it is being deleted; look for who writes whole lists of "
                "finalizers, with kubectl get --show-managed-fields",
                self.finalizer,
                obj,
                times,
                extra={"kind": str(self.kind), "namespace": obj.namespace, "object": obj.name},
            )

    def _note_legacy(self, obj: Object) -> None:
        """Remember an object that was handled under an older name, until it has the new one.

        Only one that is there when we see it first: on others the old name comes from another
        operator that has it.
        """
        present = obj.finalizers
        is_ours = any(name in present for name in self.names)
        if not is_ours and any(name in present for name, _ in self._previous):
            with self._lock:
                self._legacy.add(obj.uid)

    def _migrated(self, obj: Object) -> Object:
        """The object with our finalizer in the place of the one with an older name, if it waits for
        that.

        Raises:
            FinalizerError: it could not be written.
        """
        if obj.uid not in self._legacy:
            return obj
        made: Object | None = obj
        for name, mark in self._previous:
            if made is not None and name in made.finalizers:
                made = self._put(made, self.finalizer, instead_of=name)
                if made is not None and mark in obj.finalizers:
                    made = self._finalizers.remove(made, mark)
                break
        with self._lock:
            self._legacy.discard(obj.uid)
            if made is not None and made.uid and self.finalizer in made.finalizers:
                self._finalizer_versions[made.uid] = made.resource_version
        return obj if made is None else made

    def _on_known(self, obj: Object, notify: NotifyCallback) -> Outcome:
        """Show an object that was handled before, and drop what is left of its beginning."""
        outcome: Outcome = None
        if not self._pop_write_pending(obj, _RESYNC):
            outcome = self._call(notify, _RESYNC, obj, None)
        if self.in_progress_finalizer in obj.finalizers and self.finalizer in obj.finalizers:
            with self._retry_write_only(obj, _RESYNC, "sync"):
                self._finalizers.remove(obj, self.in_progress_finalizer)
        return outcome

    def _on_new(self, obj: Object, notify: NotifyCallback) -> tuple[Object | None, Outcome]:
        """Show a new object, as it is with the finalizer in progress.

        If that was done, and only the finalizer could not be written, that is all that is done now.

        Returns:
            The object as it is then; None when that is not finished, or it is on its way out.
        """
        present = obj
        outcome: Outcome = None
        if not self._pop_write_pending(obj, _CREATE):
            if self.in_progress_finalizer not in obj.finalizers:
                before = [mark for _, mark in self._previous if mark in obj.finalizers]
                marked = self._put(
                    obj, self.in_progress_finalizer, instead_of=before[0] if before else None
                )
                if marked is None or self.in_progress_finalizer not in marked.finalizers:
                    return None, None
                present = marked
            if obj.uid:
                with self._lock:
                    self._unprotected.add(obj.uid)
            outcome = self._call(notify, _CREATE, present, None)
            if _is_unfinished(outcome):
                return None, outcome
        with self._retry_write_only(obj, _CREATE, "add"):
            done = self._put(present, self.finalizer, instead_of=self.in_progress_finalizer)
        with self._lock:
            # An object that is being deleted by now keeps the finalizer in progress, which holds
            # it as well until the delete callback has succeeded.
            if done is not None and any(name in done.finalizers for name in self.names):
                self._unprotected.discard(obj.uid)
                if done.uid:
                    self._finalizer_versions[done.uid] = done.resource_version
        return done, outcome

    def _put(self, obj: Object, name: str, *, instead_of: str | None = None) -> Object | None:
        """Put a finalizer on.

        Raises:
            FinalizerError: it could not be put on, or is not there after that.
        """
        made = self._finalizers.put(obj, name, instead_of=instead_of)
        if made is not None and not made.is_deleting and name not in made.finalizers:
            raise FinalizerError(
                f"could not put finalizer {name!r} on {obj!r}: the server took the write and left "
                "the finalizer out, so its deletion would be missed: have the admission webhook or "
                "the client's wrapper that strips finalizers leave this one on"
            )
        return made

    def _clean_up(self, obj: Object, notify: NotifyCallback) -> Outcome:
        names = self._our_finalizers_on(obj)
        is_held = bool(names)
        with self._lock:
            if not is_held and obj.uid not in self._unprotected:
                self._write_pending.pop(obj.uid, None)  # events have caught up with our clean-up
                return None
            if obj.uid:
                self._unprotected.add(obj.uid)  # somebody may take it off before this has succeeded
        outcome: Outcome = None
        if not self._pop_write_pending(obj, _DELETE):
            outcome = self._call(notify, _DELETE, obj, None)
            if _is_unfinished(outcome):
                return outcome
        with self._retry_write_only(obj, _DELETE, "delete"):
            self._finalizers.remove(obj, *self.names, *names)
        with self._lock:
            self._finalizer_versions.pop(obj.uid, None)
            self._unprotected.discard(obj.uid)
            if obj.uid:
                self._write_pending[obj.uid] = _DELETE  # events before our write show it as it was
        return outcome

    def _our_finalizers_on(self, obj: Object) -> list[str]:
        """Our finalizers on an object; those with an older name only where no newer one is."""
        present = obj.finalizers
        own = [name for name in self.names if name in present]
        if own or obj.uid in self._unprotected:
            return own
        return [name for pair in self._previous for name in pair if name in present]

    def _call(
        self, notify: NotifyCallback, action: ResourceAction, obj: Object, old: Object | None
    ) -> Outcome:
        """Show a moment, with the types of our own kind, whatever those of the informer are."""
        kind = self.kind
        return notify(action, obj.viewed_as(kind), old and old.viewed_as(kind))

    def _pop_write_pending(self, obj: Object, action: ResourceAction) -> bool:
        """Whether the callback has succeeded, and only the write after it is missing."""
        with self._lock:
            # If it is another one its life went on, or back: that does not count any more.
            return self._write_pending.pop(obj.uid, None) is action

    @contextlib.contextmanager
    def _retry_write_only(
        self, obj: Object, action: ResourceAction, callback: str
    ) -> Iterator[None]:
        """For a write after a callback: if it fails it alone is done again, not the callback."""
        try:
            yield
        except FinalizerError as error:
            if obj.uid:
                with self._lock:
                    self._write_pending[obj.uid] = action
            raise error.after(f"the {callback} callback succeeded, but then") from error

    def _is_before_our_write(self, obj: Object) -> bool:
        """Whether this process put the finalizer on at a version that ``obj`` has not reached."""
        with self._lock:
            version = self._finalizer_versions.get(obj.uid)
        return version is not None and is_older_version(obj.resource_version, version)

    def _forget_seen_write(self, old: Object, new: Object) -> None:
        """Forget our own write when events have caught up with it, or when history went back."""
        goes_back = _goes_back(old, new)
        with self._lock:
            version = self._finalizer_versions.get(new.uid)
            has_caught_up = version is not None and not is_older_version(
                new.resource_version, version
            )
            # Without the finalizer: somebody took it off, and it is put on again.
            if goes_back or (has_caught_up and self.finalizer in new.finalizers):
                self._finalizer_versions.pop(new.uid, None)
            if goes_back:
                self._write_pending.pop(new.uid, None)

    def _is_own_write(self, old: Object, new: Object) -> bool:
        """Whether our own finalizers are all that on_update."""
        before, after = set(old.finalizers), set(new.finalizers)
        if not (before ^ after) & set(self.names):
            return False
        return self._without_bookkeeping(old) == self._without_bookkeeping(new)

    def _without_bookkeeping(self, obj: Object) -> dict[str, Any]:
        data = obj.to_dict()
        metadata = data.get("metadata", {})
        for field in ("managedFields", "resourceVersion"):
            metadata.pop(field, None)
        ours = self.all_names
        metadata["finalizers"] = [name for name in obj.finalizers if name not in ours]
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
            self._finalizer_versions.pop(uid, None)
            self._write_pending.pop(uid, None)
            self._unprotected.discard(uid)
            self._legacy.discard(uid)


class HasFinalizerLifecycle:
    """The part that OpinionatedWatcher and OpinionatedReconciler share: their finalizers."""

    def __init__(self, lifecycle: FinalizerLifecycle) -> None:
        self._finalizer_lifecycle = lifecycle

    @property
    def finalizer(self) -> str:
        """The finalizer on objects that were handled; the default one gets the operator's name
        when this is added to a controller that has one, by itself or from its operator."""
        return self._finalizer_lifecycle.finalizer

    @property
    def in_progress_finalizer(self) -> str:
        """The finalizer on objects whose first call has not succeeded yet."""
        return self._finalizer_lifecycle.in_progress_finalizer

    @property
    def finalizer_lifecycle(self) -> FinalizerLifecycle:
        """For controllers: what decides on callbacks and writes the finalizers."""
        return self._finalizer_lifecycle


def _has_reached(obj: Object, version: str) -> bool:
    """Whether the object is as new as that, for versions that can be compared."""
    return obj.resource_version == version or is_older_version(version, obj.resource_version)


def _goes_back(old: Object, new: Object) -> bool:
    return is_older_version(new.resource_version, old.resource_version)


def _is_unfinished(outcome: Outcome) -> bool:
    return outcome is not None and outcome.requeue_after is not None
