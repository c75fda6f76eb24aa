"""Mistakes that newcomers make, and what they are told."""

from __future__ import annotations

import copy
import datetime as dt
import pickle
from collections.abc import Iterator
from typing import Any, Protocol

import pytest

from appsdk_operator.client import Client, NotFound
from appsdk_operator.controllers import (
    Controller,
    FinalizerRegistry,
    Finalizing,
    FinalizingOutcome,
    OperationResult,
    Request,
    Result,
    add_finalizer,
    controller_for,
    create_or_patch,
    create_or_update,
    finalizing,
    map_objects,
    put_finalizer,
)
from appsdk_operator.resource import Kind, MutableObject, Object, kinds
from appsdk_operator.runtime import Metrics
from appsdk_operator.testing import MemoryServer
from appsdk_operator.watchers import (
    KeyReconciler,
    OpinionatedReconciler,
    ReconcileRequest,
    SimpleReconciler,
)
from tests.controllers.controller_tools import Rig
from tests.controllers.event_tools import RecordingQueue, created, obj, updated
from tests.controllers.test_builder import Host

CONFIG_MAP, POD = kinds.core.v1.ConfigMap, kinds.core.v1.Pod
WIDGET = Kind(group="example.com", version="v1", kind="Widget")


def nothing(request: object) -> None:
    """Reconciles nothing."""


# Results of a reconciler.


@pytest.mark.parametrize(
    "make",
    [
        lambda: Result(60),  # type: ignore[call-arg, misc]
        lambda: Result(requeue=True),  # type: ignore[call-arg]
        lambda: Result(True, requeue_after=5),  # type: ignore[call-arg, misc]
    ],
)
def test_results_as_in_go_are_refused_with_how_they_are_written(make: Any) -> None:
    with pytest.raises(TypeError, match=r"by name, Result\(requeue_after=60\.0\).*RetryAfter"):
        make()


def test_results_can_be_copied_all_the_same() -> None:
    result = Result(requeue_after=3.0)
    assert copy.deepcopy(result) == result == pickle.loads(pickle.dumps(result))
    with pytest.raises(TypeError, match=r"with .total_seconds"):
        Result(requeue_after=dt.timedelta(seconds=3))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="requeue_afer"):
        Result(requeue_afer=3.0)  # type: ignore[call-arg]


def test_the_outcome_of_finalizing_is_no_result(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(FinalizingOutcome(Finalizing.APPLIED, None, None)).begin()
    rig.add("a")
    rig.work()
    assert "returned FinalizingOutcome: return its value, outcome.value" in caplog.text
    rig.close()


class ByAnnotation:
    def reconcile(self, request: ReconcileRequest) -> None:
        """Reconciles nothing."""


class ByDottedText:
    def reconcile(self, request: watchers.ReconcileRequest) -> None:  # type: ignore[name-defined] # noqa: F821
        """Reconciles nothing."""


class ByTextWithTypes:
    def reconcile(self, request: ReconcileRequest[int, str]) -> None:
        """Reconciles nothing."""


class ByTypes:
    def reconcile(self, request: Any) -> None:
        """Reconciles nothing."""

    reconcile.__annotations__["request"] = ReconcileRequest[int]


@pytest.mark.parametrize(
    "reconciler",
    [
        SimpleReconciler(nothing),
        KeyReconciler(nothing),
        OpinionatedReconciler(
            SimpleReconciler(nothing), WIDGET, Client(MemoryServer().config, metrics=Metrics())
        ),
        ByAnnotation(),
        ByDottedText(),
        ByTextWithTypes(),
        ByTypes(),
    ],
)
def test_a_reconciler_of_an_informer_controller_is_refused(reconciler: Any) -> None:
    with pytest.raises(TypeError, match=r"takes a ReconcileRequest.* give a function of a Request"):
        controller_for(Host()).for_(CONFIG_MAP).complete(reconciler)
    with pytest.raises(TypeError, match="takes a ReconcileRequest"):
        Controller("x", reconciler)


# Requests that a map function makes.


def handled(function: Any, **how: Any) -> list[Any]:
    """What the builder's handler makes of an event."""
    builder = controller_for(Host(), **how).named("x").watches(POD, function)
    queue = RecordingQueue()
    [make] = builder._watch_factories
    handler = make().handler
    handler.handle(created("a"), queue)
    handler.handle(updated(obj("a"), obj("a", 2)), queue)
    return queue.requests


@pytest.mark.parametrize(
    ("function", "what"),
    [
        (lambda o: [o.name], "str"),
        (lambda o: [(o.namespace, o.name)], "tuple"),
        (lambda o: (each for each in (o.key, o)), "Object"),
        (lambda o: [o.key, None], "NoneType"),
        (map_objects(lambda o: [o.name]), "str"),
    ],
)
def test_what_is_no_request_is_a_failure_of_the_map_function(function: Any, what: str) -> None:
    text = rf"map function .*lambda.* returned a {what} .* list of Request\(namespace, name\)"
    with pytest.raises(TypeError, match=text):
        handled(function)


def test_requests_of_a_map_function_go_through() -> None:
    expected = [Request("x", "a")] * 2
    assert handled(lambda o: [o.key, o.key]) == expected
    assert handled(lambda o: (each for each in [o.key])) == expected
    assert handled(lambda o: None) == []


class Named(Protocol):
    name: str


@pytest.mark.parametrize("request_type", [str, str | int, Named])
def test_requests_of_another_type_are_held_to_that(request_type: Any) -> None:
    assert handled(lambda o: [o.name], request_type=request_type) == ["a", "a"]
    with pytest.raises(TypeError, match=r"returned a str among its requests: .* list of tuple"):
        handled(lambda o: [o.name], request_type=tuple[str, int])
    with pytest.raises(TypeError, match=r"returned a str among its requests: .* list of int \| "):
        handled(lambda o: [o.name], request_type=int | float)


# Functions that are to change their argument.


@pytest.fixture
def client() -> Iterator[Client]:
    with Client(MemoryServer().config, metrics=Metrics()) as made:
        made.create(MutableObject.new(kinds.core.v1.Namespace, "x"))
        yield made


def settings() -> MutableObject:
    return MutableObject.new(CONFIG_MAP, "settings", namespace="x")


@pytest.mark.parametrize("write", [create_or_update, create_or_patch])
@pytest.mark.parametrize(
    ("returned", "text"),
    [
        (settings(), "returned MutableObject, which would not be written: change its argument"),
        (Object.from_dict(CONFIG_MAP, settings().data), "returned Object, which would not be"),
        ({"data": {"color": "blue"}}, "returned dict, which would not be written"),
        (ValueError("no"), "returned ValueError, which the kit would ignore: .* raise errors"),
    ],
)
def test_an_object_that_is_returned_is_not_lost(
    client: Client, write: Any, returned: Any, text: str
) -> None:
    with pytest.raises(TypeError, match=text):
        write(client, settings(), lambda _: returned)
    with pytest.raises(NotFound):
        client.get(CONFIG_MAP, "settings", namespace="x")


@pytest.mark.parametrize("write", [create_or_update, create_or_patch])
@pytest.mark.parametrize(
    "mutate",
    [
        lambda draft: draft,
        lambda draft: draft.data,
        lambda draft: draft.data.setdefault("data", {}),
        lambda draft: add_finalizer(draft, "example.com/cleanup"),
        lambda draft: draft.labels.setdefault("color", "blue"),
    ],
)
def test_what_else_a_lambda_returns_is_no_failure(client: Client, write: Any, mutate: Any) -> None:
    assert write(client, settings(), mutate).result is OperationResult.CREATED


# Finalizers.


@pytest.mark.parametrize(
    "put",
    [
        lambda client, draft: add_finalizer(draft, "cleanup"),
        lambda client, draft: put_finalizer(client, client.create(draft), "cleanup"),
        lambda client, draft: finalizing(
            client, client.create(draft), "cleanup", apply=nothing, cleanup=nothing
        ),
    ],
)
def test_a_finalizer_without_a_domain_is_refused_for_built_in_kinds(
    client: Client, put: Any
) -> None:
    with pytest.raises(ValueError, match=r"has no domain.* use for example 'example.com/cleanup'"):
        put(client, settings())


@pytest.mark.parametrize(
    ("kind", "name"),
    [(CONFIG_MAP, "orphan"), (WIDGET, "cleanup"), (kinds.policy.v1.PodDisruptionBudget, "cleanup")],
)
def test_what_servers_take_is_taken(kind: Kind, name: str) -> None:
    assert add_finalizer(MutableObject.new(kind, "a", namespace="x"), name)


@pytest.mark.parametrize("returned", [Result(requeue_after=5.0), ValueError("no")])
def test_a_clean_up_that_returns_what_asks_for_something_keeps_the_finalizer(
    returned: Any,
) -> None:
    registry = FinalizerRegistry()
    registry.register("example.com/cleanup", lambda _: returned)
    draft = settings()
    draft.finalizers.append("example.com/cleanup")
    draft.metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    with pytest.raises(ExceptionGroup) as caught:
        registry.finalize(draft)
    [error] = caught.value.exceptions
    assert "raise an error, or RetryAfter(seconds), to keep the finalizer" in str(error)
    assert draft.finalizers == ["example.com/cleanup"]
