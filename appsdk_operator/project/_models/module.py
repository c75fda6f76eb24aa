"""The text of a module of typed classes."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, Literal, TypeAlias

import attrs

from appsdk_operator.project._models.classes import Field, ModelClass
from appsdk_operator.project._models.layout import (
    WIDTH,
    Group,
    Node,
    OrNone,
    Text,
    broken,
    columns,
    docstring,
    flat,
    names_in,
    string,
    written,
)
from appsdk_operator.project._models.names import (
    CLASS_RESERVED,
    FIELD_RESERVED,
    ModelError,
    class_words,
)

ModelStyle: TypeAlias = Literal["attrs", "dataclass", "msgspec", "pydantic"]
"""The library of generated classes."""

STYLES: Final[tuple[ModelStyle, ...]] = ("attrs", "dataclass", "msgspec", "pydantic")

_PYDANTIC_NAMES: Final = frozenset(
    {
        *("construct", "copy", "dict", "fields", "from_orm", "json", "parse_file", "parse_obj"),
        *("parse_raw", "schema", "schema_json", "update_forward_refs", "validate"),
        *("model_computed_fields", "model_config", "model_construct", "model_copy", "model_dump"),
        *("model_dump_json", "model_extra", "model_fields", "model_fields_set"),
        *("model_json_schema", "model_parametrized_name", "model_post_init", "model_rebuild"),
        *("model_validate", "model_validate_json", "model_validate_strings"),
    }
)
"""What pydantic.BaseModel has itself."""
_NOT_IN_MSGSPEC: Final = re.compile(r'[\x00-\x1f"\\]')
_MODULES: Final[Mapping[str, str]] = {
    "attrs": "attrs",
    "dataclass": "dataclasses",
    "msgspec": "msgspec",
    "pydantic": "pydantic",
}
_STRUCT: Final = """(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    rename="camel",
)"""
_HEADS: Final[Mapping[str, tuple[str, str]]] = {
    "attrs": ("@attrs.frozen(kw_only=True)\n", ""),
    "dataclass": ("@dataclasses.dataclass(frozen=True, kw_only=True)\n", ""),
    "msgspec": (
        "",
        _STRUCT,
    ),
    "pydantic": ("", "(pydantic.BaseModel, frozen=True, protected_namespaces=())"),
}
_FIELD_CALLS: Final[Mapping[str, tuple[str, str]]] = {
    "attrs": ("attrs.field", "factory"),
    "dataclass": ("dataclasses.field", "default_factory"),
    "msgspec": ("msgspec.field", "default_factory"),
    "pydantic": ("pydantic.Field", "default_factory"),
}


@attrs.frozen(kw_only=True)
class KindText:
    """A constant of the module: a kind, or several as a tuple."""

    name: str
    value: Node
    doc: str = ""


def reserved_fields(style: str) -> frozenset[str]:
    """The names that fields of a style cannot have."""
    return FIELD_RESERVED | (_PYDANTIC_NAMES if style == "pydantic" else frozenset())


def _camel(name: str) -> str:
    """The name on the wire that ``rename="camel"`` makes."""
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def named(classes: Sequence[ModelClass], constants: Collection[str]) -> None:
    """Give all classes names: short ones, with as much of their path as tells them apart.

    None is that of a constant of the module.

    Those of the main version of a kind come first, so that another version changes none of them;
    those of other versions end with their version.
    """
    taken = {*CLASS_RESERVED, *constants}
    for one in classes:
        if one.fixed_name:
            one.name = one.fixed_name
            taken.add(one.name)
    for version in sorted({one.version for one in classes}):
        own = [one for one in classes if one.version == version and not one.fixed_name]
        _name_some(own, class_words(version) if version else "", taken)


def _name_some(classes: Sequence[ModelClass], suffix: str, taken: set[str]) -> None:
    lengths = {id(one): 1 for one in classes}
    while True:
        groups: dict[str, list[ModelClass]] = {}
        for one in classes:
            name = "".join(one.words[-lengths[id(one)] :]) + suffix
            groups.setdefault(name, []).append(one)
        longer = [
            one
            for name, group in groups.items()
            if len(group) > 1 or name in taken
            for one in group
            if lengths[id(one)] < len(one.words)
        ]
        if not longer:
            break
        for one in longer:
            lengths[id(one)] += 1
    for name, group in groups.items():
        for one in group:
            number, free = 1, name
            while free in taken:
                number += 1
                free = f"{name}{number}"
            one.name = free
            taken.add(free)


def module_text(
    *,
    doc: str,
    classes: Sequence[ModelClass],
    kinds: Sequence[KindText],
    style: ModelStyle,
) -> str:
    """The module: imports, classes in an order in which each follows what it uses, kinds."""
    fields = {id(one): [_field_text(field, style) for field in one.fields] for one in classes}
    parts = [_class_text(one, [text for text, _ in fields[id(one)]], style) for one in classes]
    for kind in kinds:
        text = written(f"{kind.name}: Final = ", kind.value)
        parts.append(f"{text}\n{docstring(kind.doc, 0)}")
    needed: set[tuple[str, str]] = set()
    for one in classes:
        for node in one.decorators:
            needed |= set(names_in(node))
        for _, nodes in fields[id(one)]:
            for node in nodes:
                needed |= set(names_in(node))
    for kind in kinds:
        needed |= {("typing", "Final"), *names_in(kind.value)}
    if classes:
        needed.add((_MODULES[style], ""))
    head = docstring(doc, 0)
    body = "\n\n".join(parts[: len(classes)])
    tail = "\n".join(parts[len(classes) :])
    text = f"{head}\nfrom __future__ import annotations\n\n{_imports(needed)}"
    text += f"\n\n{body}" if body else ""
    text += f"\n\n{tail}" if body else f"\n{tail}"
    return _exempted(text)


def _exempted(text: str) -> str:
    """The text, with a line for linters where foreign texts break rules of style."""
    rules = []
    if any(columns(line) > WIDTH for line in text.splitlines()):
        rules.append("E501")
    if _AMBIGUOUS & set(text):
        rules += ["RUF001", "RUF002"]
    if not rules:
        return text
    return f"# ruff: noqa: {', '.join(rules)}\n{text}"


_AMBIGUOUS: Final = frozenset(
    "\u2018\u2019\u201b\u2032\u2010\u2011\u2012\u2013\u2212\u00d7\u00b4\uff0c\uff1a"
)
"""Signs that linters take for those of programs that look like them."""


def _imports(needed: Iterable[tuple[str, str]]) -> str:
    """The imports, in the order of isort."""
    standard = ("collections.abc", "dataclasses", "typing")
    blocks: list[str] = []
    for block in (True, False):
        modules = sorted({m for m, _ in needed if (m in standard) == block})
        lines = [f"import {m}\n" for m in modules if (m, "") in needed]
        for module in modules:
            names = sorted({name for m, name in needed if m == module and name}, key=_isort_key)
            if names:
                group = Group(Text(""), "()", tuple(("", Text(name)) for name in names))
                flat = f"from {module} import {', '.join(names)}"
                lines.append(
                    f"{flat}\n"
                    if columns(flat) <= WIDTH
                    else written(f"from {module} import ", group) + "\n"
                )
        if lines:
            blocks.append("".join(lines))
    return "\n".join(blocks)


def _isort_key(name: str) -> tuple[int, str]:
    kind = 0 if name.isupper() and len(name) > 1 else 1 if name[0].isupper() else 2
    return kind, name


def _class_text(one: ModelClass, fields: Sequence[str], style: str) -> str:
    decorator, bases = _HEADS[style]
    head = "".join(written("@", node) + "\n" for node in one.decorators)
    text = f"{head}{decorator}class {one.name}{bases}:\n"
    doc = docstring(one.doc)
    text += doc
    if fields:
        text += "\n" if doc else ""
        text += "".join(fields)
    elif not doc:
        text += "    pass\n"
    return text


def _field_text(field: Field, style: str) -> tuple[str, list[Node]]:
    """A field, and the expressions in it."""
    is_named = _camel(field.name) != field.wire
    kind, default = field.type, field.default
    name, factory = _FIELD_CALLS[style]
    arguments: list[tuple[str, Node]] = []
    if is_named and style == "msgspec":
        if _NOT_IN_MSGSPEC.search(field.wire):
            raise ModelError(
                f"the field {field.wire!r}: msgspec does not support quotation marks, backslashes "
                "and control characters in a name: use another style"
            )
        arguments.append(("name=", Text(string(field.wire))))
    elif is_named:
        kind = _with_name(kind, field.wire)
    if default is not None and (field.is_factory or arguments):
        arguments.append((f"{factory if field.is_factory else 'default'}=", default))
    if arguments:
        default = Group(Text(name), "()", tuple(arguments))
    before = f"    {field.name}: "
    if default is None:
        text = written(before, kind, indent=4)
    else:
        text = _with_default(before, kind, default)
    return f"{text}\n{docstring(field.doc)}", [kind, *([default] if default is not None else [])]


def _with_default(before: str, kind: Node, default: Node) -> str:
    """A field with its default; the type is broken first if a line is not enough."""
    value = flat(default)
    if columns(f"{before}{flat(kind)} = {value}") <= WIDTH:
        return f"{before}{flat(kind)} = {value}"
    text = written(before, kind, " = ", indent=4)
    last = text.rpartition("\n")[2]
    if columns(last + value) <= WIDTH:
        return text + value
    line = f"{before}{flat(kind)} = ("
    if text == line.removesuffix("(") and columns(line) <= WIDTH:
        open_call = broken(text, default, indent=4)
        if "\n" in open_call and columns(open_call.partition("\n")[0]) <= WIDTH:
            return open_call
        return f"{line}\n{written(' ' * 8, default, indent=8)}\n    )"
    if isinstance(kind, OrNone) and value == "None":
        inside = (
            flat(kind)
            if columns(flat(kind)) + 8 <= WIDTH
            else f"{flat(kind.inner)}\n        | None"
        )
        return text if "\n" in text else f"{before}(\n        {inside}\n    ) = None"
    text = written(before, kind, f" = {value}", indent=4)
    last = text.rpartition("\n")[2]
    return text if columns(last) <= WIDTH else broken(text.removesuffix(value), default, indent=4)


def _with_name(kind: Node, wire: str) -> Node:
    marker = Group(
        Text("FieldName", (("appsdk_operator.resource", "FieldName"),)),
        "()",
        (("", Text(string(wire))),),
    )
    if isinstance(kind, Group) and kind.head == Text("Annotated", (("typing", "Annotated"),)):
        return attrs.evolve(kind, items=(*kind.items, ("", marker)))
    return Group(Text("Annotated", (("typing", "Annotated"),)), "[]", (("", kind), ("", marker)))
