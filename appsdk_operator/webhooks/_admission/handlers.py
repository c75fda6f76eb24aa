"""Handlers of admission requests: defaulters, validators, and several in a row."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    Protocol,
    TypeAlias,
    TypeVar,
    final,
    runtime_checkable,
)

import attrs

from appsdk_operator._generics import SpecT, SpecT_contra, StatusT, StatusT_contra, subscript
from appsdk_operator.client import ApiError, Invalid
from appsdk_operator.resource import (
    DecodeError,
    FieldError,
    Kind,
    MutableObject,
    Object,
    PartError,
    check_kind,
    decode_json,
    encode_json,
    json_diff,
)
from appsdk_operator.runtime import add_note, settle, validation
from appsdk_operator.webhooks._admission import unfit
from appsdk_operator.webhooks._admission.merging import merged_patch
from appsdk_operator.webhooks._admission.requests import AdmissionRequest
from appsdk_operator.webhooks._admission.responses import AdmissionResponse, Denied

AdmissionHandler: TypeAlias = Callable[
    [AdmissionRequest], AdmissionResponse | Awaitable[AdmissionResponse]
]
"""Answers an admission request of any kind; plain or ``async def``. Called from several threads at
once. To deny a request, it returns :meth:`AdmissionResponse.denied`, or raises :class:`Denied` or
an ``ApiError``."""

ValidationResult: TypeAlias = (
    str | FieldError | Sequence[str | FieldError] | AdmissionResponse | None
)
"""What a validator returns: None to allow; texts, which become warnings; field errors, which deny
the request as ``Invalid.of(…)`` does; a list of both; or a response."""

S = TypeVar("S")
T = TypeVar("T")

DefaultFunction: TypeAlias = Callable[[MutableObject[S, T]], Any]
"""A defaulter as a function, plain or ``async def``; see :class:`Defaulter`."""
ObjectFunction: TypeAlias = Callable[[Object[S, T]], ValidationResult | Awaitable[ValidationResult]]
"""A validator of new or of deleted objects as a function, plain or ``async def``."""
UpdateFunction: TypeAlias = Callable[
    [Object[S, T], Object[S, T]], ValidationResult | Awaitable[ValidationResult]
]
"""A validator of changes as a function ``(old, new)``, plain or ``async def``."""

_ALLOWED: Final = AdmissionResponse.allowed()
_NO_CONTENT: Final = "there is no content to decode"


@runtime_checkable
class Defaulter(Protocol[SpecT, StatusT]):
    """Completes new and changed objects before they are validated and stored."""

    if not TYPE_CHECKING:
        __class_getitem__ = subscript

    def default(self, obj: MutableObject[SpecT, StatusT], /) -> Any:
        """Change ``obj``, or return another object of the same name in its place.

        All other fields stay as the user sent them. May be ``async def``. To deny the request, it
        raises :class:`Denied` or an ``ApiError``.
        """
        ...


@runtime_checkable
class Validator(Protocol[SpecT_contra, StatusT_contra]):
    """Decides whether objects may be created, changed and deleted.

    Each method may be ``async def``. To deny the request, it raises :class:`Denied` or an
    ``ApiError`` such as ``Invalid.of(…)``, or returns field errors; see ``ValidationResult`` for
    other results.
    """

    if not TYPE_CHECKING:
        __class_getitem__ = subscript

    def validate_create(self, new: Object[SpecT_contra, StatusT_contra], /) -> Any:
        """Check an object before it is created."""
        ...

    def validate_update(
        self,
        old: Object[SpecT_contra, StatusT_contra],
        new: Object[SpecT_contra, StatusT_contra],
        /,
    ) -> Any:
        """Check a change of an object before it is stored."""
        ...

    def validate_delete(self, old: Object[SpecT_contra, StatusT_contra], /) -> Any:
        """Check an object before it is deleted."""
        ...


def name_of(function: object) -> str:
    """The name of a user function or of a handler, for logs and answers."""
    own = getattr(function, "name", None)
    if isinstance(own, str) and own:
        return own
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__qualname__", None)
    return name.replace("<locals>.", "") if isinstance(name, str) else type(function).__name__


@final
class Defaulting(Generic[SpecT, StatusT]):
    """A handler that completes objects of one kind with a defaulter.

    The response is the JSON patch from the object that the API server sent to the defaulter's
    result. So fields that the kind's types do not know stay, and numbers keep all digits. Without a
    change there is no patch. Deletions are allowed without a call.

    Args:
        kind: the kind of the objects.
        defaulter: a function of a MutableObject, or an object with a method ``default``.

    Raises:
        TypeError: the defaulter cannot be called with an object; the text says what to give.
    """

    if not TYPE_CHECKING:
        __class_getitem__ = subscript

    def __init__(
        self,
        kind: Kind[SpecT, StatusT],
        defaulter: DefaultFunction[SpecT, StatusT] | Defaulter[SpecT, StatusT],
    ) -> None:
        """See the class."""
        self.kind: Kind[SpecT, StatusT] = check_kind(kind)
        function = getattr(defaulter, "default", None)
        self._function: Callable[[Any], Any] = _checked_function(
            "default", defaulter if function is None else function, "obj"
        )
        self.name: str = name_of(defaulter)
        """The name of the defaulter, for logs and answers."""

    def __repr__(self) -> str:
        return f"<defaulter {self.name} of {self.kind}>"

    def __call__(self, request: AdmissionRequest, /) -> AdmissionResponse:
        """Answer a request."""
        if request.operation == "DELETE":
            return _ALLOWED
        obj = request.object
        if obj is None:
            return AdmissionResponse.errored(400, _NO_CONTENT)
        raw = obj.viewed_as(self.kind).raw
        draft = MutableObject(self.kind, decode_json(raw))
        returned = settle(self._function(draft))
        after = draft.data if returned is None else self._content_of(returned)
        if self.kind.rename is not None:
            after = MutableObject(self.kind, after).to_dict()
        text = encode_json(after)
        before = decode_json(raw)
        # As JSON, because for Python 1, 1.0 and True are equal.
        if text == encode_json(before):
            return _ALLOWED
        plain = decode_json(text)
        if after != plain:  # fields of typed values that are None are absent
            plain = MutableObject(self.kind, after).to_dict()
        self._check_identity(before, plain)
        operations = json_diff(before, plain)
        return AdmissionResponse.patched(operations) if operations else _ALLOWED

    def _content_of(self, returned: object) -> dict[str, Any]:
        if isinstance(returned, MutableObject):
            found = returned.data
        elif isinstance(returned, Object):
            found = returned.to_dict()
        else:
            raise TypeError(
                f"it returned {type(returned).__name__}: change the object in place and return "
                "nothing, or return an object; to refuse it, raise Denied(…)"
            )
        if returned.kind != self.kind:
            raise TypeError(f"it returned an object of {returned.kind} in place of {self.kind}")
        return found

    def _check_identity(self, before: dict[str, Any], after: dict[str, Any]) -> None:
        names = ("apiVersion", "kind", "metadata.name", "metadata.namespace")
        for name, old, new in zip(names, _identity(before), _identity(after), strict=True):
            # A name may be set while there is none.
            if old != new and (old or not name.startswith("metadata")):
                raise ValueError(
                    f"it changed {name} from {old!r} to {new!r}, which identifies the object: "
                    "leave it as it is"
                )


def _identity(value: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    found = value.get("metadata")
    metadata = found if isinstance(found, dict) else {}
    return (
        value.get("apiVersion"),
        value.get("kind"),
        metadata.get("name"),
        metadata.get("namespace"),
    )


@final
class Validating(Generic[SpecT, StatusT]):
    """A handler that checks objects of one kind with functions, or with the methods of a validator.

    An operation without a function is allowed, and so is ``CONNECT``.

    If the spec of a new object does not fit the kind's class, the request is denied as ``Invalid``,
    with the field, once the function reads it. If only the stored object does not fit, users can
    still repair or delete it: at an update ``create`` checks the new object instead of ``update``.
    At a deletion, or without ``create``, the request is allowed with a warning.

    Args:
        kind: the kind of the objects.
        validator: an object with the methods of :class:`Validator`, or some of them.
        create: checks new objects.
        update: checks changes, with the old object and the new one.
        delete: checks deletions, with the object as it is stored.

    Raises:
        TypeError: nothing to call, both a validator and functions, or a wrong signature.
    """

    if not TYPE_CHECKING:
        __class_getitem__ = subscript

    def __init__(
        self,
        kind: Kind[SpecT, StatusT],
        validator: Validator[SpecT, StatusT] | None = None,
        *,
        create: ObjectFunction[SpecT, StatusT] | None = None,
        update: UpdateFunction[SpecT, StatusT] | None = None,
        delete: ObjectFunction[SpecT, StatusT] | None = None,
    ) -> None:
        """See the class."""
        self.kind: Kind[SpecT, StatusT] = check_kind(kind)
        functions: dict[str, Any] = {"create": create, "update": update, "delete": delete}
        if validator is not None:
            if any(function is not None for function in functions.values()):
                raise TypeError(
                    "give a validator or the functions create, update, delete; not both"
                )
            if callable(validator) and not hasattr(validator, "validate_create"):
                raise TypeError(
                    f"validator={name_of(validator)} is a function: say when it is called, with "
                    "create=, update= or delete="
                )
            functions = {name: getattr(validator, f"validate_{name}", None) for name in functions}
        given = {name: each for name, each in functions.items() if each is not None}
        if not given:
            raise TypeError(
                "nothing would be validated: give create=, update= or delete=, or an object with "
                "validate_create, validate_update or validate_delete"
            )
        for name, function in given.items():
            _checked_function(name, function, *(("old", "new") if name == "update" else ("obj",)))
        self._create, self._update, self._delete = functions.values()
        self._names = {name.upper(): name_of(function) for name, function in given.items()}
        self.name: str = (
            ", ".join(dict.fromkeys(self._names.values()))
            if validator is None
            else name_of(validator)
        )
        """The names of the functions, for logs and answers."""

    @property
    def operations(self) -> tuple[str, ...]:
        """The operations that have a function."""
        return tuple(self._names)

    def name_for(self, operation: str) -> str:
        """The name of the function for an operation."""
        return self._names.get(operation, self.name)

    def __repr__(self) -> str:
        return f"<validator {self.name} of {self.kind}>"

    def __call__(self, request: AdmissionRequest, /) -> AdmissionResponse:
        """Answer a request."""
        operation = request.operation
        if operation == "CREATE":
            arguments, function = [request.object], self._create
        elif operation == "UPDATE":
            # The new object first, as its errors matter more.
            new = request.object
            arguments, function = [request.old_object, new], self._update
        elif operation == "DELETE":
            arguments, function = [request.old_object], self._delete
        elif operation == "CONNECT":
            return _ALLOWED
        else:
            return AdmissionResponse.errored(400, f'unknown operation "{operation}"')
        objects = [each for each in arguments if each is not None]
        if len(objects) < len(arguments):
            return AdmissionResponse.errored(400, _NO_CONTENT)
        if function is None:
            return _ALLOWED
        objects = [each.viewed_as(self.kind) for each in objects]
        try:
            result = settle(function(*objects))
        except PartError as error:
            # A repair of a stored object that does not fit is checked as a new object is.
            is_repair = operation == "UPDATE" and unfit.is_of_stored_alone(error, *objects)
            if self._create is None or not is_repair:
                raise
            result = settle(self._create(objects[-1]))
        return _ALLOWED if result is None else self._response(request, objects[-1], result)

    def _response(
        self, request: AdmissionRequest, obj: Object, result: object
    ) -> AdmissionResponse:
        if isinstance(result, AdmissionResponse):
            if result.patch is not None:
                raise TypeError("a validator cannot change the object: leave that to a defaulter")
            return result
        found = [result] if isinstance(result, (str, FieldError)) else result
        if not isinstance(found, (list, tuple)) or not all(
            isinstance(each, (str, FieldError)) for each in found
        ):
            raise TypeError(
                f"it returned {type(result).__name__}: return nothing to allow, a text or a list "
                "of texts as warnings, or a list of field errors; to refuse, raise Denied(…)"
            )
        errors = [each for each in found if isinstance(each, FieldError)]
        response = _ALLOWED
        if errors:
            name = request.name or obj.name
            response = AdmissionResponse.of_error(Invalid.of(self.kind, name, errors))
        return response.with_warnings(*(each for each in found if isinstance(each, str)))


class _Multi:
    """Handlers that are asked one after the other; the first denial ends it."""

    _may_patch = False

    def __init__(self, *handlers: AdmissionHandler) -> None:
        """The handlers, in order.

        Raises:
            TypeError: none is given, or one cannot be called with a request.
        """
        if not handlers:
            raise TypeError(f"{type(self).__name__}() has no handlers: give one or more")
        for handler in handlers:
            _checked_function("handler", handler, "request")
        self._handlers = handlers
        self.name: str = ", ".join(map(name_of, handlers))
        """The names of the handlers, for logs and answers."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def __call__(self, request: AdmissionRequest, /) -> AdmissionResponse:
        """Answer a request."""
        patches: list[tuple[str, Sequence[Mapping[str, Any]]]] = []
        merged = _ALLOWED
        for handler in self._handlers:
            try:
                response = answer_of(handler, request)
            except Exception as error:
                add_note(error, f"raised by the handler {name_of(handler)} of {self!r}")
                raise
            merged = merged.with_warnings(*response.warnings)
            merged = merged.with_audit_annotations(response.audit_annotations)
            if not response.is_allowed:
                # With the warnings of those before it.
                return attrs.evolve(
                    response,
                    warnings=merged.warnings,
                    audit_annotations=merged.audit_annotations,
                )
            if response.patch is not None:
                if not self._may_patch:
                    raise TypeError(
                        f"{name_of(handler)} changes the object, which a validating webhook "
                        "cannot: use MultiMutating"
                    )
                patches.append((name_of(handler), response.patch.operations))
        if not patches:
            return merged
        operations = patches[0][1]
        if len(patches) > 1:
            operations = merged_patch(decode_json(request.raw_object or b"null"), patches)
        return (
            AdmissionResponse.patched(operations)
            .with_warnings(*merged.warnings)
            .with_audit_annotations(merged.audit_annotations)
        )


@final
class MultiMutating(_Multi):
    """Several mutating handlers as one: it calls them in order, and merges their patches.

    Each handler sees the object as the API server sent it. They may add to the same map, even if it
    was absent, and append to the same list. If two give one field different values, the request
    fails, and the error names both handlers and the field. The first handler that denies the
    request ends the sequence; the response then has the warnings so far and no patch.
    """

    _may_patch = True


@final
class MultiValidating(_Multi):
    """Several validating handlers as one: it calls them in order. The first that denies the request
    ends the sequence; the response then has the warnings so far."""


def answer_of(handler: AdmissionHandler, request: AdmissionRequest) -> AdmissionResponse:
    """The response of one handler; what it raises to deny is a response, too.

    Raises:
        Exception: what the handler raised otherwise.
    """
    try:
        response = settle(handler(request))
    except (Denied, ApiError) as verdict:
        return _response_of(verdict)
    except ExceptionGroup as group:  # of a task group
        verdicts, rest = group.split((Denied, ApiError))
        if verdicts is None or rest is not None:
            raise
        return _response_of(_first_of(verdicts))
    except PartError as error:
        found = unfit.response_to(error, request)
        if found is None:
            raise
        return found
    except DecodeError as error:
        if not unfit.is_of_request(error, request):
            raise
        return AdmissionResponse.errored(400, str(error))
    if not isinstance(response, AdmissionResponse):
        raise TypeError(
            f"it returned {type(response).__name__}: return AdmissionResponse.allowed() or another "
            "response"
        )
    return response


def _response_of(verdict: Denied | ApiError) -> AdmissionResponse:
    # One that is made once and raised again would keep the frames of all requests.
    with contextlib.suppress(Exception):
        verdict.__traceback__ = verdict.__context__ = None
    return AdmissionResponse.of_error(verdict)


def _first_of(group: ExceptionGroup[Any]) -> Denied | ApiError:
    first: Any = group.exceptions[0]
    return _first_of(first) if isinstance(first, ExceptionGroup) else first


def _checked_function(what: str, function: Any, *arguments: str) -> Any:
    """Refuse what is not a function of ``arguments``.

    Raises:
        TypeError: it cannot be called so; the text says what to give.
    """
    name = name_of(function)

    def explain(mismatch: TypeError | None) -> str:
        wanted = f"give a function of ({', '.join(arguments)})"
        if isinstance(function, type) or mismatch is None:
            return f"{what}={name} cannot be called: {wanted}"
        return f"{what}={name}{inspect.signature(function)}: {mismatch}: {wanted}"

    if isinstance(function, type):
        raise TypeError(f"{what}={function.__qualname__} is a class: give an instance")
    validation.check_callable(
        what, function, *arguments, required=True, is_awaited=True, explain=explain
    )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{what}={name} has a yield, so its body would never run: remove the yield")
    return function
