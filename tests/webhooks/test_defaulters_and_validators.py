"""Defaulters, validators and several handlers in a row."""

from __future__ import annotations

import asyncio
import copy
import json
import re
from typing import Annotated, Any, Literal

import attrs
import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from appsdk_operator.client import Forbidden, NotFound
from appsdk_operator.resource import Kind, MutableObject, Object, field, kinds
from appsdk_operator.webhooks import (
    Admission,
    AdmissionRequest,
    AdmissionResponse,
    Defaulter,
    Defaulting,
    Denied,
    MultiMutating,
    MultiValidating,
    Validating,
    Validator,
    admission_request,
)
from tests.hypothesis_profiles import scaled
from tests.webhooks.admission_parts import (
    TYPED,
    WIDGET,
    Size,
    answer,
    patched,
    review,
    widget,
)

BIG = 2**70 + 1


def defaulting(function: Any, kind: Kind[Any, Any] = WIDGET) -> Admission:
    """A webhook with a defaulter."""
    return Admission(Defaulting(kind, function))


# -- defaulters ------------------------------------------------------------------------------


def test_a_defaulter_changes_the_object_in_place() -> None:
    def set_size(obj: MutableObject) -> None:
        obj.spec.setdefault("size", 3)
        obj.labels["sized"] = "yes"

    found = answer(defaulting(set_size), review())
    assert found["allowed"]
    expected = widget(size=3)
    expected["metadata"]["labels"] = {"sized": "yes"}
    assert patched(found, widget()) == expected


def test_an_unchanged_object_has_no_patch() -> None:
    found = answer(defaulting(lambda obj: None), review(object=widget(size=1, big=BIG)))
    assert found == {
        "uid": found["uid"],
        "allowed": True,
        "status": {"metadata": {}, "code": 200},
    }


def test_a_deletion_is_allowed_without_a_call() -> None:
    def never(obj: MutableObject) -> None:
        raise AssertionError

    assert answer(defaulting(never), review("DELETE"))["allowed"]
    assert answer(defaulting(never), review("DELETE", name="", oldObject=None))["allowed"]


def test_what_a_typed_class_does_not_know_survives() -> None:
    def set_size(obj: MutableObject[Size, Any]) -> None:
        obj.spec = attrs.evolve(obj.spec, size=3)

    before = json.loads(
        json.dumps(widget(color="red", unknown={"a": [1, {"b": None}]}, big=BIG, fraction=1.0))
    )
    body = json.dumps(review(object=before))
    found = answer(defaulting(set_size, TYPED), body)
    after = patched(found, before)
    assert after == {**before, "spec": {**before["spec"], "size": 3}}
    assert after["spec"]["big"] == BIG


def test_only_what_changed_is_in_the_patch() -> None:
    import base64

    def set_size(obj: MutableObject[Size, Any]) -> None:
        obj.spec = attrs.evolve(obj.spec, size=3)

    found = answer(defaulting(set_size, TYPED), review(object=widget(other=[1, 2], big=BIG)))
    assert json.loads(base64.b64decode(found["patch"])) == [
        {"op": "add", "path": "/spec/size", "value": 3}
    ]


@pytest.mark.parametrize(("before", "after"), [(1, 1.0), (1, True), (0, False), (BIG, BIG + 1)])
def test_a_change_that_python_takes_for_none_is_a_change(before: Any, after: Any) -> None:
    def change(obj: MutableObject) -> None:
        obj.spec["size"] = after

    found = answer(defaulting(change), review(object=widget(size=before)))
    value = patched(found, widget(size=before))["spec"]["size"]
    assert (type(value), value) == (type(after), after)


@pytest.mark.parametrize("freeze", [False, True])
def test_a_defaulter_may_return_another_object(freeze: bool) -> None:
    def replace(obj: MutableObject) -> Any:
        other = MutableObject(WIDGET, widget(size=9))
        return other.freeze() if freeze else other

    found = answer(defaulting(replace), review(object=widget(color="red")))
    assert patched(found, widget(color="red")) == widget(size=9)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("metadata", "name"), "b"),
        (("metadata", "namespace"), "other"),
        (("kind",), "Gadget"),
        (("apiVersion",), "example.com/v2"),
    ],
)
def test_a_defaulter_cannot_change_what_identifies_the_object(path: Any, value: str) -> None:
    def rename(obj: MutableObject) -> None:
        target: Any = obj.data
        for step in path[:-1]:
            target = target[step]
        target[path[-1]] = value

    message = answer(defaulting(rename), review())["status"]["message"]
    assert f"it changed {'.'.join(path)} from" in message
    assert "rename failed" in message


def test_a_defaulter_may_name_an_object_that_has_a_generate_name() -> None:
    before = widget()
    before["metadata"] = {"generateName": "a-", "namespace": "default"}

    def name(obj: MutableObject) -> None:
        assert obj.name == ""
        obj.metadata["name"] = "a-1"

    found = answer(defaulting(name), review(name="", object=before))
    assert patched(found, before)["metadata"]["name"] == "a-1"


def test_a_defaulter_may_refuse() -> None:
    def refuse(obj: MutableObject) -> None:
        raise Denied("no widgets on Sundays")

    found = answer(defaulting(refuse), review())
    assert (found["allowed"], found["status"]["code"]) == (False, 403)
    assert "patch" not in found


def test_an_async_defaulter_and_an_object_with_a_method_work() -> None:
    class Sizer:
        async def default(self, obj: MutableObject[Size, Any], /) -> None:
            request = admission_request()
            assert request is not None
            obj.labels["by"] = request.user.username

    sizer: Defaulter[Size, Any] = Sizer()
    found = answer(Admission(Defaulting(TYPED, sizer)), review())
    assert patched(found, widget())["metadata"]["labels"] == {"by": "jane"}
    assert Defaulting(TYPED, sizer).name == "Sizer"


def test_a_status_and_a_dry_run_are_defaulted_as_any_other_request() -> None:
    def set_phase(obj: MutableObject) -> None:
        request = admission_request()
        assert request is not None
        if request.subresource == "status" and not request.dry_run:
            obj["status"] = {"phase": "new"}

    webhook = defaulting(set_phase)
    assert "patch" not in answer(webhook, review("UPDATE", subResource="status", dryRun=True))
    found = answer(webhook, review("UPDATE", subResource="status"))
    assert patched(found, widget())["status"] == {"phase": "new"}


@pytest.mark.parametrize("missing", [None, ...])
def test_a_request_without_an_object_is_malformed(missing: Any) -> None:
    body = review()
    if missing is None:
        body["request"]["object"] = None
    else:
        del body["request"]["object"]
    found = answer(defaulting(lambda obj: None), body)
    assert found["status"] == {
        "metadata": {},
        "message": "there is no content to decode",
        "code": 400,
    }


@pytest.mark.parametrize(
    "content", ["text", [], {"kind": "Widget"}, {"metadata": {"name": 7}}, {"metadata": []}]
)
def test_an_object_that_is_none_is_malformed(content: Any) -> None:
    found = answer(defaulting(lambda obj: None), review(object=content))
    assert (found["allowed"], found["status"]["code"]) == (False, 400)


def test_an_object_of_another_kind_is_malformed() -> None:
    other = {**widget(), "kind": "Gadget"}
    found = answer(defaulting(lambda obj: None), review(object=other))
    assert found["status"]["code"] == 400
    assert "expected example.com/v1 Widget, got example.com/v1 Gadget" in found["status"]["message"]


def test_a_request_for_another_kind_is_malformed() -> None:
    other = {**widget(), "kind": "Gadget"}
    kind = {"group": "example.com", "version": "v1", "kind": "Gadget"}
    for handler in (
        Defaulting(WIDGET, lambda obj: None),
        Validating(WIDGET, create=lambda obj: None),
    ):
        found = answer(Admission(handler), review(object=other, kind=kind))
        assert (found["allowed"], found["status"]["code"]) == (False, 400)


def test_a_spec_that_does_not_fit_its_class_is_invalid_and_no_failure() -> None:
    def look(obj: MutableObject[Size, Any]) -> None:
        assert obj.spec

    webhook = defaulting(look, TYPED)
    found = answer(webhook, review(object=widget(size="three")))
    assert found["status"]["code"] == 422
    assert found["status"]["reason"] == "Invalid"
    message = 'Invalid value: "string": must be of type integer or null'
    assert found["status"]["message"] == (
        f'Widget.example.com "a" is invalid: spec.size: {message}'
    )
    assert found["status"]["details"]["causes"] == [
        {"reason": "FieldValueTypeInvalid", "message": message, "field": "spec.size"}
    ]
    assert [sample.value for sample in webhook.samples()] == [0]


@attrs.frozen
class Part:
    name: str
    weight: Annotated[int, msgspec.Meta(ge=0)] = 0


@attrs.frozen
class Parts:
    parts: list[Part] = attrs.field(factory=list)
    mode: Literal["a", "b"] = "a"


@pytest.mark.parametrize(
    ("spec", "cause"),
    [
        (
            {"parts": [{"name": "a"}, {"weight": 1}]},
            ("FieldValueRequired", "Required value", "spec.parts[1].name"),
        ),
        (
            {"parts": [{"name": None}]},
            (
                "FieldValueTypeInvalid",
                'Invalid value: "null": must be of type string',
                "spec.parts[0].name",
            ),
        ),
        (
            {"parts": {"name": "a"}},
            (
                "FieldValueTypeInvalid",
                'Invalid value: "object": must be of type array',
                "spec.parts",
            ),
        ),
        (
            {"parts": [{"name": "a", "weight": -1}]},
            ("FieldValueInvalid", "Invalid value: Expected `int` >= 0", "spec.parts[0].weight"),
        ),
        (
            {"mode": "c"},
            ("FieldValueInvalid", "Invalid value: Invalid enum value 'c'", "spec.mode"),
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_the_words_of_kubernetes(
    spec: dict[str, Any], cause: tuple[str, str, str]
) -> None:
    kind = Kind(group="example.com", version="v1", kind="Widget", spec=Parts)
    found = answer(Admission(Validating(kind, create=read_spec)), review(object=widget(**spec)))
    (given,) = found["status"]["details"]["causes"]
    assert (given["reason"], given["message"], given["field"]) == cause


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
def test_all_fields_that_do_not_fit_are_named_at_once(operation: str) -> None:
    kind = Kind(group="example.com", version="v1", kind="Widget", spec=Parts)
    spec = {"parts": [{"weight": -1}, {"name": "a"}], "mode": "c"}
    handler = Defaulting(kind, lambda obj: obj["metadata"].update(labels={"mode": obj.spec.mode}))
    found = answer(Admission(handler), review(operation, object=widget(**spec)))
    assert found["status"]["message"] == (
        'Widget.example.com "a" is invalid: [spec.parts[0].name: Required value, '
        "spec.parts[0].weight: Invalid value: Expected `int` >= 0, "
        "spec.mode: Invalid value: Invalid enum value 'c']"
    )
    assert [each["field"] for each in found["status"]["details"]["causes"]] == [
        *("spec.parts[0].name", "spec.parts[0].weight", "spec.mode"),
    ]


NO_INTEGER = "Invalid value: Input should be a valid integer, unable to parse string as an integer"


@pytest.mark.parametrize(
    ("spec", "cause"),
    [
        ({}, ("FieldValueRequired", "Required value", "spec.size")),
        (
            {"size": "x"},
            (
                "FieldValueTypeInvalid",
                NO_INTEGER,
                "spec.size",
            ),
        ),
        (
            {"size": 0},
            (
                "FieldValueInvalid",
                "Invalid value: Input should be greater than 0",
                "spec.size",
            ),
        ),
    ],
)
def test_what_does_not_fit_a_model_is_refused_in_the_words_of_kubernetes(
    spec: dict[str, Any], cause: tuple[str, str, str]
) -> None:
    pydantic = pytest.importorskip("pydantic")
    model = pydantic.create_model(
        "Model",
        __config__=pydantic.ConfigDict(frozen=True),
        size=(int, pydantic.Field(gt=0)),
    )
    kind: Kind[Any, Any] = Kind(group="example.com", version="v1", kind="Widget", spec=model)
    found = answer(Admission(Validating(kind, create=read_spec)), review(object=widget(**spec)))
    (given,) = found["status"]["details"]["causes"]
    assert (given["reason"], given["message"], given["field"]) == cause


def read_spec(obj: Object) -> str:
    return f"create saw {obj.spec}"


def read_nothing(obj: Object) -> None:
    """Allow everything."""


def read_both(old: Object, new: Object) -> str:
    return f"update saw {old.spec} {new.spec}"


def deleting(obj: dict[str, Any]) -> dict[str, Any]:
    metadata = {**obj["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    return {**obj, "metadata": metadata}


BAD, WORSE, GOOD = widget(size="three"), widget(size=[]), widget(size=3)
UNCHECKED = (
    "allowed unchecked, because the stored object cannot be read: spec.size: "
    'Invalid value: "string": must be of type integer or null'
)


@pytest.mark.parametrize(
    ("operation", "old", "new", "functions", "warnings"),
    [
        ("DELETE", BAD, None, {"delete": read_spec}, [UNCHECKED]),
        ("UPDATE", BAD, GOOD, {"update": read_both}, [UNCHECKED]),
        (
            "UPDATE",
            BAD,
            GOOD,
            {"update": read_both, "create": read_spec},
            ["create saw Size(size=3, color=None)"],
        ),
        ("UPDATE", BAD, BAD, {"update": read_both}, None),
        ("UPDATE", BAD, WORSE, {"update": read_both}, None),
        ("UPDATE", BAD, WORSE, {"update": read_both, "create": read_spec}, None),
        ("UPDATE", BAD, WORSE, {"update": read_both, "create": read_nothing}, None),
        ("UPDATE", GOOD, BAD, {"update": read_both, "create": read_spec}, None),
        ("UPDATE", GOOD, BAD, {"update": read_both, "create": read_nothing}, None),
        ("UPDATE", deleting(BAD), deleting(BAD), {"update": read_both}, [UNCHECKED]),
        (
            "UPDATE",
            deleting(BAD),
            deleting(BAD),
            {"update": read_both, "create": read_spec},
            [UNCHECKED],
        ),
        ("UPDATE", deleting(GOOD), deleting(BAD), {"update": read_both}, None),
        ("UPDATE", deleting(WORSE), deleting(BAD), {"update": read_both}, None),
    ],
)
def test_a_stored_object_that_does_not_fit_can_be_repaired_and_deleted_and_not_made_worse(
    operation: str,
    old: dict[str, Any],
    new: dict[str, Any] | None,
    functions: dict[str, Any],
    warnings: list[str] | None,
) -> None:
    webhook = Admission(Validating(TYPED, **functions))
    found = answer(webhook, review(operation, object=new, oldObject=old))
    if warnings is None:
        assert found["status"]["code"] == 422
        (cause,) = found["status"]["details"]["causes"]
        assert cause["field"] == "spec.size"
        assert ("array" if new is WORSE else "string") in cause["message"]
    else:
        assert (found["allowed"], found["warnings"]) == (True, warnings)
    assert [sample.value for sample in webhook.samples()] == [0]


def test_a_defaulter_leaves_an_unreadable_object_alone_that_is_being_deleted() -> None:
    def look(obj: MutableObject[Size, Any]) -> None:
        assert obj.spec

    body = review("UPDATE", object=deleting(BAD), oldObject=deleting(BAD))
    assert answer(defaulting(look, TYPED), body)["allowed"]


def test_another_object_that_does_not_fit_its_class_is_a_failure_of_the_function() -> None:
    other = Object.from_dict(TYPED, BAD)

    def spoil(obj: MutableObject[Size, Any]) -> None:
        obj.data["spec"] = {"size": "big"}
        assert obj.spec

    for webhook in (
        Admission(Validating(TYPED, create=lambda obj: str(other.spec))),
        defaulting(spoil, TYPED),
    ):
        assert answer(webhook, review(object=GOOD))["status"]["code"] == 500
        assert [sample.value for sample in webhook.samples()] == [1]
    webhook = Admission(Validating(TYPED, update=lambda old, new: str(other.spec)))
    found = answer(webhook, review("UPDATE", object=GOOD, oldObject=WORSE))
    assert found["status"]["code"] == 500, "which is not for what is wrong with the stored one"


def test_a_defaulter_that_returns_something_else_is_named() -> None:
    message = answer(defaulting(lambda obj: {"spec": {}}), review())["status"]["message"]
    assert "it returned dict: change the object in place" in message


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4)
    ),
    max_leaves=12,
)
fields = st.dictionaries(st.text(max_size=6), plain, max_size=5)


@given(before=fields, after=fields)
def test_the_patch_leads_to_what_the_defaulter_left(before: Any, after: Any) -> None:
    def replace(obj: MutableObject) -> None:
        obj.data["spec"] = after

    found = answer(defaulting(replace), json.dumps(review(object=widget(**before))))
    result = patched(found, widget(**before)) if "patch" in found else widget(**before)
    assert json.dumps(result["spec"], sort_keys=True) == json.dumps(after, sort_keys=True)


# -- validators ------------------------------------------------------------------------------


class Checks:
    """A validator that notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.result: Any = None

    def validate_create(self, new: Object[Size, Any], /) -> Any:
        self.asked.append(("create", new.spec.size))
        return self._answer()

    def validate_update(self, old: Object[Size, Any], new: Object[Size, Any], /) -> Any:
        self.asked.append(("update", old.spec.size, new.spec.size))
        return self._answer()

    async def validate_delete(self, old: Object[Size, Any], /) -> Any:
        self.asked.append(("delete", old.spec.size))
        return self._answer()

    def _answer(self) -> Any:
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


OPERATIONS = [
    ("CREATE", {"object": widget(size=1)}, ("create", 1)),
    ("UPDATE", {"object": widget(size=1), "oldObject": widget(size=2)}, ("update", 2, 1)),
    ("DELETE", {"oldObject": widget(size=2)}, ("delete", 2)),
]


@pytest.mark.parametrize(("operation", "fields", "asked"), OPERATIONS)
def test_a_validator_is_asked_about_each_operation(operation: str, fields: Any, asked: Any) -> None:
    checks = Checks()
    validator: Validator[Size, Any] = checks
    webhook = Admission(Validating(TYPED, validator))
    found = answer(webhook, review(operation, **fields))
    assert (found["allowed"], found["status"]["code"]) == (True, 200)
    checks.result = ["be careful", "twice"]
    found = answer(webhook, review(operation, **fields))
    assert (found["allowed"], found["warnings"]) == (True, ["be careful", "twice"])
    checks.result = "be careful"
    assert answer(webhook, review(operation, **fields))["warnings"] == ["be careful"]
    checks.result = Denied("no", warnings=["be careful"])
    found = answer(webhook, review(operation, **fields))
    assert found["status"] == {
        "metadata": {},
        "message": "no",
        "reason": "Forbidden",
        "code": 403,
    }
    assert found["warnings"] == ["be careful"]
    checks.result = Forbidden("not yours")
    assert answer(webhook, review(operation, **fields))["status"]["message"] == "not yours"
    checks.result = AdmissionResponse.denied("no", code=418).with_warnings("w")
    found = answer(webhook, review(operation, **fields))
    assert (found["status"]["code"], found["warnings"]) == (418, ["w"])
    checks.result = ValueError("a mistake")
    found = answer(webhook, review(operation, **fields))
    assert found["status"]["code"] == 500
    assert found["status"]["message"] == (
        f"the webhook Checks.validate_{operation.lower()} failed: ValueError: a mistake"
    )
    assert checks.asked == [asked] * 7


def test_field_errors_deny_as_the_api_server_does() -> None:
    spec = field("spec")

    def check(new: Object) -> Any:
        return [
            spec["size"].invalid(-1, "must not be negative"),
            "spec.color is deprecated",
            spec["color"].not_supported("mauve", ["blue", "red"]),
        ]

    found = answer(Admission(Validating(WIDGET, create=check)), review())
    assert not found["allowed"]
    assert found["warnings"] == ["spec.color is deprecated"]
    errors = [
        "spec.size: Invalid value: -1: must not be negative",
        'spec.color: Unsupported value: "mauve": supported values: "blue", "red"',
    ]
    assert found["status"] == {
        "metadata": {},
        "status": "Failure",
        "message": f'Widget.example.com "a" is invalid: [{", ".join(errors)}]',
        "reason": "Invalid",
        "details": {
            "name": "a",
            "group": "example.com",
            "kind": "Widget",
            "causes": [
                {
                    "reason": "FieldValueInvalid",
                    "message": "Invalid value: -1: must not be negative",
                    "field": "spec.size",
                },
                {
                    "reason": "FieldValueNotSupported",
                    "message": 'Unsupported value: "mauve": supported values: "blue", "red"',
                    "field": "spec.color",
                },
            ],
        },
        "code": 422,
    }
    one = Admission(Validating(WIDGET, delete=lambda old: spec.forbidden("it is in use")))
    assert answer(one, review("DELETE"))["status"]["code"] == 422
    none = Admission(Validating(WIDGET, create=lambda new: []))
    assert answer(none, review())["allowed"]


def test_an_operation_without_a_function_is_allowed() -> None:
    webhook = Admission(Validating(WIDGET, create=lambda new: "seen"))
    assert answer(webhook, review())["warnings"] == ["seen"]
    for operation in ("UPDATE", "DELETE", "CONNECT"):
        found = answer(webhook, review(operation))
        assert found["allowed"]
        assert "warnings" not in found


def test_the_failed_function_is_named() -> None:
    def check_size(new: Object) -> None:
        raise KeyError("size")

    def check_end(old: Object) -> None:
        raise KeyError("end")

    webhook = Admission(Validating(WIDGET, create=check_size, delete=check_end))
    assert "check_size failed" in answer(webhook, review())["status"]["message"]
    assert "check_end failed" in answer(webhook, review("DELETE"))["status"]["message"]


@pytest.mark.parametrize(
    ("operation", "field"),
    [("CREATE", "object"), ("UPDATE", "object"), ("UPDATE", "oldObject"), ("DELETE", "oldObject")],
)
@pytest.mark.parametrize("content", [None, "text", {"metadata": 7}])
def test_a_missing_or_malformed_object_is_an_error(
    operation: str, field: str, content: Any
) -> None:
    webhook = Admission(Validating(TYPED, Checks()))
    found = answer(webhook, review(operation, **{field: content}))
    assert (found["allowed"], found["status"]["code"]) == (False, 400)
    assert [sample.value for sample in webhook.samples()] == [0]


@pytest.mark.parametrize("operation", ["", "PATCH", "create"])
def test_an_unknown_operation_is_an_error(operation: str) -> None:
    found = answer(Admission(Validating(TYPED, Checks())), review(operation))
    assert found["status"] == {
        "metadata": {},
        "message": f'unknown operation "{operation}"',
        "code": 400,
    }


@pytest.mark.parametrize("result", [True, False, 7, {"a": 1}, [1]])
def test_a_result_that_is_none_of_those_that_mean_something_is_named(result: Any) -> None:
    webhook = Admission(Validating(WIDGET, create=lambda new: result))
    message = answer(webhook, review())["status"]["message"]
    assert "return nothing to allow" in message


def test_a_validator_cannot_change_the_object() -> None:
    response = AdmissionResponse.patched([{"op": "remove", "path": "/spec"}])
    webhook = Admission(Validating(WIDGET, create=lambda new: response))
    assert "cannot change the object" in answer(webhook, review())["status"]["message"]


def generator(obj: Any) -> Any:
    """A function whose code never runs."""
    yield obj


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Validating(WIDGET), "nothing would be validated"),
        (lambda: Validating(WIDGET, object()), "nothing would be validated"),  # type: ignore[arg-type]
        (lambda: Validating(WIDGET, lambda obj: None), "is a function: say when"),  # type: ignore[arg-type, misc]
        (lambda: Validating(WIDGET, Checks(), create=lambda obj: None), "not both"),
        (lambda: Validating(WIDGET, create=lambda: None), r"give a function of \(obj\)"),  # type: ignore[arg-type, misc]
        (lambda: Validating(WIDGET, update=lambda old: None), r"give a function of \(old, new\)"),  # type: ignore[arg-type, misc]
        (lambda: Validating(WIDGET, create=generator), "has a yield"),
        (lambda: Validating("widgets", create=lambda obj: None), "is not a Kind"),  # type: ignore[arg-type]
        (lambda: Defaulting(WIDGET, Checks), "is a class"),
        (lambda: Defaulting(WIDGET, 7), "cannot be called"),  # type: ignore[arg-type]
        (MultiMutating, "has no handlers"),
        (lambda: MultiValidating(7), "cannot be called"),  # type: ignore[arg-type]
    ],
)
def test_mistakes_are_named_when_they_are_made(make: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        make()


# -- several ---------------------------------------------------------------------------------


def patch(path: str, *warnings: str) -> Any:
    """A handler that adds a field."""

    def handle(request: AdmissionRequest) -> AdmissionResponse:
        operations = [{"op": "add", "path": path, "value": 1}]
        return AdmissionResponse.patched(operations).with_warnings(*warnings)

    return handle


def allow(*warnings: str) -> Any:
    """A handler that allows."""
    return lambda request: (
        AdmissionResponse.allowed().with_warnings(*warnings).with_audit_annotations({"seen": "1"})
    )


def deny(request: AdmissionRequest) -> AdmissionResponse:
    """A handler that denies."""
    return AdmissionResponse.denied("no").with_warnings("mine")


def never(request: AdmissionRequest) -> AdmissionResponse:
    """A handler that must not be asked."""
    raise AssertionError


def test_patches_and_warnings_of_several_handlers_are_joined() -> None:
    webhook = Admission(MultiMutating(patch("/spec/a", "w1"), allow("w2"), patch("/spec/b")))
    found = answer(webhook, review())
    assert patched(found, widget()) == widget(a=1, b=1)
    assert found["warnings"] == ["w1", "w2"]
    assert found["auditAnnotations"] == {"seen": "1"}


def test_the_first_denial_ends_it_without_patches_and_with_the_warnings_so_far() -> None:
    for multi in (
        MultiMutating(patch("/spec/a", "w1"), allow("w2"), deny, never),
        MultiValidating(allow("w1", "w2"), deny, never),
    ):
        found = answer(Admission(multi), review())
        assert (found["allowed"], found["status"]["message"]) == (False, "no")
        assert "patch" not in found
        assert found["warnings"] == ["w1", "w2", "mine"]


def test_several_defaulters_see_the_same_object() -> None:
    seen: list[Any] = []

    def look(obj: MutableObject) -> None:
        seen.append(dict(obj.spec))
        obj.spec[f"field{len(seen)}"] = 1

    webhook = Admission(MultiMutating(Defaulting(WIDGET, look), Defaulting(WIDGET, look)))
    assert patched(answer(webhook, review()), widget()) == widget(field1=1, field2=1)
    assert seen == [{}, {}]


def test_without_changes_there_is_no_patch() -> None:
    found = answer(Admission(MultiMutating(allow(), allow("w"))), review())
    assert (found["allowed"], found["warnings"]) == (True, ["w"])
    assert "patch" not in found


def test_a_patch_from_a_validating_handler_is_named() -> None:
    found = answer(Admission(MultiValidating(patch("/spec/a"))), review())
    assert "use MultiMutating" in found["status"]["message"]


@pytest.mark.parametrize("namespace", ["", "team"])
def test_a_built_in_kind_of_a_request_is_that_of_the_table(namespace: str) -> None:
    """Whatever namespace the request has: one about a Namespace names it."""
    seen: list[Kind[Any, Any]] = []

    def look(request: AdmissionRequest) -> AdmissionResponse:
        seen.append(request.kind)
        return AdmissionResponse.allowed()

    for each in kinds.builtin_kinds():
        kind, version = each.kind, {"group": each.kind.group, "version": each.kind.version}
        fields = {
            "kind": {**version, "kind": kind.kind},
            "resource": {**version, "resource": kind.plural},
            "namespace": namespace,
        }
        obj = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "a"}}
        assert answer(Admission(look), review(**fields, object=obj))["allowed"]
        assert seen.pop() == kind
        several = MultiValidating(Validating(kind, create=lambda new: None))
        assert answer(Admission(several), review(**fields, object=obj))["allowed"], kind


def test_a_failure_of_one_of_several_denies() -> None:
    webhook = Admission(MultiValidating(allow(), never))
    assert answer(webhook, review())["status"]["code"] == 500


def test_a_defaulter_of_a_renamed_kind_answers_with_the_names_on_the_wire() -> None:
    @attrs.frozen
    class Spec:
        max_size: int = 0
        main_port: int | None = None

    kind = WIDGET.typed(spec=Spec)
    kind = attrs.evolve(kind, rename="camel")

    def default(draft: MutableObject[Any, Any]) -> None:
        draft.spec = attrs.evolve(draft.spec, max_size=4)
        draft["status"] = Spec(main_port=5)

    request = AdmissionRequest(
        "CREATE", kind, object={"metadata": {"name": "web"}, "spec": {"maxSize": 1}}
    )
    response = Defaulting(kind, default)(request)
    assert isinstance(response, AdmissionResponse)
    assert response.patch is not None
    assert sorted(response.patch.operations, key=lambda one: str(one["path"])) == [
        {"op": "replace", "path": "/spec/maxSize", "value": 4},
        {"op": "add", "path": "/status", "value": {"maxSize": 0, "mainPort": 5}},
    ]


_VALUES: Any = st.one_of(st.integers(0, 1), st.sampled_from([True, 1.0, "a", None]))
_STEPS = st.sampled_from(["a", "b", "c/d"])
_PATHS = st.lists(_STEPS, min_size=1, max_size=3).map(tuple)
_CHANGES = st.dictionaries(_PATHS, _VALUES, max_size=3)


def set_all(spec: dict[str, Any], changes: dict[tuple[str, ...], Any]) -> None:
    for path, value in changes.items():
        at = spec
        for step in path[:-1]:
            at = at.setdefault(step, {})
        at[path[-1]] = value


def agree(one: dict[tuple[str, ...], Any], other: dict[tuple[str, ...], Any]) -> bool:
    """Whether no field is set twice to different values, nor within another that is set."""
    for a, left in one.items():
        for b, right in other.items():
            size = min(len(a), len(b))
            if a[:size] == b[:size] and (len(a) != len(b) or repr(left) != repr(right)):
                return False
    return True


@given(_CHANGES, _CHANGES, _CHANGES)
@settings(max_examples=scaled(300))
def test_the_changes_of_several_defaulters_are_all_made(
    base: dict[tuple[str, ...], Any],
    first: dict[tuple[str, ...], Any],
    second: dict[tuple[str, ...], Any],
) -> None:
    assume(
        all(
            agree({k: v}, {o: w})
            for c in (base, first, second)
            for k, v in c.items()
            for o, w in c.items()
            if k != o
        )
    )
    assume(agree(first, second))
    # What is set within a plain value of the object would be no map.
    assume(all(len(p) <= len(b) or p[: len(b)] != b for b in base for p in (*first, *second)))
    sent: dict[str, Any] = {}
    set_all(sent, base)
    wanted = copy.deepcopy(sent)
    set_all(wanted, first)
    set_all(wanted, second)

    def one(obj: MutableObject) -> None:
        set_all(obj.data["spec"], first)

    def other(obj: MutableObject) -> None:
        set_all(obj.data["spec"], second)

    found = answer(
        Admission(MultiMutating(Defaulting(WIDGET, one), Defaulting(WIDGET, other))),
        review(object=widget(**sent)),
    )
    made = patched(found, widget(**sent)) if "patch" in found else widget(**sent)
    assert json.dumps(made, sort_keys=True) == json.dumps(widget(**wanted), sort_keys=True)


BASE_LIST = [{"name": "main", "image": "a"}]
SIDECAR, PROXY = {"name": "sidecar"}, {"name": "proxy"}
LISTS: list[tuple[Any, Any, Any, Any]] = [
    # as it was sent, what each leaves, and what becomes of it
    (None, [SIDECAR], [PROXY], [SIDECAR, PROXY]),
    (BASE_LIST, [*BASE_LIST, SIDECAR], [*BASE_LIST, PROXY], [*BASE_LIST, SIDECAR, PROXY]),
    (BASE_LIST, [*BASE_LIST, SIDECAR], [*BASE_LIST, SIDECAR], [*BASE_LIST, SIDECAR]),
    (
        BASE_LIST,
        [{"name": "main", "image": "b"}, SIDECAR],
        [{"name": "main", "image": "a", "tty": True}],
        [{"name": "main", "image": "b", "tty": True}, SIDECAR],
    ),
    (["x"], ["x", "y"], ["x", "z"], ["x", "y", "z"]),
    (["x"], [], ["x"], []),
    # Conflicts.
    (["x"], ["y"], ["z"], None),
    (BASE_LIST, [SIDECAR, *BASE_LIST], [{"name": "main", "image": "b"}], None),
    (BASE_LIST, [*BASE_LIST, SIDECAR], [*BASE_LIST, {**SIDECAR, "image": "c"}], None),
    (BASE_LIST, [{"name": "main", "image": "b"}], [{"name": "main", "image": "c"}], None),
]


@pytest.mark.parametrize(("sent", "one", "other", "wanted"), LISTS)
def test_the_lists_of_several_defaulters_are_merged_or_the_conflict_is_named(
    sent: Any, one: Any, other: Any, wanted: Any
) -> None:
    def setter(value: Any) -> Any:
        def assign(obj: MutableObject) -> None:
            obj.data["spec"]["parts"] = copy.deepcopy(value)

        return assign

    first, second = setter(one), setter(other)
    first.__qualname__, second.__qualname__ = "first", "second"
    before = widget() if sent is None else widget(parts=sent)
    webhook = Admission(MultiMutating(Defaulting(WIDGET, first), Defaulting(WIDGET, second)))
    found = answer(webhook, review(object=before))
    if wanted is None:
        assert found["status"]["code"] == 500
        assert "first and second change /spec/parts" in found["status"]["message"]
    else:
        assert patched(found, before) == widget(parts=wanted)


def test_a_patch_may_be_written_for_what_the_handlers_before_it_leave() -> None:
    webhook = Admission(
        MultiMutating(
            lambda request: AdmissionResponse.patched(
                [{"op": "add", "path": "/spec/a", "value": {}}]
            ),
            patch("/spec/a/b"),
        )
    )
    assert patched(answer(webhook, review()), widget()) == widget(a={"b": 1})


# -- verdicts and failures -------------------------------------------------------------------------


def test_what_a_handler_fails_to_decode_elsewhere_is_its_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def check(new: Object) -> None:
        Object.from_json(WIDGET, b"{")  # a file of its own

    webhook = Admission(Validating(WIDGET, create=check))
    assert answer(webhook, review())["status"]["code"] == 500
    assert sum(sample.value for sample in webhook.samples()) == 1
    assert "failed on" in caplog.text


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_a_warning_has_nothing_for_which_an_api_server_drops_it(text: str) -> None:
    (warning,) = AdmissionResponse.allowed().with_warnings(text).warnings
    assert not any(ord(each) < 32 or ord(each) == 127 for each in warning)
    assert warning.split() == re.sub(r"[\x00-\x1f\x7f]", " ", text).split()


@pytest.mark.parametrize("kind", [Denied, NotFound])
def test_a_verdict_that_is_raised_for_each_request_keeps_none_of_them(kind: Any) -> None:
    verdict = kind("closed on Sundays")

    def refuse(request: AdmissionRequest) -> AdmissionResponse:
        raise verdict

    webhook = Admission(refuse)
    for _ in range(3):
        assert "Sundays" in answer(webhook, review())["status"]["message"]
    assert verdict.__traceback__ is None


@pytest.mark.parametrize("is_mixed", [False, True])
def test_a_denial_within_a_task_group_is_a_denial(is_mixed: bool) -> None:
    async def refuse() -> None:
        raise Denied("not you")

    async def check(new: Object) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(refuse())
            await asyncio.sleep(0)

    async def fail(new: Object) -> None:
        raise ExceptionGroup("several", [Denied("not you"), ValueError("no number")])

    webhook = Admission(Validating(WIDGET, create=fail if is_mixed else check))
    status = answer(webhook, review())["status"]
    assert status["code"] == (500 if is_mixed else 403)
    assert is_mixed or status["message"] == "not you"
