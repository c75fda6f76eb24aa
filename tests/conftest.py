"""What every test gets: a check that it leaves no thread, socket or temporary file behind."""

from __future__ import annotations

import gc
import os
import socket
import stat
import sys
import tempfile
import threading
from collections.abc import Generator, Iterator
from contextlib import nullcontext
from pathlib import Path

import attrs
import pytest
from _pytest.doctest import DoctestModule
from hypothesis import given, settings, strategies

from tests import hypothesis_profiles, one_case, planes, reports
from tests.ids import check_ids
from tests.ports import reserved_port
from tests.shared_plane import SharedPlane

# Also where a run is not one of hack/lane.py.
pytest_report_to_serializable = reports.pytest_report_to_serializable

PACKAGE = Path(__file__).parents[1] / "appsdk_operator"

hypothesis_profiles.register()
settings.load_profile("repeatable")
# Each of several processes starts a control plane of its own, all at once, on a few cores.
os.environ.setdefault("KUBEBUILDER_CONTROLPLANE_START_TIMEOUT", "100s")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Where a control plane is provided, its tests must not be skipped; see also one_case."""
    parser.addoption(
        "--require-real",
        action="store_true",
        help="fail where a test on the real control plane is skipped",
    )
    one_case.add_option(parser)


def _has_control_plane() -> bool:
    return bool(
        os.environ.get("KUBEBUILDER_ASSETS")
        or (os.environ.get("TEST_ASSET_ETCD") and os.environ.get("TEST_ASSET_KUBE_APISERVER"))
    )


def pytest_report_header() -> str:
    """Whether the tests on the real control plane are among those of this run."""
    if _has_control_plane():
        return "real control plane: its tests are part of this run"
    return "real control plane: none, its tests are left out; see make control-plane"


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what plays histories of an operator, as Hypothesis marks what has `given`."""
    code = getattr(getattr(item, "obj", None), "__code__", None)
    if code is not None and "check_operator" in code.co_names:
        item.add_marker("histories")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Have the tests on the real control plane run first, or leave them out if there is none.

    The first of several workers gets them all then: each control plane is started once, and idle
    ones of other workers take no processor time from the rest.
    """
    check_ids(items)
    one_case.leave_out_others(config, items)
    real = [item for item in items if item.get_closest_marker("real")]
    others = [item for item in items if not item.get_closest_marker("real")]
    if _has_control_plane():
        items[:] = real + others
        return
    if config.option.require_real:
        raise pytest.UsageError(
            "--require-real: KUBEBUILDER_ASSETS is not set, see make control-plane"
        )
    if real:
        config.hook.pytest_deselected(items=real)
        items[:] = others


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skipped test of the real lane into a failed one, if asked to."""
    report = yield
    if report.skipped and item.get_closest_marker("real") and item.config.option.require_real:
        report.outcome = "failed"
        report.longrepr = f"skipped, but --require-real was given: {report.longrepr}"
    return report


def pytest_configure(config: pytest.Config) -> None:
    """Register hooks that see files of the package and fixtures of the session, too."""
    config.pluginmanager.register(_DocstringExamples())
    config.pluginmanager.register(_FixturesOfSeveralTests())
    config.pluginmanager.register(planes)


class _DocstringExamples:
    @pytest.hookimpl(wrapper=True)
    def pytest_collect_file(
        self, file_path: Path
    ) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
        """Look for docstring examples only where some are: the search is a sixth of collection."""
        found = yield
        has_examples = PACKAGE in file_path.parents and b">>> " in file_path.read_bytes()
        return [each for each in found if has_examples or not isinstance(each, DoctestModule)]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector from going through thousands of tests, now and in each of them."""
    gc.disable()
    try:
        return (yield)
    finally:
        # At its first use Hypothesis looks for who refers to its generator, not in frozen objects.
        _use_hypothesis()
        # A full collection would take half a second of a test otherwise.
        gc.freeze()
        # An operator and its server are cycles. Collected while a test still uses them, they are
        # gone through once more: with 2000, that is a twentieth of simulated histories.
        gc.set_threshold(10_000, 10, 100)
        gc.enable()


@given(strategies.none())
def _use_hypothesis(_: None) -> None: ...


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Keep a thread that a failed test left from keeping the whole run."""
    left = [t.name for t in threading.enumerate() if t is not threading.main_thread()]
    if not exitstatus or not left:
        return

    def leave() -> None:
        sys.stderr.write(f"left behind, and ended by force: {left}\n")
        sys.stderr.flush()
        sys.stdout.flush()
        os._exit(int(exitstatus))

    session.config.add_cleanup(leave)


_COLLECTIONS = {5: 0, 10: 1, 50: 2}
"""The generation that is collected after that many looks at the open sockets."""
_HAS_PROC = Path("/proc/self/fd").exists()


def _open_sockets() -> set[int]:
    """The inodes of this process's sockets; none where there is no ``/proc``."""
    found = set()
    # Twice for each of all tests: no objects of pathlib.
    with os.scandir("/proc/self/fd") if _HAS_PROC else nullcontext(()) as entries:
        for entry in entries:
            try:
                status = os.fstat(int(entry.name))
            except OSError:
                continue  # the descriptor of the search itself
            if stat.S_ISSOCK(status.st_mode):
                found.add(status.st_ino)
    return found


def _temporary_files() -> set[str]:
    with os.scandir(tempfile.gettempdir()) as entries:
        return {entry.name for entry in entries}


@pytest.fixture(scope="session", autouse=True)
def _own_temporary_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Give this process a temporary folder of its own, so that what is left in it is ours."""
    folder = tmp_path_factory.mktemp("tmp")
    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    yield
    tempfile.tempdir = before


@attrs.define
class _Present:
    """Threads, sockets by inode, and temporary files."""

    threads: set[threading.Thread] = attrs.field(factory=lambda: set(threading.enumerate()))
    sockets: set[int] = attrs.field(factory=_open_sockets)
    files: set[str] = attrs.field(factory=_temporary_files)


_LASTING = _Present(set(), set(), set())
"""What fixtures have made that outlive the test for which they were set up."""


class _FixturesOfSeveralTests:
    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[object]
    ) -> Generator[None, object, object]:
        """Note what they make: a test may ask for one once it has begun."""
        if fixturedef.scope == "function":
            return (yield)
        before = _Present()
        try:
            return (yield)
        finally:
            after = _Present()
            _LASTING.threads |= after.threads - before.threads
            _LASTING.sockets |= after.sockets - before.sockets
            _LASTING.files |= after.files - before.files


@pytest.fixture(autouse=True)
def _nothing_is_left_behind() -> Iterator[None]:
    """Fail a test that leaves a thread, a socket or a temporary file."""
    before = _Present()
    yield
    threads = before.threads | _LASTING.threads
    started = [t for t in threading.enumerate() if t not in threads]
    for thread in started:
        thread.join(timeout=30)
    alive = [t.name for t in started if t.is_alive()]
    assert not alive, f"threads left running: {alive}"
    # A server that outlives the test closes its end of a connection a moment after the client.
    patience = threading.Event()
    for attempt in range(1000):
        left = _open_sockets() - before.sockets - _LASTING.sockets
        if not left:
            break
        # What is in a reference cycle is young; a whole collection takes half a second.
        if attempt in _COLLECTIONS:
            gc.collect(_COLLECTIONS[attempt])
        patience.wait(0.01)
    assert not left, f"sockets left open: {left}"
    new_files = _temporary_files() - before.files - _LASTING.files
    assert not new_files, f"temporary files left: {sorted(new_files)}"


@pytest.fixture(scope="session")
def shared_plane() -> Iterator[SharedPlane]:
    """A real control plane that is lent as a new one."""
    shared = SharedPlane()
    yield shared
    shared.stop()


@pytest.fixture
def refusing_port() -> Iterator[int]:
    """A loopback port that refuses connections: it is taken, and nobody listens on it."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield int(taken.getsockname()[1])


@pytest.fixture
def free_port() -> Iterator[int]:
    """A port of loopback that is the test's, and on which nobody listens."""
    with reserved_port() as port:
        yield port
