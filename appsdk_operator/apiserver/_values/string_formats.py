"""The values of ``format`` in a schema, each with its parser. Any string fits an unknown format.

A string has a format if the parser takes it. What the parsers take is what Go's packages take:
``time``, ``net``, ``net/mail`` and ``net/url``, and the patterns of kube-openapi. Each takes time
linear in the string.
"""

from __future__ import annotations

import base64
import datetime as dt
import ipaddress
import re
import unicodedata
from collections.abc import Callable
from typing import Any, Final

from appsdk_operator.apiserver._values import names, times


def is_known(name: str) -> bool:
    """Whether Kubernetes knows this format. It ignores others."""
    return name.replace("-", "") in _PARSERS


def is_valid(name: str, value: str) -> bool:
    """Whether ``value`` has the format ``name``."""
    parse = _PARSERS.get(name.replace("-", ""))
    try:
        return parse is None or parse(value) is not False
    except ValueError:
        return False


def _pattern(pattern: str) -> Callable[[str], bool]:
    compiled = re.compile(pattern, re.ASCII | re.DOTALL)
    return lambda value: compiled.fullmatch(value) is not None


# -- times ---------------------------------------------------------------------------------

# It begins at the first digit of a number only, so that the time grows with the length alone.
_AMOUNT: Final = re.compile(r"(?<![0-9])([0-9]++)[ \t\n\f\r]*+([A-Za-zµ]++)")
_WORDS: Final = {
    "(ns|nano.*)": 1,
    "(us|µs|micro.*)": 10**3,
    "(ms|milli.*)": 10**6,
    "(s|sec.*)": 10**9,
    "(m|min.*)": 60 * 10**9,
    "(h|hr|hour.*)": 3600 * 10**9,
    "(d|day.*)": 86_400 * 10**9,
    "(w|wk|week.*)": 7 * 86_400 * 10**9,
}
_TIME: Final = _pattern(
    r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](.[0-9]+)?(z|[+-][0-9]{2}:[0-9]{2})"
)


def parse_duration(value: str) -> int:
    """Parse a string of the format ``duration`` to nanoseconds.

    Apart from Go's durations it is anything with a number before a word for a unit, such as ``2
    days`` or ``PT90S``. Too many nanoseconds for 64 bits wrap around, as in Go.

    Raises:
        ValueError: it is not a duration.
    """
    try:
        return times.parse_duration(value)
    except ValueError:
        total = None
        for number, word in _AMOUNT.findall(value):
            digits = number.lstrip("0") or "0"
            if len(digits) > 19 or int(digits) >= 2**63:
                raise
            for pattern, unit in _WORDS.items():
                if re.fullmatch(pattern, word.lower()):
                    total = (total or 0) + int(digits) * unit
        if total is None:
            raise
        return (total + 2**63) % 2**64 - 2**63


def parse_date(value: str) -> dt.date:
    """Parse a string of the format ``date``; 2000 stands for the year 0, which Python has not.

    Raises:
        ValueError: it is not a date.
    """
    if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", value):
        raise ValueError(value)
    return dt.date.fromisoformat(value if value[:4] != "0000" else f"2000{value[4:]}")


def _is_date_time(value: str) -> bool:
    date, *time = value.lower().split("t")
    return bool(time) and bool(parse_date(date)) and _TIME(time[0])


# -- addresses -----------------------------------------------------------------------------


def _ip(value: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """An address as Go's older versions parse it, with zeros before the numbers."""
    if ":" in value:
        if "%" in value:
            raise ValueError(value)
        return ipaddress.IPv6Address(value)
    return ipaddress.IPv4Address(re.sub(r"(?<![0-9])0+(?=[0-9])", "", value))


def _is_cidr(value: str) -> bool:
    host, _, bits = value.partition("/")
    digits = bits.lstrip("0") or bits[:1]
    if not re.fullmatch(r"[0-9]{1,3}", digits):
        return False
    return int(digits) <= _ip(host).max_prefixlen


def _is_mac(value: str) -> bool:
    digits = re.sub("[:.-]", "", value)
    if not re.fullmatch("[0-9a-fA-F]{12}|[0-9a-fA-F]{16}|[0-9a-fA-F]{40}", digits):
        return False
    pairs, words = (re.findall("." * count, digits) for count in (2, 4))
    return value in (digits, ":".join(pairs), "-".join(pairs), ".".join(words))


def _is_hostname(value: str) -> bool:
    if len(value.encode()) > 255 or any(len(p.encode()) > 63 for p in value.split(".")):
        return False
    kinds = (_kind(char) for char in value)
    return _HOSTNAME("".join(kinds))


def _kind(char: str) -> str:
    """``L`` for a letter, ``S`` for a symbol or a digit, else the character."""
    if char.isascii() and char.isdecimal():
        return "S"
    category = unicodedata.category(char)[0]
    return category if category in "LS" else char.lower()


_HOSTNAME: Final = _pattern(r"[LS]-?[LS]{0,62}|([LS]([LS-]{0,61}[LS])?\.)+L{2,63}")

# -- locations -----------------------------------------------------------------------------

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*+:")
_USER: Final = _pattern(r"([A-Za-z0-9\-._:~!$&'()*+,;=@]|%[0-9a-fA-F]{2})*+")
_HOST: Final = r"[A-Za-z0-9\-._~!$&'()*+,;=\]<>\":]|[^\x00-\x7f]"
# Only bytes that are not ASCII may be escaped in a host, and percent signs.
_NAME: Final = _pattern(rf"(?:{_HOST}|%25|%[89a-fA-F][0-9a-fA-F])*+")
_LITERAL: Final = re.compile(rf"\[([^%\]]*+)(?:%25(?:{_HOST}|%[0-7][0-9a-fA-F])+)?\](?::[0-9]*+)?")
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9a-fA-F]{2})")


def parse_request_uri(value: str) -> None:
    """Check an absolute URI or an absolute path, as Go's ``url.ParseRequestURI`` does.

    Raises:
        ValueError: it is neither.
    """
    scheme = _SCHEME.match(value)
    rest = (value[scheme.end() :] if scheme else value).partition("?")[0]
    if re.search(r"[\x00-\x1f\x7f]", value) or not (scheme or value[:1] == "/" or value == "*"):
        raise ValueError(value)
    if scheme and rest.startswith("//"):
        authority, slash, rest = rest[2:].partition("/")
        rest = slash + rest
        user, _, host = authority.rpartition("@")
        if not _USER(user) or not _is_host(host, scheme[0].lower()):
            raise ValueError(value)
    if rest.startswith("/") and _BAD_ESCAPE.search(rest):
        raise ValueError(value)


def _is_host(value: str, scheme: str) -> bool:
    """Whether an address in brackets or a name, perhaps with a port."""
    if value.startswith("["):
        found = _LITERAL.fullmatch(value)
        return found is not None and _ip(found[1]).version == 6
    name, colon, port = value.rpartition(":")
    if not colon:
        return _NAME(value)
    # Other schemes than http may have several names with ports.
    one = ":" not in name or scheme not in ("http:", "https:")
    return one and _NAME(name) and re.fullmatch("[0-9]*", port) is not None


# An address of net/mail: an addr-spec, one in angle brackets after a name, or a group of one.
_COMMENT = r"\((?:[^()\\]|\\.)*+\)"
for _depth in range(4):
    _COMMENT = rf"\((?:[^()\\]|\\.|{_COMMENT})*+\)"
_GAP: Final = rf"[ \t]*+(?:{_COMMENT}[ \t]*+)*+"
_ATOM: Final = r"[^\x00-\x20\x7f()<>\[\]:;@\\,\".]++"
_QUOTED: Final = r"\"(?:[^\x00-\x08\x0a-\x1f\x7f\"\\]|\\[^\x00-\x08\x0a-\x1f\x7f]){}+\""
_SPEC: Final = (
    rf"[ \t]*+(?:{_ATOM}(?:\.{_ATOM})*+|{_QUOTED.format('+')})@[ \t]*+"
    rf"(?:{_ATOM}(?:\.{_ATOM})*+|\[([^\]]++)\])"
)
_PHRASE: Final = rf"[ \t]*+(?:(?:{_QUOTED.format('*')}|(?:{_ATOM}|\.)++){_GAP})++"
_MAILBOX: Final = rf"(?:{_SPEC}{_GAP}|(?:{_PHRASE}|[ \t]*+)<{_SPEC}>{_GAP})"
_EMAIL: Final = re.compile(f"{_MAILBOX}|{_PHRASE}:{_MAILBOX};{_GAP}", re.DOTALL)


def _is_email(value: str) -> bool:
    found = _EMAIL.fullmatch(value)
    literals = [text for text in found.groups() if text is not None] if found else []
    return found is not None and all(map(_ip, literals))


# -- bytes and numbers ---------------------------------------------------------------------

_BASE64: Final = _pattern(
    "(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})"
)


def decode_base64(value: str) -> bytes:
    """Decode a string of the format ``byte`` as rules do, which know the URL alphabet alone.

    Raises:
        ValueError: it is not base64.
    """
    if "+" in value or "/" in value:
        raise ValueError("illegal base64 data")
    return base64.b64decode(value, altchars=b"-_", validate=True)


_CARD: Final = _pattern(
    "4[0-9]{12}([0-9]{3})?|5[1-5][0-9]{14}|6(011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}"
    "|3(0[0-5]|[68][0-9])[0-9]{11}|(2131|1800|35[0-9]{3})[0-9]{11}"
)


def _is_card(value: str) -> bool:
    digits = re.sub("[^0-9]", "", value)
    # Luhn's sum: every second digit counts twice, and its own digits are added.
    doubled = (int(d) * (1 + at % 2) for at, d in enumerate(reversed(digits)))
    return _CARD(digits) and sum(n // 10 + n % 10 for n in doubled) % 10 == 0


def _is_isbn10(value: str) -> bool:
    digits = re.sub(r"[\s-]", "", value, flags=re.ASCII)
    if not re.fullmatch("[0-9]{9}[0-9X]", digits):
        return False
    return sum(at * (10 if d == "X" else int(d)) for at, d in enumerate(digits, 1)) % 11 == 0


def _is_isbn13(value: str) -> bool:
    digits = re.sub(r"[\s-]", "", value, flags=re.ASCII)
    if not re.fullmatch("[0-9]{13}", digits):
        return False
    return sum(int(d) * (1 + 2 * (at % 2)) for at, d in enumerate(digits)) % 10 == 0


def _uuid(third: str = "[0-9a-f]", fourth: str = "[0-9a-f]") -> Callable[[str], bool]:
    part = "[0-9a-f]"
    return _pattern(
        f"(?i){part}{{8}}-?{part}{{4}}-?{third}{part}{{3}}-?{fourth}{part}{{3}}-?{part}{{12}}"
    )


_BYTE: Final = r"\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*"
_PARSERS: Final[dict[str, Callable[[str], Any]]] = {
    "bsonobjectid": _pattern("[0-9a-fA-F]{24}"),
    "byte": _BASE64,
    "cidr": _is_cidr,
    "creditcard": _is_card,
    "date": parse_date,
    "datetime": _is_date_time,
    "duration": lambda value: parse_duration(value) is not None,
    "email": _is_email,
    "hexcolor": _pattern("#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})"),
    "hostname": _is_hostname,
    "ipv4": lambda value: "." in value and _ip(value),
    "ipv6": lambda value: ":" in value and _ip(value),
    "isbn": lambda value: _is_isbn10(value) or _is_isbn13(value),
    "isbn10": _is_isbn10,
    "isbn13": _is_isbn13,
    "k8slongname": lambda value: not names.subdomain_problems(value),
    "k8sshortname": lambda value: not any(names.name_problems(value, names.NameStyle.LABEL)),
    "mac": _is_mac,
    "password": lambda _value: True,
    "rgbcolor": _pattern(rf"rgb\({_BYTE},{_BYTE},{_BYTE}\)"),
    "ssn": _pattern(r"\d{3}[- ]\d{2}[- ]\d{4}"),
    "uri": parse_request_uri,
    "uuid": _uuid(),
    "uuid3": _uuid("3"),
    "uuid4": _uuid("4", "[89ab]"),
    "uuid5": _uuid("5", "[89ab]"),
}
