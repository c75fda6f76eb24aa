"""The live page in a real browser: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from appsdk_operator.client import Client
from appsdk_operator.controllers import (
    Controller,
    ControllerOptions,
    FunctionSource,
    Request,
    RequestQueue,
    TerminalError,
    controller_for,
)
from appsdk_operator.manager import LeaderElection, Manager, ProfileServerOptions, Shards
from appsdk_operator.resource import MutableObject, kinds
from appsdk_operator.runtime import Metrics, StopSignal
from appsdk_operator.serving import SelfSigned
from appsdk_operator.testing import APIServer, MemoryServer
from appsdk_operator.webhooks import WebhookServerOptions, webhook_for
from tests.manager.manager_parts import Run, eventually

CHROMIUM = shutil.which("chromium")
EVIL = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
CONFIG_MAP = kinds.core.v1.ConfigMap

pytestmark = [
    pytest.mark.programs,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium"),
]
playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install it")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        yield found
        found.close()


@pytest.fixture
def operator() -> Iterator[tuple[str, Any]]:
    """An operator with failures, a call that runs, 10,000 planned calls, and its page's URL."""
    release = threading.Event()

    def reconcile(request: Request) -> None:
        if request.name == "slow":
            release.wait(60)
        elif request.name.startswith("bad"):
            raise ValueError(EVIL)

    def later(request: Request) -> None:
        raise TerminalError(request.name)

    def start(queue: RequestQueue[Request], _: StopSignal) -> None:
        queue.add(Request("default", EVIL))
        for number in range(10_000):
            queue.add(Request("default", f"later-{number}"), after=3600.0, reason=EVIL)

    with MemoryServer() as server, server.client() as client:
        options = ProfileServerOptions(address="127.0.0.1:0")
        manager = Manager(client, name="sites", metrics=Metrics(), profile_server=options)
        workers = ControllerOptions(max_concurrent_reconciles=2)
        build = controller_for(manager).for_(CONFIG_MAP).named("page-sites")
        build.with_options(workers).complete(reconcile)
        many: Controller[Request] = Controller("page-later", later)
        many.watch(FunctionSource(start))
        manager.add(many)
        run = Run(manager)
        create(client, "bad-1")
        assert manager.elected.wait(60)
        eventually(lambda: _has_begun(manager))
        yield f"http://{manager.addresses['profile']}/debug/", client
        release.set()
        assert run.end() == []


def _has_begun(manager: Manager) -> bool:
    """Whether all calls are planned, and the first of both controllers have failed."""
    state = manager.debug_state()
    planned = [one["planned_total"] for one in state["controllers"]]
    return max(planned, default=0) == 10_000 and len(state["failures"]) == 2


def create(client: Any, name: str) -> None:
    obj = MutableObject.new(CONFIG_MAP, name, namespace="default")
    obj["metadata"]["labels"] = {"team": "front"}
    client.create(obj)


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page on which nothing may go wrong."""
    problems: list[str] = []
    context = browser.new_context(color_scheme="light")
    found = context.new_page()
    found.on("console", lambda message: problems.append(message.text))
    found.on("pageerror", lambda error: problems.append(str(error)))
    found.set_default_timeout(60_000)
    yield found
    context.close()
    assert problems == []


def test_the_panels_follow_the_operator_and_hostile_text_stays_text(
    page: Any, operator: tuple[str, Any]
) -> None:
    url, client = operator
    page.goto(url)
    page.wait_for_function("document.getElementById('status').textContent === 'Live'")
    assert "default/slow" not in page.inner_text("#controllers")
    create(client, "slow")
    page.wait_for_selector("#controllers >> text=default/slow")
    page.wait_for_selector("#controllers >> text=1 running")
    assert "10,000 planned" in page.inner_text("#controllers")
    assert "configmaps" in page.inner_text("#kinds")
    assert EVIL in page.inner_text("#failures")
    assert page.title() == "sites"
    assert page.locator("main img").count() == page.locator("main script").count() == 0
    assert len(page.content()) < 100_000
    # With the keyboard alone, and open details stay open while panels change.
    page.locator("#controllers summary").first.focus()
    page.keyboard.press("Enter")
    create(client, "bad-2")
    page.wait_for_selector("#failures >> text=default/bad-2")
    assert page.locator("#controllers details[open]").count() == 1
    assert page.evaluate("document.activeElement.tagName") == "SUMMARY"
    page.get_by_role("button", name="Pause").click()
    assert page.inner_text("#status") == "Paused"
    page.locator("#failures a", has_text="default/bad-2").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#timeline >> text=ValueError")
    assert "team=front" in page.inner_text("#object")
    assert page.locator("main img").count() == 0


def test_names_stay_text_too(page: Any, operator: tuple[str, Any]) -> None:
    # No server takes such a name; what else a source makes requests of may have one.
    page.goto(operator[0])
    page.locator("#failures a", has_text="<img src=x").first.click()
    page.wait_for_selector("#timeline >> text=TerminalError")
    assert f"default/{EVIL}" in page.title()
    assert page.locator("main img").count() == page.locator("main script").count() == 0


def test_each_panel_shows_the_parts_of_an_operator(page: Any) -> None:
    with APIServer() as server, Client(server.client_config()) as client:
        manager = Manager(
            server.client_config(),
            name="whole",
            metrics=Metrics(),
            leader_election=LeaderElection(id="whole", namespace="default"),
            profile_server=ProfileServerOptions(address="127.0.0.1:0"),
            webhook_server=WebhookServerOptions(address="127.0.0.1:0", certificates=SelfSigned()),
        )
        webhook_for(manager, CONFIG_MAP).validate(create=lambda _: None).complete()
        controller_for(manager).for_(CONFIG_MAP).named("whole-maps").complete(lambda _: None)
        manager.add(Shards(client, LeaderElection(id="parts", namespace="default"), 2))
        run = Run(manager)
        assert manager.elected.wait(60)
        page.goto(f"http://{manager.addresses['profile']}/debug/")
        page.wait_for_selector("#process >> text=2 of 2 (0, 1), 1 replica")
        create(client, "seen")
        page.wait_for_selector("#objects >> text=default/seen")
        assert "this one" in page.inner_text("#process")
        assert "Certificate of webhooks\nexpires in 364 d" in page.inner_text("#process")
        assert "/validate--v1-configmap" in page.inner_text("#webhooks")
        assert "whole-maps" in page.inner_text("#controllers")
        assert "configmaps" in page.inner_text("#kinds")
        page.click("#objects a >> text=default/seen")
        page.wait_for_selector("#timeline >> text=done")
        assert run.end() == []


def test_it_is_whole_without_javascript_and_in_the_dark(
    browser: Any, operator: tuple[str, Any]
) -> None:
    url, _ = operator
    context = browser.new_context(java_script_enabled=False, color_scheme="dark")
    found = context.new_page()
    found.goto(url)
    for panel in ("process", "failures", "controllers", "kinds", "objects", "parts"):
        assert found.inner_text(f"#{panel} h2")
    assert not found.is_visible("#pause")
    found.fill("input[name=namespace]", "default")
    found.fill("input[name=name]", "bad-1")
    found.get_by_role("button", name="Find object").click()
    assert "ValueError" in found.inner_text("#timeline")
    found.screenshot()
    dark = found.locator("body").evaluate("e => getComputedStyle(e).backgroundColor")
    context.close()
    assert max(map(int, dark.removeprefix("rgb(").removesuffix(")").split(","))) < 60
