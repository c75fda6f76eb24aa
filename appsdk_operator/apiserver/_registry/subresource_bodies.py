"""The bodies of subresources, read as the kinds they have to be: Scale, Eviction, Binding, …

Built-in objects are read by where they are sent, see :mod:`bodies`; what is sent to a subresource
has a kind of its own.
"""

from __future__ import annotations

from typing import Any, Final

import attrs

from appsdk_operator.apiserver._builtin import decoding, types
from appsdk_operator.apiserver._builtin.types import DecodeError
from appsdk_operator.apiserver._registry import bodies
from appsdk_operator.apiserver._schema import builtin_schemas
from appsdk_operator.apiserver._values import go_json
from appsdk_operator.apiserver._values.status import bad_request

__all__ = ["BINDING", "EVICTION", "SCALE", "TOKEN_REQUEST", "BodyKind", "mismatch", "read"]


@attrs.frozen
class BodyKind:
    """What a body has to be."""

    group: str
    version: str
    kind: str
    internal: str
    """What errors of conversion call it."""
    older: tuple[str, ...] = ()
    """Versions that are read as well, of the same fields."""

    @property
    def api_version(self) -> str:
        """Group and version."""
        return f"{self.group}/{self.version}" if self.group else self.version


SCALE: Final = BodyKind("autoscaling", "v1", "Scale", "autoscaling.Scale")
EVICTION: Final = BodyKind("policy", "v1", "Eviction", "policy.Eviction", ("policy/v1beta1",))
BINDING: Final = BodyKind("", "v1", "Binding", "core.Binding")
TOKEN_REQUEST: Final = BodyKind(
    "authentication.k8s.io", "v1", "TokenRequest", "authentication.TokenRequest"
)


def read(body: bytes, wanted: BodyKind, validation: str) -> tuple[dict[str, Any], list[str]]:
    """The object in a body in JSON, with its kind, and what to warn of.

    Args:
        body: the JSON.
        wanted: what it has to be; an object that says no kind is taken for one.
        validation: ``Strict`` refuses what ``Warn`` warns of.

    Raises:
        StatusError: 400, it is something else.
    """
    obj = bodies.decode_typed(body, wanted.kind)
    # What is empty is not said.
    kind = obj.get("kind") or wanted.kind
    api_version = obj.get("apiVersion") or wanted.api_version
    obj = {"kind": kind, "apiVersion": api_version} | {
        name: value for name, value in obj.items() if name not in ("kind", "apiVersion")
    }
    sent = f'{kind} in version "{api_version.rpartition("/")[2]}"'
    problem = mismatch(obj, wanted)
    if problem:
        raise bad_request(f"{sent} cannot be handled as a {wanted.kind}: {problem}")
    made, unknown = types.read(wanted.group, wanted.version, wanted.kind, obj)
    told = decoding.complaints_of(body, unknown) if validation != "Ignore" else []
    if told and validation == "Strict":
        why = f"strict decoding error: {', '.join(told)}"
        raise bad_request(f"{sent} cannot be handled as a {wanted.kind}: {why}")
    return made, told


def mismatch(obj: dict[str, Any], wanted: BodyKind) -> str:
    """Why an object cannot be what it has to be, or nothing."""
    api_version, kind = obj.get("apiVersion"), obj.get("kind")
    for name, value in (("apiVersion", api_version), ("kind", kind)):
        if not isinstance(value, str):
            return go_json.mismatch(value, f"struct field .{name}", "string")
    assert isinstance(api_version, str)
    assert isinstance(kind, str)
    if kind != wanted.kind or api_version not in (wanted.api_version, *wanted.older):
        group, _, version = api_version.rpartition("/")
        if builtin_schemas.definition_of(group, version, kind) is None:
            return (
                f'no kind "{kind}" is registered for version "{api_version}" in scheme '
                '"pkg/runtime/scheme.go:111"'
            )
        return f"converting ({version}.{kind}) to ({wanted.internal}): unknown conversion"
    try:
        types.read(wanted.group, wanted.version, wanted.kind, obj)
    except DecodeError as error:
        return str(error)
    return ""
