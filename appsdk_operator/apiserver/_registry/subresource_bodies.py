"""The bodies of requests to subresources: Scale, Eviction, Binding, TokenRequest.

Their kinds differ from that of the resource; for bodies of the resource's kind see :mod:`bodies`.
"""

from __future__ import annotations

from typing import Any, Final

import attrs

from appsdk_operator.apiserver._builtin import decoding
from appsdk_operator.apiserver._registry import bodies
from appsdk_operator.apiserver._schema import builtin_schemas
from appsdk_operator.apiserver._schema import builtin_types as types
from appsdk_operator.apiserver._schema.builtin_types import DecodeError
from appsdk_operator.apiserver._values import go_json
from appsdk_operator.apiserver._values.status import bad_request


@attrs.frozen
class BodyKind:
    """The kind that a body must have."""

    group: str
    version: str
    kind: str
    internal: str
    """Its internal Go type, for error texts."""
    older: tuple[str, ...] = ()
    """Further accepted versions, with the same fields."""

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
    """Decode a body in JSON; return the object in the wanted version, and warnings.

    Args:
        body: the JSON.
        wanted: the expected kind, also assumed for an object without one.
        validation: ``Strict`` refuses unknown and duplicate fields, ``Warn`` warns.

    Raises:
        StatusError: 400, it is of another kind.
    """
    obj = bodies.decode_typed(body, wanted.kind)
    # An empty value counts as missing.
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
    warnings = decoding.warnings_of(body, unknown) if validation != "Ignore" else []
    if warnings and validation == "Strict":
        why = f"strict decoding error: {', '.join(warnings)}"
        raise bad_request(f"{sent} cannot be handled as a {wanted.kind}: {why}")
    # Webhooks are asked about it in this version, whichever was sent.
    made["apiVersion"] = wanted.api_version
    return made, warnings


def mismatch(obj: dict[str, Any], wanted: BodyKind) -> str:
    """Why an object is not of the expected kind; empty when it is."""
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
