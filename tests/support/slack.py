"""A Slack workspace as the Web API reference documents it, on loopback: a real TLS server with a memory.

    with SlackServer(authority.server_context(*NAMES), listener=machine.listen()) as slack:
        slack.allow("xoxp-…")
        slack.channel("general")
        slack.message("general", "hello", user="ann")
        …                                        # something asks it
        assert slack.posts[0].text == "shipped"

It answers `conversations.list`, `conversations.info`, `search.messages`, `chat.postMessage` and `auth.test`, with their fields,
cursors, page numbers and errors: status 200 with `ok` false, but for a limit of use (429 with Retry-After). Which tokens it takes
and with which scopes, the test says; a token that begins with `xoxb-` is an app's, which cannot search. `disturb` makes it answer
something else for a while.

A text is stored as it came. `announced` are the names that it would have notified: those that Slack acts on in `<…>`, and, if the
request switches that on, names for everybody.

`asked` is every request it got, without the token: of the Authorization field only a digest is kept.

Left out: private channels of others, direct messages, threads' own listing, most search operators, membership. Source: Slack's
developer documentation, the pages of these methods, "Rate limits", "Pagination" and "Formatting message text".
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import itertools
import json
import re
import socket
import ssl
import urllib.parse
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from tests.support.serving import Service
from tests.support.upstream import Seen, answer

__all__ = ["NAMES", "SCOPES", "Asked", "Post", "SlackServer", "digest_of"]

NAMES: Final = ("slack.com",)
"""Names in the server's certificate."""
SCOPES: Final = ("channels:read", "search:read", "chat:write")
"""Scopes that the connector's page asks a person to grant."""
_EVERYBODY: Final = re.compile(r"@(?:channel|here|everyone)\b")
_TEXT_LIMIT: Final = 40_000


@dataclasses.dataclass(frozen=True)
class Asked:
    """A request. `authorization` is the digest of that field, as `digest_of` makes it; None if it had none."""

    method: str
    host: str
    path: str
    query: Mapping[str, list[str]]
    fields: Mapping[str, str]
    body: bytes
    authorization: str | None

    def json(self) -> Any:
        """Return the body as JSON."""
        return json.loads(self.body)


@dataclasses.dataclass(frozen=True)
class Post:
    """A message posted by the API: the text as it came, the names it notified, and the whole request."""

    channel: str
    ts: str
    text: str
    announced: tuple[str, ...]
    asked: Mapping[str, Any]


class _SlackError(Exception):
    """A response that is not `ok`."""

    def __init__(self, error: str, **more: Any) -> None:
        super().__init__(error)
        self.body = {"ok": False, "error": error, **more}


@dataclasses.dataclass(frozen=True)
class _Call:
    query: dict[str, str]
    body: Any
    scopes: frozenset[str]


def digest_of(token: str) -> str:
    """Return the value of `Asked.authorization` for a request with this bearer token."""
    return hashlib.sha256(f"Bearer {token}".encode()).hexdigest()


class SlackServer(Service):
    """A server with one workspace."""

    def __init__(self, tls: ssl.SSLContext | None, *, listener: socket.socket | None = None) -> None:
        super().__init__(tls, listener)
        self.asked: Final[list[Asked]] = []
        self.posts: Final[list[Post]] = []
        self.channels: Final[dict[str, dict[str, Any]]] = {}
        """Channels by id, in the order of creation."""
        self.messages: Final[list[dict[str, Any]]] = []
        self.largest_page = 1000
        """Largest page, however many entries are requested: Slack may return fewer."""
        self.user, self.team = "mira", "Acme"
        self._allowed: Final[dict[str, tuple[frozenset[str], bool]]] = {}
        self._revoked: Final[dict[str, str]] = {}
        self._numbers: Final = itertools.count(1)

    # What the test says

    def allow(self, token: str, scopes: Iterable[str] = SCOPES) -> None:
        """Accept this token from now on, for these scopes and no others."""
        with self._lock:
            self._revoked.pop(digest_of(token), None)
            self._allowed[digest_of(token)] = (frozenset(scopes), token.startswith("xoxb-"))

    def revoke(self, token: str, error: str = "token_revoked") -> None:
        """Refuse this token from now on, with this error."""
        with self._lock:
            self._allowed.pop(digest_of(token), None)
            self._revoked[digest_of(token)] = error

    def channel(self, name: str, *, topic: str = "", members: int = 3, **more: Any) -> str:
        """Create a public channel. Return its id. `more` are fields of the reference, such as `is_archived`."""
        with self._lock:
            channel_id = f"C{next(self._numbers):09d}"
            self.channels[channel_id] = {
                "id": channel_id,
                "name": name,
                "name_normalized": name,
                "is_channel": True,
                "is_group": False,
                "is_im": False,
                "is_private": False,
                "is_archived": False,
                "is_general": name == "general",
                "is_shared": False,
                "is_ext_shared": False,
                "is_org_shared": False,
                "is_pending_ext_shared": False,
                "is_member": True,
                "created": 1449252889,
                "creator": "U024BE7LH",
                "topic": {"value": topic, "creator": "U024BE7LH", "last_set": 1449252889},
                "purpose": {"value": "", "creator": "", "last_set": 0},
                "previous_names": [],
                "num_members": members,
                **more,
            }
            return channel_id

    def message(self, channel: str, text: str, *, user: str = "ann", **more: Any) -> str:
        """Write a message to a channel as a user (the text as Slack stores it). Return its ts."""
        with self._lock:
            ts = self._next_ts()
            where = self._by_name(channel)
            self.messages.append(
                {
                    "iid": f"13b9ae42-{ts}",
                    "team": "T061EG9R6",
                    "type": "message",
                    "channel": {"id": where["id"], "name": where["name"], "is_private": where["is_private"]},
                    "user": f"U-{user}",
                    "username": user,
                    "ts": ts,
                    "text": text,
                    "permalink": f"https://acme.slack.com/archives/{where['id']}/p{ts.replace('.', '')}",
                    **more,
                }
            )
            return ts

    def forget_everything(self) -> None:
        """Empty the workspace and the list of requests."""
        with self._lock:
            for kept in (self.asked, self.posts, self.messages, self.channels, self._disturbances, self._revoked):
                kept.clear()

    def called(self) -> list[str]:
        """Return verb and method of every request, in order: `GET conversations.list`."""
        with self._lock:
            return [f"{asked.method} {asked.path.removeprefix('/api/')}" for asked in self.asked]

    # Answering

    def _answer(self, seen: Seen) -> bytes:
        self._forget_requests()
        url = urllib.parse.urlsplit(seen.target)
        method = url.path.removeprefix("/api/")
        self.gate.pass_through(method)
        with self._lock:
            return self._answered(seen, url, method)

    def _answered(self, seen: Seen, url: urllib.parse.SplitResult, method: str) -> bytes:
        query = urllib.parse.parse_qs(url.query, keep_blank_values=True)
        authorization = next(iter(seen.values("authorization")), None)
        digest = authorization and hashlib.sha256(authorization.encode()).hexdigest()
        fields = {name.lower(): value for name, value in seen.fields if name.lower() != "authorization"}
        host = next(iter(seen.values("host")), "")
        self.asked.append(Asked(seen.method, host, url.path, query, fields, seen.body, digest))
        status, extra = "200 OK", ("Content-Type: application/json; charset=utf-8",)
        try:
            route = _ROUTES.get(method)
            if route is None or seen.method not in route.verbs:
                raise _SlackError("unknown_method", req_method=method)
            scopes = self._scopes_of(digest, route.scope, takes_apps=route.takes_apps)
            if (disturbance := self._disturbance(method)) is not None:
                return answer(disturbance.body, *disturbance.fields, *extra, status=disturbance.status)
            call = _Call({name: values[-1] for name, values in query.items()}, self._body(seen), scopes)
            body = {"ok": True, **route.handler(self, call)}
        except _SlackError as error:
            body = error.body
        return answer(json.dumps(body).encode(), *extra, status=status)

    def _body(self, seen: Seen) -> Any:
        if not seen.body:
            return {}
        if next(iter(seen.values("content-type")), "") != "application/json; charset=utf-8":
            raise _SlackError("invalid_form_data")  # of JSON without a charset Slack warns; this one is strict
        try:
            return json.loads(seen.body)
        except ValueError:
            raise _SlackError("invalid_json") from None

    def _scopes_of(self, digest: str | None, scope: str | None, *, takes_apps: bool) -> frozenset[str]:
        """Return the scopes of a token, if it may call a method with that scope; else raise _SlackError."""
        if digest is None:
            raise _SlackError("not_authed")
        if digest not in self._allowed:
            raise _SlackError(self._revoked.get(digest, "invalid_auth"))
        scopes, is_app = self._allowed[digest]
        if is_app and not takes_apps:
            raise _SlackError("not_allowed_token_type")
        if scope is not None:
            _check_scope(scope, scopes)
        return scopes

    def _next_ts(self) -> str:
        return f"{1_508_284_197 + next(self._numbers)}.000015"

    def _by_name(self, name: str) -> dict[str, Any]:
        return next(channel for channel in self.channels.values() if name in (channel["name"], channel["id"]))

    # Methods

    def _auth_test(self, _call: _Call) -> dict[str, Any]:
        ids = {"team_id": "T061EG9R6", "user_id": "U024BE7LH", "is_enterprise_install": False}
        return {"url": "https://acme.slack.com/", "team": self.team, "user": self.user, **ids}

    def _list(self, call: _Call) -> dict[str, Any]:
        limit = int(call.query.get("limit", "100"))
        if not 1 <= limit <= 1000:
            raise _SlackError("invalid_limit")
        shown = [
            channel
            for channel in self.channels.values()
            if not (channel["is_archived"] and call.query.get("exclude_archived") == "true")
            and not channel["is_private"]
        ]
        start = _start(call.query.get("cursor", ""))
        end = start + min(limit, self.largest_page)
        cursor = base64.b64encode(f"team:{end}".encode()).decode() if end < len(shown) else ""
        return {"channels": shown[start:end], "response_metadata": {"next_cursor": cursor}}

    def _info(self, call: _Call) -> dict[str, Any]:
        found = self.channels.get(call.query.get("channel", ""))
        if found is None:
            raise _SlackError("channel_not_found")
        if found["is_private"]:
            _check_scope("groups:read", call.scopes)
        left_out = set() if call.query.get("include_num_members") == "true" else {"num_members"}
        return {"channel": {name: value for name, value in found.items() if name not in left_out}}

    def _search(self, call: _Call) -> dict[str, Any]:
        query = call.query.get("query", "")
        if not query:
            raise _SlackError("no_query")
        count, page = int(call.query.get("count", "20")), int(call.query.get("page", "1"))
        words = query.lower().split()
        found = [message for message in self.messages if all(word in message["text"].lower() for word in words)]
        found.sort(key=lambda message: str(message["ts"]), reverse=call.query.get("sort_dir", "desc") == "desc")
        pages = -(-len(found) // count)
        matches = found[(page - 1) * count : page * count]
        paging = {"count": count, "total": len(found), "page": page, "pages": pages}
        return {"query": query, "messages": {"total": len(found), "paging": paging, "matches": matches}}

    def _post(self, call: _Call) -> dict[str, Any]:
        body = call.body
        channel = self.channels.get(str(body.get("channel")))
        if channel is None:
            raise _SlackError("channel_not_found")
        if channel["is_archived"]:
            raise _SlackError("is_archived")
        if not channel["is_member"]:
            raise _SlackError("not_in_channel")
        text = str(body.get("text", ""))
        if not text:
            raise _SlackError("no_text")
        if len(text) > _TEXT_LIMIT:
            raise _SlackError("msg_too_long")
        ts = self._next_ts()
        self.posts.append(Post(channel["id"], ts, text, _announced(text, body), body))
        message = {"type": "message", "user": "U024BE7LH", "text": text, "ts": ts, "team": "T061EG9R6"}
        return {"channel": channel["id"], "ts": ts, "message": message}


@dataclasses.dataclass(frozen=True)
class _Route:
    handler: Callable[[SlackServer, _Call], dict[str, Any]]
    scope: str | None
    verbs: tuple[str, ...] = ("GET", "POST")
    takes_apps: bool = True


_ROUTES: Final = {
    "auth.test": _Route(SlackServer._auth_test, None),
    "conversations.list": _Route(SlackServer._list, "channels:read"),
    "conversations.info": _Route(SlackServer._info, "channels:read"),
    "search.messages": _Route(SlackServer._search, "search:read", takes_apps=False),
    "chat.postMessage": _Route(SlackServer._post, "chat:write", verbs=("POST",)),
}


def _check_scope(scope: str, scopes: frozenset[str]) -> None:
    if scope not in scopes:
        raise _SlackError("missing_scope", needed=scope, provided=",".join(sorted(scopes)))


def _start(cursor: str) -> int:
    if not cursor:
        return 0
    try:
        return int(base64.b64decode(cursor, validate=True).removeprefix(b"team:"))
    except ValueError:
        raise _SlackError("invalid_cursor") from None


def _announced(text: str, body: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names that a message notifies."""
    named = re.findall(r"<([!@][^<>]+)>", text)
    if body.get("parse") == "full" or body.get("link_names"):
        named += _EVERYBODY.findall(text)
    return tuple(named)
