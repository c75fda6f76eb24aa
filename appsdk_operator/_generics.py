"""Type variables for the types of an object's spec and status.

Without a type a kind's spec and status are ``Any`` (PEP 696 defaults), so ``Kind`` and ``Object``
can be written without brackets everywhere.
"""

from __future__ import annotations

from types import GenericAlias
from typing import TYPE_CHECKING, Any, TypeVar

# Type checkers know typing_extensions without an installation. Type variables of Python 3.11 and
# 3.12 have no defaults, and need none at run time.
if TYPE_CHECKING:
    from typing_extensions import TypeVar as _TypeVar

    SpecT = _TypeVar("SpecT", default=Any)
    StatusT = _TypeVar("StatusT", default=Any)
    OtherSpecT = _TypeVar("OtherSpecT", default=Any)
    OtherStatusT = _TypeVar("OtherStatusT", default=Any)
    SpecT_co = _TypeVar("SpecT_co", covariant=True, default=Any)
    StatusT_co = _TypeVar("StatusT_co", covariant=True, default=Any)
    SpecT_contra = _TypeVar("SpecT_contra", contravariant=True, default=Any)
    StatusT_contra = _TypeVar("StatusT_contra", contravariant=True, default=Any)
else:
    SpecT = TypeVar("SpecT")
    StatusT = TypeVar("StatusT")
    OtherSpecT = TypeVar("OtherSpecT")
    OtherStatusT = TypeVar("OtherStatusT")
    SpecT_co = TypeVar("SpecT_co", covariant=True)
    StatusT_co = TypeVar("StatusT_co", covariant=True)
    SpecT_contra = TypeVar("SpecT_contra", contravariant=True)
    StatusT_contra = TypeVar("StatusT_contra", contravariant=True)


subscript: Any = classmethod(GenericAlias)
"""As ``__class_getitem__``, makes ``Class[Spec]`` and ``Class[Spec, Status]`` work at run time.

Before Python 3.13 ``Generic`` has no defaults, and refuses fewer arguments than type variables.
"""
