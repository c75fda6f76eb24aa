"""The files of a project, from what it was made with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import jinja2

from appsdk_operator._version import __version__
from appsdk_operator.cli._scaffold.answers import Answers, Resource
from appsdk_operator.cli._scaffold.kit import INDEX

GENERATOR: Final = "scaffold"
_PROJECT: Final = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    ".gitignore": "gitignore",
    "Makefile": "Makefile",
    ".github/workflows/ci.yaml": "ci.yaml",
    "docs/index.md": "docs.md",
    "{package}/__init__.py": "init.py",
    "{package}/__main__.py": "main.py",
    "{package}/app.py": "app.py",
    "tests/conftest.py": "conftest.py",
    "tests/test_app.py": "test_app.py",
}
"""The template of each file of a project."""
_PARTS: Final = {
    "kind": {"{package}/{module}.py": "kind.py", "tests/test_{module}.py": "test_kind.py"},
    "webhook": {
        "{package}/{module}_webhooks.py": "webhook.py",
        "tests/test_{module}_webhooks.py": "test_webhook.py",
    },
    "controller": {
        "{package}/{module}_controller.py": "controller.py",
        "tests/test_{module}_controller.py": "test_controller.py",
    },
}
"""The template of each file that a part adds."""
_LINE: Final = 100
_MODULES: Final = {"kind": "", "webhook": "_webhooks", "controller": "_controller"}

_POD: Final = {"containers": [{"name": "main", "image": "example"}]}
_WORKLOAD: Final = {
    "selector": {"matchLabels": {"app": "a"}},
    "template": {"metadata": {"labels": {"app": "a"}}, "spec": _POD},
}
_JOB: Final = {"template": {"spec": {**_POD, "restartPolicy": "Never"}}}
_SPECS: Final[dict[str, dict[str, Any]]] = {
    "Pod": _POD,
    "Deployment": _WORKLOAD,
    "DaemonSet": _WORKLOAD,
    "ReplicaSet": _WORKLOAD,
    "StatefulSet": {"serviceName": "a", **_WORKLOAD},
    "Job": _JOB,
    "CronJob": {"schedule": "0 * * * *", "jobTemplate": {"spec": _JOB}},
    "Service": {"ports": [{"port": 80}]},
}
"""The smallest spec that the API server takes, for the tests of controllers."""


def texts_of(answers: Answers) -> dict[str, str]:
    """The text of each file by its path.

    Raises:
        ValueError: two parts of the project have one file.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - Python and YAML, no HTML
    )
    common = {
        "name": answers.name,
        "package": answers.package,
        "group": answers.group,
        "version": __version__,
        "resources": answers.resources,
        "modules": sorted(
            f"{resource.module}{_MODULES[part]}"
            for resource in answers.resources
            for part in resource.parts
        ),
        "has_webhooks": any(each.has("webhook") for each in answers.resources),
    }
    common["extras"] = "[webhooks]" if common["has_webhooks"] else ""
    common |= _kit(answers.kit)
    of_kinds = {
        each: {**common, **_values(each), "imports": _imports(answers.package)}
        for each in answers.resources
    }
    return {
        path: environment.get_template(f"{template}.j2").render(
            common if resource is None else of_kinds[resource]
        )
        for path, (template, resource) in _planned(answers).items()
    }


def _planned(answers: Answers) -> dict[str, tuple[str, Resource | None]]:
    """The template of each file by its path, and the kind that it is for.

    Raises:
        ValueError: two parts of the project have one file.
    """
    found: dict[str, tuple[str, Resource | None]] = {
        path.format(package=answers.package): (template, None)
        for path, template in _PROJECT.items()
    }
    for resource in answers.resources:
        for part in resource.parts:
            for pattern, template in _PARTS[part].items():
                path = pattern.format(package=answers.package, module=resource.module)
                if path in found:
                    other = found[path][1]
                    whose = "the project" if other is None else f"the kind {other.kind}"
                    raise ValueError(
                        f"kind={resource.kind!r}: its {part} would be in {path}, which is already "
                        f"a file of {whose}; give another name"
                    )
                found[path] = template, resource
    return found


def _kit(source: str) -> dict[str, Any]:
    """How the kit is written in requirements and in commands of pip."""
    if source == INDEX:
        return {"kit": source, "kit_version": f">={__version__}", "kit_argument": ""}
    if "://" in source:  # named in pyproject.toml, where each command finds it
        return {"kit": source, "kit_version": f" @ {source}", "kit_argument": ""}
    version = source.rpartition("/")[2].split("-")[1]
    # Of all that is called so pip takes the file that it is given by name.
    return {"kit": source, "kit_version": f"=={version}", "kit_argument": f" ./{source}"}


def _imports(package: str) -> Callable[..., str]:
    """Writes the imports from modules of the package, as a formatter would."""

    def imports(*modules: str, names: Sequence[str] = (), seen: Sequence[str] = ()) -> str:
        lines = []
        for module in sorted(modules):
            wanted = ["app"] if module == "app" else seen if "_controller" in module else names
            # Constants, classes, functions: as isort has them.
            ordered = sorted(wanted, key=lambda name: (not name.isupper(), name.islower(), name))
            line = f"from {package}.{module} import {', '.join(ordered)}"
            if len(line) > _LINE:
                inner = "".join(f"    {name},\n" for name in ordered)
                line = f"from {package}.{module} import (\n{inner})"
            lines.append(line)
        return "\n".join(lines)

    return imports


def _values(resource: Resource) -> dict[str, Any]:
    is_own = resource.has("kind")
    spec = f"{resource.kind}Spec()" if is_own else ""
    if resource.kind in _SPECS and not is_own:
        spec = _literal(_SPECS[resource.kind])
    return {
        "kind": resource.kind,
        "version": resource.version,
        "module": resource.module,
        "constant": resource.constant,
        "is_own": is_own,
        "is_cluster_scoped": resource.is_cluster_scoped,
        # In tests: without a namespace that goes with it, an object has a name of its own.
        "object_name": "kube_namespace" if resource.is_cluster_scoped else '"a"',
        "place": "" if resource.is_cluster_scoped else "namespace=kube_namespace, ",
        "builtin": resource.builtin,
        "controller": f"{resource.module.replace('_', '-')}-controller",
        "controller_module": f"{resource.module}_controller",
        "spec": spec,
    }


def _literal(value: Any, indent: str = "") -> str:
    """A value as Python, an item a line."""
    inner = f"{indent}    "
    if isinstance(value, dict):
        items = [f'{inner}"{key}": {_literal(item, inner)},\n' for key, item in value.items()]
        return "{\n" + "".join(items) + f"{indent}}}"
    if isinstance(value, list):
        return (
            "[\n" + "".join(f"{inner}{_literal(item, inner)},\n" for item in value) + f"{indent}]"
        )
    return f'"{value}"' if isinstance(value, str) else repr(value)
