"""Authentication webhooks: what they answer to which body, as controller-runtime's tests pin it."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appsdk_operator.runtime import LoopThread
from appsdk_operator.serving import HTTPRequest
from appsdk_operator.webhooks import (
    TokenReviewRequest,
    TokenReviewResponse,
    TokenReviewWebhook,
    UserInfo,
)

V1 = '"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1"'
BETA = '"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1beta1"'


def accept_everybody(request: TokenReviewRequest) -> TokenReviewResponse:
    """Answer without a user."""
    return TokenReviewResponse(is_authenticated=True)


def asked(body: bytes | str, content_type: str = "application/json") -> HTTPRequest:
    """The HTTP request of an API server."""
    data = body.encode() if isinstance(body, str) else body
    headers = {"Content-Type": content_type} if content_type else {}
    return HTTPRequest(method="POST", path="/authenticate", body=data, headers=headers)


def error_text(message: str) -> bytes:
    """The whole answer to a body that cannot be used."""
    text = json.dumps(message)
    return b'{"metadata":{},"spec":{},"status":{"user":{},"error":%s}}\n' % text.encode()


@pytest.mark.parametrize(
    ("body", "content_type", "error"),
    [
        ("", "application/json", "request body is empty"),
        ("{}", "application/foo", "contentType=application/foo, expected application/json"),
        ("{}", "", "contentType=, expected application/json"),
        (
            "{}",
            "application/json; charset=utf-8",
            "contentType=application/json; charset=utf-8, expected application/json",
        ),
        (
            "{",
            "application/json",
            "couldn't get version/kind; json parse error: unexpected end of JSON input",
        ),
        ('{"spec":{"token":""}}', "application/json", "token is empty"),
        ("{}", "application/json", "token is empty"),
        ('{"spec":null}', "application/json", "token is empty"),
        (
            "x" * (1 << 20),
            "application/foo",
            "request entity is too large; limit is 1048576 bytes",
        ),
    ],
)
def test_a_body_that_cannot_be_used_gets_an_error_text_without_a_version(
    body: str, content_type: str, error: str
) -> None:
    answer = TokenReviewWebhook(accept_everybody)(asked(body, content_type))
    assert (answer.status, answer.content_type) == (200, "application/json")
    assert answer.body == error_text(error)


@pytest.mark.parametrize(("head", "version"), [("", V1), (V1 + ",", V1), (BETA + ",", BETA)])
def test_the_answer_is_of_the_version_that_was_asked(head: str, version: str) -> None:
    answer = TokenReviewWebhook(accept_everybody)(asked(f'{{{head}"spec":{{"token":"foobar"}}}}'))
    assert answer.body.decode() == (
        f'{{{version},"metadata":{{}},"spec":{{}},"status":{{"authenticated":true,"user":{{}}}}}}\n'
    )


@pytest.mark.parametrize(
    "head",
    [
        '"kind":"Pod","apiVersion":"v1"',
        '"kind":"TokenReview","apiVersion":"v1"',
        '"kind":"SubjectAccessReview","apiVersion":"authentication.k8s.io/v1"',
    ],
)
def test_another_kind_is_no_token_review(head: str) -> None:
    answer = TokenReviewWebhook(accept_everybody)(asked(f'{{{head},"spec":{{"token":"a"}}}}'))
    status = json.loads(answer.body)["status"]
    assert "authenticated" not in status
    assert "this webhook answers TokenReview of authentication.k8s.io/v1" in status["error"]


def test_the_handler_gets_all_of_the_review_and_its_http_request() -> None:
    seen: list[TokenReviewRequest] = []
    body = f'{{{BETA},"metadata":{{"uid":"u-1"}},"spec":{{"token":"abc","audiences":["api","x"]}}}}'

    def check(request: TokenReviewRequest) -> None:
        seen.append(request)

    answer = TokenReviewWebhook(check)(asked(body))
    assert seen == [
        TokenReviewRequest(
            token="abc",
            audiences=("api", "x"),
            uid="u-1",
            api_version="authentication.k8s.io/v1beta1",
        )
    ]
    assert seen[0].http is not None
    assert seen[0].http.path == "/authenticate"
    # The uid of the request is that of the answer.
    assert json.loads(answer.body)["metadata"] == {"uid": "u-1"}
    assert json.loads(answer.body)["status"] == {"user": {}}
    assert "abc" not in repr(seen[0])


JANE = UserInfo("jane", uid="7", groups=["devs"], extra={"scopes": ["read", "write"]})


@pytest.mark.parametrize(
    ("verdict", "status"),
    [
        (None, {"user": {}}),
        (TokenReviewResponse.unauthenticated("expired"), {"user": {}, "error": "expired"}),
        (TokenReviewResponse.errored(OSError("no route")), {"user": {}, "error": "no route"}),
        (UserInfo("jane"), {"authenticated": True, "user": {"username": "jane"}}),
        (
            TokenReviewResponse.authenticated(JANE, audiences=["api"], reason="fine"),
            {
                "authenticated": True,
                "user": {
                    "username": "jane",
                    "uid": "7",
                    "groups": ["devs"],
                    "extra": {"scopes": ["read", "write"]},
                },
                "audiences": ["api"],
                "error": "fine",
            },
        ),
    ],
)
@pytest.mark.parametrize("is_async", [False, True])
def test_verdicts_of_plain_and_async_handlers(
    verdict: Any, status: dict[str, Any], is_async: bool
) -> None:
    async def check_async(request: TokenReviewRequest) -> Any:
        return verdict

    handler = check_async if is_async else lambda request: verdict
    answer = TokenReviewWebhook(handler)(asked('{"spec":{"token":"a"}}'))
    assert json.loads(answer.body)["status"] == status


def test_an_async_handler_runs_on_the_loop_of_the_server() -> None:
    import asyncio

    loops: list[asyncio.AbstractEventLoop] = []

    async def check(request: TokenReviewRequest) -> None:
        loops.append(asyncio.get_running_loop())

    loop = LoopThread("test")
    with loop.bound():
        for _ in range(2):
            TokenReviewWebhook(check)(asked('{"spec":{"token":"a"}}'))
    loop.close()
    assert loops[0] is loops[1]


@pytest.mark.parametrize("failure", [ValueError("token s3cret is wrong"), KeyError("s3cret")])
def test_a_handler_that_raises_is_an_error_that_names_it_and_not_what_it_said(
    failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    def broken_check(request: TokenReviewRequest) -> None:
        raise failure

    webhook = TokenReviewWebhook(broken_check, name="company login")
    with caplog.at_level(logging.ERROR, logger="appsdk_operator"):
        answer = webhook(asked('{"spec":{"token":"s3cret"}}'))
    assert json.loads(answer.body)["status"] == {
        "user": {},
        "error": "the authentication webhook company login failed: see its log",
    }
    (record,) = caplog.records
    assert record.getMessage() == "the authentication webhook company login failed"
    assert record.exc_info


def test_a_handler_that_returns_something_else_authenticates_nobody() -> None:
    handler: Any = lambda request: True  # noqa: E731
    answer = TokenReviewWebhook(handler)(asked('{"spec":{"token":"a"}}'))
    assert "authenticated" not in json.loads(answer.body)["status"]
    assert "gave no answer" in json.loads(answer.body)["status"]["error"]


@pytest.mark.parametrize(
    "verdict", [UserInfo("jane\ud800"), TokenReviewResponse.unauthenticated("\ud800")]
)
def test_an_answer_that_is_no_json_authenticates_nobody(verdict: Any) -> None:
    answer = TokenReviewWebhook(lambda request: verdict)(asked('{"spec":{"token":"a"}}'))
    assert json.loads(answer.body)["status"] == {"user": {}, "error": "unable to encode response"}


def test_what_is_no_handler_is_refused() -> None:
    wrong: Any = lambda: None  # noqa: E731
    with pytest.raises(TypeError, match=r"handler=.* is not a function of \(request\)"):
        TokenReviewWebhook(wrong)
    with pytest.raises(TypeError, match="user='jane'"):
        TokenReviewResponse.authenticated("jane")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="is_authenticated='false'"):
        TokenReviewResponse(is_authenticated="false")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="groups='admins'"):
        UserInfo("jane", groups="admins")


def test_a_deep_document_is_refused() -> None:
    deep = '{"spec":{"token":"a"},"metadata":' + '{"a":' * 100_000 + "1" + "}" * 100_000 + "}"
    status = json.loads(TokenReviewWebhook(accept_everybody)(asked(deep)).body)["status"]
    assert "authenticated" not in status


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_no_body_makes_it_fail_or_authenticates(body: bytes) -> None:
    answer = TokenReviewWebhook(accept_everybody)(asked(body))
    assert answer.status == 200
    status = json.loads(answer.body)["status"]
    assert "authenticated" not in status or b"token" in body
    assert ("error" in status) != ("authenticated" in status)


@given(
    st.builds(
        UserInfo,
        st.text(),
        st.text(),
        st.lists(st.text()),
        st.dictionaries(st.text(), st.lists(st.text())),
    )
)
def test_a_user_survives_the_way_through_json(user: UserInfo) -> None:
    assert UserInfo.of(user.to_dict()) == user
