"""The embedded server against the real one: case by case, live and as recorded. See README.md."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import pytest

from tests.differential import lanes, report
from tests.differential.conversation import Server
from tests.differential.scripts import Case, all_cases, areas, version_of
from tests.differential.verdicts import compare
from tests.shared_plane import SharedPlane

_CASES = [pytest.param(case, id=case.id) for case in all_cases()]
_REAL = [pytest.param(case, id=case.id, marks=pytest.mark.real) for case in all_cases()]


class Lane:
    """A server's answers: to all chosen cases at once, or one by one where processes share them."""

    def __init__(self, server: Server, request: pytest.FixtureRequest) -> None:
        self._server = server
        self._answers: dict[str, lanes.Answers | Exception] = {}
        if "PYTEST_XDIST_WORKER" not in os.environ:
            chosen = _chosen(request)
            self._answers = lanes.run(server, [c for c in chosen if not skipped(c, server)])

    def answers(self, case: Case) -> lanes.Answers | Exception:
        if case.id not in self._answers:
            self._answers.update(lanes.run(self._server, [case]))
        return self._answers[case.id]


def skipped(case: Case, server: Server) -> bool:
    """Whether a case is documented not to be compared with a server."""
    return server.name == "real" and bool(report.older(case, server.version))


def _chosen(request: pytest.FixtureRequest) -> list[Case]:
    """The cases of the tests that were chosen."""
    cases: dict[str, Case] = {}
    for item in request.session.items:
        call = getattr(item, "callspec", None)
        if call is not None and isinstance(call.params.get("case"), Case):
            cases[call.params["case"].id] = call.params["case"]
    return list(cases.values())


@pytest.fixture(scope="session")
def ours(request: pytest.FixtureRequest) -> Iterator[Lane]:
    """What the embedded server answers."""
    with lanes.embedded() as server:
        yield Lane(server, request)


@pytest.fixture(scope="module")
def real(shared_plane: SharedPlane) -> Iterator[Server]:
    """The real server."""
    with shared_plane.lent() as plane:
        yield lanes.on(plane)


@pytest.fixture(scope="module")
def theirs(request: pytest.FixtureRequest, real: Server) -> Lane:
    """What the real server answers."""
    return Lane(real, request)


@pytest.mark.parametrize("case", _CASES)
def test_the_embedded_server_answers_as_it_was_recorded_of_the_real_one(
    case: Case, ours: Lane
) -> None:
    recorded = lanes.recorded(case.area)
    digest, answers = recorded["cases"].get(case.name, ("", []))
    assert digest == case.digest, (
        "the answers to this case were not recorded since it was written: see README.md"
    )
    verdict = compare(case, ours.answers(case), answers, version_of(recorded["server"]))
    assert not verdict.problem, f"\n{verdict.problem}"


@pytest.mark.parametrize("case", _REAL)
def test_the_embedded_server_answers_as_the_real_one_does(
    case: Case,
    ours: Lane,
    real: Server,
    theirs: Lane,
) -> None:
    if skipped(case, real):
        return  # documented with the case, or in older.yaml
    verdict = compare(case, ours.answers(case), theirs.answers(case), real.version)
    assert not verdict.problem, f"\n{verdict.problem}"


def test_nothing_is_kept_of_cases_that_are_gone() -> None:
    for area in areas():
        names = {case.name for case in area.cases}
        assert set(lanes.recorded(area.key)["cases"]) <= names, area.key
    files = {path.stem for path in lanes.RECORDED.glob("*.json")}
    assert files <= {area.key for area in areas()}


def test_the_page_of_the_docs_claims_no_more_than_there_is() -> None:
    there_are = {area.title: len(area.cases) for area in areas()}
    rows = re.findall(
        r"^\| ([^|]+) \| (\d+) \| \d+ \| \d+ \|$", report.PAGE.read_text(), re.MULTILINE
    )
    claimed = {title: int(count) for title, count in rows if title != "all"}
    assert claimed
    assert all(count <= there_are.get(title, 0) for title, count in claimed.items())
