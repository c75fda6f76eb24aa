"""The reconciler that manages a finalizer, so that no deletion is missed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, final

from msgspec import structs

from appsdk_operator._generics import SpecT, StatusT, subscript
from appsdk_operator.cache import ResourceAction
from appsdk_operator.controllers import Outcome, PatchClient
from appsdk_operator.resource import Kind, Object
from appsdk_operator.runtime import settle
from appsdk_operator.watchers._finalizers.lifecycle import FinalizerLifecycle
from appsdk_operator.watchers._finalizers.names import FinalizerSupplier, default_finalizer
from appsdk_operator.watchers._finalizers.opinionated import HasFinalizerLifecycle
from appsdk_operator.watchers._reconciler import (
    ReconcileRequest,
    ResourceReconciler,
    SelectiveReconciler,
    check_reconciler,
    checked_outcome,
)


@final
class OpinionatedReconciler(HasFinalizerLifecycle, Generic[SpecT, StatusT]):
    """Wraps a reconciler with the finalizer guarantees of an :class:`OpinionatedWatcher`.

    The wrapped reconciler gets requests with the action

        * CREATE for an object that was not handled before, until one has succeeded,
        * RESYNC for an object that an earlier process has handled, at the start and at resyncs,
        * UPDATE when the spec changed, or for kinds without generations when anything did,
        * DELETE for an object that is being deleted, and still exists.

    Guarantees, whatever crashes when:
        * CREATE is requested for each object at least once, and succeeds before UPDATE, RESYNC or
          the finalizer.
        * If CREATE was requested for an object, the object is not released before DELETE has
          succeeded.
        * Other finalizers are never changed, and keep their order.

    A request succeeds when the reconciler returns without ``requeue_after``. With it, even if it is
    0, the request is unfinished: a CREATE is requested again, and a DELETE keeps the object. Use
    this to wait until something outside of the cluster is gone.

    Two reconcilers or watchers of one kind need different finalizers. Thread-safe. The semantics
    are those of grafana-app-sdk's OpinionatedReconciler, with the finalizer in progress of its
    OpinionatedWatcher.
    """

    if not TYPE_CHECKING:
        __class_getitem__ = subscript

    def __init__(
        self,
        reconciler: ResourceReconciler[SpecT, StatusT],
        kind: Kind[SpecT, StatusT],
        client: PatchClient,
        *,
        finalizer: FinalizerSupplier = default_finalizer,
    ) -> None:
        """A reconciler for objects of ``kind``.

        Args:
            reconciler: the reconciler to call; plain or ``async def``. Updates for which its
                ``concerns``, if it has one, returns False are not delivered.
            kind: the kind of its objects.
            client: reads objects and writes finalizers.
            finalizer: returns the finalizer's name; default: :func:`default_finalizer`.

        Raises:
            ValueError: the finalizer's name is too long, or not a name that servers accept.
            TypeError: ``reconciler`` is not a reconciler, ``kind`` is not a Kind, or ``client`` is
                not a client.
        """
        check_reconciler(reconciler)
        concerns = reconciler.concerns if isinstance(reconciler, SelectiveReconciler) else None
        super().__init__(FinalizerLifecycle(kind, client, finalizer, concerns))
        self.reconciler = reconciler
        """The wrapped reconciler."""
        self.kind = kind

    def reconcile(self, request: ReconcileRequest[SpecT, StatusT], /) -> Outcome:
        """Handle an event of an object.

        Raises:
            FinalizerError: a finalizer could not be written.
            TypeError: the wrapped reconciler returned neither a Result nor None.
            Exception: the error of the wrapped reconciler.
        """
        was_called = False

        def notify(action: ResourceAction, obj: Object, old: Object | None, /) -> Outcome:
            nonlocal was_called
            if was_called:
                return None  # the update after a CREATE, which had this state already
            was_called = True
            inner = structs.replace(request, action=action, object=obj, old=old)
            return checked_outcome(self.reconciler, settle(self.reconciler.reconcile(inner)))

        action, obj = request.action, request.object
        if action is ResourceAction.CREATE:
            return self._finalizer_lifecycle.on_add(obj, notify)
        if action is ResourceAction.DELETE:
            return self._finalizer_lifecycle.on_delete(obj, notify)
        if action is ResourceAction.UPDATE and request.old is not None:
            return self._finalizer_lifecycle.on_update(request.old, obj, notify)
        return self._finalizer_lifecycle.on_resync(obj, notify)

    def concerns(self, old: Object[SpecT, StatusT], new: Object[SpecT, StatusT]) -> bool:
        """Whether an update needs a call or a finalizer write, as in OpinionatedWatcher."""
        return self._finalizer_lifecycle.concerns(old, new)

    def __repr__(self) -> str:
        return (
            f"<OpinionatedReconciler of {self.kind}, finalizer {self.finalizer}: "
            f"{self.reconciler!r}>"
        )
