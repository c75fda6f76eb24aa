"""A Prometheus on loopback, and the pages that it scrapes."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import attrs
import yaml

from appsdk_operator.manager import HTTPResponse, MetricsServer, MetricsServerOptions
from appsdk_operator.runtime import Metrics
from appsdk_operator.testing import running
from tests.waiting import eventually

TEXT = "text/plain; version=0.0.4"
# Windows are long enough for several scrapes on a busy machine, and times to hold for one that is
# missed.
_WINDOW, _HOLD = "12s", "4s"


@attrs.frozen
class Target:
    """A page to scrape, of one replica of an operator."""

    job: str
    address: str
    path: str = "/metrics"


@contextlib.contextmanager
def pages(metrics: dict[str, Sequence[Metrics]], down: set[str]) -> Generator[list[Target]]:
    """Serve the metrics of jobs, each replica at a path of its own.

    Args:
        metrics: those of the replicas, by job.
        down: the jobs that answer 503; may change.
    """

    def handler(job: str, each: Metrics) -> Callable[[object], HTTPResponse]:
        def answer(_: object) -> HTTPResponse:
            if job in down:
                return HTTPResponse(status=503)
            return HTTPResponse(body=each.render().encode(), content_type=TEXT)

        return answer

    handlers = {
        f"/{job}/{number}": handler(job, each)
        for job, replicas in metrics.items()
        for number, each in enumerate(replicas)
    }
    options = MetricsServerOptions(address="127.0.0.1:0", extra_handlers=handlers)
    server = MetricsServer(options, metrics=Metrics())
    with running(server):
        yield [Target(path.split("/")[1], server.address, path) for path in handlers]


def quick_rules(rules: Path) -> str:
    """The rules with seconds instead of minutes and hours."""
    text = re.sub(r"\[\d+m\]", f"[{_WINDOW}]", rules.read_text(encoding="utf-8"))
    return re.sub(r"for: [1-9]\w*", f"for: {_HOLD}", text)


class Prometheus:
    """The HTTP interface of a running Prometheus."""

    def __init__(self, url: str) -> None:
        self.url = url

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series that an expression gives now."""
        data = urlencode({"query": expression}).encode()
        with urlopen(f"{self.url}/api/v1/query", data, timeout=10) as answer:
            found: dict[str, Any] = json.load(answer)["data"]
        if found["resultType"] == "scalar":
            return [{"metric": {}, "value": found["result"]}]
        return list(found["result"])

    def fired(self) -> dict[str, set[str]]:
        """The alerts that have fired at any time, by job."""
        found: dict[str, set[str]] = {}
        for each in self.query('last_over_time(ALERTS{alertstate="firing"}[10m])'):
            found.setdefault(each["metric"]["job"], set()).add(each["metric"]["alertname"])
        return found

    def annotations(self) -> list[dict[str, str]]:
        """Those of the alerts that fire now, as people read them."""
        with urlopen(f"{self.url}/api/v1/alerts", timeout=10) as answer:
            return [each["annotations"] for each in json.load(answer)["data"]["alerts"]]

    def is_ready(self) -> bool:
        """Whether it answers."""
        try:
            with urlopen(f"{self.url}/-/ready", timeout=1) as answer:
                return bool(answer.status == 200)
        except (URLError, OSError):
            return False


@contextlib.contextmanager
def prometheus_of(
    program: str, folder: Path, port: int, rules: Path, targets: Sequence[Target]
) -> Generator[Prometheus]:
    """Run Prometheus on ``port``, with ``targets`` as pods in the namespace ``operators``."""
    (folder / "rules.yaml").write_text(quick_rules(rules), encoding="utf-8")
    jobs: dict[str, Any] = {}
    for number, target in enumerate(targets):
        job = jobs.setdefault(target.job, {"job_name": target.job, "static_configs": []})
        # The path is a label of the target, because a job has one for all.
        labels = {
            "namespace": "operators",
            "pod": f"{target.job}-{number}",
            "instance": f"pod-{number}",
            "__metrics_path__": target.path,
        }
        job["static_configs"].append({"targets": [target.address], "labels": labels})
    config = {
        "global": {
            "scrape_interval": "1s",
            "scrape_timeout": "1s",
            "evaluation_interval": "500ms",
        },
        "rule_files": ["rules.yaml"],
        "scrape_configs": list(jobs.values()),
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                program,
                f"--config.file={folder / 'prometheus.yaml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--log.level=warn",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        found = Prometheus(f"http://127.0.0.1:{port}")
        assert eventually(lambda: found.is_ready() or process.poll() is not None, 60.0)
        assert process.poll() is None, (folder / "log").read_text()
        yield found
    finally:
        process.kill()  # its data is of no use
        process.wait(20)
