"""Mistakes that newcomers make, and what they are told."""

from __future__ import annotations

import datetime as dt
import threading
from typing import Any

import pytest

from appsdk_operator.cache import Informer
from appsdk_operator.client import Client, ClientConfig
from appsdk_operator.controllers import Result
from appsdk_operator.resource import Kind, MutableObject, kinds
from appsdk_operator.runtime import Metrics, StillRunning, StopSignal, system_clock
from appsdk_operator.testing import MemoryServer, running
from appsdk_operator.watchers import (
    ConstantBackoff,
    ExponentialBackoff,
    InformerController,
    KubernetesInformer,
    OpinionatedReconciler,
    OpinionatedWatcher,
    SimpleReconciler,
    SimpleWatcher,
)
from tests.simulations import Others, no_client
from tests.watchers.conftest import WIDGET, ScriptedInformer

CONFIG_MAP = kinds.core.v1.ConfigMap
CONFIG = ClientConfig(server="http://127.0.0.1:1")


# What is given.


def ignore(*objects: Any) -> None:
    del objects


class Watcher:
    add = update = delete = staticmethod(ignore)


class UpdatesOneObject(Watcher):
    def update(self, obj):
        del obj


class AddsNothing(Watcher):
    def add(self):
        pass


class ConcernsOneObject(Watcher):
    def concerns(self, new):
        del new


@pytest.mark.parametrize(
    ("watcher", "text"),
    [
        (UpdatesOneObject(), r"watcher\.update=.* is not a function of \(old, new\)"),
        (AddsNothing(), r"watcher\.add=.* is not a function of \(obj\)"),
        (ConcernsOneObject(), r"watcher\.concerns=.* is not a function of \(old, new\)"),
    ],
)
def test_methods_of_other_arguments_are_refused_when_the_watcher_is_given(rig, watcher, text):
    with pytest.raises(TypeError, match=text):
        rig.controller.add_watcher(watcher, WIDGET)
    with pytest.raises(TypeError, match=text):
        OpinionatedWatcher.wrap(watcher, WIDGET, no_client())


@pytest.mark.parametrize(
    ("name", "wanted"), [("add", "obj"), ("sync", "obj"), ("delete", "obj"), ("update", "old, new")]
)
def test_so_are_callbacks_of_other_arguments(name, wanted):
    with pytest.raises(TypeError, match=rf"{name}=.* is not a function of \({wanted}\)"):
        OpinionatedWatcher(WIDGET, no_client(), **{name: lambda: None})


def test_a_reconciler_without_an_argument_is_refused(rig):
    class Reconciler:
        def reconcile(self):
            pass

    with pytest.raises(TypeError, match=r"reconcile=.* is not a function of \(request\)"):
        rig.controller.add_reconciler(Reconciler(), WIDGET)


@pytest.mark.parametrize("given", [{"add": None}, {"add": None, "update": None, "delete": None}])
def test_what_a_function_returned_is_no_watcher(given):
    with pytest.raises(TypeError, match=r"add=None.* calls nothing: add=f gives a function"):
        SimpleWatcher(**given)
    assert SimpleWatcher(update=ignore, add=None) == SimpleWatcher(update=ignore)


def opinionated_watcher(kind: Kind, client: Any, **options: Any) -> OpinionatedWatcher:
    return OpinionatedWatcher(kind, client, **options)


def opinionated_reconciler(kind: Kind, client: Any, **options: Any) -> OpinionatedReconciler:
    return OpinionatedReconciler(SimpleReconciler(ignore), kind, client, **options)


OPINIONATED = pytest.mark.parametrize("make", [opinionated_watcher, opinionated_reconciler])


@OPINIONATED
@pytest.mark.parametrize("client", [CONFIG, None, Client, "http://127.0.0.1:1"])
def test_what_is_no_client_is_refused(make, client):
    with pytest.raises(TypeError, match=r"give one, such as Client\(config\)"):
        make(WIDGET, client)


@OPINIONATED
def test_a_finalizer_that_no_server_takes_on_the_kind_is_refused(make):
    with pytest.raises(ValueError, match="has no domain"):
        make(CONFIG_MAP, no_client(), finalizer=lambda _: "cleanup")
    make(WIDGET, no_client(), finalizer=lambda _: "cleanup")


@OPINIONATED
def test_one_of_another_kind_is_refused_when_it_is_added(rig, make):
    target = make(WIDGET, no_client())
    is_watcher = isinstance(target, OpinionatedWatcher)
    add = rig.controller.add_watcher if is_watcher else rig.controller.add_reconciler
    with pytest.raises(ValueError, match=r"made for widgets.* add it under its own kind"):
        add(target, CONFIG_MAP)
    add(target, "any name")
    add(make(WIDGET, no_client(), finalizer=lambda _: "example.com/other"), WIDGET)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"workers": "4"}, "workers='4': give a whole number"),
        ({"workers": True}, "workers=True: give a whole number"),
        ({"max_pending": 1.5}, "max_pending=1.5: give a whole number"),
        ({"stop_timeout": "30"}, r"stop_timeout='30': give seconds as a number, .*stop_timeout=30"),
    ],
)
def test_options_of_another_type_are_refused_by_name(options, text):
    with pytest.raises(TypeError, match=text):
        InformerController(metrics=Metrics(), **options)


@pytest.mark.parametrize("resync", ["30s", dt.timedelta(seconds=30)])
def test_a_resync_that_is_no_number_is_refused(resync):
    with pytest.raises(TypeError, match=r"resync=.*: give seconds as a number"):
        KubernetesInformer(WIDGET, no_client(), resync=resync)


@pytest.mark.parametrize("client", [CONFIG, None, Client])
def test_an_informer_needs_a_client(client):
    with pytest.raises(TypeError, match=r"such as Client\(config\)"):
        KubernetesInformer(WIDGET, client)


# What is returned.


def yielding(*objects: Any) -> Any:
    yield objects


async def yielding_async(*objects: Any) -> Any:
    yield objects


async def later(*objects: Any) -> Any:
    del objects
    return Result(requeue_after=5.0)


UNHEARD = [
    (lambda *_: Result(requeue_after=5.0), r"returned Result.*raise .*RetryAfter.*a reconciler"),
    (lambda *_: ValueError("no"), "returned ValueError.*raise an error"),
    (lambda *_: ValueError, "returned ValueError.*raise an error"),
    (later, "returned Result"),
    (yielding, "has a yield"),
    (yielding_async, "has a yield"),
]


@pytest.mark.parametrize("name", ["add", "update", "delete"])
@pytest.mark.parametrize(("function", "text"), UNHEARD)
def test_a_watcher_that_returns_what_asks_for_something_fails(rig, widget, name, function, text):
    rig.controller.add_watcher(SimpleWatcher(**{name: function}), WIDGET)
    rig.informer.add(widget("a", 1))
    rig.informer.update(widget("a", 1), widget("a", 2))
    rig.informer.delete(widget("a", 2))
    rig.work()
    [(error, call)] = rig.errors
    assert call.action.value.lower() in ("create" if name == "add" else name)
    with pytest.raises(TypeError, match=text):
        raise error


@pytest.mark.parametrize(("function", "text"), UNHEARD)
def test_so_does_a_callback_around_a_finalizer(widget, function, text):
    server = Others(WIDGET)
    obj = server.create("a")
    watcher = OpinionatedWatcher(WIDGET, server, add=function)
    with pytest.raises(TypeError, match=text):
        watcher.add(obj)
    assert watcher.finalizer not in server.get(WIDGET, "a", namespace=obj.namespace).finalizers


def test_what_else_a_lambda_returns_is_no_failure(rig, widget):
    book = {"a": 1}
    rig.controller.add_watcher(SimpleWatcher(add=lambda obj: book.pop(obj.name)), WIDGET)
    rig.informer.add(widget("a"))
    rig.work()
    assert not rig.errors
    assert not book


def test_a_reconciler_of_names_is_told_of_the_adapter_when_it_meets_an_object(rig, widget):
    class Reconciler:
        def reconcile(self, request):
            return request.name

    rig.controller.add_reconciler(Reconciler(), WIDGET)
    rig.informer.add(widget("a"))
    rig.work()
    [(error, _)] = rig.errors
    assert isinstance(error, AttributeError)
    assert "write request.key.name, or give KeyReconciler(reconciler)" in str(error)


def test_other_names_that_a_request_has_not_are_plain_errors(rig, widget):
    seen = []
    rig.controller.add_reconciler(SimpleReconciler(seen.append), WIDGET)
    rig.informer.add(widget("a"))
    rig.work()
    with pytest.raises(AttributeError, match=r"a ReconcileRequest has no color$"):
        seen[0].color  # noqa: B018 - it raises
    assert not hasattr(seen[0], "namespace")


def test_an_informer_that_does_not_return_is_named_after_the_stop_timeout(make_rig):
    rig = make_rig(clock=system_clock, name="slow", stop_timeout=0.05)
    go_on = threading.Event()

    class Stuck(ScriptedInformer):
        def run(self, stop):
            super().run(stop)
            go_on.wait(10)

    informer = Stuck()
    rig.controller.add_informer(informer, "stuck")
    rig.start()
    try:
        assert informer.is_running.wait(10)
        (raised,) = rig.stop()
        assert "slow/informer/stuck; an informer does not return" in str(raised)
    finally:
        go_on.set()


def added(obj):
    """A callback."""


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: SimpleWatcher(print),
            (
                r"SimpleWatcher\(print\) does not say when to call it: name the event, as in "
                r"SimpleWatcher\(add=print\); there are add, update and delete"
            ),
        ),
        (lambda: SimpleWatcher(added, added), r"SimpleWatcher\(added, added\) .*add=added"),
        (lambda: SimpleWatcher(None), r"SimpleWatcher\(None\) does not say when"),
        (lambda: SimpleWatcher(AddFunc=added), r"SimpleWatcher\(AddFunc=…\): .*; it is add="),
        (lambda: SimpleWatcher(UpdateFunc=added), "it is update="),
        (lambda: SimpleWatcher(add=added, DeleteFunc=added), "it is delete="),
        (lambda: SimpleWatcher(on_add=added), "it is add="),
        (lambda: SimpleWatcher(on_create=added), "it is add="),
        (lambda: SimpleWatcher(sync=added), "there are add, update and delete"),
        (
            lambda: OpinionatedWatcher(WIDGET, None, create=added),
            r"OpinionatedWatcher\(create=…\): no such function is called; it is add=$",
        ),
        (lambda: OpinionatedWatcher(WIDGET, None, on_add=added), "it is add=$"),
        (lambda: OpinionatedWatcher(kind=WIDGET, client=None, on_update=added), "it is update=$"),
        (lambda: OpinionatedWatcher(WIDGET, None, resume=added), "it is sync=$"),
        (
            lambda: OpinionatedWatcher(WIDGET, None, other=added),
            r"OpinionatedWatcher\(other=…\).* there are add, update, delete and sync$",
        ),
    ],
)
def test_a_watcher_says_what_its_functions_are_called(make, text):
    with pytest.raises(TypeError, match=text):
        make()


def test_an_informer_that_cannot_start_while_the_controller_runs_can_be_added_again(monkeypatch):
    """Else the controller would never sync, and refuse it as one that it has."""
    start, failures = threading.Thread.start, [RuntimeError("can't start new thread")]

    def start_others(thread):
        if thread.name.startswith("c/informer/") and failures:
            raise failures.pop()
        start(thread)

    controller, seen = InformerController(name="c", metrics=Metrics()), threading.Event()
    controller.add_watcher(SimpleWatcher(add=lambda _: seen.set()), CONFIG_MAP)
    with MemoryServer() as server, server.client() as client:
        client.create(MutableObject.new(CONFIG_MAP, "a", namespace="default"))
        informer = Informer(CONFIG_MAP, client, metrics=Metrics())
        with running(controller):
            monkeypatch.setattr(threading.Thread, "start", start_others)
            with pytest.raises(RuntimeError, match="can't start"):
                controller.add_informer(informer, CONFIG_MAP)
            assert controller.health().is_ready
            controller.add_informer(informer, CONFIG_MAP)
            assert seen.wait(30)


def test_a_thread_that_cannot_start_hides_no_informer_that_does_not_return(monkeypatch):
    controller = InformerController(name="c", metrics=Metrics(), stop_timeout=0.05)
    go_on, runs, start = threading.Event(), threading.Event(), threading.Thread.start

    class Stuck:
        def add_event_handler(self, handler):
            pass

        def run(self, stop):
            runs.set()
            go_on.wait(10)

    def start_others(thread):
        if thread.name == "c/informer/late":
            assert runs.wait(10)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_others)
    controller.add_informer(Stuck(), "stuck")
    controller.add_informer(Stuck(), "late")
    with pytest.raises(ExceptionGroup) as raised:
        controller.run(StopSignal())
    go_on.set()
    assert [type(error) for error in raised.value.exceptions] == [RuntimeError, StillRunning]


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (
            lambda: ConstantBackoff(dt.timedelta(seconds=5)),
            TypeError,
            r"delay=datetime.timedelta\(seconds=5\): give seconds as a number, with .total_sec",
        ),
        (lambda: ConstantBackoff("5"), TypeError, "delay='5': give seconds as a number"),
        (lambda: ConstantBackoff(True), TypeError, "give seconds as a number"),
        (lambda: ConstantBackoff(-1), ValueError, "give seconds from 0 on"),
        (lambda: ConstantBackoff(float("inf")), ValueError, "give seconds from 0 on"),
        (lambda: ConstantBackoff(float("nan")), ValueError, "give seconds from 0 on"),
        (lambda: ConstantBackoff(1, max_attempts=1.5), TypeError, "max_attempts=1.5"),
        (lambda: ConstantBackoff(1, max_attempts=-1), ValueError, "max_attempts=-1"),
        (
            lambda: ExponentialBackoff(initial=dt.timedelta(seconds=5)),
            TypeError,
            "with .total_seconds",
        ),
        (
            lambda: ExponentialBackoff(maximum=dt.timedelta(seconds=5)),
            TypeError,
            "with .total_seconds",
        ),
        (lambda: ExponentialBackoff(initial=float("nan")), ValueError, "use finite numbers"),
        (lambda: ExponentialBackoff(maximum=float("nan")), ValueError, "must not be below"),
        (lambda: ExponentialBackoff(max_attempts="5"), TypeError, "max_attempts='5'"),
    ],
)
def test_what_is_no_number_of_seconds_is_refused_by_policies(make, error, text):
    with pytest.raises(error, match=text):
        make()


async def never_awaited(*_: Any) -> bool:
    return False


class Awaited(Watcher):
    reconcile = staticmethod(ignore)
    concerns = staticmethod(never_awaited)


@pytest.mark.parametrize(
    "make",
    [
        lambda: InformerController(error_handler=never_awaited),
        lambda: InformerController(retry_policy=never_awaited),
        lambda: InformerController(retry_dequeue_policy=never_awaited),
        lambda: OpinionatedWatcher(WIDGET, no_client(), concerns=never_awaited),
        lambda: OpinionatedWatcher.wrap(Awaited(), WIDGET, no_client()),
        lambda: OpinionatedReconciler(Awaited(), WIDGET, no_client()),
        lambda: InformerController().add_watcher(Awaited(), WIDGET),
        lambda: InformerController().add_reconciler(Awaited(), WIDGET),
    ],
)
def test_async_def_is_refused_where_nothing_awaits_it(make):
    with pytest.raises(TypeError, match="is async, but its result is used at once"):
        make()
