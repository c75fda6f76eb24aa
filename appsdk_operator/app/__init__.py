"""An operator as one value: its name, its kinds, and the functions that handle them.

An :class:`App` is a thin layer over the packages below it. Functions are declared with decorators,
or with plain calls. :meth:`App.manager` makes a Manager that runs them, and :meth:`App.run` is the
whole program. From the same declarations the kit generates the CustomResourceDefinitions, the
webhooks and the permissions that the operator needs. It needs no cluster for that.

Guarantees:
    * Two Apps of a process share nothing, and nothing is registered globally.
    * A declared function stays the plain function that it was.
    * Each declaration is checked when it is made.
    * Generated objects depend on the declarations alone: the same declarations give the same
      objects.

Caveats:
    * An App takes no declarations after its first Manager was made.
"""

from appsdk_operator._lazy import room

__all__, __dir__, __getattr__ = room(__name__)
