"""The informer with grafana-app-sdk's defaults."""

from __future__ import annotations

import random

import pytest

from appsdk_operator.resource import Kind, LabelSelector, Scope, SelectorError
from appsdk_operator.runtime import ManualClock, Metrics, StopSignal
from appsdk_operator.testing import ModelServer
from appsdk_operator.watchers import InformerController, KubernetesInformer, SimpleWatcher

WIDGET = Kind(group="example.com", version="v1", kind="Widget")


class Client(ModelServer):
    """Remembers what it was asked for."""

    def __init__(self) -> None:
        super().__init__(WIDGET)
        self.asked: list[dict[str, object]] = []

    def watch(self, kind, **options):
        self.asked.append(options)
        return super().watch(kind, **options)


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


@pytest.mark.parametrize("selectors", [{"app": "web"}, ["app=web"], "app=web", ()])
def test_the_former_name_of_the_label_selector_is_refused_with_the_present_one(selectors):
    with pytest.raises(TypeError, match=r"the argument is label_selector, .*\"app=web,tier\""):
        KubernetesInformer(WIDGET, Client(), label_selectors=selectors, metrics=Metrics())


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
    with pytest.raises(TypeError):
        KubernetesInformer(WIDGET, Client(), nonsense=1, metrics=Metrics())


def test_a_namespace_for_a_cluster_scoped_kind_is_refused():
    node = Kind(group="", version="v1", kind="Node", scope=Scope.CLUSTER)
    with pytest.raises(ValueError, match="cluster-scoped"):
        KubernetesInformer(node, Client(), namespace="x", metrics=Metrics())


def test_at_each_resync_every_object_is_shown_as_an_update_to_itself():
    clock, client = ManualClock(), Client()
    for name in "ab":
        client.create(name)
    informer = KubernetesInformer(
        WIDGET, client, clock=clock, metrics=Metrics(), rng=random.Random(0)
    )
    controller = InformerController(clock=clock, metrics=Metrics())
    shown = []
    controller.add_informer(informer, WIDGET)
    controller.add_watcher(
        SimpleWatcher(update=lambda old, new: shown.append((new.name, old is new))), WIDGET
    )
    informer.step(StopSignal())
    for seconds, times in ((26.9, 0), (6.2, 1), (33.1, 2)):
        clock.advance(seconds)
        while controller.process_next():
            pass
        assert sorted(shown) == sorted([("a", True), ("b", True)] * times)
    controller.close()
