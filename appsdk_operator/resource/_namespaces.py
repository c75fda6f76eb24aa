"""Selection of namespaces, by patterns of their names or by their labels."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, final

import attrs

from appsdk_operator.resource._names import check_followed_namespace, check_namespace_name
from appsdk_operator.resource._selectors import LabelSelector
from appsdk_operator.runtime.validation import check_instance

_SIGNS: Final = frozenset("*?[]!")
_GLOB: Final = re.compile(r"(?:[a-z0-9*?-]|\[!?[a-z0-9-]+\])+")


def _checked_patterns(value: Iterable[Any]) -> tuple[str, ...]:
    if isinstance(value, str):  # which would be patterns of one letter each
        raise TypeError(f"namespaces={value!r}: give a list of patterns, write [{value!r}]")
    patterns = tuple(value)
    for pattern in patterns:
        check_namespace_name("" if isinstance(pattern, str) else pattern, "namespaces")
        glob = _glob(pattern)
        if glob and not _SIGNS & set(glob):
            check_followed_namespace(glob, "namespaces")
        elif not _GLOB.fullmatch(glob):
            raise ValueError(
                f"namespaces has the pattern {pattern!r}, which no name matches: use lower-case "
                "letters, digits and '-', with *, ? and [abc], and a '!' in front to exclude"
            )
    return patterns


def _glob(pattern: str) -> str:
    return pattern.removeprefix("!")


def _compiled(selector: NamespaceSelector) -> tuple[tuple[bool, re.Pattern[str]], ...]:
    import fnmatch

    found = [
        (not pattern.startswith("!"), re.compile(fnmatch.translate(_glob(pattern))))
        for pattern in selector.patterns
    ]
    return tuple(found)


@final
@attrs.frozen
class NamespaceSelector:
    """Selects namespaces by patterns of their names, or by their labels.

    The last pattern that matches a name decides; a pattern with ``!`` in front excludes. If the
    first pattern excludes, namespaces that no pattern matches are selected. ``*`` stands for any
    text, ``?`` for any one character, ``[abc]`` for one of these.

    >>> selector = NamespaceSelector(["team-*", "!team-x"])
    >>> [name for name in ("team-a", "team-x", "kube-system") if selector.matches(name)]
    ['team-a']
    >>> NamespaceSelector(["!kube-*"]).matches("team-a")
    True

    Raises:
        ValueError: a pattern that no name matches, patterns that select nothing, or both patterns
            and labels.
        TypeError: ``patterns`` is one text, or ``labels`` is not a LabelSelector.
    """

    patterns: tuple[str, ...] = attrs.field(default=(), converter=_checked_patterns)
    """Patterns of names, in their order; empty: selected by labels."""
    labels: LabelSelector | None = None
    """Selects by the labels of the Namespace objects; None: selected by patterns."""
    _globs: tuple[tuple[bool, re.Pattern[str]], ...] = attrs.field(
        init=False, eq=False, repr=False, default=attrs.Factory(_compiled, takes_self=True)
    )

    def __attrs_post_init__(self) -> None:
        if self.labels is not None:
            check_instance("labels", self.labels, LabelSelector, "LabelSelector.parse(…)")
        if bool(self.patterns) is (self.labels is not None):
            raise ValueError("select namespaces by patterns of their names, or by their labels")
        excludes = any(pattern.startswith("!") for pattern in self.patterns)
        if "*" in self.patterns and len(self.patterns) > 1 and not excludes:
            raise ValueError(
                f"namespaces={list(self.patterns)!r}: '*' selects all namespaces, so the other "
                "patterns change nothing: leave them out, or exclude some with '!'"
            )
        if self.patterns and not self._selects_any():
            raise ValueError(
                f"namespaces={list(self.patterns)!r} selects none, because the last pattern that "
                "matches a name decides: narrow the '!' patterns, or put them first"
            )

    def _selects_any(self) -> bool:
        """Whether some pattern is not made void by a later one, as far as is easily seen."""
        patterns = self.patterns if self._includes_first else ("*", *self.patterns)
        for number, pattern in enumerate(patterns):
            if pattern.startswith("!"):
                continue
            later = patterns[number + 1 :]
            if _SIGNS & set(pattern):
                if "!*" not in later and f"!{pattern}" not in later:
                    return True
            elif self.matches(pattern):
                return True
        return False

    @property
    def _includes_first(self) -> bool:
        return not self.patterns[0].startswith("!")

    def matches(self, name: str, labels: Mapping[str, str] | None = None) -> bool:
        """Whether the namespace of this name, with these labels, is selected."""
        if self.labels is not None:
            return self.labels.matches(labels or {})
        for includes, glob in reversed(self._globs):
            if glob.fullmatch(name):
                return includes
        return not self._includes_first

    def __str__(self) -> str:
        return ", ".join(self.patterns) if self.patterns else f"with labels {self.labels}"


def namespace_selector_of(value: object) -> NamespaceSelector | None:
    """``value`` as a selector; None if it has names only, or is something else.

    Args:
        value: a selector, a :class:`LabelSelector`, a filter ``labels(…)``, or a list of names and
            patterns.

    Raises:
        ValueError: as :class:`NamespaceSelector`.
    """
    if isinstance(value, NamespaceSelector):
        return value
    if isinstance(value, LabelSelector):
        return NamespaceSelector(labels=value)
    selector = getattr(value, "label_selector", None)
    if isinstance(selector, LabelSelector):
        return NamespaceSelector(labels=selector)
    if not isinstance(value, (list, tuple)):
        return None
    if not any(isinstance(each, str) and _SIGNS & set(each) for each in value):
        return None
    return NamespaceSelector(value)
