"""Ends the control planes that tests share once no test after them needs one.

A kube-apiserver with nothing to do takes two to three percent of a processor, for as long as the
run lasts, and the tests on real servers come first.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

FIXTURES = frozenset({"real", "shared_plane"})
"""The names of session fixtures whose server is a control plane."""
RUNNING = pytest.StashKey[list[tuple[pytest.FixtureDef[Any], Any]]]()
"""Those that run, with the requests that started them."""


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """Note a control plane that has started."""
    value = yield
    if fixturedef.argname in FIXTURES and fixturedef.scope == "session":
        running = request.session.stash.setdefault(RUNNING, [])
        running.append((fixturedef, request))
    return value


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, None, None]:
    """End those that the next test cannot use; a later test that can starts another one."""
    yield
    running = item.session.stash.get(RUNNING, [])
    for entry in [*running]:
        fixturedef, request = entry
        if nextitem is None or not _may_use(nextitem, fixturedef):
            running.remove(entry)
            fixturedef.finish(request)


def _may_use(item: pytest.Item, fixturedef: pytest.FixtureDef[Any]) -> bool:
    is_visible = item.nodeid.startswith(fixturedef.baseid)
    return is_visible and item.get_closest_marker("real") is not None
