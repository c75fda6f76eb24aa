"""Checks that several built-in kinds share, with the errors of the real server."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from appsdk_operator.apiserver._values.go_text import parse_integer
from appsdk_operator.apiserver._values.names import (
    NameStyle,
    key_problems,
    name_problems,
    value_problems,
)
from appsdk_operator.apiserver._values.quantity import QuantityError, amount
from appsdk_operator.apiserver._values.status import FieldError, Verbatim

Errors = Iterator[FieldError]
Object = Mapping[str, Any]

_CONFIG_KEY: Final = re.compile(r"[-._a-zA-Z0-9]+")
_PERCENT: Final = re.compile(r"[0-9]+%")
_LOOPBACK: Final = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128"))
_LOCAL_MULTICAST: Final = (ipaddress.ip_network("224.0.0.0/24"), ipaddress.ip_network("ff02::/16"))


def internal(**fields: Any) -> Verbatim:
    """A struct as the real server's internal types print it: all fields, capitalized."""
    return Verbatim(json.dumps(fields, separators=(",", ":"), ensure_ascii=False))


def amount_of(text: Any) -> Any:
    """The amount of a quantity, 0 when it is not valid."""
    try:
        return amount(str(text))
    except QuantityError:
        return 0


def not_found(path: str, value: str) -> FieldError:
    """A reference to an unknown name."""
    return FieldError("FieldValueNotFound", path, f"Not found: {json.dumps(value)}")


def label(value: str, path: str) -> Errors:
    """An RFC 1123 label."""
    problems = name_problems(value, NameStyle.LABEL)
    return (FieldError.invalid(path, value, problem) for problem in problems)


def subdomain(value: str, path: str) -> Errors:
    """An RFC 1123 subdomain."""
    problems = name_problems(value, NameStyle.SUBDOMAIN)
    return (FieldError.invalid(path, value, problem) for problem in problems)


def key(value: str, path: str) -> Errors:
    """A qualified name, as in label keys."""
    return (FieldError.invalid(path, value, problem) for problem in key_problems(value))


def labels(values: Object | None, path: str) -> Errors:
    """Labels of an object or a selector."""
    for name, value in (values or {}).items():
        yield from key(name, path)
        for problem in value_problems(value):
            yield FieldError.invalid(path, value, problem)


def not_negative(value: int | None, path: str) -> Errors:
    """A number that is at least 0; None is allowed."""
    if value is not None and value < 0:
        yield FieldError.invalid(path, value, "must be greater than or equal to 0")


def one_of(value: Any, allowed: Iterable[str], path: str) -> Errors:
    """One of the allowed values; empty is allowed."""
    if value and value not in (choices := list(allowed)):
        yield FieldError.not_supported(path, value, choices)


def choice(holder: Object, name: str, allowed: Iterable[str], at: str) -> Errors:
    """A field that is absent or has one of the allowed values."""
    value = holder.get(name)
    if value is not None and value not in (choices := list(allowed)):
        yield FieldError.not_supported(f"{at}.{name}", value, choices)


def required(holder: Object, names: Iterable[str], at: str) -> Errors:
    """Fields that are not empty."""
    return (FieldError.required(f"{at}.{name}") for name in names if not holder.get(name))


def needed(value: Any, path: str, check: Callable[[Any, str], Errors] | None = None) -> Errors:
    """A value that is not empty, and passes a check."""
    if not value:
        yield FieldError.required(path)
    elif check is not None:
        yield from check(value, path)


def given(value: Any, path: str, check: Callable[[Any, str], Errors]) -> Errors:
    """A value that passes a check; empty is allowed."""
    if value:
        yield from check(value, path)


def port_number(value: int, path: str) -> Errors:
    """A port number."""
    if not 1 <= value <= 65535:
        yield FieldError.invalid(path, value, "must be between 1 and 65535, inclusive")


def port_name(value: str, path: str) -> Errors:
    """A port name, in IANA's syntax."""
    if len(value) > 15:
        yield FieldError.invalid(path, value, "must be no more than 15 characters")
    if not re.fullmatch("[-a-z0-9]*", value):
        yield FieldError.invalid(
            path, value, "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"
        )
    if not re.search("[a-z]", value):
        yield FieldError.invalid(path, value, "must contain at least one letter (a-z)")
    if "--" in value:
        yield FieldError.invalid(path, value, "must not contain consecutive hyphens")
    if value.startswith("-") or value.endswith("-"):
        yield FieldError.invalid(path, value, "must not begin or end with a hyphen")


def port_or_name(value: Any, path: str) -> Errors:
    """A port number or a port name."""
    if isinstance(value, str):
        yield from port_name(value, path)
    else:
        yield from port_number(value or 0, path)


def address(value: str, path: str, *, reachable: bool = False) -> Errors:
    """An IP address; ``reachable`` excludes loopback, link-local and the like."""
    try:
        found = ipaddress.ip_address(value)
    except ValueError:
        yield FieldError.invalid(
            path, value, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
        )
        return
    if not reachable:
        return
    if found.is_unspecified:
        yield FieldError.invalid(path, value, f"may not be unspecified ({value})")
    if any(found in loopback for loopback in _LOOPBACK if loopback.version == found.version):
        yield FieldError.invalid(
            path, value, "may not be in the loopback range (127.0.0.0/8, ::1/128)"
        )
    if found.is_link_local:
        yield FieldError.invalid(
            path, value, "may not be in the link-local range (169.254.0.0/16, fe80::/10)"
        )
    if any(found in local for local in _LOCAL_MULTICAST if local.version == found.version):
        yield FieldError.invalid(
            path, value, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"
        )


def network(value: str, path: str) -> Errors:
    """A CIDR."""
    try:
        if "/" not in value:
            raise ValueError(value)
        ipaddress.ip_network(value, strict=False)
    except ValueError:
        yield FieldError.invalid(
            path, value, "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
        )


def profile(holder: Object, name: str, shown: str, at: str) -> Errors:
    """A security profile of a pod or a container."""
    given, at = holder.get(name), f"{at}.{name}"
    if given is None:
        return
    kind, local = given.get("type", ""), given.get("localhostProfile")
    if not kind:
        yield FieldError.required(f"{at}.type", f"type is required when {name} is set")
    yield from one_of(kind, ("Localhost", "RuntimeDefault", "Unconfined"), f"{at}.type")
    if kind == "Localhost" and local is None:
        detail = f"must be set when {shown} type is Localhost"
        yield FieldError.required(f"{at}.localhostProfile", detail)
    elif kind == "Localhost":
        yield from relative_path(local, f"{at}.localhostProfile")
    elif local is not None:
        value = internal(Type=kind, LocalhostProfile=local)
        detail = f"can only be set when {shown} type is Localhost"
        yield FieldError.invalid(f"{at}.localhostProfile", value, detail)


def relative_path(value: str, path: str) -> Errors:
    """A relative path."""
    if value.startswith("/"):
        yield FieldError.invalid(path, value, "must be a relative path")
    if ".." in value.split("/"):
        yield FieldError.invalid(path, value, "must not contain '..'")


def domain_path(value: str, path: str) -> Errors:
    """A name with the domain of its owner before it."""
    if not re.fullmatch(r"[^/]+/.+", value):
        detail = 'must be a domain-prefixed path (such as "acme.io/foo")'
        yield FieldError.invalid(path, value, detail)
    else:
        yield from subdomain(value.partition("/")[0], path)


def config_key(value: str, path: str) -> Errors:
    """A key of a config map or a secret."""
    if len(value) > 253:
        yield FieldError.invalid(path, value, "must be no more than 253 characters")
    if not _CONFIG_KEY.fullmatch(value):
        yield FieldError.invalid(
            path,
            value,
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. "
            "'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is "
            "'[-._a-zA-Z0-9]+')",
        )
    if value in (".", ".."):
        yield FieldError.invalid(path, value, f"must not be '{value}'")
    elif value.startswith(".."):
        yield FieldError.invalid(path, value, "must not start with '..'")


def number_or_percentage(value: Any, path: str, *, up_to_all: bool = False) -> Errors:
    """A number that is at least 0, or a percentage; ``up_to_all`` limits it to 100 %."""
    if isinstance(value, int):
        yield from not_negative(value, path)
    elif isinstance(value, str) and not _PERCENT.fullmatch(value):
        yield FieldError.invalid(
            path,
            value,
            "a valid percent string must be a numeric string followed by an ending '%' (e.g. "
            "'1%',  or '93%', regex used for validation is '[0-9]+%')",
        )
    elif isinstance(value, str) and up_to_all and (parse_integer(value[:-1]) or 0) > 100:
        yield FieldError.invalid(path, value, "must not be greater than 100%")


def unchanged(new: Any, old: Any, path: str) -> Errors:
    """An immutable field."""
    if new != old:
        yield FieldError.invalid(path, new, "field is immutable")


# -- selectors -------------------------------------------------------------------------------


def selector(value: Object | None, path: str) -> Errors:
    """A label selector."""
    value = value or {}
    yield from labels(value.get("matchLabels"), f"{path}.matchLabels")
    for index, requirement in enumerate(value.get("matchExpressions") or ()):
        at = f"{path}.matchExpressions[{index}]"
        yield from expression(requirement, at)
        for number, text in enumerate(requirement.get("values") or ()):
            for problem in value_problems(text):
                yield FieldError.invalid(f"{at}.values[{number}]", text, problem)


def expression(requirement: Object, at: str, *, orders: bool = False) -> Errors:
    """Operator, number of values and key of a requirement; ``orders`` allows ``Gt`` and ``Lt``."""
    operator, values = requirement.get("operator", ""), requirement.get("values") or ()
    if operator in ("In", "NotIn"):
        detail = "must be specified when `operator` is 'In' or 'NotIn'"
        if not values:
            yield FieldError.required(f"{at}.values", detail)
    elif operator in ("Exists", "DoesNotExist"):
        detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        if values:
            yield FieldError.forbidden(f"{at}.values", detail)
    elif orders and operator in ("Gt", "Lt"):
        detail = "must be specified single value when `operator` is 'Lt' or 'Gt'"
        if len(values) != 1:
            yield FieldError.required(f"{at}.values", detail)
    else:
        yield FieldError.invalid(f"{at}.operator", operator, "not a valid selector operator")
    yield from key(requirement.get("key", ""), f"{at}.key")


def is_invalid_selector(value: Object | None) -> bool:
    """Whether a selector is not valid."""
    return value is not None and any(True for _ in selector(value, ""))


def selects(value: Object | None, found: Object | None) -> bool:
    """Whether a valid selector matches labels; a missing one matches nothing."""
    if value is None:
        return False
    found = found or {}
    if any(found.get(name) != text for name, text in (value.get("matchLabels") or {}).items()):
        return False
    for requirement in value.get("matchExpressions") or ():
        name, values = requirement.get("key"), requirement.get("values") or ()
        fits = {
            "In": name in found and found[name] in values,
            "NotIn": name not in found or found[name] not in values,
            "Exists": name in found,
            "DoesNotExist": name not in found,
        }
        if not fits.get(requirement.get("operator", ""), False):
            return False
    return True
