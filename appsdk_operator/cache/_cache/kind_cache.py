"""One kind in a cache: its informers, its handlers, and switchovers between informers."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import final

import msgspec

from appsdk_operator.cache._cache import switchover
from appsdk_operator.cache._cache.options import CacheOptions
from appsdk_operator.cache._cache.registration import CacheRegistration
from appsdk_operator.cache._cache.routing import Routing, SelectionInformer
from appsdk_operator.cache._cache.selection import Selection
from appsdk_operator.cache._informer.informer import Informer
from appsdk_operator.cache._informer.store import IndexFunction
from appsdk_operator.resource import Kind


@final
class KindCache:
    """The informers and handlers of one kind. Every method is called with the cache's lock held."""

    def __init__(
        self,
        kind: Kind,
        options: CacheOptions,
        *,
        make: Callable[[KindCache, Selection], Informer],
        run: Callable[[SelectionInformer], None],
        may_upgrade: bool = False,
    ) -> None:
        """A kind without informers.

        Args:
            kind: the kind.
            options: as given, without what the cache adds.
            make: makes an informer.
            run: runs one, if the cache runs.
            may_upgrade: whether it holds only metadata because nobody has needed full objects yet.
        """
        self.kind = kind
        self.options = options
        self.may_upgrade = may_upgrade
        self.indexes: dict[str, IndexFunction] = dict(options.indexes)
        self.registrations: list[CacheRegistration] = []
        self.routing = Routing()
        """The informers; read without the lock. Replaced before handlers get a change's events."""
        self.lets_join = False
        """Whether nobody waits for the lists of namespaces that a selector chooses from now on."""
        self._make = make
        self._run = run

    def follow(
        self, selections: Sequence[Selection], *, joins: bool = False, gone: Container[str] = ()
    ) -> None:
        """Follow these selections from now on.

        A selection that overlaps with no earlier one starts at once, and an earlier one that
        overlaps with no new one ends at once. The others switch over when the new informers have
        synced. With ``joins``, reads of all namespaces, handlers and :attr:`Routing.is_settled` do
        not wait for those that start at once. The objects of the namespaces ``gone`` are deleted.
        """
        before = self.routing
        prepared = {each.selection: each for each in before.coming}
        old = [f for f in before.current if f.selection not in selections or f.is_frozen]
        kept = {each.selection for each in before.current if each not in old}
        added = [selection for selection in selections if selection not in kept]
        overlapping = [s for s in added if any(s.overlaps(f.selection) for f in old)]
        leaving = [f for f in old if any(s.overlaps(f.selection) for s in overlapping)]
        coming = [prepared.pop(s) if s in prepared else self._made(s) for s in overlapping]
        begun = [self._made(s, joins=joins) for s in added if s not in overlapping]
        ended = [each for each in old if each not in leaving]
        for each in prepared.values():
            each.end()
        for each in begun:
            for registration in self.registrations:
                registration.follow(each.informer, is_joining=joins)
        current = [each for each in before.current if each not in ended]
        self.routing = Routing(tuple(selections), (*current, *begun), tuple(leaving), tuple(coming))
        for each in ended:
            is_gone = each.selection.namespace in gone
            switchover.end(each, self.registrations, is_gone=is_gone)
        self.run()  # once all are known, because a thread may not start
        self.advance()
        self._note_upgraded()

    def _made(self, selection: Selection, *, joins: bool = False) -> SelectionInformer:
        return SelectionInformer(selection, self._make(self, selection), joins=joins)

    def register(self, registration: CacheRegistration) -> None:
        """Add a handler; during an upgrade to full objects it only gets events of full objects."""
        if self._is_upgrading:
            registration.awaits_full_objects = True
        for each in self.routing.current:
            if each.selection.metadata_only == self.options.metadata_only:
                registration.follow(each.informer, is_joining=each.is_joining)
        self.registrations.append(registration)

    @property
    def _is_upgrading(self) -> bool:
        is_bare = self.options.metadata_only
        return any(each.selection.metadata_only != is_bare for each in self.routing.current)

    def _note_upgraded(self) -> None:
        if not self._is_upgrading:
            for registration in self.registrations:
                registration.awaits_full_objects = False

    def advance(self) -> None:
        """Continue the switchover that is under way, as far as possible now."""
        routing = self.routing
        if not routing.coming:
            return
        if all(each.stop is None for each in routing.leaving):
            # The old informers never ran, so no handler has had any event.
            self._complete()
            return
        if not all(each.informer.has_synced for each in routing.coming):
            return
        if not all(each.is_frozen for each in routing.leaving):
            for each in routing.leaving:
                each.end()
            again: dict[SelectionInformer, SelectionInformer] = {}
            for each in switchover.behind(routing.coming, routing.leaving):
                # A list that begins now shows everything that the old informers have seen.
                each.end()
                again[each] = self._made(each.selection)
            if again:
                coming = tuple(again.get(each, each) for each in routing.coming)
                self.routing = msgspec.structs.replace(routing, coming=coming)
                for each in again.values():
                    self._run(each)
                return
        self._complete()

    def _complete(self) -> None:
        """End the switchover: from now on the new informers serve."""
        was = self.routing
        current = (*(each for each in was.current if each not in was.leaving), *was.coming)
        self.routing = Routing(was.selections, current)
        switchover.switch_over(was.leaving, was.coming, self.registrations)
        self._note_upgraded()

    def run(self) -> None:
        """Run the informers that do not run yet."""
        for each in self.routing.active:
            self._run(each)

    def end(self) -> None:
        """Stop all informers; handlers get no more events."""
        for each in self.routing.active:
            if each.stop is not None:
                each.stop.set()
