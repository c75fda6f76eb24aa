"""The Common Expression Language (CEL), with the types, functions and limits of Kubernetes.

``parser`` and ``macros`` make a ``syntax_tree``, ``checker`` gives it types, ``cost_estimate``
bounds its cost, ``evaluation`` turns it into functions, and ``expressions`` is the way in.
``schema_types`` declares types from a schema; the functions are tables of ``overloads`` in
``libraries``.

It is own code because a server that decides about rules as kube-apiserver does needs three things
together: checks against the types of an OpenAPI schema with cel-go's error texts, cost estimates
and limits, and Kubernetes' functions. Of the libraries for Python, as of late 2026:

- ``cel-python`` 0.5 (pure Python) and ``common-expression-language`` 0.10 (on the Rust crate
  ``cel``) parse and evaluate. Neither checks types before evaluation, estimates costs or limits
  them, or has Kubernetes' functions (``quantity``, ``ip``, ``url``, ``format``, ``semver``).
- ``cel-expr-python`` 0.1 (on Google's C++ implementation) checks types with cel-go's texts. It
  takes object types from protobuf descriptors alone, and offers no cost estimate, no cost limit and
  none of Kubernetes' functions. It is published as wheels only.
"""
