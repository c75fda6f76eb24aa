"""``python -m appsdk_operator.testing``: serve a Kubernetes API until interrupted."""

import sys

from appsdk_operator.apiserver.command import main

if __name__ == "__main__":
    sys.exit(main())
