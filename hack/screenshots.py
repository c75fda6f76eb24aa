"""Write the pictures of the debug page and of ``top`` into ``docs/``.

Needs Chromium (Debian: ``apt-get install chromium``) and the packages of development:

    python hack/screenshots.py
"""

from __future__ import annotations

import asyncio
import re
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from appsdk_operator import InformerController, Manager, MutableObject, Result, SimpleWatcher
from appsdk_operator.cli._top import Fetcher, Top
from appsdk_operator.controllers import ControllerOptions, Request, TerminalError, controller_for
from appsdk_operator.manager import LeaderElection, ProfileServerOptions
from appsdk_operator.resource import kinds
from appsdk_operator.runtime import ItemExponential, Metrics, StopSignal, ThreadGroup
from appsdk_operator.testing import MemoryServer

DOCS = Path(__file__).parents[1] / "docs"
DEPLOYMENT, SECRET = kinds.apps.v1.Deployment, kinds.core.v1.Secret
OSLO = "kind=deployments&namespace=shops&name=oslo"
SHOPS = ("berlin", "lima", "oslo", "quito", "tokyo")


def deployment(name: str) -> MutableObject:
    """One to create."""
    obj = MutableObject.new(DEPLOYMENT, name, namespace="shops")
    labels = {"app": name, "tier": "front"}
    obj["metadata"]["labels"] = labels
    container = {"name": "web", "image": "example.com/web:1"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    obj["spec"] = {"selector": {"matchLabels": labels}, "template": template}
    return obj


@contextmanager
def operator() -> Iterator[str]:
    """An operator with a bit of everything; the URL of its debug server."""
    release, stop, threads = threading.Event(), StopSignal(), ThreadGroup("screenshots")
    with MemoryServer() as server, server.client() as client:
        manager = Manager(
            client,
            name="shop-operator",
            metrics=Metrics(),
            leader_election=LeaderElection(
                id="shops", namespace="shops", identity="shop-operator-5d9c7b-x2x4z"
            ),
            profile_server=ProfileServerOptions(address="127.0.0.1:0"),
        )

        def reconcile_shop(request: Request) -> Result | None:
            if request.name == "atlantis":
                raise TerminalError("spec.city: there is no such city")
            if request.name in ("lima", "quito"):
                raise ConnectionError("the registry of the city answers 503")
            if request.name == "tokyo":
                release.wait(60)
            obj = manager.live_client.get(DEPLOYMENT, request.name, namespace="shops")
            if not obj.annotations:
                changed = obj.mutable_copy()
                changed["metadata"]["annotations"] = {"shops.example.com/registered": "true"}
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
        for name in (*SHOPS, "atlantis"):
            client.create(deployment(name))
        for name in SHOPS:
            key = MutableObject.new(SECRET, f"{name}-key", namespace="shops")
            key["metadata"]["finalizers"] = ["shops.example.com/keys"]
            client.create(key)
        client.delete(SECRET, "lima-key", namespace="shops")
        threads.start("manager", lambda: manager.run(stop))
        manager.elected.wait(20)
        stop.wait(12.0)
        try:
            yield f"http://{manager.addresses['profile']}"
        finally:
            release.set()
            stop.set()
            threads.join()


def photograph(url: str) -> None:
    """The page in the light and in the dark, and the timeline of an object in the dark."""
    from playwright.sync_api import sync_playwright

    pictures = (
        ("debug-page.png", "/debug/", "light", 900),
        ("debug-page-dark.png", "/debug/", "dark", 900),
        ("debug-timeline.png", f"/debug/object?{OSLO}", "dark", 760),
    )
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for file, path, scheme, height in pictures:
            context = browser.new_context(
                viewport={"width": 1120, "height": height}, color_scheme=scheme
            )
            page = context.new_page()
            page.goto(f"{url}{path}")
            page.wait_for_function("document.getElementById('status').textContent === 'Live'")
            page.screenshot(path=DOCS / file)
            context.close()
        browser.close()


async def draw_top(url: str) -> None:
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
        (DOCS / "top.svg").write_text(drawn)


def main() -> int:
    """Write all three."""
    with operator() as url:
        photograph(url)
        asyncio.run(draw_top(url))
    return 0


if __name__ == "__main__":
    sys.exit(main())
