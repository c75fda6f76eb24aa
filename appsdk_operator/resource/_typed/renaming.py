"""Names on the wire that differ from those of the classes: ``rename`` of a kind.

Reading is by types that have the names on the wire (``_wire_types``). Where there is none, and for
errors, the keys of plain JSON values are translated by the types of the class, before msgspec or
pydantic sees them. Writing translates by the instances, so that it needs no types.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import re
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final

import msgspec

from appsdk_operator._lazy import lazy_pattern
from appsdk_operator.resource._json.values import lists
from appsdk_operator.resource._typed.class_fields import (
    ClassField,
    alternatives,
    array_items,
    class_fields,
    class_of,
    is_named_tuple,
    is_typed_dict,
    mapping_types,
    model_extra_name,
    untyped_fields,
)
from appsdk_operator.resource._typed.spec_types import (
    decode_hook,
    encode_hook,
    has_fields,
    is_pydantic_model,
    model_errors,
    path_and_problem,
)
from appsdk_operator.resource._typed.wire_types import wire_type

_MISSING: Final = lazy_pattern(r"(Object missing required field `)([^`]+)(`)")
_STEP: Final = lazy_pattern(r"\.([^.\[\]]+)|\[(\.\.\.|\d+)\]")
# A key that no class has: msgspec names it in its error if the class forbids unknown fields.
_HIDDEN: Final = "\0"


def camel(name: str) -> str:
    """``maxSize`` for ``max_size``, as msgspec's ``rename="camel"``.

    >>> camel("max_size"), camel("from_"), camel("maxSize")
    ('maxSize', 'from', 'maxSize')
    """
    bare = name.lstrip("_")
    first, *rest = bare.split("_")
    return name[: len(name) - len(bare)] + first + "".join(p[:1].upper() + p[1:] for p in rest)


STYLES: Final[Mapping[str, Callable[[str], str]]] = {"camel": camel}
"""The values of a kind's ``rename``."""


class Renamed(msgspec.Struct, frozen=True):
    """A class whose fields have other names on the wire."""

    view: Any
    style: str

    def __str__(self) -> str:
        return str(getattr(self.view, "__qualname__", self.view))

    @property
    def reader(self) -> tuple[Any, Callable[[Any, Any], Any]] | None:
        """A type that msgspec reads into the class, and its ``dec_hook``; None: there is none.

        What fails by it has to be read by :meth:`convert`, for the error.

        Raises:
            NameError: an annotation names what does not exist yet.
        """
        return _reader(self.view, self.style)

    def convert(self, value: Any) -> Any:
        """Plain JSON values as an instance of the class.

        Raises:
            msgspec.ValidationError: they do not fit; the path has the names on the wire.
            RecursionError: they are nested too deeply.
        """
        reader = _reader(self.view, self.style)
        if reader is not None:
            try:
                return msgspec.convert(value, reader[0], dec_hook=reader[1])
            except (msgspec.MsgspecError, TypeError, ValueError):
                pass  # read again, for an error with the path
        plan = _plan(self.view, self.style)
        try:
            read = plan.reader
            plain = value if read is None else read(value)
            return msgspec.convert(plain, self.view, dec_hook=decode_hook)
        except RecursionError:
            raise
        except (msgspec.ValidationError, TypeError, ValueError) as error:
            path, problem = path_and_problem(error)
            path, problem = _on_the_wire(plan, path, problem)
            raise msgspec.ValidationError(f"{problem} - at `${path}`") from error


def renamed_view(view: Any, style: str | None) -> Any:
    """The class itself, or with ``style`` its :class:`Renamed`.

    Raises:
        ValueError: two fields have the same name on the wire, or a field is not read as it is
            written.
    """
    if view is None:
        return view
    with contextlib.suppress(NameError):  # of a class defined later: the first use checks it
        _plan(view, style)
    return view if style is None else Renamed(view, style)


def convert(value: Any, view: Any) -> Any:
    """Plain JSON values as an instance of ``view``, a class or a :class:`Renamed`.

    Raises:
        msgspec.ValidationError: they do not fit.
    """
    if isinstance(view, Renamed):
        return view.convert(value)
    return msgspec.convert(value, view, dec_hook=decode_hook)


def problems_of_model(model: Any, style: str | None, value: Any) -> list[tuple[str, str]]:
    """The paths and texts of all errors of a model of pydantic, with the names on the wire."""
    plan = _plan(model, style)
    plain = value if plan.reader is None else plan.reader(value)
    try:
        model.model_validate_json(msgspec.json.encode(plain))
    except ValueError as error:
        return [_on_the_wire(plan, *found) for found in model_errors(error)]
    return []


def known_fields(view: Any, value: Any) -> Any:
    """The part of a plain value, at all depths, that ``view`` knows; the value need not fit it."""
    try:
        plan = _plan(view.view, view.style) if isinstance(view, Renamed) else _plan(view, None)
    except NameError:  # of a class that is not complete yet
        return value
    return _known(plan, value)


def _known(plan: _Plan | None, value: Any) -> Any:
    if plan is None:
        return value
    if isinstance(value, dict) and (plan.fields or plan.values):
        return {
            key: _known(plan.fields[key][1] if key in plan.fields else plan.values, item)
            for key, item in value.items()
            if key in plan.fields or plan.values
        }
    if isinstance(value, list):
        places = (*plan.places, *[plan.items] * (len(value) - len(plan.places)))
        return [_known(place, item) for place, item in zip(places, value, strict=False)]
    return value


@functools.cache
def _reader(view: Any, style: str) -> tuple[Any, Callable[[Any, Any], Any]] | None:
    found = wire_type(view, STYLES[style])
    return None if found is None else (found, functools.partial(_decode_hook, style))


def _decode_hook(style: str, view: Any, value: Any) -> Any:
    """msgspec's ``dec_hook``, with a model's names on the wire."""
    if is_pydantic_model(view) and not isinstance(value, view):
        read = _plan(view, style).reader
        value = value if read is None else read(value)
    return decode_hook(view, value)


# -- Reading ---------------------------------------------------------------------------------


class _Plan:
    """How the keys of one value are translated; the value is of one of several types."""

    __slots__ = ("fields", "forbids", "hidden", "is_needed", "items", "places", "table", "values")

    def __init__(self) -> None:
        self.fields: dict[str, tuple[str, _Plan]] = {}
        self.table: dict[str, tuple[str, Callable[[Any], Any] | None]] = {}
        # Keys of the class that are not on the wire: there they would be unknown fields.
        self.hidden: frozenset[str] = frozenset()
        self.forbids = False
        self.values: _Plan | None = None
        self.items: _Plan | None = None
        self.places: tuple[_Plan, ...] = ()
        self.is_needed = False

    def read(self, value: Any) -> Any:
        """A copy of plain values with the keys that the class knows."""
        if type(value) is dict:
            return self._read_object(value)
        if type(value) is list:
            if self.places:
                readers: list[Any] = [plan.reader or _as_it_is for plan in self.places]
                readers += [_as_it_is] * (len(value) - len(readers))
                return [read(item) for item, read in zip(value, readers, strict=False)]
            items = self.items
            read = None if items is None else items.reader
            return value if read is None else [read(item) for item in value]
        return value

    def _read_object(self, value: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        table = self.table
        for key, item in value.items():
            known = table.get(key)
            if known is None:
                self._add_unknown(found, key, item)
            else:
                name, read = known
                found[name] = item if read is None else read(item)
        return found

    def _add_unknown(self, found: dict[str, Any], key: str, item: Any) -> None:
        if key in self.hidden:
            if self.forbids:
                found[key + _HIDDEN] = item
        else:
            read = None if self.values is None else self.values.reader
            found[key] = item if read is None else read(item)

    @property
    def reader(self) -> Callable[[Any], Any] | None:
        """:meth:`read`; None if values stay as they are."""
        return self.read if self.is_needed else None

    def prepare(self) -> None:
        """Fill the table, once it is known of all plans whether they are needed."""
        self.table = {wire: (name, plan.reader) for wire, (name, plan) in self.fields.items()}

    def children(self) -> list[_Plan]:
        plans = [plan for _, plan in self.fields.values()]
        plans += [plan for plan in (self.values, self.items) if plan is not None]
        return [*plans, *self.places]


def _as_it_is(value: Any) -> Any:
    return value


@functools.cache
def _plan(view: Any, style: str | None) -> _Plan:
    """The plan of a type; without ``style`` all names stay as they are.

    Raises:
        NameError: an annotation names what does not exist yet.
        ValueError: two fields have the same name on the wire.
    """
    plans: dict[Any, _Plan] = {}
    root = _plan_of((view,), None if style is None else STYLES[style], plans)
    is_changing = True
    while is_changing:
        is_changing = False
        for plan in plans.values():
            if not plan.is_needed and (
                plan.hidden or any(child.is_needed for child in plan.children())
            ):
                plan.is_needed = is_changing = True
    for plan in plans.values():
        plan.prepare()
    return root


def _plan_of(
    views: tuple[Any, ...], rename: Callable[[str], str] | None, plans: dict[Any, _Plan]
) -> _Plan:
    atoms = tuple(dict.fromkeys(one for view in views for one in alternatives(view)))
    if atoms in plans:
        return plans[atoms]
    plan = plans[atoms] = _Plan()
    fields: dict[str, tuple[str, list[Any]]] = {}
    owners: dict[str, str] = {}
    own_keys: set[str] = set()
    values: list[Any] = []
    items: list[Any] = []
    places: list[tuple[Any, ...]] = []
    for view in atoms:
        if pair := mapping_types(view):
            values.append(pair[1])
        elif array := array_items(view):
            (places.append(array[0]) if array[1] else items.extend(array[0]))
        elif has_fields(class_of(view)) or is_typed_dict(view):
            listed = class_fields(view)
            if is_array_like(view):
                tag = (str,) if _tag_of(view) else ()
                places.append((*tag, *(field.type for field in listed)))
            elif _is_root_model(view):
                inner = _plan_of(tuple(field.type for field in listed), rename, plans)
                _merge_plan(plan, inner)
            else:
                plan.forbids = plan.forbids or model_extra_name(view) == "forbid"
                _add_fields(view, listed, rename, fields, owners, own_keys)
    if len(places) == 1 and not items:
        plan.places = tuple(_plan_of((one,), rename, plans) for one in places[0])
    else:
        items += [one for row in places for one in row]
    if items:
        plan.items = _plan_of(tuple(items), rename, plans)
    if values:
        plan.values = _plan_of(tuple(values), rename, plans)
    plan.fields.update(
        {
            wire: (name, _plan_of(tuple(found), rename, plans))
            for wire, (name, found) in fields.items()
        }
    )
    plan.hidden = frozenset(own_keys - fields.keys())
    renames = any(wire != name for wire, (name, _) in fields.items())
    plan.is_needed = plan.is_needed or renames
    return plan


def _merge_plan(plan: _Plan, inner: _Plan) -> None:
    # Of a model that is its root's value: it is read as that.
    plan.fields.update(inner.fields)
    plan.hidden |= inner.hidden
    plan.forbids = plan.forbids or inner.forbids
    plan.values, plan.items = plan.values or inner.values, plan.items or inner.items
    plan.places = plan.places or inner.places
    plan.is_needed = plan.is_needed or inner.is_needed


def _add_fields(
    view: Any,
    listed: tuple[ClassField, ...],
    rename: Callable[[str], str] | None,
    fields: dict[str, tuple[str, list[Any]]],
    owners: dict[str, str],
    own_keys: set[str],
) -> None:
    cls = class_of(view)
    for field in listed:
        wire = field.wire_name(rename)
        owner = f"{cls.__qualname__}.{field.name}"
        name, found = fields.setdefault(wire, (field.key, []))
        if name != field.key:
            raise ValueError(
                f"{owners[wire]} and {owner} are both {wire!r} on the wire: rename one, or name it "
                'with Annotated[…, FieldName("…")]'
            )
        if owners.setdefault(wire, owner).partition(".")[0] == owner.partition(".")[0]:
            owners[wire] = owner
        found.append(field.type)
        if wire != field.key:
            own_keys.add(field.key)
    if tag := _tag_of(view):
        own_keys.discard(tag)


def is_array_like(view: Any) -> bool:
    """Whether it is a struct that is an array in JSON."""
    config = getattr(class_of(view), "__struct_config__", None)
    return config is not None and bool(config.array_like)


def _tag_of(view: Any) -> str:
    config = getattr(class_of(view), "__struct_config__", None)
    return "" if config is None or config.tag is None else str(config.tag_field or "type")


def _is_root_model(view: Any) -> bool:
    return is_pydantic_model(class_of(view)) and bool(
        getattr(class_of(view), "__pydantic_root_model__", False)
    )


def _on_the_wire(plan: _Plan, path: str, problem: str) -> tuple[str, str]:
    """The path and the text of an error with the names on the wire."""
    text = ""
    current: _Plan | None = plan
    for step in _STEP.finditer(path):
        name, place = step.group(1), step.group(2)
        if current is None:
            text += step.group()
        elif name is not None:
            wire, current = _wire_of(current, name)
            text += f".{wire}"
        else:
            text += step.group()
            if place == "...":
                current = current.values
            elif current.places:
                places = current.places
                current = places[int(place)] if int(place) < len(places) else None
            else:
                current = current.items

    def replaced(found: re.Match[str]) -> str:
        name = found.group(2) if current is None else _wire_of(current, found.group(2))[0]
        return found.group(1) + name + found.group(3)

    return text, _MISSING.sub(replaced, problem).replace(_HIDDEN, "")


def _wire_of(plan: _Plan, name: str) -> tuple[str, _Plan | None]:
    for wire, (key, child) in plan.fields.items():
        if key == name:
            return wire, child
    return name.replace(_HIDDEN, ""), plan.values


# -- Writing ---------------------------------------------------------------------------------


def to_wire(value: Any, plain: Any, style: str | None, *, nulls: bool) -> Any:
    """``plain``, which was made of ``value``, as it is written; changed in place.

    Args:
        value: typed values.
        plain: dicts and lists of them, with the names that the classes' libraries write and a null
            for each None.
        style: the kind's ``rename``.
        nulls: whether a None of a field whose default is None is written as well. Without it that
            field is absent: to the server, null is a value. Any other None is always written.
    """
    pending = [(value, plain)]
    while pending:
        made, found = pending.pop()
        cls: Any = type(made)
        table = _written(cls, style)
        if isinstance(found, list):
            _push_items(made, found, pending)
        elif not isinstance(found, dict):
            continue
        elif table:
            if dataclasses.is_dataclass(cls):
                _add_defaults(made, found, table)
            extra = getattr(made, "__pydantic_extra__", None) or {}
            items = list(found.items())
            found.clear()
            for key, item in items:
                field = table.get(key)
                if field is None:
                    if hasattr(
                        cls, "__attrs_attrs__"
                    ):  # msgspec writes attributes that are not fields
                        continue
                    found[key] = item
                    if key in extra:
                        pending.append((extra[key], item))
                elif item is not None or nulls or not field.is_none_by_default:
                    found[field.wire] = item
                    if isinstance(item, (dict, list)):
                        pending.append((getattr(made, field.name), item))
        elif isinstance(made, Mapping):
            if len(made) == len(found):
                pending.extend(
                    (one, item)
                    for one, item in zip(made.values(), found.values(), strict=True)
                    if isinstance(item, (dict, list))
                )
        elif _is_root_model(type(made)):
            pending.append((made.root, found))
    return plain


def _add_defaults(made: Any, found: dict[str, Any], table: Mapping[str, _WrittenField]) -> None:
    # msgspec reads a dataclass without storing defaults in the instance, and writes what is there.
    for key, field in table.items():
        value = getattr(made, field.name, msgspec.UNSET)
        if key not in found and value is not msgspec.UNSET:
            plain = msgspec.to_builtins(value, enc_hook=encode_hook)
            found[key] = lists(plain)


def _push_items(made: Any, found: list[Any], pending: list[tuple[Any, Any]]) -> None:
    if isinstance(made, msgspec.Struct):  # array_like: its fields are known by their places
        made = [getattr(made, name) for name in made.__struct_fields__]
        found = found[len(found) - len(made) :]
    elif _is_root_model(type(made)):
        made = made.root
    if isinstance(made, (str, bytes)) or not hasattr(made, "__len__") or len(made) != len(found):
        return
    pairs = list(zip(made, found, strict=True))
    if isinstance(made, (set, frozenset)):  # equal sets have different orders
        pairs.sort(key=lambda pair: str(pair[1]))
        found[:] = [item for _, item in pairs]
    pending.extend((one, item) for one, item in pairs if isinstance(item, (dict, list)))


class _WrittenField(msgspec.Struct, frozen=True):
    name: str
    """The attribute."""
    wire: str
    """The name on the wire."""
    is_none_by_default: bool
    """Whether an absent field is read as None."""


@functools.cache
def _written(cls: Hashable, style: str | None) -> dict[str, _WrittenField]:
    """The fields of a class by the names that its library writes.

    Classes whose values are lists in JSON, and models that are their root's value, have none.
    """
    if not has_fields(cls) or is_named_tuple(cls) or is_array_like(cls) or _is_root_model(cls):
        return {}
    rename = None if style is None else STYLES[style]
    table = {}
    for field in untyped_fields(cls) if rename is None else class_fields(cls):
        wire = field.wire_name(rename)
        table[field.key] = _WrittenField(field.name, wire, field.default is None)
    for name, computed in getattr(cls, "__pydantic_computed_fields__", {}).items():
        wire = computed.alias or (name if rename is None else rename(name))
        # It is never read.
        table.setdefault(computed.alias or name, _WrittenField(name, wire, True))
    return table
