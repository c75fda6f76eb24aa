"""One kind in a cache: its informers, its handlers, and switchovers between informers."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import final

import msgspec

from appsdk_operator.cache._cache import switchover
from appsdk_operator.cache._cache.options import CacheOptions
from appsdk_operator.cache._cache.registration import CacheRegistration
from appsdk_operator.cache._cache.selection import Selection
from appsdk_operator.cache._cache.switchover import SelectionInformer
from appsdk_operator.cache._informer.informer import Informer
from appsdk_operator.cache._informer.store import IndexFunction
from appsdk_operator.resource import Kind


class ReadTarget(msgspec.Struct, frozen=True):
    """What a read goes to: an informer, and the part of its objects that the read covers."""

    informer: Informer
    namespace: str = ""
    """Only this namespace; ``""``: all."""
    excluded: frozenset[str] = frozenset()
    """Not these namespaces."""
    is_switching: bool = False
    """Whether a switchover to the informer is under way: it may be behind earlier reads."""
    is_joining: bool = False
    """Whether the read of all namespaces does not wait for the informer's first list."""

    def covers(self, namespace: str) -> bool:
        """Whether the read covers objects of ``namespace``."""
        return self.namespace in ("", namespace) and namespace not in self.excluded


class _Switchover(msgspec.Struct):
    """From ``old`` to ``new`` informers, which overlap: ends once ``new`` have synced."""

    old: list[SelectionInformer]
    new: list[SelectionInformer]
    is_frozen: bool = False


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
        self.selections: list[Selection] = []
        """The selections to follow, once no switchover is under way."""
        self.lets_join = False
        """Whether nobody waits for the lists of namespaces that a selector chooses from now on."""
        self._make = make
        self._run = run
        self._current: dict[Selection, SelectionInformer] = {}
        self._switchover: _Switchover | None = None

    @property
    def current(self) -> list[SelectionInformer]:
        """The informers whose events handlers get."""
        return list(self._current.values())

    @property
    def active(self) -> list[SelectionInformer]:
        """The informers that follow the server: without frozen ones, with those to switch to."""
        following = [each for each in self.current if not each.is_frozen]
        return following + (self._switchover.new if self._switchover else [])

    @property
    def is_settled(self) -> bool:
        """Whether every local copy that is waited for is complete, and there is no switchover."""
        return self._switchover is None and all(
            f.informer.has_synced or f.joins for f in self.current
        )

    def follow(
        self, selections: Sequence[Selection], *, joins: bool = False, gone: Container[str] = ()
    ) -> None:
        """Follow these selections from now on.

        A selection that overlaps with no earlier one starts at once, and an earlier one that
        overlaps with no new one ends at once. The others switch over when the new informers have
        synced. With ``joins``, reads of all namespaces, handlers and :attr:`is_settled` do not wait
        for those that start at once. The objects of the namespaces ``gone`` are deleted.
        """
        self.selections = list(selections)
        before, self._switchover = self._switchover, None
        prepared = {each.selection: each for each in before.new} if before else {}
        old = [f for f in self.current if f.selection not in selections or f.is_frozen]
        added = [s for s in selections if s not in self._current or self._current[s] in old]
        overlapping = [s for s in added if any(s.overlaps(f.selection) for f in old)]
        replaced = [f for f in old if any(s.overlaps(f.selection) for s in overlapping)]
        for selection, each in prepared.items():
            if selection not in overlapping:
                each.end()
        for each in old:
            if each not in replaced:
                is_gone = each.selection.namespace in gone
                switchover.end(each, self.registrations, is_gone=is_gone)
                del self._current[each.selection]
        for selection in added:
            if selection not in overlapping:
                self._add(selection, joins=joins)
        if overlapping:
            new = [
                prepared.get(s) or SelectionInformer(s, self._make(self, s)) for s in overlapping
            ]
            are_frozen = all(each.is_frozen for each in replaced)
            self._switchover = _Switchover(replaced, new, are_frozen)
        self.run()  # once all are known, because a thread may not start
        self.advance()
        self._note_upgraded()

    def register(self, registration: CacheRegistration) -> None:
        """Add a handler; during an upgrade to full objects it only gets events of full objects."""
        if self._is_upgrading:
            registration.awaits_full_objects = True
        for each in self.current:
            if each.selection.metadata_only == self.options.metadata_only:
                registration.follow(each.informer, is_joining=each.is_joining)
        self.registrations.append(registration)

    @property
    def _is_upgrading(self) -> bool:
        return any(f.selection.metadata_only != self.options.metadata_only for f in self.current)

    def _note_upgraded(self) -> None:
        if not self._is_upgrading:
            for registration in self.registrations:
                registration.awaits_full_objects = False

    def advance(self) -> None:
        """Continue the switchover that is under way, as far as possible now."""
        change = self._switchover
        if change is None:
            return
        if all(each.stop is None for each in change.old):
            # The old informers never ran, so no handler has had any event.
            self._complete(change)
            return
        if not all(each.informer.has_synced for each in change.new):
            return
        if not change.is_frozen:
            change.is_frozen = True
            for each in change.old:
                each.end()
            behind = switchover.behind(change.new, change.old)
            for each in behind:
                # A list that begins now shows everything that the old informers have seen.
                each.end()
                again = SelectionInformer(each.selection, self._make(self, each.selection))
                change.new[change.new.index(each)] = again
                self._run(again)
            if behind:
                return
        self._complete(change)

    def _complete(self, change: _Switchover) -> None:
        self._switchover = None
        switchover.switch_over(change.old, change.new, self.registrations)
        for each in change.old:
            del self._current[each.selection]
        for each in change.new:
            self._current[each.selection] = each
        self._note_upgraded()

    def _add(self, selection: Selection, *, joins: bool) -> None:
        added = SelectionInformer(selection, self._make(self, selection), joins=joins)
        for registration in self.registrations:
            registration.follow(added.informer, is_joining=joins)
        self._current[selection] = added

    def run(self) -> None:
        """Run the informers that do not run yet."""
        for each in self.active:
            self._run(each)

    def end(self) -> None:
        """Stop all informers; handlers get no more events."""
        for each in self.active:
            if each.stop is not None:
                each.stop.set()

    def read_targets(self, namespace: str) -> list[ReadTarget]:
        """What a read of ``namespace``, or of all for ``""``, goes to; empty if not followed.

        During a switchover, reads of what both sets of informers follow go to the old ones.
        """
        wanted = [s for s in self.selections if not namespace or s.covers(namespace)]
        return [self._read_target(selection, namespace) for selection in wanted]

    def informer_of(self, namespace: str) -> Informer | None:
        """The informer that follows ``namespace``, even if a switchover is about to end it.

        The next change of namespaces may keep it after all, and it may not have seen recent writes.
        """
        targets = self.read_targets(namespace)
        if targets:
            return targets[0].informer
        found = (f.informer for f in self.current if f.selection.covers(namespace))
        return next(found, None)

    def next_informer_of(self, namespace: str) -> Informer | None:
        """The informer that will follow ``namespace`` after a switchover; else the present one."""
        new = self._switchover.new if self._switchover else []
        found = (f.informer for f in new if f.selection.covers(namespace))
        return next(found, None) or self.informer_of(namespace)

    def selections_of(self, namespace: str) -> list[Selection]:
        """The selections that cover ``namespace``, present or else those that end now."""
        wanted = [selection for selection in self.selections if selection.covers(namespace)]
        return wanted or [f.selection for f in self.current if f.selection.covers(namespace)]

    def _read_target(self, selection: Selection, namespace: str) -> ReadTarget:
        asked = namespace or selection.namespace
        now = self._current.get(selection)
        if now is not None:
            return ReadTarget(now.informer, asked, is_joining=now.joins and not namespace)
        part = selection
        if namespace:
            part = msgspec.structs.replace(selection, namespace=asked, excluded=frozenset())
        for each in self.current:
            if each.selection.covers_all_of(part):
                excluded = frozenset[str]() if asked else selection.excluded
                return ReadTarget(each.informer, asked, excluded)
        assert self._switchover is not None
        new = next(each for each in self._switchover.new if each.selection == selection)
        return ReadTarget(new.informer, asked, is_switching=True)
