"""Conversion webhooks of custom resources: their reviews, and the checks of their responses."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, Final, final

from appsdk_operator.apiserver._storage.resources import Catalog
from appsdk_operator.apiserver._storage.storage import Collection, Event
from appsdk_operator.apiserver._values.names import key_problems, value_problems
from appsdk_operator.apiserver._values.status import FieldError, StatusError
from appsdk_operator.apiserver._webhooks.webhook_client import CallError, WebhookClient

_GROUP: Final = "apiextensions.k8s.io"
_VERSIONS: Final = ("v1", "v1beta1")
_SECONDS: Final = 30


@final
class WebhookConverter:
    """Converts the objects of one resource by its webhook."""

    def __init__(
        self, webhook_client: WebhookClient, kind: str, conversion: Mapping[str, Any]
    ) -> None:
        """``conversion`` is the ``spec.conversion`` of the definition."""
        webhook = conversion.get("webhook") or {}
        accepted = webhook.get("conversionReviewVersions") or ()
        version = next((name for name in accepted if name in _VERSIONS), _VERSIONS[0])
        self.conversion = conversion
        self._webhook_client = webhook_client
        self._kind = kind
        self._config = webhook.get("clientConfig") or {}
        self._version = f"{_GROUP}/{version}"

    async def convert(
        self, objects: list[dict[str, Any]], source: str, wanted: str
    ) -> list[dict[str, Any]]:
        """Copies of the objects, converted from the apiVersion ``source`` to ``wanted``.

        Raises:
            StatusError: 500, the call fails, or the response is not valid.
        """
        if not objects or source == wanted:
            return objects
        review = self._review(objects, wanted)
        prefix = f"conversion webhook for {source}, Kind={self._kind} "
        try:
            answer = await self._webhook_client.post(self._config, review, _SECONDS)
            found = self._converted_objects(answer, review["request"]["uid"])
        except CallError as error:
            raise _failure(f"{prefix}failed: {error}") from None
        if len(found) != len(objects):
            raise _failure(f"{prefix}returned {len(found)} objects, expected {len(objects)}")
        return [
            self._checked(index, before, after, wanted, prefix)
            for index, (before, after) in enumerate(zip(objects, found, strict=True))
        ]

    def _review(self, objects: list[dict[str, Any]], wanted: str) -> dict[str, Any]:
        sent = []
        for obj in objects:
            metadata = {k: v for k, v in obj["metadata"].items() if k != "resourceVersion"}
            sent.append({**obj, "metadata": metadata})
        return {
            "kind": "ConversionReview",
            "apiVersion": self._version,
            "request": {
                "uid": str(uuid.uuid4()),
                "desiredAPIVersion": wanted,
                "objects": sent,
            },
            # The real server sends this empty response, too.
            "response": {"uid": "", "convertedObjects": None, "result": {"metadata": {}}},
        }

    def _converted_objects(self, answer: Mapping[str, Any], uid: str) -> list[Any]:
        kind, version = answer.get("kind") or "", answer.get("apiVersion") or ""
        if kind == "ConversionReview" and version != self._version and version.startswith(_GROUP):
            given, expected = version.rpartition("/")[2], self._version.rpartition("/")[2]
            raise CallError(
                f"converting ({given}.ConversionReview) to ({expected}.ConversionReview): unknown "
                "conversion"
            )
        if (kind, version) != ("ConversionReview", self._version):
            group, _, short = version.rpartition("/")
            raise CallError(
                f"expected webhook response of {self._version}, Kind=ConversionReview, got "
                f"{group}/{short}, Kind={kind}"
            )
        response = answer.get("response")
        if not isinstance(response, dict):
            raise CallError("no response provided")
        given = response.get("uid") or ""
        if given != uid and self._version.endswith("/v1"):
            raise CallError(f'expected response.uid="{uid}", got "{given}"')
        result = response.get("result")
        result = result if isinstance(result, dict) else {}
        if result.get("status") != "Success":
            why = result.get("message")
            status = result.get("status") or ""
            raise CallError(why or f"response.result.status was '{status}', not 'Success'")
        found = response.get("convertedObjects")
        return found if isinstance(found, list) else []

    def _checked(
        self, index: int, before: dict[str, Any], after: Any, wanted: str, prefix: str
    ) -> dict[str, Any]:
        if not isinstance(after, dict):
            what = "string" if isinstance(after, str) else "value"
            raise _failure(
                f"json: cannot unmarshal {what} into Go value of type map[string]interface {{}}"
            )
        at = f"{prefix}returned invalid object at index {index}: "
        version, kind = after.get("apiVersion") or "", after.get("kind") or ""
        if version != wanted:
            raise _failure(
                f"{at}invalid groupVersion (expected {wanted}, received {version or '/'})"
            )
        if kind != self._kind:
            raise _failure(f"{at}invalid kind (expected {self._kind}, received {kind})")
        given = after.get("metadata")
        metadata = given if isinstance(given, dict) else {}
        for name, words in (("name", "name"), ("namespace", "namespace"), ("uid", "UID")):
            old, new = before["metadata"].get(name, ""), metadata.get(name, "")
            if old != new:
                raise _failure(
                    f"{prefix}returned invalid object: must have the same {words}: {old} != {new}"
                )
        after["metadata"] = _with_allowed_metadata(before["metadata"], metadata, prefix)
        return after


def _with_allowed_metadata(
    before: Mapping[str, Any], after: Mapping[str, Any], prefix: str
) -> dict[str, Any]:
    """The old metadata with the labels and annotations of the webhook."""
    changing = ("labels", "annotations", "resourceVersion")
    metadata = {name: value for name, value in before.items() if name not in changing}
    for name, shown in (("labels", "metadata.labels"), ("annotations", "metadata.annotation")):
        values = after.get(name)
        if not values:
            continue
        for key, value in values.items():
            if not isinstance(value, str):
                raise _failure(
                    f"{prefix}returned invalid metadata: metadata.{name}[{key}] must be a string, "
                    f"but is {_go_type(value)} in converted object"
                )
        problems = [
            str(FieldError.invalid(shown, key, problem))
            for key in values
            for problem in key_problems(key if name == "labels" else key.lower())
        ]
        if name == "labels":
            problems += [
                str(FieldError.invalid(shown, value, problem))
                for value in values.values()
                for problem in value_problems(value)
            ]
        if problems:
            shown = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
            raise _failure(f"{prefix}returned invalid metadata: {shown}")
        metadata[name] = values
    return metadata


def _go_type(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if value is None:
        return "<nil>"
    names = {int: "int64", float: "float64", list: "[]interface {}"}
    return names.get(type(value), "map[string]interface {}")


def _failure(message: str) -> StatusError:
    return StatusError(500, message, reason="")


@final
class ConversionWebhooks:
    """Gives each resource the converter of its definition."""

    def __init__(
        self, catalog: Catalog, definitions: Collection, webhook_client: WebhookClient
    ) -> None:
        """``definitions`` are the stored CustomResourceDefinitions."""
        self._catalog = catalog
        self._definitions = definitions
        self._webhook_client = webhook_client

    def on_event(self, collection: Collection, event: Event) -> None:
        """Replace the converter when its definition has changed."""
        if collection is not self._definitions or event.type == "DELETED":
            return
        spec = event.record.decode()["spec"]
        resource = self._catalog.resource(spec["group"], spec["names"]["plural"])
        if resource is None or not resource.strategy.custom:
            return
        conversion = spec.get("conversion") or {}
        present = resource.converter
        if conversion.get("strategy") != "Webhook":
            resource.converter = None
        elif present is None or present.conversion != conversion:
            resource.converter = WebhookConverter(self._webhook_client, resource.kind, conversion)
