from __future__ import annotations

import pytest

from appsdk_operator.client import Request
from appsdk_operator.client._request import selectors_of
from appsdk_operator.resource import FieldSelector, LabelSelector, check_path_segment


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
    assert selectors_of(None, "") == []
    assert selectors_of({}, {}) == []
    assert selectors_of("a=b", None) == [("labelSelector", "a=b")]
    assert selectors_of(None, {"a.b": "c,d"}) == [("fieldSelector", r"a.b=c\,d")]
    assert selectors_of(LabelSelector.parse("a in (b)"), FieldSelector.parse("c!=d")) == [
        ("labelSelector", "a in (b)"),
        ("fieldSelector", "c!=d"),
    ]
