"""No exception of a user's function ends or silences what calls it, whatever the exception does."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from appsdk_operator import (
    App,
    ConstantBackoff,
    InformerController,
    KubernetesInformer,
    Manager,
    MergePatch,
    MutableObject,
    OpinionatedWatcher,
    Request,
    SimpleWatcher,
    controller_for,
    kinds,
)
from appsdk_operator.cache import Informer
from appsdk_operator.controllers import (
    ControllerOptions,
    FunctionSource,
    PollingSource,
    TerminalError,
    TimerSource,
    map_objects,
)
from appsdk_operator.manager import HealthChecks, ManagerOptions, Operator
from appsdk_operator.resource import Kind, Versions
from appsdk_operator.runtime import ItemExponential, ManualClock, Metrics, StopSignal, WorkQueue
from appsdk_operator.serving import HTTPRequest
from appsdk_operator.testing import BrokenPromise, MemoryServer, check_operator, running
from appsdk_operator.watchers import SimpleReconciler
from appsdk_operator.webhooks import (
    Admission,
    AdmissionRequest,
    AdmissionResponse,
    ConversionWebhook,
    TokenReviewRequest,
    TokenReviewResponse,
    TokenReviewWebhook,
)
from tests.hostile_errors import HOSTILE_ERRORS, RaisesAtItsClass
from tests.testing.broken.operators import WIDGET
from tests.waiting import eventually
from tests.webhooks.admission_parts import answer, review

ConfigMap = kinds.core.v1.ConfigMap
NAMES = {f"error-{number}": make for number, make in enumerate(HOSTILE_ERRORS.values())}


class Adds:
    """An event handler that hears of additions."""

    def __init__(self, function: Callable[[Any], object]) -> None:
        self.function = function

    def on_add(self, obj: Any, is_initial: bool) -> None:
        self.function(obj)

    def on_update(self, old: Any, new: Any) -> None: ...

    def on_delete(self, obj: Any) -> None: ...


class Failing:
    """Raises the hostile exception of an object's name, the first time."""

    def __init__(self) -> None:
        self.raised: set[str] = set()
        self.succeeded: set[str] = set()

    def __call__(self, obj: Any, *rest: Any) -> Any:
        name = getattr(obj, "name", obj)
        if name in NAMES and name not in self.raised:
            self.raised.add(name)
            raise NAMES[name]()  # noqa: RSE102
        self.succeeded.add(name)
        return None

    def has_gone_through_all(self) -> bool:
        return self.raised == self.succeeded == set(NAMES)


@pytest.fixture
def client() -> Iterator[Any]:
    """Of a server with an object for each hostile exception."""
    client = MemoryServer().client()
    for name in NAMES:
        client.create(MutableObject.new(ConfigMap, name, namespace="default"))
    return client


@pytest.fixture(autouse=True)
def all_levels(caplog: pytest.LogCaptureFixture) -> None:
    """What is logged at any level is formatted, as a handler of the user's would."""
    caplog.set_level(logging.DEBUG, "appsdk_operator")


def informer_controller(client: Any, watcher: Any, **options: Any) -> InformerController:
    controller = InformerController(
        retry_policy=options.pop("retry_policy", ConstantBackoff(0.001)), **options
    )
    controller.add_informer(KubernetesInformer(ConfigMap, client), ConfigMap)
    controller.add_watcher(watcher, ConfigMap)
    return controller


@pytest.mark.parametrize("options", [{}, {"error_handler": lambda error, call: None}])
@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("form", [SimpleWatcher, OpinionatedWatcher])
def test_the_methods_of_a_watcher(form: Any, workers: int, options: Any, client: Any) -> None:
    add, others = Failing(), set()
    watcher = (
        SimpleWatcher(add=add)
        if form is SimpleWatcher
        else OpinionatedWatcher(ConfigMap, client, add=add)
    )
    controller = informer_controller(client, watcher, workers=workers, **options)
    controller.add_watcher(SimpleWatcher(add=lambda obj: others.add(obj.name)), ConfigMap)
    with running(controller):
        eventually(add.has_gone_through_all)
        eventually(lambda: others == set(NAMES))


def test_a_reconciler_of_an_informer_controller(client: Any) -> None:
    function = Failing()
    controller = informer_controller(client, SimpleWatcher())
    controller.add_reconciler(SimpleReconciler(lambda request: function(request.object)), ConfigMap)
    with running(controller):
        eventually(function.has_gone_through_all)


def test_the_deletion_of_an_opinionated_watcher(client: Any) -> None:
    delete = Failing()
    watcher = OpinionatedWatcher(ConfigMap, client, delete=delete)
    with running(informer_controller(client, watcher)):
        eventually(lambda: all(obj.finalizers for obj in client.list(ConfigMap)))
        for name in NAMES:
            client.delete(ConfigMap, name, namespace="default")
        eventually(delete.has_gone_through_all)
        eventually(lambda: not list(client.list(ConfigMap)))


@pytest.mark.parametrize("option", ["error_handler", "retry_policy", "retry_dequeue_policy"])
def test_the_policies_of_an_informer_controller(option: str, client: Any) -> None:
    first, called = Failing(), Failing()

    def policy(*args: Any) -> Any:
        error = args[-1] if option == "retry_dequeue_policy" else args[0]
        called(str(error))

    def fail(obj: Any) -> None:
        if obj.name not in first.raised:
            first.raised.add(obj.name)
            raise RuntimeError(obj.name)
        first.succeeded.add(obj.name)

    watcher = SimpleWatcher(add=fail, update=lambda old, new: fail(new))
    controller = informer_controller(client, watcher, **{option: policy})
    with running(controller):
        eventually(lambda: first.raised == set(NAMES))
        for obj in client.list(ConfigMap):
            client.patch(ConfigMap, obj.name, MergePatch({"data": {"a": "b"}}), namespace="default")
        eventually(lambda: first.succeeded == set(NAMES))
        if option != "retry_dequeue_policy":
            assert called.raised == set(NAMES)


def of_controller(mgr: Any, part: str, function: Failing) -> None:
    ignore: Callable[[Any], None] = lambda request: None  # noqa: E731
    builder = controller_for(mgr).named(f"of-{part.split(maxsplit=1)[0]}")
    if part == "reconcile":
        builder.for_(ConfigMap).complete(lambda request: function(request.name))
    elif part == "predicate":
        # One that fails lets the event pass.
        passed = [lambda event: bool(function(event.object)) or True]
        builder.for_(ConfigMap, predicates=passed).complete(
            lambda request: function.succeeded.add(request.name)
        )
    else:

        def requests(obj: Any) -> list[Request]:
            function(obj)
            return [Request(obj.name, obj.namespace)]

        builder.watches(ConfigMap, map_objects(requests)).complete(ignore)


@pytest.mark.parametrize("part", ["reconcile", "predicate", "map function"])
def test_the_functions_of_a_controller(part: str, client: Any) -> None:
    function = Failing()
    mgr = Manager(
        client,
        options=ManagerOptions(
            metrics=Metrics(),
            controller_options=ControllerOptions(
                rate_limiter=lambda: ItemExponential(base=0.001, maximum=0.01, jitter=0.0)
            ),
        ),
    )
    of_controller(mgr, part, function)
    with running(mgr):
        eventually(function.has_gone_through_all)


@pytest.mark.parametrize("part", ["handler", "transform", "index"])
def test_the_functions_of_an_informer(part: str, client: Any) -> None:
    function, seen = Failing(), set()
    options: dict[str, Any] = {"metrics": Metrics()}
    if part == "transform":
        options["transform"] = lambda obj: function(obj) or obj
    informer = Informer(ConfigMap, client, **options)
    if part == "index":
        informer.add_index("hostile", lambda obj: function(obj) or ["a"])
    if part == "handler":
        informer.add_event_handler(Adds(function))
    informer.add_event_handler(Adds(lambda obj: seen.add(obj.name)))
    with running(informer):
        eventually(lambda: function.raised == set(NAMES))
        client.create(MutableObject.new(ConfigMap, "later", namespace="default"))
        eventually(lambda: "later" in seen and "later" in function.succeeded)


class FailsOnce:
    """The client and a handler of an informer; one part of them fails, the first time."""

    def __init__(self, client: Any, part: str, make: Callable[[], BaseException]) -> None:
        self.client, self.part, self.make = client, part, make
        self.has_failed = False

    def may_fail(self, part: str) -> None:
        if part == self.part and not self.has_failed:
            self.has_failed = True
            raise self.make()

    def list_page(self, *args: Any, **options: Any) -> Any:
        self.may_fail("list")
        return self.client.list_page(*args, **options)

    def watch(self, *args: Any, **options: Any) -> Any:
        self.may_fail("watch")
        self.stream = self.client.watch(*args, **options)
        return self

    def __enter__(self) -> Any:
        self.stream.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.stream.__exit__(*error)

    def __iter__(self) -> Iterator[Any]:
        self.may_fail("stream")
        yield from self.stream

    def on_events(self, events: Any) -> None:
        self.may_fail("handler")

    def on_initial_list_end(self) -> None: ...


@pytest.mark.parametrize("make", HOSTILE_ERRORS.values(), ids=HOSTILE_ERRORS)
@pytest.mark.parametrize("part", ["list", "watch", "stream", "handler"])
def test_a_request_and_a_batch_handler_of_an_informer(part: str, make: Any, client: Any) -> None:
    clock, failing = ManualClock(), FailsOnce(client, part, make)
    informer = Informer(
        ConfigMap, failing, stream_first_sync=part == "stream", clock=clock, metrics=Metrics()
    )
    informer.add_event_handler(failing)

    def knows(name: str) -> bool:
        clock.advance(1.0)
        return failing.has_failed and informer.store.get(name, "default") is not None

    with running(informer, wait=False):
        eventually(lambda: knows("error-0"))
        client.create(MutableObject.new(ConfigMap, "later", namespace="default"))
        eventually(lambda: knows("later"))


@pytest.mark.parametrize("make", HOSTILE_ERRORS.values(), ids=HOSTILE_ERRORS)
@pytest.mark.parametrize("form", ["function", "timer", "poll"])
def test_the_function_of_a_source_is_called_again(form: str, make: Any) -> None:
    clock, calls = ManualClock(), []

    def fail(*_: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            raise make()
        return {}

    options: dict[str, Any] = {"clock": clock, "metrics": Metrics()}
    source: Any
    if form == "function":
        source = FunctionSource(fail, **options)
    elif form == "timer":
        source = TimerSource(1.0, fail, first_after=0.0, **options)
    else:
        source = PollingSource(1.0, fail, **options)
    stop = StopSignal(clock=clock)
    source.start(WorkQueue("requests", clock=clock), stop)

    def is_called_again() -> bool:
        clock.advance(1.0)
        return len(calls) >= 2

    eventually(is_called_again)
    stop.set()
    assert source.join(10.0) == []


@pytest.mark.parametrize("make", HOSTILE_ERRORS.values(), ids=HOSTILE_ERRORS)
def test_a_runnable_of_a_manager_ends_it_with_its_own_error(
    make: Any, client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    mgr = Manager(client, options=ManagerOptions(metrics=Metrics()))
    error = make()

    def run(stop: Any) -> None:
        raise error

    mgr.add(run)
    raised = raised_by(mgr.run)
    assert "failed, the manager stops: " in caplog.text
    if type(error) is RaisesAtItsClass:
        assert "RaisesAtItsClass, and its class cannot be read" in str(raised)
    elif raised is not error:
        # What is no Exception would end more than the run: it becomes the cause of one.
        assert type(raised) is RuntimeError
        assert not isinstance(error, Exception)
        assert raised.__cause__ is error


@pytest.mark.parametrize("make", HOSTILE_ERRORS.values(), ids=HOSTILE_ERRORS)
def test_what_an_informer_and_its_controller_report(make: Any) -> None:
    class Failing:
        def fail(self, *args: Any, **options: Any) -> Any:
            raise make()

        list_page = watch = run = fail

        def add_event_handler(self, handler: Any) -> None: ...

    failing: Any = Failing()
    informer = Informer(ConfigMap, failing, metrics=Metrics())

    def step() -> None:
        informer.step(StopSignal())

    raised_by(step)
    assert not informer.health().is_ready
    assert informer.debug_snapshot()["ready"] is False
    controller = InformerController(metrics=Metrics())
    controller.add_informer(failing, "widgets")
    assert in_a_thread(lambda: raised_by(lambda: controller.run(StopSignal()))) is not None
    assert "failed: " in controller.health().text
    assert "failed: " in controller.debug_snapshot()["health"]


@pytest.mark.parametrize("make", HOSTILE_ERRORS.values(), ids=HOSTILE_ERRORS)
def test_a_call_that_waits_for_its_retry(make: Any, client: Any) -> None:
    def fail(obj: Any) -> None:
        raise make()

    controller = informer_controller(client, SimpleWatcher(add=fail), retry_policy=lambda *_: 60.0)
    (binding,) = controller._bindings.owned()
    binding.source.on_add(client.get(ConfigMap, "error-0", namespace="default"))
    in_a_thread(controller.process_next)
    (owed,) = controller.debug_snapshot()["planned"]
    assert owed["error"]
    controller.close()


@pytest.mark.parametrize("make", HOSTILE_ERRORS.values(), ids=HOSTILE_ERRORS)
def test_a_health_check_and_a_controller_of_an_operator(
    make: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing:
        def run(self, stop: Any) -> None:
            raise make()

    checks = HealthChecks("readyz")

    def check() -> None:
        raise make()

    checks.add("hostile", check)
    assert list(in_a_thread(checks.failures)) == ["hostile"]
    checks.close()
    operator = Operator()
    operator.add_controller(Failing())
    assert in_a_thread(lambda: raised_by(operator.run)) is not None
    assert "failed, the operator stops: " in caplog.text


def raised_by(function: Callable[[], None]) -> BaseException | None:
    """Apart from the test, which must not have a hostile exception as its context."""
    try:
        function()
    except BaseException as raised:
        return raised
    return None


@pytest.mark.parametrize("part", ["handler", "transform"])
def test_the_function_for_errors_of_an_informer(part: str, client: Any) -> None:
    function, on_error, seen = Failing(), Failing(), set()
    told: set[str] = set()

    def hears(error: Exception) -> None:
        # A transform's error is told of with the object's name in its text.
        for name in NAMES.keys() - told:
            told.add(name)
            on_error(name)

    transform = (lambda obj: function(obj) or obj) if part == "transform" else None
    informer = Informer(ConfigMap, client, metrics=Metrics(), transform=transform, on_error=hears)
    if part == "handler":
        informer.add_event_handler(Adds(function))
    informer.add_event_handler(Adds(lambda obj: seen.add(obj.name)))
    with running(informer):
        eventually(lambda: function.raised == set(NAMES))
        client.create(MutableObject.new(ConfigMap, "later", namespace="default"))
        eventually(lambda: "later" in seen and on_error.raised == set(NAMES))


@pytest.mark.parametrize("make", HOSTILE_ERRORS.values(), ids=HOSTILE_ERRORS)
@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_timer_of_an_app(
    make: Any, is_terminal: bool, client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    error, calls = make(), []
    app = App("hostile", retry_policy=ConstantBackoff(0.001))

    class HostileTerminalError(TerminalError):
        """Hostile as well, where a class of errors can be."""

        __str__ = type(error).__str__
        __repr__ = type(error).__repr__

    @app.every(0.01 if is_terminal else 60)
    def tick() -> None:
        calls.append(1)
        if len(calls) < 3:
            raise HostileTerminalError() if is_terminal else error

    with running(app.manager(client)):
        eventually(lambda: len(calls) > 2)
    assert ("TimerError" in caplog.text) is is_terminal


def test_the_functions_of_an_app(client: Any) -> None:
    app = App("hostile", retry_policy=ConstantBackoff(0.001))
    add = Failing()
    app.on_add(ConfigMap)(add)
    with running(app.manager(client)):
        eventually(add.has_gone_through_all)


def in_a_thread(function: Callable[[], Any]) -> Any:
    """What ``function`` returns, not in the main thread, for which exits are meant."""
    returned: list[Any] = []
    thread = threading.Thread(target=lambda: returned.append(function()))
    thread.start()
    thread.join()
    return returned[0]


@pytest.mark.parametrize("make", HOSTILE_ERRORS.values(), ids=HOSTILE_ERRORS)
def test_a_handler_of_a_webhook(make: Any) -> None:
    def refuse(request: AdmissionRequest) -> AdmissionResponse:
        raise make()

    refused = in_a_thread(lambda: answer(Admission(refuse), review()))
    assert not refused["allowed"]
    assert refused["status"]["code"] == 500


@pytest.mark.parametrize("make", HOSTILE_ERRORS.values(), ids=HOSTILE_ERRORS)
def test_a_handler_of_tokens(make: Any) -> None:
    def refuse(request: TokenReviewRequest) -> TokenReviewResponse:
        raise make()

    asked = HTTPRequest(
        method="POST",
        path="/",
        body=b'{"spec":{"token":"secret"}}',
        headers={"Content-Type": "application/json"},
    )
    answered = in_a_thread(lambda: TokenReviewWebhook(refuse)(asked))
    status = json.loads(answered.body)["status"]
    assert not status.get("authenticated")
    assert status["error"]


@pytest.mark.parametrize("make", HOSTILE_ERRORS.values(), ids=HOSTILE_ERRORS)
def test_a_converter(make: Any) -> None:
    def fail(old: Any, new: Any) -> None:
        raise make()

    kind, older = (Kind(group="example.com", version=v, kind="Widget") for v in ("v1", "v1beta1"))
    webhook = ConversionWebhook(Versions(kind).older(older, up=fail, down=fail))
    obj = {"apiVersion": older.api_version, "kind": "Widget", "metadata": {"name": "a"}}
    request = {"uid": "u", "desiredAPIVersion": kind.api_version, "objects": [obj]}
    asked = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview"}
    body = json.dumps({**asked, "request": request}).encode()
    status, answered = in_a_thread(lambda: webhook.review(body))
    assert status == 200
    assert json.loads(answered)["response"]["result"]["status"] == "Failure"


@pytest.mark.parametrize("make", HOSTILE_ERRORS.values(), ids=HOSTILE_ERRORS)
def test_an_operator_in_a_property_test(make: Any) -> None:
    def fail(obj: Any) -> None:
        raise make()

    def check() -> BaseException | None:
        return raised_by(
            lambda: check_operator(
                lambda replica: SimpleWatcher(add=fail),
                WIDGET,
                replay=['create a {"size": 1}'],
            )
        )

    broken = in_a_thread(check)
    assert type(broken) is BrokenPromise
    assert f"failed with {type(make()).__name__}: " in str(broken) or "RuntimeError" in str(broken)


@pytest.mark.parametrize("make", HOSTILE_ERRORS.values(), ids=HOSTILE_ERRORS)
def test_a_check_of_a_property_test(make: Any) -> None:
    def fail(world: Any) -> None:
        raise make()

    raised = raised_by(
        lambda: check_operator(
            lambda replica: SimpleWatcher(), WIDGET, at_rest=fail, replay=["wait 1"]
        )
    )
    # An exit is meant for the test's runner.
    assert isinstance(raised, BrokenPromise) or not isinstance(make(), Exception)
