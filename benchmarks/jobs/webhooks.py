"""Webhooks over TLS: reviews a second, and how long an answer takes.

One review, of an object of 2 KB, is sent again and again over keep-alive connections of HTTP/1.1,
the next one when the answer has come. Who sends is a program in Go.

* floor handler: a handler of Go's net/http that reads the review and always answers the same. It
  says how far the sender goes.
* appsdk, appsdk typed: a ``WebhookServer`` with a defaulter, a validator and conversion functions,
  of plain objects or with classes.
* controller-runtime: the same by its builder, with Go types.
* kopf: handlers of an operator, on its own server; it has no conversion.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from benchmarks import _peers
from benchmarks._job import Case, Column, Group, Job, Unit
from benchmarks._measures import Figures, Measure, column, one_case, run

_GO: Final = {"floor handler": "floor", "controller-runtime": "serve"}
_PYTHON: Final = {"appsdk": "plain", "appsdk typed": "typed", "kopf": "kopf"}
_VERBS: Final = {"validate": "validated", "mutate": "changed", "convert": "converted"}
_CONNECTIONS: Final = (1, 32)


def reviews(
    label: str,
    *,
    verb: str = "validate",
    connections: int = 1,
    seconds: float = 3.0,
    warm_up: float = 1.0,
) -> Figures:
    """What a server does in this time."""
    from benchmarks import _webhooks

    program = str(_peers.build("webhooks"))
    asked = _webhooks.review(verb)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _webhooks.write_certificate(folder)
        body = folder / "review.json"
        body.write_bytes(asked.body)
        options: dict[str, Any] = {"certificates": name}
        if label in _GO:
            answer = json.dumps({"response": {"uid": "0", "answer": asked.wanted}})
            answer = answer.replace("\\", "") + asked.wanted
            command = [program, _GO[label], json.dumps({**options, "answer": answer})]
        else:
            command = [sys.executable, "-m", "benchmarks._webhooks", _PYTHON[label], name]
        with _webhooks.served(command) as (process, port):
            load = {
                "address": f"127.0.0.1:{port}",
                "path": asked.path,
                "body": str(body),
                # kopf's JSON has spaces in it.
                "wanted": asked.wanted.replace(":", ": ") if label == "kopf" else asked.wanted,
                "process": process,
                "connections": connections,
                "seconds": seconds,
                "warm_up": warm_up,
            }
            done = subprocess.run(
                [program, "load", json.dumps(load)], check=False, capture_output=True, text=True
            )
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    found: dict[str, float] = json.loads(done.stdout)
    return found


MEASURES: dict[str, Measure] = {
    label: functools.partial(reviews, label)
    for label in ("floor handler", "appsdk", "appsdk typed", "controller-runtime", "kopf")
}
_QUICK: Final[Mapping[str, Any]] = {"seconds": 0.4, "warm_up": 0.2}


def _cases(quick: bool) -> Sequence[Case]:
    (usual,) = one_case(
        "benchmarks.jobs.webhooks",
        MEASURES,
        _QUICK,
        floor="floor handler",
        peers={"kopf": "kopf"},
    )(quick)
    absent = "" if _peers.has_go() else "there is no Go toolchain"
    return [
        replace(
            usual,
            title=f"objects {participle}, {_said(connections)}",
            entries=[
                replace(
                    entry,
                    group=Group.PEER if entry.label == "controller-runtime" else entry.group,
                    options={**entry.options, "verb": verb, "connections": connections},
                    absent=absent or entry.absent,
                )
                for entry in usual.entries
                if (verb, entry.label) != ("convert", "kopf")
            ],
        )
        for verb, participle in _VERBS.items()
        for connections in (_CONNECTIONS[:1] if quick else _CONNECTIONS)
    ]


def _said(connections: int) -> str:
    return "1 connection" if connections == 1 else f"{connections} connections"


JOB = Job(
    name="webhooks",
    title="Webhooks: admission and conversion",
    text=(
        "A review with an object of 2 KB is sent again and again, over TLS on connections that "
        "stay open, the next one when the answer has come. `reviews per CPU second` counts the CPU "
        "time of the server's process alone, not that of who sends. `floor handler` is a "
        "handler of Go's net/http that reads the review and always answers the same: the most that "
        "the sender can do. Of the time that ours takes to validate, a quarter is the review "
        "itself; HTTP and TLS take the rest, and with 32 connections its threads take turns at "
        "Python's interpreter lock."
    ),
    columns=(
        Column(
            title="reviews per CPU second",
            value=lambda numbers: numbers["reviews"] / numbers["cpu"],
            unit=Unit.RATE,
            more_is_better=True,
        ),
        Column(
            title="reviews/s",
            value=lambda numbers: numbers["reviews"] / numbers["seconds"],
            unit=Unit.RATE,
            more_is_better=True,
        ),
        column("median", "p50", Unit.SECONDS),
        column("99th percentile", "p99", Unit.SECONDS),
        Column(title="cores used", value=lambda numbers: numbers["cores"], more_is_better=None),
    ),
    cases=_cases,
    rounds=3,
)

if __name__ == "__main__":
    run(MEASURES)
