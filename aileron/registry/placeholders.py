"""Placeholders in source files, which a build or a release replaces by values.

    0.0.0-dev               the version, in a manifest and in actions
    sha256:bound-at-release the pin of the connector that an action is released with
    bound-at-release        the publisher's application at a provider
    bound-at-build          the host of a self-hosted service, or with `PROTOCOL://` before it, of a login; or the region for
                            signatures

Pure, on the bytes of one file. A value replaces each `KEY = "PLACEHOLDER"`, exactly as often as the parsed file has this key
and value: nothing is replaced in prose, and no placeholder is left. Every error names file and line. No message contains a
value.

Used by `aileron connector build` and `release`, on an author's machine. Source: docs/reference/connector-manifest.md.

>>> site = PlaceholderSite("version", UNRELEASED)
>>> bind(b'version = "0.0.0-dev"', "manifest.toml", site, "1.2.0", Boundary.CONNECTOR_MANIFEST)
b'version = "1.2.0"'
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from aileron.model.document import refusal
from aileron.model.failure import Boundary

__all__ = ["UNBOUND_BUILD", "UNBOUND_CLIENT", "UNRELEASED", "PlaceholderSite", "bind", "check_none_left", "line_of"]

UNRELEASED: Final = "0.0.0-dev"
UNBOUND_CLIENT: Final = "bound-at-release"
UNBOUND_BUILD: Final = "bound-at-build"

_LEFT: Final = re.compile(
    rb"""(?<!\\)["'](?P<found>[^"'\n]{0,200}@|[a-z0-9]{1,20}://)?(?P<placeholder>0\.0\.0-dev|sha256:bound-at-release|bound-at-(?:release|build))["']"""
)


class PlaceholderSite(NamedTuple):
    """A key of a TOML file whose value ends with a placeholder: `key = "before…placeholder"`, expected `times` times.

    `fix` tells the author how to bind the placeholder.
    """

    key: str
    placeholder: str
    before: str = ""
    times: int = 1
    fix: str = ""


def bind(data: bytes, file: str, place: PlaceholderSite, value: str, boundary: Boundary) -> bytes:
    """Return `data` with the placeholder replaced by `value`, as a basic string of TOML, and otherwise unchanged.

    Raises AileronError(invalid_request) if the placeholder is missing, or, with the line, if it occurs too often.
    """
    found = list(_pattern(place).finditer(data))
    if len(found) != place.times:
        said = f'{len(found)} lines say {place.key} = "{place.before}{place.placeholder}"'
        wanted = "exactly one" if place.times == 1 else f"exactly {place.times}"
        # Report the line of the first surplus one. If there are too few, there is no line to report.
        line = line_of(data, found[place.times].start("value")) if len(found) > place.times else None
        raise refusal(file, line, f"{said}; {place.fix or 'a release'} binds {wanted}", boundary)
    # A basic string: in printable text, only these two characters have a meaning.
    text = re.sub(r'(["\\])', r"\\\1", place.before + value)
    for match in reversed(found):
        data = data[: match.start("value")] + b'"' + text.encode() + b'"' + data[match.end("value") :]
    return data


def check_none_left(data: bytes, file: str, boundary: Boundary, *, end: int | None = None) -> None:
    """Raise AileronError(invalid_request) for the first quoted placeholder before offset `end`, even in a comment."""
    if (match := _LEFT.search(data, 0, len(data) if end is None else end)) is not None:
        problem = f'"{match["placeholder"].decode()}" is left after everything was bound; take it out'
        raise refusal(file, line_of(data, match.start()), problem, boundary)


def line_of(data: bytes, at: int) -> int:
    """Return the line number, counted from 1, of the byte at offset `at`."""
    return data.count(b"\n", 0, at) + 1


def _pattern(place: PlaceholderSite) -> re.Pattern[bytes]:
    """Return a pattern that matches `key = "before…placeholder"` outside comments; the group `value` is the string."""
    inner = re.escape(place.before + place.placeholder).encode()
    key = re.escape(place.key).encode()
    # On its line before it: nothing, or the beginning of an inline table.
    return re.compile(
        rb"(?m)^(?:[ \t]*|[^#\n]*[{,][ \t]*)" + key + rb"""[ \t]*=[ \t]*(?P<value>"%s"|'%s')""" % (inner, inner)
    )
