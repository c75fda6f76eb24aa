"""Selectors and namespaces: the same forms wherever they are given, and refused when given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from appsdk_operator.cache import (
    Cache,
    CachedClient,
    CacheOptions,
    Informer,
    NamespaceOptions,
    Store,
)
from appsdk_operator.client import Client, ClientConfig, NamespacedClient
from appsdk_operator.manager import CacheSetup
from appsdk_operator.resource import (
    FieldSelector,
    Kind,
    LabelSelector,
    SelectorError,
    annotation,
    field,
    labels,
)
from appsdk_operator.runtime import Metrics
from appsdk_operator.watchers import KubernetesInformer
from tests.simulations import no_client

WIDGET = Kind(group="example.com", version="v1", kind="Widget")


def no_connection() -> Any:
    raise AssertionError("a request was made")


def client() -> Client:
    config = ClientConfig(server="http://nowhere", connector=no_connection)
    return Client(config, metrics=Metrics())


def cache(**options: Any) -> Cache:
    made = Cache(no_client(), metrics=Metrics(), **options)
    made.add(WIDGET)
    return made


def close(connected: Client, verb: str, **options: Any) -> None:
    with connected:
        getattr(connected, verb)(WIDGET, **options)


# Each as a function of one option.
BOTH: dict[str, Callable[..., object]] = {
    "Client.list": lambda **o: close(client(), "list", **o),
    "Client.list_page": lambda **o: close(client(), "list_page", **o),
    "Client.watch": lambda **o: close(client(), "watch", **o),
    "Client.delete_collection": lambda **o: close(
        client(), "delete_collection", **{"namespace": "a", **o}
    ),
    "NamespacedClient.list": lambda **o: NamespacedClient(client(), "a").list(WIDGET, **o),
    "Cache": lambda **o: Cache(no_client(), metrics=Metrics(), **o),
    "Cache.list": lambda **o: cache().list(WIDGET, **o),
    "CachedClient.list": lambda **o: CachedClient(client(), cache()).list(WIDGET, **o),
    "CacheOptions": CacheOptions,
    "NamespaceOptions": NamespaceOptions,
    "CacheSetup": CacheSetup,
    "Informer": lambda **o: Informer(WIDGET, no_client(), metrics=Metrics(), **o),
    "KubernetesInformer": lambda **o: KubernetesInformer(
        WIDGET, no_client(), metrics=Metrics(), **o
    ),
}
LABELS: dict[str, Callable[..., object]] = {
    **BOTH,
    "Store.list": lambda **o: Store(WIDGET).list(**o),
    "labels": lambda **o: labels(o["label_selector"]),
}

WRONG_FORMS = [["app=web"], ("app=web", "tier"), 5, True, ..., b"app=web", {"app"}]
WRONG_LABELS: list[tuple[Any, str]] = [
    ({"app": None}, "'app'"),
    ({"app": 5}, "'app'"),
    ({5: "app"}, "5"),
    ({"!app": "web"}, "'!app'"),
    ({"app": "web,tier=front"}, "'app'"),
    ({"app,tier": "web"}, "'app,tier'"),
    ({"app": "!web"}, "'app'"),
    ({"app in (a)": ""}, r"app in"),
    ({"app": " web"}, "'app'"),
]
WRONG_FIELDS: list[tuple[Any, str]] = [
    ({"metadata.name": None}, "'metadata.name'"),
    ({"metadata.name": 5}, "'metadata.name'"),
    ({5: "a"}, "5"),
    ({"metadata.name!": "web"}, "'metadata.name!'"),
    ({"a.b=c,metadata.name": "web"}, "a.b=c"),
    ({"": "web"}, "''"),
    ({" a": "web"}, "' a'"),
]


@pytest.mark.parametrize("wrong", [*WRONG_FORMS, FieldSelector()], ids=repr)
@pytest.mark.parametrize("place", LABELS)
def test_a_label_selector_of_another_form_is_refused_when_given(place, wrong):
    with pytest.raises(TypeError, match=r"selector=.*give it as text, as a mapping or as a Label"):
        LABELS[place](label_selector=wrong)


@pytest.mark.parametrize("wrong", [*WRONG_FORMS, LabelSelector()], ids=repr)
@pytest.mark.parametrize("place", BOTH)
def test_a_field_selector_of_another_form_is_refused_when_given(place, wrong):
    with pytest.raises(TypeError, match=r"selector=.*give it as text, as a mapping or as a Field"):
        BOTH[place](field_selector=wrong)


@pytest.mark.parametrize("place", [place for place in BOTH if "Namespaced" not in place])
def test_a_filter_that_no_server_knows_is_refused_as_a_selector(place):
    for wrong in (labels("a") | labels("b"), annotation("a"), field("spec.a").changed):
        for option in ("label_selector", "field_selector"):
            with pytest.raises(TypeError, match=f"{option}=.*filter by the rest with where="):
                BOTH[place](**{option: wrong})


def test_a_filter_that_is_a_selector_is_taken_as_one():
    options = CacheOptions(
        label_selector=labels("app=web") & labels("!old"),
        field_selector=field("metadata.name") == "a",
    )
    assert str(options.label_selector) == "app=web,!old"
    assert str(options.field_selector) == "metadata.name=a"


@pytest.mark.parametrize(("wrong", "key"), WRONG_LABELS, ids=repr)
@pytest.mark.parametrize("place", LABELS)
def test_a_mapping_of_labels_that_would_mean_something_else_is_refused(place, wrong, key):
    with pytest.raises((TypeError, SelectorError), match=key):
        LABELS[place](label_selector=wrong)


@pytest.mark.parametrize(("wrong", "path"), WRONG_FIELDS, ids=repr)
@pytest.mark.parametrize("place", BOTH)
def test_a_mapping_of_fields_that_would_mean_something_else_is_refused(place, wrong, path):
    with pytest.raises((TypeError, SelectorError), match=path):
        BOTH[place](field_selector=wrong)


@pytest.mark.parametrize("wrong", [["a", "b"], ("a",), 5, None, b"a", {"a": 1}], ids=repr)
@pytest.mark.parametrize(
    "place", [name for name in BOTH if name not in ("Cache", "CacheOptions", "NamespaceOptions",
                                                    "CacheSetup", "NamespacedClient.list")]
)  # fmt: skip
def test_one_namespace_is_one_text(place, wrong):
    if place == "Cache.list" and wrong is None:
        return  # there it means all
    with pytest.raises(TypeError, match=r"namespace=.*give the name of one namespace as text"):
        BOTH[place](namespace=wrong)


@pytest.mark.parametrize("place", ["Informer", "KubernetesInformer", "Client.list", "Cache.list"])
def test_a_namespace_is_one_that_can_be_asked_for(place):
    with pytest.raises(ValueError, match="'a/b' cannot be part of a path"):
        BOTH[place](namespace="a/b")


@pytest.mark.parametrize("wrong", [5, [5], ["a", None], [b"a"], "a", ["a/b"], {"a/b": None}])
@pytest.mark.parametrize("place", ["Cache", "CacheOptions", "CacheSetup"])
def test_namespaces_are_names(place, wrong):
    with pytest.raises((TypeError, ValueError), match="namespace"):
        BOTH[place](namespaces=wrong)


@pytest.mark.parametrize("name", [None, 5, ["a"]])
@pytest.mark.parametrize(
    "call",
    [
        lambda client, name: client.get(WIDGET, name, namespace="a"),
        lambda client, name: client.delete(WIDGET, name, namespace="a"),
        lambda client, name: client.status.get(WIDGET, name, namespace="a"),
    ],
)
def test_a_name_that_is_no_text_does_not_ask_for_all(call, name):
    with client() as connected, pytest.raises(TypeError, match=r"name=.*as text"):
        call(connected, name)
