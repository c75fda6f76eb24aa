from __future__ import annotations

import pytest

from appsdk_operator.client._transport.proxy import bypasses, proxy_for


@pytest.mark.parametrize(
    ("host", "entry", "direct"),
    [
        ("api.example.com", "example.com", True),
        ("api.example.com", ".example.com", True),
        ("api.example.com", "*.example.com", True),
        ("example.com", ".example.com", False),
        ("example.com", "example.com", True),
        ("badexample.com", "example.com", False),
        ("API.Example.com.", "example.COM", True),
        ("10.1.2.3", "10.0.0.0/8", True),
        ("11.1.2.3", "10.0.0.0/8", False),
        ("10.1.2.3", "10.1.2.3", True),
        ("fd00::1", "fd00::/8", True),
        ("10.1.2.3", "fd00::/8", False),
        ("api.example.com", "10.0.0.0/8", False),
        ("10.1.2.3", "1.2.3", False),
        ("anything", "*", True),
        ("anything", " ", False),
        ("localhost", "", False),
        ("localhost", "localhost", True),
        ("127.0.0.1", "", False),
        ("127.0.0.1", "localhost", False),
        ("::1", "::1", True),
    ],
)
def test_no_proxy_is_read_as_other_programs_read_it(host, entry, direct):
    assert bypasses(host, [entry]) is direct


def test_a_proxy_keeps_its_password_out_of_its_name():
    proxy = proxy_for("api.example.com", "https://me:p%40ss@proxy", ())
    assert proxy is not None
    assert (str(proxy), proxy.port) == ("https://proxy:443", 443)
    assert proxy.authorization == "Basic bWU6cEBzcw=="
    assert "p@ss" not in repr(proxy)
    assert "bWU6" not in repr(proxy)


def test_without_a_proxy_the_way_is_direct():
    assert proxy_for("api.example.com", None, ()) is None


@pytest.mark.parametrize(
    ("entry", "host", "direct"),
    [
        ("api.example.com:6443", "api.example.com", True),
        ("example.com:6443", "api.example.com", True),
        (".example.com:6443", "api.example.com", True),
        ("api.example.com:443", "api.example.com", False),
        ("10.0.0.1:6443", "10.0.0.1", True),
        ("10.0.0.1:443", "10.0.0.1", False),
        ("[fd00::1]:6443", "fd00::1", True),
        ("[fd00::1]:443", "fd00::1", False),
        ("[fd00::1]", "fd00::1", False),
        ("fd00::1", "fd00::1", True),
        (":6443", "api.example.com", False),
    ],
)
def test_an_entry_with_a_port_exempts_that_port_alone(entry, host, direct):
    assert bypasses(host, [entry], 6443) is direct
