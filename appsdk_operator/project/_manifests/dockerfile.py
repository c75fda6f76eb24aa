"""The Dockerfile of an operator."""

from __future__ import annotations

import json

from appsdk_operator.project._manifests.values import Deployed

_TEXT = """\
# docker build --file deploy/Dockerfile --tag {image} .
ARG PYTHON={python}
# Any image with this version of Python does for the second stage: it needs no shell and no pip.
ARG RUNTIME=python:${{PYTHON}}-slim

FROM python:${{PYTHON}}-slim AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /source
{copies}
# What runs in the container cannot store what it compiles. The official client is large and rarely
# imported.
RUN python -m compileall -q -j 0 -x '^/app/kubernetes/' /app

FROM ${{RUNTIME}}
ENV PYTHONPATH=/app PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /app
COPY --from=build /app /app
USER {user}:{user}
ENTRYPOINT ["python", "-m", "appsdk_operator"]
CMD {command}
"""
_PACKAGE = """\
COPY . .
RUN python -m pip install --no-compile --target /app . {kit}"""
_FILE = """\
RUN python -m pip install --no-compile --target /app {kit}
COPY {folder} /app/{folder}"""
_GIT = """\
# The kit is in a repository.
RUN apt-get update && apt-get install --yes --no-install-recommends git
"""
_IGNORED = """\
**/.git
**/.venv*
**/__pycache__
**/.*_cache
**/*.egg-info
**/tests
build
deploy
dist
"""
_USER = 65532


def dockerfile(deployed: Deployed) -> str:
    """A build in two stages: the second has Python and the operator, and runs as nobody."""
    place = deployed.target.partition(":")[0]
    is_file = place.endswith(".py")
    kit, before = _kit(deployed, is_file=is_file)
    copies = before + (_FILE if is_file else _PACKAGE)
    return _TEXT.format(
        image=deployed.options.image or f"{deployed.name}:latest",
        python=deployed.options.python,
        copies=copies.format(folder=place, kit=kit),
        user=_USER,
        command=json.dumps(["run", deployed.target]),
    )


def _kit(deployed: Deployed, *, is_file: bool) -> tuple[str, str]:
    """What pip installs the kit by, and the lines of the Dockerfile before that."""
    source, extras = deployed.options.kit, ",".join(_extras(deployed))
    if source == "index":
        return f"'appsdk-operator[{extras}]'", ""
    if "://" in source:
        before = _GIT if source.startswith("git+") else ""
        return f"'appsdk-operator[{extras}] @ {source}'", before
    # By itself, too: pip takes a file with extras for no other requirement of that name.
    named = f"'./{source}' './{source}[{extras}]'"
    return named, f"COPY {source} {source}\n" if is_file else ""


def _extras(deployed: Deployed) -> list[str]:
    """The extras of the kit that the container needs."""
    metrics = deployed.app.options.metrics_server
    is_signed = metrics is not None and metrics.tls is not None and metrics.tls.cert_file is None
    return ["run", "webhooks"] if deployed.certificates == "managed" or is_signed else ["run"]


def dockerignore() -> str:
    """What is not sent to the build."""
    return _IGNORED
