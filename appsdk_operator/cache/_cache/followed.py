"""The attachment of an event source to a kind of a cache, or to one informer."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from appsdk_operator._lazy import if_loaded
from appsdk_operator.cache._cache.errors import NotCachedError
from appsdk_operator.cache._delivery.delivery import EventSource
from appsdk_operator.cache._informer.health import Health
from appsdk_operator.cache._informer.informer import Informer, Registration, access_to
from appsdk_operator.resource import Kind, Object
from appsdk_operator.runtime import Clock, StopSignal, Waiters

# A controller with informers of its own needs no cache.
if TYPE_CHECKING:
    from appsdk_operator.cache._cache.cache import Cache
    from appsdk_operator.cache._cache.registration import CacheRegistration


class Followed:
    """The attachment of an event source to a kind of a cache, or to one informer.

    Attached once and detached once, in whatever order and by whichever threads: after both, the
    source gets no more events. Thread-safe.
    """

    def __init__(
        self,
        origin: Cache | Informer,
        kind: Kind,
        source: EventSource,
        *,
        resync: float | None = None,
        metadata_only: bool | None = None,
        clock: Clock,
    ) -> None:
        """Nothing is attached yet.

        Args:
            origin: the cache or the informer, which is run elsewhere.
            kind: the kind of the objects.
            source: gets the events.
            resync: as for :meth:`Informer.add_event_handler`.
            metadata_only: whether the metadata of a cache's objects is enough; None: as the cache's
                options say.
            clock: the clock of the waits.

        Raises:
            ValueError: whole objects are needed, but the cache's options keep only their metadata.
        """
        self.origin = origin
        self.kind = kind
        self.source = source
        self.clock = clock
        self.registration: CacheRegistration | Registration | None = None
        self._resync = resync
        self._metadata_only = metadata_only
        self._lock = threading.Lock()
        self._attached = Waiters(clock)
        self._is_detached = False
        if metadata_only is False and not isinstance(origin, Informer):
            # Now, so that the start order of several users does not matter.
            origin.expect_whole(kind)

    def attach(self) -> None:
        """Start the delivery of events, beginning with the present objects.

        A cache gets the kind if it lacks it.

        Raises:
            RuntimeError: the informer has stopped.
            ValueError: as for a new one, if the cache's options were changed since.
        """
        registration = self._register()
        with self._lock:
            self.registration = registration
            is_detached = self._is_detached
        if is_detached and registration is not None:
            registration.remove()
        self._attached.wake()

    def _register(self) -> CacheRegistration | Registration | None:
        if isinstance(self.origin, Informer):
            return self.origin.add_event_handler(self.source, resync=self._resync)
        if self._metadata_only:
            self.origin.add_metadata(self.kind)
        else:
            if self._metadata_only is False:
                self.origin.expect_whole(self.kind)
            self.origin.add(self.kind)
        return self.origin.add_event_handler(self.kind, self.source, resync=self._resync)

    def detach(self) -> None:
        """Stop the delivery of events; the informers keep running. Twice is harmless."""
        with self._lock:
            self._is_detached = True
            registration = self.registration
        self._attached.wake()
        if registration is not None:
            registration.remove()

    @property
    def informers(self) -> Sequence[Informer]:
        """The informer, or those of the cache, one for each namespace; none without the kind."""
        if isinstance(self.origin, Informer):
            return (self.origin,)
        try:
            return self.origin.informers(self.kind)
        except NotCachedError:
            return ()

    @contextlib.contextmanager
    def paused(self) -> Iterator[Sequence[Object]]:
        """Within the block, the source gets no event.

        Takes the locks of the cache and of its informers, so the block must not run user code.

        Yields:
            The objects of which the source was sent the current state.
        """
        with contextlib.ExitStack() as locks:
            informers: Sequence[Informer]
            if isinstance(self.origin, Informer):
                informers = (self.origin,)
            else:
                held = self.origin.held_informers(self.kind, self.source)
                informers = locks.enter_context(held)
            accesses = [access_to(informer) for informer in informers]
            for access in accesses:
                locks.enter_context(access.lock)
            yield [obj for access in accesses for obj in access.sent_to(self.source)]

    def find(self, name: str, namespace: str) -> Object | None:
        """The object of that name in the local copies; None if it is not there."""
        found = (informer.store.get(name, namespace) for informer in self.informers)
        return next((obj for obj in found if obj is not None), None)

    @property
    def is_dropped(self) -> bool:
        """Whether the cache has removed the kind, also if it was added again since."""
        it: Any = self.registration
        of_cache = if_loaded("appsdk_operator.cache", "CacheRegistration")
        is_over = isinstance(it, of_cache) and it.is_over and not self._is_detached
        return is_over or not self.informers

    def healths(self) -> Sequence[Health]:
        """The health of each informer; not ready when the cache has dropped the kind."""
        if self.is_dropped:
            text = (
                f"{self.kind.qualified_name}: it was removed from the cache, so no more events "
                "come: call remove_cache and add_cache of the controller, to add it again"
            )
            return (Health(False, text),)
        return [informer.health() for informer in self.informers]

    @property
    def has_synced(self) -> bool:
        """Whether every object that was there at the attachment was handled."""
        registration = self.registration
        return registration is not None and registration.has_synced

    def wait_for_sync(self, stop: StopSignal, timeout: float | None = None) -> bool:
        """Wait for :attr:`has_synced`, and before that for the attachment by another thread.

        Returns:
            False when stopped, detached, or after ``timeout`` seconds.
        """
        deadline = None if timeout is None else self.clock.monotonic() + timeout
        self._attached.wait(
            lambda: self.registration is not None or self._is_detached, stop, timeout
        )
        registration = self.registration
        left = None if deadline is None else max(0.0, deadline - self.clock.monotonic())
        return registration is not None and registration.wait_for_sync(stop, left)
