"""Types that msgspec reads by the names on the wire, into instances of the classes themselves.

msgspec reads a field by the name of its attribute. So there is a subclass of each renamed class,
made once, with the same layout and its attributes under their names on the wire. What msgspec has
read becomes an instance of the class itself before anybody sees it. The translation of plain values
costs several times that; it is for classes that can have no such subclass, and for errors.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import types
from collections.abc import Callable
from typing import Annotated, Any, Final, Generic, Protocol, Union, get_args, get_origin

import attrs
import msgspec

from appsdk_operator.resource._typed.class_fields import (
    ClassField,
    array_items,
    class_fields,
    class_of,
    is_named_tuple,
    is_typed_dict,
    mapping_types,
    marked,
)
from appsdk_operator.resource._typed.spec_types import has_fields, is_pydantic_model

_set_class: Final = object.__dict__["__class__"].__set__
_CLASSES_OF_CLASSES: Final = (type, type(msgspec.Struct), type(Protocol))


class _NoSuchTypeError(Exception):
    """A type without one that has other names."""


def wire_type(view: Any, rename: Callable[[str], str]) -> Any:
    """A type that msgspec reads by the names on the wire into values of ``view``.

    Models of pydantic stay themselves: the caller's ``dec_hook`` reads them.

    Args:
        view: a type.
        rename: makes the name on the wire of a field that has no name of its own.

    Returns:
        ``view`` itself if no name in it differs; None if there is no such type.

    Raises:
        NameError: an annotation names what does not exist yet.
    """
    try:
        return _Types(rename).of(view)
    except (_NoSuchTypeError, TypeError, ValueError, AttributeError):
        return None


class _Types:
    def __init__(self, rename: Callable[[str], str]) -> None:
        self._rename = rename
        self._made: dict[Any, Any] = {}
        self._open: list[Any] = []

    def of(self, view: Any) -> Any:
        bare, markers = marked(view)
        made = self._bare(bare)
        if made is bare:
            return view
        limits = tuple(marker for marker in markers if isinstance(marker, msgspec.Meta))
        return Annotated[(made, *limits)] if limits else made

    def _bare(self, view: Any) -> Any:
        origin, args = get_origin(view), get_args(view)
        if origin in (Union, types.UnionType):
            members = self._all(args)
            return view if members is None else Union[members]  # noqa: UP007 - of a tuple
        if is_typed_dict(view) or is_named_tuple(class_of(view)):
            if self._all(tuple(field.type for field in class_fields(view))) is not None:
                raise _NoSuchTypeError
            return view
        if has_fields(class_of(view)):
            return view if is_pydantic_model(class_of(view)) else self._class(view)
        if args and (mapping_types(view) or array_items(view)):
            inner = self._all(args)
            return view if inner is None else class_of(view)[inner]
        return view

    def _all(self, views: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """The types of several; None if each is itself."""
        found = tuple(one if one is Ellipsis else self.of(one) for one in views)
        return None if all(a is b for a, b in zip(found, views, strict=True)) else found

    def _class(self, view: Any) -> Any:
        if view in self._made:
            return self._made[view]
        if view in self._open:
            raise _NoSuchTypeError  # a class that contains itself
        self._open.append(view)
        target = class_of(view)
        fields = class_fields(view)
        kinds = self._all(tuple(field.type for field in fields))
        names = tuple(field.wire_name(self._rename) for field in fields)
        for name in names:
            # Of classes that are not Structs, msgspec finds a name beyond ASCII only if its UTF-8
            # was asked for before.
            msgspec.json.encode(name)
        if kinds is None and all(n == f.key for n, f in zip(names, fields, strict=True)):
            made = view
        else:
            _check_can_have_subclass(target)
            kinds = kinds or tuple(field.type for field in fields)
            listed = [_Field(*one) for one in zip(fields, names, kinds, strict=True)]
            if attrs.has(target):
                made = _of_attrs(target, listed)
            elif dataclasses.is_dataclass(target):
                made = _of_dataclass(target, listed)
            else:
                made = _of_struct(target, listed)
        self._open.pop()
        self._made[view] = made
        return made


class _Field(msgspec.Struct, frozen=True):
    own: ClassField
    wire: str
    type: Any


def _check_can_have_subclass(target: type) -> None:
    """Refuse classes that would notice a subclass, or whose fields have no names in JSON."""
    config = getattr(target, "__struct_config__", None)
    hooks = [one for one in target.__mro__ if "__init_subclass__" in one.__dict__]
    if (
        type(target) not in _CLASSES_OF_CLASSES
        or any(one not in (object, Generic, Protocol) for one in hooks)
        or hasattr(target, "__attrs_pre_init__")
        or (config is not None and config.array_like)
    ):
        raise _NoSuchTypeError


def _of_attrs(target: Any, fields: list[_Field]) -> Any:
    own = attrs.fields(target)
    checked = [one for one in own if one.validator is not None]
    after = getattr(target, "__attrs_post_init__", None)
    namespace, moved = _attributes(target, fields)
    namespace["__attrs_attrs__"] = tuple(
        one.evolve(name=field.wire, validator=None) for one, field in zip(own, fields, strict=True)
    )

    def validate(made: Any) -> None:
        for one in checked:
            one.validator(made, one, getattr(made, one.name))
        if after is not None:
            after(made)

    namespace["__attrs_post_init__"] = _becoming(target, moved, validate if checked else after)
    return type(target)(target.__name__, (target,), namespace)


def _of_dataclass(target: Any, fields: list[_Field]) -> Any:
    namespace, moved = _attributes(target, fields)
    listed = {}
    for field in fields:
        one = listed[field.wire] = copy.copy(target.__dataclass_fields__[field.own.name])
        one.name = field.wire
    namespace["__dataclass_fields__"] = listed
    after = getattr(target, "__post_init__", None)
    namespace["__post_init__"] = _becoming(target, moved, after)
    return type(target)(target.__name__, (target,), namespace)


def _attributes(target: Any, fields: list[_Field]) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """The attributes of a subclass, and of values in ``__dict__`` the names there and their own."""
    namespace: dict[str, Any] = {
        "__slots__": (),
        "__module__": target.__module__,
        "__qualname__": target.__qualname__,
        "__annotations__": {field.wire: field.type for field in fields},
    }
    moved: list[tuple[str, str]] = []
    for field in fields:
        if field.wire == field.own.name:
            continue
        slot = inspect.getattr_static(target, field.own.name, None)
        if isinstance(slot, types.MemberDescriptorType):
            namespace[field.wire] = slot
        else:
            moved.append((field.wire, field.own.name))
    if any(field.wire.startswith("__") and field.wire.endswith("__") for field in fields):
        raise _NoSuchTypeError  # Python has a meaning for it
    owned = {field.own.name for field in fields}
    if any(wire in owned or hasattr(target, wire) for wire, _ in moved):
        raise _NoSuchTypeError  # which one is meant is unknown
    return namespace, moved


def _of_struct(target: Any, fields: list[_Field]) -> Any:
    listed: list[Any] = []
    for field in fields:
        one = field.own.source
        if one.required:
            listed.append((one.name, field.type))
        else:
            field_of: Any = msgspec.field  # NODEFAULT is a default of either, but not for checkers
            default = field_of(default=one.default, default_factory=one.default_factory)
            listed.append((one.name, field.type, default))
    config = target.__struct_config__
    after = getattr(target, "__post_init__", None)
    return msgspec.defstruct(
        target.__name__,
        listed,
        bases=(target,),
        module=target.__module__,
        namespace={"__post_init__": _becoming(target, [], after)},
        kw_only=True,
        rename={field.own.name: field.wire for field in fields},
        tag=config.tag,
        tag_field=config.tag_field,
    )


def _becoming(
    target: type, moved: list[tuple[str, str]], after: Callable[[Any], Any] | None
) -> Callable[[Any], None]:
    """What makes an instance of a subclass one of the class itself, and then calls ``after``."""
    set_class = _set_class
    if moved:

        def become(made: Any) -> None:
            values = made.__dict__
            for wire, name in moved:
                values[name] = values.pop(wire)
            set_class(made, target)
            if after is not None:
                after(made)

    elif after is not None:

        def become(made: Any) -> None:
            set_class(made, target)
            after(made)

    else:

        def become(made: Any) -> None:
            set_class(made, target)

    return become
