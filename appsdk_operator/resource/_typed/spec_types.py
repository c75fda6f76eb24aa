"""The classes that spec and status are decoded into, and the hooks that msgspec needs for them.

msgspec knows attrs classes, dataclasses and its own structs. The hooks add pydantic's models, which
are recognised without an import of pydantic.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from types import TracebackType
from typing import Any, TypeGuard, get_args, get_origin

import attrs
import msgspec

from appsdk_operator._lazy import lazy_pattern


def is_pydantic_model(view: Any) -> bool:
    """Whether ``view`` is a model of pydantic 2."""
    return hasattr(view, "__pydantic_validator__") and hasattr(view, "model_validate_json")


def has_fields(view: Any) -> TypeGuard[type]:
    """Whether ``view`` is an attrs class, dataclass, msgspec struct or pydantic model."""
    return isinstance(view, type) and (
        attrs.has(view)
        or hasattr(view, "__dataclass_fields__")  # as dataclasses.is_dataclass
        or issubclass(view, msgspec.Struct)
        or is_pydantic_model(view)
    )


def check_spec_type(what: str, view: Any) -> None:
    """Refuse a class that is mutable, or that objects cannot be decoded into.

    Raises:
        ValueError: the class cannot be used; the text says what to use.
        TypeError: an instance was given in place of the class. The text does not show it.
    """
    if has_fields(type(view)):
        own = type(view).__qualname__
        raise TypeError(f"{what}={own}(…) is an instance: give its class, {what}={own}")
    name = getattr(view, "__qualname__", view)
    if hasattr(view, "__pydantic_validator__") and not is_pydantic_model(view):
        raise ValueError(
            f"{what} type {name} is a dataclass of pydantic, whose validation would not run: make "
            f"it a model, class {name}(pydantic.BaseModel, frozen=True)"
        )
    if not is_pydantic_model(view) and hasattr(view, "parse_obj") and hasattr(view, "__fields__"):
        raise ValueError(
            f"{what} type {name} is a model of pydantic 1: make it one of pydantic 2, "
            f"class {name}(pydantic.BaseModel, frozen=True), with pydantic>=2"
        )
    if not _is_read_only(view):
        raise ValueError(
            f"{what} type {name} can be changed after it was made, but objects are shared between "
            "threads: declare it with @attrs.frozen, @dataclass(frozen=True), "
            "msgspec.Struct(frozen=True) or pydantic.BaseModel(frozen=True)"
        )
    if not is_pydantic_model(view) and _has_no_fields(view):
        raise ValueError(
            f"{what} type {name} has no fields that JSON could be read into: declare it with "
            "@attrs.frozen, @dataclass(frozen=True), as a msgspec.Struct with frozen=True or a "
            "pydantic.BaseModel with frozen=True"
        )


def _is_read_only(view: Any) -> bool:
    if attrs.has(view):
        return _refuses_assignment(view)
    params = getattr(view, "__dataclass_params__", None)
    if params is not None:
        return bool(params.frozen)
    config = getattr(view, "__struct_config__", None)
    if config is not None:
        return bool(config.frozen)
    if is_pydantic_model(view):
        return bool(view.model_config.get("frozen"))
    return True


def _refuses_assignment(view: Any) -> bool:
    # Before version 25 attrs has no flag for it; a frozen class refuses any name.
    try:
        view.__setattr__(object.__new__(view), "any", None)
    except attrs.exceptions.FrozenInstanceError:
        return True
    except Exception:  # the setter exists and failed
        return False
    return False


def _has_no_fields(view: Any) -> bool:
    if not isinstance(view, type) or view.__module__ == "builtins":
        return False
    import msgspec.inspect

    try:
        return isinstance(msgspec.inspect.type_info(view), msgspec.inspect.CustomType)
    except Exception:  # for example a name that is defined later: decoding checks it
        return False


def decode_hook(view: Any, value: Any) -> Any:
    """msgspec's ``dec_hook``: plain JSON values as an instance of a pydantic model."""
    if isinstance(value, view):
        return value
    if not is_pydantic_model(view):
        raise TypeError(f"Expected `{view.__qualname__}`, got `{type(value).__name__}`")
    try:
        # From JSON, where a strict model accepts text for a time and a list for a tuple.
        return view.model_validate_json(msgspec.json.encode(value))
    except ValueError as error:
        raise ValueError(_first_problem(error)) from error


def encode_hook(value: Any) -> Any:
    """msgspec's ``enc_hook``: an instance of a pydantic model as plain JSON values."""
    if is_pydantic_model(type(value)):
        return _dumped(value, None)
    raise TypeError(f"Encoding objects of type {type(value).__qualname__} is unsupported")


def model_default(model: Any, name: str, default: Any) -> Any:
    """The default of a model's field as plain JSON values, as the model writes it."""
    values = {**dict.fromkeys(model.model_fields), name: default}
    # Its own parameter is called "cls", too.
    made = model.model_construct(**{key: values[key] for key in values if key != "cls"})
    vars(made).update(values)
    return next(iter(_dumped(made, {name}).values()))


def _dumped(value: Any, include: set[str] | None) -> Any:
    if field := _masked_field(value.__class__):
        raise ValueError(
            f"pydantic writes {field} as '**********', which would be stored: give it a "
            "@field_serializer that returns get_secret_value(), or make it a str"
        )
    return value.model_dump(mode="json", by_alias=True, include=include)


@functools.cache
def _masked_field(model: Any) -> str:
    """A field of a model, or of one within it, that pydantic masks when it writes; "": none."""
    pending, seen = [model], {model}
    while pending:
        cls = pending.pop()
        decorators = cls.__pydantic_decorators__
        own = {name for one in decorators.field_serializers.values() for name in one.info.fields}
        for name, field in cls.model_fields.items():
            types = [field.annotation]
            if decorators.model_serializers or {name, "*"} & own or _has_serializer(field.metadata):
                continue
            while types:
                view = types.pop()
                if hasattr(get_origin(view) or view, "get_secret_value"):
                    return f"{cls.__qualname__}.{name}"
                if is_pydantic_model(view) and view not in seen:
                    seen.add(view)
                    pending.append(view)
                if not _has_serializer(get_args(view)):  # those of Annotated
                    types.extend(get_args(view))
    return ""


def _has_serializer(markers: Iterable[Any]) -> bool:
    return any(type(one).__name__ in ("PlainSerializer", "WrapSerializer") for one in markers)


def _first_problem(error: ValueError) -> str:
    """The first of pydantic's errors in msgspec's form: "… - at `$.size`"."""
    (place, text), *others = model_errors(error)
    more = f" (and {len(others)} more)" if others else ""
    return f"{text}{more} - at `${place}`"


def model_errors(error: ValueError) -> list[tuple[str, str]]:
    """The paths and texts of pydantic's errors."""
    found = error.errors(include_url=False, include_input=False)  # type: ignore[attr-defined]
    return [
        ("".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in one["loc"]), one["msg"])
        for one in found
    ]


_LOCATION = lazy_pattern(r" - at (`key` in )?`\$([^`]*)`")


def path_and_problem(error: Exception) -> tuple[str, str]:
    """The JSON path and the text of an error of msgspec, a validator or a model.

    msgspec's errors read "Expected `int`, got `str` - at `$.replicas`".
    """
    text, cause = str(error), error.__cause__
    if cause is not None and any(isinstance(one, attrs.Attribute) for one in cause.args):
        # Validators of attrs give their text, and after it the attribute, options and the value.
        text = text.replace(str(cause), str(cause.args[0]))
    # The innermost path comes first: that in a model, then that of the model.
    path = "".join(place for _, place in reversed(_LOCATION.findall(text)))
    problem = _LOCATION.sub(lambda found: " as a key" if found.group(1) else "", text)
    return path + _field_of_validator(error), problem


def _field_of_validator(error: Exception) -> str:
    """The field whose attrs validator failed; msgspec names the object only."""
    cause = error.__cause__
    trace: TracebackType | None = None if cause is None else cause.__traceback__
    while trace is not None:
        for value in trace.tb_frame.f_locals.values():
            if isinstance(value, attrs.Attribute):
                return f".{value.name}"
        trace = trace.tb_next
    return ""
