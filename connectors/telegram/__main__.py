"""Connector for one Telegram bot. It reads messages to the bot, looks up a chat, and sends messages.

Runs inside the jail. The connector asks the host to send requests and to insert the bot's token into their paths; the
connector never has the token. Everything that is read was written by other people, so it is passed on as data and never
interpreted. No part of a message goes into the log.

Rules
- Requests do not wait at Telegram for new messages (`timeout=0`).
- Reading deletes no updates, except with `after`: Telegram then deletes all updates up to and including that one, for
  every program that reads them.
- The caller's text is sent as plain text: no markup, no preview of a link.
- A caller names a chat by its id or its public @name. Similar names do not match.

Source: Telegram's Bot API: getUpdates, getChat, getChatMemberCount, getMe, sendMessage. Not handled: files, buttons, changing and
deleting messages, business accounts, webhooks.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, Final

import api
import msgspec

from aileron_connector import BadInput, log, op, run

MAX_UPDATES: Final = 100
"""Maximum number of updates in one request. Telegram returns no more."""
MAX_TEXT_UNITS: Final = 4096
"""Maximum length of a message in UTF-16 code units, which is how Telegram counts."""
MAX_READ_CHARACTERS: Final = 4096
"""Maximum number of characters of a message that is read, equal to the length of the longest possible message."""
MAX_READ_BYTES: Final = 512 << 10
"""Maximum number of bytes of returned updates as JSON, half of a result. If there are more updates, pass the returned
`last` as `after`.
"""
MAX_NAME_CHARACTERS: Final = 200
MAX_DESCRIPTION_CHARACTERS: Final = 250

_CHAT: Final = re.compile(r"-?[1-9][0-9]{0,18}|@[A-Za-z][A-Za-z0-9_]{3,31}")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_KINDS: Final = ("message", "edited_message", "channel_post", "edited_channel_post")
_SEEN_BY: Final = {
    "private": "one person",
    "group": "the members of the group",
    "supergroup": "the members of the group",
    "channel": "everybody who follows the channel",
}


class _User(msgspec.Struct):
    id: int
    first_name: str = ""
    last_name: str = ""
    username: str = ""
    is_bot: bool = False


class _Chat(msgspec.Struct):
    id: int
    type: str
    title: str = ""
    username: str = ""
    first_name: str = ""
    last_name: str = ""
    description: str = ""
    bio: str = ""


class _Message(msgspec.Struct):
    message_id: int
    date: int
    chat: _Chat
    sender: _User | None = msgspec.field(default=None, name="from")
    sender_chat: _Chat | None = None
    text: str | None = None
    caption: str | None = None


class _Update(msgspec.Struct):
    update_id: int
    message: _Message | None = None
    edited_message: _Message | None = None
    channel_post: _Message | None = None
    edited_channel_post: _Message | None = None


@op
def read_updates(max_results: int = 20, after: int | None = None) -> dict[str, Any]:
    """Read messages to the bot, oldest first. With `after`, only later updates are read, and Telegram deletes the
    updates up to and including `after`.
    """
    if not 1 <= max_results <= MAX_UPDATES:
        raise BadInput(f"max_results {max_results} is not from 1 to {MAX_UPDATES}", argument="max_results")
    if after is not None and not 0 <= after < 1 << 62:
        raise BadInput("after is not the update_id of an update", argument="after")
    query = [("limit", str(max_results)), ("timeout", "0")]
    query += [] if after is None else [("offset", str(after + 1))]
    found = api.get("read the updates", "getUpdates", list[_Update], query)
    updates, size = list[dict[str, Any]](), 0
    for update in found[:max_results]:
        shown = _as_json(update)
        size += len(msgspec.json.encode(shown))
        if size > MAX_READ_BYTES:
            break
        updates.append(shown)
    return {"updates": updates, "last": updates[-1]["update_id"] if updates else after}


@op
def get_chat(chat: str) -> dict[str, Any]:
    """Return a chat, who can read it, and the bot that sends: what a person should know before they approve a message."""
    query = [("chat_id", _checked_chat(chat))]
    found = api.get("look up the chat", "getChat", _Chat, query)
    members = 2 if found.type == "private" else api.get("count its members", "getChatMemberCount", int, query)
    bot = api.get("ask which bot it is", "getMe", _User)
    return {
        "chat": _shown(found),
        "members": members,
        "seen_by": _SEEN_BY.get(found.type, "nobody knows: it is a kind of chat that this connector does not know"),
        "sent_as": _cut(f"@{bot.username}" if bot.username else bot.first_name, MAX_NAME_CHARACTERS),
    }


@op
def send_message(chat: str, text: str, reply_to: int | None = None, silent: bool = False) -> dict[str, Any]:
    """Send `text` to a chat as the bot. All members of the chat can read it at once."""
    body: dict[str, Any] = {"chat_id": _chat_id(_checked_chat(chat)), "text": _checked_text(text)}
    body |= {"link_preview_options": {"is_disabled": True}, "disable_notification": silent}
    if reply_to is not None:
        if not 1 <= reply_to < 1 << 53:
            raise BadInput("reply_to is not the message_id of a message", argument="reply_to")
        body["reply_parameters"] = {"message_id": reply_to}
    sent = api.post("send the message", "sendMessage", body, _Message)
    log.info("message sent", characters=len(text))
    return {"message": {"chat_id": sent.chat.id, "message_id": sent.message_id, "time": _time(sent.date)}}


def _checked_chat(chat: str) -> str:
    if _CHAT.fullmatch(chat) is None:
        words = f"chat {chat[:64]!r} is neither an id such as -1001234567890 nor a public name such as @releases"
        raise BadInput(words, argument="chat")
    return chat


def _chat_id(chat: str) -> int | str:
    return chat if chat.startswith("@") else int(chat)


def _checked_text(text: str) -> str:
    """Return the text with LF as line ends. Raises BadInput if the text is empty or too long, or has a control character."""
    text = text.replace("\r\n", "\n")
    if not text.strip():
        raise BadInput("text is empty", argument="text")
    if (control := _CONTROL.search(text)) is not None:
        raise BadInput(f"text has a control character: U+{ord(control[0]):04X}; remove it", argument="text")
    if (units := len(text.encode("utf-16-le", "surrogatepass")) // 2) > MAX_TEXT_UNITS:
        raise BadInput(f"text is {units} characters as Telegram counts them; at most {MAX_TEXT_UNITS}", argument="text")
    return text


def _as_json(update: _Update) -> dict[str, Any]:
    kind = next((kind for kind in _KINDS if getattr(update, kind) is not None), None)
    if kind is None:
        return {"update_id": update.update_id, "kind": "other"}
    message: _Message = getattr(update, kind)
    text = message.text if message.text is not None else message.caption
    return {
        "update_id": update.update_id,
        "kind": kind,
        "message_id": message.message_id,
        "chat": _shown(message.chat),
        "author": _author(message),
        "time": _time(message.date),
        "text": None if text is None else _cut(text, MAX_READ_CHARACTERS),
    }


def _author(message: _Message) -> dict[str, Any] | None:
    if (user := message.sender) is not None:
        name = _cut(f"{user.first_name} {user.last_name}".strip(), MAX_NAME_CHARACTERS)
        return {
            "id": user.id,
            "name": name,
            "username": user.username[:MAX_NAME_CHARACTERS] or None,
            "bot": user.is_bot,
        }
    return None if message.sender_chat is None else _shown(message.sender_chat)


def _shown(chat: _Chat) -> dict[str, Any]:
    name = chat.title or f"{chat.first_name} {chat.last_name}".strip()
    return {
        "id": str(chat.id),
        "type": chat.type[:MAX_NAME_CHARACTERS],
        "name": _cut(name, MAX_NAME_CHARACTERS),
        "username": chat.username[:MAX_NAME_CHARACTERS] or None,
        "description": _cut(chat.description or chat.bio, MAX_DESCRIPTION_CHARACTERS) or None,
    }


def _time(seconds: int) -> str | None:
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return None


def _cut(text: str, characters: int) -> str:
    return text if len(text) <= characters else f"{text[:characters]}…"


if __name__ == "__main__":
    run()
