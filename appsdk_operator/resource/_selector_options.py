"""Selectors from the forms in which users give them; None loads nothing of selectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from appsdk_operator.resource._filters import FilterExpression
    from appsdk_operator.resource._selections import FieldSelection, LabelSelection
    from appsdk_operator.resource._selectors import FieldSelector, LabelSelector


def label_selector_of(
    selector: LabelSelection | None, option: str = "label_selector"
) -> LabelSelector | None:
    """A label selector from any of its forms; ``option`` is its name in error texts.

    Raises:
        SelectorError: it cannot be parsed, or a key or value is not allowed.
        TypeError: it has another form.
    """
    if selector is None:
        return None
    from appsdk_operator.resource._filters import FilterExpression
    from appsdk_operator.resource._selectors import LabelSelector, selector_of

    if isinstance(selector, FilterExpression):
        found: LabelSelector = _of_filter(selector, "label_selector", option, "labels(…)")
        return found
    instead = "LabelSelector.from_object for matchLabels"
    return selector_of(selector, option, LabelSelector, instead, '"app=web,tier in (a,b)"')


def field_selector_of(
    selector: FieldSelection | None, option: str = "field_selector"
) -> FieldSelector | None:
    """A field selector from any of its forms; ``option`` is its name in error texts.

    Raises:
        SelectorError: it cannot be parsed, or a path or value is not allowed.
        TypeError: it has another form.
    """
    if selector is None:
        return None
    from appsdk_operator.resource._filters import FilterExpression
    from appsdk_operator.resource._selectors import FieldSelector, selector_of

    if isinstance(selector, FilterExpression):
        terms = "field(path) == text and != text, with names and dots in the path"
        found: FieldSelector = _of_filter(selector, "field_selector", option, terms)
        return found
    instead = "paths like metadata.name"
    return selector_of(selector, option, FieldSelector, instead, '"metadata.name=web"')


def _of_filter(selector: FilterExpression, attribute: str, option: str, terms: str) -> Any:
    found = getattr(selector, attribute, None)  # a filter of changes has none
    if found is None:
        raise TypeError(
            f"{option}={selector}: a server selects by {terms}, joined by &: filter by the rest "
            "with where="
        )
    return found
