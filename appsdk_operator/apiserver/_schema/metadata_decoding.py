"""Metadata decoded as Go decodes it: types are checked, empty and unknown fields dropped."""

from __future__ import annotations

from typing import Any, Final

from appsdk_operator.apiserver._schema import builtin_types

_DEFINITION: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


def decode_metadata(metadata: Any) -> tuple[dict[str, Any], list[str]]:
    """The decoded metadata, and the paths of its unknown fields, sorted.

    Raises:
        DecodeError: a field has the wrong type.
    """
    if metadata is None:
        return {}, []
    made, unknown = builtin_types.read_definition(_DEFINITION, metadata)
    made = {name: value for name, value in made.items() if value is not None}
    if metadata.get("managedFields") == []:
        # An empty list resets the managed fields.
        made["managedFields"] = []
    return made, sorted(unknown)
