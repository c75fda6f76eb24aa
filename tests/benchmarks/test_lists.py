"""The rate of lists is measured in each form, and shown beside that of another server."""

from __future__ import annotations

import pytest

from appsdk_operator.testing import APIServer
from benchmarks import lists


@pytest.mark.parametrize("has_writes", [False, True])
def test_each_kind_is_listed_in_each_form(*, has_writes: bool) -> None:
    with APIServer(tls=True) as server:
        found = lists.measure(server.kubeconfig(), seconds=0.05, objects=3, has_writes=has_writes)
    kinds, forms = ("pods", "configmaps"), (lists.PROTOBUF, lists.JSON)
    assert list(found) == [(kind, form) for kind in kinds for form in forms]
    assert all(rate > 0 for rate in found.values())


def test_a_ratio_is_shown_where_there_is_another_server() -> None:
    ours = {("pods", lists.PROTOBUF): 150.0}
    assert lists.lines(ours, None) == ["pods       protobuf   150.0 lists/s"]
    assert lists.lines(ours, {("pods", lists.PROTOBUF): 50.0}) == [
        "pods       protobuf   150.0 lists/s, real server    50.0 lists/s, ratio 3.00"
    ]
