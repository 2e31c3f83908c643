"""Naming the credential in requests of libraries, which expect to have a key, although the jail has none.

    client = WebClient(token=placeholder("api_key"))      # for a library that takes a key and decides when to send it
    use("api_key")                                        # for a library without keys: every request to the first granted host

A placeholder is recognised wherever libraries put keys: in a header field (also inside the base64 of `Authorization:
Basic`) or as a query parameter. There the whole field or parameter is removed, and the request names the credential
instead; the host adds the key in the place that the manifest declares. In a path, the placeholder becomes `%7Bkey%7D`,
as in the manifest's `path`. So if a library leaves its key out of a redirect to another host, the request names no
credential. In any other place the host could not insert a key, so ConnectorError is raised.

A library for AWS signs with the placeholder as its key, and the request states that key. The field or parameter that states
the key is removed in the same way; the host strips the rest of the signature (`X-Amz-Date` and others), and makes its own.

Runs inside the jail. Not here: deciding whether the request may use the credential (the host).
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable
from typing import Final

from aileron_connector import loop
from aileron_connector.failures import ConnectorError

__all__ = ["check_no_placeholder", "name_credential", "placeholder", "use"]

_BEFORE: Final = "aileron-credential-"
_AFTER: Final = "-goes-here"
_IN_A_PATH: Final = "%7Bkey%7D"
_KIND_IN_A_PATH: Final = "api_key"
_PLACEHOLDER: Final = re.compile(_BEFORE + r"([a-z0-9_]{1,32})" + _AFTER)
_KIND: Final = re.compile(r"[a-z0-9_]{1,32}")

_IN_NO_FIELD: Final = "mtls"
_AWS: Final = "aws_sigv4"
_FIRST_HOST: Final = ""
_used: Final[dict[str, str]] = {}
"""Kind of credential by host, as declared by `use`. The key _FIRST_HOST stands for the first granted host."""


def placeholder(kind: str) -> str:
    """Return a placeholder for a library that takes a key. `kind` is the kind that the manifest declares, such as `api_key`."""
    if not _KIND.fullmatch(kind):
        raise ValueError(f"{kind!r} is not a kind of credential; use the one in the manifest, e.g. api_key")
    return f"{_BEFORE}{kind}{_AFTER}"


def use(credential: str | None, *, hosts: Iterable[str] | None = None) -> None:
    """Use this credential for later requests of libraries to `hosts`. `hosts` are names; the default is the first granted
    host.

    With None, no credential is used any longer. A request with a placeholder for another kind gets that other kind.

    A request that already has an `Authorization` header without a placeholder fails, because it is unclear which
    credential is meant. (Except for `mtls`, since a certificate is in no header.)
    """
    for host in (_FIRST_HOST,) if hosts is None else hosts:
        if credential is None:
            _used.pop(host, None)
        else:
            _used[host] = credential


def name_credential(
    url: str, headers: list[tuple[str, str]], host: str
) -> tuple[str, list[tuple[str, str]], str | None]:
    """Return URL and headers without placeholders, and the kind of credential: the placeholder's, or else the one
    declared for `host` with `use`; None for no credential.

    Raises ConnectorError if a placeholder is in a place that cannot carry a credential, or two kinds are named.
    """
    kinds: set[str] = set()
    kept = []
    for name, value in headers:
        kind = _kind_in(value) or _kind_in_basic(value)
        if kind is None:
            kept.append((name, value))
        else:
            kinds.add(kind)
    url = _without_placeholders(url, kinds)
    if len(kinds) > 1:
        raise _unusable(f"one request has placeholders of {' and '.join(sorted(kinds))}: it can carry one credential")
    if _AWS in kinds:
        _check_asks_for_all(kept)
    if kinds:
        return url, kept, kinds.pop()
    return url, kept, _declared(host, kept)


def _check_asks_for_all(headers: list[tuple[str, str]]) -> None:
    """Raise ConnectorError for a `Range` header, because the host does not send one with a credential, and AWS's
    libraries would take the complete object for the requested part.
    """
    if any(name.lower() == "range" for name, _ in headers):
        raise _unusable(
            "a library asked for a part of an object, and the host gives it whole: read it by get_object without a Range "
            "(boto3 divides downloads; TransferConfig(multipart_threshold=…) says from how many bytes on)"
        )


def check_no_placeholder(body: bytes | memoryview) -> None:
    """Raise ConnectorError if a piece of a body has a placeholder. The host cannot replace it, because the length is
    already set.
    """
    if _BEFORE.encode() in bytes(body):
        fix = "leave its field out and name the credential by transports.use, with `body` in the manifest for where it goes"
        raise _unusable(
            f"a library put its key into a request body, where the host finds no place for the credential: {fix}"
        )


def _without_placeholders(url: str, kinds: set[str]) -> str:
    if _BEFORE not in url:
        return url
    path, _, query = url.partition("?")
    if found := set(_PLACEHOLDER.findall(path)):
        if others := sorted(found - {_KIND_IN_A_PATH}):
            raise _unusable(f"a library put its key into a URL path, where a credential of kind {others[0]} cannot be")
        kinds.update(found)
        path = _PLACEHOLDER.sub(_IN_A_PATH, path)
    kept = []
    for parameter in query.split("&") if query else ():
        kind = _kind_in(parameter)
        if kind is None:
            kept.append(parameter)
        else:
            kinds.add(kind)
            _check_signature_version(parameter)
    if _BEFORE in path:
        raise _unusable("a library put a part of its key into a URL path, where the host cannot insert the credential")
    return f"{path}?{'&'.join(kept)}" if kept else path


def _check_signature_version(parameter: str) -> None:
    """Raise ConnectorError for a signature of AWS before version 4. It has parameters of its own, which would remain in the
    request.
    """
    if parameter.partition("=")[0] == "AWSAccessKeyId":
        raise _unusable(
            "a library signed a URL with version 2 of AWS's signatures; have it use version 4 "
            "(boto3: config=Config(signature_version='s3v4'))"
        )


def _declared(host: str, headers: list[tuple[str, str]]) -> str | None:
    kind = _used.get(host)
    if kind is None and _FIRST_HOST in _used:
        granted = loop.current().hosts
        kind = _used[_FIRST_HOST] if granted and granted[0].host == host else None
    if kind not in (None, _IN_NO_FIELD) and any(name.lower() == "authorization" for name, _ in headers):
        raise _unusable(
            f"the request has its own Authorization in addition to the credential {kind!r}: "
            f"give the library transports.placeholder({kind!r}) for its key"
        )
    return kind


def _kind_in(text: str) -> str | None:
    found = _PLACEHOLDER.search(text)
    return found[1] if found else None


def _kind_in_basic(value: str) -> str | None:
    scheme, _, encoded = value.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        return _kind_in(base64.b64decode(encoded.strip(), validate=True).decode("utf-8", "replace"))
    except (binascii.Error, ValueError):
        return None


def _unusable(words: str) -> ConnectorError:
    return ConnectorError("connector_runtime_error", words)
