"""Follows Namespace objects for a cache whose namespaces a selector chooses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, final

from appsdk_operator.cache._cache.namespaces import NamespaceChange, SelectedNamespaces
from appsdk_operator.cache._events import Event
from appsdk_operator.cache._informer.informer import Informer, Registration, access_to
from appsdk_operator.cache._informer.reflector import ListWatchClient
from appsdk_operator.cache._informer.transforms import drop_managed_fields
from appsdk_operator.resource import Kind, NamespaceSelector, kinds
from appsdk_operator.runtime import Clock, Metrics, StopSignal, Waiters, get_logger

_log: Final = get_logger("appsdk_operator.cache")
_NAMESPACE: Final[Kind] = kinds.core.v1.Namespace
_MOST_NAMED: Final = 10
_LOOK_AGAIN: Final = 30.0
"""Seconds between looks at deleted namespaces: nothing says that a server refuses to list them."""


@final
class _Bell:
    """A handler that only says that there were events; called with an informer's lock held."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring

    def on_events(self, events: Sequence[Event]) -> None:  # noqa: ARG002 - a BatchHandler
        self._ring()

    def on_initial_list_end(self) -> None:
        self._ring()


@final
class NamespaceFollower:
    """An informer of Namespaces, and the thread that tells the cache of changes.

    The informer is apart from those of the cache, whose selectors are for other objects.
    """

    def __init__(
        self,
        selector: NamespaceSelector,
        client: ListWatchClient,
        *,
        on_error: Callable[[Exception], None] | None,
        clock: Clock,
        metrics: Metrics | None,
    ) -> None:
        self.selected = SelectedNamespaces(selector)
        self.informer: Informer = Informer(
            _NAMESPACE,
            client,
            metadata_only=True,
            transform=drop_managed_fields,
            on_error=on_error,
            clock=clock,
            metrics=metrics,
        )
        self._has_news = False
        self._waiters = Waiters(clock)
        self._bell = _Bell(self.wake)
        # On the informers of deleted namespaces, which end once they have no objects, or may not
        # see what becomes of them: the permissions may have been deleted before the objects.
        self._bells: dict[str, dict[Informer, Registration]] = {}
        self._is_first = True
        self.informer.add_event_handler(self._bell)

    def wake(self) -> None:
        """Look again soon; takes no lock that is held during a look."""
        self._has_news = True
        self._waiters.wake()

    def run(self, stop: StopSignal, look: Callable[[], None]) -> None:
        """Call ``look`` whenever something may have changed, until ``stop`` is set."""
        while not stop.is_set():
            timeout = _LOOK_AGAIN if self._bells else None
            self._waiters.wait(lambda: self._has_news, stop, timeout)
            if not stop.is_set():
                self._has_news = False
                look()

    def update(self, informers_of: Callable[[str], Sequence[Informer]]) -> NamespaceChange | None:
        """Compute the watched namespaces; returns what changed, None before the first list.

        Args:
            informers_of: the informers of a namespace.
        """
        if not self.informer.has_synced:
            return None
        by_labels = self.selected.selector.labels is not None
        present = {
            each.name: each.labels if by_labels else {} for each in self.informer.store.list()
        }
        change = self.selected.update(present, lambda name: self._is_empty(name, informers_of))
        for name in [name for name in self._bells if name in present or name in change.ended]:
            for registration in self._bells.pop(name).values():
                registration.remove()
        return change

    def has_ended(self, name: str) -> bool:
        """As :meth:`SelectedNamespaces.has_ended`, as far as is known now."""
        return self.selected.has_ended(name, self.informer.resource_version)

    def _is_empty(self, name: str, informers_of: Callable[[str], Sequence[Informer]]) -> bool:
        bells = self._bells.setdefault(name, {})
        informers = informers_of(name)
        for informer in informers:
            # Before the look at the store, so that the last deletion is not missed.
            if informer not in bells:
                bells[informer] = access_to(informer).attach(self._bell, sends_present=False)
        return all(
            not len(informer.store) or access_to(informer).is_refused for informer in informers
        )

    def log(self, change: NamespaceChange) -> None:
        """Log what changed."""
        selector = self.selected.selector
        if self._is_first:
            self._is_first = False
            what = _counted(change.begun) if change.begun else "none yet"
            _log.info("the cache follows the namespaces that match %s: %s", selector, what)
            return
        for name in change.begun:
            _log.info("the cache follows namespace %s from now on: it matches %s", name, selector)
        for name in change.left:
            _log.info("the cache leaves namespace %s: it no longer matches %s", name, selector)
        for name in change.ended:
            _log.info("the cache leaves namespace %s: it was deleted, with its objects", name)


def _counted(names: Sequence[str]) -> str:
    named = ", ".join(names[:_MOST_NAMED])
    more = len(names) - _MOST_NAMED
    return f"{named}{f' and {more} more' if more > 0 else ''}"
