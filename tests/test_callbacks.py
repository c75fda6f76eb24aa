"""Each function that the public API takes from a user has a hostile case, or a reason for none.

The parameters are found by their annotations. One that is new fails the test here until it is in
the table: with the test that gives it functions of ``tests/hostile_values.py`` or raises exceptions
of ``tests/hostile_errors.py``, or with the reason why it needs none.
"""

from __future__ import annotations

import ast
import fnmatch
import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import appsdk_operator
from appsdk_operator._lazy import names_of

PACKAGE = Path(appsdk_operator.__file__ or "").parent
ROOMS = [each.parent.name for each in sorted(PACKAGE.glob("*/__init__.pyi"))]
TESTS = Path(__file__).parent
NAMES_OF_FUNCTIONS = {"callback", "check", "decorated", "function", "handler", "handlers"}
"""The names of parameters that take functions of several forms, and so are annotated with Any."""


@cache
def words_of_functions() -> frozenset[str]:
    """The names that stand for functions, or objects with methods, of the user's."""
    found = {"Callable", "Coroutine", "Awaitable"}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                if any("Protocol" in ast.unparse(base) for base in node.bases):
                    found.add(node.name)
            elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                is_alias = isinstance(target, ast.Name) and target.id[0].isupper()
                # A type variable may be bound to an alias.
                if is_alias and re.search(r"Callable\[|bound=\w*Function", ast.unparse(node.value)):
                    found.add(ast.unparse(target))
    return frozenset(found - {"T"})


def callables_of(name: str, value: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    """What is called of a public value, with a name for each."""
    if inspect.isclass(value):
        if getattr(value, "_is_protocol", False):
            return
        if of_the_kit(value.__init__) or "__init__" in value.__dict__:  # which attrs makes
            yield name, value.__init__
        for method, function in inspect.getmembers(value, inspect.isroutine):
            if not method.startswith("_") and of_the_kit(function):
                yield f"{name}.{method}", function
    elif inspect.ismodule(value):
        for each, function in vars(value).items():
            if inspect.isfunction(function) and function.__module__ == value.__name__:
                yield f"{name}.{each}", function
    elif inspect.isroutine(value):
        yield name, value


def of_the_kit(function: Any) -> bool:
    return str(getattr(function, "__module__", "")).startswith("appsdk_operator")


def parameters() -> dict[str, str]:
    """The parameters of the public API that take functions, with their annotations."""
    found = {}
    for room in ROOMS:
        package = importlib.import_module(f"appsdk_operator.{room}")
        for name in names_of(package.__name__)[0]:
            for called, function in callables_of(name, getattr(package, name)):
                try:
                    signature = inspect.signature(function)
                except (TypeError, ValueError):  # written in C
                    continue
                annotated = {one.name: one.annotation for one in signature.parameters.values()}
                if called.startswith("App."):  # its methods are decorators
                    annotated["decorated"] = signature.return_annotation
                for parameter, annotation in annotated.items():
                    words = set(re.findall(r"\w+", str(annotation)))
                    is_any = words == {"Any"} and parameter in NAMES_OF_FUNCTIONS
                    if is_any or words_of_functions() & words:
                        found[f"{room}.{called}({parameter})"] = str(annotation)
    return found


def values(test: str) -> str:
    return f"test_hostile_values.py::{test}"


def errors(test: str) -> str:
    return f"test_hostile_errors.py::{test}"


REQUESTS = "as any client: " + errors("a_request_and_a_batch_handler_of_an_informer")
TO_THE_CALLER = "called within the call of the user, who gets what it raises"
A_PART = "a part of the kit, or one that a user writes in its place: its errors are the run's"
WITHIN = "called within a call that passes on what it raises, as any of its kind: "
OF_TESTS = "for tests, which see what it raises"
CASES: dict[str, str] = {
    # What is everywhere.
    "*(clock)": "the clock of the kit or of a test",
    "*(patch)": "a patch is data",
    "*.observe_activity(observer)": values("an_observer"),
    "manager.ManagerOptions(observers)": values("an_observer"),
    "controllers.*.start(queue)": "the queue of a controller of the kit",
    "*(host)": A_PART,
    "*(inner)": REQUESTS,
    "*(server)": REQUESTS,
    "*(reader)": REQUESTS,
    "*(client)": REQUESTS,
    # App.
    "app.App(retry_policy)": values("the_options_of_an_app"),
    "app.App(paused)": values("the_options_of_an_app"),
    "app.App(handled_states)": values("the_options_of_an_app"),
    "app.App(error_handler)": values("the_options_of_an_app"),
    "app.App.background(*)": values("a_background_function"),
    "app.App.*(where)": values("the_options_of_an_app"),
    "app.App.*(when)": values("the_options_of_an_app"),
    "app.App.*(retry)": values("the_options_of_an_app"),
    "app.Filtered(*)": values("the_options_of_a_controller"),
    "app.App.*(watches)": values("the_options_of_an_app"),
    "app.App.index(function)": values("the_options_of_an_app"),
    "app.App.every(*)": errors("a_timer_of_an_app"),
    "app.App.lifespan(*)": values("a_lifespan"),
    "app.App.task(*)": errors("a_runnable_of_a_manager_ends_it_with_its_own_error"),
    "app.App.check(*)": values("a_health_check"),
    "app.App.on_sync(decorated)": (
        "called where on_add is, at the first event of an object: "
        + values("the_options_of_an_app")
    ),
    "app.App.on_*(decorated)": values("the_options_of_an_app"),
    "app.App.*reconciler(decorated)": values("the_options_of_an_app"),
    "app.App.default(*)": values("a_function_of_a_webhook"),
    "app.App.validate(*)": values("a_function_of_a_webhook"),
    "app.App.convert(*)": values("a_converter"),
    "app.App.webhook(*)": values("a_handler_of_webhooks"),
    "app.App.watch(*)": values("the_options_of_an_informer_controller"),
    "app.each(*)": values("a_part_of_each"),
    # cache.
    "cache.*(transform)": values("the_options_of_an_informer"),
    "cache.*(on_error)": values("the_options_of_an_informer"),
    "cache.*.add_event_handler(handler)": values("the_options_of_an_informer"),
    "cache.*(indexes)": values("the_options_of_an_informer"),
    "cache.*(function)": values("the_options_of_an_informer"),
    "cache.Cache.run(meanwhile)": "the manager gives it a function of its own",
    "cache.Delivery*": "the machinery of controllers gives it functions of its own",
    "cache.EventSource*": "the machinery of controllers gives it functions of its own",
    "cache.Registration*": "informers of the kit make it",
    # client.
    "*.modify(change)": TO_THE_CALLER,
    "client.Discovery(*)": "the client gives it functions of its own",
    "client.ClientConfig(token_provider)": (
        "client/test_credentials.py::a_provider_of_tokens_fails_its_own_request_alone"
    ),
    "client.ClientConfig(connector)": REQUESTS,
    "client.WatchStream(heard)": "the client gives it a function of its own",
    "client.Hooks(*)": TO_THE_CALLER,
    # controllers.
    "controllers.until.matches(function)": TO_THE_CALLER,
    "controllers.*(reconciler)": values("the_options_of_a_controller"),
    "controllers.*(object_reconciler)": values("the_options_of_a_controller"),
    "controllers.*.watches*(handler)": values("the_options_of_a_controller"),
    "controllers.*Source(handler)": values("the_options_of_a_controller"),
    "controllers.with_low_priority_when_unchanged(handler)": values("the_options_of_a_controller"),
    "controllers.ControllerBuilder.*(whe*)": values("the_options_of_a_controller"),
    "controllers.HandlerFunctions(*)": values("the_options_of_a_controller"),
    "controllers.HandlerFunctions.handle(*)": "the queue of a controller of the kit",
    "controllers.map_objects(function)": values("the_options_of_a_controller"),
    "controllers.Predicate*": values("the_options_of_a_controller"),
    "controllers.ControllerOptions(retry)": values("the_options_of_a_controller"),
    "controllers.ControllerOptions(rate_limiter)": values("the_options_of_a_controller"),
    "controllers.*(source)": errors("the_function_of_a_source_is_called_again"),
    "controllers.FunctionSource(function)": errors("the_function_of_a_source_is_called_again"),
    "controllers.PollingSource(fetch)": values("the_function_of_a_source"),
    "controllers.TimerSource(requests)": values("the_function_of_a_source"),
    "controllers.create_or_*(mutate)": TO_THE_CALLER,
    "controllers.FinalizerRegistry.register(clean_up)": TO_THE_CALLER,
    "controllers.finalizing(*)": TO_THE_CALLER,
    "controllers.wait_for(condition)": TO_THE_CALLER,
    # manager.
    "manager.CacheSetup(*)": values("the_options_of_an_informer"),
    "manager.*(new_*)": "called when the manager is made, by its maker, who gets what it raises",
    "manager.*(webhook_server)": "called when the manager is made, by its maker",
    "manager.*(fence)": A_PART,
    "manager.Elected.on_set(callback)": values("a_callback_of_a_stop_signal"),
    "manager.Manager.add(runnable)": errors("a_runnable_of_a_manager_ends_it_with_its_own_error"),
    "manager.*.add*_check(check)": values("a_health_check"),
    "manager.HealthChecks.add(check)": values("a_health_check"),
    "manager.*handler(handler)": values("a_handler_of_a_server"),
    "manager.HTTPServer.limited(handler)": values("a_handler_of_a_server"),
    "manager.*(extra_handlers)": values("a_handler_of_a_server"),
    "manager.*(filter_provider)": "called when the server is made, by its maker",
    "manager.HTTPServer.add_handler(limits)": A_PART,
    "manager.HTTPServer(certificates)": A_PART,
    "manager.ProfileServer(*)": "the manager gives it functions of its own",
    "manager.Operator(on_error)": errors("a_health_check_and_a_controller_of_an_operator"),
    "manager.Operator.add_controller(*)": errors("a_health_check_and_a_controller_of_an_operator"),
    "manager.Operator.announce_to(announce)": "the manager gives it a function of its own",
    "manager.Elector(on_*)": values("the_functions_of_an_election"),
    "manager.Elector.run(on_started)": A_PART,
    "manager.Elector.track_write(check)": "the client of the manager gives it its own",
    "manager.EventRecorder(record)": "the broadcaster gives it a function of its own",
    "manager.Shards.on_gain(callback)": values("the_functions_of_shards"),
    "manager.Shards.reconciler(*)": values("the_functions_of_shards"),
    "manager.Shards.source(keys)": values("the_functions_of_shards"),
    # project, resource, runtime.
    "project.*": TO_THE_CALLER,
    "resource.*.adapted(test)": TO_THE_CALLER,
    "resource.*(function)": TO_THE_CALLER,
    "resource.FieldSelector.matches(fields)": TO_THE_CALLER,
    "resource.Spoke(*)": values("a_converter"),
    "resource.Versions.*": values("a_converter"),
    "resource.convert_parts(*)": values("a_converter"),
    "runtime.ManualClock.add_alarm(alarm)": OF_TESTS,
    "runtime.Metrics.add_source(source)": values("a_source_of_metrics_hides_no_other_one"),
    "runtime.MaxOf(limiters)": WITHIN + values("the_options_of_a_controller"),
    "runtime.TenacityRetry(*)": WITHIN + values("the_options_of_an_informer_controller"),
    "runtime.StopSignal.on_set(callback)": values("a_callback_of_a_stop_signal"),
    "runtime.StillRunning(running)": "the kit gives it functions of its own",
    "runtime.WorkQueue(*)": "the machinery of controllers gives it functions of its own",
    # testing.
    "testing.check_operator(make)": errors("an_operator_in_a_property_test"),
    "testing.check_operator(*)": errors("a_check_of_a_property_test"),
    "testing.*": OF_TESTS,
    # watchers.
    "watchers.InformerController(*)": values("the_options_of_an_informer_controller"),
    "watchers.InformerController.add_informer(*)": errors("what_an_informer_and_its_controller"),
    "watchers.InformerController.remove_*": "what was added before",
    "watchers.InformerController.add_*": values("the_options_of_an_informer_controller"),
    "watchers.KubernetesInformer*": values("the_options_of_an_informer"),
    "watchers.ListMap.*": TO_THE_CALLER,
    "watchers.Opinionated*(finalizer)": "called when the watcher is made, by its maker",
    "watchers.Opinionated*": values("the_options_of_an_informer_controller"),
    "watchers.KeyReconciler(*)": values("the_options_of_an_informer_controller"),
    "watchers.Simple*": values("the_options_of_an_informer_controller"),
    # webhooks.
    "webhooks.CertificateFiles.on_change(callback)": values("a_function_for_changed_certificates"),
    "webhooks.Admission(handler)": values("a_function_of_a_webhook"),
    "webhooks.Multi*(handlers)": values("a_function_of_a_webhook"),
    "webhooks.Defaulting(*)": values("a_function_of_a_webhook"),
    "webhooks.Validating(*)": values("a_function_of_a_webhook"),
    "webhooks.WebhookBuilder.*": values("a_function_of_a_webhook"),
    "webhooks.TokenReviewWebhook(handler)": values("a_handler_of_tokens"),
    "webhooks.migrate_stored_versions(on_progress)": TO_THE_CALLER,
    "webhooks.*(certificates)": A_PART,
    "webhooks.Webhook*.add(webhook)": values("a_handler_of_webhooks"),
}
"""The test of each parameter, or the reason why it needs none, by patterns of names; the first
pattern counts."""


def case_of(parameter: str) -> str:
    found = [case for pattern, case in CASES.items() if fnmatch.fnmatchcase(parameter, pattern)]
    return found[0] if found else ""


def test_each_function_of_a_user_has_a_hostile_case_or_a_reason_for_none() -> None:
    assert [each for each in parameters() if not case_of(each)] == []


def test_no_row_of_the_table_is_for_nothing() -> None:
    known = parameters()
    assert [each for each in CASES if not fnmatch.filter(known, each)] == []


def test_the_cases_are_tests_with_hostile_functions() -> None:
    for case in set(CASES.values()):
        for file, test in re.findall(r"([\w/]+\.py)::(\w+)", case):
            text = (TESTS / file).read_text(encoding="utf-8")
            assert "tests.hostile_" in text or "HOSTILE" in text, file
            assert f"def test_{test}" in text, case


@pytest.mark.parametrize("given", ["Callable[[int], None] | None", "ResourceWatcher", "Transform"])
def test_functions_protocols_and_their_aliases_are_found(given: str) -> None:
    assert words_of_functions() & set(re.findall(r"\w+", given))
