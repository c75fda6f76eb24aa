"""The informer with grafana-app-sdk's defaults."""

from __future__ import annotations

import asyncio
import random
from queue import SimpleQueue

import pytest

from appsdk_operator import client as c
from appsdk_operator.cache import Informer
from appsdk_operator.controllers import Result, until, wait_for
from appsdk_operator.resource import Kind, LabelSelector, MutableObject, Scope, SelectorError, kinds
from appsdk_operator.runtime import ManualClock, Metrics, StopSignal
from appsdk_operator.testing import APIServer, running
from appsdk_operator.watchers import (
    InformerController,
    KubernetesInformer,
    OpinionatedWatcher,
    SimpleWatcher,
)
from tests.simulations import Others

CONFIG_MAP = kinds.core.v1.ConfigMap
PATIENCE = 30
WIDGET = Kind(group="example.com", version="v1", kind="Widget")


class Client(Others):
    """Remembers what it was asked for."""

    def __init__(self) -> None:
        super().__init__(WIDGET)
        self.asked: list[dict[str, object]] = []
        self._watch, self.watch = self.watch, self._asked

    def _asked(self, kind, **options):
        self.asked.append(options)
        return self._watch(kind, **options)


def asked(**options):
    client = Client()
    informer = KubernetesInformer(WIDGET, client, metrics=Metrics(), **options)
    informer.step(StopSignal())
    return client.asked[0]


def test_by_default_it_follows_all_objects_in_all_namespaces_and_resyncs_every_30_seconds():
    options = asked()
    assert options["namespace"] == ""
    assert options["label_selector"] is None
    assert options["field_selector"] is None
    assert KubernetesInformer(WIDGET, Client(), metrics=Metrics()).resync == 30
    assert KubernetesInformer(WIDGET, Client(), resync=None, metrics=Metrics()).resync == 30


def test_namespace_and_field_selector_are_asked_of_the_server():
    options = asked(namespace="prod", field_selector="metadata.name=web")
    assert options["namespace"] == "prod"
    assert options["field_selector"] == "metadata.name=web"


@pytest.mark.parametrize(
    ("selector", "text"),
    [
        ({"app": "web"}, "app=web"),
        ("app=web,tier in (a,b),!old", "app=web,!old,tier in (a,b)"),
        (LabelSelector.from_mapping({"app": "web"}), "app=web"),
    ],
)
def test_a_label_selector_has_the_forms_of_every_other(selector, text):
    assert asked(label_selector=selector)["label_selector"] == text


def test_a_selector_that_cannot_be_parsed_is_refused():
    with pytest.raises(SelectorError):
        KubernetesInformer(WIDGET, Client(), label_selector="a=b=c", metrics=Metrics())


def test_other_options_are_those_of_any_informer():
    seen = []
    informer = KubernetesInformer(
        WIDGET, Client(), metrics=Metrics(), resync=0, page_size=7, on_error=seen.append
    )
    assert informer.resync == 0
    with pytest.raises(ValueError, match="resync"):
        KubernetesInformer(WIDGET, Client(), resync=-1, metrics=Metrics())
    with pytest.raises(TypeError, match="label_selectors"):
        KubernetesInformer(WIDGET, Client(), label_selectors="a=b", metrics=Metrics())


def test_a_namespace_for_a_cluster_scoped_kind_is_refused():
    node = Kind(group="", version="v1", kind="Node", scope=Scope.CLUSTER)
    with pytest.raises(ValueError, match="cluster-scoped"):
        KubernetesInformer(node, Client(), namespace="x", metrics=Metrics())


@pytest.mark.parametrize(
    ("resync", "shown_at"),
    [
        (None, ((26.9, 0), (6.2, 1), (33.1, 2))),  # the informer's own
        (10.0, ((8.9, 0), (2.2, 1), (11.1, 2))),
        (0.0, ((26.9, 0), (600.0, 0))),
    ],
)
def test_at_each_resync_every_object_is_shown_as_an_update_to_itself(resync, shown_at):
    clock, client = ManualClock(), Client()
    for name in "ab":
        client.create(name)
    informer = KubernetesInformer(
        WIDGET, client, clock=clock, metrics=Metrics(), rng=random.Random(0)
    )
    controller = InformerController(clock=clock, metrics=Metrics())
    shown = []
    controller.add_informer(informer, WIDGET, resync=resync)
    controller.add_watcher(
        SimpleWatcher(update=lambda old, new: shown.append((new.name, old is new))), WIDGET
    )
    informer.step(StopSignal())
    for seconds, times in shown_at:
        clock.advance(seconds)
        while controller.process_next():
            pass
        assert sorted(shown) == sorted([("a", True), ("b", True)] * times)
    controller.close()


def test_an_informer_without_resyncs_gets_those_of_its_controller():
    clock, client = ManualClock(), Client()
    informer = Informer(WIDGET, client, clock=clock, metrics=Metrics())
    client.create("a")
    controller = InformerController(clock=clock, metrics=Metrics())
    shown = []
    controller.add_informer(informer, WIDGET, resync=10.0)
    controller.add_watcher(SimpleWatcher(update=lambda old, new: shown.append(new.name)), WIDGET)
    informer.step(StopSignal())
    clock.advance(11.1)
    while controller.process_next():
        pass
    assert shown == ["a"]
    controller.close()


def test_a_resync_that_cannot_be_is_refused():
    controller = InformerController(metrics=Metrics())
    informer = KubernetesInformer(WIDGET, Client(), metrics=Metrics())
    with pytest.raises(ValueError, match="resync=-1"):
        controller.add_informer(informer, WIDGET, resync=-1)
    controller.add_informer(informer, WIDGET)  # it was not used up
    controller.close()


class Notes:
    """A watcher's calls, and whatever is done in each."""

    def __init__(self, then=lambda: None):
        self.calls = SimpleQueue()
        self.then = then

    def add(self, obj):
        self.calls.put(("add", obj.name))
        return self.then()

    def update(self, old, new):
        self.calls.put(("update", old["data"]["n"], new["data"]["n"]))
        return self.then()

    def delete(self, obj):
        self.calls.put(("delete", obj.name))
        return self.then()

    def next(self):
        return self.calls.get(timeout=PATIENCE)


class AsyncNotes(Notes):
    """The same with coroutines."""

    async def add(self, obj):
        await asyncio.sleep(0)
        super().add(obj)

    async def update(self, old, new):
        await asyncio.sleep(0)
        super().update(old, new)

    async def delete(self, obj):
        await asyncio.sleep(0)
        super().delete(obj)


@pytest.fixture
def server():
    with APIServer() as server, c.Client(server.client_config()) as client:
        client.create(config_map("0"))
        yield client


def config_map(n):
    return MutableObject.new(CONFIG_MAP, "a", namespace="default", data={"n": n})


def informer_of(client, **options):
    return KubernetesInformer(
        CONFIG_MAP, client, namespace="default", resync=0, metrics=Metrics(), **options
    )


@pytest.mark.parametrize("make", [Notes, AsyncNotes])
def test_an_informer_calls_a_watcher_without_a_controller(server, make):
    informer, notes = informer_of(server), make()
    registration = informer.add_event_handler(notes)
    with running(informer):
        assert registration.wait_for_sync(StopSignal(), timeout=PATIENCE)
        assert notes.next() == ("add", "a")
        server.update(config_map("1"))
        assert notes.next() == ("update", "0", "1")
        server.delete(CONFIG_MAP, "a", namespace="default")
        assert notes.next() == ("delete", "a")


def test_such_a_watcher_is_not_called_for_updates_that_do_not_concern_it(server, caplog):
    class Even(Notes):
        def concerns(self, old, new):
            if new["data"]["n"] == "4":
                raise SystemExit(3)
            return 6 // int(new["data"]["n"]) % 2 == 1  # of 1 and 3 no, of 2 yes, of 0 a bug

    informer, notes = informer_of(server), Even()
    informer.add_event_handler(notes)
    with running(informer):
        assert notes.next() == ("add", "a")
        for n in ("1", "2", "3", "0", "4", "1", "2"):
            server.update(config_map(n))
        assert notes.next() == ("update", "1", "2")
        assert notes.next() == ("update", "3", "0"), "what cannot be decided is delivered"
        assert notes.next() == ("update", "0", "4")
        assert notes.next() == ("update", "1", "2")
    assert "concerns() of" in caplog.text


def test_a_coroutine_of_concerns_is_an_error_in_the_log_rather_than_a_yes(server, caplog):
    class Asks(Notes):
        def concerns(self, old, new):
            return returned_by_a_coroutine()

    informer, notes = informer_of(server), Asks()
    informer.add_event_handler(notes)
    with running(informer):
        assert notes.next() == ("add", "a")
        server.update(config_map("1"))
        assert notes.next()[0] == "update"
    (record,) = [each for each in caplog.records if "concerns() of" in each.getMessage()]
    assert record.exc_info is not None
    assert "coroutine" in str(record.exc_info[1])


async def returned_by_a_coroutine():
    return Result(requeue_after=1)


def refuse():
    raise ConnectionError("refused")


@pytest.mark.parametrize(
    ("then", "text"),
    [
        (refuse, "refused"),
        (lambda: Result(requeue_after=1), "raise an error"),
        (returned_by_a_coroutine, "raise an error"),
        (lambda: ValueError("x"), "raise"),
    ],
)
def test_what_such_a_watcher_raises_or_returns_in_vain_is_an_error_of_the_informer(
    server, then, text
):
    errors = SimpleQueue()
    informer = informer_of(server, on_error=errors.put)
    informer.add_event_handler(Notes(then))
    with running(informer):
        assert text in str(errors.get(timeout=PATIENCE))


def test_an_opinionated_watcher_puts_its_finalizer_on_and_cleans_up_without_a_controller(server):
    gone = SimpleQueue()
    watcher = OpinionatedWatcher(
        CONFIG_MAP, server, add=lambda obj: None, delete=lambda obj: gone.put(obj.name)
    )
    informer = informer_of(server)
    informer.add_event_handler(watcher)
    with running(informer):
        until_put = until.matches(lambda obj: watcher.finalizer in obj.finalizers)
        wait_for(informer, CONFIG_MAP, "a", until_put, namespace="default", timeout=PATIENCE)
        server.delete(CONFIG_MAP, "a", namespace="default")
        assert gone.get(timeout=PATIENCE) == "a"


def test_what_is_no_handler_is_refused_with_what_it_may_be():
    informer = KubernetesInformer(WIDGET, Client(), metrics=Metrics())
    with pytest.raises(TypeError, match=r"is a class: give an instance, Notes\(…\)"):
        informer.add_event_handler(Notes)
    with pytest.raises(TypeError, match="handles no events"):
        informer.add_event_handler(print)
    plain = Informer(WIDGET, Client(), metrics=Metrics())
    with pytest.raises(
        TypeError, match=r"a watcher: .*add_watcher of .*, or to a KubernetesInformer"
    ):
        plain.add_event_handler(Notes())
    with pytest.raises(ValueError, match="max_pending"):
        informer.add_event_handler(Notes(), max_pending=0)
