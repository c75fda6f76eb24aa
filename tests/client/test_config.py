from __future__ import annotations

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
