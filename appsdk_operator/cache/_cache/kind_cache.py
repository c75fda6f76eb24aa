"""One kind in a cache: its informers, its handlers, and the change from one informer to another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

import attrs

from appsdk_operator.cache._cache import switchover
from appsdk_operator.cache._cache.options import CacheOptions
from appsdk_operator.cache._cache.registration import CacheRegistration
from appsdk_operator.cache._cache.selection import Selection
from appsdk_operator.cache._cache.switchover import SelectionInformer
from appsdk_operator.cache._informer.informer import Informer
from appsdk_operator.cache._informer.store import IndexFunction
from appsdk_operator.resource import Kind

__all__ = ["KindCache", "ReadTarget"]


@attrs.frozen
class ReadTarget:
    """Where to read: an informer, and what of its objects is meant."""

    informer: Informer
    namespace: str = ""
    """Only this one; ``""``: all."""
    excluded: frozenset[str] = frozenset()
    """Not these."""
    is_to_come: bool = False
    """Whether the informer has yet to take over: it may be behind what was read before."""


@attrs.define
class _Switchover:
    """From ``old`` to ``new``, which overlap: begun, and over when ``new`` have synced."""

    old: list[SelectionInformer]
    new: list[SelectionInformer]
    is_frozen: bool = False


@final
class KindCache:
    """One kind's informers and handlers. Everything is called with the cache's lock held."""

    def __init__(
        self,
        kind: Kind,
        options: CacheOptions,
        *,
        make: Callable[[KindCache, Selection], Informer],
        run: Callable[[SelectionInformer], None],
        may_widen: bool = False,
    ) -> None:
        """A kind that nobody follows yet.

        Args:
            kind: the kind.
            options: as given, without what is taken from the cache.
            make: makes an informer.
            run: runs one, if the cache runs.
            may_widen: whether the metadata alone is kept only because nobody needs more so far.
        """
        self.kind = kind
        self.options = options
        self.may_widen = may_widen
        self.indexes: dict[str, IndexFunction] = dict(options.indexes)
        self.registrations: list[CacheRegistration] = []
        self.target: list[Selection] = []
        """What is to be followed, once no change is under way."""
        self._make = make
        self._run = run
        self._followed: dict[Selection, SelectionInformer] = {}
        self._change: _Switchover | None = None

    @property
    def followed(self) -> list[SelectionInformer]:
        """Those that handlers are told by."""
        return list(self._followed.values())

    @property
    def all_followed(self) -> list[SelectionInformer]:
        """Those, and the ones that are to take over; without what is at its end."""
        living = [each for each in self.followed if not each.informer.is_frozen]
        return living + (self._change.new if self._change else [])

    @property
    def is_settled(self) -> bool:
        """Whether no change is under way, and every local copy is complete."""
        return self._change is None and all(f.informer.has_synced for f in self.followed)

    def follow(self, target: Sequence[Selection]) -> None:
        """Follow these scopes from now on.

        What overlaps with nothing that was followed begins at once, and what overlaps with nothing
        that will be ends at once. The rest is handed over when its new informers have synced.
        """
        self.target = list(target)
        before, self._change = self._change, None
        ready = {each.scope: each for each in before.new} if before else {}
        old = [f for f in self.followed if f.scope not in target or f.informer.is_frozen]
        fresh = [s for s in target if s not in self._followed or self._followed[s] in old]
        contested = [s for s in fresh if any(s.overlaps(f.scope) for f in old)]
        leaving = [f for f in old if any(s.overlaps(f.scope) for s in contested)]
        for scope, each in ready.items():
            if scope not in contested:
                each.end()
        for each in old:
            if each not in leaving:
                switchover.end(each, self.registrations)
                del self._followed[each.scope]
        for scope in fresh:
            if scope not in contested:
                self._begin(scope)
        if contested:
            news = [ready.get(s) or SelectionInformer(s, self._make(self, s)) for s in contested]
            are_frozen = all(each.informer.is_frozen for each in leaving)
            self._change = _Switchover(leaving, news, are_frozen)
            for each in news:
                self._run(each)
            self.advance()
        self._end_waits()

    def register(self, registration: CacheRegistration) -> None:
        """Let a handler be told, where whole objects are on their way of those and no others."""
        if self._is_widening:
            registration.is_waiting = True
        for each in self.followed:
            if each.scope.metadata_only == self.options.metadata_only:
                registration.follow(each.informer)
        self.registrations.append(registration)

    @property
    def _is_widening(self) -> bool:
        return any(f.scope.metadata_only != self.options.metadata_only for f in self.followed)

    def _end_waits(self) -> None:
        if not self._is_widening:
            for registration in self.registrations:
                registration.is_waiting = False

    def advance(self) -> None:
        """Go on with the change that is under way, as far as it can go now."""
        change = self._change
        if change is None:
            return
        if all(each.stop is None for each in change.old):
            # Nothing ran yet, so nobody knows anything.
            self._take_over(change)
            return
        if not all(each.informer.has_synced for each in change.new):
            return
        if not change.is_frozen:
            change.is_frozen = True
            for each in change.old:
                each.end()
            behind = switchover.is_behind(change.new, change.old)
            for each in behind:
                # A list that begins now shows all that was seen before.
                each.end()
                again = SelectionInformer(each.scope, self._make(self, each.scope))
                change.new[change.new.index(each)] = again
                self._run(again)
            if behind:
                return
        self._take_over(change)

    def _take_over(self, change: _Switchover) -> None:
        self._change = None
        switchover.switch_over(change.old, change.new, self.registrations)
        for each in change.old:
            del self._followed[each.scope]
        for each in change.new:
            self._followed[each.scope] = each
        self._end_waits()

    def _begin(self, scope: Selection) -> None:
        followed = SelectionInformer(scope, self._make(self, scope))
        for registration in self.registrations:
            registration.follow(followed.informer)
        self._followed[scope] = followed
        self._run(followed)

    def run(self) -> None:
        """Run what does not run yet."""
        for each in self.all_followed:
            self._run(each)

    def end(self) -> None:
        """End all informers; handlers are told nothing more."""
        for each in self.all_followed:
            if each.stop is not None:
                each.stop.set()

    def places(self, namespace: str) -> list[ReadTarget]:
        """Where to read ``namespace``, ``""`` for all; none when it is not followed.

        While a change is under way, what is followed before and after it is read from the informers
        that have it already.
        """
        wanted = [s for s in self.target if not namespace or s.covers(namespace)]
        return [self._place(scope, namespace) for scope in wanted]

    def follower(self, namespace: str) -> Informer | None:
        """Who follows ``namespace``; also one that a change is about to end.

        The next change may call it back, and it may not have seen what was written meanwhile.
        """
        places = self.places(namespace)
        if places:
            return places[0].informer
        found = (f.informer for f in self.followed if f.scope.covers(namespace))
        return next(found, None)

    def shaper(self, namespace: str) -> Informer | None:
        """Who decides what is kept of an object of ``namespace``: the one that is to take over."""
        to_come = self._change.new if self._change else []
        found = (f.informer for f in to_come if f.scope.covers(namespace))
        return next(found, None) or self.follower(namespace)

    def scopes(self, namespace: str) -> list[Selection]:
        """The scopes to which ``namespace`` belongs, as :meth:`follower` finds them."""
        wanted = [scope for scope in self.target if scope.covers(namespace)]
        return wanted or [f.scope for f in self.followed if f.scope.covers(namespace)]

    def _place(self, scope: Selection, namespace: str) -> ReadTarget:
        asked = namespace or scope.namespace
        now = self._followed.get(scope)
        if now is not None:
            return ReadTarget(now.informer, asked)
        part = attrs.evolve(scope, namespace=asked, excluded=frozenset()) if namespace else scope
        for each in self.followed:
            if each.scope.covers_all_of(part):
                return ReadTarget(each.informer, asked, frozenset() if asked else scope.excluded)
        assert self._change is not None
        new = next(each for each in self._change.new if each.scope == scope)
        return ReadTarget(new.informer, asked, is_to_come=True)
