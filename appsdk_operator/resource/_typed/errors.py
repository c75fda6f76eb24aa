"""Errors of the fields of an object, in the words of Kubernetes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, final

import attrs

from appsdk_operator.resource._typed.go_text import Verbatim

OMITTED: Final = Verbatim("")
"""In place of a value that an error should not show, such as a password."""


@final
@attrs.frozen
class FieldError:
    """An error of one field, made with :class:`~appsdk_operator.resource.FieldPath`.

    It is a value, not an exception. :meth:`Invalid.of <appsdk_operator.client.Invalid.of>` makes an
    exception of one or several.

    >>> from appsdk_operator.resource import field
    >>> error = field("spec")["replicas"].invalid(-1, "must not be negative")
    >>> str(error)
    'spec.replicas: Invalid value: -1: must not be negative'
    >>> error.reason, error.field
    ('FieldValueInvalid', 'spec.replicas')
    """

    reason: str
    """The reason, for programs, for example ``FieldValueInvalid``; in a ``Status``, the reason of
    the cause."""
    field: str
    """The path, for example ``spec.containers[0].name``."""
    message: str
    """For people, without the path: ``Invalid value: "x": must be a number``."""

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def joined_errors(errors: Iterable[object]) -> str:
    """The texts of errors as Go's aggregates print them: each once, several in brackets."""
    texts = list(dict.fromkeys(map(str, errors)))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
