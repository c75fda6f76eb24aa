"""Results of transforms: what is allowed, and the errors for anything else."""

from __future__ import annotations

from typing import Any

import pytest

from appsdk_operator.resource import Object
from tests.cache.conftest import THING, page, thing


def draft_of(obj: Object) -> Any:
    draft = obj.mutable_copy()
    draft.data.pop("spec", None)
    return draft


def test_a_transform_may_return_a_draft(make):
    running = make(page(thing("a", spec={"n": 1}, data=2)), transform=draft_of)
    running.informer.step(running.stop)
    kept = running.informer.store.get("a", "x")
    assert isinstance(kept, Object)
    assert ("spec" in kept, kept["data"], kept.kind) == (False, 2, THING)
    assert running.errors == []


def returns_unawaited(obj: Object) -> Any:
    async def unawaited() -> Object:
        return obj

    return unawaited()


@pytest.mark.parametrize(
    ("transform", "text"),
    [
        (lambda _: None, "returned NoneType"),
        (lambda obj: obj.to_dict(), "returned dict"),
        (returns_unawaited, "returned coroutine"),
    ],
)
def test_what_else_it_returns_is_refused_and_the_object_kept_as_it_came(make, transform, text):
    running = make(page(thing("a", spec={"n": 1})), transform=transform)
    running.informer.step(running.stop)
    assert running.informer.store.get("a", "x")["spec"] == {"n": 1}
    [error] = running.errors
    assert isinstance(error, TypeError)
    assert text in str(error)
    assert "return the object, or a draft of it" in str(error)


def test_a_draft_that_is_another_object_is_refused(make):
    def renamed(obj):
        draft = obj.mutable_copy()
        draft.metadata["name"] = "b"
        return draft

    running = make(page(thing("a")), transform=renamed)
    running.informer.step(running.stop)
    assert "it must keep kind, namespace, name, uid" in str(running.errors[0])
