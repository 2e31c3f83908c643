"""The names that people and files use, each with its grammar and parser.

FQN      `github://owner/repo[/sub/path]`: where a connector or action comes from. Schemes are a closed list in code.
SemVer   strict SemVer 2.0.0, no leading `v`, no ranges.
HostPort `host:port`, port mandatory, no wildcards, lower case, one spelling.
Pin      `sha256:` and 64 hex digits over connector bytes ‖ manifest bytes.

Everything here is pure; ValueError says what was found and what was expected, and the caller adds file and line.
Source: docs/reference/names.md; https://semver.org; RFC 1123 section 2.1.

>>> str(HostPort.parse("api.example.com:443"))
'api.example.com:443'
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal, Self

import msgspec

__all__ = [
    "ACTION_NAME",
    "BINDING_PART",
    "FQN",
    "INPUT_NAME",
    "MAX_VERSION",
    "OP_NAME",
    "PIN",
    "RESERVED_TOOLS",
    "SCHEMES",
    "SEMVER",
    "TAG",
    "UNBOUND_HASH",
    "BindingName",
    "Fqn",
    "HostPort",
    "OnConflict",
    "check_host",
    "check_pin",
    "check_semver",
    "precedence",
    "tool_name",
]

OnConflict = Literal["refuse", "replace", "keep_both"]
"""Reaction of an install if the version is already installed with other bytes."""

SCHEMES: Final = ("github", "gitlab", "hub")
UNBOUND_HASH: Final = "sha256:bound-at-release"
"""Placeholder for a connector's hash in sources, until the connector is released or installed."""
ACTION_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
INPUT_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
OP_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
TAG: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
RESERVED_TOOLS: Final = frozenset(
    {"cancel_action", "check_action_status", "find_action", "list_pending", "run_action", "wait_for_action"}
)
"""Tool names that Aileron uses itself (docs/reference/mcp.md), so that an action cannot have them."""

SEMVER: Final = (
    r"(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)"
    r"(?:-(?:0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*))*)?"
    r"(?:\+[0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*)?"
)
"""Grammar of versions. It is compiled when the first version is checked, because compiling takes 1 ms and few
commands need it.
"""
MAX_VERSION: Final = 128
"""Maximum number of characters of a version. SemVer has no limit, and published versions have under 40.

A number with thousands of digits cannot be compared.
"""
_MAX_QUOTED: Final = 300
"""Maximum number of characters of a name in a message. A host name has 253, and a port with its colon six."""
_SEGMENT: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,99})")
FQN: Final = rf"(?!.*\.\.)(?:{'|'.join(SCHEMES)})://{_SEGMENT.pattern}(?:/{_SEGMENT.pattern})+"
"""Grammar of fully qualified names as a single expression, for editors; `Fqn.parse` gives better errors."""
_PORT: Final = re.compile(r"[1-9][0-9]{0,4}")
_LABEL: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
PIN: Final = re.compile(r"sha256:[0-9a-f]{64}")
BINDING_PART: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


class Fqn(msgspec.Struct, frozen=True, order=True):
    """A fully qualified name: scheme, and at least owner and repository."""

    scheme: str
    path: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `scheme://owner/repo[/sub…]`. Raises ValueError naming the wrong part."""
        scheme, separator, rest = text.partition("://")
        if not separator or scheme not in SCHEMES:
            known = ", ".join(f"{name}://" for name in SCHEMES)
            raise ValueError(f"{_quoted(text)} has no known scheme; expected one of {known}")
        segments = tuple(rest.split("/"))
        if len(segments) < 2:
            raise ValueError(f"{_quoted(text)} names no repository; expected {scheme}://OWNER/REPOSITORY")
        for segment in segments:
            if not _SEGMENT.fullmatch(segment) or ".." in segment:
                raise ValueError(
                    f"{_quoted(text)}: path segment {_quoted(segment)} is not letters, digits, '.', '_' or '-'"
                )
        return cls(scheme, segments)

    def __str__(self) -> str:
        return f"{self.scheme}://{'/'.join(self.path)}"


class HostPort(msgspec.Struct, frozen=True, order=True):
    """A destination: an exact host and an exact port."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `host:port`.

        Raises ValueError for wildcards, a missing port, upper case, and IP spellings that are not canonical.
        """
        host, separator, port = text.rpartition(":")
        if not separator or not host:
            raise ValueError(f"{_quoted(text)} has no port; expected HOST:PORT")
        if not _PORT.fullmatch(port) or int(port) > 65535:
            raise ValueError(f"{_quoted(text)}: port {_quoted(port)} is not a number from 1 to 65535")
        if "*" in host:
            raise ValueError(f"{_quoted(text)}: wildcards are not allowed; name each host")
        return cls(check_host(host), int(port))

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def _quoted(text: str) -> str:
    """Return a name as a message shows it. The name may be untrusted and of any length."""
    return repr(text if len(text) <= _MAX_QUOTED else f"{text[:_MAX_QUOTED]}…")


def check_host(host: str) -> str:
    """Return `host` unchanged if it is a canonical host name or dotted IPv4 address. Raises ValueError otherwise.

    A name is lower-case RFC 1123 labels, at most 253 characters, no trailing dot; international names are in their
    `xn--` form. A name whose last label is a number could be read as an IPv4 address by some resolvers (WHATWG URL,
    "ends in a number"), so only the canonical dotted quad of four decimal octets passes. IPv6 literals are not hosts here.
    """
    labels = host.split(".")
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError(f"{_quoted(host)} is not a lower-case host name")
    last = labels[-1]
    if last.isdigit() or re.fullmatch(r"0x[0-9a-f]*", last):
        octets_are_canonical = all(
            label.isdigit() and label == str(int(label)) and int(label) <= 255 for label in labels
        )
        if len(labels) != 4 or not octets_are_canonical:
            raise ValueError(f"{_quoted(host)} looks like an IP address but is not four decimal octets")
    return host


class BindingName(msgspec.Struct, frozen=True, order=True):
    """The name of a credential for one service and one identity: `kind/service/identity`."""

    kind: str
    service: str
    identity: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `KIND/SERVICE/IDENTITY`. Raises ValueError for any other text."""
        parts = text.split("/")
        if len(parts) != 3 or not all(BINDING_PART.fullmatch(part) for part in parts):
            raise ValueError(f"{_quoted(text)} is not KIND/SERVICE/IDENTITY in lower case, such as basic/caldav/home")
        return cls(*parts)

    def __str__(self) -> str:
        return f"{self.kind}/{self.service}/{self.identity}"


def check_semver(text: str) -> str:
    """Return `text` unchanged if it is a strict SemVer 2.0.0 version. Raises ValueError otherwise."""
    if len(text) > MAX_VERSION:
        raise ValueError(
            f"{text[:MAX_VERSION]!r}… is not a version: it has {len(text)} characters; at most {MAX_VERSION}"
        )
    if not re.fullmatch(SEMVER, text):
        raise ValueError(f"{_quoted(text)} is not a SemVer version (MAJOR.MINOR.PATCH, no leading v, no range)")
    return text


def precedence(version: str) -> tuple[Any, ...]:
    """Return a key that sorts versions as SemVer 2.0.0 section 11 does; equal versions sort by their build metadata.

    >>> sorted(["1.0.0", "1.0.0-rc.11", "1.0.0-rc.2", "0.9.10"], key=precedence)
    ['0.9.10', '1.0.0-rc.2', '1.0.0-rc.11', '1.0.0']
    """
    released, _, build = version.partition("+")
    core, is_pre, pre = released.partition("-")
    numbers = tuple(int(part) for part in core.split("."))
    parts = tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in pre.split("."))
    return numbers, not is_pre, parts if is_pre else (), build


def check_pin(text: str) -> str:
    """Return `text` unchanged if it is `sha256:` and 64 lower-case hex digits. Raises ValueError otherwise."""
    if not PIN.fullmatch(text):
        raise ValueError(f"{_quoted(text)} is not sha256: and 64 lower-case hex digits")
    return text


def tool_name(action: str) -> str:
    """Return the snake_case tool name of an action. An action is refused when it is added if another has the same tool name."""
    return action.replace(".", "_").replace("-", "_")
