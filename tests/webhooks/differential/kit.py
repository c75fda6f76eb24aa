"""Webhooks of the kit that do what a table says, as those in hack/webhooks-go do."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from appsdk_operator.client import ApiError, Invalid, error_from_status
from appsdk_operator.resource import (
    ConversionError,
    FieldError,
    FieldPath,
    JsonPatch,
    Kind,
    MutableObject,
    Object,
    Versions,
    field,
    kinds,
)
from appsdk_operator.runtime import Metrics, StopSignal, ThreadGroup
from appsdk_operator.serving import HTTPRequest, HTTPResponse, SelfSigned
from appsdk_operator.webhooks import (
    Admission,
    AdmissionRequest,
    AdmissionResponse,
    ConversionWebhook,
    Denied,
    MultiMutating,
    MultiValidating,
    WebhookServer,
    admission_request,
    webhook_for,
)
from tests.webhooks.differential.scripts import GROUP


class Job(msgspec.Struct, frozen=True, omit_defaults=True):
    """An item of a list."""

    name: str
    ports: tuple[int, ...] = ()


class SubjectSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the classes in Go know, too: neither spec.newer nor spec.extra."""

    text: str = ""
    count: int | None = None
    replicas: int | None = None
    list: tuple[str, ...] = ()
    jobs: tuple[Job, ...] = ()
    nested: dict[str, Any] = {}
    words: dict[str, str] = {}
    convert: str = ""


SUBJECT = Kind(group=GROUP, version="v1", kind="Subject", spec=SubjectSpec)
OLD = Kind(group=GROUP, version="v1beta1", kind="Subject")
OLDEST = Kind(group=GROUP, version="v1alpha1", kind="Subject")
_KINDS: dict[str, Kind] = {
    "Subject": SUBJECT,
    "ConfigMap": kinds.core.v1.ConfigMap,
    "Pod": kinds.core.v1.Pod,
}

Json = dict[str, Any]


@contextlib.contextmanager
def serving(table: list[Json], certificates: SelfSigned) -> Iterator[int]:
    """Serve a table; its port."""
    server = WebhookServer("0.0.0.0:0", certificates=certificates, metrics=Metrics())
    over = threading.Event()
    server.add("/convert", ConversionWebhook(versions()))
    for entry in table:
        _register(server, entry, over)
    stop, threads = StopSignal(), ThreadGroup("webhooks")
    threads.start("server", lambda: server.run(stop))
    try:
        yield server.port
    finally:
        over.set()
        stop.set()
        threads.join()


def _register(server: WebhookServer, entry: Json, over: threading.Event) -> None:
    path, kind = entry["path"], _KINDS[entry["kind"]]
    if "default" in entry:
        act = _Act(entry["default"], kind, over)
        webhook_for(server, kind).default(act.default, path=path).complete()
    elif "validate" in entry:
        acts = {name: _Act(each, kind, over) for name, each in entry["validate"].items()}
        create, update, delete = (acts.get(name) for name in ("create", "update", "delete"))
        webhook_for(server, kind).validate(
            create=create and create.check,
            update=update and update.check_update,
            delete=delete and delete.check,
            path=path,
        ).complete()
    elif "raw" in entry:
        server.add(path, _raw(entry["raw"]))
    else:
        several = MultiMutating if "mutate" in entry else MultiValidating
        handlers = [_handler(each, over) for each in entry.get("mutate") or entry["review"]]
        server.add(path, Admission(handlers[0] if len(handlers) == 1 else several(*handlers)))


class _Act:
    """What a function of a defaulter or a validator does; actions.go tells what each key means."""

    def __init__(self, act: Json, kind: Kind, over: threading.Event) -> None:
        self._act = act
        self._kind = kind
        self._over = over

    def default(self, obj: MutableObject[Any, Any]) -> None:
        if not _is_meant(self._act, obj.data):
            return
        self._begin()
        for setting in self._act.get("set", ()):
            _set(self._kind, obj, setting["path"], setting["value"])
        for path in self._act.get("remove", ()):
            _remove(self._kind, obj, path)
        _raise(self._refusal(obj.data, {}))

    def check(self, obj: Object[Any, Any]) -> AdmissionResponse | list[str]:
        return self._verdict(obj.to_dict(), {})

    def check_update(
        self, old: Object[Any, Any], new: Object[Any, Any]
    ) -> AdmissionResponse | list[str]:
        return self._verdict(new.to_dict(), old.to_dict())

    def _verdict(self, obj: Json, old: Json) -> AdmissionResponse | list[str]:
        if not _is_meant(self._act, obj):
            return []
        self._begin()
        warnings = list(self._act.get("warnings", ()))
        if "report" in self._act:
            request = admission_request()
            assert request is not None
            warnings.append(_report(request, self._act["report"]))
        refusal = self._refusal(obj, old)
        if refusal is None:
            return warnings
        if not warnings:
            raise refusal
        return AdmissionResponse.of_error(refusal).with_warnings(*warnings)

    def _begin(self) -> None:
        self._over.wait(self._act.get("sleep", 0))
        if "panic" in self._act:
            raise RuntimeError(self._act["panic"])

    def _refusal(self, obj: Json, old: Json) -> ApiError | Denied | None:
        act = self._act
        errors = [_mistake(each) for each in act.get("invalid", ())]
        errors += [
            _path(path).forbidden("may not change")
            for path in act.get("immutable", ())
            if _get(obj, path) != _get(old, path)
        ]
        if "error" in act:
            return Denied(act["error"])
        if "status" in act:
            return error_from_status(act["status"])
        if errors:
            return Invalid.of(SUBJECT, obj["metadata"].get("name", ""), errors)
        return None


def _raise(error: Exception | None) -> None:
    if error is not None:
        raise error


def _handler(act: Json, over: threading.Event) -> Callable[[AdmissionRequest], AdmissionResponse]:
    def handle(request: AdmissionRequest) -> AdmissionResponse:
        obj = json.loads(request.raw_object) if request.raw_object else {}
        if not _is_meant(act, obj):
            return AdmissionResponse.allowed()
        over.wait(act.get("sleep", 0))
        if "panic" in act:
            raise RuntimeError(act["panic"])
        return _response(act, request, obj).with_warnings(*act.get("warnings", ()))

    return handle


def _response(act: Json, request: AdmissionRequest, obj: Json) -> AdmissionResponse:
    if "report" in act:
        return AdmissionResponse.denied(_report(request, act["report"]))
    if "denied" in act:
        return AdmissionResponse.denied(act["denied"])
    if "errored" in act:
        return AdmissionResponse.errored(act["errored"]["code"], act["errored"]["message"])
    if "patch" in act:
        return AdmissionResponse.patched(act["patch"])
    if "set" in act or "remove" in act:
        before = json.loads(request.raw_object)
        for setting in act.get("set", ()):
            _put(obj, setting["path"].split("/"), setting["value"])
        for path in act.get("remove", ()):
            _take(obj, path.split("/"))
        return AdmissionResponse.patched(JsonPatch.between(before, obj))
    return AdmissionResponse.allowed(act.get("message", ""))


def _raw(raw: Json) -> Callable[[HTTPRequest], HTTPResponse]:
    def answer(request: HTTPRequest) -> HTTPResponse:
        uid = json.loads(request.body)["request"]["uid"]
        body = raw["body"].replace("$uid", uid).encode()
        kind = raw.get("type", "text/plain; charset=utf-8")
        return HTTPResponse(status=raw["status"], body=body, content_type=kind)

    return answer


# -- the parts of an object ------------------------------------------------------------------


def _get(obj: Any, path: str) -> Any:
    for key in path.split("/"):
        obj = obj.get(key) if isinstance(obj, Mapping) else None
    return obj


def _put(obj: Json, keys: list[str], value: Any) -> None:
    for key in keys[:-1]:
        if not isinstance(obj.get(key), dict):
            obj[key] = {}
        obj = obj[key]
    obj[keys[-1]] = value


def _take(obj: Json, keys: list[str]) -> None:
    for key in keys[:-1]:
        obj = obj.get(key, {})
    obj.pop(keys[-1], None)


def _set(kind: Kind, obj: MutableObject[Any, Any], path: str, value: Any) -> None:
    keys = path.split("/")
    if keys[0] == "spec" and kind.spec is not None:
        spec = msgspec.to_builtins(obj.spec) if "spec" in obj.data else {}
        _put(spec, keys[1:], value)
        obj.spec = msgspec.convert(spec, kind.spec)
    else:
        _put(obj.data, keys, value)


def _remove(kind: Kind, obj: MutableObject[Any, Any], path: str) -> None:
    keys = path.split("/")
    if keys[0] == "spec" and kind.spec is not None:
        spec = msgspec.to_builtins(obj.spec)
        _take(spec, keys[1:])
        obj.spec = msgspec.convert(spec, kind.spec)
    else:
        _take(obj.data, keys)


def _is_meant(act: Json, obj: Json) -> bool:
    return all(_get(obj, path) == value for path, value in act.get("when", {}).items())


# -- mistakes --------------------------------------------------------------------------------


def _path(text: str) -> FieldPath:
    first, *rest = text.split("/")
    path = field(first)
    for part in rest:
        if part.isdigit():
            path = path[int(part)]
        elif part.startswith("~"):
            path = path.key(part[1:])
        else:
            path = path[part]
    return path


def _mistake(given: Json) -> FieldError:
    path, value, detail = _path(given["path"]), given.get("value"), given.get("detail", "")
    makers: dict[str, Callable[[], FieldError]] = {
        "invalid": lambda: path.invalid(value, detail),
        "required": lambda: path.required(detail),
        "forbidden": lambda: path.forbidden(detail),
        "not supported": lambda: path.not_supported(value, given["supported"]),
        "duplicate": lambda: path.duplicate(value),
        "too long": lambda: path.too_long(value, given["limit"]),
        "too many": lambda: path.too_many(value, given["limit"]),
        "not found": lambda: path.not_found(value),
        "type invalid": lambda: path.type_invalid(value, detail),
        "internal": lambda: path.internal(detail),
    }
    return makers[given["type"]]()


# -- what a request says ---------------------------------------------------------------------


def _report(request: AdmissionRequest, names: list[str]) -> str:
    return ", ".join(f"{name}={_fact(request, name)}" for name in names)


def _fact(request: AdmissionRequest, name: str) -> str:
    kind, asked, resource, user = (
        request.kind,
        request.request_kind,
        request.resource,
        request.user,
    )
    facts: dict[str, Callable[[], object]] = {
        "operation": lambda: request.operation,
        "kind": lambda: f"{kind.group}/{kind.version}/{kind.kind}",
        "requestKind": lambda: f"{asked.group}/{asked.version}/{asked.kind}",
        "resource": lambda: f"{resource.group}/{resource.version}/{resource.resource}",
        "subresource": lambda: request.subresource,
        "name": lambda: request.name,
        "namespace": lambda: request.namespace,
        "user": lambda: user.username,
        "groups": lambda: "+".join(user.groups),
        "extra": lambda: "+".join(user.extra.get("team", ())),
        "dryRun": lambda: str(request.dry_run).lower(),
        "object": lambda: _said(request.object),
        "oldObject": lambda: _said(request.old_object),
        "options": lambda: request.options.get("kind", "<nil>"),
    }
    return str(facts[name]())


def _said(obj: Object[Any, Any] | None) -> str:
    if obj is None:
        return "none"
    text = _get(obj.to_dict(), "spec/text")
    return obj.kind.kind if text is None else f"{obj.kind.kind} {text}"


# -- conversion ------------------------------------------------------------------------------


def versions() -> Versions:
    """Those of subjects."""
    hub = Kind(group=GROUP, version="v1", kind="Subject")
    return (
        Versions(hub)
        .older(OLD, up=_up_from_old, down=_down_to_old)
        .older(OLDEST, up=_up_from_oldest, down=_down_to_oldest)
    )


_COMMON = ("replicas", "list", "words", "convert")


def _up_from_old(old: Object[Any, Any], new: MutableObject[Any, Any]) -> None:
    spec = old.to_dict().get("spec")
    if spec is None:
        return
    found = {key: spec[key] for key in _COMMON if key in spec}
    if spec.get("title"):
        found["text"] = spec["title"]
    # For server-side apply, servers before 1.21 ask for objects with parts taken away.
    if spec.get("size") is not None:
        found["count"] = spec["size"].get("count", 0)
    new.data["spec"] = found
    _befall(old.name, found.get("convert"), new)


def _down_to_old(old: Object[Any, Any], new: MutableObject[Any, Any]) -> None:
    spec = old.to_dict().get("spec")
    if spec is None:
        return
    found = {key: spec[key] for key in _COMMON if key in spec}
    if spec.get("text"):
        found["title"] = spec["text"]
    if "count" in spec:
        found["size"] = {"count": spec["count"]}
    new.data["spec"] = found
    _befall(old.name, found.get("convert"), new)


def _up_from_oldest(old: Object[Any, Any], new: MutableObject[Any, Any]) -> None:
    spec = old.to_dict().get("spec")
    if spec is not None:
        new.data["spec"] = {"text": spec["name"]} if spec.get("name") else {}


def _down_to_oldest(old: Object[Any, Any], new: MutableObject[Any, Any]) -> None:
    spec = old.to_dict().get("spec")
    if spec is not None:
        new.data["spec"] = {"name": spec["text"]} if spec.get("text") else {}
    new.data.pop("status", None)


def _befall(name: str, what: str | None, obj: MutableObject[Any, Any]) -> None:
    """Do to a conversion what its object says."""
    metadata = obj.data["metadata"]
    if what == "fail":
        raise ConversionError(f"{name} cannot be converted")
    if what == "panic":
        raise RuntimeError("the converter is broken")
    if what == "rename":
        metadata["name"] += "-renamed"
    if what == "identity":
        metadata["uid"] = "00000000-0000-0000-0000-000000000000"
    if what == "finalize":
        metadata.setdefault("finalizers", []).append("webhooks.example.com/converted")
    if what == "relabel":
        metadata.setdefault("labels", {})["converted"] = "yes"
        metadata.setdefault("annotations", {})["webhooks.example.com/converted"] = "yes"
