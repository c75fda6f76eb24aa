"""Nothing that a user's function raises or returns ends or silences what calls it."""

from __future__ import annotations

import functools
import gc
import itertools
import json
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import prometheus_client
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
from appsdk_operator.app import each
from appsdk_operator.cache import Informer
from appsdk_operator.controllers import (
    ControllerOptions,
    HandlerFunctions,
    PollingSource,
    TimerSource,
    map_objects,
)
from appsdk_operator.manager import (
    Elector,
    HealthChecks,
    LeaderElection,
    ManagerOptions,
    Shards,
)
from appsdk_operator.resource import Kind, Versions
from appsdk_operator.runtime import ItemExponential, ManualClock, Metrics, StopSignal, WorkQueue
from appsdk_operator.serving import HTTPRequest, HTTPResponse, HTTPServer
from appsdk_operator.testing import MemoryServer, running
from appsdk_operator.watchers import SimpleReconciler
from appsdk_operator.webhooks import (
    Admission,
    AdmissionResponse,
    ConversionWebhook,
    Defaulting,
    TokenReviewWebhook,
    Validating,
    Webhooks,
)
from tests.hostile_values import MISBEHAVIOURS, Misbehaving
from tests.manager.test_certificates import Files
from tests.waiting import eventually
from tests.webhooks.admission_parts import answer, review

ConfigMap = kinds.core.v1.ConfigMap
NAMES = [f"object-{number}" for number in range(len(MISBEHAVIOURS))]


@pytest.fixture
def client() -> Any:
    """Of a server with an object for each misbehaviour."""
    client = MemoryServer().client()
    for name in NAMES:
        client.create(MutableObject.new(ConfigMap, name, namespace="default"))
    return client


@pytest.fixture(autouse=True)
def all_levels(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """What is logged at any level is formatted; a coroutine that nobody awaits fails the test."""
    caplog.set_level(logging.DEBUG, "appsdk_operator")
    gc.collect(1)
    gc.freeze()  # a whole collection goes through what the test has made, and nothing else
    yield
    gc.collect()


class FailsOnce(Misbehaving):
    """A function that raises one error in its first call, and then does its work."""

    def __init__(self, work: Callable[..., Any] = lambda *_, **__: None) -> None:
        super().__init__(work)
        self.left = ["once"]

    def __call__(self, *args: Any, **options: Any) -> Any:
        if self.left and self.left.pop():
            raise ZeroDivisionError("told once")
        self.has_worked = True
        return self.work(*args, **options)


Make = Callable[..., Misbehaving]


def is_not_logged(function: Misbehaving) -> None:
    """What it raises is its caller's, or stands in what its caller gets."""
    function.tracebacks.clear()


def tells(record: logging.LogRecord) -> bool:
    """Whether a record has the error, in its traceback or its text."""
    return "told once" in logging.Formatter().format(record)


@pytest.fixture(params=["in all ways", "once"])
def misbehaving(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> Iterator[Make]:
    """Makes functions that misbehave in all ways, or that fail once.

    One failure leads to one record, which has its traceback, and to no other warning or error.
    """
    if request.param == "in all ways":
        yield Misbehaving
        return
    caplog.set_level(logging.INFO, "appsdk_operator")
    made: list[Misbehaving] = []

    def make(*work: Callable[..., Any]) -> Misbehaving:
        made.append(FailsOnce(*work))
        return made[-1]

    yield make
    records = caplog.get_records("call")
    told = [record for record in records if tells(record)]
    texts = [each.getMessage() for each in told]
    assert [bool(each.exc_info) for each in told] == made[0].tracebacks, texts
    others = [
        each.getMessage()
        for each in records
        if each.levelno >= logging.WARNING and each not in told
    ]
    # The functions of the tests raise that, so that there is something to retry.
    assert [text for text in others if "ConnectionError" not in text] == []


_numbers = itertools.count()


def touch(client: Any) -> None:
    """Change objects and make one, so that each leads to an event."""
    number = next(_numbers)
    client.create(MutableObject.new(ConfigMap, f"new-{number}", namespace="default"))
    for name in NAMES[:8]:
        patch = MergePatch({"data": {"number": str(number)}})
        client.patch(ConfigMap, name, patch, namespace="default")


def goes_on(client: Any, function: Misbehaving, seen: set[str]) -> None:
    """The function has misbehaved in all ways, and an object that is made then is seen."""
    looks = itertools.count()

    def is_through() -> bool:
        if function.left and not next(looks) % 10:
            touch(client)
        return not function.left

    eventually(is_through, 30)
    client.create(MutableObject.new(ConfigMap, "later", namespace="default"))
    eventually(lambda: "later" in seen, 30)


QUICK = ConstantBackoff(0.001)


def of_app(option: str, function: Misbehaving, seen: set[str]) -> App:
    options: dict[str, Any] = {"retry_policy": QUICK}
    if option in ("paused", "error_handler"):
        options[option] = function
    if option in ("load", "store"):

        class States:
            load = staticmethod(function if option == "load" else lambda obj: None)
            store = staticmethod(function if option == "store" else lambda obj, state: None)

        options.update(handled_states=States(), remember=[ConfigMap])
    app = App("hostile", **options)

    def see(obj: Any) -> None:
        seen.add(obj.name)

    def fails(obj: Any) -> None:
        see(obj)
        if function.left:
            raise ConnectionError

    if option == "index":
        app.index(ConfigMap, "hostile", function)
    given = {option: function} if option in ("where", "when", "retry") else {}
    if option in ("on_update", "on_delete"):
        app.on_add(ConfigMap)(see)
        getattr(app, option)(ConfigMap)(function)
    elif option in ("reconciler", "object_reconciler"):
        app.on_add(ConfigMap)(see)
        getattr(app, option)(ConfigMap, name="hostile")(function)
    elif option.startswith("every"):
        app.on_add(ConfigMap)(see)
        app.every(0.001, ConfigMap, **{option.split()[1]: function})(fails)
    elif option in ("when", "store"):
        app.on_update(ConfigMap, **given)(lambda old, new: see(new))
        app.on_add(ConfigMap)(see)
    elif option == "on_add":
        app.on_add(ConfigMap)(function)
        app.on_add(ConfigMap)(see)
        app.on_update(ConfigMap)(lambda old, new: see(new))
    elif option in ("retry", "error_handler"):
        app.on_add(ConfigMap, **given)(fails)
    elif option == "watches":
        app.on_add(ConfigMap)(see)
        app.reconciler(ConfigMap, name="watches", watches={ConfigMap: function})(
            lambda request: None
        )
    else:
        app.on_add(ConfigMap, **given)(see)
    return app


@pytest.mark.parametrize(
    "option",
    [
        *("where", "when", "retry", "paused", "error_handler", "index", "load", "store", "on_add"),
        *("on_update", "on_delete", "reconciler", "object_reconciler"),
        *("every where", "every retry", "watches"),
    ],
)
def test_the_options_of_an_app(misbehaving: Make, option: str, client: Any) -> None:
    work: dict[str, Callable[..., Any]] = {
        "where": lambda obj: True,
        "when": lambda old, new: True,
        "retry": lambda error, attempt: 0.001,
        "paused": lambda obj: False,
        "index": lambda obj: ["a"],
        "watches": lambda obj: [],
        "every where": lambda obj: True,
        "every retry": lambda error, attempt: 0.001,
    }
    function, seen = misbehaving(work.get(option, lambda *_: None)), set[str]()
    app = of_app(option, function, seen)
    with running(app.manager(client)):
        if option == "on_delete":
            eventually(lambda: seen >= set(NAMES), 30)
            for name in NAMES[8:]:
                client.delete(ConfigMap, name, namespace="default")
        goes_on(client, function, seen)


def manager(client: Any, **options: Any) -> Manager:
    limited = ControllerOptions(
        rate_limiter=lambda: ItemExponential(base=0.001, maximum=0.01, jitter=0.0)
    )
    return Manager(
        client,
        options=ManagerOptions(metrics=Metrics(), **{"controller_options": limited, **options}),
    )


class Limiter:
    """A rate limiter, one method of which misbehaves."""

    def __init__(self, method: str, function: Misbehaving) -> None:
        self.when: Any = lambda item: 0.001
        self.forget: Any = lambda item: None
        self.failures: Any = lambda item: 0
        setattr(self, method, function)


def of_controller(option: str, function: Misbehaving, seen: set[str], client: Any) -> Manager:
    options: dict[str, Any] = {}
    if option in ("when", "forget", "failures"):
        options["rate_limiter"] = lambda: Limiter(option, function)
    elif option == "retry":
        options["retry"] = function
    if options:
        mgr = manager(client, controller_options=ControllerOptions(**options))
    else:
        mgr = manager(client)
    turns = itertools.count()

    def reconcile(request: Request) -> None:
        seen.add(getattr(request, "name", ""))
        if options and next(turns) % 2:
            raise ConnectionError

    builder = controller_for(mgr).named("hostile")
    if option in ("where", "builder's when"):
        builder.for_(ConfigMap, **{option.rsplit(maxsplit=1)[-1]: function}).complete(reconcile)
    elif option == "predicate":
        builder.for_(ConfigMap, predicates=[function]).complete(reconcile)
    elif option == "map function":
        builder.watches(ConfigMap, map_objects(function)).complete(reconcile)
    elif option == "handler":
        builder.watches(ConfigMap, HandlerFunctions(create=function, update=function)).complete(
            reconcile
        )
    elif option == "reconciler":
        builder.for_(ConfigMap).complete(function)
    else:
        builder.for_(ConfigMap).complete(reconcile)
    return mgr


@pytest.mark.parametrize(
    "option",
    [
        *("predicate", "map function", "handler", "reconciler", "where", "builder's when"),
        *("when", "forget", "failures", "retry"),
    ],
)
def test_the_options_of_a_controller(misbehaving: Make, option: str, client: Any) -> None:
    seen = set[str]()
    work: dict[str, Callable[..., Any]] = {
        "predicate": lambda event: True,
        "where": lambda obj: True,
        "builder's when": lambda old, new: True,
        "map function": lambda obj: [Request(obj.namespace, obj.name)],
        "handler": lambda event, queue: queue.add(
            Request(event.object.namespace, event.object.name)
        ),
        "reconciler": lambda request: seen.add(request.name),
        "when": lambda item: 0.001,
        "failures": lambda item: 0,
        "retry": lambda *_: 0.001,
    }
    function = misbehaving(work.get(option, lambda *_: None))
    if option == "failures":
        function.left = function.left[:0]  # asked by nobody but the debug page
        is_not_logged(function)
    with running(of_controller(option, function, seen, client)):
        goes_on(client, function, seen)


@pytest.mark.parametrize("option", ["transform", "index", "on_error", "handler", "batch handler"])
def test_the_options_of_an_informer(misbehaving: Make, option: str, client: Any) -> None:
    work: dict[str, Callable[..., Any]] = {
        "transform": lambda obj: obj,
        "index": lambda obj: ["a"],
    }
    function, seen = misbehaving(work.get(option, lambda *_, **__: None)), set[str]()
    options: dict[str, Any] = {"metrics": Metrics()}
    if option in ("transform", "on_error"):
        options[option] = function

    class Sees:
        def on_add(self, obj: Any, is_initial: bool) -> None:
            seen.add(obj.name)
            if option == "on_error" and function.left:
                raise ConnectionError

        def on_update(self, old: Any, new: Any) -> None:
            self.on_add(new, is_initial=False)

        def on_delete(self, obj: Any) -> None: ...

    class Handler:
        on_add = on_update = on_delete = staticmethod(function)

    class BatchHandler:
        on_events = on_initial_list_end = staticmethod(function)

    informer: Any = Informer(ConfigMap, client, **options)
    if option == "index":
        informer.add_index("hostile", function)
    informer.add_event_handler(Sees())
    if option.endswith("handler"):
        informer.add_event_handler(Handler() if option == "handler" else BatchHandler())
    with running(informer, wait=False):
        goes_on(client, function, seen)


@pytest.mark.parametrize(
    "option",
    [
        *("error_handler", "retry_policy", "retry_dequeue_policy"),
        *("concerns", "add", "opinionated add", "opinionated concerns", "finalizer", "reconcile"),
    ],
)
def test_the_options_of_an_informer_controller(misbehaving: Make, option: str, client: Any) -> None:
    work: dict[str, Callable[..., Any]] = {
        "retry_policy": lambda *_: 0.001,
        "concerns": lambda old, new: True,
        "opinionated concerns": lambda old, new: True,
        "retry_dequeue_policy": lambda *_: True,
        "finalizer": lambda kind: "example.com/hostile",
    }
    function, seen = misbehaving(work.get(option, lambda *_: None)), set[str]()
    options: dict[str, Any] = {"name": "hostile", "retry_policy": QUICK, "metrics": Metrics()}
    is_policy = option in ("error_handler", "retry_policy", "retry_dequeue_policy")
    if is_policy:
        options[option] = function

    def see(obj: Any) -> None:
        seen.add(obj.name)
        if is_policy and function.left:
            raise ConnectionError

    class Selective(SimpleWatcher):
        """Asks the function."""

        concerns = staticmethod(function)

    sees: Any = SimpleWatcher(add=see, update=lambda old, new: see(new))
    watcher = {
        "concerns": lambda: Selective(add=see, update=lambda old, new: see(new)),
        "add": lambda: SimpleWatcher(add=function, update=function),
        "opinionated add": lambda: OpinionatedWatcher(
            ConfigMap, client, add=function, update=function
        ),
        "opinionated concerns": lambda: OpinionatedWatcher(
            ConfigMap,
            client,
            add=see,
            update=lambda old, new: see(new),
            concerns=function,
        ),
        "finalizer": lambda: sees,
        "reconcile": lambda: sees,
    }.get(option, lambda: sees)()
    if option == "finalizer":
        # Asked once, when it is made: what it raises is the caller's.
        is_not_logged(function)
        while function.left:
            raised = raised_by(
                lambda: OpinionatedWatcher(ConfigMap, client, add=see, finalizer=function)
            )
            assert raised is not None or function.left
        return
    controller = InformerController(**options)
    controller.add_informer(KubernetesInformer(ConfigMap, client), ConfigMap)
    controller.add_watcher(watcher, ConfigMap)
    if option == "reconcile":
        controller.add_reconciler(SimpleReconciler(function), ConfigMap)
    if watcher is not sees:
        controller.add_watcher(SimpleWatcher(add=see, update=lambda old, new: see(new)), ConfigMap)
    with running(controller):
        goes_on(client, function, seen)


def raised_by(function: Callable[[], object]) -> BaseException | None:
    try:
        function()
    except BaseException as raised:
        return raised
    return None


def in_a_thread(function: Callable[[], Any]) -> Any:
    """What ``function`` returns, not in the main thread, for which exits are meant."""
    returned: list[Any] = []
    thread = threading.Thread(target=lambda: returned.append(function()))
    thread.start()
    thread.join()
    return returned[0]


def repeated(function: Misbehaving, call: Callable[[], Any]) -> Any:
    """Call until the function has misbehaved in all ways; returns what the last call does."""

    def calls() -> Any:
        for _ in range(10 * len(MISBEHAVIOURS)):
            if not function.left:
                return call()
            call()
        raise AssertionError(f"it was not called any more, before {function.left[0]}")

    return in_a_thread(calls)


@pytest.mark.parametrize("form", ["poll", "timer"])
def test_the_function_of_a_source(misbehaving: Make, form: str) -> None:
    clock = ManualClock()
    function = misbehaving(
        lambda: {Request("", "later"): 1} if form == "poll" else [Request("", "later")]
    )
    options: dict[str, Any] = {"clock": clock, "metrics": Metrics()}
    source: Any
    if form == "timer":
        source = TimerSource(1.0, function, first_after=0.0, priority=0, **options)
    else:
        source = PollingSource(1.0, function, **options)
    stop, queue = StopSignal(clock=clock), WorkQueue[Any]("requests", clock=clock)
    source.start(queue, stop)

    def is_through() -> bool:
        clock.advance(1.0)
        return function.has_worked

    eventually(is_through, 5)
    stop.set()
    assert source.join(10.0) == []


def test_a_source_of_metrics_hides_no_other_one(misbehaving: Make) -> None:
    metrics, function = Metrics(), misbehaving(list)
    metrics.gauge("beside", "Another one.").set(3)
    metrics.add_source(function)

    def scrape() -> str:
        return prometheus_client.generate_latest(metrics.registry).decode()

    def look() -> None:
        assert "beside 3.0" in scrape()

    repeated(function, look)


def test_a_callback_of_a_stop_signal(misbehaving: Make) -> None:
    function, ran = misbehaving(), list[int]()

    def call() -> None:
        stop = StopSignal()
        stop.on_set(function)
        stop.on_set(lambda: ran.append(1))
        stop.set()
        ran.pop()

    repeated(function, call)


def test_a_health_check(misbehaving: Make) -> None:
    function, checks = misbehaving(), HealthChecks("readyz")
    # That a check raises is its answer.
    function.tracebacks[:] = [False]
    checks.add("hostile", function)
    checks.add("other", lambda: None)
    assert repeated(function, lambda: "other" not in checks.failures())
    checks.close()


def request(path: str) -> HTTPRequest:
    return HTTPRequest(method="GET", path=path, body=b"", headers={})


def test_a_handler_of_a_server(misbehaving: Make) -> None:
    function = misbehaving(lambda request: HTTPResponse(body=b"fine"))
    server = HTTPServer("127.0.0.1:0", name="hostile")
    server.add_handler("/hostile", function)
    statuses = set[int]()

    def call() -> bytes:
        response = server.answer(request("/hostile"))
        statuses.add(response.status)
        return response.body

    assert repeated(function, call) == b"fine"
    assert statuses == {200, 500}
    server.close()


def test_a_handler_of_webhooks(misbehaving: Make) -> None:
    function = misbehaving(lambda request: HTTPResponse(body=b"fine"))
    webhooks = Webhooks(metrics=Metrics())
    webhooks.add("/hostile", function)
    assert repeated(function, lambda: webhooks.answer(request("/hostile"))).body == b"fine"


@pytest.mark.parametrize("part", ["admission", "default", "validate"])
def test_a_function_of_a_webhook(misbehaving: Make, part: str) -> None:
    function = misbehaving(
        (lambda request: AdmissionResponse.allowed()) if part == "admission" else lambda *_: None
    )
    handler: Any = {
        "admission": lambda: function,
        "default": lambda: Defaulting(ConfigMap, function),
        "validate": lambda: Validating(ConfigMap, create=function),
    }[part]()
    admission = Admission(handler)
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    kind = {"group": "", "version": "v1", "kind": "ConfigMap"}
    asked = review(object=obj, kind=kind, oldObject=None)
    answered = repeated(function, lambda: answer(admission, asked))
    assert answered["allowed"]


def test_a_handler_of_tokens(misbehaving: Make) -> None:
    function = misbehaving()
    asked = HTTPRequest(
        method="POST",
        path="/",
        body=b'{"spec":{"token":"secret"}}',
        headers={"Content-Type": "application/json"},
    )
    webhook = TokenReviewWebhook(function)
    assert repeated(function, lambda: webhook(asked)).status == 200


def test_a_converter(misbehaving: Make) -> None:
    function = misbehaving()
    kind, older = (Kind(group="example.com", version=v, kind="Widget") for v in ("v1", "v1beta1"))
    webhook = ConversionWebhook(Versions(kind).older(older, up=function, down=function))
    obj = {"apiVersion": older.api_version, "kind": "Widget", "metadata": {"name": "a"}}
    asked = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "ConversionReview",
        "request": {"uid": "u", "desiredAPIVersion": kind.api_version, "objects": [obj]},
    }
    body = json.dumps(asked).encode()
    status, answered = repeated(function, lambda: webhook.review(body))
    assert status == 200
    assert json.loads(answered)["response"]["result"]["status"] == "Success"


def test_a_function_for_changed_certificates(misbehaving: Make, tmp_path: Path) -> None:
    function, ran = misbehaving(), list[int]()
    files = Files(tmp_path)
    certificates = files.pair(metrics=Metrics())
    # The call now raises to the caller.
    left, function.left = function.left, []
    certificates.on_change(function)
    function.left = left
    certificates.on_change(lambda: ran.append(1))

    def call() -> None:
        certificates._callbacks_due = True
        certificates._call_back()
        ran.pop()

    repeated(function, call)
    certificates.close()


@pytest.mark.parametrize("method", ["call_began", "call_ended", "request_began", "request_ended"])
def test_an_observer(misbehaving: Make, method: str) -> None:
    function, client = misbehaving(), MemoryServer().client()

    class Observer:
        def call_began(self, call: Any) -> None: ...

        call_ended = request_began = request_ended = call_began

    observer: Any = Observer()
    setattr(observer, method, function)
    if method.startswith("request"):
        client.observe_activity(observer)
        assert repeated(function, lambda: list(client.list(ConfigMap))) == []
        return
    controller = InformerController(metrics=Metrics(), retry_policy=QUICK)
    client.create(MutableObject.new(ConfigMap, "a", namespace="default"))
    controller.add_informer(KubernetesInformer(ConfigMap, client), ConfigMap)
    seen = set[str]()
    controller.add_watcher(
        SimpleWatcher(
            add=lambda obj: seen.add(obj.name), update=lambda old, new: seen.add(new.name)
        ),
        ConfigMap,
    )
    controller.observe_activity(observer)
    for name in NAMES:
        client.create(MutableObject.new(ConfigMap, name, namespace="default"))
    with running(controller):
        goes_on(client, function, seen)


@pytest.mark.parametrize("method", ["hold", "let_go", "health", "debug_snapshot"])
def test_a_method_of_a_runnable(misbehaving: Make, method: str, client: Any) -> None:
    function = misbehaving()

    class Part:
        def run(self, stop: StopSignal) -> None:
            stop.wait()

    part: Any = Part()
    setattr(part, method, function)
    is_not_logged(function)
    if method in ("hold", "let_go"):
        setattr(part, "let_go" if method == "hold" else "hold", lambda: None)
        part.is_held = False
    mgr = manager(client)
    mgr.add(part)

    def look() -> Any:
        mgr.health()
        return mgr.debug_snapshot()

    with running(mgr):
        if method in ("health", "debug_snapshot"):
            assert repeated(function, look)


@pytest.mark.parametrize("option", ["on_new_leader", "on_event", "on_lease"])
def test_the_functions_of_an_election(misbehaving: Make, option: str) -> None:
    function = misbehaving()

    def elect() -> bool:
        elector = Elector(
            MemoryServer().client(),
            LeaderElection(id="lock", namespace="default", identity="me"),
            metrics=Metrics(),
            **{option: function},
        )
        stop, leads = StopSignal(), threading.Event()

        def led() -> None:
            leads.set()
            stop.set()

        elector.run(stop, led)
        return leads.is_set()

    assert repeated(function, elect)


@pytest.mark.parametrize("option", ["on_gain", "key_of", "keys"])
def test_the_functions_of_shards(misbehaving: Make, option: str) -> None:
    function = misbehaving()
    election = LeaderElection(
        id="x", namespace="default", lease_duration=0.5, renew_deadline=0.4, retry_period=0.01
    )
    shards = Shards(MemoryServer().client(), election, 1, metrics=Metrics())
    if option == "on_gain":
        for _ in function.left.copy():  # what succeeds is not called again
            shards.on_gain(functools.partial(function))
        with running(shards):
            eventually(lambda: not function.left)
        return
    if option == "keys":
        function.work = list
        stop, queue = StopSignal(), WorkQueue[Any]("requests")
        for _ in function.left.copy():
            shards.source(functools.partial(function)).start(queue, stop)
        with running(shards):
            eventually(lambda: not function.left)
        stop.set()
        return
    function.work = lambda request: request
    is_not_logged(function)
    reconciler = shards.reconciler(lambda request: None, key_of=function)

    def call() -> Any:
        return raised_by(lambda: reconciler.reconcile(Request("", "a")))

    repeated(function, call)


@pytest.mark.parametrize("option", ["function", "where", "retry"])
def test_a_background_function(misbehaving: Make, option: str, client: Any) -> None:
    function, seen = misbehaving(), set[str]()
    app = App("hostile", retry_policy=QUICK)
    given: dict[str, Any] = {option: function} if option != "function" else {}
    if option == "where":
        function.work = lambda obj: True
    elif option == "retry":
        function.work = lambda *_: 0.001

    def follow(live: Any, stop: StopSignal) -> None:
        seen.add(live.object.name)
        if option == "retry" and function.left:
            raise ConnectionError
        stop.wait()

    if option == "function":
        function.work = follow
    app.background(ConfigMap, **given)(function if option == "function" else follow)
    with running(app.manager(client)):
        goes_on(client, function, seen)


@pytest.mark.parametrize("part", ["before", "value", "after"])
def test_a_lifespan(part: str) -> None:
    found = dict[str, Any]()

    def run(make: Callable[[], Any]) -> BaseException | None:
        app, stop = App("hostile"), StopSignal()

        @app.lifespan
        def life() -> Iterator[Any]:
            if part == "before":
                make()
            yield make() if part == "value" else None
            if part == "after":
                make()

        @app.task
        def end(_: StopSignal) -> None:
            stop.set()

        mgr = app.manager(MemoryServer().client())
        return raised_by(lambda: mgr.run(stop))

    for name, make in MISBEHAVIOURS.items():
        is_raised = name.startswith("raises")
        if "coroutine" not in name and (is_raised or part == "value"):
            found[name] = in_a_thread(functools.partial(run, make))
    # A coroutine that is cancelled after the stop has ended as it should.
    unseen = [name for name, raised in found.items() if raised is None]
    assert [name for name in unseen if "cancel" not in name] == []


@pytest.mark.parametrize("option", ["items", "function", "key"])
def test_a_part_of_each(option: str) -> None:
    def call(make: Callable[[], Any]) -> BaseException | None:
        class Item:
            __repr__ = __hash__ = __eq__ = lambda *_: make()  # type: ignore[assignment]

        calls: dict[str, Callable[[], object]] = {
            "items": lambda: each([Item()], print, key=id),
            "function": lambda: each(["a"], lambda _: make()),
            "key": lambda: each(["a"], lambda _: 1 / 0, key=lambda _: make()),
        }
        return raised_by(calls[option])

    for name, make in MISBEHAVIOURS.items():
        if option != "items" or "coroutine" not in name:
            in_a_thread(functools.partial(call, make))


def test_the_texts_of_keys_that_cannot_be_shown() -> None:
    class Key:
        def __repr__(self) -> str:
            raise SystemExit(3)

    def fail(_: object) -> None:
        raise ValueError("no")

    first, second = Key(), Key()
    with pytest.raises(ExceptionGroup) as raised:
        each([first, second], fail)
    assert len(raised.value.exceptions) == 2
    with pytest.raises(ValueError, match="two items have the key Key"):
        each([first, first], print)
