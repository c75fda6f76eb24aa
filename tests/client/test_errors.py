from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appsdk_operator import client as c
from appsdk_operator.client import Request, error_from_status
from appsdk_operator.client._transport.response_errors import error_from_response
from appsdk_operator.client._transport.response_head import Headers
from appsdk_operator.resource import Kind, field

WIDGET = Kind(group="example.com", version="v1", kind="Widget")
LIST = Request(
    method="GET",
    path="/apis/example.com/v1/namespaces/x/widgets",
    verb="list",
    resource="widgets.example.com",
    namespace="x",
)


def headers(**values: str) -> Headers:
    return Headers((key.replace("_", "-"), value) for key, value in values.items())


@pytest.mark.parametrize(
    ("reason", "code", "expected"),
    [
        ("NotFound", 404, c.NotFound),
        ("AlreadyExists", 409, c.AlreadyExists),
        ("Conflict", 409, c.Conflict),
        ("Invalid", 422, c.Invalid),
        ("Forbidden", 403, c.Forbidden),
        ("Unauthorized", 401, c.Unauthorized),
        ("Gone", 410, c.Gone),
        ("Expired", 410, c.Expired),
        ("TooManyRequests", 429, c.TooManyRequests),
        ("Timeout", 504, c.Timeout),
        ("ServerTimeout", 500, c.ServerTimeout),
        ("InternalError", 500, c.InternalError),
        ("ServiceUnavailable", 503, c.ServiceUnavailable),
        ("BadRequest", 400, c.BadRequest),
        ("MethodNotAllowed", 405, c.MethodNotAllowed),
        ("NotAcceptable", 406, c.NotAcceptable),
        ("UnsupportedMediaType", 415, c.UnsupportedMediaType),
        ("RequestEntityTooLarge", 413, c.RequestEntityTooLarge),
    ],
)
def test_the_reason_chooses_the_class_and_the_code_does_without_one(reason, code, expected):
    assert type(error_from_status({"reason": reason, "code": 400})) is expected
    by_code = type(error_from_status({"code": code}))
    assert by_code is expected or reason in {"AlreadyExists", "Expired", "ServerTimeout"}


def test_unknown_codes_fall_back_to_the_nearest_class():
    assert type(error_from_status({"code": 418})) is c.ApiError
    assert type(error_from_status({"code": 599})) is c.ServerError
    assert type(error_from_status({"reason": "Teapot", "code": 503})) is c.ServiceUnavailable


def test_a_taken_name_is_no_conflict_and_an_expired_version_is_gone():
    assert not issubclass(c.AlreadyExists, c.Conflict)
    assert issubclass(c.Expired, c.Gone)
    for kind in (c.InternalError, c.ServerTimeout, c.ServiceUnavailable, c.Timeout):
        assert issubclass(kind, c.ServerError)


def test_a_status_is_read_with_its_causes():
    error = error_from_status(
        {
            "code": 422,
            "reason": "Invalid",
            "message": "no",
            "metadata": {"continue": "tok"},
            "details": {
                "name": "a",
                "retryAfterSeconds": 3,
                "causes": [{"reason": "FieldValueInvalid", "message": "bad", "field": "spec.a"}, 7],
            },
        },
        request=LIST,
    )
    assert error.causes == (c.Cause("FieldValueInvalid", "bad", "spec.a"),)
    assert error.has_cause("FieldValueInvalid")
    assert not error.has_cause("Other")
    assert error.details["name"] == "a"
    assert error.retry_after == 3.0
    assert error.continue_token == "tok"
    assert error.status == 422
    assert error.reason == "Invalid"
    assert error.message == "no"
    assert error.request is LIST


def test_what_does_not_fit_in_a_status_is_ignored():
    error = error_from_status(
        {"code": "x", "reason": 5, "message": None, "details": [], "metadata": 1}, code=404
    )
    assert type(error) is c.NotFound
    assert error.causes == ()


def test_forbidden_names_the_verb_that_is_missing():
    text = str(error_from_status({"reason": "Forbidden", "code": 403}, request=LIST))
    assert "needs verb 'list' on widgets.example.com in namespace 'x'" in text
    everywhere = Request(method="GET", path="/x", verb="watch", resource="widgets.example.com")
    text = str(error_from_status({"reason": "Forbidden", "code": 403}, request=everywhere))
    assert "in the whole cluster" in text


def test_not_found_tells_a_missing_kind_from_a_missing_object():
    gone = {"reason": "NotFound", "code": 404, "details": {"kind": "widgets", "name": "a"}}
    assert "CRD" not in str(error_from_status(gone, request=LIST))
    unknown = error_from_response(LIST, 404, headers(), b"404 page not found\n")
    assert "CRD is installed" in str(unknown)
    assert unknown.message == "404 page not found"


def test_not_found_of_a_subresource_says_that_the_kind_may_have_none():
    where = {"namespace": "x", "name": "a"}
    status = Request(method="PATCH", path="/x", verb="patch", resource="widgets.y/status", **where)
    text = str(error_from_response(status, 404, headers(), b"404 page not found\n"))
    assert "CRD is installed" in text
    assert "or the kind has no subresource status, which its CRD must name" in text
    unknown = error_from_response(LIST, 404, headers(), b"404 page not found\n")
    assert "subresource" not in str(unknown)


@pytest.mark.parametrize(
    ("resource", "is_reported"),
    [("widgets.example.com/status", True), ("deployments.apps/status", False), ("pods", False)],
)
def test_so_does_that_of_a_custom_resource_where_servers_name_the_object(resource, is_reported):
    request = Request(method="PATCH", path="/x", verb="patch", resource=resource, name="a")
    gone = {"reason": "NotFound", "code": 404, "details": {"kind": "widgets", "name": "a"}}
    text = str(error_from_status(gone, request=request))
    assert ("there is no such object, or the kind has no subresource status" in text) is is_reported


def test_conflicts_and_expiry_name_the_next_step():
    assert "read the object again" in str(error_from_status({"reason": "Conflict", "code": 409}))
    assert "list anew" in str(error_from_status({"reason": "Expired", "code": 410}))
    assert "token" in str(error_from_status({"reason": "Unauthorized", "code": 401}))


@pytest.mark.parametrize(
    "message",
    [
        'admission webhook "check.widgets.example.com" denied the request: only on Mondays',
        'admission webhook "check.widgets.example.com" denied the request without explanation',
        "ValidatingAdmissionPolicy 'sizes' with binding 'all' denied request: too big",
        "pods \"a\" is forbidden: ValidatingAdmissionPolicy 'sizes' denied request: too big",
        'pods "a" is forbidden: exceeded quota: small, requested: pods=1, used: pods=1',
        'pods "a" is forbidden: violates PodSecurity "restricted:latest": privileged',
        'configmaps "a" is forbidden: unable to create new content in namespace x',
    ],
)
@pytest.mark.parametrize(("reason", "code"), [("Forbidden", 403), ("Conflict", 409)])
def test_a_refusal_by_admission_names_its_reason_and_no_remedy_of_another_cause(
    message, reason, code
):
    request = Request(method="PUT", path="/x", verb="update", resource="pods", name="a")
    status = {"reason": reason, "code": code, "message": message}
    error = error_from_status(status, request=request)
    assert error.remedy == ""
    assert str(error).endswith(message)
    if isinstance(error, c.Forbidden):
        error.for_verbs("update", "patch")
        assert str(error).endswith(message)
    ordinary = error_from_status({**status, "message": "no"}, request=request)
    assert ordinary.remedy
    assert ordinary.remedy in str(ordinary)


def test_a_proxys_page_is_quoted_short_and_without_control_characters():
    body = b"<html>\x1b[31m  \n\n Bad Gateway " + b"x" * 5000
    error = error_from_response(LIST, 502, headers(), body)
    assert type(error) is c.ServerError
    assert error.message.startswith("<html>?[31m Bad Gateway xxx")
    assert len(error.message) <= 256


def test_json_that_is_no_status_is_quoted():
    error = error_from_response(LIST, 500, headers(), b'{"kind":"Other"}')
    assert error.message == '{"kind":"Other"}'


def test_a_redirect_is_an_error_that_names_where_to():
    error = error_from_response(LIST, 302, headers(Location="https://login"), b"")
    assert "redirect to 'https://login'" in error.message


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("7", 7.0), (" 7 ", 7.0), ("-1", None), ("soon", None), ("9" * 30, None), ("²", None)],
)
def test_retry_after_is_read_as_seconds(value, seconds):
    assert error_from_response(LIST, 429, headers(Retry_After=value), b"").retry_after == seconds


def test_the_header_goes_before_the_status_for_retry_after():
    body = b'{"kind":"Status","details":{"retryAfterSeconds":1}}'
    assert error_from_response(LIST, 429, headers(Retry_After="9"), body).retry_after == 9.0
    assert error_from_response(LIST, 429, headers(), body).retry_after == 1.0


@pytest.mark.parametrize(
    "error",
    [
        error_from_status(
            {"code": 409, "reason": "Conflict", "details": {"causes": [{"reason": "a"}]}},
            request=LIST,
        ),
        c.ConnectionLost("gone", sent=True),
        c.ConnectFailed("refused"),
    ],
)
def test_errors_cross_process_borders(error):
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert copy.__dict__ == error.__dict__


def test_every_error_of_the_package_has_one_root():
    for error in (c.ApiError, c.TransportError, c.ConfigError):
        assert issubclass(error, c.ClientError)
    assert issubclass(c.ConfigError, ValueError)


# -- Errors made by hand ---------------------------------------------------------------------

KINDS = [kind for name in c.__all__ if isinstance(kind := getattr(c, name), type)]
API_ERRORS = [kind for kind in KINDS if issubclass(kind, c.ApiError)]


@pytest.mark.parametrize("kind", API_ERRORS)
def test_an_error_made_by_hand_has_the_status_and_reason_of_its_class(kind):
    error = kind("only on Sundays")
    assert error.to_status() == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "only on Sundays",
        **({"reason": error.reason} if error.reason else {}),
        "code": error.status,
    }
    if kind not in (c.ApiError, c.ServerError):
        assert error.reason == kind.__name__
        assert type(error_from_status(error.to_status())) is kind
    assert kind("x", status=599, reason="Odd").to_status()["code"] == 599


TEXT = st.text(max_size=8)


@given(
    st.sampled_from(["", "Invalid", "Forbidden", "Expired", "Odd", *(k.__name__ for k in KINDS)]),
    st.integers(1, 999),
    TEXT,
    st.lists(st.builds(c.Cause, TEXT, TEXT, TEXT), max_size=3),
    st.none() | st.integers(1, 99).map(float),
    TEXT,
)
def test_a_status_and_its_error_are_inverse(reason, code, message, causes, retry_after, token):
    kind = type(error_from_status({"reason": reason, "code": code}))
    made = kind(
        message,
        status=code,
        reason=reason,
        causes=causes,
        details={"name": "a"},
        retry_after=retry_after,
        continue_token=token,
    )
    status = made.to_status()
    again = error_from_status(status)
    assert type(again) is kind
    for name in ("message", "status", "reason", "causes", "retry_after", "continue_token"):
        assert getattr(again, name) == getattr(made, name), name
    assert again.to_status() == status
    assert pickle.loads(pickle.dumps(again)).to_status() == status


def test_a_status_can_be_changed_without_its_error():
    error = error_from_status({"code": 422, "details": {"causes": [{"reason": "a"}]}})
    error.to_status()["details"]["causes"].clear()
    assert error.to_status()["details"] == {"causes": [{"reason": "a"}]}


def test_an_invalid_object_is_refused_as_servers_do():
    spec = field("spec")
    twice = spec["size"].required()
    error = c.Invalid.of(WIDGET, 'a"', [twice, twice, spec["color"].forbidden("no")])
    assert error.to_status() == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": (
            r'Widget.example.com "a\"" is invalid: '
            "[spec.size: Required value, spec.color: Forbidden: no]"
        ),
        "reason": "Invalid",
        "details": {
            "name": 'a"',
            "group": "example.com",
            "kind": "Widget",
            "causes": [
                *[
                    {
                        "reason": "FieldValueRequired",
                        "message": "Required value",
                        "field": "spec.size",
                    }
                ]
                * 2,
                {
                    "reason": "FieldValueForbidden",
                    "message": "Forbidden: no",
                    "field": "spec.color",
                },
            ],
        },
        "code": 422,
    }
    assert error.causes[1] == c.Cause("FieldValueRequired", "Required value", "spec.size")
    assert error.has_cause("FieldValueForbidden")


def test_one_error_and_none_are_told_without_brackets():
    pod = Kind(group="", version="v1", kind="Pod")
    required = field("spec").required()
    text = 'Pod "" is invalid: spec: Required value'
    for errors in (required, [required], iter([required, required])):
        assert c.Invalid.of(pod, "", errors).message == text
    assert c.Invalid.of(pod, "a", []).message == 'Pod "a" is invalid'
    assert c.Invalid.of(pod, "", []).to_status()["details"] == {"kind": "Pod"}


@pytest.mark.parametrize("errors", ["spec is wrong", [ValueError("spec")], [("spec", "wrong")]])
def test_only_errors_of_fields_make_an_object_invalid(errors):
    with pytest.raises(TypeError, match=r'make it with a field.s path, such as field\("spec"\)'):
        c.Invalid.of(WIDGET, "a", errors)


def test_an_invalid_object_has_a_kind():
    with pytest.raises(TypeError, match="is not a Kind"):
        c.Invalid.of("Widget", "a", [])
