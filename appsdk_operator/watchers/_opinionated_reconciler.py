"""A reconciler that manages a finalizer, so that no deletion is missed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, final

from msgspec import structs

from appsdk_operator._generics import SpecT, StatusT, subscript
from appsdk_operator.cache import ResourceAction
from appsdk_operator.controllers import Outcome, PatchClient
from appsdk_operator.resource import Kind, Object
from appsdk_operator.runtime import settle
from appsdk_operator.watchers._finalizer_lifecycle import FinalizerLifecycle, HasFinalizerLifecycle
from appsdk_operator.watchers._finalizer_names import FinalizerSupplier, default_finalizer
from appsdk_operator.watchers._reconciler import (
    ReconcileRequest,
    ResourceReconciler,
    SelectiveReconciler,
    check_reconciler,
    checked_outcome,
)

__all__ = ["OpinionatedReconciler"]


@final
class OpinionatedReconciler(HasFinalizerLifecycle, Generic[SpecT, StatusT]):
    """Gives another reconciler the guarantees of an :class:`OpinionatedWatcher`.

    The other one gets requests with the action

        * CREATE for an object that was not handled before, until that succeeded once,
        * RESYNC for one that an earlier process has handled, once at the start, and at resyncs,
        * UPDATE when the spec changed, or for kinds without generations when anything did,
        * DELETE for one that is being deleted, and still there.

    Guarantees, whatever crashes when:
        * CREATE is asked for each object at least once, and succeeds before UPDATE, RESYNC or the
          finalizer.
        * An object that CREATE began with is not let go before DELETE has succeeded.
        * Foreign finalizers are never touched, and keep their order.

    To succeed is to return without ``requeue_after``, also without one of 0: who asks to be called
    again has not finished, so a CREATE is asked again then, and a DELETE keeps the object. That is
    how to wait for something outside of the cluster to be gone.

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
            reconciler: what is called; plain or ``async def``. Updates for which its ``concerns``
                says no, if it has one, are not shown.
            kind: the kind of the objects it will be given.
            client: reads objects and writes finalizers.
            finalizer: gives the finalizer's name; default: :func:`default_finalizer`.

        Raises:
            ValueError: the finalizer's name is too long, or not a name that servers take.
            TypeError: ``reconciler`` is none, ``kind`` is no Kind, or ``client`` no client.
        """
        check_reconciler(reconciler)
        concerns = reconciler.concerns if isinstance(reconciler, SelectiveReconciler) else None
        super().__init__(FinalizerLifecycle(kind, client, finalizer, concerns))
        self.reconciler = reconciler
        """The one that is called."""
        self.kind = kind

    def reconcile(self, request: ReconcileRequest[SpecT, StatusT], /) -> Outcome:
        """Handle what happened to an object.

        Raises:
            FinalizerError: a finalizer could not be written.
            TypeError: the other reconciler returned something else than a Result or None.
            Exception: what it raised.
        """
        has_seen = False

        def notify(action: ResourceAction, obj: Object, old: Object | None, /) -> Outcome:
            nonlocal has_seen
            if has_seen:
                return None  # the update of an object that was new: it was seen as it is now
            has_seen = True
            told = structs.replace(request, action=action, object=obj, old=old)
            return checked_outcome(self.reconciler, settle(self.reconciler.reconcile(told)))

        action, obj = request.action, request.object
        if action is ResourceAction.CREATE:
            return self._finalizer_lifecycle.on_add(obj, notify)
        if action is ResourceAction.DELETE:
            return self._finalizer_lifecycle.on_delete(obj, notify)
        if action is ResourceAction.UPDATE and request.old is not None:
            return self._finalizer_lifecycle.on_update(request.old, obj, notify)
        return self._finalizer_lifecycle.on_resync(obj, notify)

    def concerns(self, old: Object[SpecT, StatusT], new: Object[SpecT, StatusT]) -> bool:
        """Whether there is anything to do, as :meth:`OpinionatedWatcher.concerns`."""
        return self._finalizer_lifecycle.concerns(old, new)

    def __repr__(self) -> str:
        return (
            f"<OpinionatedReconciler of {self.kind}, finalizer {self.finalizer}: "
            f"{self.reconciler!r}>"
        )


def _fits(
    reconciler: OpinionatedReconciler[SpecT, StatusT],
) -> SelectiveReconciler[SpecT, StatusT]:
    return reconciler
