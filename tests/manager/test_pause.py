"""A pause of an operator: what its Lease says, who asks for it, and what its controllers do."""

from __future__ import annotations

import datetime as dt
import gc
import logging
import threading
import weakref
from collections.abc import Callable, Iterator

import hypothesis.strategies as st
import pytest
from hypothesis import given

from appsdk_operator.client import Client, ClientConfig, MergePatch
from appsdk_operator.controllers import ControllerOptions, Request, Result, controller_for
from appsdk_operator.manager import (
    LeaderElection,
    Manager,
    NotPausedError,
    Operator,
    Pause,
    pause_operator,
    resume_operator,
)
from appsdk_operator.manager._core.pauses import Pauses
from appsdk_operator.manager._election.pause import (
    PAUSED_BY,
    PAUSED_UNTIL,
    PauseError,
    PauseState,
    pause_of,
)
from appsdk_operator.resource import MutableObject, Object
from appsdk_operator.runtime import ManualClock, Metrics, StopSignal
from appsdk_operator.testing import APIServer
from appsdk_operator.watchers import InformerController, SimpleWatcher
from tests.manager.manager_parts import (
    CONFIG_MAP,
    LEASE,
    QUICK,
    client_of,
    managers,
    runs,
)
from tests.runs import Run
from tests.waiting import eventually

NOW = dt.datetime(2030, 1, 31, 12, tzinfo=dt.UTC)
ELECTION = LeaderElection(id="mapper", namespace="default", release_on_cancel=True, **QUICK)


@pytest.fixture
def config() -> Iterator[ClientConfig]:
    with APIServer() as server:
        yield ClientConfig(server=server.url)


client = pytest.fixture(client_of)
manager_of = pytest.fixture(managers)
start = pytest.fixture(runs)


def after(seconds: float) -> dt.datetime:
    return NOW + dt.timedelta(seconds=seconds)


# -- the state ---------------------------------------------------------------------------------


def test_a_pause_is_written_and_read_as_annotations() -> None:
    pause = Pause(after(60), by="ann@desk", reason="storage is moved")
    assert pause.annotations == {
        "appsdk-operator.io/paused-until": "2030-01-31T12:01:00Z",
        "appsdk-operator.io/paused-by": "ann@desk",
        "appsdk-operator.io/pause-reason": "storage is moved",
    }
    assert pause_of(pause.annotations) == pause
    assert str(pause) == "paused by ann@desk until 2030-01-31T12:01:00Z: storage is moved"
    assert pause_of({}) is None


def test_a_pause_by_hand_may_be_in_any_time_zone_and_say_no_more() -> None:
    assert pause_of({PAUSED_UNTIL: "2030-01-31T14:00:00+02:00"}) == Pause(NOW)


def test_what_people_write_is_one_short_line_of_the_log() -> None:
    pause = pause_of(
        {**Pause(NOW, by="a\nb\x1b[31m").annotations, PAUSED_BY: "a\nb\x1b" + "c" * 500}
    )
    assert pause is not None
    assert pause.by.startswith("a b c")
    assert len(pause.by) == 200


@pytest.mark.parametrize(
    "text",
    ["soon", "2030-01-31T12:00:00", "12", "2030-13-01T00:00:00Z", "9999-12-31T23:59:59-01:00"],
)
def test_an_end_that_is_no_time_pauses_nothing_and_is_said(text: str) -> None:
    with pytest.raises(PauseError, match="is not a time such as"):
        pause_of({PAUSED_UNTIL: text})
    state = PauseState()
    assert state.observe({PAUSED_UNTIL: text}, NOW)
    assert state.present is None
    assert "the operator is not paused" in state.problem
    assert not state.observe({PAUSED_UNTIL: text}, NOW)


STEPS = st.tuples(
    st.sampled_from(["none", "bad", "ann", "bob"]), st.integers(-5, 30), st.integers(0, 10)
)


@given(steps=st.lists(STEPS, max_size=20))
def test_an_operator_is_paused_while_its_lease_says_so_and_the_time_is_not_over(
    steps: list[tuple[str, int, int]],
) -> None:
    state, seconds = PauseState(), 0
    before: tuple[Pause | None, str] = (None, "")
    for what, length, passed in steps:
        seconds += passed
        annotations = {"none": {}, "bad": {PAUSED_UNTIL: "x"}}.get(
            what, Pause(after(length), by=what).annotations
        )
        has_changed = state.observe(annotations, after(seconds))
        wanted = what in ("ann", "bob") and length > seconds
        assert (state.present is not None) is wanted
        assert state.present is None or state.present.by == what
        assert bool(state.problem) is (what == "bad")
        assert has_changed is (before != (state.present, state.problem))
        before = (state.present, state.problem)


# -- who asks ----------------------------------------------------------------------------------


def lease(client: Client, name: str = "mapper") -> Object:
    return client.get(LEASE, name, namespace="default")


def make_lease(client: Client) -> None:
    client.create(MutableObject.new(LEASE, "mapper", namespace="default"))


def ask(client: Client, by: str = "ann", *, seconds: float = 60.0, replace: bool = False) -> Pause:
    return pause_operator(
        client,
        "mapper",
        namespace="default",
        seconds=seconds,
        reason="test",
        by=by,
        replace=replace,
    )


def resume(client: Client) -> Pause | None:
    return resume_operator(client, "mapper", namespace="default")


def test_a_pause_of_somebody_else_is_replaced_only_when_asked_to(client: Client) -> None:
    make_lease(client)
    first = ask(client)
    assert pause_of(lease(client).annotations) == first
    with pytest.raises(NotPausedError, match="mapper is paused by ann until") as caught:
        ask(client, "bob")
    assert caught.value.present == first
    assert pause_of(lease(client).annotations) == first
    assert ask(client, seconds=90).until > first.until
    assert ask(client, "bob", replace=True).by == "bob"
    assert (ended := resume(client)) is not None
    assert ended.by == "bob"
    assert not lease(client).annotations
    assert resume(client) is None


@pytest.mark.parametrize("error", [KeyError, OSError])
def test_who_has_no_name_in_a_container_can_ask_for_a_pause(
    client: Client, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def nobody() -> str:
        raise error("getpwuid(): uid not found")

    monkeypatch.setattr("getpass.getuser", nobody)
    make_lease(client)
    pause = pause_operator(client, "mapper", namespace="default", seconds=60.0, reason="test")
    assert pause.by.startswith("uid-")


def test_a_pause_that_is_over_stands_in_nobodys_way(client: Client) -> None:
    make_lease(client)
    past = Pause(dt.datetime(2020, 1, 1, tzinfo=dt.UTC), by="ann").annotations
    client.patch(
        LEASE, "mapper", MergePatch({"metadata": {"annotations": past}}), namespace="default"
    )
    assert ask(client, "bob").by == "bob"


def test_two_who_ask_at_once_do_not_both_believe_that_it_is_theirs(client: Client) -> None:
    make_lease(client)
    outcomes: list[str] = []
    barrier = threading.Barrier(4)

    def one(by: str) -> None:
        barrier.wait()
        try:
            outcomes.append(ask(client, by).by)
        except NotPausedError:
            outcomes.append("")

    threads = [threading.Thread(target=one, args=(by,)) for by in ("a", "b", "c", "d")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = [by for by in outcomes if by]
    found = pause_of(lease(client).annotations)
    assert found is not None
    assert found.by == winner


def test_without_a_lease_the_error_says_what_an_operator_is_paused_by(client: Client) -> None:
    for request in (lambda: ask(client), lambda: resume(client)):
        with pytest.raises(NotPausedError, match="no Lease mapper in namespace default") as caught:
            request()
        assert caught.value.present is None


@pytest.mark.parametrize("seconds", [0.5, -1.0, 1e9])
def test_a_pause_has_a_sensible_length(client: Client, seconds: float) -> None:
    with pytest.raises(ValueError, match="seconds"):
        ask(client, seconds=seconds)


class Part:
    """What can be held, and fails if it is told to."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error
        self.calls: list[str] = []

    def hold(self) -> None:
        self.call("hold")

    def let_go(self) -> None:
        self.call("let_go")

    def call(self, what: str) -> None:
        self.calls.append(what)
        if self.error is not None:
            raise self.error


def pauses() -> Pauses:
    clock = ManualClock(epoch=NOW.timestamp())
    return Pauses("mapper", "mapper", clock, on_change=lambda *_: None)


def leased(pause: Pause | None) -> Object:
    annotations = {} if pause is None else pause.annotations
    return Object.from_dict(LEASE, {"metadata": {"name": "mapper", "annotations": annotations}})


@pytest.mark.parametrize("error", [ConnectionError("planned"), SystemExit(3)], ids=repr)
def test_a_part_that_fails_to_be_held_keeps_no_other_from_it(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    parts, paused = [Part(), Part(error), Part()], pauses()
    for part in parts:
        paused.join(part)

    def observe() -> None:
        # As the elector does, not in the main thread, for which exits are meant.
        paused.observe(leased(Pause(after(60))))
        paused.observe(leased(None))

    thread = threading.Thread(target=observe)
    thread.start()
    thread.join()
    assert [part.calls for part in parts] == [["hold", "let_go"]] * 3
    assert "mapper: hold() or let_go() of <" in caplog.text


def test_parts_that_have_ended_are_not_kept() -> None:
    paused, part = pauses(), Part()
    paused.join(part)
    ref = weakref.ref(part)
    del part
    gc.collect()
    assert ref() is None
    paused.observe(leased(Pause(after(60))))
    paused.join(late := Part())
    assert late.calls == ["hold"]


# -- what its controllers do ---------------------------------------------------------------------


class Seen:
    """The versions of objects that were handled, by name."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.sizes: dict[str, list[str]] = {}

    def add(self, name: str, size: str) -> None:
        with self.lock:
            self.sizes.setdefault(name, []).append(size)

    def of(self, name: str) -> list[str]:
        with self.lock:
            return list(self.sizes.get(name, ()))


def put(client: Client, name: str, size: int) -> None:
    obj = MutableObject.new(CONFIG_MAP, name, namespace="default", data={"size": str(size)})
    client.apply(obj, field_manager="test", force=True)


def controlled(manager: Manager, seen: Seen) -> None:
    """A reconciler and a watcher."""

    def reconcile(request: Request) -> Result | None:
        for obj in manager.client.list(CONFIG_MAP, namespace="default"):
            if obj.name == request.name:
                seen.add(request.name, obj["data"]["size"])
        return None

    options = ControllerOptions(skip_name_validation=True)
    controller_for(manager).for_(CONFIG_MAP).with_options(options).complete(reconcile)
    watching = InformerController(name="watching")
    watching.add_cache(manager.cache, CONFIG_MAP)
    watching.add_watcher(
        SimpleWatcher(update=lambda old, new: seen.add(f"watched-{new.name}", new["data"]["size"])),
        CONFIG_MAP,
    )
    manager.add(watching)


def test_while_it_is_paused_no_call_begins_and_afterwards_each_changed_object_is_handled(
    client: Client,
    manager_of: Callable[..., Manager],
    start: Callable[[Manager], Run],
    caplog: pytest.LogCaptureFixture,
) -> None:
    metrics, seen = Metrics(), Seen()
    manager = manager_of(name="mapper", leader_election=ELECTION, metrics=metrics)
    controlled(manager, seen)
    put(client, "a", 1)
    with caplog.at_level(logging.INFO, "appsdk_operator.manager"):
        start(manager)
        eventually(lambda: seen.of("a") == ["1"])
        assert metrics.value("operator_paused", name="mapper") == 0
        ask(client)
        eventually(lambda: metrics.value("operator_paused", name="mapper") == 1)
        for size in (2, 3, 4):
            put(client, "a", size)
        eventually(
            lambda: manager.cache.get(CONFIG_MAP, "a", namespace="default")["data"]["size"] == "4"  # type: ignore[index]
        )
        assert seen.of("a") == ["1"]
        assert not seen.of("watched-a")
        assert "paused by ann until" in manager.debug_state()["operator"]["paused"]
        resume(client)
        eventually(lambda: seen.of("a") == ["1", "4"])
        eventually(lambda: seen.of("watched-a")[-1:] == ["4"])
        # The workers may be quicker than who lets them go on.
        eventually(lambda: "mapper goes on: it was paused by ann" in caplog.text)
    assert metrics.value("operator_paused", name="mapper") == 0
    assert manager.debug_state()["operator"]["paused"] == ""
    assert "mapper is paused by ann until" in caplog.text
    assert "test: running calls end, and no new ones begin" in caplog.text


def test_it_goes_on_by_itself_when_the_time_is_over(
    client: Client, manager_of: Callable[..., Manager], start: Callable[[Manager], Run]
) -> None:
    seen, metrics = Seen(), Metrics()
    manager = manager_of(leader_election=ELECTION, metrics=metrics)
    controlled(manager, seen)
    start(manager)
    assert manager.elected.wait(20)
    ask(client, seconds=2.0)
    eventually(lambda: metrics.value("operator_paused", name="mapper") == 1)
    put(client, "a", 1)
    eventually(lambda: seen.of("a") == ["1"])
    assert metrics.value("operator_paused", name="mapper") == 0


def test_the_next_leader_is_paused_too_and_begins_no_call(
    client: Client, manager_of: Callable[..., Manager], start: Callable[[Manager], Run]
) -> None:
    first, second = Seen(), Seen()
    managers = [manager_of(leader_election=ELECTION) for _ in range(2)]
    for manager, seen in zip(managers, (first, second), strict=True):
        controlled(manager, seen)
    put(client, "a", 1)
    run = start(managers[0])
    eventually(lambda: first.of("a") == ["1"])
    ask(client)
    start(managers[1])
    assert run.end() == []
    assert managers[1].elected.wait(20)
    put(client, "a", 2)
    eventually(
        lambda: managers[1].cache.get(CONFIG_MAP, "a", namespace="default")["data"]["size"] == "2"  # type: ignore[index]
    )
    assert second.of("a") == []
    resume(client)
    eventually(lambda: second.of("a") == ["2"])


def test_pauses_that_come_and_go_lose_nothing(
    client: Client, manager_of: Callable[..., Manager], start: Callable[[Manager], Run]
) -> None:
    seen = Seen()
    manager = manager_of(leader_election=ELECTION)
    controlled(manager, seen)
    start(manager)
    assert manager.elected.wait(20)
    for number in range(8):
        ask(client) if number % 2 else resume(client)
        for name in ("a", "b", "c"):
            put(client, name, number)
    resume(client)
    for name in ("a", "b", "c"):
        eventually(lambda name=name: seen.of(name)[-1:] == ["7"])  # type: ignore[misc]
        eventually(lambda name=name: seen.of(f"watched-{name}")[-1:] == ["7"])  # type: ignore[misc]


def test_a_paused_operator_stops_at_once(
    client: Client, manager_of: Callable[..., Manager], start: Callable[[Manager], Run]
) -> None:
    seen, metrics = Seen(), Metrics()
    manager = manager_of(leader_election=ELECTION, metrics=metrics)
    controlled(manager, seen)
    run = start(manager)
    assert manager.elected.wait(20)
    ask(client)
    eventually(lambda: metrics.value("operator_paused", name="mapper") == 1)
    put(client, "a", 1)
    assert run.end() == []
    assert not seen.of("a")


class Runnable(Part):
    """A part that notes when it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.has_begun = threading.Event()

    def run(self, stop: StopSignal) -> None:
        self.call("run")
        self.has_begun.set()
        stop.wait()


def test_a_controller_that_an_operator_of_a_paused_manager_gets_is_held_at_once() -> None:
    paused, operator, first, late = pauses(), Operator(), Runnable(), Runnable()
    operator.add_controller(first)
    paused.join(operator)
    paused.observe(leased(Pause(after(60))))
    operator.add_controller(late)
    assert late.calls == ["hold"]
    paused.observe(leased(None))
    operator.add_controller(free := Runnable())
    assert late.calls == ["hold", "let_go"]
    assert first.calls == ["hold", "hold", "let_go"]
    assert free.calls == []


def test_what_is_added_to_a_paused_manager_is_held_before_it_runs(
    client: Client,
    manager_of: Callable[..., Manager],
    start: Callable[[Manager], Run],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    metrics, part = Metrics(), Runnable()
    manager = manager_of(leader_election=ELECTION, metrics=metrics)
    start(manager)
    assert manager.elected.wait(20)
    ask(client)
    eventually(lambda: metrics.value("operator_paused", name="mapper") == 1)
    groups = manager._lifecycle.groups
    add = groups.add

    def add_and_wait(runnable: object) -> None:
        add(runnable)  # type: ignore[arg-type]
        assert part.has_begun.wait(20)

    monkeypatch.setattr(groups, "add", add_and_wait)
    manager.add(part)
    assert part.calls.index("hold") < part.calls.index("run")
