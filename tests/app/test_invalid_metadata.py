"""An object whose metadata cannot be read ends nothing: its calls fail, and others are made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from appsdk_operator.app import App, functions_of, timers_of
from appsdk_operator.app._functions import KindFunctions
from appsdk_operator.client import Patch
from appsdk_operator.controllers import TerminalError
from appsdk_operator.resource import Kind, Object
from appsdk_operator.watchers import (
    ConstantBackoff,
    JoinedFinalizer,
    OpinionatedWatcher,
    SimpleWatcher,
)
from tests.hypothesis_profiles import scaled
from tests.watchers.conftest import Rig

THING = Kind(group="example.com", version="v1", kind="Thing")
FINALIZER = "example.com/operator.v1.Thing"
INVALID = {"labels": {"a": 1}, "finalizers": {"a": 1}, "annotations": [], "ownerReferences": [{}]}


def thing(version: int, name: str = "a", **more: Any) -> Object:
    metadata = {"name": name, "uid": name, "resourceVersion": str(version), "generation": version}
    return Object.from_dict(THING, {"metadata": {**metadata, **more}, "spec": {}})


class Server:
    """It answers every request with the newest object."""

    def __init__(self) -> None:
        self.newest = thing(1)

    def get(self, _kind: Kind, _name: str, *, namespace: str = "") -> Object:
        return self.newest

    def patch(self, _kind: Kind, _name: str, _patch: Patch, *, namespace: str = "") -> Object:
        return self.newest


class Bench:
    """A controller with one target under test, and a watcher after it that never fails."""

    def __init__(self, target: str, *, fails: bool, paused: bool) -> None:
        self.calls: list[str] = []
        self.witness: list[str] = []
        self._fails = fails
        self.rig = Rig(retry_policy=ConstantBackoff(7.0), max_pending=1)
        self.server = Server()
        controller, callback = self.rig.controller, self._callback
        if target == "opinionated":
            names = ("add", "sync", "update", "delete")
            functions: Any = {name: callback(name) for name in names}
            controller.add_watcher(OpinionatedWatcher(THING, self.server, **functions), THING)
        elif target == "simple":
            functions = {name: callback(name) for name in ("add", "update", "delete")}
            controller.add_watcher(SimpleWatcher(**functions), THING)
        else:
            controller.add_reconciler(self._functions(target.split(), paused=paused), THING)
        witness = SimpleWatcher(
            add=lambda obj: self.witness.append(f"add {obj.resource_version}"),
            update=lambda old, obj: self.witness.append(f"update {obj.resource_version}"),
            delete=lambda obj: self.witness.append(f"delete {obj.resource_version}"),
        )
        controller.add_watcher(witness, THING)
        self.informer = self.rig.add_informer(THING)

    def _callback(self, name: str) -> Callable[..., None]:
        def call(*_: Object) -> None:
            self.calls.append(name)
            if self._fails:
                raise ConnectionError("down")

        return call

    def _functions(self, causes: list[str], *, paused: bool) -> KindFunctions:
        app = App("thing-operator")
        for cause in causes:
            if cause == "every":
                app.every(60, THING)(self._callback(cause))
            elif cause == "red":
                is_red = lambda obj: "red" not in obj.labels  # noqa: E731
                app.on_update(THING, where=is_red)(self._callback(cause))
            else:
                getattr(app, f"on_{cause}")(THING)(self._callback(cause))
        return KindFunctions(
            THING,
            self.server,
            [*functions_of(app), *timers_of(app)],
            function_of=lambda declared: declared.function,
            clock=self.rig.clock,
            finalizer=JoinedFinalizer(),
            paused=(lambda obj: "paused" in obj.labels) if paused else None,
        )

    def see(self, old: Object | None, new: Object) -> None:
        self.server.newest = new
        if old is None:
            self.informer.add(new)
        else:
            self.informer.update(old, new)
        self.rig.work()
        self.informer.resync(new)
        self.rig.work()


targets = st.sampled_from(
    [
        *("opinionated", "simple", "add", "update", "delete", "every", "red"),
        *("add update delete", "add update delete every", "update every", "add red every"),
    ]
)


@settings(max_examples=scaled(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    target=targets,
    field=st.sampled_from(sorted(INVALID)),
    invalid=st.lists(st.booleans(), min_size=2, max_size=5),
    fails=st.booleans(),
    paused=st.booleans(),
    is_handled=st.booleans(),
)
def test_invalid_metadata_ends_nothing_and_keeps_no_event_from_others(
    target: str, field: str, invalid: list[bool], fails: bool, paused: bool, is_handled: bool
) -> None:
    bench = Bench(target, fails=fails, paused=paused)
    own: dict[str, Any] = {"finalizers": [FINALIZER]} if is_handled else {}
    states = [
        thing(version, **{**own, **({field: INVALID[field]} if is_invalid else {})})
        for version, is_invalid in enumerate(invalid, 1)
    ]
    old = None
    for new in states:
        bench.see(old, new)
        assert bench.rig.controller.debug_snapshot(), "the debug page names its calls"
        old = new
    bench.rig.after(70)
    bench.informer.delete(states[-1])
    bench.rig.work()
    bench.see(None, thing(9, "b"))
    bench.rig.close()
    updates = [f"update {version}" for version in range(2, len(states) + 1)]
    told = [each for each in dict.fromkeys(bench.witness) if each != "update 1"]
    assert told == ["add 1", *updates, f"delete {len(states)}", "add 9", "update 9"]


@pytest.mark.parametrize("target", ["update", "every", "add update", "opinionated"])
def test_once_its_metadata_is_valid_its_calls_are_made(target: str) -> None:
    bench = Bench(target, fails=False, paused=False)
    bench.see(None, thing(1, finalizers={"a": 1}))
    bench.rig.after(100)
    bench.calls.clear()
    bench.see(thing(1, finalizers={"a": 1}), thing(2, finalizers=[FINALIZER]))
    bench.see(thing(2, finalizers=[FINALIZER]), thing(3, finalizers=[FINALIZER]))
    bench.rig.after(60)
    bench.rig.close()
    assert bench.calls, "nothing is called any more"


def test_the_log_says_that_its_timer_waits_for_a_change(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench("every", fails=False, paused=False)
    bench.see(None, thing(1, finalizers={"a": 1}))
    bench.rig.close()
    lines = {line.getMessage() for line in caplog.records if "invalid" in line.getMessage()}
    (line,) = lines
    assert line == (
        "controller informer-controller: no further call is planned for an object with invalid "
        "metadata until it changes: Thing a: Expected `array | null`, got `object` - at "
        "`$.metadata.finalizers`"
    )


@pytest.mark.parametrize("field", sorted(INVALID))
def test_a_terminal_failure_with_invalid_metadata_ends_with_the_next_change(field: str) -> None:
    rig = Rig(retry_policy=ConstantBackoff(7.0), max_pending=1)
    calls: list[str] = []

    def add(obj: Object) -> None:
        calls.append("add")
        raise TerminalError("no")

    def update(old: Object, new: Object) -> None:
        calls.append(f"update {new.resource_version}")

    watcher = SimpleWatcher(add=add, update=update, delete=lambda _: calls.append("delete"))
    rig.controller.add_watcher(watcher, THING)
    informer = rig.add_informer(THING)
    invalid, valid = thing(1, **{field: INVALID[field]}), thing(2)
    informer.add(invalid)
    rig.work()
    informer.resync(invalid)
    rig.work()
    assert calls == ["add"]
    informer.update(invalid, valid)
    rig.work()
    informer.delete(valid)
    rig.work()
    assert calls == ["add", "update 2", "delete"]
    assert not rig.controller.debug_snapshot()["given_up"]
    rig.close()


@pytest.mark.parametrize("generations", [(1, 1), (1, 2), (0, 0)], ids=str)
def test_an_object_that_was_invalid_is_added_once_it_is_valid(generations: tuple[int, int]) -> None:
    bench = Bench("opinionated", fails=False, paused=False)
    before, after = generations
    invalid = thing(1, generation=before, labels={"a": 1})
    # As if its first finalizer had been written in between.
    valid = thing(2, generation=after, finalizers=["example.com/wip.v1.Thing"])
    bench.see(None, invalid)
    assert not bench.calls
    bench.server.newest = valid
    bench.informer.update(invalid, valid)
    bench.rig.work()
    bench.rig.close()
    assert bench.calls == ["add"]


def test_a_handled_object_that_was_invalid_is_synced_when_its_retry_is_due(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench("opinionated", fails=False, paused=False)
    invalid = thing(1, generation=1, finalizers=[FINALIZER], labels={"a": 1})
    valid = thing(2, generation=1, finalizers=[FINALIZER])
    bench.server.newest = invalid
    bench.informer.add(invalid)
    bench.rig.work()
    bench.rig.after(7)
    assert not bench.calls
    bench.informer.update(invalid, valid)
    bench.rig.after(7)
    bench.rig.close()
    assert bench.calls == ["sync"]
    assert "concerns()" not in caplog.text
