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
from appsdk_operator.resource import Kind, MutableObject, kinds
from appsdk_operator.runtime import ItemExponential, Metrics, StopSignal
from appsdk_operator.serving import SelfSigned
from appsdk_operator.testing import APIServer, MemoryServer
from appsdk_operator.webhooks import WebhookServerOptions, webhook_for
from tests.runs import Run
from tests.waiting import eventually

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
        run = Run(manager).start()
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
    found.set_default_timeout(20_000)
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
    page.locator("#controllers summary", has_text="page-sites").click()
    page.wait_for_selector("#controllers >> text=default/slow")
    page.wait_for_selector("#controllers >> text=1 call running")
    assert "10,000" in page.inner_text("#controllers")
    assert "1 of 1 synced" in page.inner_text("#kinds")
    assert EVIL in page.inner_text("#failures")
    assert page.title() == "sites"
    assert page.locator("main img").count() == page.locator("main script").count() == 0
    assert len(page.content()) < 100_000
    # With the keyboard alone, and open details stay open while panels change.
    page.locator("#controllers summary", has_text="page-later").focus()
    page.keyboard.press("Enter")
    create(client, "bad-2")
    page.wait_for_selector("#objects >> text=default/bad-2")
    assert page.locator("#controllers details[open]").count() == 2
    assert page.evaluate("document.activeElement.tagName") == "SUMMARY"
    page.get_by_role("button", name="Pause").click()
    assert page.inner_text("#status") == "Paused"
    page.locator("#objects a", has_text="default/bad-2").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#timeline >> text=ValueError")
    assert page.title() == "configmaps default/bad-2 · sites"
    assert "kind=configmaps.v1" in page.url
    assert "kubectl get -n default configmaps bad-2" in page.inner_text("#object")
    assert "team=front" in page.inner_text("#object")
    assert page.locator("main img").count() == 0


def test_a_panel_that_somebody_closed_stays_closed_while_something_in_it_is_wrong(
    page: Any,
) -> None:
    missing = Kind(group="example.com", version="v1", kind="Missing")
    with MemoryServer() as server, server.client() as client:
        options = ProfileServerOptions(address="127.0.0.1:0")
        manager = Manager(client, name="folds", metrics=Metrics(), profile_server=options)
        for kind in (CONFIG_MAP, missing):
            build = controller_for(manager).for_(kind).named(f"folds-{kind.plural}")
            build.complete(lambda _: None)
        run = Run(manager).start()
        try:
            _fold_the_kinds(page, f"http://{manager.addresses['profile']}/debug/", client)
        finally:
            run.end()


def _fold_the_kinds(page: Any, url: str, client: Any) -> None:
    page.goto(url)
    page.wait_for_function("document.getElementById('status').textContent === 'Live'")
    page.wait_for_selector("#kinds-of[open]")
    page.click("#kinds-of > summary")
    for number in range(2):
        _wait_for_another(page, client, f"news-{number}")
        assert page.locator("#kinds-of[open]").count() == 0
    page.click("#kinds-of > summary")
    _wait_for_another(page, client, "news-2")
    assert page.locator("#kinds-of[open]").count() == 1


def _wait_for_another(page: Any, client: Any, name: str) -> None:
    """Have the panel of kinds replaced."""
    page.evaluate("document.getElementById('kinds-of').dataset.old = 'yes'")
    create(client, name)
    page.wait_for_selector("#kinds-of:not([data-old])", state="attached")


def test_names_stay_text_too(page: Any, operator: tuple[str, Any]) -> None:
    # No server takes such a name; what else a source makes requests of may have one.
    page.goto(operator[0])
    page.locator("#objects tbody th a", has_text="<img src=x").first.click()
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
        run = Run(manager).start()
        assert manager.elected.wait(60)
        page.goto(f"http://{manager.addresses['profile']}/debug/")
        page.wait_for_selector("#process >> text=2 of 2 (0, 1), 1 replica")
        create(client, "seen")
        page.wait_for_selector("#objects >> text=default/seen")
        assert "this one" in page.inner_text("#process")
        assert "Certificate of webhooks\nexpires in 364 d" in page.inner_text("#process")
        page.click("#webhooks summary")
        page.wait_for_selector("#webhooks >> text=/validate--v1-configmap")
        assert "whole-maps" in page.inner_text("#controllers")
        # Open already if the page was loaded before the kinds had synced.
        page.evaluate("document.getElementById('kinds-of').open = true")
        page.wait_for_selector("#kinds >> text=configmaps")
        page.click("#objects a >> text=default/seen")
        page.wait_for_selector("#timeline .state >> text=done")
        assert run.end() == []


def test_it_is_whole_without_javascript_and_in_the_dark(
    browser: Any, operator: tuple[str, Any]
) -> None:
    url, _ = operator
    context = browser.new_context(java_script_enabled=False, color_scheme="dark")
    found = context.new_page()
    found.goto(url)
    for panel in ("failures", "controllers", "deleting", "objects", "kinds", "parts"):
        assert found.inner_text(f"#{panel} h2")
    assert "Running for" in found.inner_text("footer")
    assert not found.is_visible("#pause")
    found.fill("input[name=namespace]", "default")
    found.fill("input[name=q]", "bad-1")
    found.select_option("select[name=state]", "failing")
    found.get_by_role("button", name="Filter").click()
    assert found.locator("#objects tbody tr").count() == 1
    assert found.input_value("input[name=q]") == "bad-1"
    found.locator("#objects tbody th a").click()
    assert "ValueError" in found.inner_text("#timeline")
    found.screenshot()
    dark = found.locator("body").evaluate("e => getComputedStyle(e).backgroundColor")
    context.close()
    assert max(map(int, dark.removeprefix("rgb(").removesuffix(")").split(","))) < 60


# -- a bad day -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bad_day() -> Iterator[str]:
    """The URL of an operator of 3 kinds and 301 objects: 34 fail, 17 of them for good, 3 are held
    in deletion, and 24 wait for the one worker of ``tenant``."""
    release = threading.Event()

    def open_shop(request: Request) -> None:
        number = int(request.name.rpartition("-")[2])
        if number < 14:
            raise ConnectionError("the registry of the city answers 503")
        if number < 31:
            raise TerminalError("there is no such city")

    def keep(request: Request) -> None:
        if request.name in HELD:
            raise PermissionError("the store refuses to delete")

    def wait(_: Request) -> None:
        release.wait(600)

    def feed(queue: RequestQueue[Request], _: StopSignal) -> None:
        for number in range(25):
            queue.add(Request("shops", f"tenant-{number}"))

    with MemoryServer() as server, server.client() as client:
        options = ProfileServerOptions(address="127.0.0.1:0")
        manager = Manager(client, name="shop", metrics=Metrics(), profile_server=options)
        slowly = ControllerOptions(rate_limiter=lambda: ItemExponential(base=600.0))
        shops = controller_for(manager).for_(CONFIG_MAP).named("shops").with_options(slowly)
        shops.complete(open_shop)
        keys = controller_for(manager).for_(kinds.core.v1.Secret).named("keys")
        keys.with_options(slowly).complete(keep)
        tenants: Controller[Request] = Controller("tenant", wait)
        tenants.watch(FunctionSource(feed))
        manager.add(tenants)
        client.create(MutableObject.new(kinds.core.v1.Namespace, "shops"))
        for number in range(176):
            client.create(MutableObject.new(CONFIG_MAP, f"shop-{number}", namespace="shops"))
        for number in range(100):
            secret = MutableObject.new(kinds.core.v1.Secret, f"key-{number}", namespace="shops")
            secret["metadata"]["finalizers"] = ["shops.example.com/keys"]
            client.create(secret)
        for name in HELD:
            client.delete(kinds.core.v1.Secret, name, namespace="shops")
        run = Run(manager).start()
        abouts = [("failing", "34 objects"), ("deleting", "3 held"), ("controllers", "tenant: 24")]

        def is_as_bad_as_that() -> bool:
            verdict = manager.debug_state()["verdict"]
            found = [(each["about"], " ".join(each["text"].split()[:2])) for each in verdict]
            return found == abouts

        eventually(is_as_bad_as_that)
        yield f"http://{manager.addresses['profile']}"
        release.set()
        assert run.end() == []


HELD = ("key-3", "key-44", "key-71")


def test_what_fails_and_since_when_is_seen_at_once(page: Any, bad_day: str) -> None:
    page.goto(bad_day)
    assert page.url.endswith("/debug/"), "the root leads to the page"
    verdict = page.inner_text("#verdict").splitlines()
    assert verdict[0] == "34 objects failing (17 for good)"
    assert verdict[1].startswith("3 held in deletion, oldest ")
    assert verdict[2] == "tenant: 24 wait for 1 worker"
    top = page.locator("#verdict").bounding_box()
    assert top["y"] + top["height"] < 250
    causes = page.locator("#failures tbody tr")
    assert "TerminalError: there is no such city" in causes.nth(0).inner_text()
    assert "17 objects" in causes.nth(0).inner_text()
    since = causes.nth(0).locator("[data-label=Since] span")
    assert " ago" in since.inner_text()
    assert since.get_attribute("title").endswith(" UTC")


def test_which_of_the_objects_fail_is_one_click(page: Any, bad_day: str) -> None:
    page.goto(bad_day)
    page.click("#verdict a >> text=34 objects failing")
    page.wait_for_url("**/debug/?state=failing#objects")
    rows = page.locator("#objects tbody tr")
    assert rows.count() == 34
    assert rows.nth(0).locator("[data-label=Outcome]").inner_text() == "failed for good"
    # The events keep the filter.
    page.evaluate("document.querySelector('#objects tbody').id = 'before'")
    page.wait_for_selector("#before", state="detached")
    assert page.locator("#objects tbody tr").count() == 34
    page.locator("#failures a", has_text="ConnectionError").first.click()
    page.wait_for_selector("#cause >> text=14 objects")
    assert page.locator("#cause tbody tr").count() == 14


def test_whether_it_gets_better_or_worse_is_in_the_row_of_each_controller(
    page: Any, bad_day: str
) -> None:
    page.goto(bad_day)
    failing = page.locator("#controllers tbody tr", has_text="shops").locator(
        "[data-label=Failing]"
    )
    assert "31 failed calls since the start" in failing.inner_text()
    label = failing.locator("svg").get_attribute("aria-label")
    assert label.startswith("failures in ten minutes: 31, at most ")
    states = page.locator("#controllers [data-label=State]").all_inner_texts()
    assert states == ["failing", "failing", "behind"], "those that fail come first"


def test_why_a_queue_waits_is_one_click(page: Any, bad_day: str) -> None:
    page.goto(bad_day)
    page.click("#verdict a >> text=tenant: 24 wait")
    page.wait_for_selector("#controller >> text=1 of 1 worker busy, with shops/tenant-0 for ")
    assert "Next: shops/tenant-1, " in page.inner_text("#controller")
    assert "tenant" in page.title()
    assert page.inner_text("#controller .head .dim") == "1 worker"


def test_who_is_stuck_in_deletion_and_why_is_one_click(page: Any, bad_day: str) -> None:
    page.goto(bad_day)
    page.click("#verdict a >> text=3 held in deletion")
    rows = page.locator("#deleting tbody tr")
    assert [row.split()[0] for row in rows.all_inner_texts()] == [f"shops/{each}" for each in HELD]
    assert "PermissionError: the store refuses to delete" in rows.nth(0).inner_text()
    assert "shops.example.com/keys" in rows.nth(0).inner_text()


def test_two_screens_are_enough_and_a_narrow_one_has_cards(browser: Any, bad_day: str) -> None:
    screens = ((1440, 900, 2.2 * 900), (1120, 900, 2.4 * 900), (390, 844, 6 * 844))
    for width, height, most in screens:
        context = browser.new_context(viewport={"width": width, "height": height})
        page = context.new_page()
        page.goto(bad_day)
        assert page.evaluate("document.documentElement.scrollHeight") <= most
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        overflows = "each => each.scrollWidth > each.clientWidth"
        assert not page.locator("#controllers .scroll").first.evaluate(overflows)
        if width == 390:
            box = page.locator("#objects thead").bounding_box()
            assert box is None or box["x"] < 0
            card = page.locator("#objects tbody tr").first
            labels = card.locator("td").evaluate_all(
                "cells => cells.filter(c => c.offsetParent).map(c => "
                "getComputedStyle(c, '::before').content.replaceAll('\"', ''))"
            )
            assert labels == ["Outcome", "Cause", "Since", "Why"]
        context.close()


CONTRAST = """() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (node) => {
    for (; node; node = node.parentElement) {
      const color = parse(getComputedStyle(node).backgroundColor);
      if (color.length === 3 || color[3] > 0) return color;
    }
    return [255, 255, 255];
  };
  const found = {};
  for (const node of document.querySelectorAll("body *")) {
    const hasText = [...node.childNodes].some((c) => c.nodeType === 3 && c.data.trim());
    if (!hasText || !node.offsetParent) continue;
    const [a, b] = [light(parse(getComputedStyle(node).color)), light(ground(node))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const name = `${node.tagName} ${node.className}`;
    found[name] = Math.min(found[name] ?? 99, ratio);
  }
  return found;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_stands_out_from_its_ground(browser: Any, bad_day: str, scheme: str) -> None:
    context = browser.new_context(color_scheme=scheme)
    page = context.new_page()
    for path in (
        "/debug/",
        "/debug/controller?name=tenant",
        "/debug/object?namespace=shops&name=shop-3",
    ):
        page.goto(f"{bad_day}{path}")
        found = page.evaluate(CONTRAST)
        assert len(found) > 10
        assert {name: ratio for name, ratio in found.items() if ratio < 4.5} == {}
    context.close()


def test_the_keyboard_reaches_everything_in_order_and_shows_where_it_is(
    page: Any, bad_day: str
) -> None:
    page.goto(bad_day)
    page.get_by_role("button", name="Pause").click()
    page.evaluate("document.activeElement.blur()")
    page.evaluate("window.getSelection().removeAllRanges()")
    wanted = page.evaluate(
        "[...document.querySelectorAll('a, button, input, select, summary, .scroll')]"
        ".filter(e => e.checkVisibility()).length"
    )
    seen = []
    for _ in range(wanted):
        page.keyboard.press("Tab")
        seen.append(
            page.evaluate(
                "() => { const e = document.activeElement, s = getComputedStyle(e);"
                "return [e.tagName, e.closest('[id]')?.id || '', s.outlineStyle !== 'none' || "
                "e.className === 'skip', e.textContent] }"
            )
        )
    assert [each for each in seen if not each[2] and each[0] != "BODY"] == []
    places = [place for tag, place, _, _ in seen if tag != "BODY"]
    order = ["verdict", "controllers", "failures", "deleting", "objects", "process"]
    firsts = [places.index(each) for each in order[:-1]]
    assert firsts == sorted(firsts)
    names = [text for tag, _, _, text in seen if tag == "A"]
    assert names[0] == "Controllers" or names[0] == "To the content"
    assert "34 objects failing (17 for good)" in names
