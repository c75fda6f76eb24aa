from __future__ import annotations

import contextlib
import os

import pytest

from appsdk_operator.client import (
    Client,
    ClientConfig,
    ConfigError,
    Credential,
    Credentials,
    RequestStopped,
)
from appsdk_operator.client._auth.config import credentials_of
from appsdk_operator.client._auth.credentials import ProvidedToken, TokenFile
from appsdk_operator.runtime import ManualClock, Metrics
from tests.credentials import authorization_of, obtain, refuse
from tests.hostile_values import MISBEHAVIOURS

OK = "https://10.0.0.1:6443"


def header(**options):
    return authorization_of(credentials_of(ClientConfig(server=OK, **options), ManualClock()))


def test_each_way_to_authenticate_gives_its_header(tmp_path):
    (tmp_path / "token").write_text("from-file\n")
    assert header() is None
    assert header(token="abc ") == "Bearer abc"
    assert header(token_file=tmp_path / "token") == "Bearer from-file"
    assert header(token_provider=lambda: "made") == "Bearer made"
    assert header(username="jane", password="pä:ss") == "Basic amFuZTpww6Q6c3M="

    class Own(Credentials):
        def obtain(self, stop):
            return Credential("Digest x")

    assert header(credentials=Own()) == "Digest x"


@pytest.mark.parametrize("token", ["", " ", "a b", "a\r\nX: y", "ä"])
def test_what_is_no_token_is_refused_and_not_shown(token):
    with pytest.raises(ConfigError, match="one word of printable ASCII") as caught:
        header(token_provider=lambda: token)
    assert "X: y" not in str(caught.value)


def test_a_token_file_is_read_again_when_it_changes_but_looked_at_once_a_minute(tmp_path):
    path, clock = tmp_path / "token", ManualClock()
    path.write_text("one")
    credentials = TokenFile(str(path), clock=clock)
    assert authorization_of(credentials) == "Bearer one"
    path.write_text("second")
    clock.advance(59.0)
    assert authorization_of(credentials) == "Bearer one"
    clock.advance(1.0)
    assert authorization_of(credentials) == "Bearer second"


def test_a_refused_token_has_its_file_looked_at_at_once(tmp_path):
    path = tmp_path / "token"
    path.write_text("one")
    credentials = TokenFile(str(path), clock=ManualClock())
    assert authorization_of(credentials) == "Bearer one"
    stamp = path.stat()
    path.write_text("two")
    # Not even the time stamp has to differ.
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    refuse(credentials)
    assert authorization_of(credentials) == "Bearer two"


def test_a_late_refusal_of_a_former_token_does_not_have_its_file_looked_at(tmp_path):
    path = tmp_path / "token"
    path.write_text("one")
    credentials = TokenFile(str(path), clock=ManualClock())
    former = obtain(credentials)
    path.write_text("second")
    credentials.refused(former)
    assert authorization_of(credentials) == "Bearer second"
    path.write_text("third one")
    credentials.refused(former)
    assert authorization_of(credentials) == "Bearer second"


def test_a_token_file_that_is_gone_for_a_moment_keeps_its_token(tmp_path):
    path, clock = tmp_path / "token", ManualClock()
    path.write_text("one")
    credentials = TokenFile(str(path), clock=clock)
    assert authorization_of(credentials) == "Bearer one"
    path.write_text("")
    clock.advance(60.0)
    assert authorization_of(credentials) == "Bearer one"
    path.unlink()
    clock.advance(60.0)
    assert authorization_of(credentials) == "Bearer one"
    path.write_text("new")
    clock.advance(60.0)
    assert authorization_of(credentials) == "Bearer new"


def test_a_token_file_that_comes_back_is_read_whatever_its_time_stamp(tmp_path):
    path, clock = tmp_path / "token", ManualClock()
    path.write_text("one")
    stamp = path.stat()
    credentials = TokenFile(str(path), clock=clock)
    assert authorization_of(credentials) == "Bearer one"
    path.write_text("")
    clock.advance(60.0)
    assert authorization_of(credentials) == "Bearer one"
    # As within one tick of the clock of files, and in the inode that has become free.
    path.write_text("two")
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    clock.advance(60.0)
    assert authorization_of(credentials) == "Bearer two"


@pytest.mark.parametrize("content", [None, "", "two words"])
def test_a_token_file_that_never_was_readable_is_an_error_that_names_it(tmp_path, content):
    path = tmp_path / "token"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=str(path)):
        authorization_of(TokenFile(str(path)))


def test_plain_credentials_send_nothing():
    assert obtain(Credentials()) == Credential(authorization=None, certificate=None)
    refuse(Credentials())


def test_a_token_file_without_an_end_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(b"x" * ((1 << 20) + 1))
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for path, text in (
        ("/dev/zero", "not a regular file"),
        (tmp_path / "pipe", "not a regular file"),
        (tmp_path / "large", "more than 1048576 bytes"),
        (tmp_path / "binary", "cannot be read"),
    ):
        with pytest.raises(ConfigError, match=text) as caught:
            header(token_file=path)
        assert str(path) in str(caught.value)


@pytest.mark.parametrize("given", [5, ["tok"], b"tok", None, object])
def test_what_a_provider_returns_must_be_text(given):
    with pytest.raises(ConfigError, match=r"token_provider returned .* must be text, but is of"):
        header(token_provider=lambda: given)


@pytest.mark.parametrize(
    "given", [5, ["Bearer x"], b"Bearer x", "Bearer x\r\nX: y", "Bearer tök", "", " "]
)
def test_what_is_no_header_is_never_sent(given):
    class Own(Credentials):
        def obtain(self, stop):
            return Credential(given)

    with (
        Client(ClientConfig(server=OK, credentials=Own()), metrics=Metrics()) as client,
        pytest.raises(ConfigError, match=r"Credential\.authorization must be one line") as caught,
    ):
        client.request("GET", "/version")
    assert "tök" not in str(caught.value)


@pytest.mark.parametrize(
    "given", [5, "cert", b"cert", (b"cert",), ["c", "k"], ("c", "k"), (b"c", 5)]
)
def test_what_is_no_certificate_with_its_key_is_refused_and_not_shown(given):
    with pytest.raises(ConfigError, match=r"Credential\.certificate must be a tuple") as caught:
        Credential(certificate=given)
    assert "cert'" not in str(caught.value)


def test_the_text_of_a_credential_does_not_show_it():
    credential = Credential("Bearer abc", (b"c", b"k"))
    assert repr(credential) == str(credential) == "Credential()"
    assert credential.__rich_repr__() == []


@pytest.mark.parametrize("given", [None, "Bearer x", ("Bearer x", None), object()])
def test_credentials_that_return_something_else_are_named(given):
    class Own(Credentials):
        def obtain(self, stop):
            return given

    with (
        Client(ClientConfig(server=OK, credentials=Own()), metrics=Metrics()) as client,
        pytest.raises(ConfigError, match=r"Own\.obtain\(\) must return a Credential, but not a"),
    ):
        client.request("GET", "/version")


def test_credentials_that_are_obtained_asynchronously_are_named():
    class Own(Credentials):
        async def obtain(self, stop):
            return Credential("Bearer x")

    with (
        Client(ClientConfig(server=OK, credentials=Own()), metrics=Metrics()) as client,
        pytest.raises(TypeError, match=r"Own\.obtain"),
    ):
        client.request("GET", "/version")


def test_what_is_returned_after_a_stop_is_not_looked_at():
    class Own(Credentials):
        def obtain(self, stop):
            client.close()
            assert stop.is_set()

    client = Client(ClientConfig(server=OK, credentials=Own()), metrics=Metrics())
    with client, pytest.raises(RequestStopped, match="stopped before it was sent"):
        client.request("GET", "/version")


@pytest.mark.parametrize("name", MISBEHAVIOURS)
def test_a_provider_of_tokens_fails_its_own_request_alone(name):
    turns, answers = iter([MISBEHAVIOURS[name], lambda: "made"]), []

    def provide():
        return next(turns)()

    token = ProvidedToken(provide)
    with contextlib.suppress(BaseException):
        answers.append(authorization_of(token))
    assert answers in ([], ["Bearer text"])
    assert authorization_of(token) == "Bearer made"
