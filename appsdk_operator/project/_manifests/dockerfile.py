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
{steps}

FROM ${{RUNTIME}}
ENV PYTHONPATH=/app:/dependencies PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /app
# A layer for each: a new version of the code is all that is built and sent anew.
COPY --from=build /dependencies /dependencies
COPY --from=build /app /app
USER {user}:{user}
ENTRYPOINT ["python", "-m", "appsdk_operator"]
CMD {command}
"""
_DEPENDENCIES = """\
RUN {listed}python -m pip install --no-compile --target /dependencies {kit}
# What runs in the container cannot store what it compiles.
RUN python -m compileall -q -j 0 /dependencies
"""
_LISTED = """\
python -c "import tomllib; \
print(*tomllib.load(open('pyproject.toml', 'rb'))['project'].get('dependencies', ()), sep='\\n')" \\
  > requirements.txt && """
_PACKAGE = """\
COPY . .
RUN python -m pip install --no-compile --no-deps --target /app .
RUN python -m compileall -q -j 0 /app && PYTHONPATH=/app:/dependencies python -m pip check"""
_FILE = """\
COPY {folder} /app/{folder}
RUN python -m compileall -q -j 0 /app"""
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
    kit, steps = _kit(deployed)
    if is_file:
        steps += _DEPENDENCIES.format(listed="", kit=kit) + _FILE.format(folder=place)
    else:
        steps += "COPY pyproject.toml ./\n"
        steps += _DEPENDENCIES.format(listed=_LISTED, kit=f"-r requirements.txt {kit}") + _PACKAGE
    return _TEXT.format(
        image=deployed.options.image or f"{deployed.name}:latest",
        python=deployed.options.python,
        steps=steps,
        user=_USER,
        command=json.dumps(["run", deployed.target]),
    )


def _kit(deployed: Deployed) -> tuple[str, str]:
    """What pip installs the kit by, and the steps of the Dockerfile before that."""
    source, extras = deployed.options.kit, ",".join(_extras(deployed))
    if source == "index":
        return f"'appsdk-operator[{extras}]'", ""
    if "://" in source:
        before = _GIT if source.startswith("git+") else ""
        return f"'appsdk-operator[{extras}] @ {source}'", before
    # By itself, too: pip takes a file with extras for no other requirement of that name.
    named = f"'./{source}' './{source}[{extras}]'"
    return named, f"COPY {source} {source}\n"


def _extras(deployed: Deployed) -> list[str]:
    """The extras of the kit that the container needs."""
    metrics = deployed.app.options.metrics_server
    is_signed = metrics is not None and metrics.tls is not None and metrics.tls.cert_file is None
    return ["run", "webhooks"] if deployed.certificates == "managed" or is_signed else ["run"]


def dockerignore(deployed: Deployed) -> str:
    """What is not sent to the build; a wheel of the kit is, wherever it is."""
    kit = deployed.options.kit
    return _IGNORED if kit == "index" or "://" in kit else f"{_IGNORED}!{kit}\n"
