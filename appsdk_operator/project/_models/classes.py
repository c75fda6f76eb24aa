"""Generated classes: their fields, and one for all places that have the same."""

from __future__ import annotations

from typing import Any

import attrs

from appsdk_operator.project._models.layout import Node, Ref


@attrs.frozen(kw_only=True)
class Field:
    """A field of a generated class."""

    name: str
    """The attribute."""
    wire: str
    """The name in JSON."""
    type: Node
    """The type, without the marker of its name on the wire."""
    default: Node | None = None
    """The default; None: it is required."""
    is_factory: bool = False
    """Whether the default is a function that makes it."""
    doc: str = ""
    """The docstring under it."""


@attrs.define(eq=False)
class ModelClass:
    """A generated class. Only its name changes once it is made: it is decided last."""

    words: tuple[str, ...]
    """The names on the way to it, from the kind on; the last is its own."""
    version: str
    """The version that it was found in first."""
    fields: tuple[Field, ...]
    decorators: tuple[Node, ...]
    doc: str
    fixed_name: str = ""
    """The name, if it is not chosen of the words."""
    name: str = ""

    def field(self, wire: str) -> Field | None:
        """The field of a name in JSON."""
        return next((one for one in self.fields if one.wire == wire), None)


class Classes:
    """The classes of a module, in an order in which each follows those that it uses.

    What has the same name, fields and documentation is one class, wherever it is.
    """

    def __init__(self) -> None:
        self._by_content: dict[Any, ModelClass] = {}

    def add(self, made: ModelClass) -> Ref:
        """The reference to a class, which is an earlier one if it says the same."""
        own = made.fixed_name or made.words[-1]
        content = (own, bool(made.fixed_name), made.fields, made.decorators, made.doc)
        return Ref(self._by_content.setdefault(content, made))

    def all(self) -> list[ModelClass]:
        """All of them."""
        return list(self._by_content.values())
