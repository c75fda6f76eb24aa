"""What can be installed as a CRD, and what is told to those who give something else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from appsdk_operator.resource import Kind
from appsdk_operator.testing import install_crds

WIDGET = Kind(group="example.com", version="v1", kind="Widget")


@pytest.mark.parametrize(
    ("crds", "remedy"),
    [
        ([WIDGET], r"is a Kind: give custom_resource_definition\(kind\)"),
        (WIDGET, r"give a list, \[custom_resource_definition\(kind\)\]"),
        ("crds/", r"give a list, \[…\]"),
        (Path("crds"), "give a list"),
    ],
)
def test_what_is_no_list_of_definitions_is_refused_with_the_remedy(crds: Any, remedy: str) -> None:
    with pytest.raises(TypeError, match=remedy):
        install_crds(None, crds)  # type: ignore[arg-type]
