"""``python -m appsdk_operator``: the same as the command ``appsdk-operator``."""

from __future__ import annotations

import sys

from appsdk_operator.cli import main

if __name__ == "__main__":
    sys.exit(main())
