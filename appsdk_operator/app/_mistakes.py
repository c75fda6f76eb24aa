"""Errors for the words of kopf: what does the same in an App."""

from __future__ import annotations

import functools
import inspect
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar, cast

from appsdk_operator.resource import Kind
from appsdk_operator.runtime import validation

_Method = TypeVar("_Method", bound=Callable[..., Any])

_DECORATORS: Final[Mapping[str, str]] = {
    "create": "app.on_add(KIND)",
    "resume": "app.on_sync(KIND)",
    "update": "app.on_update(KIND)",
    "delete": "app.on_delete(KIND)",
    "field": 'app.on_update(KIND, when=field("spec.size").changed)',
    "event": "app.watch(KIND, SimpleWatcher(…))",
    "validate": "app.validate(KIND)",
    "mutate": "app.default(KIND)",
    "startup": "app.lifespan",
    "cleanup": "app.lifespan",
    "probe": "app.check",
    "timer": "app.every(60, KIND)",
    "daemon": "app.background(KIND)",
    "subhandler": "each(items, function) in the function",
    "adopt": "set_controller_reference(owner, child)",
    "info": 'app.events.event(obj, "Normal", …)',
    "warn": 'app.events.event(obj, "Warning", …)',
}
_IN_WHERE: Final = 'where=field("spec.size") == 1'
_OPTIONS: Final[Mapping[str, str]] = {
    "labels": 'where=labels("app=web")',
    "annotations": 'where=annotation("example.com/a") == "x"',
    "field": 'when=field("spec.size").changed, of on_update',
    "value": _IN_WHERE,
    "old": 'when=field("spec.size").left(1), of on_update',
    "new": 'when=field("spec.size").became(1), of on_update',
    "when": f"{_IN_WHERE}, or where= with a function of the object",
    "retries": "retry=ConstantBackoff(60, max_calls=3)",
    "backoff": "retry=ConstantBackoff(60)",
    "errors": "retry=, with a function of (error, attempt)",
    "timeout": "time_limit=, of each call, or retry=TenacityRetry(stop=…), of all",
    "id": "the name of the function",
    "param": "functools.partial(function, …)",
    "optional": "app.watch(KIND, SimpleWatcher(delete=…)), which has no finalizer",
    "initial_delay": "first_after=, of every",
    "sharp": "cron=, of every: an interval begins at the end of a call",
    "interval": "app.every(60, KIND)",
    "where": "an if with the filter in the watcher, which sees all events",
    "predicates": "where=",
    "time_limit": "limits for the waits within the function, which runs as long as its object",
}
_ARGUMENTS: Final[Mapping[str, str]] = {
    "body": "the object",
    "spec": "its .spec",
    "status": "its .status",
    "meta": "its .metadata",
    "name": "its .name",
    "namespace": "its .namespace",
    "uid": "its .uid",
    "labels": "its .labels",
    "annotations": "its .annotations",
    "patch": "app.edit(obj)",
    "memo": "app.memo(obj)",
    "logger": "logging.getLogger(__name__)",
    "diff": "old and new of on_update",
    "old": "old of on_update, an object",
    "new": "new of on_update, an object",
    "stopped": "stop of background",
}


def missing_attribute(app: object, name: str) -> AttributeError:
    """The error for an attribute that an App has not."""
    text = f"an App has no {name!r}"
    word = name.removeprefix("on_")
    if name == "on":
        words = ("create", "resume", "update", "delete", "field", "event")
        known = ", ".join(f"on.{each} is {_DECORATORS[each]}" for each in words)
        text = f"{text}: {known}"
    elif word in _DECORATORS:
        text = f"{text}: use {_DECORATORS[word]}"
    return AttributeError(text, name=name, obj=app)


def explains_options(method: _Method) -> _Method:
    """Let a decorator of an App refuse what it does not take with the word for it."""
    known = inspect.signature(method).parameters

    @functools.wraps(method)
    def explained(app: Any, *args: Any, **options: Any) -> Any:
        for name in options:
            if name not in known:
                raise TypeError(_no_option(method.__name__, name, known))
        if "interval" in known and args and isinstance(args[0], Kind):
            raise TypeError(
                f"every({args[0]}): the interval comes first, as in app.every(60, KIND), or there "
                "is none, as in app.every(kind=KIND, cron='0 3 * * *')"
            )
        return method(app, *args, **options)

    return cast("_Method", explained)


def _no_option(method: str, name: str, known: Mapping[str, object]) -> str:
    text = f"{method} has no option {name}="
    if name in _OPTIONS:
        return f"{text}: use {_OPTIONS[name]}"
    return f"{text}: it has {', '.join(list(known)[1:])}"


def check_function(what: str, function: Any, *arguments: str) -> None:
    """Check that a decorated function can be called, and does not expect a call of kopf's.

    Raises:
        TypeError: it takes other arguments; the text says which, and what theirs are here.
    """
    taken = _kopf_arguments(function, arguments)

    if taken:
        name = getattr(function, "__qualname__", repr(function))
        theirs = "; ".join(f"{each} is {_ARGUMENTS[each]}" for each in taken)
        raise TypeError(f"{what} calls {name} with ({', '.join(arguments)}): {theirs}")
    validation.check_callable(what, function, *arguments, required=True, is_awaited=True)


def _kopf_arguments(function: Any, arguments: Sequence[str]) -> list[str]:
    """The arguments of a function that is made for kopf, which calls with keywords only."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    kinds = Counter(each.kind for each in parameters)
    names = [each.name for each in parameters if each.name in _ARGUMENTS]
    if kinds[inspect.Parameter.VAR_POSITIONAL]:
        return []
    if kinds[inspect.Parameter.VAR_KEYWORD]:
        return names
    required = [each for each in parameters if each.default is inspect.Parameter.empty]
    return names if len(required) > len(arguments) else []


def check_retry(retry: object, option: str = "retry") -> None:
    """Check a retry policy.

    Raises:
        TypeError: it is not a policy; the text has one.
    """

    def explain(mismatch: TypeError | None) -> str:
        text = f"{option}={retry!r} is not a function of (error, attempt)"
        if isinstance(retry, int) and not isinstance(retry, bool):
            calls = max(retry, 1)
            return f"{text}: give a policy, such as ConstantBackoff(10, max_calls={calls})"
        return text if mismatch is None else f"{text}: {mismatch}"

    validation.check_callable(option, retry, "error", "attempt", explain=explain)
