"""What the handlers with a finalizer lifecycle have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from appsdk_operator.watchers._finalizers.lifecycle import FinalizerLifecycle


class HasFinalizerLifecycle:
    """The finalizer properties of OpinionatedWatcher and OpinionatedReconciler."""

    def __init__(self, lifecycle: FinalizerLifecycle) -> None:
        self._finalizer_lifecycle = lifecycle

    @property
    def finalizer(self) -> str:
        """The finalizer on handled objects. The default one gets the operator's name when this is
        added to a controller that has a name, of its own or from its operator."""
        return self._finalizer_lifecycle.finalizer

    @property
    def in_progress_finalizer(self) -> str:
        """The finalizer on objects whose first call has not succeeded yet."""
        return self._finalizer_lifecycle.in_progress_finalizer

    @property
    def finalizer_lifecycle(self) -> FinalizerLifecycle:
        """For controllers: what decides on callbacks and writes the finalizers."""
        return self._finalizer_lifecycle
