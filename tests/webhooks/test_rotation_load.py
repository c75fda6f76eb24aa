"""Rotations under load, in short; by hand there is a longer one, see rotation_load.py."""

from __future__ import annotations

import pytest

from tests.webhooks import rotation_load

pytestmark = [
    pytest.mark.long,
    pytest.mark.real,
    pytest.mark.programs,
    pytest.mark.timeout(240),
]


def test_no_admission_fails_while_certificates_rotate_and_replicas_end() -> None:
    lines: list[str] = []
    figures = rotation_load.run(rate=40, rotations=3, report=lines.append)
    assert (figures.rotations, figures.ended) == (3, 3)
    assert not figures.failures, figures.text()
    assert not figures.refused_handshakes, figures.text()
    assert figures.writes > 100
    assert figures.handshakes > 10
