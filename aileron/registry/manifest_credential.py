"""The table `[capabilities.credential]` of a connector's manifest: a kind of credential, and the way it is sent.

Pure. Used by manifest.py alone.

Rules
- A manifest asks for a kind of credential, never for a particular credential. The form in which it is sent cannot break a
  header, a path or a body.
- A key is sent in one place: a header field, or one of `_PLACES`.
- A login names one of the hosts and one protocol. An ssh login is the only login of its manifest, since a binding pins the host
  key of one server. An ssh login lists its commands.
- `logins = ["imap://bound-at-build"]`, `region = "bound-at-build"` and `client_id = "bound-at-release"` occur in source
  manifests; an installed manifest has real values.

Source: docs/reference/connector-manifest.md, checked against `CREDENTIAL`. Not here: the tables for signing
(manifest_signing.py) and of a provider (manifest_provider.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from msgspec import UNSET, UnsetType

from aileron.model.commands import check_command_pattern
from aileron.model.credential_kind import CREDENTIAL_KINDS, credential_facts, parse_credential_kind
from aileron.model.document import Field, Kind, Table
from aileron.model.login import MAX_COMMAND_PATTERN, MAX_COMMANDS, MAX_LOGINS, PROTOCOLS, LoginTarget, protocol_facts
from aileron.model.manifest import CredentialKind, CredentialNeed, HostFunction
from aileron.model.names import HostPort
from aileron.registry.manifest_fields import FIELD_NAME, may_be_credential
from aileron.registry.manifest_provider import OAUTH2
from aileron.registry.manifest_signing import (
    AWS,
    HMAC,
    OAUTH2_CLIENT,
    parse_aws,
    parse_hmac,
    parse_token_grant,
)
from aileron.registry.placeholders import UNBOUND_BUILD

__all__ = ["CREDENTIAL", "UNBOUND_HOSTS", "parse_credential"]

UNBOUND_HOSTS: Final = UNBOUND_BUILD
_UNBOUND_LOGIN: Final = re.compile(rf"({'|'.join(PROTOCOLS)})://{UNBOUND_HOSTS}")
"""Placeholder of a login in a source manifest: the manifest states the protocol, and the build binds the host."""
_FORMAT: Final = re.compile(r"[\x20-\x7e]*\{key\}[\x20-\x7e]*")
_QUERY: Final = re.compile(r"[A-Za-z0-9._~-]{1,64}")  # RFC 3986 section 2.3, unreserved: needs no escaping
_SEGMENTS: Final = r"(?:/|[A-Za-z0-9._~!$&'()*+,;=:@-])"
_PATH: Final = re.compile(rf"/{_SEGMENTS}{{0,255}}\{{key\}}{_SEGMENTS}{{0,64}}")
_BODY: Final = re.compile(r"json:(?:/(?:[!-.0-}]|~[01]){1,64}){1,8}|form:[A-Za-z0-9._~-]{1,64}")  # RFC 6901, in ASCII
_FIRST_MESSAGE: Final = re.compile(r"[\x20-\x7e]{0,512}\{key\}[\x20-\x7e]{0,512}")
_PLACES: Final = ("query", "path", "body", "first_message")
"""Manifest keys for the places, other than a header field, in which a key can be sent."""
_DOTS: Final = re.compile(r"/\.{1,2}(?:;|/|$)")

CREDENTIAL: Final = {
    "kind": Field(
        Kind.STRING, required=True, says="kind of credential, never a specific one", choices=CREDENTIAL_KINDS
    ),
    "scope": Field(
        Kind.STRING,
        required=True,
        says="what the credential is used for, as people read it",
        pattern=r".*\S.*",
        example="Send mail in your name",
    ),
    "header": Field(
        Kind.STRING,
        says="`api_key` only: the header that carries it",
        pattern=FIELD_NAME.pattern,
        default=CredentialNeed(kind="api_key", scope="").header,
    ),
    "format": Field(
        Kind.STRING,
        says="`api_key` only: the header's value, with `{key}` once",
        pattern=_FORMAT.pattern,
        default=CredentialNeed(kind="api_key", scope="").format,
    ),
    "query": Field(
        Kind.STRING,
        says="`api_key` only: a query parameter that carries it instead",
        pattern=_QUERY.pattern,
        example="api_key",
    ),
    "logins": Field(
        Kind.STRINGS,
        says="`login`, required, and `oauth2` only: [where Aileron logs in](#logins), as `PROTOCOL://HOST:PORT`. "
        f"`PROTOCOL://{UNBOUND_HOSTS}` in sources: `aileron connector build --login PROTOCOL://NAME:PORT` replaces it",
        bounds=range(1, MAX_LOGINS + 1),
        is_unique=True,
        pattern=rf"({'|'.join(PROTOCOLS)})(\+(tls|starttls|plain))?://([a-z0-9.-]+:[1-9][0-9]{{0,4}}|{UNBOUND_HOSTS})",
        example=["imap://imap.example.com:993"],
    ),
    "commands": Field(
        Kind.STRINGS,
        says="`ssh` logins only, required: [what may be executed](#commands), such as `git-upload-pack 'team/*.git'`",
        bounds=range(1, MAX_COMMANDS + 1),
        is_unique=True,
        pattern=rf"[!-~](?:[ -~]{{0,{MAX_COMMAND_PATTERN - 2}}}[!-~])?",
        example=["git-upload-pack 'team/*.git'"],
    ),
    "path": Field(
        Kind.STRING,
        says="`api_key` only: the beginning of a path, with `{key}` in it, [where it stands](#keys-in-a-path-or-a-body) instead",
        pattern=_PATH.pattern,
        example="/bot{key}",
    ),
    "body": Field(
        Kind.STRING,
        says="`api_key` only: the place in a body where it stands instead: `json:` and a JSON pointer, or `form:` and a name",
        pattern=_BODY.pattern,
        example="json:/auth/token",
    ),
    "first_message": Field(
        Kind.STRING,
        says="`api_key` only: the text, with `{key}` once, that Aileron sends first on each [WebSocket](egress.md#websockets)",
        pattern=_FIRST_MESSAGE.pattern,
        example='{"type": "auth", "token": "{key}"}',
    ),
    "aws": Field(Kind.TABLE, says="`aws_sigv4` only, required: what requests are signed for", fields=AWS),
    "hmac": Field(Kind.TABLE, says="`hmac` only, required: what is signed, and how", fields=HMAC),
    "oauth2_client": Field(
        Kind.TABLE,
        says="`oauth2_client` only, required: how Aileron gets tokens without a person",
        fields=OAUTH2_CLIENT,
    ),
    "oauth2": Field(Kind.TABLE, says="the publisher's own application at the provider", fields=OAUTH2),
}


def parse_credential(
    capabilities: Table, hosts: Sequence[HostPort], imports: frozenset[HostFunction], allow_unbound: bool
) -> CredentialNeed:
    """Return the credential that the table asks for.

    Raises AileronError(invalid_request) with line and fix; `allow_unbound` as in parse_connector_manifest.
    """
    table = capabilities.table("credential")
    kind = parse_credential_kind(table.string("kind"))
    if not table.string("scope").strip():
        raise table.refuse("scope", "scope is empty; describe what the credential is used for")
    wire = _wire_form(table, kind)
    if "first_message" in wire and HostFunction.WEBSOCKET not in imports:
        problem = 'first_message without "websocket" in [capabilities.runtime] imports: no WebSocket could be opened'
        raise table.refuse("first_message", problem)
    need = CredentialNeed(
        kind=kind,
        scope=table.string("scope"),
        logins=_logins(table, kind, hosts, allow_unbound),
        commands=_commands(table),
        aws=_own_table(table, kind, "aws", "aws_sigv4", partial(parse_aws, allow_unbound=allow_unbound)),
        hmac=_own_table(table, kind, "hmac", "hmac", parse_hmac),
        token=_own_table(table, kind, "oauth2_client", "oauth2_client", parse_token_grant),
        **wire,
    )
    if need.logins:
        _check_logins(table, need, imports)
    return need


def _logins(
    table: Table, kind: CredentialKind, hosts: Sequence[HostPort], allow_unbound: bool
) -> tuple[LoginTarget, ...]:
    """Return the targets at which the supervisor logs in; empty for a source manifest whose hosts are not bound yet."""
    texts = table.strings("logins")
    if "logins" in table and credential_facts(kind).logs_in_with is None:
        raise table.refuse("logins", f'logins needs kind = "login" or "oauth2", but this is {kind!r}')
    if not texts and kind == "login":
        fix = 'name where to log in, such as logins = ["imap://imap.example.com:993"]'
        raise table.refuse("logins", f"a credential of kind {kind} with no logins; {fix}")
    if unbound := [text for text in texts if _UNBOUND_LOGIN.fullmatch(text)]:
        if not allow_unbound or len(unbound) != len(texts):
            protocol = unbound[0].partition(":")[0]
            fix = f"build it with `aileron connector build DIR --login {protocol}://NAME:PORT`"
            raise table.refuse("logins", f"logins has the placeholder {unbound[0]!r}: {fix}")
        if hosts:
            fix = f'hosts = ["{UNBOUND_HOSTS}"] takes the hosts of logins too'
            raise table.refuse("logins", f"logins has the placeholder {unbound[0]!r}, and hosts has none: {fix}")
        return ()
    logins = tuple(table.attempt("logins", LoginTarget.parse, text) for text in texts)
    if len({target.destination for target in logins}) != len(logins):
        raise table.refuse("logins", "two logins at one HOST:PORT; each destination has one protocol")
    for login in logins:
        if login.destination not in hosts and not (allow_unbound and not hosts):
            fix = f'add "{login.destination}" there'
            raise table.refuse("logins", f"{login.destination} is not in [capabilities.network] hosts; {fix}")
    return logins


def _commands(table: Table) -> tuple[str, ...]:
    commands = table.strings("commands")
    for command in commands:
        table.attempt("commands", _check_command, command)
    has_ssh = any(text.startswith("ssh") for text in table.strings("logins"))
    if commands and not has_ssh:
        raise table.refuse("commands", "commands without an ssh login; leave it out: other protocols execute nothing")
    if has_ssh and not commands:
        fix = "such as commands = [\"git-upload-pack 'team/*.git'\"]"
        raise table.refuse("commands", f"an ssh login without commands could do nothing; name what it may run, {fix}")
    return commands


def _check_command(command: str) -> str:
    if (
        len(command) > MAX_COMMAND_PATTERN or not command.isascii()
    ):  # a person reads it, so no letter may look like another
        raise ValueError(f"{command[:80]!a} is not ASCII, or has more than {MAX_COMMAND_PATTERN} characters")
    check_command_pattern(command)
    return command


def _check_logins(table: Table, need: CredentialNeed, imports: frozenset[HostFunction]) -> None:
    protocols = {login.protocol for login in need.logins}
    if "ssh" in protocols and protocols != {"ssh"}:
        problem = "ssh and other protocols: an ssh login has a host key and a private key, and the others a password"
        raise table.refuse("logins", f"{problem}; make two connectors of it")
    if "ssh" in protocols and len(need.logins) > 1:
        problem = "several ssh logins: a binding pins the host key of one server"
        raise table.refuse("logins", f"{problem}; make a connector for each")
    if need.kind == "oauth2" and (
        others := sorted(name for name in protocols if not protocol_facts(name).takes_tokens)
    ):
        problem = f'{", ".join(others)} cannot log in with an access token; use kind = "login"'
        raise table.refuse("logins", problem)
    if HostFunction.TCP not in imports:
        raise table.refuse(
            "logins", 'logins without "tcp" in [capabilities.runtime] imports: no stream could be opened'
        )


_T = TypeVar("_T")


def _own_table(table: Table, kind: str, key: str, of: CredentialKind, parse: Callable[[Table], _T]) -> _T | UnsetType:
    """Parse the table `key`, which must be present for the credential kind `of` and absent for all other kinds."""
    if (kind == of) != (key in table):
        raise table.refuse("kind", f'kind = "{of}" and [capabilities.credential.{key}] must be used together')
    return parse(table.table(key)) if kind == of else UNSET


def _wire_form(table: Table, kind: str) -> dict[str, Any]:
    """Return the place and form in which an api_key is sent. Other kinds have a fixed form and must not specify one."""
    wire = {key: table.string(key) for key in ("header", "format", *_PLACES) if key in table}
    for key in wire:
        if kind != "api_key":
            raise table.refuse(key, f'{key} needs kind = "api_key", but this is {kind!r}')
    places = [key for key in wire if key in _PLACES]
    if places and len(wire) > 1:
        others = " and ".join(key for key in wire if key != places[0])
        raise table.refuse(places[0], f"{places[0]} and {others} together: a key is sent in one place only")
    if "header" in wire and not may_be_credential(wire["header"]):
        raise table.refuse("header", f"header {wire['header']!r} is not a header field name that a credential may use")
    if "format" in wire and (not _FORMAT.fullmatch(wire["format"]) or wire["format"].count("{") != 1):
        raise table.refuse("format", f"format {wire['format']!r} must be printable ASCII with {{key}} once")
    if "query" in wire and not _QUERY.fullmatch(wire["query"]):
        raise table.refuse("query", f"query {wire['query']!r} is not a parameter name of letters, digits, '._~-'")
    if "path" in wire and (not _PATH.fullmatch(wire["path"]) or _DOTS.search(wire["path"])):
        problem = "is not the beginning of a path with {key} once, without dot segments and percent signs"
        raise table.refuse("path", f"path {wire['path']!r} {problem}")
    if "body" in wire and not _BODY.fullmatch(wire["body"]):
        raise table.refuse("body", f"body {wire['body']!r} is not 'json:/POINTER' or 'form:NAME'")
    if "first_message" in wire and not _is_message(wire["first_message"]):
        raise table.refuse("first_message", "first_message is not up to 1 KiB of printable ASCII with {key} once")
    return wire


def _is_message(text: str) -> bool:
    return _FIRST_MESSAGE.fullmatch(text) is not None and text.count("{key}") == 1
