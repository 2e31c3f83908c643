"""The provider's own endpoints: URLs that only the supervisor requests, whatever hosts a connector was granted.

A connector whose provider serves tokens and its API from one host could otherwise sign in by itself (the publisher's
client is in the manifest for all to read), or use a refresh token from elsewhere. Pure; runs in the daemon on a URL
that url.py has parsed. The URL is read as the most tolerant server would read it, and refused if *some* server could
take it for the endpoint.

Rules
- Host and port must be the endpoint's; scheme, query and method do not matter.
- A path is read with the functions in `_READERS`, in every combination and order: percent-encoding undone (up to
  `_DECODINGS` times; what is still encoded after that is refused), full-width characters replaced by ASCII, a backslash
  by a slash; the path cut at `?`, `#` or NUL; `;parameters`, or everything after the first one, removed; dot segments
  resolved. Each reading is compared with the endpoint's path, ignoring case, doubled and trailing slashes, blanks and
  dots at a segment's end, and a suffix that specifies a format (`.json`).
- At the endpoint's host and port, a field with which frameworks let a request specify another path than its own
  (`X-Original-URL`) is refused.
- If a reserved URL cannot be parsed, every request is refused. Such a URL comes from a manifest whose parser accepted
  it.

Not detected: another name or port under which the provider serves the same endpoint. A manifest's author grants those hosts.

>>> is_reserved(parse_url("https://a.example/oauth//TOKEN/?x=1"), ("https://a.example/oauth/token",))
True
>>> is_reserved(parse_url("https://a.example/oauth/tokens"), ("https://a.example/oauth/token",))
False

Source: docs/reference/egress.md. Not here: which URLs are reserved (the resolver lists them in the grant).
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import unquote_to_bytes

from aileron.egress.headers import Field, field_key
from aileron.egress.refusal import Reason, RefusedError
from aileron.egress.url import Url, parse_url
from aileron.model.names import HostPort

__all__ = ["check_reserved", "is_reserved", "is_reserved_host"]

_DECODINGS: Final = 3  # a server decodes once, a careless one twice, a proxy before it once more
_ENCODED: Final = re.compile(r"%(?:[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4})")
_UNICODE: Final = re.compile(r"%u([0-9A-Fa-f]{4})")  # IIS
_OVERLONG: Final = re.compile(rb"(?:[\xc0\xc1]|\xe0[\x80\x81]|\xf0\x80[\x80\x81])[\x80-\xbf]")
"""Overlong encodings of ASCII characters, in two or more bytes. RFC 3629 forbids decoding them; Tomcat and IIS did
decode them.
"""
_DOUBTFUL: Final = re.compile(r"[%;]")  # without these, all servers read a parsed path (url.py) alike
_MAX_DOUBTFUL: Final = (
    2 << 10
)  # characters; keeps the reading of one under some milliseconds, and no API has such paths
_TRIMMED: Final = " \t\r\n."
_FORMATS: Final = (".json", ".xml", ".html")  # Rails and Spring serve `/token.json` where `/token` is routed
_NAMES_A_PATH: Final = frozenset({"x-original-url", "x-original-uri", "x-rewrite-url", "x-override-url"})
"""Fields (as `field_key`) with which IIS, Symfony and others let a request specify another path than its own."""


def check_reserved(url: Url, fields: Sequence[Field], reserved: tuple[str, ...]) -> None:
    """Raise RefusedError(provider_endpoint) if a request asks for one of the provider's endpoints, whose URLs are
    `reserved`.
    """
    if not is_reserved_host(url.destination, reserved):
        return
    if is_reserved(url, reserved):
        raise RefusedError(
            Reason.PROVIDER_ENDPOINT,
            "this is the provider's token endpoint, which only the supervisor may use; leave sign-in and renewal to it",
        )
    for name, _value in fields:
        key = field_key(name.strip())
        if key in _NAMES_A_PATH:
            raise RefusedError(
                Reason.PROVIDER_ENDPOINT,
                f"header field {key} names another path, at a host that has the provider's token endpoints",
            )


def is_reserved_host(destination: HostPort, reserved: tuple[str, ...]) -> bool:
    """Return whether one of the `reserved` URLs is at this host and port."""
    return any(host in (destination, None) for host, _paths in map(_endpoint, reserved))


def is_reserved(url: Url, reserved: tuple[str, ...]) -> bool:
    """Return whether some server could take a URL for one of the `reserved` URLs."""
    if not is_reserved_host(url.destination, reserved):
        return False
    endpoints = [_endpoint(text) for text in reserved]
    if any(host is None for host, _paths in endpoints):
        return True
    paths = frozenset[str]().union(*(paths for host, paths in endpoints if host == url.destination))
    if not _DOUBTFUL.search(url.path):
        return _key(url.path) in paths
    if len(url.path) > _MAX_DOUBTFUL:
        return True
    readings = _readings(url.path)
    return any(_key(reading) in paths for reading in readings) or any(map(_is_encoded_further, readings.items()))


@functools.lru_cache(maxsize=64)  # an installed connector has three; parsed once, not on each request
def _endpoint(text: str) -> tuple[HostPort | None, frozenset[str]]:
    """Return the destination of a reserved URL, and the keys (`_key`) of all readings of its path. The destination is None
    if the text is not a valid URL.
    """
    try:
        url = parse_url(text)
    except RefusedError:
        return None, frozenset()
    return url.destination, frozenset(map(_key, _readings(url.path)))


def _readings(path: str) -> dict[str, int]:
    """Return each path that some server could read `path` as, with the smallest number of decodings that leads to it."""
    found = {path: 0}
    new = [path]
    while new:
        text = new.pop()
        depth = found[text]
        for read, costs in _READERS:
            if depth + costs > _DECODINGS:
                continue
            reading = read(text)
            if found.get(reading, _DECODINGS + 1) > depth + costs:
                found[reading] = depth + costs
                new.append(reading)
    return found


def _is_encoded_further(reading: tuple[str, int]) -> bool:
    text, depth = reading
    return depth == _DECODINGS and _ENCODED.search(text) is not None


def _decoded(text: str) -> str:
    once = _OVERLONG.sub(_overlong, unquote_to_bytes(_UNICODE.sub(_unicode, text)))
    return once.decode("utf-8", "replace")


def _overlong(match: re.Match[bytes]) -> bytes:
    *_, high, low = match[0]
    return bytes([(high & 1) << 6 | low & 0x3F])


def _unicode(match: re.Match[str]) -> str:
    unit = int(match[1], 16)
    return "\ufffd" if 0xD800 <= unit <= 0xDFFF else chr(unit)


def _with_slashes(text: str) -> str:
    return text.replace("\\", "/")


def _at_usual_width(text: str) -> str:
    return unicodedata.normalize("NFKC", text)


def _cut(text: str) -> str:
    return re.split("[?#\0]", text, maxsplit=1)[0]


def _cut_early(text: str) -> str:
    return text.partition(";")[0]


def _without_parameters(text: str) -> str:
    return "/".join(segment.partition(";")[0] for segment in text.split("/"))


def _resolved(text: str) -> str:
    kept: list[str] = []
    for segment in text.split("/"):
        if segment == "..":
            if kept:
                kept.pop()
        elif segment not in {"", "."}:
            kept.append(segment)
    return "/" + "/".join(kept)


_READERS: Final[tuple[tuple[Callable[[str], str], int], ...]] = (
    (_decoded, 1),
    (_at_usual_width, 0),
    (_with_slashes, 0),
    (_cut, 0),
    (_cut_early, 0),
    (_without_parameters, 0),
    (_resolved, 0),
)
"""Functions that transform a path as some server does, each with the number of decodings that it counts as."""


def _key(path: str) -> str:
    """Return a key that two paths share if a server could take them for the same path. Nothing in the path is decoded."""
    segments = [trimmed for segment in path.casefold().split("/") if (trimmed := segment.rstrip(_TRIMMED))]
    if segments:
        for suffix in _FORMATS:
            segments[-1] = segments[-1].removesuffix(suffix) or segments[-1]
    return "/".join(segments)
