"""Fault rules: which requests fail, how, and how often.

:class:`~appsdk_operator.testing.APIServer` applies the rules itself, and in front of a real API
server a :class:`~appsdk_operator.testing.FaultProxy` does. Pure: no I/O and no time.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Any, Final, TypedDict, Unpack, final

import attrs

from appsdk_operator.resource import Kind

VERBS: Final = (
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
)
# These only slow a request down, so several of them may apply to one request.
_GRADUAL: Final = frozenset({"delay", "hold", "slow"})


@attrs.frozen(kw_only=True)
class RequestFacts:
    """The attributes of a request that rules match."""

    verb: str
    group: str = ""
    plural: str = ""
    kind: str = ""
    """The kind's name; empty where only the path is known."""
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    user_agent: str = ""


class When(TypedDict, total=False):
    """Which requests a rule matches, and how often it applies; every key is optional."""

    verb: str | None
    kind: Kind | str | None
    namespace: str | None
    name: str | None
    user_agent: str | None
    skip: int
    every: int
    times: int | None
    probability: float


def _kind_text(kind: Kind | str | None) -> str | None:
    # The dot stays where the group is empty: Event is a kind of two groups.
    return f"{kind.plural}.{kind.group}" if isinstance(kind, Kind) else kind


@final
@attrs.frozen(kw_only=True, repr=False)
class FaultRule:
    """A fault, the requests it applies to, and how often.

    Made by one of the methods that name the fault: :meth:`answer`, :meth:`drop`, :meth:`lose`,
    :meth:`cut`, :meth:`delay`, :meth:`hold`, :meth:`slow`, :meth:`stall`, :meth:`duplicate`,
    :meth:`stale` and :meth:`end_watch`. Each of them also takes

    Args:
        verb: ``get``, ``list``, ``watch``, ``create``, ``update``, ``patch``, ``delete`` or
            ``deletecollection``; default: any.
        kind: a kind, or in any case its name (``"Widget"``) or plural (``"widgets"``), or its
            plural and its group (``"widgets.example.com"``); default: any.
        namespace: of the object, with the wildcards ``*`` and ``?``; default: any.
        name: of the object, with the same wildcards; default: any.
        user_agent: a part of the client's User-Agent; default: any.
        skip: let this many requests pass first; default 0.
        every: of those that follow, apply to each ``every``-th one; default 1, each.
        times: apply to this many requests; default None, until the faults are cleared.
        probability: apply with this chance, drawn from the schedule's seed; default 1.

    A rule is a value: it can be compared, shared, and its repr makes it again.

    >>> FaultRule.answer(409, verb="update", kind="widgets.example.com", every=3)
    FaultRule.answer(409, verb='update', kind='widgets.example.com', every=3)
    >>> FaultRule.answer(200)
    Traceback (most recent call last):
    ...
    ValueError: status=200 is not an error: use 400 to 599
    """

    action: str
    """The name of the method that made it."""
    status: int | None = None
    reason: str | None = None
    message: str | None = None
    retry_after: int | None = None
    seconds: float | None = None
    after: int = 0
    bytes_per_second: float | None = None
    behind: int = 1

    verb: str | None = None
    kind: str | None = attrs.field(default=None, converter=_kind_text)
    namespace: str | None = None
    name: str | None = None
    user_agent: str | None = None
    skip: int = 0
    every: int = 1
    times: int | None = None
    probability: float = 1.0

    def __attrs_post_init__(self) -> None:
        _check_selection(self)
        _check_effect(self)

    # -- the faults --------------------------------------------------------------------------

    @classmethod
    def answer(
        cls,
        status: int,
        *,
        retry_after: int | None = None,
        reason: str | None = None,
        message: str | None = None,
        **when: Unpack[When],
    ) -> FaultRule:
        """Answer with an error instead of carrying the request out.

        Args:
            status: the HTTP status: 409 for a conflict, 410 for expired history, 401 for an
                expired token, 429, 500, 503, …
            retry_after: seconds to tell the client to wait.
            reason: of the ``Status``; default: what goes with the HTTP status.
            message: of the ``Status``; default: as Kubernetes words it.
            when: see the class.

        Raises:
            ValueError: a value out of its range; so do all the other methods.
        """
        return cls(
            action="answer",
            status=status,
            retry_after=retry_after,
            reason=reason,
            message=message,
            **when,
        )

    @classmethod
    def drop(cls, **when: Unpack[When]) -> FaultRule:
        """Cut the connection; the request is not carried out."""
        return cls(action="drop", **when)

    @classmethod
    def lose(cls, **when: Unpack[When]) -> FaultRule:
        """Carry the request out, then cut the connection: the client cannot know that it was."""
        return cls(action="lose", **when)

    @classmethod
    def cut(cls, after: int, **when: Unpack[When]) -> FaultRule:
        """Cut the connection when ``after`` bytes of the answer were sent, a watch's too."""
        return cls(action="cut", after=after, **when)

    @classmethod
    def delay(cls, seconds: float, **when: Unpack[When]) -> FaultRule:
        """Carry the request out ``seconds`` later; every event of a watch comes that much later."""
        return cls(action="delay", seconds=seconds, **when)

    @classmethod
    def hold(cls, seconds: float, **when: Unpack[When]) -> FaultRule:
        """Carry the request out at once, and answer ``seconds`` later. Not for watches."""
        return cls(action="hold", seconds=seconds, **when)

    @classmethod
    def slow(cls, bytes_per_second: float, **when: Unpack[When]) -> FaultRule:
        """Send the answer no faster than this, as to a slow reader."""
        return cls(action="slow", bytes_per_second=bytes_per_second, **when)

    @classmethod
    def stall(
        cls, *, after: int = 0, seconds: float | None = None, **when: Unpack[When]
    ) -> FaultRule:
        """Send nothing while the connection stays open.

        A watch goes silent when it has sent ``after`` events; any other request is not even begun.

        Args:
            after: the number of events of a watch that are sent before.
            seconds: how long; default None, until the faults are cleared or the client gives up.
            when: see the class.
        """
        return cls(action="stall", after=after, seconds=seconds, **when)

    @classmethod
    def duplicate(cls, **when: Unpack[When]) -> FaultRule:
        """Carry the request out twice and answer with the second result.

        As a load balancer does that repeats a request whose answer it lost. Not for watches.
        """
        return cls(action="duplicate", **when)

    @classmethod
    def stale(cls, behind: int, **when: Unpack[When]) -> FaultRule:
        """Answer reads from a cache that lags ``behind`` changes of the kind.

        As an API server does whose watch cache lags behind that of another replica. It applies to
        reads that accept any state: lists and gets with ``resourceVersion=0``, and watches without
        a version. A version that the client names is always reached, and a watch sends everything
        that follows. The embedded server only.
        """
        return cls(action="stale", behind=behind, **when)

    @classmethod
    def end_watch(
        cls,
        status: int | None = None,
        *,
        after: int = 0,
        message: str | None = None,
        **when: Unpack[When],
    ) -> FaultRule:
        """End a watch after ``after`` events, with an ERROR event of this status or without error.

        Args:
            status: 410 for history that was compacted during the watch; default None, no error.
            after: the number of events before the end.
            message: of the ``Status``; default: as Kubernetes words it.
            when: see the class; the verb is ``watch``.
        """
        when.setdefault("verb", "watch")
        return cls(action="end_watch", status=status, after=after, message=message, **when)

    # -- matching ----------------------------------------------------------------------------

    @property
    def is_gradual(self) -> bool:
        """Whether it only slows a request down, so that another rule may apply as well."""
        return self.action in _GRADUAL

    def matches(self, facts: RequestFacts) -> bool:
        """Whether the rule selects this request."""
        return (
            self.verb in (None, facts.verb)
            and (self.action in _WATCHES.get(facts.verb, _OTHERS))
            and _fits(self.namespace, facts.namespace)
            and _fits(self.name, facts.name)
            and (self.user_agent is None or self.user_agent in facts.user_agent)
            and (self.kind is None or _is_kind(self.kind, facts))
        )

    def __repr__(self) -> str:
        given = []
        for field in attrs.fields(FaultRule):
            value = getattr(self, field.name)
            if field.name == "action" or value == field.default:
                continue
            if self.action == "end_watch" and (field.name, value) == ("verb", "watch"):
                continue
            is_first = field.name == _FIRST.get(self.action)
            given.append(repr(value) if is_first else f"{field.name}={value!r}")
        if self.action == "stale" and self.behind == 1:
            given.insert(0, "1")
        if self.action == "cut" and not self.after:
            given.insert(0, "0")
        return f"FaultRule.{self.action}({', '.join(given)})"


def combined(rules: Iterable[FaultRule]) -> dict[str, FaultRule]:
    """The rules of one request by action; those that only slow it down add up."""
    found: dict[str, FaultRule] = {}
    for rule in rules:
        other = found.get(rule.action)
        if other is not None and rule.seconds and other.seconds:
            rule = attrs.evolve(rule, seconds=rule.seconds + other.seconds)
        elif other is not None and rule.bytes_per_second and other.bytes_per_second:
            rate = 1 / (1 / rule.bytes_per_second + 1 / other.bytes_per_second)
            rule = attrs.evolve(rule, bytes_per_second=rate)
        found[rule.action] = rule
    return found


_FIRST: Final = {
    "answer": "status",
    "cut": "after",
    "delay": "seconds",
    "hold": "seconds",
    "slow": "bytes_per_second",
    "stale": "behind",
    "end_watch": "status",
}
_OTHERS: Final = frozenset(
    {"answer", "drop", "lose", "cut", "delay", "hold", "slow", "stall", "duplicate", "stale"}
)
_WATCHES: Final = {
    "watch": frozenset({"answer", "drop", "cut", "delay", "slow", "stall", "stale", "end_watch"})
}


def _fits(pattern: str | None, value: str) -> bool:
    return pattern is None or fnmatchcase(value, pattern)


def _is_kind(wanted: str, facts: RequestFacts) -> bool:
    plural, dot, group = wanted.partition(".")
    if dot:
        return (plural, group) == (facts.plural, facts.group)
    name = wanted.lower()
    # A proxy sees only paths: guess the plural by the rules of the Go tools.
    is_named = name == facts.kind.lower() if facts.kind else facts.plural in _plurals(name)
    return is_named or name == facts.plural


def _plurals(singular: str) -> tuple[str, ...]:
    if singular.endswith(("s", "x", "ch", "sh")):
        return (singular, f"{singular}es")
    if singular.endswith("y"):
        return (f"{singular[:-1]}ies", f"{singular}s")
    return (f"{singular}s",)


def _check_selection(rule: FaultRule) -> None:
    if rule.verb is not None and rule.verb not in VERBS:
        raise ValueError(f"verb={rule.verb!r}: use one of {', '.join(VERBS)}")
    if rule.verb is not None and rule.action not in _WATCHES.get(rule.verb, _OTHERS):
        raise ValueError(f"{rule.action} cannot apply to a request with the verb {rule.verb}")
    for name in ("kind", "namespace", "name", "user_agent"):
        value = getattr(rule, name)
        if value is not None and (not isinstance(value, str) or not value):
            raise ValueError(
                f"{name}={value!r}: give a string that is not empty, or leave it out for any"
            )
    if not _is_count(rule.skip, 0):
        raise ValueError(f"skip={rule.skip!r}: use 0 or more requests")
    if not _is_count(rule.every, 1):
        raise ValueError(f"every={rule.every!r}: use 1 for each request, 2 for every second, …")
    if rule.times is not None and not _is_count(rule.times, 1):
        raise ValueError(f"times={rule.times!r}: use 1 or more, or None for no limit")
    if not 0 < rule.probability <= 1:
        raise ValueError(f"probability={rule.probability!r}: use a number above 0 and up to 1")


def _check_effect(rule: FaultRule) -> None:
    status = rule.status
    if status is not None and not (_is_count(status, 400) and status <= 599):
        raise ValueError(f"status={status} is not an error: use 400 to 599")
    if rule.retry_after is not None and not _is_count(rule.retry_after, 0):
        raise ValueError(f"retry_after={rule.retry_after!r}: use 0 or more whole seconds")
    if rule.seconds is not None and not 0 < rule.seconds < math.inf:
        raise ValueError(f"seconds={rule.seconds!r}: use a finite number above 0")
    if not _is_count(rule.after, 0):
        raise ValueError(f"after={rule.after!r}: use 0 or more")
    if rule.bytes_per_second is not None and not 0 < rule.bytes_per_second < math.inf:
        raise ValueError(f"bytes_per_second={rule.bytes_per_second!r}: use a finite number above 0")
    if not _is_count(rule.behind, 1):
        raise ValueError(f"behind={rule.behind!r}: use 1 or more changes")


def _is_count(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _as_tuple(rules: Iterable[FaultRule] | FaultRule) -> tuple[FaultRule, ...]:
    if isinstance(rules, FaultRule):
        raise TypeError(f"{rules!r} is not a list: give [{rules!r}]")
    made: tuple[Any, ...] = tuple(rules)
    for rule in made:
        if not isinstance(rule, FaultRule):
            raise TypeError(f"{rule!r} is not a FaultRule: give one such as FaultRule.answer(503)")
    return made


@final
@attrs.frozen(repr=False)
class FaultSchedule:
    """Fault rules that apply together, and the seed of their random choices.

    The rules are matched in order. Those that only slow a request down (``delay``, ``hold``,
    ``slow``) add up; of the others the first that applies decides, and later ones do not count the
    request. A schedule that is applied again starts over: requests in the same order get the same
    faults.

    The repr makes the same schedule again: print it where a test fails.

    >>> FaultSchedule([FaultRule.drop(verb="list", probability=0.2)], seed=7)
    FaultSchedule([FaultRule.drop(verb='list', probability=0.2)], seed=7)
    """

    rules: tuple[FaultRule, ...] = attrs.field(default=(), converter=_as_tuple)
    seed: int = attrs.field(default=0, kw_only=True)

    def __iter__(self) -> Iterator[FaultRule]:
        return iter(self.rules)

    def __repr__(self) -> str:
        seed = f", seed={self.seed}" if self.seed else ""
        return f"FaultSchedule([{', '.join(map(repr, self.rules))}]{seed})"


@attrs.define
class _ActiveRule:
    rule: FaultRule
    chance: random.Random
    seen: int = 0
    fired: int = 0

    def fires(self) -> bool:
        rule = self.rule
        self.seen += 1
        number = self.seen - rule.skip
        if number < 1 or number % rule.every or (rule.probability < 1 and not self._is_chosen()):
            return False
        self.fired += 1
        return True

    @property
    def is_spent(self) -> bool:
        return self.rule.times is not None and self.fired >= self.rule.times

    def _is_chosen(self) -> bool:
        return self.chance.random() < self.rule.probability


@final
class ActiveFaults:
    """The active rules and how often each has applied. For use in the server's event loop only."""

    def __init__(self) -> None:
        """No rules."""
        self._entries: list[_ActiveRule] = []
        self._added = 0

    def add(self, schedule: FaultSchedule) -> None:
        """Add rules after the present ones."""
        for rule in schedule:
            chance = random.Random(f"{schedule.seed}/{self._added}")
            self._entries.append(_ActiveRule(rule, chance))
            self._added += 1

    def clear(self) -> None:
        """Remove all rules."""
        self._entries.clear()
        self._added = 0

    @property
    def asks_for_names(self) -> bool:
        """Whether any rule selects by object name."""
        return any(entry.rule.name is not None for entry in self._entries)

    def take(self, facts: RequestFacts) -> tuple[FaultRule, ...]:
        """The rules that apply to this request; each counts it."""
        if not self._entries:
            return ()
        taken: list[FaultRule] = []
        is_decided = False
        for entry in list(self._entries):
            rule = entry.rule
            if (is_decided and not rule.is_gradual) or not rule.matches(facts):
                continue
            if entry.fires():
                taken.append(rule)
                is_decided = is_decided or not rule.is_gradual
            if entry.is_spent:
                self._entries.remove(entry)
        return tuple(taken)
