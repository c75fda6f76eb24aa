"""JSON patches of webhooks, as lenient as the Go library of the real server, with its errors."""

from __future__ import annotations

from typing import Any, Final

from appsdk_operator.apiserver._values.go_text import parse_integer
from appsdk_operator.resource import PatchError, apply_json_patch

__all__ = ["apply_webhook_patch"]

_KINDS: Final = ("add", "remove", "replace", "move", "copy", "test")


def apply_webhook_patch(document: dict[str, Any], operations: list[Any]) -> Any:
    """``document`` with the operations applied; the result may share parts with it.

    Raises:
        PatchError: one does not apply; the text is the real server's.
    """
    result: Any = document
    for operation in operations:
        result = _apply(result, operation if isinstance(operation, dict) else {})
    return result


def _apply(document: Any, operation: dict[str, Any]) -> Any:
    kind, path = operation.get("op"), str(operation.get("path", ""))
    if kind not in _KINDS:
        raise PatchError(f"Unexpected kind: {kind}")
    if kind == "replace" and _key_is_missing(document, path):
        operation = {**operation, "op": "add"}
    elif kind == "copy" and _key_is_missing(document, str(operation.get("from", ""))):
        operation = {"op": "add", "path": path, "value": None}
    elif kind == "test" and operation.get("value") is None and _key_is_missing(document, path):
        return document
    try:
        return apply_json_patch(document, [operation])
    except PatchError as error:
        raise PatchError(_explained(document, operation, error)) from None


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
    container, key = _container(document, path), _steps(path)[-1:]
    return isinstance(container, dict) and bool(key) and key[0] not in container


def _container(document: Any, path: str) -> Any:
    """The object or list that contains the last key of ``path``; None when there is none."""
    for step in _steps(path)[:-1]:
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


def _steps(path: str) -> list[str]:
    return [step.replace("~1", "/").replace("~0", "~") for step in path.split("/")[1:]]
