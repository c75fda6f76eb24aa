"""The fields of the classes that spec and status are decoded into, with their types resolved.

One description for attrs classes, dataclasses, msgspec structs, pydantic models, typed dicts and
named tuples.
"""

from __future__ import annotations

import collections.abc as abc
import dataclasses
import inspect
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, Literal, TypeVar, Union, get_args, get_origin

import attrs
import msgspec

from appsdk_operator.resource._typed.spec_types import has_fields, is_pydantic_model

NOTHING: Final = attrs.NOTHING
"""The default of a field that has none."""

_WRAPPERS: Final = frozenset({"Final", "Required", "NotRequired", "ReadOnly", "ClassVar"})
_ARRAYS: Final = (
    list,
    set,
    frozenset,
    tuple,
    abc.Sequence,
    abc.MutableSequence,
    abc.Collection,
    abc.Set,
    abc.MutableSet,
    abc.Iterable,
)


@attrs.frozen
class FieldName:
    """The name of a field on the wire, for a kind with ``rename``.

    Give it in ``Annotated``; the name is used unchanged:
    ``pod_ip: Annotated[str, FieldName("podIP")]``. The names of msgspec (``msgspec.field(name=…)``)
    and the aliases of pydantic do the same.
    """

    name: str = attrs.field(validator=attrs.validators.instance_of(str))
    """The name in JSON."""


class ClassField(msgspec.Struct, frozen=True, eq=False):
    """One field of a class."""

    name: str
    """The attribute."""
    key: str
    """The name that the class's own library reads and writes."""
    is_named: bool
    """Whether the class gives that name itself, so that no other replaces it."""
    type: Any
    """The type, with ``Annotated`` as written and type variables replaced."""
    default: Any = NOTHING
    """The default, or :data:`NOTHING`."""
    factory: Any = None
    """A function of no arguments that makes the default; None: there is none."""
    description: str = ""
    """The description that the library has; that of a docstring is not here."""
    source: Any = None
    """The library's own description of the field."""

    @property
    def has_default(self) -> bool:
        """Whether the field may be absent."""
        return self.default is not NOTHING or self.factory is not None

    def wire_name(self, rename: Any) -> str:
        """The name in JSON; ``rename`` makes it of a name that the class does not give itself."""
        if rename is None:
            return self.key
        for marker in marked(self.type)[1]:
            if isinstance(marker, FieldName):
                return marker.name
        return self.key if self.is_named else str(rename(self.key))


def marked(view: Any) -> tuple[Any, tuple[Any, ...]]:
    """A type without ``Annotated``, ``Final``, aliases and ``NewType``, and its annotations.

    The outer annotations come last.
    """
    markers: tuple[Any, ...] = ()
    while True:
        origin = get_origin(view)
        if origin is Annotated:
            markers = (*view.__metadata__, *markers)
            view = view.__origin__
        elif getattr(origin, "_name", None) in _WRAPPERS:
            view = get_args(view)[0]
        elif isinstance(view, typing.NewType):
            view = view.__supertype__
        elif type(view).__name__ == "TypeAliasType":
            view = view.__value__
        elif type(origin).__name__ == "TypeAliasType":
            view = _substituted(
                origin.__value__,
                dict(zip(origin.__type_params__, get_args(view), strict=False)),
            )
        elif isinstance(view, TypeVar):
            bound = view.__bound__
            view = Union[view.__constraints__] if view.__constraints__ else (bound or Any)  # noqa: UP007
        else:
            return view, markers


def alternatives(view: Any) -> tuple[Any, ...]:
    """The members of a union, those of nested ones included; a type that is not one, itself.

    Their annotations are left out.
    """
    view = marked(view)[0]
    if get_origin(view) in (Union, types.UnionType):
        return tuple(dict.fromkeys(one for arg in get_args(view) for one in alternatives(arg)))
    return (view,)


def class_of(view: Any) -> Any:
    """The class of a type: ``list`` for ``list[int]``."""
    return get_origin(view) or view


def mapping_types(view: Any) -> tuple[Any, Any] | None:
    """The types of keys and values of a mapping type; None for other types."""
    origin = class_of(view)
    if not isinstance(origin, type) or not issubclass(origin, Mapping) or is_typed_dict(view):
        return None
    args = get_args(view)
    return (args[0], args[1]) if len(args) == 2 else (Any, Any)


def array_items(view: Any) -> tuple[tuple[Any, ...], bool] | None:
    """The types of the items of a list, set or tuple type, and whether each is for one place.

    None for types that are not arrays in JSON.
    """
    origin = class_of(view)
    if is_named_tuple(origin):
        return tuple(field.type for field in class_fields(view)), True
    if origin not in _ARRAYS:
        return None
    args = get_args(view)
    if origin is tuple and args and args[-1] is not Ellipsis:
        return args, True
    return (args[0] if args else Any,), False


def is_typed_dict(view: Any) -> bool:
    """Whether it is a ``TypedDict``."""
    return typing.is_typeddict(class_of(view))


def is_named_tuple(view: Any) -> bool:
    """Whether it is a named tuple."""
    return isinstance(view, type) and issubclass(view, tuple) and hasattr(view, "_fields")


def class_fields(view: Any) -> tuple[ClassField, ...]:
    """The fields of a class, in order; ``view`` may be generic with its arguments.

    Raises:
        ValueError: a field is not read as it is written.
        NameError: an annotation names what does not exist, or not yet.
    """
    cls = class_of(view)
    if not isinstance(cls, type):
        return ()
    if is_pydantic_model(cls):
        return tuple(_model_fields(cls))
    if not (has_fields(cls) or is_typed_dict(cls) or is_named_tuple(cls)):
        return ()
    return _fields_of(cls, _types_of(cls, get_args(view)))


def untyped_fields(cls: Any) -> tuple[ClassField, ...]:
    """The fields of a class, the types of most of them as Any, so that no annotation is read.

    Raises:
        ValueError: a field is not read as it is written.
    """
    if is_pydantic_model(cls):
        return tuple(_model_fields(cls))
    return _fields_of(cls, {}) if has_fields(cls) else ()


def _fields_of(cls: Any, types_of: Mapping[str, Any]) -> tuple[ClassField, ...]:
    if attrs.has(cls):
        return tuple(_attrs_fields(cls, types_of))
    if dataclasses.is_dataclass(cls):
        return tuple(_dataclass_fields(cls, types_of))
    if issubclass(cls, msgspec.Struct):
        return tuple(_struct_fields(cls, types_of))
    if is_typed_dict(cls):
        return tuple(
            ClassField(name, name, True, found, NOTHING if _is_required(cls, name, found) else None)
            for name, found in types_of.items()
        )
    defaults = cls._field_defaults
    return tuple(
        ClassField(name, name, True, types_of.get(name, Any), defaults.get(name, NOTHING))
        for name in cls._fields
    )


def _is_required(cls: Any, name: str, view: Any) -> bool:
    """Whether a key of a ``TypedDict`` may not be absent."""
    while True:
        origin = get_origin(view)
        wrapper = getattr(origin, "_name", None)
        if wrapper in ("Required", "NotRequired"):
            return bool(wrapper == "Required")
        if origin is Annotated:
            view = view.__origin__
        elif wrapper in _WRAPPERS:
            view = get_args(view)[0]
        else:  # which does not know of annotations that are texts
            return name in cls.__required_keys__


def _types_of(cls: type, args: tuple[Any, ...]) -> dict[str, Any]:
    """The types of the attributes of a class and its bases, with type variables replaced."""
    replaced: dict[type, dict[Any, Any]] = {cls: _arguments(cls, args)}
    found: dict[str, Any] = {}
    hints = typing.get_type_hints(cls, include_extras=True)
    for base in cls.__mro__:
        known = replaced.get(base, {})
        for parent in getattr(base, "__orig_bases__", ()):
            origin = get_origin(parent)
            if isinstance(origin, type) and origin not in replaced:
                given = tuple(_substituted(arg, known) for arg in get_args(parent))
                replaced[origin] = _arguments(origin, given)
        for name in inspect.get_annotations(base):
            if name in hints and name not in found:
                found[name] = _substituted(hints[name], known)
    # A class without own annotations of some names, as Python 3.14 keeps them elsewhere.
    return {name: found.get(name, hint) for name, hint in hints.items()}


def _arguments(cls: Any, args: tuple[Any, ...]) -> dict[Any, Any]:
    return dict(zip(getattr(cls, "__parameters__", ()), args, strict=False))


def _substituted(view: Any, known: Mapping[Any, Any]) -> Any:
    if not known:
        return view
    if isinstance(view, TypeVar):
        return known.get(view, view)
    parameters = getattr(view, "__parameters__", ())
    if not parameters or isinstance(view, type):
        return view
    return view[tuple(known.get(parameter, parameter) for parameter in parameters)]


def _attrs_fields(cls: Any, types_of: Mapping[str, Any]) -> Iterable[ClassField]:
    for found in attrs.fields(cls):
        default, factory = found.default, None
        if isinstance(default, attrs.Factory):  # type: ignore[arg-type]
            factory = None if default.takes_self else default.factory
            default = NOTHING if factory is not None else msgspec.UNSET
        name = found.name
        if name.startswith("_") and found.init:  # msgspec reads and does not write it
            raise _unlike(cls, name, f"is not written: call it {name.lstrip('_')}")
        view = types_of.get(name, found.type if isinstance(found.type, type) else Any)
        yield ClassField(name, name, False, view, default, factory, "", found)


def _dataclass_fields(cls: Any, types_of: Mapping[str, Any]) -> Iterable[ClassField]:
    for found in dataclasses.fields(cls):
        default = NOTHING if found.default is dataclasses.MISSING else found.default
        factory = None if found.default_factory is dataclasses.MISSING else found.default_factory
        name, view = found.name, types_of.get(found.name, Any)
        doc = str(getattr(found, "doc", None) or "")
        yield ClassField(name, name, False, view, default, factory, doc, found)


def _struct_fields(cls: Any, types_of: Mapping[str, Any]) -> Iterable[ClassField]:
    for found in msgspec.structs.fields(cls):
        default = NOTHING if found.default is msgspec.NODEFAULT else found.default
        factory = None if found.default_factory is msgspec.NODEFAULT else found.default_factory
        name, key = found.name, found.encode_name
        view = types_of.get(name, Any)
        yield ClassField(name, key, key != name, view, default, factory, "", found)


def _model_fields(cls: Any) -> Iterable[ClassField]:
    writes_itself = bool(cls.__pydantic_decorators__.model_serializers)
    for name, found in cls.model_fields.items():
        view = found.annotation
        for marker in found.metadata:
            view = Annotated[view, marker]
        written = found.serialization_alias or found.alias or name
        read = _read_names(cls, name, found)
        if written not in read and not writes_itself:
            names = " or ".join(map(repr, sorted(read))) or "a path"
            problem = f"is written as {written!r} and read as {names}: give it one alias"
            raise _unlike(cls, name, problem)
        default: Any = NOTHING
        if not found.is_required() and found.default_factory is None:
            default = found.default
        yield ClassField(
            name,
            written,
            (found.validation_alias or found.serialization_alias or found.alias) is not None,
            view,
            default,
            found.default_factory,
            found.description or "",
            found,
        )


def _read_names(cls: Any, name: str, found: Any) -> set[str]:
    """The keys under which a model finds the value of a field."""
    config = cls.model_config
    alias = found.validation_alias or found.alias
    by_name = config.get("populate_by_name") or config.get("validate_by_name")
    names = {name} if alias is None or by_name else set()
    if config.get("validate_by_alias", True):
        for one in getattr(alias, "choices", [alias]):
            path = getattr(one, "path", [one])
            names |= {path[0]} if len(path) == 1 and isinstance(path[0], str) else set()
    return names


def _unlike(cls: Any, name: str, problem: str) -> ValueError:
    return ValueError(f"{cls.__qualname__}.{name} {problem}; what is written would not be read")


def model_extra_name(view: Any) -> str:
    """``allow``, ``ignore`` or ``forbid``: what a class does with fields that it does not know."""
    cls = class_of(view)
    if is_pydantic_model(cls):
        return str(cls.model_config.get("extra") or "ignore")
    config = getattr(cls, "__struct_config__", None)
    return "forbid" if config is not None and config.forbid_unknown_fields else "ignore"


def literal_values(view: Any) -> tuple[Any, ...] | None:
    """The values of a ``Literal``; None for other types."""
    return get_args(view) if get_origin(view) is Literal else None
