"""Conversations with an API server that asks webhooks, and the answers that were recorded."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.differential.conversation import Conversation, Line, Server, install
from tests.differential.normal import normalised
from tests.differential.paths import differences, split, without
from tests.webhooks.differential.scripts import HERE, Script, Where, definition

RECORDED = HERE / "recorded"
_AT_ONCE = 12
_SHOWN = 6
_HOOKS = "/apis/admissionregistration.k8s.io/v1"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

Answers = list[dict[str, Any]]


def run(server: Server, scripts: Iterable[Script], where: Where) -> dict[str, Answers | Exception]:
    """What the server answers, by the scripts' ids, when its webhooks are there."""
    scripts = list(scripts)
    with Line(server) as line:
        install(line, [definition(where)])
    found = {}
    for is_last in (False, True):
        own = [script for script in scripts if script.is_last == is_last]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            answers = pool.map(lambda script: _one(server, script, where), own)
            found |= dict(zip((script.id for script in own), answers, strict=True))
    return found


def clear(server: Server) -> None:
    """Take away what a run leaves that another run on the same server would meet."""
    with Line(server) as line:
        path = f"{_DEFINITIONS}/subjects.webhooks.example.com"
        pause = threading.Event()
        for _ in range(600):
            line.ask("DELETE", path).read()
            answer = line.ask("GET", path)
            answer.read()
            if answer.status == 404:
                return
            pause.wait(0.05)
    raise RuntimeError("the definition of subjects does not go away")


def _one(server: Server, script: Script, where: Where) -> Answers | Exception:
    conversation = Conversation(script.case(where), server)
    try:
        conversation.run()
        return [_without_places(answer, where) for answer in normalised(conversation)]
    except Exception as error:
        error.add_note(f"{script.id} on the {server.name} server")
        return error
    finally:
        with Line(server) as line:
            for verdict in ("mutating", "validating"):
                name = conversation.values["ns"]
                line.ask("DELETE", f"{_HOOKS}/{verdict}webhookconfigurations/{name}").read()


def _without_places(value: Any, where: Where) -> Any:
    """Without the port, generated names in texts, and what the second decides."""
    text = json.dumps(value, ensure_ascii=False)
    text = re.sub(rf"(127\.0\.0\.\d):{where.port}\b", r"\1:<port>", text)
    text = re.sub(r"\bsome-[a-z0-9]{5}\b", "some-<generated>", text)
    return _with_managers_in_order(json.loads(text))


def _with_managers_in_order(value: Any) -> Any:
    # Servers sort them by their times, which are whole seconds.
    if isinstance(value, list):
        return [_with_managers_in_order(item) for item in value]
    if not isinstance(value, dict):
        return value
    found = {key: _with_managers_in_order(item) for key, item in value.items()}
    if isinstance(managed := found.get("managedFields"), list):
        found["managedFields"] = sorted(managed, key=_compact)
    return found


def problem(script: Script, ours: Answers | Exception, theirs: Answers | Exception) -> str:
    """Where the answers differ though they should not; empty if nowhere."""
    for answers in (ours, theirs):
        if isinstance(answers, Exception):
            return f"{type(answers).__name__}: {answers}\n{getattr(answers, '__notes__', '')}"
    assert not isinstance(ours, Exception)
    assert not isinstance(theirs, Exception)
    ignored = [_ignored(step) for step in _spread(script)]
    documented = [split(path) for each in script.differs for path in each.paths]
    one, other = (
        [without(a, [*paths]) for a, paths in zip(answers, ignored, strict=True)]
        for answers in (ours, theirs)
    )
    before = list(differences(one, other))
    one, other = without(one, documented), without(other, documented)
    found = list(differences(one, other))
    is_certain = any(each.is_certain for each in script.differs)
    if is_certain and not found and not before:
        return "there is no such difference any more: take `differs` out"
    lines = [f"{at}\n    kit: {mine!r}\n    Go:  {their!r}" for at, mine, their in found[:_SHOWN]]
    return "\n".join(lines)


def _ignored(step: dict[str, Any]) -> list[tuple[str, ...]]:
    paths = step.get("ignore", ())
    return [split(path) for path in ([paths] if isinstance(paths, str) else paths)]


def _spread(script: Script) -> list[dict[str, Any]]:
    """The steps that have an answer, as often as they are carried out."""
    steps = [step for step in script.steps if "close" not in step]
    return [step for step in steps for _ in step.get("each", [None])]


def recorded(version: str) -> dict[str, list[Any]]:
    """What controller-runtime's webhooks came to on a server: ``{id: [digest, answers]}``."""
    path = RECORDED / f"{version}.json"
    if not path.exists():
        return {}
    found: dict[str, list[Any]] = json.loads(path.read_text(encoding="utf-8"))
    return found


def record(version: str, scripts: Iterable[Script], answers: dict[str, Any]) -> None:
    """Keep it, a line for each answer, so that changes can be read."""
    RECORDED.mkdir(exist_ok=True)
    cases = []
    for script in scripts:
        if isinstance(answers.get(script.id), list):
            lines = ",\n".join(f"  {_compact(answer)}" for answer in answers[script.id])
            cases.append(f"{_compact(script.id)}: [{_compact(script.digest)}, [\n{lines}\n]]")
    text = "{\n" + ",\n".join(cases) + "\n}\n"
    (RECORDED / f"{version}.json").write_text(text, encoding="utf-8")


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
