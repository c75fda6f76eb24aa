"""Answers without what chance decides: identities, times, versions and generated names.

What remains tells whether two values are equal and which of two versions is newer, so a server that
mixes them up is still found out.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any

import attrs

from tests.differential.conversation import Conversation

_UUID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
_MICRO_TIME = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z")
_TIME = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_GO_TIME = re.compile(r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)? \+0000 UTC( m=\S+)?")
_VERSION_IN_TEXT = re.compile(
    r"((?:resource ?version(?: in [a-z ]+)?|current): |resource ?version in [a-z ]+ \("
    r"|resourceVersion\\\":\\\")(\d+)\b",
    re.IGNORECASE,
)
_OWN_VERSION = re.compile(r'resourceVersion(?:=|\W{1,5}")(\d+)')
_SECOND_IN_TEXT = re.compile(r"(<v[^>]*> \()(\d+)(\))")
_AGE = re.compile(r"(\d+(ms|s|m|h|d|y))+( ago)?")
_AGE_COLUMNS = {"Age", "Last Seen", "First Seen"}
_FILLER = re.compile(r"x{40,}")


def normalised(conversation: Conversation) -> list[dict[str, Any]]:
    """The answers of a conversation, as they can be compared."""
    answers = [
        {key: value for key, value in answer.items() if key not in ("ignore", "differs")}
        for answer in conversation.answers
    ]
    return _Normaliser.of(conversation, answers).value(answers)


@attrs.define
class _Normaliser:
    """Replaces what chance decided in one conversation."""

    own_text: str
    own_versions: set[str]
    versions: list[int]
    texts: dict[str, str]
    uids: dict[str, str] = attrs.field(factory=dict)

    @classmethod
    def of(cls, conversation: Conversation, answers: list[dict[str, Any]]) -> _Normaliser:
        own = conversation.case.text
        own_versions = set(_OWN_VERSION.findall(own))
        found = {int(v) for v, exact in _versions(answers) if exact and v not in own_versions}
        # Names that were generated may begin with the name of the namespace.
        texts = dict(_generated_names(answers))
        texts |= {conversation.values["ns"]: "<ns>", conversation.values["group"]: "<group>"}
        return cls(own, own_versions, sorted(found), texts)

    def value(self, value: Any, path: tuple[str, ...] = ()) -> Any:
        if isinstance(value, dict):
            return self._object(value, path)
        if isinstance(value, list):
            return [self.value(item, path) for item in value]
        return self.text(value) if isinstance(value, str) else value

    def _object(self, value: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
        if "columnDefinitions" in value and "rows" in value:
            value = _without_ages(value)
        if value.get("kind") == "Status" and "causes" in (value.get("details") or {}):
            value = _in_order(value)
        found = {}
        # In an order that does not depend on the server: uids are numbered as they come.
        for key in sorted(value):
            item = value[key]
            if key == "resourceVersion" and isinstance(item, str):
                found[key] = self.version(item, exact=not _is_of_collection(value, path))
            elif key == "continue" and item:
                found[key] = "<continue>"
            else:
                inner = (*path, *_marks(value), key)
                found[self.text(key)] = self.value(item, inner)
        return found

    def version(self, text: str, *, exact: bool) -> str:
        if not text.isdigit() or text == "0" or text in self.own_versions:
            return text
        number = int(text)
        rank = bisect_right(self.versions, number)
        if exact and rank and self.versions[rank - 1] == number:
            return f"<v{rank}>"
        # Other conversations write too: all that can be said is what it is not older than.
        return f"<v{rank} or later>"

    def text(self, text: str) -> str:
        for given, name in self.texts.items():
            text = text.replace(given, name)
        text = self._unless_own(_UUID, text, self._uid)
        for pattern, name in (
            (_MICRO_TIME, "<micro time>"),
            (_TIME, "<time>"),
            (_GO_TIME, "<time>"),
        ):
            text = self._unless_own(pattern, text, lambda _found, name=name: name)
        text = _VERSION_IN_TEXT.sub(self._version_in_text, text)
        text = _SECOND_IN_TEXT.sub(self._version_in_text, text)
        return _FILLER.sub(lambda found: f"<{len(found[0])} x>", text)

    def _unless_own(self, pattern: re.Pattern[str], text: str, name: Any) -> str:
        return pattern.sub(lambda f: f[0] if f[0] in self.own_text else name(f[0]), text)

    def _uid(self, uid: str) -> str:
        return self.uids.setdefault(uid, f"<uid {len(self.uids) + 1}>")

    def _version_in_text(self, found: re.Match[str]) -> str:
        tail = found[3] if found.re is _SECOND_IN_TEXT else ""
        if re.search(rf"\b{found[2]}\b", self.own_text):
            return found[0]
        return f"{found[1]}{self.version(found[2], exact=True)}{tail}"


def _marks(value: dict[str, Any]) -> tuple[str, ...]:
    """What the versions inside of an object are to be told apart by."""
    if value.get("type") == "BOOKMARK":
        return ("<bookmark>",)
    kind = value.get("kind")
    is_list = isinstance(kind, str) and kind.endswith("List")
    return ("<collection>",) if is_list or "items" in value or "rows" in value else ()


def _is_of_collection(metadata: dict[str, Any], path: tuple[str, ...]) -> bool:
    """Whether this metadata is a list's own, or belongs to a bookmark."""
    return path[-2:] == ("<collection>", "metadata") or "<bookmark>" in path


def _versions(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, bool]]:
    if isinstance(value, list):
        for item in value:
            yield from _versions(item, path)
    elif isinstance(value, dict):
        marked = (*path, *_marks(value))
        for key, item in value.items():
            if key == "resourceVersion" and isinstance(item, str) and item.isdigit():
                yield item, item != "0" and not _is_of_collection(value, path)
            else:
                yield from _versions(item, (*marked, key))


def _generated_names(value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, list):
        for item in value:
            yield from _generated_names(item)
    elif isinstance(value, dict):
        base, name = value.get("generateName"), value.get("name")
        texts = isinstance(base, str) and isinstance(name, str) and base
        if texts and name != base and name.startswith(base[:58]):
            yield name, f"{name[:-5]}<generated>"
        for item in value.values():
            yield from _generated_names(item)


def _in_order(status: dict[str, Any]) -> dict[str, Any]:
    """A Status whose causes are told once each, and those of custom resources in one order.

    The real server finds some mistakes several times on its way, and goes through the schema of
    a custom resource in an order that chance decides.
    """
    details = status["details"]
    causes = [
        each for at, each in enumerate(details["causes"]) if each not in details["causes"][:at]
    ]
    message = status["message"]
    if "." in details.get("group", "") and not details["group"].endswith(".k8s.io"):
        texts = [f"{each.get('field')}: {each.get('message')}" for each in causes]
        message = message.replace(", ".join(texts), ", ".join(sorted(texts)))
        causes = sorted(causes, key=lambda each: (str(each.get("field")), str(each.get("message"))))
    return {**status, "message": message, "details": {**details, "causes": causes}}


def _without_ages(table: dict[str, Any]) -> dict[str, Any]:
    columns = table["columnDefinitions"] or ()
    at = {i for i, c in enumerate(columns) if c["name"] in _AGE_COLUMNS or c["type"] == "date"}
    if not columns:
        # The tables of a watch have their columns in the first event only.
        at = set(range(99))
    rows = [
        {
            **row,
            "cells": [
                "<age>" if i in at and isinstance(cell, str) and _AGE.fullmatch(cell) else cell
                for i, cell in enumerate(row["cells"])
            ],
        }
        for row in table["rows"] or ()
    ]
    return {**table, "rows": rows}
