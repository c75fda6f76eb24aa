"""What a spec or status that does not fit its class means for a request, and who is at fault."""

from __future__ import annotations

import re
from typing import Any, Final

from appsdk_operator.client import Invalid
from appsdk_operator.resource import (
    DecodeError,
    FieldError,
    FieldPath,
    Object,
    PartError,
    WrongKindError,
    every_part_error,
)
from appsdk_operator.webhooks._admission.requests import AdmissionRequest
from appsdk_operator.webhooks._admission.responses import AdmissionResponse

_WRONG_TYPE: Final = re.compile(r"Expected `([^`]+)`, got `([^`]+)`(?: \(and \d+ more\))?")
_MISSING: Final = re.compile(r"Object missing required field `([^`]+)`")
_MISSING_IN_MODEL: Final = re.compile(r"Field required(?: \(and \d+ more\))?")
_WRONG_TYPE_IN_MODEL: Final = "Input should be a valid "
_JSON_NAMES: Final = {"int": "integer", "str": "string", "float": "number", "bool": "boolean"}


def field_error(error: PartError) -> FieldError:
    """The error of a field, in the words of Kubernetes. It shows no value, as it may be secret.

    A type is named in place of the value, as kube-apiserver does for those of a schema.
    """
    path, problem = FieldPath(error.path), error.problem
    if found := _MISSING.fullmatch(problem):
        return path[found[1]].required()
    if _MISSING_IN_MODEL.fullmatch(problem):
        return path.required()
    if found := _WRONG_TYPE.fullmatch(problem):
        expected = " or ".join(_JSON_NAMES.get(name, name) for name in found[1].split(" | "))
        return path.type_invalid(_JSON_NAMES.get(found[2], found[2]), f"must be of type {expected}")
    reason = "Type" if problem.startswith(_WRONG_TYPE_IN_MODEL) else ""
    return FieldError(f"FieldValue{reason}Invalid", error.path, f"Invalid value: {problem}")


def _found_in(obj: Object | None, error: PartError) -> PartError | None:
    """The error of reading the same part of ``obj``; None if it can be read."""
    if obj is None or obj.kind != error.kind:
        return None
    try:
        getattr(obj.viewed_as(error.kind), error.part)
    except PartError as found:
        return found
    return None


def is_of_request(error: DecodeError, request: AdmissionRequest) -> bool:
    """Whether it is an object of the request that cannot be decoded, or has another kind.

    Anything else that a handler decodes is its own affair.
    """
    if isinstance(error, WrongKindError):
        return True
    for name in ("kind", "object", "old_object"):
        try:
            getattr(request, name)
        except DecodeError as found:
            if str(found) == str(error):
                return True
    return False


def is_of_stored_alone(error: PartError, old: Object | None, new: Object | None) -> bool:
    """Whether it is the stored object that cannot be read, and not the new one."""
    found = _found_in(old, error)
    return (
        found is not None
        and (found.path, found.problem) == (error.path, error.problem)
        and _found_in(new, error) is None
    )


def response_to(error: PartError, request: AdmissionRequest) -> AdmissionResponse | None:
    """The answer to a request whose handler could not read a part of an object.

    A new object that does not fit is refused, with all wrong fields. What is stored and does not
    fit must not keep anybody from deleting it or from repairing it: that is allowed, with a
    warning. So are changes of an object that is being deleted, as long as they leave that part as
    it is.

    Returns:
        The answer; None if it was neither the new object nor the stored one, so that the handler
        has failed.
    """
    new, old = request.object, request.old_object
    found = _found_in(new, error)
    if found is not None and new is not None:
        if not (new.is_deleting and old is not None and _same_part(old, new, error.part)):
            name = request.name or new.name
            errors = [field_error(each) for each in every_part_error(new, found)]
            return AdmissionResponse.of_error(Invalid.of(request.kind, name, errors))
    elif not is_of_stored_alone(error, old, new):
        return None
    request.logger.warning("%r is allowed unchecked: %s", request, error)
    return AdmissionResponse.allowed().with_warnings(
        f"allowed unchecked, because the stored object cannot be read: {field_error(error)}"
    )


def _same_part(old: Object, new: Object, part: str) -> bool:
    def plain(obj: Object) -> Any:
        return obj.to_dict().get(part)

    return bool(plain(old) == plain(new))
