"""The files around an operator's code: CRDs, roles and manifests, made from its App.

Everything here is a function of an App and options: the same input gives the same text, byte for
byte. Nothing here overwrites what a person edited: files are merged.
"""

from appsdk_operator._lazy import room

__all__, __dir__, __getattr__ = room(__name__)
