"""What events come from: one informer's way to the workers that handle them."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, final

from appsdk_operator.cache._events import Event, ResourceAction
from appsdk_operator.resource import Kind, Object
from appsdk_operator.runtime import StopSignal

if TYPE_CHECKING:
    from appsdk_operator.cache._delivery.delivery import Delivery

__all__ = ["DeliveryKey", "EventSource", "Overflow"]


class Overflow(enum.Enum):
    """What happens to new events when too many wait for a slow handler."""

    COALESCE = "coalesce"
    """Merge them, object by object, into the newest state. Nothing waits; intermediate states of an
    object, and objects that came and went meanwhile, are not seen."""
    BLOCK = "block"
    """Make the informer wait. Every event is seen; the local copy falls behind the server, and the
    server may end a watch that is read too slowly."""


class DeliveryKey(NamedTuple):
    """One object of one source: what never runs twice at once."""

    source: EventSource
    namespace: str
    name: str

    def __str__(self) -> str:
        place = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.source.kind} {place}"


@final
class EventSource:
    """One informer's way into a :class:`Delivery`; give it to the informer as a handler.

    It is a :class:`BatchHandler` for this package's informers and an :class:`EventHandler` for any
    other. Thread-safe.
    """

    def __init__(self, delivery: Delivery, kind: str, counts: dict[ResourceAction, int]) -> None:
        self.kind = kind
        """The name under which its events are counted and its handlers found."""
        self._delivery = delivery
        self.counts = counts
        """How many events of its kind came, by action; shared by the sources of the kind."""
        self.initial_left = 0
        self.is_initial_ended = False
        self.is_removed = False
        self.view: Kind | None = None
        """For informers that others share, who may read their objects with other types: what those
        of this source are shown as. None: as they come."""

    @property
    def has_synced(self) -> bool:
        """Whether every object that was there at the start has been handled."""
        return self.is_initial_ended and not self.initial_left

    def key_of(self, obj: Object) -> DeliveryKey:
        """What stands for an object of this source."""
        return DeliveryKey(self, obj.namespace, obj.name)

    def wait_for_sync(self, stop: StopSignal, timeout: float | None = None) -> bool:
        """Wait for :attr:`has_synced`; False when stopped, removed, or after ``timeout`` s."""
        return self._delivery.wait_for_sync(stop, timeout, source=self)

    def on_events(self, events: Sequence[Event]) -> None:
        """Take over events, in order."""
        self._delivery.put(self, events)

    def on_initial_list_end(self) -> None:
        """The objects that were there at the start have all been handed over."""
        self._delivery.end_initial_list(self)

    def wait_for_room(self, stop: StopSignal | None = None) -> None:
        """Wait, with :attr:`Overflow.BLOCK`, until fewer events wait than allowed.

        A set ``stop`` and the source's removal end the wait.
        """
        self._delivery.wait_for_room(self, stop)

    def resync_every(self, seconds: float, replay: Callable[[], None]) -> Callable[[], None]:
        """Call ``replay`` in a worker each ``seconds``, give or take a tenth.

        Returns:
            A function that ends it.
        """
        return self._delivery.resync_every(self, seconds, replay)

    def on_add(self, obj: Object, *, is_initial: bool = False) -> None:
        """As :meth:`EventHandler.on_add`."""
        self.wait_for_room()
        self._put(Event(ResourceAction.CREATE, obj, None, is_initial))

    def on_update(self, old: Object, new: Object) -> None:
        """As :meth:`EventHandler.on_update`."""
        self.wait_for_room()
        # Other informers show what they have again as another Python object, and what was deleted
        # and made anew under its name as an update.
        if old.uid != new.uid and old.uid and new.uid:
            self._put(Event(ResourceAction.DELETE, old, None, False, True))
            self._put(Event(ResourceAction.CREATE, new))
        elif old is new or (new.resource_version and old.resource_version == new.resource_version):
            self._put(Event(ResourceAction.RESYNC, new))
        else:
            self._put(Event(ResourceAction.UPDATE, new, old))

    def on_delete(self, obj: Object, *, is_final_state_unknown: bool = False) -> None:
        """As :meth:`EventHandler.on_delete`."""
        self.wait_for_room()
        self._put(Event(ResourceAction.DELETE, obj, None, False, is_final_state_unknown))

    def _put(self, event: Event) -> None:
        self._delivery.put(self, (event,), by_object=True)
