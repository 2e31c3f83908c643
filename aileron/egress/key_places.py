r"""A key in the path or the body of a request: check the place that the connector left for it, and put the key there.

Some services want their key in odd places: Telegram in the path, others in a member of a JSON object or a field of a
form. The connector sends the request without the key. Pure; runs in the daemon. A request with the key goes to the wire
and nowhere else: never into a log, an exception or a repr.

Rules
- A path begins with the manifest's text, with `%7Bkey%7D` in the key's place, and then ends or continues with a slash.
  The placeholder is nowhere else in path or query; otherwise the recorded path would read as if the key were there.
- In a path, the characters of a key that RFC 3986 allows in a segment (such as the `:` in Telegram's keys) and its
  slashes (`T000/B000/xxx` of a webhook) are kept; the rest is percent-encoded. The key cannot lead to another path: it
  has no empty segment and no dot segment, even together with the adjacent text.
- A body is complete (held.py), and has one `Content-Type`. It cannot be interpreted in two ways: it has no duplicate
  member, and no name that some parser takes for the key's member or field (letter case, `_`, `key[]`, encoded twice).
- The rest of a body stays as it was: numbers keep all their digits, and members their order.

Source: RFC 3986 section 3.3, RFC 6901, RFC 8259; docs/reference/connector-manifest.md. Not here: keys in a header field or the
query, and which secrets can be sent at all (credentials/).

>>> with_key_in_path("/bot{key}", "/bot%7Bkey%7D/getMe", b"1234:x/y")
'/bot1234:x/y/getMe'
>>> with_key_in_body("json:/auth/token", b'{"auth": {"n": 1.10}}', b"sesame-1")
b'{"auth":{"n":1.10,"token":"sesame-1"}}'
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Sequence
from typing import Final, TypeAlias
from urllib.parse import quote, quote_plus, unquote_plus

import msgspec
from msgspec import UNSET

from aileron.egress.headers import Field, field_key
from aileron.egress.held import KEYED_BYTES, too_long
from aileron.egress.refusal import Reason, RefusedError
from aileron.egress.url import Url, has_dot_segment
from aileron.model.manifest import CredentialNeed

__all__ = [
    "check_body",
    "check_path",
    "key_roots",
    "own_parameters",
    "parameter_key",
    "recorded_path",
    "with_key_in_body",
    "with_key_in_path",
]

_MIN_PART_BYTES: Final = 16
"""Minimum size in bytes of a part of a key between slashes that is searched for by itself. Shorter parts are names,
such as that of a workspace.
"""
_PLACEHOLDER: Final = "%7Bkey%7D"
_KEPT_IN_A_PATH: Final = "!$&'()*+,;=:@/"  # beside the unreserved characters: RFC 3986 section 3.3, and the slash
_IS_SENT_AS_IT_IS: Final = re.compile(rb"[A-Za-z0-9._~-]+")
"""Pattern of a key that has only unreserved characters of RFC 3986, which JSON does not escape either."""
_INDEX: Final = re.compile(r"[\[\0]")
_PHP: Final = str.maketrans({" ": "_", ".": "_"})
_JSON_TYPE: Final = re.compile(r"application/(?:[a-z0-9.-]+\+)?json")
_FORM_TYPE: Final = re.compile(r"application/x-www-form-urlencoded")
_UTF_8: Final = re.compile(r'charset="?utf-?8"?')
_FORM: Final = re.compile(rb"[\x21-\x7e]*")

_Value: TypeAlias = "str | bool | list[_Value] | dict[str, _Value] | None"
"""Type of a parsed JSON value, in which numbers are kept as text."""


def check_path(need: CredentialNeed, url: Url) -> None:
    """Raise RefusedError if the manifest puts an API key into the path and the path has no place for it, or if the path has
    such a place although the manifest puts the key elsewhere.
    """
    if need.path is UNSET:
        if _PLACEHOLDER in url.path:
            problem = (
                "has a place for the key, but the manifest does not put it there: set path in [capabilities.credential]"
            )
            raise RefusedError(Reason.PATH_CREDENTIAL, f"the path of the request {problem}")
        return
    begin = need.path.replace("{key}", _PLACEHOLDER)
    rest = url.path.removeprefix(begin)
    if not url.path.startswith(begin) or (rest and not rest.startswith("/")):
        problem = f"does not begin with {begin}, followed by a slash or by nothing; Aileron puts the key in the place of {{key}}"
        raise RefusedError(Reason.PATH_CREDENTIAL, f"the path of a request with this credential {problem}")
    if url.target.lower().count(_PLACEHOLDER.lower()) != 1:
        problem = f"{_PLACEHOLDER} in a second place; the key is sent once, at the beginning of the path"
        raise RefusedError(Reason.PATH_CREDENTIAL, f"the request has {problem}")


def recorded_path(need: CredentialNeed | None, path: str) -> str:
    """Return a checked path as the ledger records it: with `{key}` in place of the key."""
    if need is None or need.path is UNSET:
        return path
    return need.path + path.removeprefix(need.path.replace("{key}", _PLACEHOLDER))


def with_key_in_path(template: str, path: str, key: bytes) -> str:
    """Return a checked path with the key in its place. Raises ValueError, which says what is wrong with the key without
    quoting it.
    """
    segments, sent = key.split(b"/"), quote(key, safe=_KEPT_IN_A_PATH)
    if not segments[0] or not segments[-1]:
        raise ValueError("begins or ends with a slash, which a key in a path cannot")
    if not all(segments):
        raise ValueError("has an empty part between two slashes, which a key in a path cannot")
    placed = template.replace("{key}", sent)
    whole = placed + path.removeprefix(template.replace("{key}", _PLACEHOLDER))
    if has_dot_segment(sent) or has_dot_segment(whole):
        raise ValueError("has a part that is a dot segment (. or ..), which would lead to another path")
    return whole


def check_body(need: CredentialNeed, fields: Sequence[Field], body: bytes | None) -> None:
    """Raise RefusedError if the manifest puts the key into the body, and the body is longer than KEYED_BYTES, has no
    place for the key, or already has a member or field of the key's name.

    `fields` are the request's outgoing fields; `body` is complete.
    """
    if need.body is UNSET:
        return
    if len(body or b"") > KEYED_BYTES:
        raise too_long(KEYED_BYTES)
    form, _, place = need.body.partition(":")
    _check_type(fields, _JSON_TYPE if form == "json" else _FORM_TYPE, form)
    if form == "json":
        _check_json(body or b"", _tokens(place), place)
    else:
        _check_form(body or b"", place)


def with_key_in_body(place: str, body: bytes, key: bytes) -> bytes:
    """Return a checked body with the key in it. Raises ValueError, which says what is wrong with the key without
    quoting it.
    """
    form, _, name = place.partition(":")
    if form == "form":
        field = f"{quote_plus(name)}={quote_plus(key)}".encode()
        return b"&".join((body, field)) if body else field
    return _with_member(body, _tokens(name), _json_string(key))


def key_roots(key: bytes) -> frozenset[bytes]:
    """Return the byte strings to search responses for if this key was, or can be, sent in a header field, the query,
    the path or a body.

    These are the key, the key as it is encoded in a path, a form or JSON, and the long parts of all of these between slashes.
    The encoded forms are included because a service may encode them once more before showing them; the parts, because a service
    may split a path and show the segment that is wrong.
    """
    if _IS_SENT_AS_IT_IS.fullmatch(key):
        return frozenset({key})
    sent = {key, quote(key, safe=_KEPT_IN_A_PATH).encode(), quote_plus(key).encode()}
    with contextlib.suppress(ValueError):
        sent.add(_json_string(key)[1:-1])
    return frozenset(sent).union(part for form in sent for part in form.split(b"/") if len(part) >= _MIN_PART_BYTES)


def own_parameters(need: CredentialNeed) -> frozenset[str]:
    """Return the query parameters that a server could take for the key, if the key is in the query or in a body. Many
    frameworks merge the two. For a member of JSON these are the names of the outermost object and of the member, and
    all names joined by dots.
    """
    if need.body is UNSET:
        return frozenset() if need.query is None else frozenset({need.query})
    form, _, place = need.body.partition(":")
    if form == "form":
        return frozenset({place})
    tokens = _tokens(place)
    return frozenset({tokens[0], tokens[-1], ".".join(tokens)})


def parameter_key(name: str) -> str:
    """Return a key that two names share if a server could take them for the same parameter of a query or field of a form.

    ASP.NET ignores case; PHP drops leading blanks, reads a dot or a blank as `_`, and ignores a NUL and everything
    after it; Rails, Express and PHP read `key[]` as a further value of `key`; some servers decode twice, so names are
    decoded twice here.
    """
    plain = _INDEX.split(unquote_plus(unquote_plus(name)), maxsplit=1)[0]
    return plain.strip().casefold().translate(_PHP)


def _no_place(problem: str) -> RefusedError:
    return RefusedError(Reason.BODY_CREDENTIAL, f"a request whose credential goes into its body has {problem}")


def _check_type(fields: Sequence[Field], expected: re.Pattern[str], form: str) -> None:
    said = [value.lower() for name, value in fields if field_key(name) == "content-type"]
    fix = f"send Content-Type: application/{'json' if form == 'json' else 'x-www-form-urlencoded'}"
    if len(said) != 1:
        raise _no_place(f"{len(said) or 'no'} Content-Type fields; {fix}" if said else f"no Content-Type; {fix}")
    kind, *parameters = (part.strip(" \t") for part in said[0].split(";"))
    if not expected.fullmatch(kind) or not all(_UTF_8.fullmatch(parameter) for parameter in parameters):
        raise _no_place(f"another Content-Type, or one with another charset than UTF-8; {fix}")
    if any(field_key(name) == "content-encoding" for name, _value in fields):
        raise _no_place("a Content-Encoding, inside which Aileron cannot put the key; send it as it is")


# JSON


def _tokens(pointer: str) -> list[str]:
    return [token.replace("~1", "/").replace("~0", "~") for token in pointer.removeprefix("/").split("/")]


def _check_json(body: bytes, tokens: Sequence[str], pointer: str) -> None:
    *parents, member = tokens
    at = _parsed(body)
    for token in parents:
        at = _child(at, token, pointer)
    if not isinstance(at, dict):
        raise _no_place(f"no object for the member at {pointer}; send one, {{}} at least")
    if any(_member_key(name) == _member_key(member) for name in at):
        raise _no_place(f"a member at {pointer} already, or one that some readers take for it; leave it out")
    try:
        _with_member(body, tokens, b'""')
    except (ValueError, RecursionError):  # the other parser: for example, it refuses half of a surrogate pair in a name
        raise _no_place("JSON that not every parser can read") from None


def _child(at: _Value, token: str, pointer: str) -> _Value:
    alike = [name for name in at if _member_key(name) == _member_key(token)] if isinstance(at, dict) else []
    if not isinstance(at, dict) or token not in at:
        raise _no_place(f"no object for the member at {pointer}; send its parents, {{}} at least")
    if len(alike) > 1:
        raise _no_place(f"two members on the way to {pointer} that some readers take for the same; leave one out")
    return at[token]


def _parsed(body: bytes) -> _Value:
    """Parse a JSON body strictly. Raises RefusedError for invalid JSON, duplicate names, or too deep nesting."""
    try:
        value: _Value = json.loads(
            body.decode(), object_pairs_hook=_unique, parse_int=str, parse_float=str, parse_constant=_no_number
        )
    except _DuplicateError:
        raise _no_place("an object with two members of one name; leave one out") from None
    except RecursionError:
        raise _no_place("JSON that is nested too deeply to be read") from None
    except ValueError:
        raise _no_place("a body that is not JSON (RFC 8259, in UTF-8); send a JSON object, {} at least") from None
    return value


class _DuplicateError(ValueError):
    """Error: two members of a JSON object have the same name."""


def _unique(pairs: list[tuple[str, _Value]]) -> dict[str, _Value]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _DuplicateError
    return members


def _no_number(word: str) -> str:
    raise ValueError(f"{word} is not JSON")


def _member_key(name: str) -> str:
    """Return a key that two names share if some JSON reader could take them for the same member of an object.

    Go's encoding/json and .NET ignore case; protobuf reads accessToken as access_token; C ends a name at a NUL.
    """
    return name.partition("\0")[0].casefold().replace("_", "").replace("-", "")


def _json_string(key: bytes) -> bytes:
    try:
        return msgspec.json.encode(key.decode())
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8, and JSON can carry nothing else") from None


def _with_member(text: bytes, tokens: Sequence[str], value: bytes) -> bytes:
    """Return the JSON object in `text` with `value` as one more member. `tokens` are the names that lead to the member.
    All other text stays as it is written.
    """
    name, *rest = tokens
    members = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    members[name] = msgspec.Raw(_with_member(bytes(members[name]), rest, value) if rest else value)
    return msgspec.json.encode(members)


# Forms


def _check_form(body: bytes, name: str) -> None:
    if not _FORM.fullmatch(body):
        raise _no_place("a body that is not a form: visible ASCII, the rest percent-encoded")
    names = {parameter_key(pair.partition("=")[0]) for pair in re.split("[&;]", body.decode())}
    if parameter_key(name) in names:
        raise _no_place(f"a field {name} already, or one that some servers take for it; leave it out")
