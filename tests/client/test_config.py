from __future__ import annotations

import datetime as dt

import pytest

from appsdk_operator.client import ClientConfig, ConfigError, Credentials, Impersonation

OK = "https://10.0.0.1:6443"


@pytest.mark.parametrize(
    "options",
    [
        {"server": "10.0.0.1:6443"},
        {"server": "ftp://host"},
        {"server": "https://"},
        {"server": "https://user:secret@host"},
        {"server": "https://host/?a=b"},
        {"server": "https://host:99999"},
        {"server": "https://ho st"},
        {"server": "https://host\r\nX: y"},
        {"proxy_url": "socks5://host"},
        {"proxy_url": "http://user:secret@"},
        {"ca_file": "a", "ca_data": "b"},
        {"unsafe_skip_tls_verify": True, "ca_data": "b"},
        {"cert_file": "a", "key_data": "b"},
        {"key_file": "a"},
        {"key_data": "a"},
        {"token": "a", "token_file": "b"},
        {"token": "a", "username": "u", "password": "secret"},
        {"token": "a", "credentials": Credentials()},
        {"username": "u"},
        {"password": "secret"},
        {"tls_server_name": "a\nb"},
        {"tls_server_name": "a..b"},
        {"tls_server_name": ".a"},
        {"tls_server_name": "x" * 64},
        {"tls_server_name": "\u00fc" * 64},
        {"server": "https://a..b"},
        {"proxy_url": "http://user:secret@a..b:3128"},
        {"user_agent": "a\r\nb"},
        {"connect_timeout": 0},
        {"read_timeout": -1},
        {"read_timeout": float("inf")},
        {"qps": 0},
        {"burst": 0},
        {"max_retries": -1},
        {"retry_backoff": -1},
        {"retry_max_wait": 0},
        {"max_response_bytes": 0},
    ],
)
def test_what_cannot_work_is_refused_when_it_is_given(options):
    with pytest.raises(ConfigError) as caught:
        ClientConfig(**{"server": OK, **options})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("name", ["", "api.test.", "10.0.0.1", "::1", "b\u00fccher.test"])
def test_a_name_that_a_certificate_may_have_is_taken(name):
    assert ClientConfig(server=OK, tls_server_name=name).tls_server_name == name


def test_a_server_name_that_is_none_is_shown_with_the_remedy():
    with pytest.raises(
        ConfigError, match=r"tls_server_name='a\.\.b' is not a name of a server: give"
    ):
        ClientConfig(server=OK, tls_server_name="a..b")


def test_an_address_that_is_none_is_shown_unless_it_may_carry_a_password():
    with pytest.raises(ConfigError, match=r"not '127\.0\.0\.1:6443'"):
        ClientConfig(server="127.0.0.1:6443")
    for option in (
        {"server": "u:secret@host"},
        {"server": "host?token=secret"},
        {"server": OK, "proxy_url": "secret"},
    ):
        with pytest.raises(ConfigError) as caught:
            ClientConfig(**option)
        assert "secret" not in str(caught.value)


def test_the_defaults_are_those_that_are_promised():
    config = ClientConfig(server=OK)
    assert (config.connect_timeout, config.read_timeout, config.qps) == (10.0, 30.0, None)
    assert config.max_retries == 4
    assert config.user_agent.startswith("appsdk-operator/")
    assert not config.unsafe_skip_tls_verify


def test_no_secret_is_in_a_repr():
    text = repr(
        ClientConfig(
            server=OK,
            token="s3cret",
            cert_data="s3cret",
            key_data="s3cret",
            proxy_url="http://u:s3cret@proxy",
        )
    )
    text += repr(ClientConfig(server=OK, username="u", password="s3cret"))
    text += repr(ClientConfig(server=OK, token_provider=lambda: "s3cret"))
    assert "s3cret" not in text


@pytest.mark.parametrize(
    "options",
    [
        {"user": ""},
        {"user": "a\nb"},
        {"user": "a", "groups": ["b\r"]},
        {"user": "a", "uid": "\x00"},
        {"user": "a", "extra": {"k": ["v\n"]}},
    ],
)
def test_an_impersonation_that_no_server_takes_is_refused(options):
    with pytest.raises(ConfigError):
        Impersonation(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"server": 5},
        {"server": None},
        *({name: 5} for name in ("ca_file", "cert_file", "key_file", "token_file")),
        *({name: ["x"]} for name in ("ca_file", "ca_data", "token", "username", "user_agent")),
        *({name: ""} for name in ("ca_file", "ca_data", "cert_file", "token_file", "token")),
        *({name: b"x"} for name in ("ca_file", "token", "username", "password", "user_agent")),
        {"username": "a:b", "password": "x"},
        *(
            {name: wrong}
            for name in ("unsafe_skip_tls_verify", "compression", "detailed_metrics")
            for wrong in ("false", 0, None)
        ),
        {"token": "two words"},
        {"token": "tök"},
        {"token_provider": "tok"},
        {"connector": 5},
        {"credentials": Credentials},
        {"credentials": "tok"},
        {"impersonate": "jane"},
        {"impersonate": Impersonation},
        {"no_proxy": "a.test,b.test"},
        {"no_proxy": [5]},
        {"no_proxy": None},
        {"proxy_url": 5},
        {"tls_server_name": 5},
        *(
            {name: wrong}
            for name in ("connect_timeout", "read_timeout", "retry_backoff", "retry_max_wait")
            for wrong in ("5", None, True, dt.timedelta(seconds=5), float("nan"))
        ),
        *(
            {name: wrong}
            for name in ("burst", "max_retries", "max_response_bytes")
            for wrong in ("5", None, True, 1.5, float("nan"))
        ),
        {"qps": "5"},
        {"qps": float("inf")},
    ],
    ids=repr,
)
def test_what_is_of_another_type_is_refused_with_the_name_of_the_option(options):
    with pytest.raises((TypeError, ConfigError, ValueError)) as caught:
        ClientConfig(**{"server": OK, **options})
    assert next(iter(options)) in str(caught.value)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"user": 5}, "user"),
        ({"user": None}, "user"),
        ({"user": "a", "groups": "dev"}, "groups"),
        ({"user": "a", "groups": [5]}, "groups"),
        ({"user": "a", "groups": None}, "groups"),
        ({"user": "a", "uid": 5}, "uid"),
        ({"user": "a", "extra": ["k"]}, "extra"),
        ({"user": "a", "extra": {"k": "value"}}, "extra"),
        ({"user": "a", "extra": {"k": [5]}}, "extra"),
        ({"user": "a", "extra": {5: ["v"]}}, "extra"),
        ({"user": "a", "extra": {"": ["v"]}}, "extra"),
    ],
)
def test_an_impersonation_of_other_types_is_refused(options, name):
    with pytest.raises((TypeError, ValueError), match=name):
        Impersonation(**options)
