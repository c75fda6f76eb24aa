"""Write the pictures of the live page and of ``top``, into ``docs/`` or another folder.

Needs Chromium (Debian: ``apt-get install chromium``) and the packages of development:

    python hack/screenshots.py [FOLDER]
"""

from __future__ import annotations

import asyncio
import importlib
import random
import re
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, final

from appsdk_operator import (
    App,
    Client,
    InformerController,
    Manager,
    MergePatch,
    MutableObject,
    Result,
    SimpleWatcher,
)
from appsdk_operator.cli._top import Fetcher, Top
from appsdk_operator.controllers import ControllerOptions, Request, TerminalError, controller_for
from appsdk_operator.manager import LeaderElection, ProfileServerOptions
from appsdk_operator.resource import kinds
from appsdk_operator.runtime import (
    ItemExponential,
    Metrics,
    StopSignal,
    ThreadGroup,
    environment,
    system_clock,
)
from appsdk_operator.testing import MemoryServer, install_crds

DOCS = Path(__file__).parents[1] / "docs"
DEPLOYMENT, SECRET = kinds.apps.v1.Deployment, kinds.core.v1.Secret
LIMA = "/debug/object?kind=deployments&namespace=shops&name=lima"
THIRD = "/debug/object?kind=greetings&namespace=default&name=third"
SHOPS = ("berlin", "lima", "oslo", "quito", "tokyo")
LENGTH, OUTAGE = 600.0, 480.0
"""Seconds of the operator's clock: how long it runs, and when two shops begin to fail."""


def deployment(name: str) -> MutableObject:
    """One to create."""
    obj = MutableObject.new(DEPLOYMENT, name, namespace="shops")
    labels = {"app": name, "tier": "front"}
    obj["metadata"]["labels"] = labels
    container = {"name": "web", "image": "example.com/web:1"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    obj["spec"] = {"selector": {"matchLabels": labels}, "template": template}
    return obj


@final
class FastClock:
    """The machine's time at ``speed``, so that ten minutes of an operator take half a minute."""

    def __init__(self) -> None:
        self.speed = 20.0
        self._real = system_clock
        self._start = self._since = self._real.monotonic()
        self._passed = 0.0

    def slow_down(self) -> None:
        """Go on at the machine's pace."""
        self._passed, self._since = self.monotonic(), self._real.monotonic()
        self.speed = 1.0

    def monotonic(self) -> float:
        return self._passed + (self._real.monotonic() - self._since) * self.speed

    def time(self) -> float:
        return self._real.time() - (self._real.monotonic() - self._start) + self.monotonic()

    def wait(self, condition: threading.Condition, timeout: float | None = None) -> None:
        self._real.wait(condition, None if timeout is None else timeout / self.speed)


@contextmanager
def operator() -> Iterator[str]:
    """An operator with a bit of everything, after ten minutes; the URL of its live page."""
    clock = FastClock()
    release, stop = threading.Event(), StopSignal(clock=clock)
    threads = ThreadGroup("screenshots")
    with (
        environment(clock=clock),
        MemoryServer(clock=clock) as server,
        server.client() as client,
    ):
        manager = Manager(
            client,
            name="shop-operator",
            metrics=Metrics(),
            leader_election=LeaderElection(
                id="shops",
                namespace="shops",
                identity="shop-operator-5d9c7b-x2x4z",
                lease_duration=600.0,
                renew_deadline=500.0,
                retry_period=60.0,
            ),
            profile_server=ProfileServerOptions(address="127.0.0.1:0"),
        )

        def reconcile_shop(request: Request) -> Result | None:
            if request.name == "atlantis":
                raise TerminalError("spec.city: there is no such city")
            if request.name in ("lima", "quito") and clock.monotonic() > OUTAGE:
                raise ConnectionError("the registry of the city answers 503")
            if request.name == "tokyo":
                release.wait(60)
            obj = manager.live_client.get(DEPLOYMENT, request.name, namespace="shops")
            counted = obj.annotations.get("shops.example.com/visits", "0")
            if int(obj.labels.get("visits", "0")) - int(counted) >= 10:
                changed = obj.mutable_copy()
                seen = {"shops.example.com/visits": obj.labels["visits"]}
                changed["metadata"]["annotations"] = seen
                manager.client.update(changed)
            return Result(requeue_after=300.0)

        def rotate(secret: Any) -> None:
            if secret.name == "lima-key":
                raise ValueError("the key of lima-key has 512 bits: use 2048 or more")

        options = ControllerOptions(
            max_concurrent_reconciles=2, rate_limiter=lambda: ItemExponential(base=20.0)
        )
        build = controller_for(manager).for_(DEPLOYMENT).named("shops").with_options(options)
        build.complete(reconcile_shop)
        keys = InformerController(name="keys")
        keys.add_watcher(SimpleWatcher(add=rotate, update=lambda _, new: rotate(new)), SECRET)
        keys.add_cache(manager.cache, SECRET)
        manager.add(keys)
        client.create(MutableObject.new(kinds.core.v1.Namespace, "shops"))
        for name in SHOPS:
            key = MutableObject.new(SECRET, f"{name}-key", namespace="shops")
            key["metadata"]["finalizers"] = ["shops.example.com/keys"]
            client.create(key)
        for name in SHOPS[:-1]:
            client.create(deployment(name))
        threads.start("manager", lambda: manager.run(stop))
        manager.elected.wait(20)
        live(client, clock, stop)
        clock.slow_down()
        try:
            yield f"http://{manager.addresses['profile']}"
        finally:
            release.set()
            stop.set()
            threads.join()


def live(client: Client, clock: FastClock, stop: StopSignal) -> None:
    """Ten minutes in which shops are visited; two of them fail in the last two minutes."""
    chance, visits = random.Random(4), 0
    while clock.monotonic() < LENGTH:
        stop.wait(chance.expovariate(1 / 6))
        visits += 1
        visit = MergePatch({"metadata": {"labels": {"visits": str(visits)}}})
        client.patch(DEPLOYMENT, chance.choice(SHOPS[:-1]), visit, namespace="shops")
        if visits == 45:
            client.create(deployment("atlantis"))
            client.delete(SECRET, "lima-key", namespace="shops")
    client.create(deployment(SHOPS[-1]))
    stop.wait(12.0)


@contextmanager
def hello(folder: Path) -> Iterator[str]:
    """The README's program with an object that fails; the URL of its live page."""
    found = re.search(r"```python\n(.*?)```", (DOCS.parent / "README.md").read_text(), re.DOTALL)
    assert found is not None
    program = folder / "hello.py"
    program.write_text(found[1], encoding="utf-8")
    sys.path.insert(0, str(folder))
    app: App = importlib.import_module("hello").app
    stop, threads = StopSignal(), ThreadGroup("hello")
    with MemoryServer() as server, server.client() as client:
        install_crds(client, app.crds())
        (kind,) = app.kinds
        manager = app.manager(client, profile_server=ProfileServerOptions(address="127.0.0.1:0"))
        threads.start("manager", lambda: manager.run(stop))
        try:
            for name, spec in (("first", {"name": "you"}), ("third", {})):
                client.create(MutableObject.new(kind, name, namespace="default", spec=spec))
            stop.wait(24.0)
            yield f"http://{manager.addresses['profile']}"
        finally:
            stop.set()
            threads.join()


def photograph(
    url: str, pictures: Sequence[tuple[str, str, str, tuple[int, int]]], folder: Path
) -> None:
    """Pages of a live page: each the file, the path, the scheme of colors, and the size."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for file, path, scheme, (width, height) in pictures:
            context = browser.new_context(
                viewport={"width": width, "height": height},
                color_scheme=scheme,
                # Narrow ones are shown at their size, also on screens with small pixels.
                device_scale_factor=2 if width < 700 else 1,
            )
            page = context.new_page()
            page.goto(f"{url}{path}")
            page.wait_for_function("document.getElementById('status').textContent === 'Live'")
            page.screenshot(path=folder / file)
            context.close()
        browser.close()


async def draw_top(url: str, folder: Path) -> None:
    """The terminal, with what fails."""
    app = Top(Fetcher(url), interval=3600.0)
    async with app.run_test(size=(100, 16)) as pilot:
        await app.workers.wait_for_complete()
        await pilot.press("right")
        await pilot.pause()
        drawn = app.export_screenshot(title="appsdk-operator top")
        # Without fonts from elsewhere.
        drawn = re.sub(r"@font-face\s*{[^}]*}", "", drawn)
        drawn = re.sub(r"<!--.*?-->", "", drawn, flags=re.DOTALL)
        (folder / "top.svg").write_text(drawn)


def main(folder: Path) -> int:
    """Write all of them."""
    with tempfile.TemporaryDirectory() as project, hello(Path(project)) as url:
        photograph(
            url,
            [
                ("hello-page.png", THIRD, "light", (480, 560)),
                ("hello-page-dark.png", THIRD, "dark", (480, 560)),
            ],
            folder,
        )
    with operator() as url:
        photograph(
            url,
            [
                ("debug-page.png", "/debug/", "light", (1120, 900)),
                ("debug-page-dark.png", "/debug/", "dark", (1120, 900)),
                ("debug-timeline.png", LIMA, "dark", (1120, 760)),
            ],
            folder,
        )
        asyncio.run(draw_top(url, folder))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS))
