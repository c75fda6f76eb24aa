"""Write the names of the fields of the built-in kinds, which filters are checked against.

It reads the schemas of the embedded API server, which ``hack/builtin_schemas.py`` writes and which
an operator does not load::

    python hack/builtin_fields.py
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from appsdk_operator.apiserver import builtin_schemas

TARGET = (
    Path(__file__).resolve().parent.parent
    / "appsdk_operator/resource/_schema/builtin_fields.json.gz"
)


def main() -> None:
    """See the module."""
    TARGET.write_bytes(packed())
    print(f"{TARGET}: {TARGET.stat().st_size} bytes")


def packed() -> bytes:
    """The bytes of the file; the same schemas give the same bytes: no time stamp, no name."""
    text = json.dumps(table(), separators=(",", ":")).encode()
    return gzip.compress(text, mtime=0)


def table() -> dict[str, Any]:
    """The content of the file; ``_builtin_fields.py`` says what the codes mean."""
    data = builtin_schemas.data()
    numbers: dict[int, int] = {}
    definitions: list[dict[str, Any]] = []

    def number_of(schema: Mapping[str, Any]) -> int:
        found = numbers.get(id(schema["properties"]))
        if found is None:
            found = numbers[id(schema["properties"])] = len(definitions)
            made: dict[str, Any] = {}
            definitions.append(made)
            for name, child in schema["properties"].items():
                made[name] = code_of(child)
        return found

    def code_of(schema: Mapping[str, Any]) -> Any:
        if schema.get("x-kubernetes-preserve-unknown-fields"):
            return True
        if "properties" in schema:
            return number_of(schema)
        if "items" in schema:
            return [code_of(schema["items"])]
        if isinstance(schema.get("additionalProperties"), Mapping):
            return {"": code_of(schema["additionalProperties"])}
        return True if schema.get("type") == "object" else None

    kinds = []
    for group, version, kind in sorted(data.kinds):
        schema = builtin_schemas.schema(group, version, kind)
        if schema is not None and not kind.endswith("List") and "metadata" in schema["properties"]:
            kinds.append([group, version, kind, number_of(schema)])
    minor = ".".join(data.version.removeprefix("v").split(".")[:2])
    return {
        "provenance": (
            f"Names of fields in the OpenAPI documents of Kubernetes {data.version} (Apache "
            "License 2.0); made by hack/builtin_fields.py"
        ),
        "version": minor,
        "kinds": kinds,
        "definitions": definitions,
    }


if __name__ == "__main__":
    main()
