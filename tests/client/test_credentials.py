from __future__ import annotations

import contextlib
import os

import pytest

from appsdk_operator.client import Client, ClientConfig, ConfigError, Credentials
from appsdk_operator.client._auth.config import credentials_of
from appsdk_operator.client._auth.credentials import ProvidedToken, TokenFile
from appsdk_operator.runtime import ManualClock, Metrics
from tests.hostile_values import MISBEHAVIOURS

OK = "https://10.0.0.1:6443"


def header(**options):
    return credentials_of(ClientConfig(server=OK, **options), ManualClock()).authorization()


def test_each_way_to_authenticate_gives_its_header(tmp_path):
    (tmp_path / "token").write_text("from-file\n")
    assert header() is None
    assert header(token="abc ") == "Bearer abc"
    assert header(token_file=tmp_path / "token") == "Bearer from-file"
    assert header(token_provider=lambda: "made") == "Bearer made"
    assert header(username="jane", password="pä:ss") == "Basic amFuZTpww6Q6c3M="

    class Own(Credentials):
        def authorization(self):
            return "Digest x"

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
    assert credentials.authorization() == "Bearer one"
    path.write_text("second")
    clock.advance(59.0)
    assert credentials.authorization() == "Bearer one"
    clock.advance(1.0)
    assert credentials.authorization() == "Bearer second"


def test_a_refused_token_has_its_file_looked_at_at_once(tmp_path):
    path = tmp_path / "token"
    path.write_text("one")
    credentials = TokenFile(str(path), clock=ManualClock())
    assert credentials.authorization() == "Bearer one"
    stamp = path.stat()
    path.write_text("two")
    # Not even the time stamp has to differ.
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    credentials.reload()
    assert credentials.authorization() == "Bearer two"


def test_a_token_file_that_is_gone_for_a_moment_keeps_its_token(tmp_path):
    path, clock = tmp_path / "token", ManualClock()
    path.write_text("one")
    credentials = TokenFile(str(path), clock=clock)
    assert credentials.authorization() == "Bearer one"
    path.write_text("")
    clock.advance(60.0)
    assert credentials.authorization() == "Bearer one"
    path.unlink()
    clock.advance(60.0)
    assert credentials.authorization() == "Bearer one"
    path.write_text("new")
    clock.advance(60.0)
    assert credentials.authorization() == "Bearer new"


def test_a_token_file_that_comes_back_is_read_whatever_its_time_stamp(tmp_path):
    path, clock = tmp_path / "token", ManualClock()
    path.write_text("one")
    stamp = path.stat()
    credentials = TokenFile(str(path), clock=clock)
    assert credentials.authorization() == "Bearer one"
    path.write_text("")
    clock.advance(60.0)
    assert credentials.authorization() == "Bearer one"
    # As within one tick of the clock of files, and in the inode that has become free.
    path.write_text("two")
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    clock.advance(60.0)
    assert credentials.authorization() == "Bearer two"


@pytest.mark.parametrize("content", [None, "", "two words"])
def test_a_token_file_that_never_was_readable_is_an_error_that_names_it(tmp_path, content):
    path = tmp_path / "token"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=str(path)):
        TokenFile(str(path)).authorization()


def test_plain_credentials_send_nothing():
    assert Credentials().authorization() is None
    assert Credentials().client_certificate() is None
    Credentials().reload()


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
        def authorization(self):
            return given

    with (
        Client(ClientConfig(server=OK, credentials=Own()), metrics=Metrics()) as client,
        pytest.raises(ConfigError, match=r"Own\.authorization\(\) must return one line") as caught,
    ):
        client.request("GET", "/version")
    assert "tök" not in str(caught.value)


@pytest.mark.parametrize("name", MISBEHAVIOURS)
def test_a_provider_of_tokens_fails_its_own_request_alone(name):
    turns, answers = iter([MISBEHAVIOURS[name], lambda: "made"]), []

    def provide():
        return next(turns)()

    token = ProvidedToken(provide)
    with contextlib.suppress(BaseException):
        answers.append(token.authorization())
    assert answers in ([], ["Bearer text"])
    assert token.authorization() == "Bearer made"
