"""Wrong arguments are refused where they are given, by an error that names the argument.

Each public function is called with what it takes, but for one argument, which gets what its
annotation does not allow.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from appsdk_operator import cache, controllers, watchers
from appsdk_operator import client as c
from appsdk_operator.client import Discovery
from appsdk_operator.resource import MutableObject, Object, kinds
from appsdk_operator.runtime import Metrics, StopSignal
from tests.simulations import no_client

CONFIG_MAP = kinds.core.v1.ConfigMap


async def never_awaited(*_: object) -> None:
    """What nothing awaits."""


NO_NUMBER: tuple[Any, ...] = (None, "", "1", [], {}, object, math.nan, True)
WRONG: dict[str, tuple[Any, ...]] = {
    "text": (None, 0, 5, [], ["x"], b"x", object, True),
    "flag": (None, "", "false", 0, 1, []),
    "count": (*NO_NUMBER, -1, 1.5, math.inf),
    "seconds": (*NO_NUMBER, -1, math.inf, 2**1024),
    "function": ("", 0, 5, [], {}, True, never_awaited),
    "anything": ("", 0, 5, "x", ["x"], object, True),
    "mapping": ("", 0, 5, "x", ["x"], object),
}
ANNOTATIONS = {
    "str": "text",
    "bool": "flag",
    "int": "count",
    "float": "seconds",
}
FUNCTIONS = {"Change", "ConditionLike", "ErrorHandler", "Handle", "IndexFunction", "Transform"}
# test_selections.py has the selectors and namespaces, verbs are none, and a lock is an informer's.
ELSEWHERE = {"label_selector", "field_selector", "namespaces", "verbs", "write_lock"}
AWAITED = {"apply", "cleanup", "mutate"}
"""Functions that may be ``async def``, besides those that may return an awaitable."""
# Never, and: look once.
FINE = {
    ("silence_limit", math.inf),
    ("sync_timeout", math.inf),
    ("timeout", math.inf),
    ("timeout", -1),
    ("priority", -1),
}


def form_of(annotation: str) -> str:
    first = annotation.partition(" | ")[0]
    if first in ANNOTATIONS:
        return ANNOTATIONS[first]
    if "Callable[" in first or first.partition("[")[0] in FUNCTIONS:
        return "function"
    return "mapping" if first.startswith("Mapping[") else "anything"


def no_connection() -> Any:
    raise AssertionError("a request was made")


def client() -> c.Client:
    config = c.ClientConfig(server="http://nowhere", connector=no_connection)
    return c.Client(config, metrics=Metrics())


def draft() -> MutableObject:
    return MutableObject.new(CONFIG_MAP, "a", namespace="x")


def stop() -> StopSignal:
    made = StopSignal()
    made.set()
    return made


def nothing(*_: object) -> None:
    """Does nothing."""


ONE = {"kind": CONFIG_MAP, "name": "a", "namespace": "x"}
PATCH = {**ONE, "patch": c.MergePatch({})}

Calls = dict[str, tuple[Callable[[], Callable[..., Any]], dict[str, Any]]]

CLIENT: Calls = {
    **{
        f"Client.{verb}": (lambda verb=verb: getattr(client(), verb), arguments)
        for verb, arguments in (
            ("get", ONE),
            ("list", {"kind": CONFIG_MAP}),
            ("list_page", {"kind": CONFIG_MAP}),
            ("watch", {"kind": CONFIG_MAP}),
            ("create", {"obj": draft()}),
            ("update", {"obj": draft()}),
            ("patch", PATCH),
            ("apply", {"obj": draft(), "field_manager": "me"}),
            ("delete", ONE),
            ("delete_collection", {"kind": CONFIG_MAP, "namespace": "x"}),
            ("request", {"method": "GET", "path": "/version"}),
        )
    },
    **{
        f"Client.status.{verb}": (lambda verb=verb: getattr(client().status, verb), arguments)
        for verb, arguments in (
            ("get", ONE),
            ("create", {"obj": draft()}),
            ("update", {"obj": draft()}),
            ("patch", PATCH),
            ("apply", {"obj": draft(), "field_manager": "me"}),
        )
    },
    "Client": (lambda: c.Client, {"config": c.ClientConfig(server="http://nowhere")}),
    "DryRunClient": (lambda: c.DryRunClient, {"inner": client()}),
    "FieldOwnerClient": (lambda: c.FieldOwnerClient, {"inner": client(), "field_manager": "me"}),
    "NamespacedClient": (lambda: c.NamespacedClient, {"inner": client(), "namespace": "x"}),
    "JsonPatch": (lambda: c.JsonPatch, {"operations": []}),
    "MergePatch": (lambda: c.MergePatch, {"fields": {}}),
    "StrategicMergePatch": (lambda: c.StrategicMergePatch, {"fields": {}}),
    "ObjectStore": (lambda: c.ObjectStore, {"client": client(), "kind": CONFIG_MAP}),
    "SpecStore": (lambda: c.SpecStore, {"client": client(), "kind": CONFIG_MAP}),
    "Discovery": (lambda: Discovery, {"get": nothing}),
    "Discovery.kind_for": (lambda: client().discovery.kind_for, {"name": "pods"}),
    "Discovery.resources": (lambda: client().discovery.resources, {"api_version": "v1"}),
}


def is_fine(parameter: inspect.Parameter, value: Any) -> bool:
    annotation = str(parameter.annotation)
    if value is None:
        return " | None" in annotation or parameter.default is None
    if isinstance(value, (int, float)) and (parameter.name, value) in FINE:
        return True
    if value is never_awaited and ("Awaitable[" in annotation or parameter.name in AWAITED):
        return True
    is_callable = value is object and "Callable[" in annotation
    return is_callable or (value == ["x"] and annotation.startswith("Iterable["))


def cases(calls: Calls) -> Iterator[Any]:
    for name, (make, arguments) in calls.items():
        for parameter in inspect.signature(make()).parameters.values():
            if parameter.name not in ELSEWHERE:
                yield pytest.param(make, arguments, parameter, id=f"{name}-{parameter.name}")


def check(make: Any, arguments: dict[str, Any], parameter: inspect.Parameter) -> None:
    taken = []
    for wrong in WRONG[form_of(str(parameter.annotation))]:
        if is_fine(parameter, wrong):
            continue
        try:
            make()(**{**arguments, parameter.name: wrong})
        except (TypeError, ValueError) as error:
            if parameter.name not in str(error):
                taken.append((wrong, str(error)))
        else:
            taken.append((wrong, "was taken"))
    assert taken == []


@pytest.mark.parametrize(("make", "arguments", "parameter"), list(cases(CLIENT)))
def test_a_client_names_the_argument(make, arguments, parameter):
    check(make, arguments, parameter)


class Handles:
    """A handler of events."""

    on_add = on_update = on_delete = nothing


def following(kind: Any = CONFIG_MAP) -> cache.Cache:
    made = cache.Cache(no_client(), metrics=Metrics())
    made.add(kind)
    return made


def informer() -> cache.Informer:
    return cache.Informer(CONFIG_MAP, no_client(), metrics=Metrics())


def key(_: object) -> tuple[str, ...]:
    return ("a",)


KIND = {"kind": CONFIG_MAP}
SERVER = {"client": no_client()}
CACHE: Calls = {
    "Cache": (lambda: cache.Cache, SERVER),
    "CacheOptions": (lambda: cache.CacheOptions, {}),
    "NamespaceOptions": (lambda: cache.NamespaceOptions, {}),
    "CachedClient": (lambda: cache.CachedClient, {"client": client(), "cache": following()}),
    "Delivery": (lambda: cache.Delivery, {"name": "d", "handle": nothing}),
    "Informer": (lambda: cache.Informer, {**KIND, **SERVER}),
    "KubernetesInformer": (lambda: watchers.KubernetesInformer, {**KIND, **SERVER}),
    "Store": (lambda: cache.Store, KIND),
    **{
        f"Cache.{method}": (lambda method=method: getattr(following(), method), arguments)
        for method, arguments in (
            ("add", KIND),
            ("add_event_handler", {**KIND, "handler": Handles()}),
            ("add_index", {**KIND, "name": "i", "function": key}),
            ("by_index", {**KIND, "index": "i", "value": "v"}),
            ("get", ONE),
            ("index_field", {**KIND, "path": "data.a"}),
            ("informers", KIND),
            ("list", KIND),
            ("remove", KIND),
            ("run", {"stop": stop()}),
            ("set_namespaces", {"namespaces": ["a"]}),
            ("wait_for_sync", {"stop": stop()}),
        )
    },
    **{
        f"Informer.{method}": (lambda method=method: getattr(informer(), method), arguments)
        for method, arguments in (
            ("add_event_handler", {"handler": Handles()}),
            ("add_index", {"name": "i", "function": key}),
            ("run", {"stop": stop()}),
            ("wait_for_sync", {"stop": stop()}),
        )
    },
    "Store.add_index": (
        lambda: cache.Store(CONFIG_MAP).add_index,
        {"name": "i", "function": key},
    ),
}


@pytest.mark.parametrize(("make", "arguments", "parameter"), list(cases(CACHE)))
def test_a_cache_names_the_argument(make, arguments, parameter):
    check(make, arguments, parameter)


def read(name: str = "a") -> Object:
    metadata = {"name": name, "namespace": "x", "uid": name, "resourceVersion": "1"}
    return Object.from_dict(CONFIG_MAP, {"metadata": metadata})


HANDLER = controllers.for_object()
FINALIZER = {"client": client(), "obj": read(), "name": "example.com/f"}
OWNED = {"owner": read("o"), "obj": draft()}
CONTROLLERS: Calls = {
    "ChannelSource": (lambda: controllers.ChannelSource, {"handler": HANDLER}),
    "FunctionSource": (lambda: controllers.FunctionSource, {"function": nothing}),
    "InformerSource": (
        lambda: controllers.InformerSource,
        {"informer": informer(), "handler": HANDLER},
    ),
    "KindSource": (
        lambda: controllers.KindSource,
        {"cache": following(), **KIND, "handler": HANDLER},
    ),
    "TimerSource": (lambda: controllers.TimerSource, {"interval": 1.0, "requests": []}),
    "PollingSource": (lambda: controllers.PollingSource, {"interval": 1.0, "fetch": dict}),
    "Result": (lambda: controllers.Result, {}),
    "as_reconciler": (
        lambda: controllers.as_reconciler,
        {"reader": client(), **KIND, "object_reconciler": nothing},
    ),
    "finalizing": (
        lambda: controllers.finalizing,
        {**FINALIZER, "apply": nothing, "cleanup": nothing},
    ),
    "for_object": (lambda: controllers.for_object, {}),
    "for_owner": (lambda: controllers.for_owner, {"owner_kind": CONFIG_MAP}),
    "map_objects": (lambda: controllers.map_objects, {"function": key}),
    "patch_conditions": (
        lambda: controllers.patch_conditions,
        {"client": client(), "obj": read()},
    ),
    "set_condition": (
        lambda: controllers.set_condition,
        {"obj": draft(), "type": "Ready", "status": "True", "reason": "R"},
    ),
    "wait_for": (
        lambda: controllers.wait_for,
        {"reader": client(), **ONE, "condition": nothing, "stop": stop()},
    ),
    **{
        name: (lambda name=name: getattr(controllers, name), arguments)
        for name, arguments in (
            ("add_finalizer", {"obj": draft(), "name": "example.com/f"}),
            ("remove_finalizer", {"obj": draft(), "name": "example.com/f"}),
            ("has_finalizer", {"obj": draft(), "name": "example.com/f"}),
            ("put_finalizer", FINALIZER),
            ("take_finalizer_off", FINALIZER),
            ("get_condition", {"obj": draft(), "type": "Ready"}),
            ("is_condition_true", {"obj": draft(), "type": "Ready"}),
            ("is_condition_false", {"obj": draft(), "type": "Ready"}),
            ("remove_condition", {"obj": draft(), "type": "Ready"}),
            ("set_controller_reference", OWNED),
            ("set_owner_reference", OWNED),
            ("remove_owner_reference", OWNED),
            ("remove_controller_reference", OWNED),
            ("has_owner_reference", OWNED),
            ("controller_of", {"obj": draft()}),
            ("has_controller_reference", {"obj": draft()}),
            ("create_or_update", {"client": client(), "obj": draft(), "mutate": nothing}),
            ("create_or_patch", {"client": client(), "obj": draft(), "mutate": nothing}),
            ("apply", {"client": client(), "obj": draft(), "field_manager": "me"}),
        )
    },
    "default_finalizer": (lambda: watchers.default_finalizer, KIND),
    "in_progress_finalizer": (lambda: watchers.in_progress_finalizer, KIND),
}


@pytest.mark.parametrize(("make", "arguments", "parameter"), list(cases(CONTROLLERS)))
def test_a_controller_names_the_argument(make, arguments, parameter):
    check(make, arguments, parameter)
