"""The Bearer challenge of `WWW-Authenticate`, with which a server says that it needs a token, and a strict parser for it.

Pure. The header is untrusted: its size is bounded, one grammar applies, and nothing is used from a header that breaks it.

Rules
- All challenges in all lines of the header are parsed; the first Bearer challenge counts. Challenges of other schemes are
  skipped.
- A parameter that appears twice in a challenge, an unclosed quotation or any other violation of the grammar makes the whole
  header unreadable, because two parsers could interpret the rest differently.

Source: RFC 9110 sections 5.6 and 11.6.1, RFC 6750 section 3, RFC 9728 section 5.1. Not here: the requests that follow
(authorization.py).

>>> maybe_bearer(['Basic realm="x", Bearer resource_metadata="https://a.example/m", scope="a b"'])
Bearer(resource_metadata='https://a.example/m', scopes=('a', 'b'), error='')
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

__all__ = ["Bearer", "UnreadableChallengeError", "is_scope", "maybe_bearer"]

_MAX_CHARACTERS: Final = 8 << 10
"""Maximum number of characters in all WWW-Authenticate lines of a response: the limit that many servers have for a
header section.
"""
_MAX_SCOPES: Final = 64
"""Maximum number of scopes of a challenge; the same limit as in a manifest."""
_TCHAR: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_SEPARATOR: Final = re.compile(r"[ \t]*(?:,[ \t]*)*")
_SCHEME: Final = re.compile(rf"({_TCHAR})(?:(?= *$| *,)| +)")
_PARAMETER: Final = re.compile(
    rf'({_TCHAR})[ \t]*=[ \t]*(?:({_TCHAR})|"((?:[\t !#-\[\]-~\x80-\xff]|\\[\t -~\x80-\xff])*)")(?=[ \t]*(?:,|$))'
)
_TOKEN68: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*(?=[ \t]*(?:,|$))")
_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,256}")


class UnreadableChallengeError(Exception):
    """Error: a WWW-Authenticate header does not follow the grammar, or exceeds a limit."""


class Bearer(msgspec.Struct, frozen=True, kw_only=True):
    """A Bearer challenge in a WWW-Authenticate header (RFC 6750)."""

    resource_metadata: str = ""
    """URL of the resource's metadata, not validated; empty if the challenge has none."""
    scopes: tuple[str, ...] = ()
    error: str = ""


def maybe_bearer(lines: Sequence[str]) -> Bearer | None:
    """Return the first Bearer challenge in the lines of a WWW-Authenticate header; None if there is none.

    Raises UnreadableChallengeError if a line breaks the grammar.
    """
    if sum(map(len, lines)) > _MAX_CHARACTERS:
        raise UnreadableChallengeError(f"more than {_MAX_CHARACTERS} characters")
    for line in lines:
        for scheme, parameters in _challenges(line):
            if scheme == "bearer":
                return Bearer(
                    resource_metadata=parameters.get("resource_metadata", ""),
                    scopes=_scopes(parameters.get("scope", "")),
                    error=parameters.get("error", ""),
                )
    return None


def is_scope(text: str) -> bool:
    """Return whether a text is a valid scope (RFC 6749 section 3.3, scope-token)."""
    return _SCOPE.fullmatch(text) is not None


def _challenges(line: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the authentication schemes in a WWW-Authenticate line, in lower case, each with its parameters. The
    complete line is parsed before the first scheme is yielded.
    """
    found: list[tuple[str, dict[str, str]]] = []
    at = _skipped(line, 0)
    while at < len(line):
        if found and (parameter := _PARAMETER.match(line, at)):
            name, token, quoted = parameter.groups()
            if name.lower() in found[-1][1]:
                raise UnreadableChallengeError(f"the parameter {name[:40]} stands twice")
            found[-1][1][name.lower()] = token if token is not None else re.sub(r"\\(.)", r"\1", quoted)
            at = _skipped(line, parameter.end())
            continue
        scheme = _SCHEME.match(line, at)
        if scheme is None:
            raise UnreadableChallengeError(f"it cannot be read from character {at + 1} on")
        found.append((scheme[1].lower(), {}))
        at = scheme.end()
        if not _PARAMETER.match(line, at) and (token68 := _TOKEN68.match(line, at)):
            at = token68.end()
        at = _skipped(line, at)
    return iter(found)


def _skipped(line: str, at: int) -> int:
    match = _SEPARATOR.match(line, at)
    return at if match is None else match.end()


def _scopes(text: str) -> tuple[str, ...]:
    scopes = tuple(dict.fromkeys(text.split()))
    if len(scopes) > _MAX_SCOPES or not all(map(is_scope, scopes)):
        raise UnreadableChallengeError(f"its scope is not a list of at most {_MAX_SCOPES} scopes")
    return scopes
