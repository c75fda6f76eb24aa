"""The search of the site, in Debian's Chromium: a question leads to the page that explains it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

CHROMIUM = shutil.which("chromium")
SEARCH = Path(__file__).parents[2] / "build/docs/html/search.html"

pytestmark = [
    pytest.mark.programs,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium"),
    pytest.mark.skipif(not SEARCH.exists(), reason="needs the built site: make docs"),
]
playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install it")

QUERIES = {
    "retry": "retries.html",
    "requeue": "watchers.html",
    "GIL": "faq.html",
    "tombstone": "glossary.html",
    "time limit": "retries.html",
    "finalizer": "app.html",
    "predicate": "controllers.html",
    "cache": "informers-and-caches.html",
    "informer": "informers-and-caches.html",
    "leader election": "leader-election.html",
    "webhook": "webhooks.html",
    "conversion": "webhooks.html",
    "permissions": "rbac.html",
    "metrics": "observability.html",
    "conditions": "helpers.html",
    "helm": "deployment.html",
    "kopf": "coming-from-kopf.html",
    "World": "testing.html",
    "pytest": "testing.html",
    "on_update": "app.html",
    "cron": "app.html",
    "schema": "crds.html",
    "Client.get": "reference/classes/Client.html#appsdk_operator.client.Client.get",
    "Manager.run()": "reference/classes/Manager.html#appsdk_operator.manager.Manager.run",
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        yield found
        found.close()


def test_a_search_finds_first_what_explains_it(browser: Any) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.set_default_timeout(60_000)
    wrong = {}
    for query, wanted in QUERIES.items():
        page.goto(f"{SEARCH.as_uri()}?q={quote(query)}")
        result = page.wait_for_selector("#search-results li a")
        found = result.get_attribute("href")
        if found != wanted and found.partition("#")[0] != wanted:
            wrong[query] = found
    context.close()
    assert wrong == {}
