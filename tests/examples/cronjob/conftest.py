"""What the tests of the CronJob operator share."""

from __future__ import annotations

import importlib.util

# The example needs a package that the kit does not: see the dependency group "examples".
if importlib.util.find_spec("cronsim") is None:
    collect_ignore_glob = ["*.py"]
