"""YAML of objects with comments, and with the expressions of a Helm template. Pure."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias, final

import attrs

from appsdk_operator.resource import dump_yaml

Node: TypeAlias = Any
"""JSON values, and among them the types below."""


@final
class _Omitted:
    def __repr__(self) -> str:
        return "OMITTED"


OMITTED: Final = _Omitted()
"""The value of a key that is not written."""


@final
@attrs.frozen
class Commented:
    """A value with a comment above it."""

    value: Node
    comment: tuple[str, ...]
    """The lines, without ``#``."""

    def lines(self, pad: str, for_helm: bool) -> Iterator[str]:
        """The lines of the comment; each is one line, whatever is in it."""
        for line in self.comment:
            plain = " ".join(line.split())
            plain = plain if plain.isprintable() else ascii(plain)
            yield f"{pad}# {escaped(plain) if for_helm else plain}"


@final
@attrs.frozen
class Expression:
    """A scalar that Helm inserts."""

    text: str
    """With its braces: ``{{ .Values.replicas }}``."""


@final
@attrs.frozen
class Block:
    """A mapping or list that Helm inserts; as an item of a list: the items of a list."""

    path: str
    """Where it is in Helm's data: ``.Values.resources``."""


@final
@attrs.frozen
class Each:
    """The items of a list that Helm inserts, as texts."""

    path: str


@final
@attrs.frozen
class When:
    """A value that Helm writes under a condition, with its key if it has one."""

    condition: str
    """An expression of Helm: ``.Values.priorityClassName``."""
    value: Node


def document(tree: Mapping[str, Node], *, for_helm: bool = False) -> str:
    """The YAML of one object.

    Args:
        tree: the object.
        for_helm: whether braces of the object's own texts are escaped for Helm.
    """
    return "".join(f"{line}\n" for line in _mapping(tree, 0, for_helm))


def escaped(text: str) -> str:
    """``text`` so that Helm writes it as it is."""
    return text.replace("{{", '{{ "{{" }}')


def replaced(tree: Node, old: str, new: Node) -> Node:
    """A copy of ``tree`` with each scalar ``old`` replaced."""
    if isinstance(tree, Mapping):
        return {key: replaced(value, old, new) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [replaced(value, old, new) for value in tree]
    return new if isinstance(tree, str) and tree == old else tree


def _mapping(tree: Mapping[str, Node], indent: int, for_helm: bool) -> Iterator[str]:
    for key, value in tree.items():
        yield from _entry(key, value, indent, for_helm)


def _entry(key: str, value: Node, indent: int, for_helm: bool) -> Iterator[str]:
    pad = " " * indent
    if value is OMITTED:
        return
    if isinstance(value, Commented):
        yield from value.lines(pad, for_helm)
        yield from _entry(key, value.value, indent, for_helm)
    elif isinstance(value, When):
        yield f"{pad}{{{{- if {value.condition} }}}}"
        yield from _entry(key, value.value, indent, for_helm)
        yield f"{pad}{{{{- end }}}}"
    elif isinstance(value, Expression):
        yield f"{pad}{_key(key)} {value.text}"
    elif isinstance(value, Block):
        yield f"{pad}{_key(key)}"
        yield f"{pad}  {{{{- toYaml {value.path} | nindent {indent + 2} }}}}"
    elif isinstance(value, Mapping) and value:
        yield f"{pad}{_key(key)}"
        yield from _mapping(value, indent + 2, for_helm)
    elif isinstance(value, (list, tuple)) and value:
        yield f"{pad}{_key(key)}"
        yield from _items(value, indent, for_helm)
    else:
        yield from (f"{pad}{line}" for line in _leaf(key, value, for_helm))


def _items(items: Sequence[Node], indent: int, for_helm: bool) -> Iterator[str]:
    pad = " " * indent
    for item in items:
        if item is OMITTED:
            continue
        if isinstance(item, Commented):
            yield from item.lines(pad, for_helm)
            yield from _items([item.value], indent, for_helm)
        elif isinstance(item, Expression):
            yield f"{pad}- {item.text}"
        elif isinstance(item, When):
            yield f"{pad}{{{{- if {item.condition} }}}}"
            yield from _items([item.value], indent, for_helm)
            yield f"{pad}{{{{- end }}}}"
        elif isinstance(item, Block):
            yield f"{pad}{{{{- toYaml {item.path} | nindent {indent} }}}}"
        elif isinstance(item, Each):
            yield f"{pad}{{{{- range {item.path} }}}}"
            yield f"{pad}- {{{{ . | quote }}}}"
            yield f"{pad}{{{{- end }}}}"
        elif isinstance(item, (Mapping, list, tuple)) and item:
            inner: Any = _mapping if isinstance(item, Mapping) else _items
            lines = [*inner(item, indent + 2, for_helm)]
            yield f"{pad}- {lines[0][indent + 2 :]}"
            yield from lines[1:]
        else:
            first, *others = _leaf("x", item, for_helm)
            yield f"{pad}- {first[3:]}"
            yield from (f"{pad}{line}" for line in others)


# The manifests of one operator have some hundred keys and texts, each many times.
@functools.lru_cache(maxsize=1024)
def _key(key: str) -> str:
    plain = dump_yaml({key: None})
    if plain.startswith("?") or plain.count("\n") > 1:
        return f"{json.dumps(key)}:"
    return plain.removesuffix(" null\n")


def _leaf(key: str, value: Node, for_helm: bool) -> list[str]:
    if isinstance(value, str) and "\n" in value and _is_plain_block(value):
        chomping = "" if value.endswith("\n") else "-"
        lines = value.removesuffix("\n").split("\n")
        found = [f"{_key(key)} |{chomping}", *(f"  {line}" if line else "" for line in lines)]
    else:
        first, *others = _text_lines(value) if isinstance(value, str) else _lines(value)
        found = [f"{_key(key)}{first[2:]}", *others]
    return [escaped(line) for line in found] if for_helm else found


@functools.lru_cache(maxsize=1024)
def _text_lines(text: str) -> list[str]:
    return _lines(text)


def _lines(value: Node) -> list[str]:
    """The lines of a value behind the key ``x``."""
    plain = list(value) if isinstance(value, tuple) else value
    return dump_yaml({"x": plain}).removesuffix("\n").split("\n")


def _is_plain_block(text: str) -> bool:
    """Whether a literal block of YAML can hold it, without an indicator of its indentation."""
    lines = text.removesuffix("\n").split("\n")
    if not lines[0] or not lines[-1] or lines[0][0] == " ":
        return False
    return all(line.isprintable() and line == line.rstrip() for line in lines)
