from __future__ import annotations

import pytest

from appsdk_operator.client._request import Request, check_path_segment, selector_text


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a%2fb"])
def test_a_name_that_could_lead_elsewhere_is_refused(name):
    with pytest.raises(ValueError, match="cannot be part of a path"):
        check_path_segment("name", name)


def test_a_request_is_described_as_rbac_rules_are_written():
    request = Request(
        method="PUT", path="/p", verb="update", resource="pods/status", namespace="x", name="a"
    )
    assert str(request) == "update pods/status 'a' in namespace 'x'"
    assert str(Request(method="GET", path="/version")) == "GET /version"


def test_a_body_is_not_in_the_repr():
    assert "hunter2" not in repr(Request(method="POST", path="/p", body=b"hunter2"))


def test_selectors_go_on_the_wire_as_text():
    class Selector:
        def __str__(self):
            return "a in (b)"

    assert selector_text(None) is None
    assert selector_text("a=b") == "a=b"
    assert selector_text({"a": "b"}) == "a=b"
    assert selector_text(Selector()) == "a in (b)"
