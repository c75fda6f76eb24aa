"""Reads after own writes, with writes of others and a watch that lags.

One thread and a scripted informer: after each step everything that can be read is at least as new
as what was written, and what was deleted stays so; in the end reads are what the server has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Self

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from appsdk_operator import client as c
from appsdk_operator.cache import Cache, CachedClient, CacheOptions
from appsdk_operator.cache._client import cached_client, overlay
from appsdk_operator.resource import ListPage, MutableObject, Object, ObjectKey, encode_json
from appsdk_operator.runtime import ManualClock, Metrics, StopSignal
from tests.cache.conftest import THING, bookmark, error_line, line, page
from tests.hypothesis_profiles import scaled

EXAMPLES = 250
NAMES = ("a", "b", "c")
LABELS = ("yes", "no")


class Model:
    """A server whose watches deliver as much as the test says; also a client."""

    def __init__(self) -> None:
        self.revision = 10
        self.uids = 0
        self.objects: dict[str, Object] = {}
        self.history: list[tuple[int, Object | None, Object | None]] = []
        self.budget = 0
        """How many changes the next watch brings."""
        self.expires = False
        self.before_list: Callable[[], object] = lambda: None
        self.bookmarks = False

    def get(self, kind: Any, name: str, **_: Any) -> Object:
        return self._one(name)

    # Writing.

    def create(self, obj: MutableObject, **_: Any) -> Object:
        if obj.name in self.objects:
            raise c.AlreadyExists("exists", status=409, reason="AlreadyExists")
        self.uids += 1
        data = {**obj.data, "metadata": {**obj.metadata, "uid": f"u{self.uids}"}}
        return self._write(obj.name, data)

    def update(self, obj: Object | MutableObject, **_: Any) -> Object:
        self._one(obj.name)
        return self._write(obj.name, obj.to_dict())

    def delete(self, kind: Any, name: str, *, uid: str = "", **_: Any) -> Object | None:
        now = self._one(name)
        if uid and now.uid != uid:
            raise c.Conflict("uid", status=409, reason="Conflict")
        if now.finalizers:
            data = now.to_dict()
            data["metadata"]["deletionTimestamp"] = "2024-01-01T00:00:00Z"
            return self._write(name, data)
        self._gone(now)
        return None

    def delete_collection(self, kind: Any, *, label_selector: Any = None, **_: Any) -> None:
        for name, obj in list(self.objects.items()):
            if label_selector is None or obj.labels.get("on") == label_selector["on"]:
                self.delete(kind, name)

    def _one(self, name: str) -> Object:
        if name not in self.objects:
            raise c.NotFound("gone", status=404, reason="NotFound")
        return self.objects[name]

    def _write(self, name: str, data: dict[str, Any]) -> Object:
        before = self.objects.get(name)
        metadata = data["metadata"]
        if before is not None and before.is_deleting and not metadata.get("finalizers"):
            self._gone(before)
            metadata["resourceVersion"] = str(self.revision)
            return Object.from_json(THING, encode_json(data))
        self.revision += 1
        metadata["resourceVersion"] = str(self.revision)
        made = Object.from_json(THING, encode_json(data))
        self.objects[name] = made
        self.history.append((self.revision, before, made))
        return made

    def _gone(self, obj: Object) -> None:
        self.revision += 1
        del self.objects[obj.name]
        self.history.append((self.revision, obj, None))

    # Reading.

    def list_page(self, kind: Any, *, label_selector: str | None = None, **_: Any) -> ListPage:
        self.before_list()
        found = [o for o in self.objects.values() if _is_selected(o, label_selector)]
        return page(*found, version=self.revision)

    def watch(
        self,
        kind: Any,
        *,
        resource_version: str,
        send_initial_events: bool,
        label_selector: str | None = None,
        **_: Any,
    ) -> Any:
        if send_initial_events:
            raise c.error_from_status({"code": 422})
        return Watch(list(self._lines(int(resource_version), label_selector)))

    def _lines(self, position: int, selector: str | None) -> Iterator[bytes]:
        if self.expires:
            yield error_line(410, "Expired")
            return
        for revision, before, after in self.history:
            if revision <= position:
                continue
            if self.budget <= 0:
                return
            self.budget -= 1
            was = before is not None and _is_selected(before, selector)
            if after is not None and _is_selected(after, selector):
                yield line("MODIFIED" if was else "ADDED", after)
            elif was:
                assert before is not None
                data = (after or before).to_dict()
                data["metadata"]["resourceVersion"] = str(revision)
                yield line("DELETED", data)
            elif self.bookmarks:
                yield bookmark(revision)
        if self.bookmarks:
            yield bookmark(self.revision)


def _is_selected(obj: Object, selector: str | None) -> bool:
    return not selector or obj.labels.get("on") == selector.partition("=")[2]


class Watch:
    def __init__(self, lines: list[bytes]) -> None:
        self.lines = lines

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __iter__(self) -> Iterator[list[bytes]]:
        for text in self.lines:
            yield [text]


def draft(name: str, on: str, *, finalizer: bool) -> MutableObject:
    made = MutableObject.new(THING, name, namespace="x")
    made.labels["on"] = on
    if finalizer:
        made.finalizers.append("example.com/f")
    return made


class ReadYourWrites(RuleBasedStateMachine):
    @initialize(selects=st.booleans(), bookmarks=st.booleans())
    def begin(self, selects: bool, bookmarks: bool) -> None:
        self.model = Model()
        self.model.bookmarks = bookmarks
        self.selector = "on=yes" if selects else None
        clock = ManualClock()
        self.stop = StopSignal(clock=clock)
        self.clock = clock
        self.cache = Cache(
            self.model,  # type: ignore[arg-type]
            clock=clock,
            metrics=Metrics(),
            on_error=lambda _: None,
        )
        self.cache.add(
            THING,
            CacheOptions(
                label_selector=self.selector,
                indexes={"on": lambda obj: [obj.labels["on"]], "field:uid": lambda obj: [obj.uid]},
            ),
        )
        self.client = CachedClient(self.model, self.cache)  # type: ignore[arg-type]
        (self.informer,) = self.cache.informers(THING)
        self.written: dict[str, int] = {}
        self.deleted: set[str] = set()
        self.acted: dict[str, int] = {}
        """The server's version after the last write of this client, by name."""
        while not self.informer.has_synced:
            self.step()

    def step(self) -> None:
        self.clock.advance(self.informer.step(self.stop))

    # What happens.

    @rule(name=st.sampled_from(NAMES), on=st.sampled_from(LABELS), finalizer=st.booleans())
    def create(self, name: str, on: str, finalizer: bool) -> None:
        is_shown = name in self.shown()
        try:
            answer = self.client.create(draft(name, on, finalizer=finalizer))
        except c.AlreadyExists:
            if is_shown:
                return
            answer = self.model.objects[name]  # at which the client has looked
        self.wrote(answer)
        self.acts(name)

    @rule(name=st.sampled_from(NAMES), on=st.sampled_from(LABELS), finalizer=st.booleans())
    def update(self, name: str, on: str, finalizer: bool) -> None:
        now = self.model.objects.get(name)
        if now is not None:
            self.wrote(self.client.update(self.changed(now, on, finalizer=finalizer)))
            self.acts(name)

    @rule(name=st.sampled_from(NAMES), exactly=st.booleans())
    def delete(self, name: str, exactly: bool) -> None:
        now = self.model.objects.get(name)
        if now is None:
            return
        shown = self.shown().get(name)
        uid = now.uid if exactly else ""
        answer = self.client.delete(THING, name, namespace="x", uid=uid)
        self.acts(name)
        if answer is not None:
            self.wrote(answer)
        else:
            if exactly or (shown is not None and shown.uid == now.uid):
                self.deleted.add(now.uid)
            if shown is not None:
                self.deleted.add(shown.uid)

    @rule(
        on=st.sampled_from(LABELS) | st.none(),
        recreated=st.lists(st.sampled_from(NAMES), unique=True),
        others=st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from("cudr")), max_size=3),
    )
    def delete_all(
        self, on: str | None, recreated: list[str], others: list[tuple[str, str]]
    ) -> None:
        shown = self.shown()
        selector = {"on": on} if on else None

        def meanwhile() -> None:  # in another thread, before the list that follows a deletion
            self.model.before_list = lambda: None
            for name in recreated:
                self.create(name, "yes", finalizer=False)
            for name, what in others:
                self.somebody_else_writes(name, "yes", what)

        self.model.before_list = meanwhile
        self.client.delete_collection(THING, namespace="x", label_selector=selector)
        self.model.before_list = lambda: None
        self.acts(*NAMES)
        for obj in shown.values():
            now = self.model.objects.get(obj.name)
            if now is None or now.uid != obj.uid:
                self.deleted.add(obj.uid)
            else:
                self.written[obj.name] = int(now.resource_version)

    @rule(name=st.sampled_from(NAMES), on=st.sampled_from(LABELS), what=st.sampled_from("cudr"))
    def somebody_else_writes(self, name: str, on: str, what: str) -> None:
        if what == "r":  # recreates
            for each in "dc":
                self.somebody_else_writes(name, on, each)
        now = self.model.objects.get(name)
        if what == "c" and now is None:
            self.model.create(draft(name, on, finalizer=False))
        elif what == "u" and now is not None:
            self.model.update(self.changed(now, on, finalizer=bool(now.finalizers)))
        elif what == "d" and now is not None:
            self.model.delete(THING, name)

    @rule(
        name=st.sampled_from(NAMES),
        on=st.sampled_from(LABELS),
        meanwhile=st.lists(st.sampled_from(["c", "u", "d", "other", "delete", "deliver"])),
    )
    def update_with_a_late_answer(self, name: str, on: str, meanwhile: list[str]) -> None:
        now = self.model.objects.get(name)
        if now is None:
            return
        answer = self.model.update(self.changed(now, on, finalizer=bool(now.finalizers)))
        for what in meanwhile:
            if what == "deliver":
                self.deliver(1)
            elif what == "delete":
                self.delete(name, True)
            elif what == "other":
                self.create("a" if name == "b" else "b", "yes", False)
            else:
                self.somebody_else_writes(name, "yes", what)
        self.client._note(THING, answer)
        self.acted[name] = max(self.acted.get(name, 0), int(answer.resource_version))
        self.written[name] = max(self.written.get(name, 0), int(answer.resource_version))

    @rule(count=st.integers(0, 3))
    def deliver(self, count: int) -> None:
        self.model.budget = count
        self.step()

    @rule()
    def relist(self) -> None:
        self.model.expires = True
        self.step()
        self.model.expires = False
        self.step()
        self.step()

    @rule(name=st.sampled_from(NAMES))
    def try_without_writing(self, name: str) -> None:
        dry = c.DryRunClient(self.client)
        try:
            dry.create(draft(name, "yes", finalizer=False))
        except c.AlreadyExists:
            pass
        else:
            # The model knows no dry runs: what it made is taken back unseen.
            self.model.history.pop()
            del self.model.objects[name]
            self.model.revision -= 1

    def changed(self, now: Object, on: str, *, finalizer: bool) -> MutableObject:
        made = now.mutable_copy()
        made.labels["on"] = on
        if finalizer and not now.is_deleting:
            made.finalizers[:] = ["example.com/f"]
        elif not finalizer:
            made.finalizers.clear()
        return made

    def wrote(self, obj: Object) -> None:
        if obj.name not in self.model.objects:
            self.deleted.add(obj.uid)
        else:
            self.written[obj.name] = int(obj.resource_version)

    def acts(self, *names: str) -> None:
        self.acted |= dict.fromkeys(names, self.model.revision)

    def key(self, name: str) -> ObjectKey:
        return ObjectKey("x", name)

    def shown(self) -> dict[str, Object]:
        return {obj.name: obj for obj in self.client.list(THING)}

    # What must be so.

    @invariant()
    def reads_are_never_older_than_writes(self) -> None:
        shown = self.shown()
        for name in NAMES:
            try:
                got = self.client.get(THING, name, namespace="x")
            except c.NotFound:
                got = None
            assert shown.get(name) == got
            if got is not None:
                assert int(got.resource_version) >= self.written.get(name, 0)
                assert got.uid not in self.deleted
                assert _is_selected(got, self.selector)
            elif int(self.informer.resource_version) < self.written.get(name, 0):
                now = self.model.objects.get(name)
                is_own = now is not None and int(now.resource_version) == self.written[name]
                assert not (is_own and _is_selected(now, self.selector)), now

    @invariant()
    def what_others_write_shows_once_the_cache_has_the_own_writes(self) -> None:
        for name in NAMES:
            if int(self.informer.resource_version) < self.acted.get(name, 0):
                continue  # the cache lags
            stored = self.informer.store.get(name, "x")
            if stored is None or stored.uid not in self.deleted:
                assert self.shown().get(name) == stored

    @invariant()
    def all_ways_of_reading_agree(self) -> None:
        shown = self.shown()
        for on in LABELS:
            expected = [o for _, o in sorted(shown.items()) if o.labels["on"] == on]
            assert list(self.client.list(THING, label_selector={"on": on})) == expected
            assert self.client.by_index(THING, "on", on) == expected
        for obj in shown.values():
            assert list(self.client.list(THING, field_selector={"uid": obj.uid})) == [obj]

    @precondition(lambda self: self.informer.resource_version == str(self.model.revision))
    @invariant()
    def what_was_seen_is_not_laid_over(self) -> None:
        assert self.client._overlay.counts().get(THING, 0) == 0

    def teardown(self) -> None:
        if not hasattr(self, "model"):
            return
        self.model.bookmarks = True
        for _ in range(20):
            self.model.budget = 100
            self.step()
        assert self.informer.resource_version == str(self.model.revision)
        expected = {n: o for n, o in self.model.objects.items() if _is_selected(o, self.selector)}
        assert self.shown() == expected
        self.what_was_seen_is_not_laid_over()


@pytest.mark.hypothesis
def test_reads_are_never_older_than_own_writes_and_converge():
    run_state_machine_as_test(
        ReadYourWrites,
        settings=settings(
            max_examples=scaled(EXAMPLES),
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


# Histories that went wrong once, or would without a word about them.


def history(*, selects: bool = False) -> ReadYourWrites:
    made = ReadYourWrites()
    made.begin(selects, False)
    return made


def brings_all(machine: ReadYourWrites) -> None:
    """One change at a time; nothing that was deleted shows in between."""
    while machine.informer.resource_version != str(machine.model.revision):
        machine.deliver(1)
        machine.reads_are_never_older_than_writes()
    machine.teardown()


def test_two_deletions_of_one_name_hide_both_objects():
    """The first known to the cache, the second by its uid only."""
    machine = history()
    machine.create("a", "yes", False)
    brings_all(machine)
    machine.delete("a", False)
    machine.somebody_else_writes("a", "yes", "c")
    machine.delete("a", True)
    assert machine.shown() == {}
    brings_all(machine)
    assert machine.deleted == {"u1", "u2"}


def test_a_deletion_by_uid_of_an_unseen_object_ends_what_was_written_before_too():
    machine = history()
    machine.create("a", "yes", False)
    machine.somebody_else_writes("a", "yes", "d")
    machine.somebody_else_writes("a", "yes", "c")
    machine.delete("a", True)
    assert machine.deleted == {"u1", "u2"}
    assert machine.shown() == {}
    brings_all(machine)


def test_an_object_that_left_the_selection_and_came_back_before_it_was_deleted_stays_so():
    machine = history(selects=True)
    machine.create("a", "yes", False)
    brings_all(machine)
    machine.somebody_else_writes("a", "no", "u")
    machine.somebody_else_writes("a", "yes", "u")
    machine.delete("a", False)
    assert machine.deleted == {"u1"}
    assert machine.key("a") in machine.client._overlay.keys(THING)
    brings_all(machine)
    assert machine.key("a") not in machine.client._overlay.keys(THING)


def test_the_answer_to_a_creation_says_nothing_of_what_was_deleted_while_it_was_under_way():
    machine = history()
    create = machine.model.create

    def slow(obj: MutableObject, **options: Any) -> Object:
        made = create(obj)
        other = create(draft("b", "yes", finalizer=False))
        machine.client.delete(THING, "b", namespace="x", uid=other.uid)
        machine.deleted.add(other.uid)
        return made

    machine.model.create = slow  # type: ignore[method-assign]
    machine.create("a", "yes", False)
    machine.model.create = create  # type: ignore[method-assign]
    brings_all(machine)
    assert set(machine.shown()) == {"a"}


# Defects, which the machine has to find.


def forgets_nothing(self: Any, key: Any, informer: Any) -> bool:
    return False


def hides_all_of_the_name(written: Any, stored: Any, *, is_behind: bool = True) -> bool:
    return stored is None or is_behind or any(each.is_deleted for each in written)


def hides_what_is_written_only(written: Any, stored: Any, *, is_behind: bool = True) -> bool:
    return stored is None


def merges_names(self: Any, kind: Any, key: Any, written: Any, **options: Any) -> None:
    before = self._written.get(kind, {}).get(key, ())
    if written.is_deleted and before:
        written = msgspec.structs.replace(written, uid=before[0].uid)
    _add(self, kind, key, written, **options)


def resolves_to_what_was_written(written: Any, key: Any, informer: Any) -> Any:
    newest = max(written, key=lambda each: int(each.version or 0))
    return newest.object or _resolved(written, key, informer)


_add = overlay.Overlay.add
_resolved = overlay.resolved
HIDES_ALL = (overlay, "hides", hides_all_of_the_name)
SHOWS_WRITTEN = (overlay, "resolved", resolves_to_what_was_written)


def is_always_behind(informer: Any, version: str) -> bool:
    return False


@pytest.mark.hypothesis
@pytest.mark.parametrize(
    "defects",
    [
        [(overlay.WrittenObject, "is_outdated", forgets_nothing), HIDES_ALL],
        [(overlay.WrittenObject, "is_outdated", forgets_nothing), SHOWS_WRITTEN],
        [(overlay, "hides", hides_what_is_written_only)],
        [(overlay.Overlay, "add", merges_names)],
        [(overlay, "_has_reached", is_always_behind)],
    ],
    ids=lambda defects: " and ".join(each[2].__name__ for each in defects),
)
def test_a_defect_is_found(
    monkeypatch: pytest.MonkeyPatch, defects: list[tuple[Any, str, Any]]
) -> None:
    for owner, name, defect in defects:
        monkeypatch.setattr(owner, name, defect)
        if hasattr(cached_client, name):
            monkeypatch.setattr(cached_client, name, defect)
    # That it is found by what is read.
    monkeypatch.setattr(ReadYourWrites, "what_was_seen_is_not_laid_over", lambda self: None)
    find = settings(
        max_examples=1000,
        stateful_step_count=30,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    with pytest.raises(AssertionError):
        run_state_machine_as_test(ReadYourWrites, settings=find)
