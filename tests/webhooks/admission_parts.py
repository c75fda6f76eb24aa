"""Kinds, reviews and answers for the tests of admission webhooks."""

from __future__ import annotations

import base64
import json
import threading
from typing import Any

import attrs

from appsdk_operator.resource import Kind, apply_json_patch
from appsdk_operator.runtime import StopSignal, system_clock
from appsdk_operator.serving import HTTPRequest, HTTPResponse
from appsdk_operator.webhooks import Admission

WIDGET: Kind[Any, Any] = Kind(group="example.com", version="v1", kind="Widget")


@attrs.frozen
class Size:
    """A spec with one field; whatever else is in it is unknown to it."""

    size: int | None = None
    color: str | None = None


TYPED: Kind[Size, Any] = Kind(group="example.com", version="v1", kind="Widget", spec=Size)


def widget(name: str = "a", **spec: Any) -> dict[str, Any]:
    """A widget as an API server sends it."""
    return {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


def review(operation: str = "CREATE", *, version: str = "v1", **fields: Any) -> dict[str, Any]:
    """A review of an operation on a widget."""
    request: dict[str, Any] = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": {"group": "example.com", "version": "v1", "kind": "Widget"},
        "resource": {"group": "example.com", "version": "v1", "resource": "widgets"},
        "requestKind": {"group": "example.com", "version": "v1", "kind": "Widget"},
        "requestResource": {"group": "example.com", "version": "v1", "resource": "widgets"},
        "name": "a",
        "namespace": "default",
        "operation": operation,
        "userInfo": {"username": "jane", "groups": ["admins", "system:authenticated"]},
        "object": widget() if operation in ("CREATE", "UPDATE") else None,
        "oldObject": widget() if operation in ("UPDATE", "DELETE") else None,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    request.update(fields)
    return {
        "kind": "AdmissionReview",
        "apiVersion": f"admission.k8s.io/{version}",
        "request": request,
    }


def post(
    body: bytes | str | dict[str, Any],
    *,
    content_type: str = "application/json",
    query: str = "",
    path: str = "/hook",
) -> HTTPRequest:
    """The HTTP request of an API server."""
    data = body if isinstance(body, bytes) else body.encode() if isinstance(body, str) else b""
    if isinstance(body, dict):
        data = json.dumps(body).encode()
    return HTTPRequest(
        method="POST",
        path=path,
        query_string=query,
        body=data,
        headers={"Content-Type": content_type},
    )


def answer(webhook: Admission, body: bytes | str | dict[str, Any], **options: Any) -> Any:
    """The ``response`` of a webhook's answer."""
    answered: HTTPResponse = webhook(post(body, **options))
    assert answered.status == 200
    return json.loads(answered.body)["response"]


def patched(response: dict[str, Any], before: Any) -> Any:
    """The object with the patch of a response."""
    assert response["patchType"] == "JSONPatch"
    return apply_json_patch(before, json.loads(base64.b64decode(response["patch"])))


class InterruptingClock:
    """The machine's clock, with a signal handler that sets ``stop`` just when a thread waits."""

    def __init__(self) -> None:
        self.stop = StopSignal()

    def monotonic(self) -> float:
        return system_clock.monotonic()

    def time(self) -> float:
        return system_clock.time()

    def wait(self, condition: threading.Condition, timeout: float | None = None) -> None:
        self.stop.set()
        system_clock.wait(condition, timeout)
