"""Which informers serve a kind: a value that is replaced whole, so that no read needs a lock."""

from __future__ import annotations

import msgspec

from appsdk_operator.cache._cache.selection import Selection
from appsdk_operator.cache._informer.informer import Informer, access_to
from appsdk_operator.runtime import StopSignal


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


class SelectionInformer(msgspec.Struct, eq=False):
    """An informer and the selection that it follows."""

    selection: Selection
    informer: Informer
    stop: StopSignal | None = None
    """The signal that stops the informer; None until it runs."""
    joins: bool = False
    """Whether nobody who uses all namespaces waits for its first list."""

    @property
    def is_joining(self) -> bool:
        """Whether it :attr:`joins`, and has not synced yet."""
        return self.joins and not self.informer.has_synced

    @property
    def is_frozen(self) -> bool:
        """Whether the informer applies no more events."""
        return access_to(self.informer).is_frozen

    def end(self) -> None:
        """Freeze the local copy and stop the informer."""
        access_to(self.informer).freeze()
        if self.stop is not None:
            self.stop.set()


class Routing(msgspec.Struct, frozen=True):
    """The informers of one kind at one time, and which of them answers which read."""

    selections: tuple[Selection, ...] = ()
    """The selections to follow, once no switchover is under way."""
    current: tuple[SelectionInformer, ...] = ()
    """The informers whose events handlers get."""
    leaving: tuple[SelectionInformer, ...] = ()
    """Those of :attr:`current` that a switchover ends, once :attr:`coming` have synced."""
    coming: tuple[SelectionInformer, ...] = ()
    """The informers that a switchover leads to, which overlap with those that leave."""

    @property
    def active(self) -> list[SelectionInformer]:
        """The informers that follow the server: without frozen ones, with those that come."""
        return [*(each for each in self.current if not each.is_frozen), *self.coming]

    @property
    def is_settled(self) -> bool:
        """Whether every local copy that is waited for is complete, and there is no switchover."""
        return not self.coming and all(
            each.informer.has_synced or each.joins for each in self.current
        )

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
        return targets[0].informer if targets else _covering(self.current, namespace)

    def next_informer_of(self, namespace: str) -> Informer | None:
        """The informer that will follow ``namespace`` after a switchover; else the present one."""
        return _covering(self.coming, namespace) or self.informer_of(namespace)

    def selections_of(self, namespace: str) -> list[Selection]:
        """The selections that cover ``namespace``, present or else those that end now."""
        wanted = [selection for selection in self.selections if selection.covers(namespace)]
        return wanted or [f.selection for f in self.current if f.selection.covers(namespace)]

    def _read_target(self, selection: Selection, namespace: str) -> ReadTarget:
        asked = namespace or selection.namespace
        for each in self.current:
            if each.selection == selection:
                return ReadTarget(each.informer, asked, is_joining=each.joins and not namespace)
        part = selection
        if namespace:
            part = msgspec.structs.replace(selection, namespace=asked, excluded=frozenset())
        for each in self.current:
            if each.selection.covers_all_of(part):
                excluded = frozenset[str]() if asked else selection.excluded
                return ReadTarget(each.informer, asked, excluded)
        new = next(each for each in self.coming if each.selection == selection)
        return ReadTarget(new.informer, asked, is_switching=True)


def _covering(informers: tuple[SelectionInformer, ...], namespace: str) -> Informer | None:
    return next((f.informer for f in informers if f.selection.covers(namespace)), None)
