"""JSON pointers (RFC 6901)."""

from __future__ import annotations

from collections.abc import Iterable


def json_pointer(steps: Iterable[str]) -> str:
    """The pointer to what these names and indexes lead to.

    >>> json_pointer(["metadata", "annotations", "example.com/a"])
    '/metadata/annotations/example.com~1a'
    """
    return "".join(["/" + step.replace("~", "~0").replace("/", "~1") for step in steps])


def pointer_steps(pointer: str) -> list[str]:
    """The names and indexes of a pointer, which is empty or begins with a slash."""
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]
