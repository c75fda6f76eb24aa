"""JSON patches as the Go library of the real server applies them, with its errors.

It is more lenient than RFC 6902: ``replace`` adds a missing key, ``copy`` of one copies null,
``add`` without a value adds null, negative indexes count from the end, and what precedes the first
slash of a path is ignored. The whole document is not a target.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from appsdk_operator.apiserver._values.go_text import parse_integer
from appsdk_operator.resource import PatchError, apply_json_patch, json_pointer, pointer_steps

_KINDS: Final = ("add", "remove", "replace", "move", "copy", "test")
# Bytes that the copies of one patch may add, as on the real server.
_COPY_LIMIT: Final = 3 * 1024 * 1024


def apply_as_go(document: Any, operations: list[Any]) -> Any:
    """``document`` with the operations applied; the result may share parts with it.

    Raises:
        PatchError: one does not apply; the text is the real server's.
    """
    copied = 0
    for operation in operations:
        operation = operation if isinstance(operation, dict) else {}
        if operation.get("op") not in _KINDS:
            raise PatchError(f"Unexpected kind: {operation.get('op')}")
        try:
            translated = _translated(document, operation)
            if operation["op"] == "copy":
                text = msgspec.json.encode(translated["value"])
                copied += len(text)
                if copied <= _COPY_LIMIT:
                    # A value of its own: objects are changed in place later.
                    translated["value"] = msgspec.json.decode(text)
            if copied <= _COPY_LIMIT:
                document = apply_json_patch(document, [translated])
        except PatchError as error:
            raise PatchError(_explained(document, operation, error)) from None
        if copied > _COPY_LIMIT:
            raise PatchError(
                "Unable to complete the copy, the accumulated size increase of copy operation is "
                f"{copied}, exceeding the limit {_COPY_LIMIT}"
            )
    return document


def _translated(document: Any, operation: dict[str, Any]) -> dict[str, Any]:
    """The operation that does the same by the RFC.

    Raises:
        PatchError: a path leads nowhere.
    """
    kind = operation["op"]
    path = _pointer(document, operation, "path", adds=kind in ("add", "move", "copy"))
    missing = _key_is_missing(document, path)
    translated = {**operation, "path": path}
    if kind == "add" or (kind == "replace" and missing):
        translated |= {"op": "add", "value": operation.get("value")}
    elif kind == "test" and operation.get("value") is None and missing:
        translated = {"op": "test", "path": "", "value": document}
    elif kind == "move":
        translated["from"] = _pointer(document, operation, "from")
    elif kind == "copy":
        translated |= {"op": "add", "value": _copy_of(document, operation)}
    return translated


def _pointer(document: Any, operation: dict[str, Any], name: str, *, adds: bool = False) -> str:
    """The path in this field, with the indexes of a JSON pointer.

    Raises:
        PatchError: it is that of the whole document.
    """
    steps = pointer_steps(str(operation.get(name, "")))
    if not steps:
        raise PatchError("missing value")
    for at, step in enumerate(steps):
        if isinstance(document, dict):
            document = document.get(step)
        elif isinstance(document, list):
            index = parse_integer(step)
            if index is not None:
                if index < 0:
                    index += len(document) + (adds and at == len(steps) - 1)
                steps[at] = str(index)
                document = document[index] if 0 <= index < len(document) else None
        else:
            break
    return json_pointer(steps)


def _copy_of(document: Any, operation: dict[str, Any]) -> Any:
    """The value that is copied.

    Raises:
        PatchError: there is none.
    """
    source = _pointer(document, operation, "from")
    if _key_is_missing(document, source):
        return None
    copy = {"op": "copy", "from": f"/from{source}", "path": "/value"}
    return apply_json_patch({"from": document}, [copy])["value"]


def _explained(document: Any, operation: dict[str, Any], error: PatchError) -> str:
    kind, path = operation["op"], str(operation.get("path", ""))
    if kind == "test":
        return f"testing value {path} failed: test failed"
    if kind in ("move", "copy"):
        path = str(operation.get("from", ""))
    key = path.rpartition("/")[2]
    if not path or _container(document, path) is None:
        return f'{kind} operation does not apply: doc is missing path: "{path}": missing value'
    if kind in ("remove", "move") and _key_is_missing(document, path):
        shown = path if kind == "remove" else key
        return (
            f"error in {kind} for path: '{shown}': Unable to remove nonexistent key: {key}: "
            "missing value"
        )
    return str(error)


def _key_is_missing(document: Any, path: str) -> bool:
    """Whether the parent of ``path`` is an object without the last key."""
    container, key = _container(document, path), pointer_steps(path)[-1:]
    return isinstance(container, dict) and bool(key) and key[0] not in container


def _container(document: Any, path: str) -> Any:
    """The object or list that contains the last key of ``path``; None when there is none."""
    for step in pointer_steps(path)[:-1]:
        if isinstance(document, dict):
            document = document.get(step)
        elif isinstance(document, list):
            index = parse_integer(step)
            if index is None or not 0 <= index < len(document):
                return None
            document = document[index]
        else:
            return None
    return document if isinstance(document, (dict, list)) else None
