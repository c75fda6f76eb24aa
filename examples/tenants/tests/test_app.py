"""What the operator declares."""

from __future__ import annotations

from tenants_operator import app


def test_the_operator_has_its_name() -> None:
    assert app.name == "tenants-operator"


def test_what_it_declares_fits_together() -> None:
    assert len(app.crds()) == len(app.kinds)
    assert all(permission.reasons for permission in app.permissions())
