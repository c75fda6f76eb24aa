"""A cache whose namespaces a selector chooses, while they come and go and watches lag.

One thread, informers that step when told to. Handlers get what the local copies hold, real
deletions as such, and in the end all objects of the namespaces that match.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from appsdk_operator import client as c
from appsdk_operator.cache import Cache, CachedClient, NotCachedError, NotFollowedError
from appsdk_operator.cache._cache.kind_cache import KindCache
from appsdk_operator.cache._informer.informer import Informer
from appsdk_operator.resource import (
    Kind,
    LabelSelector,
    ListPage,
    MutableObject,
    NamespaceSelector,
    Object,
    is_older_version,
    kinds,
)
from appsdk_operator.runtime import ManualClock, Metrics, StopSignal
from tests.cache.conftest import THING, BatchRecorder, bookmark, error_line, line, page, thing
from tests.cache.test_namespace_changes import NoThreads, Watch, told_by
from tests.hypothesis_profiles import scaled

NAMESPACE = kinds.core.v1.Namespace
SPACES = ("team-a", "team-b", "other")
TEAMS = NamespaceSelector(["team-*"])
LABELLED = NamespaceSelector(labels=LabelSelector.parse("team=a"))


class Server:
    """Namespaces and the objects in them; watches deliver as much as the test says."""

    def __init__(self) -> None:
        self.revision = 10
        self.objects: dict[tuple[Kind, str, str], Object] = {}
        self.terminating: set[str] = set()
        self.deleted: set[str] = set()
        self.history: list[tuple[int, str, Object]] = []
        self.budget = 0
        self.expires = False
        self.forbidden: set[str] = set()

    def put(self, kind: Kind, name: str, *, namespace: str = "", **more: Any) -> Object:
        before = self.objects.get((kind, namespace, name))
        self.revision += 1
        uid = before.uid if before else f"u{self.revision}"
        made = thing(name, self.revision, kind=kind, namespace=namespace, uid=uid, **more)
        self.objects[kind, namespace, name] = made
        self.history.append((self.revision, "MODIFIED" if before else "ADDED", made))
        return made

    def update(self, obj: MutableObject) -> Object:
        return self.put(obj.kind, obj.name, namespace=obj.namespace)

    def take(self, kind: Kind, name: str, *, namespace: str = "") -> None:
        before = self.objects.pop((kind, namespace, name), None)
        if before is not None:
            self.revision += 1
            self.deleted.add(before.uid)
            gone = thing(name, self.revision, kind=kind, namespace=namespace, uid=before.uid)
            self.history.append((self.revision, "DELETED", gone))

    def has(self, kind: Kind, name: str, namespace: str = "") -> bool:
        return (kind, namespace, name) in self.objects

    def things_in(self, namespace: str) -> list[Object]:
        return [
            o for (kind, space, _), o in self.objects.items() if (kind, space) == (THING, namespace)
        ]

    def list_page(self, kind: Kind, *, namespace: str, **_: Any) -> ListPage:
        if namespace in self.forbidden:
            raise c.error_from_status({"code": 403, "reason": "Forbidden"})
        found = [
            obj
            for (each, space, _), obj in self.objects.items()
            if each == kind and namespace in ("", space)
        ]
        return page(*found, version=self.revision)

    def watch(
        self,
        kind: Kind,
        *,
        namespace: str,
        resource_version: str,
        send_initial_events: bool,
        **_: Any,
    ) -> Watch:
        if send_initial_events and namespace not in self.forbidden:
            raise c.error_from_status({"code": 422})
        if namespace in self.forbidden:
            raise c.error_from_status({"code": 403, "reason": "Forbidden"})
        return Watch(list(self._lines(kind, int(resource_version), namespace)))

    def _lines(self, kind: Kind, position: int, namespace: str) -> Iterator[bytes]:
        if self.expires:
            yield error_line(410, "Expired")
            return
        for revision, what, obj in self.history:
            if revision > position and obj.kind == kind and namespace in ("", obj.namespace):
                if self.budget <= 0:
                    return
                self.budget -= 1
                yield line(what, obj)
        yield bookmark(self.revision)


def test_the_last_deletion_ends_a_namespace_whose_own_end_came_first() -> None:
    followed = Followed()
    followed.begin(selector=TEAMS)
    followed.create_or_label("team-a", None)
    followed.write("team-a", "a")
    followed.step_all()
    followed.end("team-a")
    followed.step(0, 10)
    assert followed.follower.selected.watched == {"team-a"}
    followed.step(1, 10)
    assert followed.follower.selected.watched == set()
    followed.only_what_ceased_to_match_is_given_up()
    followed.teardown()


def test_what_was_written_to_a_namespace_of_a_name_that_has_ended_is_not_denied() -> None:
    followed = Followed()
    followed.begin(selector=TEAMS)
    followed.create_or_label("team-a", None)
    followed.write("team-a", "a")
    followed.step_all()
    followed.end("team-a")
    followed.step_all()
    with pytest.raises(c.NotFound):
        followed.client.get(THING, "a", namespace="team-a")
    followed.create_or_label("team-a", None)
    followed.write("team-a", "a", is_own=True)
    with pytest.raises(NotFollowedError, match="or not yet"):
        followed.client.get(THING, "a", namespace="team-a")
    with pytest.raises(NotFollowedError):
        followed.client.list(THING, namespace="team-a")
    followed.step_all()
    assert followed.client.get(THING, "a", namespace="team-a") == followed.written["team-a", "a"]
    followed.end("team-a")
    followed.step_all()
    with pytest.raises(c.NotFound):
        followed.client.get(THING, "a", namespace="team-a")
    followed.teardown()


def test_a_namespace_that_joins_and_cannot_be_listed_does_not_hold_up_the_others() -> None:
    followed = Followed()
    followed.begin(selector=TEAMS)
    followed.create_or_label("team-a", None)
    followed.write("team-a", "a")
    followed.step(0, 10)
    followed.step(0, 10)
    followed.step(1, 10)
    followed.step(1, 10)
    cache = followed.cache
    assert cache.has_synced
    followed.forbid("team-b")
    followed.create_or_label("team-b", None)
    followed.write("team-b", "b")
    followed.step(0, 10)
    followed.step(2, 10)
    late = cache.add_event_handler(THING, BatchRecorder())
    assert cache.has_synced
    assert followed.registration.has_synced
    assert late.has_synced
    health = cache.health()
    assert health.is_ready
    assert "in team-b: not synced" in health.note
    assert "403 Forbidden" in health.note
    assert [obj.name for obj in cache.list(THING)] == ["a"]
    with pytest.raises(NotCachedError, match="403 Forbidden"):
        cache.list(THING, namespace="team-b")
    followed.allow()
    followed.step_all()
    assert [obj.name for obj in cache.list(THING)] == ["a", "b"]
    assert not cache.health().note
    followed.teardown()


def test_nothing_has_synced_while_the_first_namespaces_begin_to_be_followed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    followed = Followed()
    followed.begin(selector=TEAMS)
    followed.create_or_label("team-a", None)
    follow, seen = KindCache.follow, []

    def watched(self: KindCache, *args: Any, **options: Any) -> None:
        seen.append((followed.cache.has_synced, followed.registration.has_synced))
        follow(self, *args, **options)

    monkeypatch.setattr(KindCache, "follow", watched)
    followed.step_all()
    assert seen[0] == (False, False)
    followed.teardown()


class Followed(RuleBasedStateMachine):
    @initialize(selector=st.sampled_from([TEAMS, LABELLED]))
    def begin(self, selector: NamespaceSelector) -> None:
        self.server = Server()
        self.selector = selector
        self.clock = ManualClock()
        # The names whose namespaces ceased to match, ever, also by one that was made anew.
        self.ceased: set[str] = set()
        self.matching: set[str] = set()
        self.matched: set[str] = set()
        self.start()

    @rule()
    def start(self) -> None:
        """A process begins, after another one or not."""
        self.cache = Cache(
            self.server,  # type: ignore[arg-type]
            namespaces=self.selector,
            clock=self.clock,
            metrics=Metrics(),
            on_error=lambda _: None,
        )
        self.cache._stop = StopSignal(clock=self.clock)
        self.cache._threads = NoThreads()  # type: ignore[assignment]
        self.client = CachedClient(self.server, self.cache)  # type: ignore[arg-type]
        self.written: dict[tuple[str, str], Object] = {}
        self.cache.add(THING)
        self.recorder = BatchRecorder()
        self.registration = self.cache.add_event_handler(THING, self.recorder)
        self.seen = 0
        self.reads = self.was_complete = False
        assert self.cache._follower is not None
        self.follower = self.cache._follower

    @rule(name=st.sampled_from(SPACES), labels=st.sampled_from([None, {"team": "a"}]))
    def create_or_label(self, name: str, labels: dict[str, str] | None) -> None:
        self.server.put(NAMESPACE, name, labels=labels)
        if self.selector.matches(name, labels):
            self.matching.add(name)
            self.matched.add(name)
        elif name in self.matched:
            self.matching.discard(name)
            self.ceased.add(name)

    @rule(name=st.sampled_from(SPACES))
    def terminate(self, name: str) -> None:
        if self.server.has(NAMESPACE, name):
            self.server.terminating.add(name)

    @rule(name=st.sampled_from(SPACES))
    def finish(self, name: str) -> None:
        """Kubernetes removes a namespace once it is empty."""
        if name in self.server.terminating and not self.server.things_in(name):
            self.server.terminating.discard(name)
            self.server.take(NAMESPACE, name)
            self.matching.discard(name)

    @rule(space=st.sampled_from(SPACES), name=st.sampled_from(["a", "b"]), is_own=st.booleans())
    def write(self, space: str, name: str, is_own: bool = False) -> None:
        if not self.server.has(NAMESPACE, space):
            return
        if space not in self.server.terminating or self.server.has(THING, name, space):
            obj = MutableObject.new(THING, name, namespace=space)
            if is_own:
                self.written[space, name] = self.client.update(obj)
            else:
                self.server.update(obj)

    @rule(space=st.sampled_from(SPACES), name=st.sampled_from(["a", "b"]))
    def delete(self, space: str, name: str) -> None:
        self.server.take(THING, name, namespace=space)

    @rule(space=st.sampled_from(SPACES))
    def end(self, space: str) -> None:
        """All of it goes before any watch shows it."""
        self.terminate(space)
        for each in self.server.things_in(space):
            self.server.take(THING, each.name, namespace=space)
        self.finish(space)

    @rule(space=st.sampled_from(SPACES), is_seen=st.booleans())
    def come_again(self, space: str, is_seen: bool) -> None:
        """A namespace is made anew, and written to."""
        if is_seen:
            self.step_all()
        self.end(space)
        if is_seen:
            self.step_all()
        self.create_or_label(space, {"team": "a"})
        self.write(space, "a", is_own=True)

    @rule(space=st.sampled_from(SPACES))
    def forbid(self, space: str) -> None:
        self.server.forbidden.add(space)

    @rule()
    def allow(self) -> None:
        self.server.forbidden.clear()

    def active(self) -> list[tuple[Informer, StopSignal]]:
        assert self.cache._stop is not None
        things = self.cache._kind_caches[THING].routing.active
        return [
            (self.follower.informer, self.cache._stop),
            *((each.informer, each.stop) for each in things if each.stop is not None),
        ]

    @rule(number=st.integers(0, 5), budget=st.integers(0, 3), expires=st.booleans())
    def step(self, number: int, budget: int, expires: bool = False) -> None:
        living = self.active()
        informer, stop = living[number % len(living)]
        self.server.budget, self.server.expires = budget, expires
        self.clock.advance(informer.step(stop))
        self.server.expires = False
        self.look()

    def step_all(self) -> None:
        for _ in range(5):
            for number in range(len(self.active())):
                self.step(number, 100)

    def look(self) -> None:
        """What the follower's thread does, once it is woken."""
        if self.follower._has_news:
            self.follower._has_news = False
            self.cache.follow_namespaces()

    @rule()
    def wait_and_look(self) -> None:
        """What the follower's thread does after a while, where namespaces have ended."""
        if self.follower._bells:
            self.clock.advance(30.0)
            self.cache.follow_namespaces()

    @invariant()
    def handlers_know_what_the_local_copies_hold(self) -> None:
        held = {
            (o.namespace, o.name): (o.uid, o.resource_version)
            for informer in self.cache.informers(THING)
            for o in informer.store.list()
        }
        assert told_by(self.recorder.events, self.server.deleted) == held

    @invariant()
    def no_read_is_older_than_what_was_written(self) -> None:
        for (space, name), written in self.written.items():
            try:
                found = self.client.get(THING, name, namespace=space)
            except NotCachedError:
                continue
            except c.NotFound:
                assert written.uid in self.server.deleted
            else:
                assert not is_older_version(found.resource_version, written.resource_version)

    @invariant()
    def only_what_ceased_to_match_is_given_up(self) -> None:
        for event in self.recorder.events[self.seen :]:
            assert not event.is_unfollowed or event.key.namespace in self.ceased, event
        self.seen = len(self.recorder.events)

    @invariant()
    def before_the_namespaces_are_known_nothing_is_read_and_nothing_has_synced(self) -> None:
        if not self.follower.informer.has_synced:
            assert not self.cache.has_synced
            assert not self.registration.has_synced
            for namespace in ("", "team-a"):
                with pytest.raises(NotCachedError):
                    self.cache.list(THING, namespace=namespace)

    @invariant()
    def once_all_could_be_read_they_can_be_read_for_ever(self) -> None:
        self.reads = self.reads or self.cache.has_synced
        self.was_complete = self.was_complete or self.registration.has_synced
        assert self.registration.has_synced is self.was_complete
        assert self.cache.has_synced is self.reads
        if self.reads:
            found = self.cache.list(THING)
            assert len({obj.key for obj in found}) == len(found)

    def teardown(self) -> None:
        if not hasattr(self, "cache"):
            return
        self.allow()
        for _ in range(12):
            self.step_all()
        assert self.cache.has_synced
        assert self.registration.has_synced
        expected = {
            (obj.namespace, obj.name): (obj.uid, obj.resource_version)
            for space in self.matching
            for obj in self.server.things_in(space)
        }
        assert told_by(self.recorder.events, self.server.deleted) == expected
        assert {(o.namespace, o.name) for o in self.cache.list(THING)} == set(expected)
        assert self.follower.selected.watched == self.matching
        assert not self.follower._bells
        for space in set(SPACES) - self.matching:
            if self.follower.has_ended(space):
                assert self.cache.list(THING, namespace=space) == []
            else:
                with pytest.raises(NotFollowedError):
                    self.cache.list(THING, namespace=space)


@pytest.mark.hypothesis
def test_whatever_namespaces_come_and_go_those_that_match_are_followed_to_their_end() -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        Followed,
        settings=settings(
            max_examples=scaled(200),
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def _with_one_namespace() -> Followed:
    followed = Followed()
    followed.begin(selector=TEAMS)
    followed.create_or_label("team-a", None)
    return followed


def test_a_deleted_namespace_that_may_no_longer_be_read_ends_and_its_objects_with_it() -> None:
    followed = _with_one_namespace()
    followed.write("team-a", "a")
    followed.step_all()
    # The role binding goes before the objects do.
    followed.forbid("team-a")
    followed.server.expires = True
    followed.step(1, 10, expires=True)
    followed.step(1, 10)
    followed.end("team-a")
    followed.step(0, 10)
    followed.step(1, 10)
    followed.wait_and_look()
    assert followed.follower.selected.watched == set()
    last = followed.recorder.events[-1]
    assert (last.key.name, last.is_unfollowed) == ("a", False)
    assert last.is_final_state_unknown
    assert followed.cache.health().is_ready
    followed.teardown()


def test_a_namespace_that_ends_before_it_could_be_listed_keeps_nobody_waiting() -> None:
    followed = _with_one_namespace()
    followed.write("team-a", "a")
    followed.forbid("team-a")
    followed.step_all()
    assert not followed.cache.has_synced
    followed.end("team-a")
    followed.step_all()
    followed.wait_and_look()
    assert followed.cache.has_synced
    assert followed.registration.has_synced
    assert followed.cache.health().is_ready
    followed.teardown()
