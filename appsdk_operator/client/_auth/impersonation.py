"""Impersonation: requests that act as another user, and the headers that ask for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import quote

import attrs

from appsdk_operator.client._auth.option_checks import check_header_text
from appsdk_operator.client._errors import ConfigError
from appsdk_operator.runtime.validation import check_text, checked_texts


def _groups(value: Sequence[str]) -> tuple[str, ...]:
    return checked_texts("groups", value)


@attrs.frozen(kw_only=True)
class Impersonation:
    """Act as another user; your own account needs the verb ``impersonate``."""

    user: str = attrs.field(validator=check_header_text)
    """The user name, for example ``system:serviceaccount:default:robot``."""
    groups: Sequence[str] = attrs.field(default=(), converter=_groups)
    """The groups, in place of the groups that the server would add."""
    uid: str = attrs.field(default="", validator=check_header_text)
    """The user's uid; servers support it from Kubernetes 1.22 on."""
    extra: Mapping[str, Sequence[str]] = attrs.field(factory=dict)
    """Extra fields, each with its values."""

    def __attrs_post_init__(self) -> None:
        if not self.user:
            raise ConfigError("impersonation needs a user: the API refuses groups or uid alone")
        if not isinstance(self.extra, Mapping):
            raise TypeError(f"extra={self.extra!r}: give a mapping of keys to lists of texts")
        for key in self.extra:
            check_text("a key of extra", key, empty=False)
        extra = [checked_texts(f"extra[{key!r}]", values) for key, values in self.extra.items()]
        for value in (*self.groups, *(v for values in extra for v in values)):
            check_header_text(None, attrs.fields(Impersonation).groups, value)
        for value in (self.user, self.uid, *self.groups, *(v for values in extra for v in values)):
            if value != value.strip(" "):
                raise ConfigError(
                    f"impersonation: {value!r} begins or ends with a space, which servers remove: "
                    "it would be another name"
                )


def impersonation_headers(impersonate: Impersonation) -> list[tuple[str, str]]:
    """The headers that ask for impersonation.

    >>> impersonation_headers(Impersonation(user="jane", extra={"example.com/Team": ["a"]}))
    [('Impersonate-User', 'jane'), ('Impersonate-Extra-example.com%2Fteam', 'a')]
    """
    headers = [("Impersonate-User", impersonate.user)]
    headers += [("Impersonate-Group", group) for group in impersonate.groups]
    if impersonate.uid:
        headers.append(("Impersonate-Uid", impersonate.uid))
    for key, values in impersonate.extra.items():
        # The server lower-cases the key and decodes its percent signs.
        name = f"Impersonate-Extra-{quote(key.lower(), safe='')}"
        headers += [(name, value) for value in values]
    return headers
