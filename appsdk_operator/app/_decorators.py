"""The types of the App's decorators: which arguments the decorated function is called with."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from appsdk_operator._generics import OtherSpecT, OtherStatusT, SpecT, StatusT, subscript
from appsdk_operator.app._background import Live
from appsdk_operator.resource import MutableObject, Object
from appsdk_operator.runtime import StopSignal

R = TypeVar("R")


class ObjectDecorator(Protocol, Generic[SpecT, StatusT]):
    """Declares a function of an object, and returns it unchanged."""

    if not TYPE_CHECKING:
        __class_getitem__ = subscript

    def __call__(
        self, function: Callable[[Object[SpecT, StatusT]], R], /
    ) -> Callable[[Object[SpecT, StatusT]], R]:
        """Declare ``function(obj)``."""
        ...


class UpdateDecorator(Protocol, Generic[SpecT, StatusT]):
    """Declares a function of the old object and the new one, and returns it unchanged."""

    if not TYPE_CHECKING:
        __class_getitem__ = subscript

    def __call__(
        self, function: Callable[[Object[SpecT, StatusT], Object[SpecT, StatusT]], R], /
    ) -> Callable[[Object[SpecT, StatusT], Object[SpecT, StatusT]], R]:
        """Declare ``function(old, new)``."""
        ...


class BackgroundDecorator(Protocol, Generic[SpecT, StatusT]):
    """Declares a function of a live object and a stop signal, and returns it unchanged."""

    if not TYPE_CHECKING:
        __class_getitem__ = subscript

    def __call__(
        self, function: Callable[[Live[SpecT, StatusT], StopSignal], R], /
    ) -> Callable[[Live[SpecT, StatusT], StopSignal], R]:
        """Declare ``function(live, stop)``."""
        ...


class DefaulterDecorator(Protocol, Generic[SpecT, StatusT]):
    """Declares a function of a draft, and returns it unchanged."""

    if not TYPE_CHECKING:
        __class_getitem__ = subscript

    def __call__(
        self, function: Callable[[MutableObject[SpecT, StatusT]], R], /
    ) -> Callable[[MutableObject[SpecT, StatusT]], R]:
        """Declare ``function(draft)``."""
        ...


class ConverterDecorator(Protocol, Generic[SpecT, StatusT, OtherSpecT, OtherStatusT]):
    """Declares a function of an object and of a draft in another version."""

    if not TYPE_CHECKING:
        __class_getitem__ = subscript

    def __call__(
        self,
        function: Callable[[Object[SpecT, StatusT], MutableObject[OtherSpecT, OtherStatusT]], R],
        /,
    ) -> Callable[[Object[SpecT, StatusT], MutableObject[OtherSpecT, OtherStatusT]], R]:
        """Declare ``function(old, new)``."""
        ...
