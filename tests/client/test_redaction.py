"""No text of a server brings credentials, control characters or a flood into errors and logs."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import logging
import string
import traceback
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appsdk_operator import client as c
from appsdk_operator.client import _redaction
from appsdk_operator.client._redaction import (
    MASK,
    SentCredentials,
    display_text,
    redacted,
    redacted_json,
)
from appsdk_operator.resource import DecodeError
from tests.client.conftest import CHUNKED, WIDGET, answer, chunk, failure, widget

TOKEN = "eyJhbGciOiJSUzI1NiIsImtpZCI6IjEifQ.eyJzdWIiOiJzeXN0ZW0ifQ.c2lnbmF0dXJl-_0123456789"


def told(call, error=Exception):
    """All that a program may print of what a call raises."""
    with pytest.raises(error) as caught:
        call()
    found = caught.value
    parts = [str(found), repr(found), *traceback.format_exception(found)]
    names = ("message", "reason", "causes", "details")
    parts += [repr(getattr(found, name, "")) for name in names]
    return found, "\n".join(parts)


def token_of(letter):
    return hashlib.sha256(letter.encode()).hexdigest()


def get(client):
    return client.get(WIDGET, "a", namespace="x")


def echo(make):
    """A server that puts what it was sent into its answer."""

    def reply(sock, request):
        head = "".join(f"{name}: {value}\r\n" for name, value in request.headers)
        sock.sendall(make(head))
        return False

    return reply


STATUS = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403}


@pytest.mark.parametrize(
    "make",
    [
        lambda head: answer(head.encode(), 502),
        lambda head: answer(f"<pre>{html.escape(head)}".encode(), 502),
        lambda head: answer(b" " * 200 + head[:-60].encode(), 502),
        lambda head: answer(b"", 302, headers={"Location": f"/?{quote(head, safe='')}"}),
        lambda head: answer({**STATUS, "message": head}, 403),
        lambda head: answer({**STATUS, "reason": head}, 403),
        lambda head: answer({**STATUS, "message": f"bad: {head[:-40]}"}, 403),
        lambda head: answer(
            {**STATUS, "details": {"name": head, "causes": [{"message": head, "field": head}]}},
            403,
        ),
        lambda head: answer({**STATUS, "details": {head: {"a": {"b": {"c": [head]}}}}}, 403),
        lambda head: head.encode() + b"\r\n",
        lambda head: b"HTTP/1.1 200 OK\r\n" + head.replace(":", " :").encode() + b"\r\n",
        lambda head: CHUNKED + head.partition("Authorization")[2].encode() + b"\r\n",
        lambda head: answer(b"<" + head.partition("Authorization: ")[2].encode()),
        lambda head: answer(widget(name=head)),
        lambda head: answer(head.encode(), headers={"Content-Encoding": head[-60:].strip()}),
    ],
)
@pytest.mark.parametrize(
    ("options", "secrets"),
    [
        ({"token": TOKEN}, [TOKEN]),
        ({"username": "jane", "password": "correct horse"}, ["correct horse", "amFuZTpjb3Jy"]),
    ],
)
def test_an_echo_of_the_request_shows_no_credentials(serve, connect, make, options, secrets):
    client = connect(serve(echo(make)), max_retries=0, **options)
    _, text = told(lambda: get(client), (c.ClientError, DecodeError))
    for secret in secrets:
        assert not [
            part
            for form in (secret, html.escape(secret), quote(secret, safe=""))
            for start in range(max(1, len(form) - 23))
            if (part := form[start : start + 24]) in text
        ]


def test_an_error_inside_a_watch_shows_no_credentials(serve, connect):
    event = json.dumps({"type": "ERROR", "object": {**STATUS, "message": f"token {TOKEN}"}})
    client = connect(serve(CHUNKED + chunk(event.encode() + b"\n") + b"0\r\n\r\n"), token=TOKEN)
    with client.watch(WIDGET) as stream:
        error, text = told(lambda: list(stream.events()), c.ApiError)
    assert TOKEN not in text
    assert error.message == f"token {MASK}"


def test_warnings_show_no_credentials_no_control_characters_and_no_flood(serve, connect, caplog):
    warnings = ", ".join(
        f'299 - "{text}"' for text in (f"you sent {TOKEN}", "\x1b[31mred\tx", "long" * 900)
    )
    client = connect(serve(answer(widget(), headers={"Warning": warnings})), token=TOKEN)
    with caplog.at_level(logging.WARNING, "appsdk_operator.client"):
        get(client)
    first, second, third = [record.getMessage() for record in caplog.records]
    assert first == f"the API server warns: you sent {MASK}"
    assert second == r"the API server warns: \x1b[31mred\tx"
    assert len(third) < 1200
    assert third.endswith("(2576 characters more)")


def test_warnings_without_an_end_cost_no_time(serve, connect, caplog):
    head = {"Warning": '299 a "' * 9000}
    client = connect(serve(answer(widget(), headers=head)))
    with caplog.at_level(logging.WARNING, "appsdk_operator.client"):
        assert get(client).name == "a"


def test_a_long_location_is_cut(serve, connect):
    reply = answer(b"", 301, headers={"Location": "http://x/\x1b" + "y" * 60_000})
    error, text = told(lambda: get(connect(serve(reply), max_retries=0)), c.ApiError)
    assert len(str(error)) < 500
    assert "\x1b" not in text
    assert "not followed" in text


def test_a_status_is_one_line_and_not_endless(serve, connect):
    reply = failure(403, "For\nbid\x1b[0m", "first\nsecond\x1b[31m" + "x" * 100_000)
    error, _ = told(lambda: get(connect(serve(reply), max_retries=0)), c.ApiError)
    assert r"For\nbid\x1b[0m: first\nsecond\x1b[31m" in str(error)
    assert len(str(error)) < 5000


@pytest.mark.parametrize(
    "status",
    [
        {"code": 10**5000, "details": {"retryAfterSeconds": 10**400}},
        {"code": -1, "details": {"retryAfterSeconds": -(10**400)}},
        {"code": True, "reason": 5, "message": [], "details": {"causes": {"a": 1}}},
        {"details": {"causes": [None, 5, {"message": 5}], "retryAfterSeconds": 1.5}},
    ],
)
def test_no_status_is_more_than_an_error(status):
    error = c.error_from_status(status)
    assert str(error)
    assert error.retry_after is None or 0 < error.retry_after <= 1e9


@given(
    st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=6, max_size=60),
    st.text(max_size=40),
    st.text(max_size=40),
    st.integers(0, 60),
    st.integers(0, 60),
)
def test_no_run_of_a_credential_comes_through(token, before, after, start, end):
    secrets = SentCredentials()
    secrets.add(f"Bearer {token}")
    part = token[start : len(token) - end]
    text = redacted(before + part + after)
    assert f"Bearer {token}" not in text
    if len(token) >= 16:
        runs = {token[i : i + 16] for i in range(len(token) - 15)}
        assert not [run for run in runs if run in text]
    elif token not in MASK:
        assert token not in text


def test_other_texts_are_left_as_they_are():
    secrets = SentCredentials()
    secrets.add("Bearer abc")
    secrets.add("Basic " + base64.b64encode(b"a:b").decode())
    assert redacted('pods "abc" not found') == 'pods "abc" not found'
    assert redacted_json({"a": [1, None, True, {"b": "c"}]}) == {"a": [1, None, True, {"b": "c"}]}
    assert display_text("plain äöü", limit=100) == "plain äöü"


def test_a_token_that_was_replaced_is_still_a_secret():
    secrets = SentCredentials()
    for letter in "ABCDEF":
        secrets.add(f"Bearer {token_of(letter)}")
    assert redacted(f"old {token_of('E')}") == f"old {MASK}"
    assert len(secrets.spellings()) == 4


def test_the_secrets_of_a_client_that_is_gone_are_forgotten():
    secrets = SentCredentials()
    secrets.add(f"Bearer {token_of('G')}")
    assert redacted(token_of("G")) == MASK
    del secrets
    assert redacted(token_of("G")) == token_of("G")


def test_secrets_are_escaped_as_html_does():
    text = string.printable + '&amp;<<"\'"ä'
    assert _redaction._html_escaped(text) == html.escape(text)
