"""Of each parametrized test one case, where what is tested depends on no value of its table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest


def add_option(parser: pytest.Parser) -> None:
    """Add the option for a run of the lanes that try another Python, or other packages."""
    parser.addoption(
        "--one-case",
        action="append",
        default=[],
        metavar="PATH",
        help="run the first case alone of each parametrized test in this folder or file",
    )


def leave_out_others(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect all cases but the first in the paths of ``--one-case``."""
    others = set(_others(items, config.option.one_case))
    if others:
        config.hook.pytest_deselected(items=[item for item in items if item in others])
        items[:] = [item for item in items if item not in others]


def _others(items: Iterable[pytest.Item], paths: Sequence[str]) -> Iterable[pytest.Item]:
    found = set()
    for item in items:
        file, _, _ = item.nodeid.partition("::")
        test, has_cases, _ = item.nodeid.partition("[")
        if has_cases and any(file == path or file.startswith(f"{path}/") for path in paths):
            if test in found:
                yield item
            found.add(test)
