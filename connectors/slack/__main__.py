"""Connector for one Slack workspace. It lists channels, searches messages, and posts messages to a channel.

Runs inside the jail. The connector asks the host to send requests and to add the token; the connector never has the
token. Everything that is read was written by other people, so it is passed on as data and never interpreted. No part of
a message goes into the log.

Rules
- The caller's text is posted literally: `<!channel>` in it stays text and mentions nobody, and no preview of a link is added.
- A caller names a channel by its id or its exact name. Similar names do not match.

Source: Slack's Web API: conversations.list, conversations.info, search.messages, chat.postMessage, auth.test. Not handled: direct
messages by a person's name, files, reactions, changing or deleting messages, names of private channels (their ids work).
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, Final, Literal

import api
import msgspec
from markup import escaped, plain

from aileron_connector import BadInput, ExternalApiError, log, op, run

MAX_PAGE: Final = 200
"""Maximum number of channels in one request. Slack recommends no more."""
MAX_PAGES: Final = 20
"""Maximum number of pages of one listing (4,000 channels in all). Slack allows about as many requests in a minute."""
MAX_MATCHES: Final = 100
"""Maximum number of matches of one search, which is Slack's limit for a page."""
MAX_SEARCH_PAGE: Final = 100
"""Last page of a search; Slack returns no later pages."""
MAX_TEXT_CHARACTERS: Final = 40_000
"""Maximum number of characters of a sent message, with entities. Slack cuts longer messages."""
MAX_FOUND_CHARACTERS: Final = 1000
"""Maximum number of characters of a message in a search. A hundred of them, at six bytes a character, fit into 1 MiB."""
MAX_TOPIC_CHARACTERS: Final = 250
"""Maximum number of characters of a topic or purpose, which is Slack's own limit."""
MAX_NAME_CHARACTERS: Final = 200
_MAX_LINK: Final = 2000

_ID: Final = re.compile(r"[CGD][A-Z0-9]{6,30}")
_NAME: Final = re.compile(r"[^\sA-Z#@<>&,]{1,80}")
"""Pattern for a channel's name: in lower case, in any alphabet, without blanks."""
_TS: Final = re.compile(r"[0-9]{1,11}\.[0-9]{6}")
_LINK: Final = re.compile(r"https://[A-Za-z0-9.-]+(?::[0-9]+)?(?:[/?#][!-;=?-{}~]*)?")
"""Pattern for an https address in ASCII, without a user, and without `<`, `>` and `|`, which end an address in Slack's format."""
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class _Words(msgspec.Struct):
    value: str = ""


class _Channel(msgspec.Struct):
    id: str
    name: str = ""
    is_private: bool = False
    is_archived: bool = False
    is_member: bool = False
    is_ext_shared: bool = False
    is_pending_ext_shared: bool = False
    num_members: int | None = None
    topic: _Words = msgspec.field(default_factory=_Words)
    purpose: _Words = msgspec.field(default_factory=_Words)


class _More(msgspec.Struct):
    next_cursor: str = ""


class _Channels(msgspec.Struct):
    channels: list[_Channel]
    response_metadata: _More = msgspec.field(default_factory=_More)


class _OneChannel(msgspec.Struct):
    channel: _Channel


class _Account(msgspec.Struct):
    user: str
    team: str


class _Place(msgspec.Struct):
    id: str = ""
    name: str = ""


class _Match(msgspec.Struct):
    ts: str
    text: str = ""
    user: str | None = None
    username: str | None = None
    permalink: str = ""
    channel: _Place = msgspec.field(default_factory=_Place)


class _Paging(msgspec.Struct):
    page: int = 1
    pages: int = 1
    total: int = 0


class _Matches(msgspec.Struct):
    matches: list[_Match]
    paging: _Paging = msgspec.field(default_factory=_Paging)


class _Found(msgspec.Struct):
    messages: _Matches


class _Posted(msgspec.Struct):
    ts: str
    channel: str


# Channels


@op
def list_channels(max_results: int = 100, cursor: str | None = None, include_archived: bool = False) -> dict[str, Any]:
    """List at most `max_results` public channels. `next_cursor` continues the listing, and is null at the end."""
    if not 1 <= max_results <= MAX_PAGE:
        raise BadInput(f"max_results {max_results} is not from 1 to {MAX_PAGE}", argument="max_results")
    found: list[_Channel] = []
    for _page in range(MAX_PAGES):  # Slack may return fewer than requested, and even an empty page before the end
        more, cursor = _channels(
            "list the channels", cursor, max_results - len(found), include_archived=include_archived
        )
        found += more[: max_results - len(found)]
        if cursor is None or len(found) == max_results:
            break
    return {"channels": [_shown(channel) for channel in found], "next_cursor": cursor}


@op
def get_channel(channel: str) -> dict[str, Any]:
    """Return a channel, who can read it, and the account that posts: what a person should know before they approve a
    message.
    """
    name_or_id = _checked_channel(channel)
    if _ID.fullmatch(name_or_id):
        query = [("channel", name_or_id), ("include_num_members", "true")]
        found = api.get("read the channel", "conversations.info", _OneChannel, query).channel
        _check_id("read the channel", found)
    else:
        found = _named(name_or_id)
    account = api.get("ask whose token it is", "auth.test", _Account)
    return {
        "channel": _shown(found),
        "seen_by": _seen_by(found),
        "posted_as": _cut(account.user, MAX_NAME_CHARACTERS),
        "workspace": _cut(account.team, MAX_NAME_CHARACTERS),
    }


def _channels(
    task: str, cursor: str | None, limit: int, *, include_archived: bool = False
) -> tuple[list[_Channel], str | None]:
    """Return one page of public channels, and the cursor of the next page."""
    query = [("types", "public_channel"), ("exclude_archived", "false" if include_archived else "true")]
    query += [("limit", str(limit)), *([("cursor", cursor)] if cursor else [])]
    page = api.get(task, "conversations.list", _Channels, query)
    for channel in page.channels:
        _check_id(task, channel)
    return page.channels, page.response_metadata.next_cursor or None


def _check_id(task: str, channel: _Channel) -> None:
    if _ID.fullmatch(channel.id) is None:
        raise ExternalApiError(f"cannot {task}: Slack's answer is not what its reference says: an id")


def _checked_channel(channel: str) -> str:
    """Return a channel's id, or its name without `#`. Raises BadInput if the text is neither."""
    name = channel.removeprefix("#")
    if _ID.fullmatch(channel) or _NAME.fullmatch(name):
        return name
    words = f"channel {channel[:64]!r} is neither a name such as #general nor an id such as C024BE91L"
    raise BadInput(words, argument="channel")


def _named(name: str) -> _Channel:
    """Return the public channel with exactly that name. Raises BadInput if no channel, or more than one, has that name."""
    cursor, seen = None, 0
    for _page in range(MAX_PAGES):
        page, cursor = _channels(f"look for #{name}", cursor, MAX_PAGE)
        seen += len(page)
        found = [channel for channel in page if channel.name == name]
        if len(found) > 1:
            ids = ", ".join(channel.id for channel in found)
            raise BadInput(f"{len(found)} channels are called #{name}; give one of the ids: {ids}", argument="channel")
        if found:
            return found[0]
        if cursor is None:
            words = f"no public channel is called #{name}, or it is archived; a private one goes by its id"
            raise BadInput(words, argument="channel")
    words = f"no #{name} is among the first {seen} channels, and there are more: give the channel's id"
    raise BadInput(words, argument="channel")


def _shown(channel: _Channel) -> dict[str, Any]:
    return {
        "id": channel.id,
        "name": _cut(channel.name, MAX_NAME_CHARACTERS),
        "members": channel.num_members,
        "topic": _cut(plain(channel.topic.value), MAX_TOPIC_CHARACTERS),
        "purpose": _cut(plain(channel.purpose.value), MAX_TOPIC_CHARACTERS),
        "private": channel.is_private,
        "archived": channel.is_archived,
        "member": channel.is_member,
        "shared": channel.is_ext_shared or channel.is_pending_ext_shared,
    }


def _seen_by(channel: _Channel) -> str:
    """Describe who sees posts in the channel, for the person who decides."""
    if channel.is_archived:
        return "nobody: the channel is archived, and Slack will refuse the message"
    who = "its members" if channel.is_private else "everybody in the workspace"
    if channel.is_ext_shared:
        return f"{who}, and people of another organization"
    if channel.is_pending_ext_shared:
        return f"{who}, and people of another organization once they accept"
    return who


# Messages


@op
def search_messages(
    query: str, max_results: int = 20, page: int = 1, sort: Literal["timestamp", "score"] = "timestamp"
) -> dict[str, Any]:
    """Find messages by `query` (Slack's search language), the newest or the most relevant first. This needs a user's token."""
    if not query.strip():
        raise BadInput("query is empty", argument="query")
    if not 1 <= max_results <= MAX_MATCHES:
        raise BadInput(f"max_results {max_results} is not from 1 to {MAX_MATCHES}", argument="max_results")
    if not 1 <= page <= MAX_SEARCH_PAGE:
        raise BadInput(f"page {page} is not from 1 to {MAX_SEARCH_PAGE}", argument="page")
    asked = [("query", query), ("count", str(max_results)), ("page", str(page)), ("sort", sort), ("sort_dir", "desc")]
    found = api.get("search the messages", "search.messages", _Found, asked).messages
    is_last = page >= min(found.paging.pages, MAX_SEARCH_PAGE)
    return {
        "messages": [_as_json(match) for match in found.matches[:max_results]],
        "page": page,
        "next_page": None if is_last else page + 1,
        "total": found.paging.total,
    }


def _as_json(match: _Match) -> dict[str, Any]:
    text = plain(match.text)
    return {
        "text": _cut(text, MAX_FOUND_CHARACTERS),
        "text_is_cut": len(text) > MAX_FOUND_CHARACTERS,
        "author": _cut(match.username or "", MAX_NAME_CHARACTERS) or None,
        "author_id": _cut(match.user or "", MAX_NAME_CHARACTERS) or None,
        "channel": {
            "id": _cut(match.channel.id, MAX_NAME_CHARACTERS),
            "name": _cut(match.channel.name, MAX_NAME_CHARACTERS),
        },
        "ts": _cut(match.ts, MAX_NAME_CHARACTERS),
        "time": _time(match.ts),
        "link": _cut(match.permalink, _MAX_LINK),
    }


@op
def post_message(
    channel: str, text: str, link: str | None = None, thread_ts: str | None = None, mrkdwn: bool = False
) -> dict[str, Any]:
    """Post `text`, with `link` on a separate line below. Many people see the post at once; it cannot be undone."""
    message = _message(text, link)
    if thread_ts is not None and _TS.fullmatch(thread_ts) is None:
        raise BadInput(f"thread_ts {thread_ts[:64]!r} is not a message's ts as a search gives it", argument="thread_ts")
    name_or_id = _checked_channel(channel)
    target = name_or_id if _ID.fullmatch(name_or_id) else _named(name_or_id).id
    body: dict[str, Any] = {"channel": target, "text": message, "mrkdwn": mrkdwn}
    body |= {"parse": "none", "link_names": False}  # no name in the text becomes a mention
    body |= {"unfurl_links": False, "unfurl_media": False}  # and no preview is shown that the approver has not seen
    if thread_ts is not None:
        body["thread_ts"] = thread_ts
    posted = api.post("post the message", "chat.postMessage", body, _Posted)
    log.info("message posted", characters=len(message))
    return {"message": {"channel": posted.channel, "ts": posted.ts, "time": _time(posted.ts)}}


def _message(text: str, link: str | None) -> str:
    """Return the text, escaped, with the link below it, as Slack expects. Raises BadInput, before any request is sent, if
    one of the two is not valid.
    """
    text = text.replace("\r\n", "\n")
    if not text.strip():
        raise BadInput("text is empty", argument="text")
    if (control := _CONTROL.search(text)) is not None:
        raise BadInput(f"text has a control character: U+{ord(control[0]):04X}; remove it", argument="text")
    message = escaped(text)
    if link is not None:
        if len(link) > _MAX_LINK or _LINK.fullmatch(link) is None:
            words = f"link {link[:64]!r} is not an https address of at most {_MAX_LINK} ASCII characters"
            raise BadInput(words, argument="link")
        message = f"{message}\n<{escaped(link)}>"
    if len(message) > MAX_TEXT_CHARACTERS:
        words = f"text is {len(message)} characters as Slack counts them (& is five); at most {MAX_TEXT_CHARACTERS}"
        raise BadInput(words, argument="text")
    return message


def _time(ts: str) -> str | None:
    """Return the time in a message's `ts`, which begins with the seconds since 1970, as RFC 3339 text. None if `ts` has
    another form.
    """
    if _TS.fullmatch(ts) is None:
        return None
    try:
        return datetime.fromtimestamp(int(ts.partition(".")[0]), UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return None


def _cut(text: str, characters: int) -> str:
    return text if len(text) <= characters else f"{text[:characters]}…"


if __name__ == "__main__":
    run()
