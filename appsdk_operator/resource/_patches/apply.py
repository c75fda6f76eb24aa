"""Patches of plain JSON values: RFC 6902 (JSON patch) and RFC 7386 (merge patch).

No function changes its arguments. Old and new value share their unchanged parts, so change neither
in place.

The strategic merge patch of Kubernetes' built-in kinds is in ``_strategic``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from appsdk_operator.resource._json import values as json_values
from appsdk_operator.resource._json.pointers import pointer_steps


class PatchError(ValueError):
    """A patch that cannot be applied; the text names the operation and the path."""


class PatchTestFailed(PatchError):  # noqa: N818 - the name says what happened, as callers catch it
    """A ``test`` operation failed: the document has another value than the patch expects."""


# -- RFC 6902 --------------------------------------------------------------------------------

_NEEDS: Final = {
    "add": ("value",),
    "remove": (),
    "replace": ("value",),
    "move": ("from",),
    "copy": ("from",),
    "test": ("value",),
}


def apply_json_patch(document: Any, operations: Sequence[Mapping[str, Any]]) -> Any:
    """Apply a JSON patch (RFC 6902) and return the new document.

    All operations are applied or none. Numbers are compared by value, as the RFC demands, and
    ``true`` is not a number.

    Args:
        document: any JSON value; it is not changed.
        operations: the patch, a list of ``{"op": …, "path": …}``.

    Raises:
        PatchTestFailed: a ``test`` found another value.
        PatchError: an operation that is malformed, or whose path does not exist.

    >>> apply_json_patch({"a": [1]}, [{"op": "add", "path": "/a/-", "value": 2}])
    {'a': [1, 2]}
    """
    if isinstance(operations, (str, bytes, Mapping)) or not isinstance(operations, Sequence):
        raise PatchError(
            f"a JSON patch is a list of operations, not a {type(operations).__name__}: write "
            '[{"op": "add", "path": "/metadata/labels/a", "value": "b"}]'
        )
    for index, operation in enumerate(operations):
        try:
            document = _apply(document, operation)
        except _ProblemError as problem:
            raise _explained(index, operation, problem) from None
    return document


class _ProblemError(Exception):
    """A wrong operation; the caller adds its index."""


class _DiffersError(_ProblemError):
    """A failed test."""


def _explained(index: int, operation: Any, problem: _ProblemError) -> PatchError:
    where = f"operation {index}"
    if isinstance(operation, Mapping):
        where += f" ({operation.get('op')} {operation.get('path')!r})"
    kind = PatchTestFailed if isinstance(problem, _DiffersError) else PatchError
    return kind(f"{where}: {problem}")


def _apply(document: Any, operation: Any) -> Any:
    if not isinstance(operation, Mapping):
        raise _ProblemError("is not an object: write {'op': ..., 'path': ...}")
    op = operation.get("op")
    needs = _NEEDS.get(op) if isinstance(op, str) else None
    if needs is None:
        raise _ProblemError(f"{op!r} is not an operation: use one of {', '.join(_NEEDS)}")
    for name in ("path", *needs):
        if name not in operation:
            raise _ProblemError(f"{name!r} is missing")
    path = _pointer(operation["path"])
    match op:
        case "add":
            return _add(document, path, operation["value"])
        case "remove":
            return _remove(document, path)
        case "replace":
            _resolve(document, path)
            return _replace(document, path, operation["value"])
        case "test":
            if not json_values.equal_numbers(_resolve(document, path), operation["value"]):
                raise _DiffersError("the value there differs: read the object again and retry")
            return document
        case _:
            return _transfer(document, str(op), _pointer(operation["from"]), path)


def _transfer(document: Any, op: str, source: list[str], path: list[str]) -> Any:
    value = _resolve(document, source)
    if op == "copy":
        return _add(document, path, value)
    if path[: len(source)] == source:
        if path == source:
            return document
        raise _ProblemError("a value cannot be moved into itself")
    return _add(_remove(document, source), path, value)


def _pointer(text: Any) -> list[str]:
    """The steps of a JSON pointer (RFC 6901)."""
    if not isinstance(text, str):
        raise _ProblemError("a path is text")
    if text and not text.startswith("/"):
        raise _ProblemError("a path starts with '/', or is '' for the whole document")
    return pointer_steps(text)


def _resolve(document: Any, path: list[str]) -> Any:
    for step in path:
        if isinstance(document, dict):
            if step not in document:
                raise _ProblemError(f"there is no {step!r}")
            document = document[step]
        elif isinstance(document, list):
            document = document[_index(step, len(document) - 1)]
        else:
            raise _ProblemError(
                f"{step!r} is looked up in a value that is neither an object nor a list"
            )
    return document


def _index(step: str, last: int) -> int:
    if not (step.isascii() and step.isdigit()) or (len(step) > 1 and step[0] == "0"):
        raise _ProblemError(f"{step!r} is not an index of a list")
    # More digits than any index has; Python refuses to convert thousands of them.
    index = int(step) if len(step) < 10 else last + 1
    if index > last:
        raise _ProblemError(f"index {step} is beyond the end of the list")
    return index


def _changed(document: Any, path: list[str], leaf: Any) -> Any:
    """A copy of the containers along ``path``, with ``leaf`` applied to the innermost."""
    along: list[tuple[Any, Any]] = []
    for step in path[:-1]:
        at: Any = step
        if isinstance(document, dict):
            if step not in document:
                raise _ProblemError(f"there is no {step!r}")
        elif isinstance(document, list):
            at = _index(step, len(document) - 1)
        else:
            raise _ProblemError(
                f"{step!r} is looked up in a value that is neither an object nor a list"
            )
        along.append((document, at))
        document = document[at]
    changed = leaf(document, path[-1])
    for container, at in reversed(along):
        copy = container.copy()
        copy[at] = changed
        changed = copy
    return changed


def _add(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value

    def leaf(container: Any, step: str) -> Any:
        if isinstance(container, dict):
            return {**container, step: value}
        if isinstance(container, list):
            index = len(container) if step == "-" else _index(step, len(container))
            return [*container[:index], value, *container[index:]]
        raise _ProblemError("its parent is neither an object nor a list")

    return _changed(document, path, leaf)


def _replace(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value

    def leaf(container: Any, step: str) -> Any:
        if isinstance(container, dict):
            return {**container, step: value}
        index = int(step)
        return [*container[:index], value, *container[index + 1 :]]

    return _changed(document, path, leaf)


def _remove(document: Any, path: list[str]) -> Any:
    if not path:
        return None

    def leaf(container: Any, step: str) -> Any:
        if isinstance(container, dict):
            if step not in container:
                raise _ProblemError(f"there is no {step!r}")
            return {name: value for name, value in container.items() if name != step}
        if isinstance(container, list):
            index = _index(step, len(container) - 1)
            return [*container[:index], *container[index + 1 :]]
        raise _ProblemError("its parent is neither an object nor a list")

    return _changed(document, path, leaf)


# -- RFC 7386 --------------------------------------------------------------------------------


def apply_merge_patch(document: Any, patch: Any) -> Any:
    """Apply a merge patch (RFC 7386) and return the new document.

    Objects are merged, null deletes, everything else replaces.

    >>> apply_merge_patch({"a": 1, "b": {"c": 2}}, {"a": None, "b": {"d": 3}})
    {'b': {'c': 2, 'd': 3}}
    """
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(document) if isinstance(document, Mapping) else {}
    pending = [(merged, patch)]
    while pending:
        target, changes = pending.pop()
        for name, value in changes.items():
            if value is None:
                target.pop(name, None)
            elif isinstance(value, Mapping):
                old = target.get(name)
                target[name] = inner = dict(old) if isinstance(old, Mapping) else {}
                pending.append((inner, value))
            else:
                target[name] = value
    return merged


def create_merge_patch(old: Any, new: Any) -> Any:
    """The smallest merge patch from ``old`` to ``new``.

    A merge patch cannot set a field to null, so ``apply_merge_patch(old, create_merge_patch(old,
    new))`` equals ``new`` for values without null. The patch is empty if nothing changed.

    >>> create_merge_patch({"a": 1, "b": 2, "c": {"d": [1]}}, {"b": 2, "c": {"d": [1, 2]}})
    {'a': None, 'c': {'d': [1, 2]}}
    """
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return new
    patch: dict[str, Any] = {}
    pending: list[tuple[Any, Any, dict[str, Any]]] = [(old, new, patch)]
    parts: list[tuple[dict[str, Any], str]] = []
    while pending:
        before, after, part = pending.pop()
        part.update((name, None) for name in before if name not in after)
        for name, value in after.items():
            if name not in before:
                part[name] = value
            elif isinstance(before[name], Mapping) and isinstance(value, Mapping):
                inner: dict[str, Any] = {}
                part[name] = inner
                parts.append((part, name))
                pending.append((before[name], value, inner))
            elif not json_values.same(before[name], value):
                part[name] = value
    for part, name in reversed(parts):
        if not part[name]:
            del part[name]
    return patch
