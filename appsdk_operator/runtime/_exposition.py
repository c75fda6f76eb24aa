"""Pages of metrics in Prometheus' text format and OpenMetrics, byte by byte as prometheus-client.

That package brings HTTP servers and clients, WSGI and email along: 3.5 MB that an idle operator
would need from its first scrape on. So the kit writes its own metrics, and leaves the rest to the
package: registries of users, and ways of escaping that change the names.
"""

from __future__ import annotations

import gc
import math
import os
import platform
import re
from collections.abc import Iterable, Iterator
from typing import Final

from appsdk_operator._lazy import lazy_pattern
from appsdk_operator.runtime._samples import Family, LocalHistogram, Sample

_PLAIN_NAME: Final = lazy_pattern(r"[a-zA-Z_][a-zA-Z0-9_]*")
_VERSION: Final = lazy_pattern(r"[0-9]{1,9}(\.[0-9]{1,9})*")
_TEXT: Final = "text/plain"
_OPENMETRICS: Final = "application/openmetrics-text"
_OLDEST: Final = (1, 0, 0)
_CPU_PLACE: Final = 11
"""Of the fields of /proc/self/stat behind the name: user time, and next to it system time."""
_START_PLACE: Final = 19
_VIRTUAL_PLACE, _RESIDENT_PLACE = 20, 21

_COLLECTED = Family(
    "python_gc_objects_collected", "counter", "Objects collected during gc", ("generation",)
)
_UNCOLLECTABLE = Family(
    "python_gc_objects_uncollectable",
    "counter",
    "Uncollectable objects found during GC",
    ("generation",),
)
_COLLECTIONS = Family(
    "python_gc_collections",
    "counter",
    "Number of times this generation was collected",
    ("generation",),
)
_PYTHON = Family(
    "python_info",
    "gauge",
    "Python platform information",
    ("version", "implementation", "major", "minor", "patchlevel"),
)
_VIRTUAL = Family("process_virtual_memory_bytes", "gauge", "Virtual memory size in bytes.")
_RESIDENT = Family("process_resident_memory_bytes", "gauge", "Resident memory size in bytes.")
_STARTED = Family(
    "process_start_time_seconds", "gauge", "Start time of the process since unix epoch in seconds."
)
_CPU = Family(
    "process_cpu_seconds_total", "counter", "Total user and system CPU time spent in seconds."
)
_OPEN = Family("process_open_fds", "gauge", "Number of open file descriptors.")
_MOST_OPEN = Family("process_max_fds", "gauge", "Maximum number of open file descriptors.")


def accepted_format(accepted: str) -> tuple[bool, str] | None:
    """The format of a page for a scraper, as prometheus-client chooses it.

    Args:
        accepted: the scraper's ``Accept`` header. Entries whose version cannot be read are skipped.

    Returns:
        Whether the page is OpenMetrics, and its media type. None if the scraper wants names escaped
        in a way that changes those of the kit.

    >>> accepted_format("application/openmetrics-text;version=1.0.0")
    (True, 'application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=underscores')
    >>> accepted_format("*/*")
    (False, 'text/plain; version=0.0.4; charset=utf-8')
    """
    for entry in accepted.split(","):
        kind, *parameters = entry.split(";")
        kind = kind.strip()
        if kind not in (_TEXT, _OPENMETRICS):
            continue
        found = dict(reversed([_parameter(each) for each in parameters if "=" in each]))
        version = found.get("version", "")
        if kind == _OPENMETRICS and not version:
            return True, f"{_OPENMETRICS}; version=1.0.0; charset=utf-8"
        if not _VERSION.fullmatch(version) or tuple(map(int, version.split("."))) < _OLDEST:
            continue
        escaping = found.get("escaping", "")
        if escaping in ("dots", "values"):
            return None
        escaping = escaping if escaping == "allow-utf-8" else "underscores"
        if kind == _TEXT:
            version = "1.0.0"
        return (
            kind == _OPENMETRICS,
            f"{kind}; version={version}; charset=utf-8; escaping={escaping}",
        )
    return False, f"{_TEXT}; version=0.0.4; charset=utf-8"


def _parameter(text: str) -> tuple[str, str]:
    name, _, value = text.strip().partition("=")
    return name, value


def page_of(samples: Iterable[Sample], *, is_openmetrics: bool = False) -> bytes | None:
    """The samples as a page; those of a family are together, where its first one is.

    Returns:
        None if a name has other characters than letters, digits and underscores, which are written
        differently by version and scraper.
    """
    families: dict[str, list[Sample]] = {}
    for sample in samples:
        families.setdefault(sample.family.bare_name, []).append(sample)
    lines: list[str] = []
    for name, found in families.items():
        family = found[0].family
        if not all(map(_PLAIN_NAME.fullmatch, (name, *family.labels))):
            return None
        shown = f"{name}_total" if family.type == "counter" and not is_openmetrics else name
        text = family.text.replace("\\", r"\\").replace("\n", r"\n")
        if is_openmetrics:
            text = text.replace('"', r"\"")
        lines += (f"# HELP {shown} {text}\n", f"# TYPE {shown} {family.type}\n")
        for sample in found:
            lines += _lines_of(name, sample)
    if is_openmetrics:
        lines.append("# EOF\n")
    return "".join(lines).encode()


def _lines_of(name: str, sample: Sample) -> Iterator[str]:
    labels = list(zip(sample.family.labels, sample.labels, strict=False))
    value = sample.value
    if not isinstance(value, LocalHistogram):
        suffix = "_total" if sample.family.type == "counter" else ""
        yield f"{name}{suffix}{_labels(labels)} {_number(value)}\n"
        return
    buckets = value.cumulative()
    for bound, count in buckets:
        yield f"{name}_bucket{_labels([*labels, ('le', bound)])} {_number(count)}\n"
    # As prometheus-client: with buckets for negative values a sum is no counter.
    if float(buckets[0][0]) >= 0:
        yield f"{name}_count{_labels(labels)} {_number(buckets[-1][1])}\n"
        yield f"{name}_sum{_labels(labels)} {_number(value.total)}\n"


def _labels(labels: list[tuple[str, str]]) -> str:
    if not labels:
        return ""
    pairs = (f'{name}="{_escaped(value)}"' for name, value in sorted(labels))
    return f"{{{','.join(pairs)}}}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _number(value: float) -> str:
    """A number as Go writes it, which changes to exponents earlier than Python."""
    number = float(value)
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "+Inf" if number > 0 else "-Inf"
    text = repr(number)
    dot = text.find(".")
    if number > 0 and dot > 6:
        mantissa = f"{text[0]}.{text[1:dot]}{text[dot + 1 :]}".rstrip("0.")
        return f"{mantissa}e+{dot - 1:02d}"
    return text


# -- the process -----------------------------------------------------------------------------


def process_samples() -> list[Sample]:
    """The garbage collector, the interpreter and the process, by the names of prometheus-client.

    What the system does not tell is left out.
    """
    return [*_collector_samples(), _interpreter_sample(), *_system_samples()]


def _collector_samples() -> Iterator[Sample]:
    if platform.python_implementation() != "CPython":  # others count other things
        return
    generations = gc.get_stats()
    for family, field in (
        (_COLLECTED, "collected"),
        (_UNCOLLECTABLE, "uncollectable"),
        (_COLLECTIONS, "collections"),
    ):
        for number, generation in enumerate(generations):
            yield Sample(family, (str(number),), generation[field])


def _interpreter_sample() -> Sample:
    version, implementation = platform.python_version(), platform.python_implementation()
    return Sample(_PYTHON, (version, implementation, *platform.python_version_tuple()), 1)


def _system_samples() -> Iterator[Sample]:
    try:
        booted = float(_field("/proc/stat", r"btime (\d+)"))
        fields = _read("/proc/self/stat").rpartition(")")[2].split()
        ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return  # no Linux
    yield Sample(_VIRTUAL, (), float(fields[_VIRTUAL_PLACE]))
    yield Sample(_RESIDENT, (), float(fields[_RESIDENT_PLACE]) * page)
    yield Sample(_STARTED, (), float(fields[_START_PLACE]) / ticks + booted)
    times = fields[_CPU_PLACE : _CPU_PLACE + 2]
    yield Sample(_CPU, (), sum(float(each) / ticks for each in times))
    try:
        count = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - pathlib is slow to load
        most = float(_field("/proc/self/limits", r"Max open files +(\d+)"))
    except (OSError, ValueError):  # without a limit
        return
    yield Sample(_OPEN, (), count)
    yield Sample(_MOST_OPEN, (), most)


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - as above
        return file.read()


def _field(path: str, pattern: str) -> str:
    """What the group of ``pattern`` matches at the start of a line.

    Raises:
        OSError: the file cannot be read.
        ValueError: there is no such line.
    """
    found = re.search(f"^{pattern}", _read(path), re.MULTILINE)
    if found is None:
        raise ValueError(f"{path} has no {pattern}")
    return found[1]
