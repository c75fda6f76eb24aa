"""Finalizers under crashes, races and other writers: nothing is lost, no foreign one touched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from appsdk_operator.client import Conflict, Invalid, MergePatch, NotFound, Patch
from appsdk_operator.controllers import FinalizerError
from appsdk_operator.resource import Kind, Object
from appsdk_operator.watchers import OpinionatedWatcher
from tests.hypothesis_profiles import scaled
from tests.simulations import Others

WIDGET = Kind(group="example.com", version="v1", kind="Widget")
OURS, WIP = "example.com/operator.v1.Widget", "example.com/wip.v1.Widget"
FOREIGN = tuple(f"{name}.example.org/x" for name in "abcd")


class Crash(BaseException):
    """The process ends here."""


@attrs.define
class Gate:
    """A client through which a test lets requests, one by one."""

    server: Others
    before: Callable[[str], None] = lambda _: None
    after: Callable[[str], None] = lambda _: None
    requests: list[str] = attrs.field(factory=list)

    def get(self, kind: Kind, name: str, *, namespace: str = "") -> Object:
        return self._through("get", lambda: self.server.get(kind, name, namespace=namespace))

    def patch(self, kind: Kind, name: str, patch: Patch, *, namespace: str = "") -> Object:
        return self._through(
            "patch", lambda: self.server.patch(kind, name, patch, namespace=namespace)
        )

    def _through(self, verb: str, do: Callable[[], Object]) -> Object:
        self.requests.append(verb)
        self.before(verb)
        made = do()
        self.after(verb)
        return made


def foreign_of(obj: Object) -> list[str]:
    return [name for name in obj.finalizers if name in FOREIGN]


def ours_of(obj: Object) -> list[str]:
    return [name for name in obj.finalizers if name not in FOREIGN]


@attrs.define
class Life:
    """An object's life under watchers that die and come again."""

    server: Others
    crash_at: Iterator[str]
    added: int = 0
    deleted: int = 0
    is_begun: bool = False
    crashes: int = 0

    def _point(self, where: str) -> None:
        if next(self.crash_at, "") == "crash":
            self.crashes += 1
            raise Crash(where)

    def process(self) -> OpinionatedWatcher:
        """A new process: nothing in memory."""
        gate = Gate(
            self.server,
            before=lambda verb: self._point(f"before {verb}"),
            after=lambda verb: self._point(f"after {verb}"),
        )
        return OpinionatedWatcher(
            WIDGET, gate, add=self._add, update=self._known, sync=self._known, delete=self._delete
        )

    def _add(self, obj: Object) -> None:
        self.is_begun = True
        self._point("in add")
        self.added += 1

    def _known(self, *objects: Object) -> None:
        self._point("in update")
        assert self.added, "nobody is told of an object that was not added"

    def _delete(self, obj: Object) -> None:
        self._point("in delete")
        self.deleted += 1

    def tell(self) -> None:
        """A process starts and is told of what there is, until it does not crash."""
        for _ in range(50):
            obj = self.server.find("a")
            if obj is None:
                return
            try:
                self.process().add(obj)
            except Crash:
                present = self.server.find("a")
                if present is None:
                    assert self.deleted or not self.is_begun
                else:
                    assert foreign_of(present) == [FOREIGN[1], FOREIGN[0]]
                continue
            return
        raise AssertionError("it never comes through")


POINTS = 14


@pytest.mark.parametrize("first", range(POINTS))
@pytest.mark.parametrize("second", [None, 0, 1, 2, 3])
def test_a_crash_at_each_point_of_a_life_loses_neither_add_nor_delete(first, second):
    # Each point: before and after each write took effect, and within each callback.
    plan = ["go"] * first + ["crash"]
    if second is not None:
        plan += ["go"] * second + ["crash"]
    life = Life(Others(WIDGET), iter(plan))
    life.server.create("a", finalizers=[FOREIGN[1], FOREIGN[0]])
    life.tell()
    obj = life.server.find("a")
    assert obj is not None
    assert ours_of(obj) == [OURS]
    assert life.added >= 1
    life.tell()  # a restart: sync
    life.server.delete("a")
    life.tell()
    obj = life.server.find("a")
    assert obj is not None, "the others still hold it"
    assert list(obj.finalizers) == [FOREIGN[1], FOREIGN[0]]
    assert life.deleted >= 1


def test_the_points_above_are_all_there_are():
    life = Life(Others(WIDGET), points := iter(["go"] * 100))
    life.server.create("a", finalizers=[FOREIGN[1], FOREIGN[0]])
    for _ in range(2):
        life.tell()
    life.server.delete("a")
    life.tell()
    assert 100 - len(list(points)) <= POINTS


@pytest.mark.parametrize("died", ["before the mark", "after the mark", "in add", "before ours"])
def test_a_deletion_while_nobody_watched_is_cleaned_up_if_add_had_begun(died):
    plan = {"before the mark": 0, "after the mark": 1, "in add": 2, "before ours": 3}[died]
    life = Life(Others(WIDGET), iter(["go"] * plan + ["crash"]))
    life.server.create("a", finalizers=[FOREIGN[0]])
    with pytest.raises(Crash):
        life.process().add(life.server.get(WIDGET, "a"))
    life.server.delete("a")
    life.process().add(life.server.get(WIDGET, "a"))
    assert list(life.server.get(WIDGET, "a").finalizers) == [FOREIGN[0]]
    assert life.deleted == (0 if died == "before the mark" else 1)


# Other writers

actions = st.lists(
    st.tuples(st.sampled_from(["on", "off", "status", "delete"]), st.integers(0, 3)), max_size=3
)


@settings(max_examples=scaled(400), deadline=None)
@given(
    start=st.lists(st.sampled_from(FOREIGN), unique=True, max_size=3),
    between=st.lists(actions, max_size=12),
    calls=st.lists(st.sampled_from(["add", "update", "stale"]), min_size=1, max_size=4),
)
def test_whatever_others_write_between_our_requests_their_finalizers_stay_in_order(
    start, between, calls
):
    server = Others(WIDGET)
    first = server.create("a", finalizers=list(start))
    foreign = list(start)
    states = [first]
    turns = iter(between)
    deleted: list[str] = []
    added: list[str] = []

    def others(_: str) -> None:
        for what, number in next(turns, []):
            present = server.find("a")
            if present is None:
                return
            name, finalizers = FOREIGN[number], list(present.finalizers)
            if what == "on" and name not in finalizers and not present.is_deleting:
                # At either end or in the middle, as others do.
                place = (0, len(finalizers), len(finalizers) // 2, 0)[number]
                finalizers.insert(place, name)
            elif what == "off" and name in finalizers:
                finalizers.remove(name)
            elif what == "status":
                server.change("a", status={"n": number, "rv": present.resource_version})
                finalizers = list(server.get(WIDGET, "a").finalizers)
            elif what == "delete":
                server.delete("a")
                finalizers = list(present.finalizers)
            foreign[:] = [f for f in finalizers if f in FOREIGN]
            if finalizers != list(present.finalizers):
                server.change("a", finalizers=finalizers)
        check()

    def check() -> None:
        present = server.find("a")
        if present is not None:
            states.append(present)
            assert foreign_of(present) == foreign

    gate = Gate(server, before=others, after=lambda _: check())
    watcher = OpinionatedWatcher(
        WIDGET,
        gate,
        add=lambda obj: added.append(obj.uid),
        delete=lambda obj: deleted.append(obj.uid),
    )
    for call in calls:
        others("")
        old, new = states[0], states[-1]
        if call == "add":
            watcher.add(new)
        elif call == "update":
            watcher.update(old, new)
        else:
            watcher.add(states[len(states) // 2])
        check()
    note(str(gate.requests))
    assert len(gate.requests) <= 2 * 10 * len(calls) * 2
    # At last everybody goes.
    turns = iter([])
    if server.find("a") is not None:
        server.delete("a")
    present = server.find("a")
    if present is not None:
        watcher.update(states[0], present)
        present = server.find("a")
    if present is not None:
        assert list(present.finalizers) == foreign != []
    if added:
        assert deleted, "what was added is cleaned up"


def test_a_write_to_the_status_does_not_make_ours_fail():
    server = Others(WIDGET)
    obj = server.create("a", finalizers=[FOREIGN[0]])
    gate = Gate(server)
    server.change("a", status={"phase": "x"})
    OpinionatedWatcher(WIDGET, gate).add(obj)
    assert gate.requests == ["patch", "patch"], "no conflict, nothing read again"


def test_callbacks_may_write_with_the_version_of_what_they_are_given():
    server = Others(WIDGET)
    old = server.create("a")
    new = server.change("a", spec={"n": 1})

    def write(obj: Object) -> None:
        version = {"metadata": {"resourceVersion": obj.resource_version}}
        server.patch(WIDGET, obj.name, MergePatch({**version, "status": {"n": obj.spec}}))

    watcher = OpinionatedWatcher(WIDGET, server, add=write, update=lambda *_: None)
    watcher.update(old, new)
    assert server.get(WIDGET, "a").finalizers == (OURS,)
    seen: list[Object] = []
    other = Others(WIDGET)
    old, new = other.create("a"), other.change("a", spec={"n": 1})
    OpinionatedWatcher(WIDGET, other, update=lambda _, obj: seen.append(obj)).update(old, new)
    assert [obj.resource_version for obj in seen] == [other.resource_version]


def test_a_stale_list_of_finalizers_is_read_again():
    server = Others(WIDGET)
    obj = server.create("a")
    server.change("a", finalizers=[FOREIGN[0]])
    gate = Gate(server)
    OpinionatedWatcher(WIDGET, gate).add(obj)
    assert gate.requests == ["patch", "get", "patch", "patch"]
    assert server.get(WIDGET, "a").finalizers == (FOREIGN[0], OURS)


@pytest.mark.parametrize("when", range(3))
@pytest.mark.parametrize("is_made_anew", [False, True])
def test_an_object_that_goes_meanwhile_is_no_error_and_its_successor_is_left_alone(
    when, is_made_anew
):
    server = Others(WIDGET)
    obj = server.create("a")
    left = [when]

    def vanish(_: str) -> None:
        left[0] -= 1
        if left[0] == -1 and server.find("a"):
            server.change("a", finalizers=[])
            server.delete("a")
            if is_made_anew:
                server.create("a")

    notes: list[str] = []
    watcher = OpinionatedWatcher(
        WIDGET,
        Gate(server, before=vanish),
        add=lambda o: notes.append(f"add {o.uid}"),
        update=lambda _, o: notes.append(f"update {o.uid}"),
    )
    watcher.add(obj)
    assert notes == ([] if when == 0 else [f"add {obj.uid}"])
    if when < 2:
        assert [o.finalizers for o in server.objects] == ([()] if is_made_anew else [])


def test_when_an_object_is_gone_before_it_could_be_added_there_is_no_update():
    server = Others(WIDGET)
    old = server.create("a")
    new = server.change("a", spec={"n": 1})
    server.delete("a")
    notes: list[str] = []
    watcher = OpinionatedWatcher(
        WIDGET,
        Gate(server),
        add=lambda _: notes.append("add"),
        update=lambda *_: notes.append("update"),
    )
    watcher.update(old, new)
    assert notes == []


def test_an_object_that_is_being_deleted_before_it_was_marked_is_not_added():
    server = Others(WIDGET)
    obj = server.create("a", finalizers=[FOREIGN[0]])
    server.delete("a")
    notes: list[str] = []
    OpinionatedWatcher(WIDGET, Gate(server), add=lambda _: notes.append("add")).add(obj)
    assert notes == []
    assert server.get(WIDGET, "a").finalizers == (FOREIGN[0],)


def test_an_object_that_is_being_deleted_while_it_is_added_is_held_by_the_mark():
    server = Others(WIDGET)
    obj = server.create("a")
    deleted: list[str] = []
    watcher = OpinionatedWatcher(
        WIDGET,
        Gate(server),
        add=lambda _: server.delete("a"),
        delete=lambda o: deleted.append(o.uid),
    )
    watcher.add(obj)
    marked = server.get(WIDGET, "a")
    assert marked.finalizers == (WIP,)
    watcher.update(obj, marked)
    assert deleted == [obj.uid]
    assert not server.objects


def test_a_lost_answer_to_the_last_write_is_mended_by_the_retry():
    server = Others(WIDGET)
    obj = server.create("a")
    lost = [2]

    def lose(verb: str) -> None:
        lost[0] -= 1
        if not lost[0]:
            raise ConnectionError("the answer is lost")

    notes: list[str] = []
    gate = Gate(server, after=lose)
    watcher = OpinionatedWatcher(
        WIDGET, gate, add=lambda _: notes.append("add"), sync=lambda _: notes.append("sync")
    )
    with pytest.raises(FinalizerError) as raised:
        watcher.add(obj)
    assert isinstance(raised.value.__cause__.__cause__, ConnectionError)
    watcher.add(obj)  # the retry, before the event of our own write came
    assert server.get(WIDGET, "a").finalizers == (OURS,)
    watcher.add(server.get(WIDGET, "a"))
    assert notes == ["add", "sync"], "only the write is done again"


def test_a_real_refusal_by_validation_is_not_tried_ten_times():
    server = Others(WIDGET)
    obj = server.create("a")
    cause = Invalid("spec.n: Required value", status=422, reason="Invalid")

    def refuse(verb: str) -> None:
        if verb == "patch":
            raise cause

    gate = Gate(server, before=refuse)
    with pytest.raises(FinalizerError, match=r"spec\.n: Required") as raised:
        OpinionatedWatcher(WIDGET, gate).add(obj)
    assert raised.value.__cause__ is cause
    assert gate.requests == ["patch", "get"]


@pytest.mark.parametrize("conflicts", [1, 9])
def test_conflicts_are_read_again_and_tried_again(conflicts):
    server = Others(WIDGET)
    obj = server.create("a")
    left = [conflicts]

    def busy(verb: str) -> None:
        if verb == "patch" and left[0]:
            left[0] -= 1
            raise Conflict("busy", status=409, reason="Conflict")

    OpinionatedWatcher(WIDGET, Gate(server, before=busy)).add(obj)
    assert server.get(WIDGET, "a").finalizers == (OURS,)


def test_an_object_already_gone_while_ours_is_taken_off_is_success():
    server = Others(WIDGET)
    server.create("a", finalizers=[OURS])
    server.delete("a")
    obj = server.get(WIDGET, "a")

    def delete(_: Object) -> None:
        server.change("a", finalizers=[])

    OpinionatedWatcher(WIDGET, Gate(server), delete=delete).add(obj)
    with pytest.raises(NotFound):
        server.get(WIDGET, "a")


def test_an_unreadable_object_is_a_finalizer_error_too():
    server = Others(WIDGET)
    obj = server.create("a")
    server.change("a", finalizers=[FOREIGN[0]])  # so that the first write must read again

    def fail(verb: str) -> None:
        if verb == "get":
            raise ConnectionError("no route")

    with pytest.raises(FinalizerError, match="no route") as raised:
        OpinionatedWatcher(WIDGET, Gate(server, before=fail)).add(obj)
    assert isinstance(raised.value.__cause__, ConnectionError)


def test_objects_without_uid_or_version_are_handled(widget: Any):
    class Plain:
        def get(self, kind, name, *, namespace=""):
            raise AssertionError

        def patch(self, kind, name, patch, *, namespace=""):
            written.append(patch.operations)
            return widget("a", finalizers=[WIP if len(written) == 1 else OURS])

    written: list[Any] = []
    bare = Object.from_dict(WIDGET, {"metadata": {"name": "a"}})
    OpinionatedWatcher(WIDGET, Plain()).add(bare)
    assert written[0] == [{"op": "add", "path": "/metadata/finalizers", "value": [WIP]}]
