"""YAML with the types of Kubernetes: safe, without YAML's dates and base-60 numbers."""

from __future__ import annotations

import contextlib
import math
import re
from typing import Any, final

import yaml

from appsdk_operator.resource import _codec

_MAX_VALUES = 5_000_000
"""The limit on values of a document, because aliases of aliases multiply."""

_MAX_MERGED = 100_000
"""The limit on keys that the merges of a document look at, because they multiply as aliases do."""

_VALUE = "tag:yaml.org,2002:value"
_STR = "tag:yaml.org,2002:str"

_INT, _FLOAT, _BOOL, _MERGE = (
    f"tag:yaml.org,2002:{name}" for name in ("int", "float", "bool", "merge")
)
_INT_TEXT = re.compile(r"[-+]?(0b[01_]+|0x[0-9a-fA-F_]+|0o?[0-7_]+|0|[1-9][0-9_]*)\Z", re.ASCII)
_FLOAT_TEXT = re.compile(
    r"([-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9]*)?)([eE][-+]?[0-9]+)?"
    r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))\Z",
    re.ASCII,
)
_LINE_BREAK = re.compile("[\x85\u2028\u2029]")
_SINGLE_LETTER = re.compile(r"[yYnN]\Z")


@final
class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader with the scalar types of Kubernetes.

    A time stamp and ``12:30`` are text, ``1e3`` is a number, and duplicate keys are refused.
    """

    yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML declares it so
        first: [pair for pair in pairs if pair[0] in (_BOOL, _MERGE) or "null" in pair[0]]
        for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, LookupError, AttributeError, TypeError):
            # Not its words, which have the value: it may be one of a Secret.
            problem = f"found a value that is no {node.tag.rpartition(':')[2]}: quote it as text"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from None

    def construct_mapping(self, node: yaml.Node, deep: bool = False) -> dict[Any, Any]:
        if not isinstance(node, yaml.MappingNode):
            problem = "expected a mapping node"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        own = set()
        for key_node, _ in node.value:
            if key_node.tag != _MERGE:
                key = self._construct_key(key_node)
                if key in own:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"found the key {key!r} twice", key_node.start_mark
                    )
                own.add(key)
        self.flatten_mapping(node)
        return {
            self._construct_key(key_node): self.construct_object(value_node, deep=deep)
            for key_node, value_node in node.value
        }

    _merged = 0

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Put the pairs of merged mappings (``<<``) into ``node``; the first one of a key counts.

        Not PyYAML's: up to 6.0.3 it keeps each key as often as it is merged, and from 6.0.4 on it
        lets the last mapping of a list count.
        """
        own: list[tuple[yaml.Node, yaml.Node]] = []
        sources: list[yaml.MappingNode] = []
        for key, value in node.value:
            if key.tag == _MERGE:
                sources += self._merged_mappings(value)
                continue
            if key.tag == _VALUE:
                key.tag = _STR
            own.append((key, value))
        node.value = own  # before the sources, of which it may be one
        if not sources:
            return
        kept = {_identity(key): (key, value) for key, value in own}
        for source in sources:
            self.flatten_mapping(source)
            self._merged += len(source.value)
            if self._merged > _MAX_MERGED:
                raise yaml.constructor.ConstructorError(
                    None, None, "found too many keys: its merges multiply", node.start_mark
                )
            for key, value in source.value:
                kept.setdefault(_identity(key), (key, value))
        node.value = list(kept.values())

    def _merged_mappings(self, value: yaml.Node) -> list[yaml.MappingNode]:
        found: list[Any] = value.value if isinstance(value, yaml.SequenceNode) else [value]
        for one in found:
            if not isinstance(one, yaml.MappingNode):
                raise yaml.constructor.ConstructorError(
                    None, None, f"found a {one.id} to merge: << takes mappings", one.start_mark
                )
        return list(found)

    def _construct_key(self, node: yaml.Node) -> str:
        key = self.construct_object(node, deep=True)
        if isinstance(key, str):
            return key
        if key is None or isinstance(key, (bool, int, float)):
            # As text, because in Python 1 and true are the same key.
            return _codec.encode_json(key).decode()
        raise yaml.constructor.ConstructorError(
            None, None, f"found a {type(key).__name__} as key: quote it as text", node.start_mark
        )


def _identity(key: yaml.Node) -> object:
    return (key.tag, key.value) if isinstance(key, yaml.ScalarNode) else id(key)


def _construct_int(loader: _Loader, node: yaml.ScalarNode) -> int:
    text = str(loader.construct_scalar(node)).replace("_", "")
    if text.lstrip("-+").startswith(("0b", "0x", "0o")):
        return int(text, 0)
    return int(text, 8 if text.lstrip("-+").startswith("0") else 10)


def _construct_float(loader: _Loader, node: yaml.ScalarNode) -> float:
    value = float(loader.construct_yaml_float(node))
    # Go writes 1e3 as 1000, and an integer field takes nothing else.
    return int(value) if "." not in node.value and value.is_integer() else value


_NUMERIC = "-+.0123456789"
_Loader.add_implicit_resolver(_INT, _INT_TEXT, _NUMERIC)
_Loader.add_implicit_resolver(_FLOAT, _FLOAT_TEXT, _NUMERIC)
_Loader.add_constructor(_INT, _construct_int)
_Loader.add_constructor(_FLOAT, _construct_float)


@final
class _Dumper(yaml.SafeDumper):
    """PyYAML's safe dumper without anchors, with quotes wherever some reader needs them."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    # PyYAML writes these line breaks unquoted, and reads them back as spaces.
    style = '"' if _LINE_BREAK.search(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)
# `y` is true to some readers of Kubernetes, and `1e3` a number, but neither to PyYAML.
_Dumper.add_implicit_resolver(_BOOL, _SINGLE_LETTER, "yYnN")
_Dumper.add_implicit_resolver(_INT, _INT_TEXT, _NUMERIC)
_Dumper.add_implicit_resolver(_FLOAT, _FLOAT_TEXT, _NUMERIC)


def load_yaml(text: str | bytes) -> list[Any]:
    """The documents of a YAML text as plain JSON values; empty documents are left out.

    Keys that are not text become text, as in JSON.

    Raises:
        ValueError: the text is not YAML, and the message names line and column; or JSON cannot
            carry a value, and the message names the path.
    """
    try:
        documents = [doc for doc in yaml.load_all(text, _Loader) if doc is not None]
        budget = [_MAX_VALUES]
        return [_json(document, "$", budget) for document in documents]
    except yaml.MarkedYAMLError as error:
        # Not its text, which has the line: it may be one of a Secret.
        mark = error.problem_mark or error.context_mark
        where = f" in line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        problem = f"not YAML: {error.problem or error.context}{where}"
    except yaml.YAMLError as error:
        raise ValueError(f"not YAML: {error}") from error
    except RecursionError as error:
        # JSON is YAML, and the JSON decoder reads more levels than PyYAML.
        with contextlib.suppress(ValueError):
            return [_codec.decode_json(text if isinstance(text, bytes) else text.encode())]
        raise ValueError("not YAML of JSON values: nested too deep, or contains itself") from error
    raise ValueError(problem)


def load_first(text: str | bytes, *, most_values: int = _MAX_VALUES) -> tuple[Any, list[str]]:
    """The first document of a YAML text, parsed as API servers parse a body.

    Of a duplicate key the last value counts. Each use of an alias counts towards ``most_values``,
    the limit of values.

    Returns:
        The document as plain JSON values, None if there is none; and the duplicate keys, in the
        form ``line 4: key "size" already set in map``.

    Raises:
        ValueError: the text is not YAML; the message begins with the line.
    """
    repeated: list[str] = []
    loader = None
    try:
        loader = _Loader(text)
        node = loader.get_node() if loader.check_node() else None
        if node is None:
            return None, repeated
        _keep_last(node, repeated, set())
        return _json(loader.construct_document(node), "$", [most_values]), repeated
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else 1
        problem = f"line {line}: {error.problem}"
    except yaml.YAMLError as error:
        raise ValueError(f"line 1: {error}") from error
    except RecursionError as error:
        raise ValueError("line 1: nested too deep, or contains itself") from error
    finally:
        if loader is not None:
            loader.dispose()
    raise ValueError(problem)


def _keep_last(node: yaml.Node, repeated: list[str], seen: set[int]) -> None:
    # Aliases make one node part of many.
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _keep_last(item, repeated, seen)
    elif isinstance(node, yaml.MappingNode):
        kept: dict[Any, tuple[yaml.Node, yaml.Node]] = {}
        for key, value in node.value:
            name = _identity(key)
            if name in kept and key.tag != _MERGE:
                line = key.start_mark.line + 1
                repeated.append(f'line {line}: key "{key.value}" already set in map')
            kept[name if key.tag != _MERGE else id(key)] = (key, value)
            _keep_last(value, repeated, seen)
        node.value = list(kept.values())


def dump_yaml(data: dict[str, Any]) -> str:
    """YAML of JSON values, with the order of keys kept.

    Values nested deeper than PyYAML can write, some hundred levels, are written as JSON, which is
    YAML, too.

    Raises:
        EncodeError: a value that JSON cannot carry; the text names the path.
    """
    plain = _codec.plain_copy(data)
    try:
        text: str = yaml.dump(plain, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    except RecursionError:
        return _codec.encode_json(plain).decode() + "\n"
    return text


def _json(value: Any, path: str, budget: list[int]) -> Any:
    """A copy without shared parts, checked to be JSON."""
    budget[0] -= 1
    if budget[0] < 0:
        raise ValueError("the YAML holds too many values: its aliases multiply")
    if isinstance(value, dict):
        return {
            _text(key, path): _json(item, f"{path}.{key}", budget) for key, item in value.items()
        }
    if isinstance(value, list):
        return [_json(item, f"{path}[{index}]", budget) for index, item in enumerate(value)]
    if isinstance(value, str):
        return _text(value, path)
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    what = value if isinstance(value, float) else f"a {type(value).__name__}"
    raise ValueError(f"{path} is {what}, which JSON cannot carry: quote it as text")


def _text(text: str, path: str) -> str:
    """A text in which two escaped surrogates are one character, as they are in JSON."""
    if text.isascii():
        return text
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise ValueError(f"{path} has a surrogate without its other half: remove it") from None
