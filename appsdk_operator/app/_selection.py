"""The label selectors that follow from the filters of an App's functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import msgspec

from appsdk_operator.app._declarations import Declarations, Owned, Timer
from appsdk_operator.app._kinds import kinds_of
from appsdk_operator.cache import CacheOptions
from appsdk_operator.manager import CacheSetup, ClientSetup, ManagerOptions
from appsdk_operator.resource import Kind, LabelSelector


def common_selectors(
    declared: Declarations, *, adopts: bool
) -> dict[Kind[Any, Any], LabelSelector]:
    """The labels that all functions of a kind ask for, by kind.

    Only for kinds that nothing but timers handle. All else may put a finalizer on an object, and
    has to see it after it has left the filter; and a change that was made meanwhile would be lost
    to ``on_update``. None where the App adopts objects: others have a finalizer, too.
    """
    if adopts:
        return {}
    wanted: dict[Kind[Any, Any], list[LabelSelector]] = {}
    seen_by_others: set[str] = set()
    for declarations in msgspec.structs.asdict(declared).values():
        if not isinstance(declarations, list):
            continue
        for each in declarations:
            if isinstance(each, Timer) and each.kind is not None:
                wanted.setdefault(each.kind, []).append(_labels_of(each))
            elif not isinstance(each, Owned):
                seen_by_others |= {kind.qualified_name for kind in kinds_of(each)}
    common = {
        kind: _common(selectors)
        for kind, selectors in wanted.items()
        if kind.qualified_name not in seen_by_others
    }
    return {kind: selector for kind, selector in common.items() if not selector.empty}


def with_selectors(
    options: ManagerOptions, selectors: Mapping[Kind[Any, Any], LabelSelector]
) -> ManagerOptions:
    """The options with caches of the selected objects; clients read these kinds from the server.

    Options that say themselves which objects are cached stay.
    """
    cache = options.cache or CacheSetup()
    has_own = cache.label_selector is not None or isinstance(cache.namespaces, Mapping)
    chosen = {} if has_own else {k: s for k, s in selectors.items() if k not in cache.by_kind}
    if not chosen:
        return options
    client = options.client or ClientSetup()
    by_kind = {kind: CacheOptions(label_selector=each) for kind, each in chosen.items()}
    return attrs.evolve(
        options,
        cache=attrs.evolve(cache, by_kind={**cache.by_kind, **by_kind}),
        client=attrs.evolve(client, uncached=(*client.uncached, *chosen)),
    )


def _labels_of(timer: Timer) -> LabelSelector:
    """The labels without which no object passes the timer's filter."""
    if timer.options.where is None:
        return LabelSelector()
    found = [part.atom.selector for part in timer.options.where.tree.conjuncts()]
    return LabelSelector(tuple(one for each in found if each for one in each.requirements))


def _common(selectors: list[LabelSelector]) -> LabelSelector:
    first, *others = selectors
    return LabelSelector(
        tuple(
            each for each in first.requirements if all(each in one.requirements for one in others)
        )
    )
