"""``appsdk-operator migrate kopf``."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appsdk_operator import cli
from appsdk_operator.app import App
from appsdk_operator.cli._kopf.program import Migration, migrate
from appsdk_operator.project import read_crds
from appsdk_operator.resource import Kind, MutableObject, Object

PAGES = Path(__file__).parent / "kopf"
CRDS = read_crds(PAGES / "crds.yaml")
PROGRAMS = sorted(path.stem for path in PAGES.glob("*.txt"))
NEEDS_KOPF = {"gaps"}
"""Programs of which a part could not be translated that Python runs when it imports them."""


def program(name: str) -> tuple[str, str]:
    """An operator with kopf, and what it is translated to."""
    parts = (PAGES / f"{name}.txt").read_text(encoding="utf-8").split("```python\n")
    before, after = (part.partition("```\n")[0] for part in parts[1:])
    return before, after


def translated(text: str) -> tuple[str, Migration]:
    """The translation of one module."""
    migration = migrate({"handlers.py": text}, CRDS)
    return migration.texts["handlers.py"], migration


def comments(text: str) -> list[str]:
    """The comments of a module."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [token.string for token in tokens if token.type == tokenize.COMMENT]


def imported(text: str, name: str = "handlers") -> ModuleType:
    """A module of this text."""
    module = ModuleType(name)
    exec(compile(text, f"{name}.py", "exec", dont_inherit=True), module.__dict__)
    return module


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_operator_is_translated(name: str) -> None:
    before, after = program(name)
    migration = migrate({f"{name}.py": before}, CRDS)
    assert migration.texts[f"{name}.py"] == after


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_written_declares_an_app(name: str) -> None:
    _, after = program(name)
    if name in NEEDS_KOPF:
        pytest.importorskip("kopf")
    app = imported(after).app
    assert isinstance(app, App)
    assert app.name == name


@pytest.mark.programs
def test_type_checkers_object_to_nothing_but_what_is_to_be_done(tmp_path: Path) -> None:
    for name in PROGRAMS:
        (tmp_path / f"{name}.py").write_text(program(name)[1])
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "."],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    errors = re.findall(r"(\w+)\.py:(\d+):\d+ - error: (.*)", done.stdout)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    unexpected = []
    for name, line, message in errors:
        lines = program(name)[1].splitlines()
        if not any("# TODO: " in one for one in lines[max(0, int(line) - 3) : int(line)]):
            unexpected.append(f"{name}:{line}: {message}")
    assert unexpected == []


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_todo_is_listed_with_its_line(name: str) -> None:
    before, after = program(name)
    migration = migrate({f"{name}.py": before}, CRDS)
    written = [number for number, line in enumerate(after.splitlines(), 1) if "# TODO: " in line]
    assert [todo.line for todo in migration.todos] == written
    of_handlers = {reason for _, each in migration.handlers for reason in each.todos}
    assert of_handlers <= {todo.reason for todo in migration.todos}


# Any operator.

EXPRESSIONS = [
    "name",
    "spec['size']",
    "meta.labels",
    "status.get('a')",
    "body['metadata']['name']",
    "f'{name!r:>{len(name)}} {{}} {spec[\"x\"]}'",
    "[name for name in 'ab']",
    "(lambda name: name + uid)(name)",
    "memo.count",
    "labels",
    "dict(body)",
    "logger",
    "'ä' + name",
    "{**spec}",
    "len(body)",
    "kwargs.get('uid')",
    "retry",
    "f'{memo.count}'",
    "f'ä{name}' 'b' f'{uid}'",
    'f"""{name}\n{namespace}"""',
]
STATEMENTS = [
    "print({0})",
    "patch.status['x'] = {0}",
    "return {0}",
    "if {0}: patch.status['y'] = {0}",
    "for one in [{0}]:\n    patch.status[one] = 1  # each",
    "raise kopf.TemporaryError({0})",
    "raise kopf.PermanentError(f'{{name}}')",
    "x = {0}  # noted",
    "# alone\nx = {0}",
    "def inner(name):\n    return {0}",
    "name = {0}",
    "kopf.info(body, reason='A', message=str({0}))",
    "while {0}:\n    # never\n    break",
    "try:\n    print({0})\nexcept kopf.PermanentError:\n    pass",
    "with open({0}) as file:\n    patch.status['f'] = file.read()",
    "x = '''{{}}\n  # no comment'''",
]
DECORATORS = [
    "@kopf.on.create('buckets')",
    "@kopf.on.update('buckets', field='spec.size')  # when it grows",
    "@kopf.on.delete('buckets', labels={'a': 'b'})",
    "@kopf.on.resume('regions')",
    "@kopf.timer('buckets', interval=60)",
    "@kopf.on.event('pods')",
    "@kopf.on.create('buckets', when=lambda name, **_: name)",
    "@kopf.on.field('buckets', field='spec')",
    "@kopf.on.validate('buckets')",
    "@kopf.on.mutate('buckets')",
    "@kopf.on.startup()",
    "@kopf.on.create(\n    'unknown',\n    # a comment\n    retries=3,\n)",
    "@kopf.index('buckets')",
]
ARGUMENTS = (
    "name, spec, meta, status, body, memo, labels, logger, namespace, uid, patch, retry, **kwargs"
)


@st.composite
def operators(draw: st.DrawFn) -> str:
    """Modules with handlers of kopf."""
    parts = ['"""An operator."""', "import kopf  # the framework", "", "SIZE = 3  # at most"]
    for number in range(draw(st.integers(1, 3))):
        decorators = draw(st.lists(st.sampled_from(DECORATORS), min_size=1, max_size=2))
        chosen = draw(st.lists(st.sampled_from(STATEMENTS), min_size=1, max_size=4))
        body = [each.format(draw(st.sampled_from(EXPRESSIONS))) for each in chosen]
        lines = "\n".join(body).splitlines() if draw(st.booleans()) else body
        indented = "\n".join("    " + line.replace("\n    ", "\n        ") for line in lines)
        prefix = "async " if draw(st.booleans()) else ""
        head = f"{prefix}def handler_{number}({ARGUMENTS}):  # number {number}"
        parts += ["", "", "# A handler.", *decorators, head, indented, "    # its end"]
    return "\n".join(parts) + "\n"


def is_python(text: str) -> bool:
    try:
        compile(text, "handlers.py", "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True


@given(text=operators().filter(is_python))
def test_whatever_is_translated_is_python_with_all_comments_and_no_handlers_of_kopf(
    text: str,
) -> None:
    result, migration = translated(text)
    ast.parse(result)
    assert [one for one in comments(text) if one not in result] == []
    again = translated(text)[1]
    assert again == migration
    nothing = migrate({"handlers.py": result}, CRDS)
    assert nothing.handlers == []
    assert nothing.todos == [] or "kopf" in result


@pytest.mark.parametrize("parameters", ["warnings, spec", "warnings, spec, old"])
@pytest.mark.parametrize(
    ("left", "expected"),
    [
        ("", ["large", "odd"]),
        ("if spec: return", ["large"]),
        ("if spec: return None", ["large"]),
        ("if spec: return warnings.append('more')", ["large", "more"]),
        (
            "if spec:\n        return (warnings  # of it\n            .append('more'))",
            ["large", "more"],
        ),
        (
            "def inner():\n        return 'more'\n    warnings.append(inner())",
            ["large", "more", "odd"],
        ),
        ("if not spec:\n        warnings.append('none')\n        return spec", ["large", "odd"]),
    ],
)
def test_a_check_returns_its_warnings_wherever_it_ends(
    parameters: str, left: str, expected: list[str]
) -> None:
    lines = ["warnings.append('large')", left or "pass", "warnings.append('odd')"]
    body = "".join(f"    {line}\n" for line in lines)
    text = f"import kopf\n\n@kopf.on.validate('buckets')\ndef check({parameters}, **_):\n{body}"
    module = imported(translated(text)[0])
    obj = Object.from_dict(module.BUCKET, {"metadata": {"name": "a"}, "spec": {"size": 1}})
    assert module.check(obj) == expected


@pytest.mark.parametrize("takes_old", [False, True])
def test_a_check_of_creations_checks_no_updates_also_next_to_others(takes_old: bool) -> None:
    text = "import kopf\n"
    for name, options in (
        ("every", ""),
        ("new", ", operation='CREATE'"),
        ("gone", ", operation='DELETE'"),
    ):
        parameters = "warnings, old, **_" if takes_old and name == "every" else "warnings, **_"
        text += f"\n@kopf.on.validate('buckets'{options})\ndef {name}({parameters}):\n"
        text += f"    warnings.append('{name}')\n"
    module = imported(translated(text)[0])
    obj = Object.from_dict(module.BUCKET, {"metadata": {"name": "a"}, "spec": {"size": 1}})
    assert module.validate_create_bucket(obj) == ["every", "new"]
    assert module.validate_update_bucket(obj, obj) == ["every"]
    assert module.validate_delete_bucket(obj) == ["gone"]


def test_a_check_of_updates_checks_no_creations() -> None:
    result, _ = translated(
        "import kopf\n\n@kopf.on.validate('buckets', operation='UPDATE')\n"
        "def grown(warnings, name, **_):\n    warnings.append(name)\n"
    )
    module = imported(result)
    obj = Object.from_dict(module.BUCKET, {"metadata": {"name": "a"}})
    assert module.validate_update_bucket(obj, obj) == ["a"]
    assert '@app.validate(BUCKET, on="update")' in result
    assert result.count("@app.validate") == 1


def test_checks_that_become_one_say_that_failures_are_no_longer_ignored() -> None:
    checks = [
        f"\n@kopf.on.validate('buckets'{options})\ndef {name}(**_):\n    pass\n"
        for name, options in (("one", ", ignore_failures=True"), ("two", ""))
    ]
    result, _ = translated("import kopf\n" + "".join(checks))
    assert "# TODO: ignore_failures=: validate_" in result


def test_what_a_defaulter_returns_is_ignored_as_kopf_does() -> None:
    result, _ = translated(
        "import kopf\n\n@kopf.on.mutate('buckets')\ndef set_size(patch, spec, **_):\n"
        "    if spec:\n        return\n    patch.spec['size'] = 1\n    return {'size': 1}\n"
    )
    draft = MutableObject.new(imported(result).BUCKET, "a", spec={})
    assert imported(result).set_size(draft) is None
    assert draft["spec"] == {"size": 1}


@pytest.mark.parametrize(
    "value",
    [
        '(\n        "a" + name +\n        "b"\n    )',
        '(\n        "a"\n        "b"\n    )',
        "(\n        name\n        .upper()\n    )",
        "(\n        len(name)\n-1\n    )",
        "(found := name)",
        "{\n        'a': name,\n    }",
        "name, 1",
    ],
)
@pytest.mark.parametrize("parameters", ["name, **_", "name, size=(1 +\n    2), **_"])
def test_a_returned_value_may_stand_on_several_lines(value: str, parameters: str) -> None:
    result, _ = translated(
        f"import kopf\n\n@kopf.on.create('buckets')\ndef f({parameters}):\n    return {value}\n"
    )
    assigned = [
        ast.unparse(node.value)
        for node in ast.walk(ast.parse(result))
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript)
    ]
    wanted = ast.unparse(ast.parse(value, mode="eval")).replace("name", "obj.name")
    assert assigned == [ast.unparse(ast.parse(wanted, mode="eval"))]


def test_an_f_string_may_name_a_character() -> None:
    result, _ = translated(
        "import kopf\n\n@kopf.on.create('buckets')\ndef f(name, **_):\n"
        "    print(f'\\N{EM DASH} {name}', rf'\\N{name}')\n"
    )
    assert r"print(f'\N{EM DASH} {obj.name}', rf'\N{obj.name}')" in result


def test_the_default_of_an_inner_function_is_not_in_its_scope() -> None:
    result, _ = translated(
        "import kopf\n\n@kopf.on.create('buckets')\ndef f(name, spec, **_):\n"
        "    print(lambda name=name: name)\n\n"
        "    def inner(*, spec=spec):\n        return spec\n"
    )
    assert "print(lambda name=obj.name: name)" in result
    assert "def inner(*, spec=obj.spec):\n        return spec\n" in result


def test_changes_in_the_cases_of_a_match_are_edits() -> None:
    result, _ = translated(
        "import kopf\n\n@kopf.on.create('buckets')\ndef f(spec, patch, **_):\n"
        "    match spec.get('size'):\n        case 1: patch.status['a'] = 1\n"
        "        case _:\n            patch.status['b'] = 1\n"
    )
    edit = "with app.edit(obj) as draft:\n"
    assert f"case 1:\n            {edit}                draft" in result
    assert f"case _:\n            {edit}                draft" in result


@pytest.mark.parametrize(
    "test", ["__name__=='__main__'", "'__main__' == __name__", "(__name__ == '__main__')"]
)
def test_what_is_added_at_the_end_stands_above_the_program_however_it_begins(test: str) -> None:
    result, _ = translated(
        '"""An operator.\n\nif __name__ == "__main__":\n    kopf.run()\n"""\n'
        "import kopf\n\n@kopf.on.startup()\ndef begin(**_):\n    pass\n\n"
        f"if {test}:\n    kopf.run()\n"
    )
    first, *_, last = ast.parse(result).body
    assert ast.unparse(first).count("lifespan") == 0
    assert isinstance(last, ast.If)
    assert result.index("@app.lifespan") < result.index("app.run()")


@pytest.mark.parametrize("odd", ["\f", "\x1c", "\u2028", "\x85"])
def test_only_a_line_feed_ends_a_line(odd: str) -> None:
    result, migration = translated(
        f"import kopf\n\nX = 'a{odd}b'  # {odd}\n\n@kopf.on.create('buckets')\n"
        f"def f(name, retry, patch, **_):\n    patch.status['x'] = '''{odd}\n  '''\n"
        f"    print(name, retry)\n"
    )
    assert "print(obj.name, retry)" in result
    assert f"draft[\"status\"]['x'] = '''{odd}\n  '''\n" in result
    lines = result.split("\n")
    assert all("# TODO: " in lines[one.line - 1] for one in migration.todos)


@pytest.mark.parametrize("value", ["'a' if LOUD else 'b'", "LOUD or 'b'", "not LOUD", "1 == 2"])
def test_the_value_of_a_filter_is_one_operand(value: str) -> None:
    result, _ = translated(
        f"import kopf\n\nLOUD = bool(1)\n\n"
        f"@kopf.on.create('buckets', field='spec.x', value={value}, labels={{'a': {value}}})\n"
        f"@kopf.on.create('buckets', annotations={{'b': {value}}})\n"
        f"def f(**_):\n    pass\n\n\n"
        f"@kopf.on.update('buckets', field='spec.x', old={value})\ndef g(**_):\n    pass\n"
    )
    assert result.count(f"== ({value})") == result.count("==") - value.count("==") * 4 == 4


def test_a_param_is_one_operand() -> None:
    result, _ = translated(
        "import kopf\n\nN = 2\n\n@kopf.on.create('buckets', param=N + 1)\n"
        "def f(param, **_):\n    print(param * 2)\n"
    )
    assert "print((N + 1) * 2)" in result


@pytest.mark.parametrize(
    ("program", "group"),
    [
        ("import os\n\nG = os.environ.get('X', 'a.b')\n\n{0}", "a.b"),
        ("{1}\n\nG = 'a.b'\n\n{0}", "a.b"),
        ("import os\n\n{1}\n\nG = os.environ.get('X', 'a.b')\n\n{0}", "example.com"),
        ("def declare(G):\n    {2}", "example.com"),
        ("for G in ('a.b', 'c.d'):\n    {2}", "example.com"),
    ],
)
def test_a_kind_is_declared_with_what_is_known_above_the_first_handler(
    program: str, group: str
) -> None:
    head, tail = "@kopf.on.create(G, 'v1', 'things')", "def f(name, **_):\n{0}    pass\n"
    first = "@kopf.on.create('buckets')\ndef first(**_):\n    pass\n"
    text = program.format(f"{head}\n{tail.format('')}", first, f"{head}\n    {tail.format('    ')}")
    result, migration = translated(f"import kopf\n\n{text}")
    module = imported(result)
    kinds = [value for name, value in vars(module).items() if isinstance(value, Kind)]
    assert group in [kind.group for kind in kinds]
    wanted = ["the kind is G, whose value is unknown: correct the Kind"]
    assert [t.reason for t in migration.todos if "whose" in t.reason] == (
        wanted if group == "example.com" else []
    )


def test_the_module_of_the_app_has_the_values_of_constants_of_others(tmp_path: Path) -> None:
    sources = {
        "constants.py": "GROUP = 'a.b'\n",
        "one.py": "import kopf\nfrom constants import GROUP\n\n"
        "@kopf.on.create(GROUP, 'v1', 'things')\ndef f(name, **_):\n    print(name)\n",
        "two.py": "import kopf\nimport constants\n\n"
        "@kopf.on.delete(constants.GROUP, 'v1', 'others')\ndef g(name, **_):\n    print(name)\n",
    }
    migration = migrate(sources)
    text = migration.texts["operator_app.py"]
    assert 'THING = Kind(group="a.b", version="v1", kind="Thing")' in text
    imported("import sys\nsys.modules.update(one=sys, two=sys)\n" + text, "operator_app")
    assert any("the kind is constants.GROUP" in todo.reason for todo in migration.todos)


@pytest.mark.parametrize(
    ("raised", "expected", "todos"),
    [
        ("kopf.TemporaryError", "RetryAfter(60)", 0),
        ("kopf.TemporaryError from error", "RetryAfter(60) from error", 0),
        ("kopf.TemporaryError('a', **options)", "RetryAfter(60, 'a')", 1),
        ("kopf.TemporaryError('a', 5)", "RetryAfter(5, 'a')", 0),
    ],
)
def test_a_temporary_error_always_has_its_seconds(raised: str, expected: str, todos: int) -> None:
    result, migration = translated(
        "import kopf\n\nerror = ValueError()\noptions = {}\n\n"
        f"@kopf.on.create('buckets')\ndef f(name, **_):\n    raise {raised}\n"
    )
    assert f"raise {expected}\n" in result
    assert len(migration.todos) == todos


def test_a_class_of_temporary_errors_has_a_todo() -> None:
    result, migration = translated(
        "import kopf\n\nclass Later(kopf.TemporaryError):\n    pass\n\n"
        "@kopf.on.create('buckets')\ndef f(name, **_):\n    raise Later('x', delay=1)\n"
    )
    text = "# TODO: Later: RetryAfter takes the seconds and then a message"
    assert f"class Later(RetryAfter):\n    {text}\n    pass\n" in result
    assert len(migration.todos) == 1


def test_an_inner_function_may_change_an_argument() -> None:
    result, _ = translated(
        "import kopf\n\n@kopf.on.create('buckets')\ndef f(name, **_):\n"
        "    def inner():\n        nonlocal name\n        name += '!'\n\n"
        "    inner()\n    print(name)\n"
    )
    assert "    name = obj.name\n    def inner()" in result
    assert "    inner()\n    print(name)\n" in result


def test_variables_may_take_their_values_from_the_arbitrary_arguments() -> None:
    result, migration = translated(
        "import kopf\n\n@kopf.on.create('buckets')\ndef f(**kwargs):\n"
        "    spec = kwargs['spec']\n    name = kwargs.get('name')\n    uid = kwargs.pop('uid')\n"
        "    logger = kwargs['logger']\n    body = kwargs['body']\n    print(name, body)\n"
    )
    assert (
        "    spec = obj.spec\n    name = obj.name\n    uid = obj.uid\n"
        "    logger = logging.getLogger(__name__)\n    body = obj.to_dict()\n"
        "    print(name, body)\n"
    ) in result
    assert migration.todos == []
    imported(result)


@pytest.mark.parametrize(
    "use", ["print(kwargs)", "'spec' in kwargs", "patch = kwargs['patch']", "print(**kwargs)"]
)
def test_each_use_of_the_arbitrary_arguments_that_stays_has_a_todo(use: str) -> None:
    head = "import kopf\n\n@kopf.on.create('buckets')\ndef f(**kwargs):\n"
    result, migration = translated(f"{head}    {use}\n")
    assert len(migration.todos) == 1
    assert re.search(f"# TODO: .*\n    {re.escape(use)}", result)
    inner = f"    def inner(**kwargs):\n        {use}\n"
    assert inner in translated(head + inner)[0]


OPTIONS = ("labels", "annotations", "when", "field", "value", "id", "param", "group", "version")
RETRIES = ("errors", "timeout", "retries", "backoff")
DEFAULTS = {
    "on.create": (*OPTIONS, *RETRIES),
    "on.resume": (*OPTIONS, *RETRIES, "deleted"),
    "on.update": (*OPTIONS, *RETRIES, "old", "new"),
    "on.delete": (*OPTIONS, *RETRIES, "optional"),
    "on.field": (*(one for one in OPTIONS if one != "field"), *RETRIES, "old", "new"),
    "on.event": OPTIONS,
    "on.validate": (*OPTIONS, "operation", "operations", "subresource", "ignore_failures"),
    "on.mutate": (*OPTIONS, "operation", "operations", "subresource", "ignore_failures"),
    "timer": (*OPTIONS, *RETRIES, "initial_delay", "sharp", "idle"),
    "daemon": (*OPTIONS, *RETRIES, "initial_delay", "cancellation_timeout"),
    "index": (*OPTIONS, *RETRIES),
}
"""Options by decorator whose default is None."""
NEEDED = {"timer": ", interval=5", "on.field": ", field='spec'"}


@given(data=st.data(), name=st.sampled_from(sorted(DEFAULTS)))
def test_an_option_that_is_none_is_one_that_is_not_given(data: st.DataObject, name: str) -> None:
    given = data.draw(st.lists(st.sampled_from(DEFAULTS[name]), unique=True))
    head = f"import kopf\n\n@kopf.{name}(kind='Bucket'{NEEDED.get(name, '')}"
    tail = ")\ndef handle(spec, **_):\n    print(spec)\n"
    result, _ = translated(head + "".join(f", {one}=None" for one in given) + tail)
    assert result == translated(head + tail)[0]
    imported(result)


def test_code_without_kopf_stays_as_it_is() -> None:
    text = "import json\n\n\ndef f(name , ** kwargs) :\n    return   {name:json}  # as it is\n"
    assert translated(text)[0] == text


def test_other_names_of_kopf_are_known() -> None:
    text = (
        "import os, kopf as k\nfrom kopf import on, TemporaryError as Again\n\n"
        "@on.create('buckets')\ndef f(spec, **_):\n    raise Again('x', delay=spec['x'])\n\n"
        "@k.on.delete('buckets')\ndef g(**_):\n    os.getpid()\n"
    )
    result, migration = translated(text)
    assert "raise RetryAfter(obj.spec['x'], 'x')" in result
    assert "@app.on_delete(BUCKET)" in result
    assert "import os\n" in result
    assert "kopf" not in result.replace("kopf.", "").splitlines()[0]
    assert migration.todos == []
    imported(result)


def test_names_that_the_module_has_are_left_to_it() -> None:
    text = (
        "import kopf\n\napp = 1\nKind = 2\nBUCKET = 3\nlogger = 4\n\n"
        "def Object(): ...\n\n"
        "@kopf.on.create('buckets', labels={'a': 'b'})\n"
        "def f(obj, name, logger, patch, **_):\n    draft = 5\n    patch.status['x'] = name\n"
    )
    module = imported(translated(text)[0])
    assert (module.app, module.Kind, module.BUCKET, module.logger) == (1, 2, 3, 4)
    assert isinstance(module.app_, App)


def test_several_files_share_one_app(tmp_path: Path) -> None:
    sources = {
        "constants.py": "GROUP = 'example.com'\n",
        "one.py": "import kopf\nfrom constants import GROUP\n\n"
        "@kopf.on.create(GROUP, 'v1', 'buckets')\ndef f(name, **_):\n    print(name)\n",
        "two.py": "import kopf\n\n@kopf.on.delete('bu')\ndef g(name, **_):\n    print(name)\n",
    }
    migration = migrate(sources, CRDS, name="buckets")
    assert migration.texts["constants.py"] == sources["constants.py"]
    for path, text in migration.texts.items():
        (tmp_path / path).write_text(text)
    script = "from operator_app import app, BUCKET; print(app.name, app.kinds == (BUCKET,))"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("buckets True\n", "")


def test_what_a_function_takes_is_given_to_it_also_in_another_module() -> None:
    sources = {
        "records.py": "class Base:\n    @classmethod\n    def of(cls, name, body, **_): ...\n\n"
        "class Record(Base):\n    def __init__(self, *, spec, note=1): ...\n\n"
        "class Open:\n    def __init__(self, **options):\n        print(options)\n",
        "handlers.py": "import kopf\nfrom records import Open, Record\n\n"
        "@kopf.on.create('buckets')\ndef f(logger, **kwargs):\n"
        "    Record.of(**kwargs)\n    Record(note=2, **kwargs)\n    Open(**kwargs)\n",
    }
    text = migrate(sources, CRDS).texts["handlers.py"]
    assert "    Record.of(name=obj.name, body=obj)\n    Record(note=2, spec=obj.spec)\n" in text
    assert "    # TODO: **kwargs" in text[: text.index("Open(**kwargs)")]


# The command.


def run(*arguments: str) -> int:
    return cli.main(["migrate", "kopf", *arguments])


@pytest.fixture
def handlers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "handlers.py"
    path.write_text(
        "import kopf\n\n@kopf.on.create('buckets')\ndef make(name, retry, **_):\n"
        "    print(name, retry)\n\n@kopf.on.delete('buckets')\ndef remove(name, **_):\n"
        "    print(name)\n"
    )
    return path


def test_the_command_writes_files_and_a_summary(
    handlers: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    original = handlers.read_text()
    assert run("handlers.py", "--crd", str(PAGES / "crds.yaml"), "--name", "buckets") == 0
    first = capsys.readouterr().out
    assert handlers.read_text() == original
    assert 'app = App("buckets")' in Path("migrated/handlers.py").read_text()
    summary = first[first.index("handlers.py:4:") :].splitlines()
    assert summary[:3] == [
        "handlers.py:4: make (create): 1 TODO",
        "handlers.py:8: remove (delete): translated",
        "2 handlers, 1 translated without a TODO; 1 TODO in 1 file",
    ]
    assert re.match(r"handlers\.py:\d+: retry: ", summary[3])
    assert "adopt=Kopf()" in summary[-1]


def test_a_second_run_keeps_what_was_edited(
    handlers: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("handlers.py") == 0
    made = Path("migrated/handlers.py")
    made.write_text(made.read_text() + "# mine\n")
    capsys.readouterr()
    assert run("handlers.py") == 0
    assert made.read_text().endswith("# mine\n")


def test_the_translation_can_be_printed(handlers: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("handlers.py", "-o", "-") == 0
    captured = capsys.readouterr()
    ast.parse(captured.out)
    assert "2 handlers" in captured.err
    assert not Path("migrated").exists()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("none.py",), "cannot read"),
        (("broken.py",), "broken.py"),
        (("handlers.py", "--crd", "handlers.py"), "handlers.py"),
    ],
)
def test_what_cannot_be_read_is_an_error(
    handlers: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], text: str
) -> None:
    Path("broken.py").write_text("def (:\n")
    assert run(*arguments) == 1
    assert text in capsys.readouterr().err


def test_an_update_with_a_field_gets_its_values() -> None:
    source = (
        "import kopf\n\n@kopf.on.update('buckets', field='spec.size')\n"
        "def f(old, new, name, **_):\n    print(old, new, name)\n"
    )
    text = migrate({"a.py": source}, CRDS).texts["a.py"]
    assert "def f(before: Object, after: Object):\n" in text
    assert 'old = before.spec.get("size")\n    new = after.spec.get("size")\n' in text
    assert "print(old, new, after.name)" in text


@pytest.mark.parametrize("place", ["labels = {}\n\n", ""])
def test_a_variable_that_is_called_as_an_argument_of_kopf_stays(place: str) -> None:
    source = (
        f"import kopf\n\n{place}@kopf.on.create('buckets')\n"
        f"def f(spec, **_):\n{'' if place else '    labels = {}'}\n    print(spec, labels)\n"
    )
    text = migrate({"a.py": source}, CRDS).texts["a.py"]
    assert "print(obj.spec, labels)" in text
