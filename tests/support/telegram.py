"""Telegram's Bot API as its reference documents it, on loopback: a real TLS server with a memory, and the token in the path.

    with TelegramServer(authority.server_context(*NAMES), listener=machine.listen()) as telegram:
        telegram.allow("110201543:AAHd…")
        chat = telegram.chat("Releases", kind="supergroup", members=12)
        telegram.write(chat, "is it out?", name="Ann")
        …                                        # something asks it
        assert telegram.sent[0].text == "1.2 is out."

It answers `getMe`, `getUpdates`, `getChat`, `getChatMemberCount` and `sendMessage`, by GET or POST, with a query, a form or JSON.
An unknown token gets 401 `Unauthorized`, a text that is no token 404 `Not Found`. `disturb` replaces responses for a while;
`echo` puts the request's path, token and all, into every refusal and into fields of every response.

`asked` is every request it got, without the token: of that only a digest is kept.

Left out: everything else. Source: Telegram's documentation, "Bot API": Making requests, Update, ChatFullInfo, ResponseParameters.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import re
import socket
import ssl
import urllib.parse
from collections.abc import Mapping
from typing import Any, Final

from tests.support.serving import Service
from tests.support.upstream import Seen, answer

__all__ = ["NAMES", "Asked", "Sent", "TelegramServer", "digest_of"]

NAMES: Final = ("api.telegram.org",)
"""Names in the server's certificate."""
_PATH: Final = re.compile(r"/bot([0-9]+:[A-Za-z0-9_-]{8,})/([A-Za-z]+)")
_TEXT_LIMIT: Final = 4096


@dataclasses.dataclass(frozen=True)
class Asked:
    """A request. `token` is the digest of the one in its path, as `digest_of` makes it; None if that was no token."""

    verb: str
    host: str
    method: str
    given: Mapping[str, Any]
    fields: Mapping[str, str]
    token: str | None


@dataclasses.dataclass(frozen=True)
class Sent:
    """A message that a bot sent, and all parameters of the request."""

    chat: int
    message_id: int
    text: str
    given: Mapping[str, Any]


class _RefusedError(Exception):
    """A response that is not `ok`."""

    def __init__(self, code: int, description: str, **parameters: int) -> None:
        super().__init__(description)
        self.code = code
        self.body: dict[str, Any] = {"ok": False, "error_code": code, "description": description}
        if parameters:
            self.body["parameters"] = parameters


def digest_of(token: str) -> str:
    """Return the value of `Asked.token` for a request with this token."""
    return hashlib.sha256(token.encode()).hexdigest()


class TelegramServer(Service):
    """A server with one bot and its chats."""

    def __init__(self, tls: ssl.SSLContext | None, *, listener: socket.socket | None = None) -> None:
        super().__init__(tls, listener)
        self.asked: Final[list[Asked]] = []
        self.sent: Final[list[Sent]] = []
        self.chats: Final[dict[int, dict[str, Any]]] = {}
        self.updates: Final[list[dict[str, Any]]] = []
        self.bot: Final = {"id": 110201543, "is_bot": True, "first_name": "Release bot", "username": "release_bot"}
        self.echo = False
        self._members: Final[dict[int, int]] = {}
        self._allowed: Final[set[str]] = set()
        self._numbers: Final = itertools.count(1)

    # What the test says

    def allow(self, token: str) -> None:
        """Accept this token from now on."""
        with self._lock:
            self._allowed.add(digest_of(token))

    def revoke(self, token: str) -> None:
        """Refuse this token from now on."""
        with self._lock:
            self._allowed.discard(digest_of(token))

    def chat(self, title: str, *, kind: str = "supergroup", members: int = 3, **more: Any) -> int:
        """Create a chat. Return its id. `more` are fields of the reference, such as `username`."""
        with self._lock:
            number = next(self._numbers)
            chat = number if kind == "private" else -1_000_000_000_000 - number
            named = {"first_name": title} if kind == "private" else {"title": title}
            self.chats[chat] = {"id": chat, "type": kind, **named, **more}
            self._members[chat] = members
            return chat

    def write(self, chat: int, text: str | None, *, name: str = "Ann", kind: str = "message", **more: Any) -> int:
        """Write a message to a chat as a user. Return the update's number."""
        with self._lock:
            number = next(self._numbers)
            sender = {"id": 42, "is_bot": False, "first_name": name}
            message = {"message_id": number, "date": 1_700_000_000 + number, "chat": self.chats[chat], "from": sender}
            message |= {} if text is None else {"text": text}
            self.updates.append({"update_id": 870_000_000 + number, kind: message | more})
            return 870_000_000 + number

    def forget_everything(self) -> None:
        """Remove all chats, and empty the list of requests."""
        with self._lock:
            for kept in (self.asked, self.sent, self.chats, self.updates, self._disturbances):
                kept.clear()
            self.echo = False

    def called(self) -> list[str]:
        """Return verb and method of every request, in order: `GET getChat`."""
        with self._lock:
            return [f"{asked.verb} {asked.method}" for asked in self.asked]

    # Answering

    def _answer(self, seen: Seen) -> bytes:
        self._forget_requests()
        url = urllib.parse.urlsplit(seen.target)
        found = _PATH.fullmatch(url.path)
        method = url.path.rpartition("/")[2] if found is None else found[2]
        self.gate.pass_through(method)
        with self._lock:
            return self._answered(seen, url, method, None if found is None else digest_of(found[1]))

    def _answered(self, seen: Seen, url: urllib.parse.SplitResult, method: str, token: str | None) -> bytes:
        given = _given(seen, url.query)
        fields = {name.lower(): value for name, value in seen.fields}
        self.asked.append(Asked(seen.method, fields.get("host", ""), method, given, fields, token))
        extra = ["Content-Type: application/json"]
        if self.echo:
            extra += [f"Location: https://elsewhere.example.com{seen.target}", f"X-Was: {seen.target}"]
        status, body = 200, {}
        try:
            if token is None:
                raise _RefusedError(404, "Not Found")
            if token not in self._allowed:
                raise _RefusedError(401, "Unauthorized")
            if (disturbance := self._disturbance(method)) is not None:
                return answer(disturbance.body, *extra, status=disturbance.status)
            route = getattr(self, f"_at_{method}", None)
            if route is None:
                raise _RefusedError(404, "Not Found: method not found")
            body = {"ok": True, "result": route(given)}
        except _RefusedError as error:
            status, body = error.code, error.body
            if self.echo:
                body["description"] += f" ({seen.target})"
        return answer(json.dumps(body).encode(), *extra, status=f"{status} Whatever")

    # Methods

    def _at_getMe(self, _given: Mapping[str, Any]) -> dict[str, Any]:  # noqa: N802  (as Telegram calls it; so the others)
        return self.bot

    def _at_getUpdates(self, given: Mapping[str, Any]) -> list[dict[str, Any]]:  # noqa: N802
        offset, limit = int(given.get("offset", 0)), int(given.get("limit", 100))
        if not 1 <= limit <= 100:
            raise _RefusedError(400, "Bad Request: limit must be between 1 and 100")
        if offset > 0:
            self.updates[:] = [update for update in self.updates if update["update_id"] >= offset]
        return self.updates[:limit]

    def _at_getChat(self, given: Mapping[str, Any]) -> dict[str, Any]:  # noqa: N802
        return self._chat_of(given)

    def _at_getChatMemberCount(self, given: Mapping[str, Any]) -> int:  # noqa: N802
        return self._members[self._chat_of(given)["id"]]

    def _at_sendMessage(self, given: Mapping[str, Any]) -> dict[str, Any]:  # noqa: N802
        chat, text = self._chat_of(given), str(given.get("text", ""))
        if not text.strip():
            raise _RefusedError(400, "Bad Request: message text is empty")
        if len(text) > _TEXT_LIMIT:
            raise _RefusedError(400, "Bad Request: message is too long")
        number = next(self._numbers)
        self.sent.append(Sent(chat["id"], number, text, given))
        return {"message_id": number, "date": 1_700_000_000 + number, "chat": chat, "from": self.bot, "text": text}

    def _chat_of(self, given: Mapping[str, Any]) -> dict[str, Any]:
        wanted = str(given.get("chat_id", ""))
        for chat in self.chats.values():
            if wanted in (str(chat["id"]), f"@{chat.get('username', '')}"):
                return chat
        raise _RefusedError(400, "Bad Request: chat not found")


def _given(seen: Seen, query: str) -> dict[str, Any]:
    given: dict[str, Any] = dict(urllib.parse.parse_qsl(query))
    kind = next(iter(seen.values("content-type")), "")
    if seen.body and kind.startswith("application/json"):
        given |= json.loads(seen.body)
    elif seen.body:
        given |= dict(urllib.parse.parse_qsl(seen.body.decode()))
    return given
