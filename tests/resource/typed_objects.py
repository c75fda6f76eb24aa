"""Objects whose spec and status are read with a class."""

from __future__ import annotations

from typing import Any

import pytest

from appsdk_operator.resource import DecodeError, Kind, Object


def kind_of(view: Any) -> Kind[Any, Any]:
    return Kind(group="example.com", version="v1", kind="Widget", spec=view, status=view)


def read(view: Any, spec: Any) -> Any:
    """A spec as the class reads it; drafts and statuses are read alike."""
    data = {"metadata": {"name": "web", "namespace": "default"}, "spec": spec, "status": spec}
    obj = Object.from_dict(kind_of(view), data)
    assert obj.mutable_copy().spec == obj.spec
    assert obj.status == obj.spec
    return obj.spec


def refusal(view: Any, spec: Any) -> str:
    """The error of a spec that the class refuses; drafts say the same."""
    data = {"metadata": {"name": "web", "namespace": "default"}, "spec": spec}
    obj = Object.from_dict(kind_of(view), data)
    with pytest.raises(DecodeError) as of_object:
        _ = obj.spec
    with pytest.raises(DecodeError) as of_draft:
        _ = obj.mutable_copy().spec
    assert str(of_object.value) == str(of_draft.value)
    return str(of_object.value)
